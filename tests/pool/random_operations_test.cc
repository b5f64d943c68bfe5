// Random operations against a naive model of the pool, compared after each.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace kvpool {
namespace {

constexpr int kOperations = 100'000;

// What a pool is, in the plainest terms: stacks of ids, and a list of blocks for each owner.
class NaivePool {
 public:
  struct Entry {
    Block handle;
    Stream stream;
    std::int64_t n_used;
  };

  explicit NaivePool(const PoolConfig& config) : config_(config) {
    stats.n_blocks = config.n_blocks;
    const std::int64_t n_keys = config.separate_kv ? (config.n_blocks + 1) / 2 : config.n_blocks;
    for (std::int64_t i = 0; i < config.n_blocks; ++i) {
      const Stream first = config.separate_kv ? Stream::kKey : Stream::kShared;
      free[i < n_keys ? first : Stream::kValue].push_back(static_cast<BlockId>(i));
    }
    next_id_ = static_cast<BlockId>(config.n_blocks);
  }

  std::int64_t blocks_needed(std::int64_t n_tokens) const {
    return (n_tokens + config_.block_size - 1) / config_.block_size;
  }

  bool provide(Stream stream, std::int64_t n) {
    std::vector<BlockId>& stack = free[stream];
    while (std::ssize(stack) < n && config_.grow_on_exhaustion &&
           (!config_.max_blocks || stats.n_blocks < *config_.max_blocks)) {
      stack.push_back(next_id_++);
      ++stats.n_blocks;
      ++stats.n_grown;
    }
    if (std::ssize(stack) >= n) return true;
    ++stats.n_exhausted;
    return false;
  }

  BlockId pop(Stream stream) {
    const BlockId id = free[stream].back();
    free[stream].pop_back();
    return id;
  }

  void add_live(OwnerId owner, const Block& handle, Stream stream, std::int64_t n_used) {
    owned[owner].push_back({handle, stream, n_used});
    ++stats.n_allocations;
    stats.n_reused += ever_.insert(handle.id).second ? 0 : 1;
    stats.peak_blocks_in_use = std::max(stats.peak_blocks_in_use, stats.blocks_in_use());
  }

  void free_entry(OwnerId owner, std::size_t index) {
    auto& entries = owned[owner];
    free[entries[index].stream].push_back(entries[index].handle.id);
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(index));
    ++stats.n_frees;
    if (entries.empty()) {
      owned.erase(owner);
      registered.erase(owner);
    }
  }

  AllocationStats expected_stats() const {
    AllocationStats expected = stats;
    expected.fragmented_count = 0;
    for (const auto& [owner, entries] : owned) {
      expected.fragmented_count +=
          std::count_if(entries.begin(), entries.end(),
                        [this](const Entry& entry) { return entry.n_used < config_.block_size; });
    }
    return expected;
  }

  AllocationStats stats;
  std::map<Stream, std::vector<BlockId>> free;
  std::map<OwnerId, std::vector<Entry>> owned;
  std::set<OwnerId> registered;

 private:
  PoolConfig config_;
  BlockId next_id_ = 0;
  std::set<BlockId> ever_;
};

struct PendingReservation {
  Reservation real;
  OwnerId owner;
  bool newly_registered;
  struct Item {
    Stream stream;
    std::int64_t n_tokens;
    std::vector<BlockId> ids;
    bool pending = true;
  };
  std::vector<Item> items;
};

class RandomOperations : public testing::TestWithParam<PoolConfig> {
 protected:
  RandomOperations() : pool_(GetParam()), naive_(GetParam()) {}

  std::int64_t random(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }

  Stream random_stream() {
    if (!GetParam().separate_kv) return Stream::kShared;
    return random(0, 1) == 0 ? Stream::kKey : Stream::kValue;
  }

  void allocate() {
    const Stream stream = random_stream();
    const std::int64_t n_tokens = random(1, 4 * GetParam().block_size);
    const OwnerId owner = random_owner();
    std::vector<Block> blocks;
    const bool done = pool_.try_allocate(stream, n_tokens, owner, pool_.format("int4"), blocks);
    const std::int64_t n = naive_.blocks_needed(n_tokens);
    ASSERT_EQ(done, naive_.provide(stream, n));
    if (!done) return;
    naive_.registered.insert(owner);
    add_live(owner, stream, n_tokens, blocks, pop_ids(stream, n));
  }

  void free_some() {
    std::vector<Block> handles;
    const std::int64_t n = random(0, 4);
    for (std::int64_t i = 0; i < n && !handles_.empty(); ++i) {
      handles.push_back(handles_[static_cast<std::size_t>(random(0, std::ssize(handles_) - 1))]);
    }
    pool_.free(handles);
    for (const Block& handle : handles) {
      for (const auto& [owner, entries] : naive_.owned) {
        const auto found = std::find_if(entries.begin(), entries.end(),
                                        [&](const auto& entry) { return entry.handle == handle; });
        if (found == entries.end()) continue;
        const OwnerId of = owner;
        naive_.free_entry(of, static_cast<std::size_t>(found - entries.begin()));
        if (!naive_.owned.contains(of) && has_reserved(of)) keep_for_reservation(of);
        break;
      }
    }
  }

  void free_all() {
    const OwnerId owner = random_owner();
    pool_.free_all(owner);
    while (naive_.owned.contains(owner)) naive_.free_entry(owner, 0);
    naive_.registered.erase(owner);
    if (has_reserved(owner)) keep_for_reservation(owner);
  }

  void mark_used() {
    if (handles_.empty()) return;
    const Block handle = handles_[static_cast<std::size_t>(random(0, std::ssize(handles_) - 1))];
    const std::int64_t n_used = random(0, GetParam().block_size);
    bool expected = false;
    for (auto& [owner, entries] : naive_.owned) {
      for (auto& entry : entries) {
        if (entry.handle == handle) {
          entry.n_used = n_used;
          expected = true;
        }
      }
    }
    ASSERT_EQ(pool_.mark_used(handle, n_used), expected);
  }

  void shrink() {
    const Stream stream = random_stream();
    const std::int64_t target = random(0, 12);
    std::vector<BlockId>& stack = naive_.free[stream];
    std::int64_t expected = 0;
    while (std::ssize(stack) > target) {
      stack.pop_back();
      ++expected;
    }
    naive_.stats.n_blocks -= expected;
    naive_.stats.n_retired += expected;
    ASSERT_EQ(pool_.shrink(stream, target), expected);
  }

  void register_or_release() {
    const OwnerId owner = random_owner();
    if (random(0, 1) == 0) {
      pool_.release_owner(owner);
      naive_.registered.erase(owner);
      return;
    }
    const bool active = is_active(owner);
    try {
      pool_.register_owner(owner);
      ASSERT_FALSE(active);
      naive_.registered.insert(owner);
    } catch (const OwnerAlreadyActiveError&) {
      ASSERT_TRUE(active);
    }
  }

  void reserve() {
    if (pending_.size() >= 4) return;
    const OwnerId owner = random_owner();
    std::vector<ReservationItem> items;
    std::map<Stream, std::int64_t> wanted;
    for (std::int64_t i = random(1, 4); i > 0; --i) {
      items.push_back({random_stream(), random(1, 2 * GetParam().block_size)});
      wanted[items.back().stream] += naive_.blocks_needed(items.back().n_tokens);
    }
    const bool was_active = is_active(owner);
    bool fits = true;
    for (const auto& [stream, n] : wanted) fits = fits && naive_.provide(stream, n);
    try {
      PendingReservation made{pool_.reserve(items, owner), owner, !was_active, {}};
      ASSERT_TRUE(fits);
      for (const ReservationItem& item : items) {
        made.items.push_back({item.stream, item.n_tokens,
                              pop_ids(item.stream, naive_.blocks_needed(item.n_tokens))});
      }
      naive_.registered.insert(owner);
      pending_.push_back(std::move(made));
    } catch (const BlockPoolExhaustedError&) {
      ASSERT_FALSE(fits);
    }
  }

  void settle_reservation() {
    if (pending_.empty()) return;
    const auto which = pending_.begin() + random(0, std::ssize(pending_) - 1);
    for (std::size_t i = 0; i < which->items.size(); ++i) {
      if (random(0, 2) == 0) continue;
      auto& item = which->items[i];
      item.pending = false;
      const auto blocks = which->real.take(i);
      naive_.registered.insert(which->owner);
      add_live(which->owner, item.stream, item.n_tokens, blocks, item.ids);
    }
    bool any_cancelled = false;
    for (auto item = which->items.rbegin(); item != which->items.rend(); ++item) {
      if (!item->pending) continue;
      item->pending = false;
      any_cancelled = true;
      for (auto id = item->ids.rbegin(); id != item->ids.rend(); ++id) {
        naive_.free[item->stream].push_back(*id);
      }
    }
    const OwnerId owner = which->owner;
    const bool newly_registered = which->newly_registered;
    pending_.erase(which);
    if (any_cancelled && newly_registered && !naive_.owned.contains(owner) &&
        !has_reserved(owner)) {
      naive_.registered.erase(owner);
    }
  }

  void compare() {
    ASSERT_EQ(pool_.stats(), naive_.expected_stats());
    std::int64_t n_live = 0;
    for (OwnerId owner = 0; owner < kOwners; ++owner) {
      const auto blocks = pool_.blocks_for(owner);
      const auto entries = naive_.owned.find(owner);
      const std::size_t n = entries == naive_.owned.end() ? 0 : entries->second.size();
      ASSERT_EQ(blocks.size(), n);
      for (std::size_t i = 0; i < n; ++i) {
        const NaivePool::Entry& entry = entries->second[i];
        ASSERT_EQ(blocks[i], entry.handle);
        const auto state = pool_.inspect(blocks[i]);
        ASSERT_EQ(state->n_used, entry.n_used);
        ASSERT_EQ(state->stream, entry.stream);
        ASSERT_EQ(state->owner, owner);
      }
      n_live += static_cast<std::int64_t>(n);
      ASSERT_EQ(pool_.owner_is_active(owner), is_active(owner)) << owner;
    }
    const PoolCounts counts = pool_.counts();
    ASSERT_EQ(counts.live, n_live);
    ASSERT_EQ(counts.free + counts.live + counts.reserved + counts.cached, counts.managed);
    std::int64_t n_free = 0;
    for (const auto& [stream, stack] : naive_.free) {
      ASSERT_EQ(pool_.n_free(stream), std::ssize(stack));
      n_free += std::ssize(stack);
    }
    ASSERT_EQ(counts.free, n_free);
    pool_.check_invariants();
  }

  static constexpr OwnerId kOwners = 6;

  BlockPoolAllocator pool_;
  NaivePool naive_;
  std::vector<Block> handles_;  // of check-outs past and present
  std::vector<PendingReservation> pending_;
  std::mt19937_64 generator_{20260};

 private:
  OwnerId random_owner() { return static_cast<OwnerId>(random(0, kOwners - 1)); }

  bool has_reserved(OwnerId owner) const {
    return std::any_of(pending_.begin(), pending_.end(), [owner](const auto& pending) {
      return pending.owner == owner && pending.real.n_reserved() > 0;
    });
  }

  bool is_active(OwnerId owner) const {
    return naive_.registered.contains(owner) || naive_.owned.contains(owner) || has_reserved(owner);
  }

  // Freeing an owner's last block clears its registration; what it has reserved keeps it active.
  void keep_for_reservation(OwnerId owner) { naive_.registered.erase(owner); }

  std::vector<BlockId> pop_ids(Stream stream, std::int64_t n) {
    std::vector<BlockId> ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(naive_.pop(stream));
    return ids;
  }

  void add_live(OwnerId owner, Stream stream, std::int64_t n_tokens,
                const std::vector<Block>& blocks, const std::vector<BlockId>& ids) {
    ASSERT_EQ(blocks.size(), ids.size());
    std::int64_t n_left = n_tokens;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i].id, ids[i]);
      const std::int64_t n_used = std::min(n_left, GetParam().block_size);
      naive_.add_live(owner, blocks[i], stream, n_used);
      n_left -= n_used;
      handles_.push_back(blocks[i]);
    }
    if (handles_.size() > 200) handles_.erase(handles_.begin(), handles_.begin() + 100);
  }
};

TEST_P(RandomOperations, MatchTheNaiveModel) {
  for (int i = 0; i < kOperations; ++i) {
    switch (random(0, 11)) {
      case 0:
      case 1:
      case 2:
      case 3:
        allocate();
        break;
      case 4:
      case 5:
        free_some();
        break;
      case 6:
        free_all();
        break;
      case 7:
        mark_used();
        break;
      case 8:
        if (random(0, 9) == 0) shrink();
        break;
      case 9:
        register_or_release();
        break;
      case 10:
        reserve();
        break;
      default:
        settle_reservation();
    }
    if (HasFatalFailure()) FAIL() << "at operation " << i;
    compare();
    if (HasFatalFailure()) FAIL() << "after operation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pools, RandomOperations,
    testing::Values(PoolConfig{.block_size = 4, .n_blocks = 31, .grow_on_exhaustion = true},
                    PoolConfig{.block_size = 16,
                               .n_blocks = 24,
                               .separate_kv = false,
                               .grow_on_exhaustion = true,
                               .max_blocks = 40}));

// A pool that only shrinks would soon refuse everything, so this one does not grow or shrink.
INSTANTIATE_TEST_SUITE_P(FixedPool, RandomOperations,
                         testing::Values(PoolConfig{.block_size = 1, .n_blocks = 40}));

}  // namespace
}  // namespace kvpool
