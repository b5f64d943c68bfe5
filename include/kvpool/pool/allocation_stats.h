// AllocationStats: the pool's counters at one moment, and their Prometheus text.
//
// All counts are of blocks, but for n_exhausted, which counts refused calls. A plain value: copies
// are independent of the pool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvpool {

inline constexpr std::size_t kDefaultHistorySize = 256;

struct AllocationStats {
  std::int64_t n_blocks = 0;            // managed now
  std::int64_t n_allocations = 0;       // checked out so far
  std::int64_t n_frees = 0;             // given back so far
  std::int64_t n_reused = 0;            // checked out again after an earlier check-out
  std::int64_t n_exhausted = 0;         // calls refused
  std::int64_t n_grown = 0;             // added by growth
  std::int64_t n_retired = 0;           // taken out by shrink
  std::int64_t peak_blocks_in_use = 0;  // high-water mark of blocks_in_use()
  std::int64_t fragmented_count = 0;    // owned blocks with a free slot

  std::int64_t blocks_in_use() const { return n_allocations - n_frees; }

  // Owned blocks with a free slot over blocks managed; 0 for a pool of none.
  double fragmentation() const {
    return n_blocks == 0 ? 0.0
                         : static_cast<double>(fragmented_count) / static_cast<double>(n_blocks);
  }

  // Prometheus text exposition format, newline-terminated. `prefix` begins every metric's name;
  // std::invalid_argument unless it matches [a-zA-Z_:][a-zA-Z0-9_:]*.
  std::string to_prometheus(std::string_view prefix = "veloxquant_block_pool") const;

  friend bool operator==(const AllocationStats&, const AllocationStats&) = default;
};

}  // namespace kvpool
