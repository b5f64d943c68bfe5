// BlockPoolAllocator: who owns which block of a pool of fixed-size blocks.
//
// It keeps books and knows nothing of bytes. Keys and values draw on free lists of their own, or on
// one (PoolConfig::separate_kv). Every block is free, reserved, or live with exactly one owner, and
// free + reserved + live + cached == managed at every moment.
//
// Thread-safety: every method, from any thread; one mutex, held shortly. After fork() the child's
// calls work, or throw std::runtime_error where another thread was inside; they never hang.
// Complexity: O(1) a block to allocate, free and mark; free_all is linear in the owner's blocks.
// Memory: about 56 bytes for each block that was ever handed out at once.
//
//   BlockPoolAllocator pool({.block_size = 16, .n_blocks = 4096});
//   std::vector<Block> blocks = pool.allocate(Stream::kKey, n_tokens, request_id);
//   …
//   pool.free_all(request_id);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvpool/pool/allocation_stats.h"
#include "kvpool/pool/block.h"
#include "kvpool/pool/errors.h"
#include "kvpool/pool/lease.h"
#include "kvpool/pool/pool_config.h"
#include "kvpool/pool/reservation.h"

namespace kvpool {

// Where every managed block is: free + live + reserved + cached == managed.
struct PoolCounts {
  std::int64_t managed = 0;
  std::int64_t free = 0;
  std::int64_t live = 0;
  std::int64_t reserved = 0;
  std::int64_t cached = 0;  // owned by a prefix index: 0 while a pool has none

  friend bool operator==(const PoolCounts&, const PoolCounts&) = default;
};

class BlockPoolAllocator {
 public:
  // std::invalid_argument for options outside their ranges.
  explicit BlockPoolAllocator(const PoolConfig& config = {});
  BlockPoolAllocator(const BlockPoolAllocator&) = delete;
  BlockPoolAllocator& operator=(const BlockPoolAllocator&) = delete;

  const PoolConfig& config() const;

  // The number this pool gives a format's name; saves looking the name up at every call.
  FormatTag format(std::string_view name);
  std::string format_name(FormatTag format) const;

  // ceil(n_tokens / block_size) blocks in order, all full but perhaps the last. All or nothing:
  // BlockPoolExhaustedError otherwise. An owner that is not active becomes so.
  // std::invalid_argument for n_tokens < 1, and for a stream the pool does not have; a pool with
  // one free list takes any stream.
  std::vector<Block> allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                              std::string_view format = "fp16");

  // The same, appending to `out`: no memory is allocated where `out` has room.
  void allocate(Stream stream, std::int64_t n_tokens, OwnerId owner, FormatTag format,
                std::vector<Block>& out);

  // The same, but says false instead of throwing when blocks are short.
  bool try_allocate(Stream stream, std::int64_t n_tokens, OwnerId owner, FormatTag format,
                    std::vector<Block>& out);

  // The same, held by a lease.
  Lease lease(Stream stream, std::int64_t n_tokens, OwnerId owner,
              std::string_view format = "fp16");

  // Sets blocks aside for all items or for none. Throws as allocate does.
  Reservation reserve(std::span<const ReservationItem> items, OwnerId owner);
  Reservation reserve(std::initializer_list<ReservationItem> items, OwnerId owner) {
    return reserve(std::span<const ReservationItem>(items.begin(), items.size()), owner);
  }

  // Gives blocks back, in the order given. Free and stale ones are skipped; std::invalid_argument,
  // and nothing freed, where one is of another pool. Owners that lose their last block are no
  // longer active; their ids are appended to `cleared_owners`.
  void free(std::span<const Block> blocks, std::vector<OwnerId>* cleared_owners = nullptr);

  // Gives back the owner's blocks in allocation order and clears its registration. Blocks it has
  // reserved stay so. Says whether the owner is still active (by what it reserved).
  bool free_all(OwnerId owner);

  // OwnerAlreadyActiveError while the owner is registered, holds blocks or has some reserved.
  void register_owner(OwnerId owner);
  void release_owner(OwnerId owner);
  bool owner_is_active(OwnerId owner) const;

  // Sets how many slots of a block are in use; std::invalid_argument outside 0 … block_size.
  // A free or stale block: false, and nothing changes.
  bool mark_used(const Block& block, std::int64_t n_used);

  // Retires free blocks, those that would be handed out next first, until `target_free` are left.
  // Returns how many. std::invalid_argument for a negative target.
  std::int64_t shrink(Stream stream, std::int64_t target_free);

  // What the books say of a check-out; none once it has ended.
  std::optional<BlockState> inspect(const Block& block) const;

  // The owner's blocks, in allocation order.
  std::vector<Block> blocks_for(OwnerId owner) const;
  std::int64_t n_free(Stream stream) const;
  // Whether the id is one of the pool's blocks: false once it is retired.
  bool is_managed(BlockId id) const;

  AllocationStats stats() const;
  // After each of the last calls that allocate, reserve, free, or retire; oldest first.
  std::vector<AllocationStats> history() const;
  PoolCounts counts() const;

  // Recounts everything; std::logic_error with what is wrong. O(blocks). Debug builds call it after
  // every mutation of a pool of up to 4,096 blocks.
  void check_invariants() const;

 private:
  Stream resolve(Stream stream, const char* function) const;

  std::shared_ptr<internal::PoolBooks> books_;
};

}  // namespace kvpool
