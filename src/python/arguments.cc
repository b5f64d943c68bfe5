#include "arguments.h"

namespace nb = nanobind;

namespace kvpool::python {

std::string shown(nb::handle value) {
  constexpr Py_ssize_t kMostCharacters = 80;
  nb::object text = nb::steal(PyObject_Repr(value.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  const bool cut = PyUnicode_GET_LENGTH(text.ptr()) > kMostCharacters;
  if (cut) text = nb::steal(PyUnicode_Substring(text.ptr(), 0, kMostCharacters));
  if (!text.is_valid()) throw nb::python_error();
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return std::string(PyBytes_AS_STRING(bytes.ptr())) + (cut ? "…" : "");
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
