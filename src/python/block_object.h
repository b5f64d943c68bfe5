// The Python type Block: one check-out of one block, as a live view of the pool's books.
//
// Written against CPython's own interface, not through nanobind: a Block is made for every block
// handed out, and this takes a third of the time.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "shared_pool.h"

namespace kvpool::python {

struct BlockObject {
  PyObject_HEAD SharedPool* shared;  // null for a Block made by hand
  Block handle;                      // handle.id is valid either way
  PyObject* owner;                   // who it was checked out to; None for nobody
  PyObject* format;
  PyObject* stream;
  std::int64_t n_used;  // of a Block made by hand
  bool ever_allocated;  // of a Block made by hand
};

// Makes the type and adds it to the module.
void bind_block(nanobind::module_& m);

PyTypeObject* block_type();
inline bool is_block(PyObject* object) { return PyObject_TypeCheck(object, block_type()); }

// The Python object of a check-out; null with a Python error set where memory is short.
PyObject* new_block(SharedPool& shared, const Block& handle, Stream stream, PyObject* format,
                    PyObject* owner);

// The interned "k", "v", "kv".
PyObject* stream_object(Stream stream);

}  // namespace kvpool::python
