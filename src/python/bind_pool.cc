#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>
#include <exception>
#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "guarded.h"
#include "kvpool/pool/errors.h"
#include "pool_object.h"
#include "reservation_object.h"
#include "stats_view.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

// The Python type BlockPoolAllocator.
struct PoolObject {
  explicit PoolObject(nb::object config_object)
      : config(std::move(config_object)),
        shared(new SharedPool(nb::cast<const PoolConfig&>(config))),
        stats(nb::cast(StatsView{shared, {}})),
        history(nb::cast(HistoryView{shared})) {}
  PoolObject(const PoolObject&) = delete;
  PoolObject& operator=(const PoolObject&) = delete;
  // Handles may outlive the pool; the owners they name are theirs to hold, not ours.
  ~PoolObject() { shared->owners.forget(); }

  nb::object config;
  PoolRef shared;
  nb::object stats;
  nb::object history;
};

// CPython calls methods of kMethods on any instance, one whose __init__ never ran included.
SharedPool& shared_of(PyObject* self) {
  if (!nb::inst_ready(self)) {
    throw nb::type_error(
        "[BlockPoolAllocator] this object was not initialised; call super().__init__()");
  }
  return *nb::inst_ptr<PoolObject>(self)->shared;
}

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

// The three calls of the decode path are CPython methods: a call through nanobind costs more than
// the work itself.

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

PyMethodDef kMethods[] = {
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

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<PoolObject>(self)->config.ptr());
  return shared_of(self).owners.traverse(visit, arg);
}

int clear(PyObject* self) {
  if (nb::inst_ready(self)) shared_of(self).owners.forget();
  return 0;
}

PyType_Slot kSlots[] = {{Py_tp_methods, kMethods},
                        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(clear)},
                        {0, nullptr}};

nb::object make_config(nb::handle config) {
  if (config.is_none()) return nb::cast(PoolConfig{});
  if (nb::isinstance<PoolConfig>(config)) return nb::borrow(config);
  throw nb::type_error(
      ("[BlockPoolAllocator] config must be a PoolConfig, got " + shown(config)).c_str());
}

void register_owner(PoolObject& self, nb::handle owner) {
  SharedPool& shared = *self.shared;
  OwnerTable::Compared compared;
  const OwnerId id = to_owner(shared, owner.ptr(), compared);
  try {
    shared.pool.register_owner(id);
  } catch (const OwnerAlreadyActiveError&) {
    throw OwnerAlreadyActiveError("[BlockPoolAllocator.register_owner] owner " + shown(owner) +
                                  " is active: registered, or still holding blocks. Free its "
                                  "blocks first, or use another owner");
  }
}

void release_owner(PoolObject& self, nb::handle owner) {
  OwnerTable::Compared compared;
  const OwnerId id = self.shared->owners.find(owner.ptr(), compared);
  if (id == OwnerTable::kNobody) return;
  self.shared->pool.release_owner(id);
  self.shared->forget_if_inactive(id);
}

void free_all(PoolObject& self, nb::handle owner) {
  SharedPool& shared = *self.shared;
  OwnerTable::Compared compared;
  const OwnerId id = shared.owners.find(owner.ptr(), compared);
  const bool active = shared.pool.free_all(id);
  if (id != OwnerTable::kNobody && !active) shared.forget_cleared({id});
}

nb::list blocks_for(PoolObject& self, nb::handle owner) {
  SharedPool& shared = *self.shared;
  nb::list blocks;
  OwnerTable::Compared compared;
  const OwnerId id = shared.owners.find(owner.ptr(), compared);
  if (id == OwnerTable::kNobody) return blocks;
  const nb::object held = nb::borrow(OwnerTable::object(id));  // see allocate()
  for (const Block& block : shared.pool.blocks_for(id)) {
    const auto state = shared.pool.inspect(block);
    if (!state) continue;
    const nb::object made = nb::steal(
        new_block(shared, block, state->stream, shared.format_object(state->format), held.ptr()));
    if (!made.is_valid()) throw nb::python_error();
    blocks.append(made);
  }
  return blocks;
}

// The live holder of an owner's claim: `holder` itself, if there is no other that is alive.
nb::object claim(PoolObject& self, nb::handle owner, nb::handle holder) {
  SharedPool& shared = *self.shared;
  nb::object reference = nb::steal(PyWeakref_NewRef(holder.ptr(), nullptr));
  if (!reference.is_valid()) throw nb::python_error();
  OwnerTable::Compared compared;
  const OwnerId id = to_owner(shared, owner.ptr(), compared);
  nb::object& claimed = shared.claims[id];
  if (claimed.is_valid()) {
    const nb::handle other = PyWeakref_GetObject(claimed.ptr());
    if (!other.is_none()) return nb::borrow(other);
  }
  claimed = std::move(reference);
  return nb::borrow(holder);
}

// Ends the claim of `holder`, if it is the one that holds it or the one that did has gone.
void disclaim(PoolObject& self, nb::handle owner, nb::handle holder) {
  SharedPool& shared = *self.shared;
  OwnerTable::Compared compared;
  const OwnerId id = shared.owners.find(owner.ptr(), compared);
  const auto found = shared.claims.find(id);
  if (found == shared.claims.end()) return;
  const nb::handle present = PyWeakref_GetObject(found->second.ptr());
  if (!present.is(holder) && !present.is_none()) return;
  const nb::object reference = std::move(found->second);
  shared.claims.erase(found);
  shared.forget_if_inactive(id);
}

// Who holds the claim of an owner; None where nobody alive does.
nb::object claimant(PoolObject& self, nb::handle owner) {
  OwnerTable::Compared compared;
  const auto found = self.shared->claims.find(self.shared->owners.find(owner.ptr(), compared));
  if (found == self.shared->claims.end()) return nb::none();
  return nb::borrow(PyWeakref_GetObject(found->second.ptr()));
}

// An item of reserve(): (stream, n_tokens) or (stream, n_tokens, format).
struct Item {
  std::int64_t n_tokens;
  ReservationObject::Label label;
};

std::vector<Item> to_items(SharedPool& shared, nb::handle items) {
  std::vector<Item> parsed;
  for (const nb::handle given : items) {
    const nb::object item = nb::steal(PySequence_Tuple(given.ptr()));
    if (!item.is_valid()) throw nb::python_error();
    const std::size_t n_fields = nb::len(item);
    if (n_fields != 2 && n_fields != 3) {
      throw nb::value_error(("[BlockPoolAllocator.reserve] an item is (stream, n_tokens) or "
                             "(stream, n_tokens, format), got " +
                             shown(item))
                                .c_str());
    }
    const nb::object n_tokens = item[1];
    const std::int64_t n = to_int64(n_tokens, "[BlockPoolAllocator.reserve] n_tokens");
    const nb::object stream = item[0];
    const FormatTag format =
        n_fields == 3 ? shared.format_tag(nb::object(item[2]).ptr()) : FormatTag{};
    parsed.push_back(
        {n, {to_stream(shared, stream.ptr()), nb::borrow(shared.format_object(format))}});
  }
  return parsed;
}

ReservationObject reserve(PoolObject& self, nb::handle items, nb::handle owner) {
  SharedPool& shared = *self.shared;
  const std::vector<Item> parsed = to_items(shared, items);
  std::vector<std::string> formats;
  formats.reserve(parsed.size());
  std::vector<ReservationItem> core_items;
  std::vector<ReservationObject::Label> labels;
  for (const Item& item : parsed) {
    formats.push_back(nb::cast<std::string>(item.label.format));
    core_items.push_back({item.label.stream, item.n_tokens, formats.back()});
    labels.push_back(item.label);
  }
  OwnerTable::Compared compared;
  const OwnerId id = to_owner(shared, owner.ptr(), compared);
  Reservation reservation;
  try {
    reservation = shared.pool.reserve(core_items, id);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    shared.forget_if_inactive(id);
    std::rethrow_exception(error);
  }
  ReservationObject object(self.shared, std::move(reservation), id, std::move(labels));
  if (parsed.empty()) shared.forget_if_inactive(id);
  return object;
}

void bind_counts(nb::module_& m) {
  nb::class_<PoolCounts>(m, "PoolCounts",
                         R"(Where the blocks of a pool are.

``free + live + reserved + cached == managed`` at every moment.)")
      .def_ro("managed", &PoolCounts::managed, "Blocks the pool has.")
      .def_ro("free", &PoolCounts::free, "Blocks that can be handed out.")
      .def_ro("live", &PoolCounts::live, "Blocks checked out to an owner.")
      .def_ro("reserved", &PoolCounts::reserved, "Blocks set aside by reservations.")
      .def_ro("cached", &PoolCounts::cached,
              "Blocks that a prefix index owns; 0 while a pool has none.")
      .def(
          "__eq__",
          [](const PoolCounts& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<PoolCounts>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(self == nb::cast<const PoolCounts&>(other));
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", [](const PoolCounts& self) {
        return nb::str("PoolCounts(managed={}, free={}, live={}, reserved={}, cached={})")
            .format(self.managed, self.free, self.live, self.reserved, self.cached);
      });
}

}  // namespace

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

void bind_pool(nb::module_& m) {
  bind_counts(m);
  nb::class_<PoolObject>(m, "BlockPoolAllocator", nb::type_slots(kSlots),
                         nb::is_weak_referenceable(),
                         R"(Who owns which block of a pool of fixed-size blocks.

Keeps books only and knows nothing of bytes. All methods may be called from any thread. After
``os.fork`` the child's calls work, or raise RuntimeError; they never hang. Can't be copied or
pickled.

Parameters
----------
config : PoolConfig, optional
    Sizes and behaviour; ``PoolConfig()`` by default.

Examples
--------
>>> from kvpool.memory import BlockPoolAllocator, PoolConfig
>>> pool = BlockPoolAllocator(PoolConfig(block_size=16, n_blocks=512))
>>> blocks = pool.allocate("k", 40, owner="request-1")
>>> [(block.block_id, block.n_used) for block in blocks]
[(255, 16), (254, 16), (253, 8)]
>>> pool.free_all("request-1")
>>> pool.stats.blocks_in_use()
0)")
      .def(
          "__init__",
          [](PoolObject* self, nb::handle config) { new (self) PoolObject(make_config(config)); },
          nb::arg("config") = nb::none(),
          nb::sig("def __init__(self, config: PoolConfig | None = None) -> None"))
      .def_prop_ro(
          "config", [](const PoolObject& self) { return self.config; },
          nb::sig("def config(self) -> PoolConfig"), "PoolConfig: what the pool was made with.")
      .def_prop_ro(
          "stats", [](const PoolObject& self) { return self.stats; },
          nb::sig("def stats(self) -> AllocationStats"), "AllocationStats: a live, read-only view.")
      .def_prop_ro(
          "history", [](const PoolObject& self) { return self.history; },
          nb::sig("def history(self) -> History"),
          "History: the last 256 snapshots of the counters, live.")
      .def("register_owner", register_owner, nb::arg("owner").none(),
           nb::sig("def register_owner(self, owner: collections.abc.Hashable) -> None"),
           R"(Make an owner active, so that a second user of its id is noticed.

Raises
------
OwnerAlreadyActiveError
    While it is registered, holds blocks, or has some reserved.)")
      .def("release_owner", release_owner, nb::arg("owner").none(),
           nb::sig("def release_owner(self, owner: collections.abc.Hashable) -> None"),
           "Clear an owner's registration without freeing its blocks.")
      .def("claim", claim, nb::arg("owner").none(), nb::arg("holder"),
           nb::sig("def claim(self, owner: collections.abc.Hashable, holder: object) -> object"),
           "Make `holder` the one live cache of an owner; return the live one there is.")
      .def("disclaim", disclaim, nb::arg("owner").none(), nb::arg("holder"),
           nb::sig("def disclaim(self, owner: collections.abc.Hashable, holder: object) -> None"),
           "End the claim that `holder` has on an owner, if it has it.")
      .def("claimant", claimant, nb::arg("owner").none(),
           nb::sig("def claimant(self, owner: collections.abc.Hashable) -> object | None"),
           "The live cache of an owner, if there is one.")
      .def("free_all", free_all, nb::arg("owner").none(),
           nb::sig("def free_all(self, owner: collections.abc.Hashable) -> None"),
           "Give back all of an owner's blocks, in allocation order. An unknown owner has none.")
      .def("blocks_for", blocks_for, nb::arg("owner").none(),
           nb::sig("def blocks_for(self, owner: collections.abc.Hashable) -> list[Block]"),
           "The blocks an owner holds, in allocation order.")
      .def("reserve", reserve, nb::arg("items").none(), nb::arg("owner").none(),
           nb::sig("def reserve(self, items: collections.abc.Iterable[tuple[str, int] | "
                   "tuple[str, int, str]], owner: collections.abc.Hashable) -> Reservation"),
           R"(Set blocks aside for several streams and layers, whole or not at all.

Parameters
----------
items : iterable of (stream, n_tokens) or (stream, n_tokens, format)
    As the arguments of `allocate`.
owner : Hashable
    Who the blocks will go to.

Raises
------
BlockPoolExhaustedError
    If too few are free for all items together; nothing is set aside.)")
      .def(
          "n_free",
          [](const PoolObject& self, nb::handle stream) {
            return self.shared->pool.n_free(to_stream(*self.shared, stream.ptr()));
          },
          nb::arg("stream").none() = "k", nb::sig("def n_free(self, stream: str = 'k') -> int"),
          "Free blocks of a stream.")
      .def(
          "shrink",
          [](PoolObject& self, nb::handle stream, nb::handle target_free) {
            const Stream core_stream = to_stream(*self.shared, stream.ptr());
            return self.shared->pool.shrink(
                core_stream, to_int64(target_free, "[BlockPoolAllocator.shrink] target_free"));
          },
          nb::arg("stream").none(), nb::arg("target_free").none(),
          nb::sig("def shrink(self, stream: str, target_free: int) -> int"),
          R"(Retire free blocks of a stream until `target_free` are left; those in use stay.

Retired ids are not used again. Growth may later add as many new blocks, up to `max_blocks`.

Returns
-------
int
    How many were retired.)")
      .def(
          "is_managed",
          [](const PoolObject& self, nb::handle block_id) {
            const std::int64_t id = to_int64(block_id, "[BlockPoolAllocator.is_managed] block_id");
            return id >= 0 && self.shared->pool.is_managed(static_cast<BlockId>(id));
          },
          nb::arg("block_id").none(), nb::sig("def is_managed(self, block_id: int) -> bool"),
          "Whether the pool has a block of this id: False once it is retired.")
      .def(
          "counts", [](const PoolObject& self) { return self.shared->pool.counts(); },
          "Where the blocks are, at one moment.")
      .def(
          "check_invariants", [](const PoolObject& self) { self.shared->pool.check_invariants(); },
          "Recount the books from the blocks themselves; RuntimeError with what is wrong.")
      .def("__repr__",
           [](const PoolObject& self) {
             return nb::str("BlockPoolAllocator({!r})").format(self.stats);
           })
      .def(
          "__reduce_ex__",
          [](const PoolObject&, nb::handle) -> nb::object {
            throw nb::type_error(
                "[BlockPoolAllocator] a pool can't be copied or pickled: its blocks belong to this "
                "process's requests. Share the object, or make another from its config");
          },
          nb::sig("def __reduce_ex__(self, protocol: typing.SupportsIndex, /) -> typing.NoReturn"));
}

}  // namespace kvpool::python
