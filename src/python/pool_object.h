// What the bindings of the pool and of its reservations share.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "block_object.h"
#include "shared_pool.h"

namespace kvpool::python {

// 'k' or 'v'; any label in a pool with one free list. ValueError or TypeError otherwise.
Stream to_stream(const SharedPool& shared, PyObject* name);

// The owner's number, made if it has none. ValueError for None, TypeError for an unhashable one.
// Keep `compared` until the call into the core is done (owner_table.h).
OwnerId to_owner(SharedPool& shared, PyObject* owner, OwnerTable::Compared& compared);

// Blocks just checked out to one owner, as a list of Python Blocks.
nanobind::list to_list(SharedPool& shared, std::span<const Block> blocks, Stream stream,
                       PyObject* format, PyObject* owner);

}  // namespace kvpool::python
