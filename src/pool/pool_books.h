// PoolBooks: everything a pool knows, behind one mutex.
//
// BlockPoolAllocator, its leases and its reservations share one PoolBooks, so each of them stays
// safe to use whichever goes first. Expected outcomes are values here; the public classes turn
// them into exceptions.
//
// A mutation first does all that can fail (growth, records, room on the free lists, the owner's
// record), then changes the books without a way to fail: a call happens whole or leaves no trace,
// but for blocks that growth added. Nothing here scans all blocks except check_invariants().
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "block_table.h"
#include "format_names.h"
#include "free_list.h"
#include "history_ring.h"
#include "kvpool/base/fork_aware_mutex.h"
#include "kvpool/pool/allocation_stats.h"
#include "kvpool/pool/block.h"
#include "kvpool/pool/block_pool_allocator.h"
#include "kvpool/pool/pool_config.h"
#include "owner_index.h"

namespace kvpool::internal {

// Blocks that hold `n_tokens` (at least 1) slots.
inline std::int64_t blocks_for_tokens(std::int64_t n_tokens, std::int64_t block_size) {
  return (n_tokens - 1) / block_size + 1;
}

// What a refused call wanted and what there was, for the error's text.
struct Shortfall {
  Stream stream{};
  std::int64_t n_wanted = 0;
  std::int64_t n_free = 0;
  std::int64_t n_managed = 0;
};

class PoolBooks {
 public:
  explicit PoolBooks(const PoolConfig& config);

  const PoolConfig& config() const { return config_; }
  FormatNames& formats() { return formats_; }

  // Appends to `out`. Says what was short when it refuses.
  std::optional<Shortfall> allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                    FormatTag format, std::vector<Block>& out);
  // Says false, having changed nothing, where a block is another pool's.
  bool free(std::span<const Block> blocks, std::vector<OwnerId>* cleared_owners);
  bool free_all(OwnerId owner);
  bool mark_used(const Block& block, std::int64_t n_used);

  // Sets aside blocks for every item, filling item.blocks. Later each is taken or given back. The
  // n_tokens of one stream must add up to 2**63 - 1 at most.
  std::optional<Shortfall> reserve(std::span<ReservedItem> items, OwnerId owner);
  void take(ReservedItem& item, OwnerId owner);
  void cancel(std::span<ReservedItem> items, OwnerId owner);

  bool register_owner(OwnerId owner);
  void release_owner(OwnerId owner);
  bool owner_is_active(OwnerId owner);

  std::int64_t shrink(Stream stream, std::int64_t target_free);

  std::optional<BlockState> inspect(const Block& block);
  std::vector<Block> blocks_for(OwnerId owner);
  std::int64_t n_free(Stream stream);
  bool is_managed(BlockId id);
  AllocationStats stats();
  std::vector<AllocationStats> history();
  PoolCounts counts();
  void check_invariants();

 private:
  // The functions below expect the mutex to be held.
  FreeList& free_list(Stream stream) { return free_[static_cast<std::size_t>(stream)]; }
  std::int64_t& n_out(Stream stream) { return n_out_[static_cast<std::size_t>(stream)]; }
  BlockRecord* find_live(const Block& block);
  std::optional<Shortfall> provide(Stream stream, std::int64_t n_wanted);
  void grow(Stream stream, std::int64_t n_short);
  void prepare_pops(Stream stream, std::int64_t n);
  Block check_out(Stream stream, OwnerId owner, FormatTag format);
  void make_live(BlockRecord& record, BlockId id, OwnerRecord& owner, std::int64_t n_used);
  void put_back(BlockRecord& record, BlockId id);
  void put_back_live(BlockRecord& record, BlockId id);
  void unlink(BlockRecord& record, OwnerRecord& owner);
  bool is_fragmented(const BlockRecord& record) const {
    return record.n_used < static_cast<std::uint32_t>(config_.block_size);
  }
  void finish_mutation();
  void recount();

  const PoolConfig config_;
  FormatNames formats_;
  ForkAwareMutex mutex_{"BlockPoolAllocator"};

  std::array<FreeList, 3> free_;         // by Stream
  std::array<std::int64_t, 3> n_out_{};  // live or reserved, by Stream
  BlockTable table_;
  OwnerIndex owners_;
  AllocationStats stats_;
  HistoryRing history_;
  std::int64_t n_reserved_ = 0;
  BlockId next_id_ = 0;
  std::uint64_t last_generation_;
};

}  // namespace kvpool::internal
