// OwnerIndex: which owners are active, and the first and last block of each.
//
// An owner is active while it is registered, holds blocks, or has blocks reserved. The node of the
// owner cleared last is kept, so that a request that takes and gives back its only block again and
// again costs no memory allocation. Not thread-safe (the pool's mutex guards it). O(1).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "block_table.h"
#include "kvpool/pool/block.h"

namespace kvpool::internal {

struct OwnerRecord {
  BlockId first = kNoBlock;
  BlockId last = kNoBlock;
  std::int64_t n_live = 0;
  std::int64_t n_reserved = 0;
  bool registered = false;

  bool active() const { return registered || n_live > 0 || n_reserved > 0; }
};

class OwnerIndex {
 public:
  OwnerRecord* find(OwnerId owner) {
    const auto found = owners_.find(owner);
    return found == owners_.end() ? nullptr : &found->second;
  }

  // The owner's record, made if there was none. Stays where it is until erased.
  OwnerRecord& find_or_insert(OwnerId owner) {
    if (const auto found = owners_.find(owner); found != owners_.end()) return found->second;
    if (spare_.empty()) return owners_[owner];
    spare_.key() = owner;
    spare_.mapped() = OwnerRecord{};
    return owners_.insert(std::move(spare_)).position->second;
  }

  // Drops the record of an owner that is no longer active; says whether it did.
  bool erase_if_inactive(OwnerId owner) {
    const auto found = owners_.find(owner);
    if (found == owners_.end() || found->second.active()) return false;
    spare_ = owners_.extract(found);
    return true;
  }

  std::size_t size() const { return owners_.size(); }

  auto begin() const { return owners_.begin(); }
  auto end() const { return owners_.end(); }

 private:
  using Map = std::unordered_map<OwnerId, OwnerRecord>;

  Map owners_;
  Map::node_type spare_;
};

}  // namespace kvpool::internal
