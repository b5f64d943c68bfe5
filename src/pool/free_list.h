// FreeList: the ids that one stream may hand out, last in first out.
//
// Held as a stack of ranges, so that a fresh pool of a million blocks is one entry, and blocks that
// come back in ascending order melt into one. Within a range the highest id goes first.
//
//   bottom [0 … 255] [300] [298 … 299] top      pops 299, 298, 300, 255, 254, …
//
// Not thread-safe (the pool's mutex guards it). push and pop are O(1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool::internal {

class FreeList {
 public:
  std::int64_t size() const { return size_; }

  // Makes room for `n` more pushes, so that giving a block back never needs memory.
  void reserve_pushes(std::int64_t n) {
    const std::size_t needed = ranges_.size() + static_cast<std::size_t>(n);
    if (needed > ranges_.capacity()) {
      ranges_.reserve(std::max(needed, ranges_.capacity() + ranges_.capacity() / 4));
    }
  }

  // Needs room made by reserve_pushes, or may throw std::bad_alloc.
  void push(BlockId first, std::int64_t count = 1) {
    if (count == 0) return;
    if (!ranges_.empty() && ranges_.back().end() == first) {
      ranges_.back().count += count;
    } else {
      ranges_.push_back({first, count});
    }
    size_ += count;
  }

  // The list must not be empty.
  BlockId pop() {
    Range& top = ranges_.back();
    const BlockId id = top.end() - 1;
    if (--top.count == 0) ranges_.pop_back();
    --size_;
    return id;
  }

  // Calls visit(id) for the next `n` ids that pop would return, in that order.
  template <typename Visit>
  void visit_next(std::int64_t n, Visit visit) const {
    for (auto range = ranges_.rbegin(); n > 0; ++range) {
      const std::int64_t here = std::min(n, range->count);
      for (std::int64_t i = 1; i <= here; ++i) visit(range->end() - static_cast<BlockId>(i));
      n -= here;
    }
  }

  // O(number of ranges).
  bool contains(BlockId id) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [id](const Range& range) { return id >= range.first && id < range.end(); });
  }

 private:
  struct Range {
    BlockId first;
    std::int64_t count;
    BlockId end() const { return first + static_cast<BlockId>(count); }
  };

  std::vector<Range> ranges_;
  std::int64_t size_ = 0;
};

}  // namespace kvpool::internal
