// Lease: blocks that go back to their pool when it goes away.
//
// Move-only. Stays safe when the pool object goes first. Not thread-safe itself; the pool is.
//
//   Lease lease = pool.lease(Stream::kKey, n_tokens, request_id);
//   use(lease.blocks());
//   // given back here, unless detach() was called
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool {

namespace internal {
class PoolBooks;
}

class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  std::span<const Block> blocks() const { return blocks_; }

  // Gives the blocks back now. A lease of nothing does nothing.
  void reset() noexcept;

  // The blocks stay checked out, and whoever called gives them back.
  std::vector<Block> detach() noexcept;

 private:
  friend class BlockPoolAllocator;
  Lease(std::shared_ptr<internal::PoolBooks> books, std::vector<Block> blocks) noexcept;

  std::shared_ptr<internal::PoolBooks> books_;
  std::vector<Block> blocks_;
};

}  // namespace kvpool
