// HistoryRing: the last snapshots of the pool's counters. Adding one copies 72 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "kvpool/pool/allocation_stats.h"

namespace kvpool::internal {

class HistoryRing {
 public:
  void add(const AllocationStats& stats) {
    entries_[next_] = stats;
    next_ = (next_ + 1) % kDefaultHistorySize;
    if (size_ < kDefaultHistorySize) ++size_;
  }

  std::vector<AllocationStats> oldest_first() const {
    std::vector<AllocationStats> copy;
    copy.reserve(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      copy.push_back(entries_[(next_ + kDefaultHistorySize - size_ + i) % kDefaultHistorySize]);
    }
    return copy;
  }

 private:
  std::array<AllocationStats, kDefaultHistorySize> entries_{};
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

}  // namespace kvpool::internal
