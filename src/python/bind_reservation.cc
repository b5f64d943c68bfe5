#include <nanobind/nanobind.h>

#include <exception>

#include "arguments.h"
#include "bindings.h"
#include "pool_object.h"
#include "reservation_object.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

std::size_t to_index(nb::handle index) {
  const std::int64_t value = to_int64(index, "[Reservation.take] index");
  if (value < 0) {
    throw nb::value_error(
        ("[Reservation.take] index must be at least 0, got " + std::to_string(value)).c_str());
  }
  return static_cast<std::size_t>(value);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<ReservationObject>(self)->owner.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<ReservationObject>(self)->owner = nb::none();
  return 0;
}

PyType_Slot kSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(clear)},
                        {0, nullptr}};

}  // namespace

ReservationObject::ReservationObject(PoolRef of_pool, Reservation of_items, OwnerId for_owner,
                                     std::vector<Label> item_labels)
    : pool(std::move(of_pool)),
      reservation(std::move(of_items)),
      owner_id(for_owner),
      owner(nb::borrow(OwnerTable::object(for_owner))),
      labels(std::move(item_labels)) {}

ReservationObject::~ReservationObject() {
  if (!pool) return;
  try {
    cancel();
  } catch (const std::exception&) {
    // Only in a forked child whose copy of the pool is unusable: nothing there to give back to.
  }
}

nb::list ReservationObject::take(std::size_t index) {
  const std::vector<Block> blocks = reservation.take(index);
  const Label& label = labels[index];
  return to_list(*pool, blocks, label.stream, label.format.ptr(), owner.ptr());
}

nb::list ReservationObject::commit() {
  nb::list taken;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (reservation.is_pending(i)) taken.append(take(i));
  }
  return taken;
}

void ReservationObject::cancel() {
  if (reservation.n_reserved() == 0) return;
  reservation.cancel();
  pool->forget_if_inactive(owner_id);
}

void bind_reservation(nb::module_& m) {
  nb::class_<ReservationObject>(
      m, "Reservation", nb::type_slots(kSlots),
      R"(Blocks of several streams and layers set aside, whole or not at all.

Made by BlockPoolAllocator.reserve. Reserved blocks are neither free nor in use. Each item becomes
blocks once, when it is taken; what was not taken goes back on `cancel`, at the end of a ``with``
block, and when the reservation is garbage-collected.)")
      .def_prop_ro(
          "n_reserved", [](const ReservationObject& self) { return self.reservation.n_reserved(); },
          "int: blocks not taken yet.")
      .def(
          "take",
          [](ReservationObject& self, nb::handle index) { return self.take(to_index(index)); },
          nb::arg("index"), nb::sig("def take(self, index: int) -> list[Block]"),
          R"(Make one item blocks of the owner, as BlockPoolAllocator.allocate would.

Parameters
----------
index : int
    Which of the items given to `reserve`, from 0.

Raises
------
ValueError
    For an item that does not exist, was taken, or was given back.)")
      .def("commit", &ReservationObject::commit, nb::sig("def commit(self) -> list[list[Block]]"),
           "Take every item that is left, in order.")
      .def("cancel", &ReservationObject::cancel,
           "Give back what was not taken. May be called again.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Reservation"))
      .def(
          "__exit__", [](ReservationObject& self, const nb::args&) { self.cancel(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("__repr__", [](const ReservationObject& self) {
        return nb::str("Reservation(n_reserved={}, owner={!r})")
            .format(self.reservation.n_reserved(), self.owner);
      });
}

}  // namespace kvpool::python
