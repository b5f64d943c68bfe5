// The Python type BlockPoolAllocator, and what its bindings share with those of reservations.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <utility>
#include <vector>

#include "block_object.h"
#include "shared_pool.h"
#include "stats_view.h"

namespace kvpool::python {

// The Python type BlockPoolAllocator.
struct PoolObject {
  explicit PoolObject(nanobind::object config_object)
      : config(std::move(config_object)),
        shared(new SharedPool(nanobind::cast<const PoolConfig&>(config))),
        stats(nanobind::cast(StatsView{shared, {}})),
        history(nanobind::cast(HistoryView{shared})) {}
  PoolObject(const PoolObject&) = delete;
  PoolObject& operator=(const PoolObject&) = delete;
  // Handles may outlive the pool; the owners they name are theirs to hold, not ours.
  ~PoolObject() { shared->owners.forget(); }

  nanobind::object config;
  PoolRef shared;
  nanobind::object stats;
  nanobind::object history;
};

// The pool of a Python object; TypeError for one whose __init__ never ran, on which CPython calls
// its own methods all the same.
SharedPool& shared_of(PyObject* self);

// allocate, free and mark_used as CPython methods, ended by an empty entry.
extern PyMethodDef kPoolMethods[];

// 'k' or 'v'; any label in a pool with one free list. ValueError or TypeError otherwise.
Stream to_stream(const SharedPool& shared, PyObject* name);

// The owner's number, made if it has none. ValueError for None, TypeError for an unhashable one.
// Keep `compared` until the call into the core is done (owner_table.h).
OwnerId to_owner(SharedPool& shared, PyObject* owner, OwnerTable::Compared& compared);

// Blocks just checked out to one owner, as a list of Python Blocks.
nanobind::list to_list(SharedPool& shared, std::span<const Block> blocks, Stream stream,
                       PyObject* format, PyObject* owner);

}  // namespace kvpool::python
