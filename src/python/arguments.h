// Arguments as Python callers give them, turned into ours with errors that show the value.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace kvpool::python {

// `value` as text for an error message: its repr, shortened.
std::string shown(nanobind::handle value);

// Any integer (int, numpy's, whatever has __index__). TypeError for others, ValueError outside
// 64 bits. `what` begins the message: "[PoolConfig] block_size".
std::int64_t to_int64(nanobind::handle value, const char* what);

// The arguments of a CPython method by position and by name, in the order of `names`; null for one
// that was left out. TypeError where one of the first `n_required` is missing, or for one too many.
template <std::size_t N>
std::array<PyObject*, N> parse_arguments(const char* function,
                                         const std::array<const char*, N>& names,
                                         std::size_t n_required, PyObject* const* args,
                                         Py_ssize_t n_args, PyObject* keywords) {
  std::array<PyObject*, N> values{};
  const auto refuse = [function](const std::string& why) {
    throw nanobind::type_error((std::string(function) + " " + why).c_str());
  };
  const auto n_positional = static_cast<std::size_t>(n_args);
  if (n_positional > N) {
    refuse("takes at most " + std::to_string(N) + " argument(s), got " + std::to_string(n_args));
  }
  std::copy_n(args, n_positional, values.begin());
  const std::size_t n_keywords =
      keywords == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(keywords));
  for (std::size_t k = 0; k < n_keywords; ++k) {
    PyObject* name = PyTuple_GET_ITEM(keywords, static_cast<Py_ssize_t>(k));
    const auto found = std::find_if(names.begin(), names.end(), [name](const char* known) {
      return PyUnicode_CompareWithASCIIString(name, known) == 0;
    });
    if (found == names.end()) refuse("has no argument " + shown(name));
    PyObject*& value = values[static_cast<std::size_t>(found - names.begin())];
    if (value != nullptr) refuse(std::string("argument ") + *found + " was given twice");
    value = args[n_positional + k];
  }
  for (std::size_t i = 0; i < n_required; ++i) {
    if (values[i] == nullptr) refuse(std::string("missing argument ") + names[i]);
  }
  return values;
}

}  // namespace kvpool::python
