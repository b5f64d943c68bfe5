// C++ exceptions at the door of functions that CPython calls directly (nanobind guards its own).
#pragma once

#include <nanobind/nanobind.h>

namespace kvpool::python {

// Sets the Python error of the exception being handled: nanobind's exceptions as themselves, the
// pool's two as theirs, std::invalid_argument as ValueError, std::bad_alloc as MemoryError, others
// as RuntimeError.
void set_python_error() noexcept;

// `function()`, or its type's null where it throws, with the Python error set.
template <typename Function>
auto guarded(Function function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    set_python_error();
    return {};
  }
}

// Adds the pool's exceptions to the module.
void bind_errors(nanobind::module_& m);

}  // namespace kvpool::python
