#include "shared_pool.h"

#include <string>

#include "arguments.h"

namespace nb = nanobind;

namespace kvpool::python {

// Dropping an object may run Python code, so the table is in order before the first is dropped.
void SharedPool::forget_cleared(const std::vector<OwnerId>& cleared) {
  std::vector<nb::object> dropped;
  dropped.reserve(cleared.size());
  for (const OwnerId owner : cleared) {
    if (!claims.contains(owner)) dropped.push_back(nb::steal(owners.remove(owner)));
  }
}

PyObject* SharedPool::format_object(FormatTag tag) {
  const auto index = static_cast<std::size_t>(tag);
  while (formats.size() <= index) {
    const std::string name = pool.format_name(FormatTag(formats.size()));
    PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
    if (text == nullptr) throw nb::python_error();
    PyUnicode_InternInPlace(&text);
    formats.push_back(nb::steal(text));
  }
  return formats[index].ptr();
}

FormatTag SharedPool::format_tag(PyObject* name) {
  // Format names are literals in nearly every caller, hence interned: compare by address first.
  for (std::size_t i = 0; i < formats.size(); ++i) {
    if (formats[i].ptr() == name) return FormatTag(i);
  }
  if (!PyUnicode_Check(name)) {
    throw nb::type_error(("[BlockPoolAllocator] format must be a str, got " + shown(name)).c_str());
  }
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (text == nullptr) throw nb::python_error();
  const FormatTag tag = pool.format({text, static_cast<std::size_t>(size)});
  format_object(tag);
  return tag;
}

}  // namespace kvpool::python
