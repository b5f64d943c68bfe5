#include "kvpool/pool/lease.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "kvpool/pool/block_pool_allocator.h"

namespace kvpool {
namespace {

TEST(Lease, GivesItsBlocksBackWhenItGoes) {
  BlockPoolAllocator pool;
  {
    const Lease lease = pool.lease(Stream::kKey, 40, 1);
    EXPECT_EQ(lease.blocks().size(), 3u);
    EXPECT_EQ(pool.counts().live, 3);
  }
  EXPECT_EQ(pool.counts().live, 0);
  EXPECT_FALSE(pool.owner_is_active(1));
}

TEST(Lease, MovedFromHoldsNothing) {
  BlockPoolAllocator pool;
  Lease first = pool.lease(Stream::kKey, 16, 1);
  Lease second = std::move(first);
  first.reset();
  EXPECT_EQ(pool.counts().live, 1);
  second = pool.lease(Stream::kKey, 32, 2);
  EXPECT_EQ(pool.counts().live, 2);
  EXPECT_TRUE(pool.blocks_for(1).empty());
}

TEST(Lease, DetachedBlocksStayOut) {
  BlockPoolAllocator pool;
  const auto blocks = pool.lease(Stream::kKey, 16, 1).detach();
  EXPECT_EQ(pool.counts().live, 1);
  pool.free(blocks);
  EXPECT_EQ(pool.counts().live, 0);
}

TEST(Lease, BlocksFreedBehindItsBackAreNotFreedAgain) {
  BlockPoolAllocator pool({.n_blocks = 2});
  std::optional<Lease> lease = pool.lease(Stream::kKey, 16, 1);
  pool.free_all(1);
  const auto next = pool.allocate(Stream::kKey, 16, 2);
  lease.reset();
  EXPECT_TRUE(pool.inspect(next[0]).has_value());
  EXPECT_EQ(pool.stats().n_frees, 1);
}

TEST(Lease, MayOutliveThePool) {
  Lease lease;
  {
    BlockPoolAllocator pool;
    lease = pool.lease(Stream::kKey, 16, 1);
  }
  EXPECT_EQ(lease.blocks().size(), 1u);
  lease.reset();
  EXPECT_TRUE(lease.blocks().empty());
}

}  // namespace
}  // namespace kvpool
