#include "arguments.h"

namespace nb = nanobind;

namespace kvpool::python {

std::string shown(nb::handle value) {
  constexpr std::size_t kMostCharacters = 80;
  std::string text = nb::repr(value).c_str();
  if (text.size() > kMostCharacters) text = text.substr(0, kMostCharacters) + "…";
  return text;
}

std::int64_t to_int64(nb::handle value, const char* what) {
  if (!PyIndex_Check(value.ptr())) {
    const std::string text = std::string(what) + " must be an integer, got " + shown(value);
    throw nb::type_error(text.c_str());
  }
  const nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow != 0) {
    const std::string text =
        std::string(what) + " must fit 64 bits (at most 2**63 - 1), got " + shown(value);
    throw nb::value_error(text.c_str());
  }
  return result;
}

}  // namespace kvpool::python
