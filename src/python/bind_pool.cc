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

PyType_Slot kSlots[] = {{Py_tp_methods, kPoolMethods},
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
          "holds",
          [](const PoolObject& self, nb::handle block) {
            if (!is_block(block.ptr())) {
              throw nb::type_error(
                  ("[BlockPoolAllocator.holds] block must be a Block, got " + shown(block))
                      .c_str());
            }
            const auto* object = reinterpret_cast<BlockObject*>(block.ptr());
            return self.shared->pool.inspect(object->handle).has_value();
          },
          nb::arg("block").none(), nb::sig("def holds(self, block: Block) -> bool"),
          "Whether a block is a check-out of this pool that goes on.")
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
