// The pool's invariants, recounted from the records themselves.
#include <stdexcept>
#include <string>

#include "pool_books.h"

namespace kvpool::internal {
namespace {

[[maybe_unused]] constexpr std::int64_t kMostBlocksToCheckAlways = 4096;

void expect(bool holds, const char* invariant) {
  if (!holds) {
    throw std::logic_error(std::string("[BlockPoolAllocator::check_invariants] broken: ") +
                           invariant);
  }
}

}  // namespace

// The end of every mutation: a history entry, and in debug builds the invariants.
void PoolBooks::finish_mutation() {
  history_.add(stats_);
#ifdef KVPOOL_CHECK_INVARIANTS
  if (stats_.n_blocks <= kMostBlocksToCheckAlways) recount();
#endif
}

void PoolBooks::check_invariants() {
  const ForkAwareMutex::Guard guard(mutex_);
  recount();
}

void PoolBooks::recount() {
  std::int64_t n_free = 0;
  std::int64_t n_out = 0;
  for (const Stream stream : {Stream::kKey, Stream::kValue, Stream::kShared}) {
    const FreeList& list = free_list(stream);
    n_free += list.size();
    n_out += n_out_[static_cast<std::size_t>(stream)];
    std::int64_t n_listed = 0;
    list.visit_next(list.size(), [&](BlockId id) {
      ++n_listed;
      expect(id < next_id_, "a free id was issued");
      const BlockRecord* record = table_.find(id);
      if (record == nullptr || record->generation == 0) return;
      expect(record->phase == BlockPhase::kFree, "a block on a free list is free");
      expect(record->stream == stream, "a free block is on its own stream's list");
    });
    expect(n_listed == list.size(), "a free list holds as many ids as it says");
  }

  std::int64_t n_live = 0;
  std::int64_t n_reserved = 0;
  std::int64_t n_fragmented = 0;
  std::int64_t n_inactive = 0;
  for (const auto& [owner, owner_record] : owners_) {
    n_inactive += owner_record.active() ? 0 : 1;
    std::int64_t n_of_owner = 0;
    BlockId previous = kNoBlock;
    for (BlockId id = owner_record.first; id != kNoBlock; id = table_[id].next) {
      const BlockRecord& record = table_[id];
      expect(record.phase == BlockPhase::kLive, "an owner's block is live");
      expect(record.owner == owner, "an owner's block names that owner");
      expect(record.previous == previous, "an owner's blocks are linked both ways");
      expect(record.n_used <= static_cast<std::uint32_t>(config_.block_size),
             "n_used is at most block_size");
      n_fragmented += is_fragmented(record) ? 1 : 0;
      previous = id;
      ++n_of_owner;
    }
    expect(owner_record.last == previous, "an owner's last block ends its list");
    expect(owner_record.n_live == n_of_owner, "an owner holds as many blocks as it says");
    n_live += n_of_owner;
    n_reserved += owner_record.n_reserved;
  }
  expect(n_inactive <= 1, "at most one inactive owner has a record");
  expect(n_live == stats_.blocks_in_use(), "allocations − frees == live blocks");
  expect(n_reserved == n_reserved_, "the owners' reserved blocks add up");
  expect(n_out == n_live + n_reserved, "blocks off the free lists are live or reserved");
  expect(n_fragmented == stats_.fragmented_count, "the fragmented blocks add up");
  expect(n_free + n_live + n_reserved == stats_.n_blocks, "free + live + reserved == managed");
  expect(stats_.n_blocks == config_.n_blocks + stats_.n_grown - stats_.n_retired,
         "managed == first + grown − retired");
  expect(stats_.peak_blocks_in_use >= n_live, "the peak is at least what is in use");
  expect(stats_.n_reused <= stats_.n_allocations, "reused blocks are among the allocated");
  expect(!config_.max_blocks || stats_.n_blocks <= *config_.max_blocks, "managed ≤ max_blocks");
}

}  // namespace kvpool::internal
