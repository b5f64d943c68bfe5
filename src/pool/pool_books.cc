#include "pool_books.h"

#include <algorithm>
#include <chrono>

namespace kvpool::internal {
namespace {

// Generations begin at the nanoseconds since the machine started and go up by one a check-out.
// Checking out takes longer than that, so a pool that comes to lie where a dead one lay begins
// above every generation the dead one used, and a handle of the dead one can only be stale.
std::uint64_t first_generation() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Makes room for `n` more elements, at least doubling the vector where it has to grow.
template <typename Element>
void reserve_more(std::vector<Element>& vector, std::size_t n) {
  const std::size_t wanted = vector.size() + n;
  if (vector.capacity() < wanted) vector.reserve(std::max(wanted, 2 * vector.capacity()));
}

}  // namespace

PoolBooks::PoolBooks(const PoolConfig& config)
    : config_(config), last_generation_(first_generation()) {
  config_.validate();
  const auto add = [this](Stream stream, std::int64_t count) {
    free_list(stream).push(next_id_, count);
    next_id_ += static_cast<BlockId>(count);
  };
  if (config_.separate_kv) {
    const std::int64_t n_values = config_.n_blocks / 2;
    add(Stream::kKey, config_.n_blocks - n_values);
    add(Stream::kValue, n_values);
  } else {
    add(Stream::kShared, config_.n_blocks);
  }
  stats_.n_blocks = config_.n_blocks;
}

std::optional<Shortfall> PoolBooks::allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                             FormatTag format, std::vector<Block>& out) {
  const std::int64_t n_blocks = blocks_for_tokens(n_tokens, config_.block_size);
  const ForkAwareMutex::Guard guard(mutex_);
  if (const auto shortfall = provide(stream, n_blocks)) {
    ++stats_.n_exhausted;
    finish_mutation();
    return shortfall;
  }
  reserve_more(out, static_cast<std::size_t>(n_blocks));
  prepare_pops(stream, n_blocks);
  OwnerRecord& owner_record = owners_.find_or_insert(owner);

  std::int64_t n_left = n_tokens;
  for (std::int64_t i = 0; i < n_blocks; ++i) {
    const Block block = check_out(stream, owner, format);
    const std::int64_t n_used = std::min(n_left, config_.block_size);
    make_live(table_[block.id], block.id, owner_record, n_used);
    n_left -= n_used;
    out.push_back(block);
  }
  finish_mutation();
  return std::nullopt;
}

bool PoolBooks::free(std::span<const Block> blocks, std::vector<OwnerId>* cleared_owners) {
  const bool ours = std::all_of(blocks.begin(), blocks.end(),
                                [this](const Block& block) { return block.pool == this; });
  if (!ours) return false;
  const ForkAwareMutex::Guard guard(mutex_);
  if (cleared_owners != nullptr) reserve_more(*cleared_owners, blocks.size());
  for (const Block& block : blocks) {
    BlockRecord* record = find_live(block);
    if (record == nullptr) continue;
    const OwnerId owner = record->owner;
    OwnerRecord& owner_record = *owners_.find(owner);
    unlink(*record, owner_record);
    put_back_live(*record, block.id);
    if (owner_record.n_live > 0) continue;
    owner_record.registered = false;
    if (owners_.settle(owner) && cleared_owners != nullptr) {
      cleared_owners->push_back(owner);
    }
  }
  finish_mutation();
  return true;
}

bool PoolBooks::free_all(OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  OwnerRecord* owner_record = owners_.find(owner);
  bool active = false;
  if (owner_record != nullptr) {
    for (BlockId id = owner_record->first; id != kNoBlock;) {
      BlockRecord& record = table_[id];
      const BlockId next = record.next;
      put_back_live(record, id);
      id = next;
    }
    *owner_record = OwnerRecord{.n_reserved = owner_record->n_reserved};
    active = !owners_.settle(owner);
  }
  finish_mutation();
  return active;
}

bool PoolBooks::mark_used(const Block& block, std::int64_t n_used) {
  const ForkAwareMutex::Guard guard(mutex_);
  BlockRecord* record = find_live(block);
  if (record == nullptr) return false;
  stats_.fragmented_count -= is_fragmented(*record) ? 1 : 0;
  record->n_used = static_cast<std::uint32_t>(n_used);
  stats_.fragmented_count += is_fragmented(*record) ? 1 : 0;
  return true;
}

std::optional<Shortfall> PoolBooks::reserve(std::span<ReservedItem> items, OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  std::array<std::int64_t, 3> n_wanted{};
  for (const ReservedItem& item : items) {
    n_wanted[static_cast<std::size_t>(item.stream)] +=
        blocks_for_tokens(item.n_tokens, config_.block_size);
  }
  for (const Stream stream : {Stream::kKey, Stream::kValue, Stream::kShared}) {
    if (const auto shortfall = provide(stream, n_wanted[static_cast<std::size_t>(stream)])) {
      ++stats_.n_exhausted;
      finish_mutation();
      return shortfall;
    }
  }
  for (const Stream stream : {Stream::kKey, Stream::kValue, Stream::kShared}) {
    prepare_pops(stream, n_wanted[static_cast<std::size_t>(stream)]);
  }
  for (ReservedItem& item : items) {
    item.blocks.reserve(
        static_cast<std::size_t>(blocks_for_tokens(item.n_tokens, config_.block_size)));
  }
  OwnerRecord& owner_record = owners_.find_or_insert(owner);

  for (ReservedItem& item : items) {
    const std::int64_t n_blocks = blocks_for_tokens(item.n_tokens, config_.block_size);
    for (std::int64_t i = 0; i < n_blocks; ++i) {
      item.blocks.push_back(check_out(item.stream, owner, item.format));
    }
    owner_record.n_reserved += n_blocks;
    n_reserved_ += n_blocks;
  }
  finish_mutation();
  return std::nullopt;
}

void PoolBooks::take(ReservedItem& item, OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  OwnerRecord& owner_record = *owners_.find(owner);
  std::int64_t n_left = item.n_tokens;
  for (const Block& block : item.blocks) {
    const std::int64_t n_used = std::min(n_left, config_.block_size);
    make_live(table_[block.id], block.id, owner_record, n_used);
    n_left -= n_used;
  }
  const auto n_blocks = static_cast<std::int64_t>(item.blocks.size());
  owner_record.n_reserved -= n_blocks;
  n_reserved_ -= n_blocks;
  item.pending = false;
  finish_mutation();
}

// Backwards, so that the free lists become what they were before reserve().
void PoolBooks::cancel(std::span<ReservedItem> items, OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  OwnerRecord* owner_record = owners_.find(owner);
  bool changed = false;
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    if (!item->pending) continue;
    item->pending = false;
    changed = true;
    for (auto block = item->blocks.rbegin(); block != item->blocks.rend(); ++block) {
      put_back(table_[block->id], block->id);
    }
    const auto n_blocks = static_cast<std::int64_t>(item->blocks.size());
    owner_record->n_reserved -= n_blocks;
    n_reserved_ -= n_blocks;
  }
  if (!changed) return;
  owners_.settle(owner);
  finish_mutation();
}

bool PoolBooks::register_owner(OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  OwnerRecord& record = owners_.find_or_insert(owner);
  if (record.active()) return false;
  record.registered = true;
  return true;
}

void PoolBooks::release_owner(OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  if (OwnerRecord* record = owners_.find(owner)) record->registered = false;
  owners_.settle(owner);
}

bool PoolBooks::owner_is_active(OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  return owners_.find(owner) != nullptr;
}

std::int64_t PoolBooks::shrink(Stream stream, std::int64_t target_free) {
  const ForkAwareMutex::Guard guard(mutex_);
  FreeList& list = free_list(stream);
  const std::int64_t n_retired = std::max<std::int64_t>(0, list.size() - target_free);
  if (n_retired == 0) return 0;
  for (std::int64_t i = 0; i < n_retired; ++i) table_.retire(list.pop());
  stats_.n_blocks -= n_retired;
  stats_.n_retired += n_retired;
  finish_mutation();
  return n_retired;
}

std::optional<BlockState> PoolBooks::inspect(const Block& block) {
  const ForkAwareMutex::Guard guard(mutex_);
  const BlockRecord* record = find_live(block);
  if (record == nullptr) return std::nullopt;
  return BlockState{record->stream, record->owner, record->n_used, record->format};
}

std::vector<Block> PoolBooks::blocks_for(OwnerId owner) {
  const ForkAwareMutex::Guard guard(mutex_);
  std::vector<Block> blocks;
  const OwnerRecord* owner_record = owners_.find(owner);
  if (owner_record == nullptr) return blocks;
  blocks.reserve(static_cast<std::size_t>(owner_record->n_live));
  for (BlockId id = owner_record->first; id != kNoBlock; id = table_[id].next) {
    blocks.push_back({this, id, table_[id].generation});
  }
  return blocks;
}

std::int64_t PoolBooks::n_free(Stream stream) {
  const ForkAwareMutex::Guard guard(mutex_);
  return free_list(stream).size();
}

bool PoolBooks::is_managed(BlockId id) {
  const ForkAwareMutex::Guard guard(mutex_);
  if (const BlockRecord* record = table_.find(id); record != nullptr && record->generation != 0) {
    return record->phase != BlockPhase::kRetired;
  }
  return std::any_of(free_.begin(), free_.end(),
                     [id](const FreeList& list) { return list.contains(id); });
}

AllocationStats PoolBooks::stats() {
  const ForkAwareMutex::Guard guard(mutex_);
  return stats_;
}

std::vector<AllocationStats> PoolBooks::history() {
  const ForkAwareMutex::Guard guard(mutex_);
  return history_.oldest_first();
}

PoolCounts PoolBooks::counts() {
  const ForkAwareMutex::Guard guard(mutex_);
  PoolCounts counts;
  counts.managed = stats_.n_blocks;
  for (const FreeList& list : free_) counts.free += list.size();
  counts.live = stats_.blocks_in_use();
  counts.reserved = n_reserved_;
  return counts;
}

// The record of a handle's check-out, if that has not ended. Handles of other pools have another
// address or, where a dead pool lay here, another generation.
BlockRecord* PoolBooks::find_live(const Block& block) {
  if (block.pool != this) return nullptr;
  BlockRecord* record = table_.find(block.id);
  if (record == nullptr || record->phase != BlockPhase::kLive ||
      record->generation != block.generation) {
    return nullptr;
  }
  return record;
}

// Makes sure of `n_wanted` free blocks, by growth if need be and allowed.
std::optional<Shortfall> PoolBooks::provide(Stream stream, std::int64_t n_wanted) {
  FreeList& list = free_list(stream);
  if (list.size() < n_wanted) grow(stream, n_wanted - list.size());
  if (list.size() >= n_wanted) return std::nullopt;
  return Shortfall{stream, n_wanted, list.size(), stats_.n_blocks};
}

// Up to the pool's own cap a growth that falls short is kept; one past what any pool can manage is
// not begun.
void PoolBooks::grow(Stream stream, std::int64_t n_short) {
  if (!config_.grow_on_exhaustion) return;
  std::int64_t n_added = n_short;
  if (config_.max_blocks.has_value()) {
    n_added = std::min(n_added, *config_.max_blocks - stats_.n_blocks);
  }
  if (n_added <= 0 || n_added > kMaxManagedBlocks - stats_.n_blocks) return;
  free_list(stream).reserve_pushes(n_out(stream) + 1);
  free_list(stream).push(next_id_, n_added);
  next_id_ += static_cast<BlockId>(n_added);
  stats_.n_blocks += n_added;
  stats_.n_grown += n_added;
}

// All that popping the next `n` blocks, and pushing them back one day, needs memory for.
void PoolBooks::prepare_pops(Stream stream, std::int64_t n) {
  if (n == 0) return;
  FreeList& list = free_list(stream);
  try {
    list.visit_next(n, [this](BlockId id) { table_.ensure(id); });
    list.reserve_pushes(n_out(stream) + n);
  } catch (...) {
    list.visit_next(n, [this](BlockId id) { table_.release_unused(id); });
    throw;
  }
}

// Takes the next block off its free list, as reserved.
Block PoolBooks::check_out(Stream stream, OwnerId owner, FormatTag format) {
  const BlockId id = free_list(stream).pop();
  ++n_out(stream);
  BlockRecord& record = table_[id];
  if (record.generation == 0) table_.count_use(id);
  record.owner = owner;
  record.generation = ++last_generation_;
  record.previous = record.next = kNoBlock;
  record.n_used = 0;
  record.format = format;
  record.stream = stream;
  record.phase = BlockPhase::kReserved;
  return {this, id, record.generation};
}

// A reserved block becomes the owner's newest.
void PoolBooks::make_live(BlockRecord& record, BlockId id, OwnerRecord& owner,
                          std::int64_t n_used) {
  record.phase = BlockPhase::kLive;
  record.n_used = static_cast<std::uint32_t>(n_used);
  record.previous = owner.last;
  (owner.last == kNoBlock ? owner.first : table_[owner.last].next) = id;
  owner.last = id;
  ++owner.n_live;
  ++stats_.n_allocations;
  stats_.n_reused += record.ever_allocated;
  stats_.fragmented_count += is_fragmented(record) ? 1 : 0;
  stats_.peak_blocks_in_use = std::max(stats_.peak_blocks_in_use, stats_.blocks_in_use());
  record.ever_allocated = 1;
}

// A live block leaves its owner's list.
void PoolBooks::unlink(BlockRecord& record, OwnerRecord& owner) {
  (record.previous == kNoBlock ? owner.first : table_[record.previous].next) = record.next;
  (record.next == kNoBlock ? owner.last : table_[record.next].previous) = record.previous;
  --owner.n_live;
}

void PoolBooks::put_back_live(BlockRecord& record, BlockId id) {
  stats_.fragmented_count -= is_fragmented(record) ? 1 : 0;
  ++stats_.n_frees;
  put_back(record, id);
}

void PoolBooks::put_back(BlockRecord& record, BlockId id) {
  record.phase = BlockPhase::kFree;
  record.n_used = 0;
  free_list(record.stream).push(id);
  --n_out(record.stream);
}

}  // namespace kvpool::internal
