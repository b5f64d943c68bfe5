// The options of a BlockPoolAllocator.
//
//   PoolConfig config{.block_size = 16, .n_blocks = 4096, .grow_on_exhaustion = true};
//   config.validate();   // the allocator does this too
#pragma once

#include <cstdint>
#include <optional>

namespace kvpool {

// The most token slots a block may have, and the most blocks a pool may manage at one time.
inline constexpr std::int64_t kMaxBlockSize = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t kMaxManagedBlocks = std::int64_t{1} << 32;

struct PoolConfig {
  std::int64_t block_size = 16;     // token slots a block
  std::int64_t n_blocks = 1024;     // blocks managed at first, over all streams
  bool separate_kv = true;          // keys and values draw on free lists of their own
  bool grow_on_exhaustion = false;  // add blocks rather than refuse
  std::optional<std::int64_t> max_blocks =
      std::nullopt;  // the most blocks that growth may reach; none: no cap

  // Throws std::invalid_argument, with the value, for one outside its range.
  void validate() const;

  friend bool operator==(const PoolConfig&, const PoolConfig&) = default;
};

}  // namespace kvpool
