// OwnerIndex: which owners are active, and the first and last block of each.
//
// An owner is active while it is registered, holds blocks, or has blocks reserved. The record of
// the owner that became inactive last is kept, as is the node of the one before, and the record
// looked up last is remembered: requests that take and give back blocks again and again cost no
// memory, and one that does so alone costs no search. Not thread-safe (the pool's mutex guards it).
// O(1).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "block_table.h"
#include "kvpool/pool/block.h"

namespace kvpool::internal {

// All zeros but for the ids whenever the owner is inactive.
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
  // The record of an active owner; null for any other.
  OwnerRecord* find(OwnerId owner) {
    OwnerRecord* record = look_up(owner);
    return record != nullptr && record->active() ? record : nullptr;
  }

  // The owner's record, made if there was none. Stays where it is while the owner is active.
  OwnerRecord& find_or_insert(OwnerId owner) {
    if (OwnerRecord* record = look_up(owner)) return *record;
    if (spare_.empty()) {
      last_record_ = &records_[owner];
    } else {
      spare_.key() = owner;
      last_record_ = &records_.insert(std::move(spare_)).position->second;
    }
    last_owner_ = owner;
    return *last_record_;
  }

  // To be called when an owner may have become inactive; says whether it is.
  bool settle(OwnerId owner) {
    const OwnerRecord* record = look_up(owner);
    if (record == nullptr || record->active()) return false;
    if (idle_ && *idle_ != owner) drop_idle();
    idle_ = owner;
    return true;
  }

  auto begin() const { return records_.begin(); }
  auto end() const { return records_.end(); }

 private:
  OwnerRecord* look_up(OwnerId owner) {
    if (last_record_ != nullptr && last_owner_ == owner) return last_record_;
    const auto found = records_.find(owner);
    if (found == records_.end()) return nullptr;
    last_owner_ = owner;
    last_record_ = &found->second;
    return last_record_;
  }

  void drop_idle() {
    const auto idle = records_.find(*idle_);
    if (idle->second.active()) return;
    if (last_record_ == &idle->second) last_record_ = nullptr;
    spare_ = records_.extract(idle);
  }

  using Records = std::unordered_map<OwnerId, OwnerRecord>;

  Records records_;
  Records::node_type spare_;            // of the inactive owner dropped last
  OwnerRecord* last_record_ = nullptr;  // of last_owner_, if not null
  OwnerId last_owner_ = 0;
  std::optional<OwnerId> idle_;  // became inactive last; has a record, may be active again
};

}  // namespace kvpool::internal
