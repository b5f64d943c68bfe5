#include "pool_object.h"

#include "arguments.h"

namespace nb = nanobind;

namespace kvpool::python {

SharedPool& shared_of(PyObject* self) {
  if (!nb::inst_ready(self)) {
    throw nb::type_error(
        "[BlockPoolAllocator] this object was not initialised; call super().__init__()");
  }
  return *nb::inst_ptr<PoolObject>(self)->shared;
}

Stream to_stream(const SharedPool& shared, PyObject* name) {
  if (!shared.pool.config().separate_kv) return Stream::kShared;
  for (const Stream stream : {Stream::kKey, Stream::kValue}) {
    if (name == stream_object(stream)) return stream;
  }
  if (PyUnicode_Check(name)) {
    if (PyUnicode_CompareWithASCIIString(name, "k") == 0) return Stream::kKey;
    if (PyUnicode_CompareWithASCIIString(name, "v") == 0) return Stream::kValue;
  }
  throw nb::value_error(
      ("[BlockPoolAllocator] stream must be 'k' or 'v', got " + shown(name)).c_str());
}

OwnerId to_owner(SharedPool& shared, PyObject* owner, OwnerTable::Compared& compared) {
  if (owner == Py_None) {
    throw nb::value_error("[BlockPoolAllocator] owner must be any hashable but None, got None");
  }
  return shared.owners.find_or_add(owner, compared);
}

nb::list to_list(SharedPool& shared, std::span<const Block> blocks, Stream stream, PyObject* format,
                 PyObject* owner) {
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(blocks.size())));
  bool made_all = list.is_valid();
  for (std::size_t i = 0; made_all && i < blocks.size(); ++i) {
    PyObject* block = new_block(shared, blocks[i], stream, format, owner);
    made_all = block != nullptr;
    if (made_all) PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), block);
  }
  if (!made_all) {  // out of memory: the caller gets none, so the pool gets them back
    const nb::python_error error;
    std::vector<OwnerId> cleared;
    shared.pool.free(blocks, &cleared);
    shared.forget_cleared(cleared);
    throw nb::python_error(error);
  }
  return nb::cast<nb::list>(list);
}

}  // namespace kvpool::python
