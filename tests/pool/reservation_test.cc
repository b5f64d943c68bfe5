#include "kvpool/pool/reservation.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace kvpool {
namespace {

constexpr OwnerId kAda = 1;

TEST(Reservation, SetsAsideForAllItemsOrNone) {
  BlockPoolAllocator pool({.n_blocks = 8});
  EXPECT_THROW(pool.reserve({{Stream::kKey, 48}, {Stream::kValue, 16}, {Stream::kKey, 32}}, kAda),
               BlockPoolExhaustedError);
  EXPECT_EQ(pool.counts(), (PoolCounts{.managed = 8, .free = 8}));
  EXPECT_EQ(pool.stats().n_exhausted, 1);
  EXPECT_FALSE(pool.owner_is_active(kAda));
  const Reservation step = pool.reserve({{Stream::kKey, 48}, {Stream::kValue, 64}}, kAda);
  EXPECT_EQ(pool.counts(), (PoolCounts{.managed = 8, .free = 1, .reserved = 7}));
  EXPECT_EQ(pool.stats().blocks_in_use(), 0);
}

TEST(Reservation, ExhaustionTellsOfTheStreamThatIsShort) {
  BlockPoolAllocator pool({.n_blocks = 8});
  try {
    pool.reserve({{Stream::kKey, 48}, {Stream::kValue, 50}, {Stream::kValue, 20}}, kAda);
    FAIL();
  } catch (const BlockPoolExhaustedError& error) {
    EXPECT_STREQ(error.what(),
                 "[BlockPoolAllocator::reserve] 6 block(s) of stream 'v' wanted for 70 token(s), "
                 "but 4 free of 8 in the pool, and growth is off");
  }
}

TEST(Reservation, TakenItemsBecomeBlocksAsFromAllocate) {
  BlockPoolAllocator pool({.n_blocks = 8});
  Reservation step = pool.reserve({{Stream::kKey, 20, "int4"}, {Stream::kValue, 16}}, kAda);
  const auto values = step.take(1);
  const auto keys = step.take(0);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].id, 3u);
  EXPECT_EQ(pool.inspect(keys[1])->n_used, 4);
  EXPECT_EQ(pool.format_name(pool.inspect(keys[0])->format), "int4");
  EXPECT_EQ(pool.blocks_for(kAda), (std::vector<Block>{values[0], keys[0], keys[1]}));
  EXPECT_EQ(step.n_reserved(), 0);
  EXPECT_EQ(pool.stats().n_allocations, 3);
  EXPECT_EQ(pool.stats().peak_blocks_in_use, 3);
}

TEST(Reservation, AnItemIsTakenOnce) {
  BlockPoolAllocator pool;
  Reservation step = pool.reserve({{Stream::kKey, 1}}, kAda);
  step.take(0);
  EXPECT_THROW(step.take(0), std::invalid_argument);
  EXPECT_THROW(step.take(1), std::invalid_argument);
  step.cancel();
  EXPECT_EQ(pool.counts().live, 1);
}

TEST(Reservation, CommitTakesWhatIsLeftInOrder) {
  BlockPoolAllocator pool;
  Reservation step =
      pool.reserve({{Stream::kKey, 16}, {Stream::kKey, 32}, {Stream::kValue, 16}}, kAda);
  step.take(1);
  const auto rest = step.commit();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].size(), 1u);
  EXPECT_EQ(pool.inspect(rest[1][0])->stream, Stream::kValue);
  EXPECT_TRUE(step.commit().empty());
}

TEST(Reservation, CancelRestoresTheFreeLists) {
  BlockPoolAllocator pool({.n_blocks = 12});
  BlockPoolAllocator untouched({.n_blocks = 12});
  {
    Reservation step =
        pool.reserve({{Stream::kKey, 40}, {Stream::kValue, 16}, {Stream::kKey, 48}}, kAda);
    EXPECT_TRUE(pool.owner_is_active(kAda));
  }
  EXPECT_FALSE(pool.owner_is_active(kAda));
  for (const Stream stream : {Stream::kKey, Stream::kValue}) {
    const auto after = pool.allocate(stream, 96, kAda);
    const auto expected = untouched.allocate(stream, 96, kAda);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].id, expected[i].id);
  }
  EXPECT_EQ(pool.stats().n_reused, 0);
}

TEST(Reservation, CancelKeepsAnOwnerThatWasActiveBefore) {
  BlockPoolAllocator pool;
  pool.register_owner(kAda);
  pool.reserve({{Stream::kKey, 1}}, kAda).cancel();
  EXPECT_TRUE(pool.owner_is_active(kAda));
}

TEST(Reservation, OwnersBecomeInactiveWhicheverIsCancelledFirst) {
  BlockPoolAllocator pool;
  Reservation first = pool.reserve({{Stream::kKey, 1}}, kAda);
  Reservation second = pool.reserve({{Stream::kKey, 1}}, kAda);
  first.cancel();
  EXPECT_TRUE(pool.owner_is_active(kAda));
  second.cancel();
  EXPECT_FALSE(pool.owner_is_active(kAda));
}

TEST(Reservation, MovedOntoItselfKeepsItsItems) {
  BlockPoolAllocator pool;
  Reservation step = pool.reserve({{Stream::kKey, 1}}, kAda);
  Reservation& same = step;
  step = std::move(same);
  EXPECT_EQ(step.n_reserved(), 1);
  EXPECT_EQ(step.take(0).size(), 1u);
}

TEST(Reservation, OwnerStaysActiveWhileItHasBlocksReserved) {
  BlockPoolAllocator pool;
  Reservation step = pool.reserve({{Stream::kKey, 1}, {Stream::kKey, 1}}, kAda);
  step.take(0);
  EXPECT_TRUE(pool.free_all(kAda));
  EXPECT_THROW(pool.register_owner(kAda), OwnerAlreadyActiveError);
  EXPECT_EQ(step.take(1).size(), 1u);
  EXPECT_FALSE(pool.free_all(kAda));
}

TEST(Reservation, GrowsLikeAllocate) {
  BlockPoolAllocator pool({.n_blocks = 2, .grow_on_exhaustion = true, .max_blocks = 6});
  Reservation step = pool.reserve({{Stream::kKey, 32}, {Stream::kValue, 32}}, kAda);
  EXPECT_EQ(pool.stats().n_grown, 2);
  EXPECT_THROW(pool.reserve({{Stream::kKey, 48}}, kAda), BlockPoolExhaustedError);
  EXPECT_EQ(pool.stats().n_blocks, 6);
}

TEST(Reservation, MayOutliveThePoolAndBeMoved) {
  Reservation step;
  {
    BlockPoolAllocator pool;
    step = pool.reserve({{Stream::kKey, 16}, {Stream::kKey, 16}}, kAda);
  }
  Reservation moved = std::move(step);
  EXPECT_EQ(step.n_items(), 0u);
  EXPECT_EQ(moved.take(0).size(), 1u);
  moved.cancel();
  EXPECT_EQ(moved.n_reserved(), 0);
}

TEST(Reservation, OfNothingChangesNothing) {
  BlockPoolAllocator pool;
  Reservation step = pool.reserve({}, kAda);
  EXPECT_EQ(step.n_reserved(), 0);
  EXPECT_TRUE(step.commit().empty());
  EXPECT_FALSE(pool.owner_is_active(kAda));
}

}  // namespace
}  // namespace kvpool
