// The three calls of the decode path are CPython methods: a call through nanobind costs more than
// the work itself.
#include <exception>
#include <utility>

#include "arguments.h"
#include "guarded.h"
#include "pool_object.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

// A vector of the pool's that keeps its memory between calls; whoever holds it has it alone.
class Scratch {
 public:
  explicit Scratch(SharedPool& shared) : shared_(shared), blocks_(std::move(shared.scratch)) {
    blocks_.clear();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { shared_.scratch = std::move(blocks_); }

  std::vector<Block>& operator*() { return blocks_; }

 private:
  SharedPool& shared_;
  std::vector<Block> blocks_;
};

PyObject* allocate(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guarded([=]() -> PyObject* {
    const auto [stream_name, n_tokens_given, owner_object, format_name] =
        parse_arguments<4>("[BlockPoolAllocator.allocate]",
                           {"stream", "n_tokens", "owner", "format"}, 3, args, n_args, keywords);
    SharedPool& shared = shared_of(self);
    const std::int64_t n_tokens =
        to_int64(n_tokens_given, "[BlockPoolAllocator.allocate] n_tokens");
    if (n_tokens < 1) {
      throw nb::value_error(("[BlockPoolAllocator.allocate] n_tokens must be at least 1, got " +
                             std::to_string(n_tokens))
                                .c_str());
    }
    const Stream stream = to_stream(shared, stream_name);
    const FormatTag format = format_name == nullptr ? FormatTag{} : shared.format_tag(format_name);
    OwnerTable::Compared compared;
    const OwnerId owner = to_owner(shared, owner_object, compared);
    Scratch blocks(shared);
    try {
      shared.pool.allocate(stream, n_tokens, owner, format, *blocks);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      shared.forget_if_inactive(owner);
      std::rethrow_exception(error);
    }
    // Making the list may collect garbage, whose Python code (or another thread meanwhile) may free
    // these very blocks, and with them the table's reference.
    const nb::object held = nb::borrow(OwnerTable::object(owner));
    return to_list(shared, *blocks, stream, shared.format_object(format), held.ptr())
        .release()
        .ptr();
  });
}

// The check-outs that `blocks` names. Those made by hand and owned by nobody read as free.
void collect(const SharedPool& shared, PyObject* sequence, std::vector<Block>& handles) {
  const Py_ssize_t n_blocks = PySequence_Fast_GET_SIZE(sequence);
  handles.reserve(static_cast<std::size_t>(n_blocks));
  for (Py_ssize_t i = 0; i < n_blocks; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    if (!is_block(item)) {
      throw nb::type_error(
          ("[BlockPoolAllocator.free] blocks must hold Blocks only, got " + shown(item)).c_str());
    }
    const auto* block = reinterpret_cast<BlockObject*>(item);
    if (block->shared == nullptr && block->owner == Py_None) continue;
    if (block->shared != &shared) {
      throw nb::value_error(
          ("[BlockPoolAllocator.free] this block is no check-out of this pool, so "
           "nothing was freed: " +
           shown(item))
              .c_str());
    }
    handles.push_back(block->handle);
  }
}

PyObject* free_blocks(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                      PyObject* keywords) {
  return guarded([=]() -> PyObject* {
    const auto [blocks] =
        parse_arguments<1>("[BlockPoolAllocator.free]", {"blocks"}, 1, args, n_args, keywords);
    SharedPool& shared = shared_of(self);
    const nb::object sequence = nb::steal(
        PySequence_Fast(blocks, "[BlockPoolAllocator.free] blocks must be a sequence of Blocks"));
    if (!sequence.is_valid()) throw nb::python_error();
    Scratch handles(shared);
    collect(shared, sequence.ptr(), *handles);
    std::vector<OwnerId> cleared;
    shared.pool.free(*handles, &cleared);
    shared.forget_cleared(cleared);
    Py_RETURN_NONE;
  });
}

PyObject* mark_used(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guarded([=]() -> PyObject* {
    const auto [block, n_used] = parse_arguments<2>("[BlockPoolAllocator.mark_used]",
                                                    {"block", "n_used"}, 2, args, n_args, keywords);
    if (!is_block(block)) {
      throw nb::type_error(
          ("[BlockPoolAllocator.mark_used] block must be a Block, got " + shown(block)).c_str());
    }
    shared_of(self).pool.mark_used(reinterpret_cast<BlockObject*>(block)->handle,
                                   to_int64(n_used, "[BlockPoolAllocator.mark_used] n_used"));
    Py_RETURN_NONE;
  });
}

}  // namespace

PyMethodDef kPoolMethods[] = {
    {"allocate", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(allocate)),
     METH_FASTCALL | METH_KEYWORDS,
     "allocate($self, stream, n_tokens, owner, format='fp16')\n--\n\n"
     "Check out ceil(n_tokens / block_size) blocks, all or none.\n\n"
     "Parameters\n----------\n"
     "stream : str\n    'k' or 'v'; ignored by a pool with one free list.\n"
     "n_tokens : int\n    Token slots wanted, at least 1.\n"
     "owner : Hashable\n    Who they go to; anything but None. Becomes active.\n"
     "format : str\n    Label of what the blocks will hold.\n\n"
     "Returns\n-------\n"
     "list of Block\n    In order, all full (`n_used`) but perhaps the last.\n\n"
     "Raises\n------\n"
     "BlockPoolExhaustedError\n    If too few are free and the pool may not grow far enough.\n"
     "ValueError, TypeError\n    For bad arguments; nothing changes.\n"},
    {"free", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(free_blocks)),
     METH_FASTCALL | METH_KEYWORDS,
     "free($self, blocks)\n--\n\n"
     "Give blocks back, in the order given.\n\n"
     "Blocks that are free already, and stale handles, are skipped. An owner that loses its last\n"
     "block is no longer active.\n\n"
     "Parameters\n----------\n"
     "blocks : sequence of Block\n\n"
     "Raises\n------\n"
     "ValueError\n    If one is no check-out of this pool; nothing is freed.\n"},
    {"mark_used", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mark_used)),
     METH_FASTCALL | METH_KEYWORDS,
     "mark_used($self, block, n_used)\n--\n\n"
     "Set how many token slots of a block are in use.\n\n"
     "Parameters\n----------\n"
     "block : Block\n    A free or stale one changes nothing.\n"
     "n_used : int\n    0 to block_size.\n\n"
     "Raises\n------\n"
     "ValueError\n    For an `n_used` outside that range.\n"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace kvpool::python
