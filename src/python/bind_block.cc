#include <string>

#include "arguments.h"
#include "block_object.h"
#include "guarded.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

// Made once, when the module is loaded, and alive as long as the process.
PyTypeObject* g_block_type = nullptr;
PyObject* g_stream_names[3] = {};

BlockObject* as_block(PyObject* object) { return reinterpret_cast<BlockObject*>(object); }

std::optional<BlockState> state_of(const BlockObject* block) {
  if (block->shared == nullptr) return std::nullopt;
  return block->shared->pool.inspect(block->handle);
}

PyObject* get_block_id(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(as_block(self)->handle.id);
}

PyObject* get_generation(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(as_block(self)->handle.generation);
}

PyObject* get_stream(PyObject* self, void*) { return Py_NewRef(as_block(self)->stream); }

PyObject* get_format(PyObject* self, void*) { return Py_NewRef(as_block(self)->format); }

PyObject* get_n_used(PyObject* self, void*) {
  return guarded([self]() -> PyObject* {
    const BlockObject* block = as_block(self);
    if (block->shared == nullptr) return PyLong_FromLongLong(block->n_used);
    const auto state = state_of(block);
    return PyLong_FromLongLong(state ? state->n_used : 0);
  });
}

// Through the books, as BlockPoolAllocator.mark_used; a check-out that has ended stays at 0.
int set_n_used(PyObject* self, PyObject* value, void*) {
  const bool done = guarded([self, value]() -> bool {
    if (value == nullptr) throw nb::type_error("[Block] n_used can't be deleted");
    BlockObject* block = as_block(self);
    const std::int64_t n_used = to_int64(value, "[Block] n_used");
    if (block->shared != nullptr) {
      block->shared->pool.mark_used(block->handle, n_used);
    } else if (n_used < 0) {
      throw nb::value_error(
          ("[Block] n_used must be at least 0, got " + std::to_string(n_used)).c_str());
    } else {
      block->n_used = n_used;
    }
    return true;
  });
  return done ? 0 : -1;
}

PyObject* get_owner(PyObject* self, void*) {
  return guarded([self]() -> PyObject* {
    const BlockObject* block = as_block(self);
    const bool ended = block->shared != nullptr && !state_of(block);
    return Py_NewRef(ended ? Py_None : block->owner);
  });
}

PyObject* get_ever_allocated(PyObject* self, void*) {
  const BlockObject* block = as_block(self);
  return PyBool_FromLong(block->shared != nullptr || block->ever_allocated);
}

// (block_id, stream, format, n_used, owner, ever_allocated), by which blocks compare and print.
nb::object fields(PyObject* self) {
  return nb::make_tuple(nb::steal(get_block_id(self, nullptr)), nb::borrow(as_block(self)->stream),
                        nb::borrow(as_block(self)->format), nb::steal(get_n_used(self, nullptr)),
                        nb::steal(get_owner(self, nullptr)),
                        nb::steal(get_ever_allocated(self, nullptr)));
}

PyObject* compare(PyObject* left, PyObject* right, int operation) {
  if (!is_block(left) || !is_block(right) || (operation != Py_EQ && operation != Py_NE)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return guarded([=]() -> PyObject* {
    return PyObject_RichCompare(fields(left).ptr(), fields(right).ptr(), operation);
  });
}

PyObject* repr(PyObject* self) {
  return guarded([self]() -> PyObject* {
    return nb::str(
               "Block(block_id={}, stream={!r}, format={!r}, n_used={}, owner={!r}, "
               "ever_allocated={})")
        .format(*nb::cast<nb::tuple>(fields(self)))
        .release()
        .ptr();
  });
}

// A copy is a Block made by hand: equal by value, no part of the books.
PyObject* reduce(PyObject* self, PyObject*) {
  return guarded([self]() -> PyObject* {
    return nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(g_block_type)), fields(self))
        .release()
        .ptr();
  });
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* const kNames[] = {"block_id", "stream",         "format", "n_used",
                                       "owner",    "ever_allocated", nullptr};
  PyObject* block_id = nullptr;
  PyObject* stream = g_stream_names[static_cast<std::size_t>(Stream::kShared)];
  PyObject* format = nullptr;
  PyObject* n_used = nullptr;
  PyObject* owner = Py_None;
  int ever_allocated = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|UUOOp:Block", const_cast<char**>(kNames),
                                   &block_id, &stream, &format, &n_used, &owner, &ever_allocated)) {
    return nullptr;
  }
  return guarded([=]() -> PyObject* {
    const std::int64_t id = to_int64(block_id, "[Block] block_id");
    const std::int64_t used = n_used == nullptr ? 0 : to_int64(n_used, "[Block] n_used");
    if (id < 0 || used < 0) {
      throw nb::value_error(("[Block] block_id and n_used must be at least 0, got " +
                             std::to_string(id) + " and " + std::to_string(used))
                                .c_str());
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    BlockObject* block = as_block(self);
    block->shared = nullptr;
    block->handle = Block{nullptr, static_cast<BlockId>(id), 0};
    block->owner = Py_NewRef(owner);
    block->format = format == nullptr ? PyUnicode_InternFromString("fp16") : Py_NewRef(format);
    block->stream = Py_NewRef(stream);
    block->n_used = used;
    block->ever_allocated = ever_allocated != 0;
    return self;
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_block(self)->owner);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  PyObject* owner = as_block(self)->owner;
  as_block(self)->owner = Py_NewRef(Py_None);
  Py_XDECREF(owner);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  BlockObject* block = as_block(self);
  PyObject_GC_UnTrack(self);
  Py_TRASHCAN_BEGIN(self, deallocate) SharedPool* shared = block->shared;
  Py_XDECREF(block->owner);
  Py_XDECREF(block->format);
  Py_XDECREF(block->stream);
  type->tp_free(self);
  Py_DECREF(type);
  if (shared != nullptr) PoolRef::drop(shared);
  Py_TRASHCAN_END
}

PyGetSetDef kFields[] = {
    {"block_id", get_block_id, nullptr, "int: index into the pool's storage; never moves.",
     nullptr},
    {"stream", get_stream, nullptr, "str: 'k', 'v' or 'kv'.", nullptr},
    {"format", get_format, nullptr, "str: the format the block was checked out for.", nullptr},
    {"n_used", get_n_used, set_n_used,
     "int: token slots in use, 0 to block_size; 0 once the check-out has ended.\n\n"
     "Setting it does what BlockPoolAllocator.mark_used does.",
     nullptr},
    {"owner", get_owner, nullptr,
     "Hashable or None: who the block is checked out to; None once that has ended.", nullptr},
    {"ever_allocated", get_ever_allocated, nullptr, "bool: whether it was ever handed out.",
     nullptr},
    {"generation", get_generation, nullptr,
     "int: unique to this check-out within the pool; 0 for a Block made by hand.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef kMethods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                          {nullptr, nullptr, 0, nullptr}};

constexpr const char* kDoc =
    "Block(block_id, stream='kv', format='fp16', n_used=0, owner=None, ever_allocated=False)\n"
    "--\n\n"
    "One check-out of one block of `block_size` token slots.\n\n"
    "Blocks that a pool hands out are live views of its books. Once freed they read\n"
    "``owner=None, n_used=0``, and stay so when the block goes to its next owner: a handle\n"
    "belongs to one check-out. Compared by value; not hashable. Only `n_used` can be set.\n";

PyType_Slot kSlots[] = {{Py_tp_doc, const_cast<char*>(kDoc)},
                        {Py_tp_new, reinterpret_cast<void*>(make)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(clear)},
                        {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                        {Py_tp_hash, reinterpret_cast<void*>(PyObject_HashNotImplemented)},
                        {Py_tp_repr, reinterpret_cast<void*>(repr)},
                        {Py_tp_getset, kFields},
                        {Py_tp_methods, kMethods},
                        {0, nullptr}};

PyType_Spec kSpec = {"kvpool._core.Block", sizeof(BlockObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kSlots};

}  // namespace

PyTypeObject* block_type() { return g_block_type; }

PyObject* stream_object(Stream stream) { return g_stream_names[static_cast<std::size_t>(stream)]; }

PyObject* new_block(SharedPool& shared, const Block& handle, Stream stream, PyObject* format,
                    PyObject* owner) {
  auto* block = PyObject_GC_New(BlockObject, g_block_type);
  if (block == nullptr) return nullptr;
  block->shared = &shared;
  ++shared.n_refs;  // until deallocate()
  block->handle = handle;
  block->owner = Py_NewRef(owner);
  block->format = Py_NewRef(format);
  block->stream = Py_NewRef(stream_object(stream));
  block->n_used = 0;
  block->ever_allocated = true;
  // An owner that can't be part of a cycle (an int, a str) can't make the block part of one.
  if (PyObject_IS_GC(owner)) PyObject_GC_Track(block);
  return reinterpret_cast<PyObject*>(block);
}

void bind_block(nb::module_& m) {
  for (const Stream stream : {Stream::kKey, Stream::kValue, Stream::kShared}) {
    PyObject* name = PyUnicode_InternFromString(std::string(to_string(stream)).c_str());
    if (name == nullptr) throw nb::python_error();
    g_stream_names[static_cast<std::size_t>(stream)] = name;
  }
  PyObject* type = PyType_FromSpec(&kSpec);
  if (type == nullptr) throw nb::python_error();
  g_block_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Block") = nb::borrow(type);
}

}  // namespace kvpool::python
