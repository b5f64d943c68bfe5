#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "arguments.h"
#include "bindings.h"
#include "stats_view.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

struct Counter {
  const char* name;
  std::int64_t AllocationStats::*member;
  const char* doc;
};

// In the order of the constructor's arguments.
constexpr Counter kCounters[] = {
    {"n_blocks", &AllocationStats::n_blocks, "Blocks managed now."},
    {"n_allocations", &AllocationStats::n_allocations, "Blocks checked out so far."},
    {"n_frees", &AllocationStats::n_frees, "Blocks given back so far."},
    {"n_reused", &AllocationStats::n_reused,
     "Blocks checked out again after an earlier check-out."},
    {"n_exhausted", &AllocationStats::n_exhausted, "Calls refused for want of free blocks."},
    {"n_grown", &AllocationStats::n_grown, "Blocks added by growth."},
    {"n_retired", &AllocationStats::n_retired, "Blocks taken out by shrink."},
    {"peak_blocks_in_use", &AllocationStats::peak_blocks_in_use,
     "Most blocks ever checked out at once."},
    {"_fragmented_count", &AllocationStats::fragmented_count, "Owned blocks with a free slot."},
};

nb::tuple fields(const StatsView& self) {
  const AllocationStats stats = self.read();
  nb::list values;
  for (const Counter& counter : kCounters) values.append(stats.*counter.member);
  return nb::tuple(values);
}

template <typename... Values>
void make_stats(StatsView* self, const Values&... values) {
  AllocationStats stats;
  const nb::handle given[] = {values...};
  for (std::size_t i = 0; i < sizeof...(Values); ++i) {
    const std::string what = std::string("[AllocationStats] ") + kCounters[i].name;
    stats.*kCounters[i].member = to_int64(given[i], what.c_str());
  }
  new (self) StatsView{{}, stats};
}

nb::str repr(const StatsView& self) {
  const AllocationStats stats = self.read();
  return nb::str(
             "AllocationStats(in_use={}/{}, allocations={}, frees={}, reused={}, exhausted={}, "
             "grown={}, retired={}, peak={}, fragmentation={:.3f})")
      .format(stats.blocks_in_use(), stats.n_blocks, stats.n_allocations, stats.n_frees,
              stats.n_reused, stats.n_exhausted, stats.n_grown, stats.n_retired,
              stats.peak_blocks_in_use, stats.fragmentation());
}

nb::list snapshots(const HistoryView& self) {
  nb::list list;
  for (const AllocationStats& stats : self.pool->pool.history()) {
    list.append(nb::cast(StatsView{{}, stats}));
  }
  return list;
}

void bind_allocation_stats(nb::module_& m) {
  nb::class_<StatsView> type(m, "AllocationStats", R"(Counters of a pool, in blocks.

``pool.stats`` is a live view that can't be assigned to; it stays readable when the pool is gone.
Those made by hand, by `snapshot` or kept in ``pool.history`` are values of their own.
`n_exhausted` counts calls, everything else counts blocks. Compared by value.)");
  const auto zero = nb::int_(0);
  type.def("__init__",
           &make_stats<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle,
                       nb::handle, nb::handle, nb::handle>,
           nb::arg("n_blocks"), nb::arg("n_allocations") = zero, nb::arg("n_frees") = zero,
           nb::arg("n_reused") = zero, nb::arg("n_exhausted") = zero, nb::arg("n_grown") = zero,
           nb::arg("n_retired") = zero, nb::arg("peak_blocks_in_use") = zero,
           nb::arg("_fragmented_count") = zero,
           nb::sig("def __init__(self, n_blocks: int, n_allocations: int = 0, n_frees: int = 0, "
                   "n_reused: int = 0, n_exhausted: int = 0, n_grown: int = 0, "
                   "n_retired: int = 0, peak_blocks_in_use: int = 0, "
                   "_fragmented_count: int = 0) -> None"));
  for (const Counter& counter : kCounters) {
    const std::string setter_signature =
        std::string("def ") + counter.name + "(self, value: int, /) -> None";
    type.def_prop_rw(
        counter.name,
        [member = counter.member](const StatsView& self) { return self.read().*member; },
        [&counter](StatsView& self, nb::handle value) {
          const std::string what = std::string("[AllocationStats] ") + counter.name;
          if (self.pool) {
            const std::string text = what + " of a live pool can't be set; use snapshot()";
            throw nb::attribute_error(text.c_str());
          }
          self.value.*counter.member = to_int64(value, what.c_str());
        },
        nb::for_getter(counter.doc), nb::for_setter(nb::sig(setter_signature.c_str())));
  }
  type.def(
          "blocks_in_use", [](const StatsView& self) { return self.read().blocks_in_use(); },
          "Blocks checked out now: allocations minus frees.")
      .def(
          "fragmentation", [](const StatsView& self) { return self.read().fragmentation(); },
          "Owned blocks with a free slot over blocks managed; 0.0 for a pool of none.")
      .def(
          "snapshot",
          [](const StatsView& self) {
            return StatsView{{}, self.read()};
          },
          "An independent copy.")
      .def(
          "to_prometheus",
          [](const StatsView& self, std::string_view prefix) {
            return self.read().to_prometheus(prefix);
          },
          nb::arg("prefix") = "veloxquant_block_pool",
          R"(Prometheus text exposition format, newline-terminated.

Parameters
----------
prefix : str
    Begins every metric's name; must match ``[a-zA-Z_:][a-zA-Z0-9_:]*``.

Raises
------
ValueError
    For a prefix that is no valid metric name.)")
      .def(
          "__eq__",
          [](const StatsView& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<StatsView>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(self.read() == nb::cast<const StatsView&>(other).read());
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", repr)
      .def("__reduce__", [](const StatsView& self) {
        return nb::make_tuple(nb::type<StatsView>(), fields(self));
      });
  type.attr("__hash__") = nb::none();
}

void bind_history(nb::module_& m) {
  m.attr("DEFAULT_HISTORY_SIZE") = kDefaultHistorySize;
  nb::class_<HistoryView>(m, "History",
                          R"(The last 256 snapshots of a pool's counters, oldest first.

A live, read-only sequence, safe to read while other threads allocate: each access works on a copy
taken under the pool's lock. One entry per allocate, reserve, take, cancel, free and free_all call,
refused ones and those that change nothing included, and per shrink that retires.)")
      .def_prop_ro(
          "maxlen", [](const HistoryView&) { return kDefaultHistorySize; },
          "The most snapshots kept.")
      .def("__len__", [](const HistoryView& self) { return self.pool->pool.history().size(); })
      .def(
          "__getitem__",
          [](const HistoryView& self, nb::handle index) {
            nb::object entry = nb::steal(PyObject_GetItem(snapshots(self).ptr(), index.ptr()));
            if (!entry.is_valid()) throw nb::python_error();
            return entry;
          },
          nb::sig("def __getitem__(self, index: int | slice, /) -> Any"))
      .def(
          "__iter__", [](const HistoryView& self) { return nb::iter(snapshots(self)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[AllocationStats]"))
      .def("__repr__", [](const HistoryView& self) {
        return nb::str("History({!r})").format(snapshots(self));
      });
}

}  // namespace

void bind_stats(nb::module_& m) {
  bind_allocation_stats(m);
  bind_history(m);
}

}  // namespace kvpool::python
