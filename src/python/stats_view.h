// The Python types AllocationStats and History, as views of a pool or values of their own.
#pragma once

#include "kvpool/pool/allocation_stats.h"
#include "shared_pool.h"

namespace kvpool::python {

struct StatsView {
  PoolRef pool;           // a live, read-only view where set
  AllocationStats value;  // else its own numbers

  AllocationStats read() const { return pool ? pool->pool.stats() : value; }
};

struct HistoryView {
  PoolRef pool;
};

}  // namespace kvpool::python
