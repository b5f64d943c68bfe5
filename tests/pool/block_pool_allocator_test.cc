#include "kvpool/pool/block_pool_allocator.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvpool {
namespace {

constexpr OwnerId kAda = 1;
constexpr OwnerId kBob = 2;

std::vector<BlockId> ids(const std::vector<Block>& blocks) {
  std::vector<BlockId> result;
  for (const Block& block : blocks) result.push_back(block.id);
  return result;
}

std::vector<std::int64_t> used(const BlockPoolAllocator& pool, const std::vector<Block>& blocks) {
  std::vector<std::int64_t> result;
  for (const Block& block : blocks) result.push_back(pool.inspect(block)->n_used);
  return result;
}

TEST(BlockPoolAllocator, StreamsAreSplitInHalvesWithTheOddBlockToKeys) {
  const BlockPoolAllocator pool({.n_blocks = 7});
  EXPECT_EQ(pool.n_free(Stream::kKey), 4);
  EXPECT_EQ(pool.n_free(Stream::kValue), 3);
  const BlockPoolAllocator one({.n_blocks = 1});
  EXPECT_EQ(one.n_free(Stream::kKey), 1);
  EXPECT_EQ(one.n_free(Stream::kValue), 0);
}

TEST(BlockPoolAllocator, HandsOutTheHighestIdFirstAndTheLastFreedNext) {
  BlockPoolAllocator pool({.n_blocks = 512});
  EXPECT_EQ(ids(pool.allocate(Stream::kKey, 40, kAda)), (std::vector<BlockId>{255, 254, 253}));
  EXPECT_EQ(ids(pool.allocate(Stream::kValue, 1, kAda)), (std::vector<BlockId>{511}));
  pool.free_all(kAda);
  EXPECT_EQ(ids(pool.allocate(Stream::kKey, 40, kAda)), (std::vector<BlockId>{253, 254, 255}));
}

TEST(BlockPoolAllocator, AllBlocksAreFullButTheLast) {
  BlockPoolAllocator pool;
  for (const auto& [n_tokens, expected] :
       std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>{
           {1, {1}}, {15, {15}}, {16, {16}}, {17, {16, 1}}, {32, {16, 16}}, {33, {16, 16, 1}}}) {
    EXPECT_EQ(used(pool, pool.allocate(Stream::kKey, n_tokens, kAda)), expected) << n_tokens;
  }
}

TEST(BlockPoolAllocator, SharedStreamTakesAnyLabel) {
  BlockPoolAllocator pool({.n_blocks = 4, .separate_kv = false});
  for (const Stream stream : {Stream::kKey, Stream::kValue, Stream::kShared}) {
    const auto blocks = pool.allocate(stream, 1, kAda);
    EXPECT_EQ(pool.inspect(blocks[0])->stream, Stream::kShared);
  }
  EXPECT_EQ(pool.n_free(Stream::kValue), 1);
}

TEST(BlockPoolAllocator, SeparateStreamsRefuseTheSharedLabel) {
  BlockPoolAllocator pool;
  EXPECT_THROW(pool.allocate(Stream::kShared, 1, kAda), std::invalid_argument);
  EXPECT_THROW((void)pool.n_free(Stream::kShared), std::invalid_argument);
  EXPECT_THROW(pool.shrink(Stream::kShared, 0), std::invalid_argument);
  EXPECT_EQ(pool.stats(), AllocationStats{.n_blocks = 1024});
}

TEST(BlockPoolAllocator, NonPositiveTokensAreRefusedBeforeAnythingElse) {
  BlockPoolAllocator pool;
  for (const std::int64_t n :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    try {
      pool.allocate(Stream::kShared, n, kAda);
      ADD_FAILURE() << n;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(
          std::string(error.what()).find("n_tokens must be at least 1, got " + std::to_string(n)),
          std::string::npos);
    }
  }
  EXPECT_TRUE(pool.history().empty());
  EXPECT_FALSE(pool.owner_is_active(kAda));
}

TEST(BlockPoolAllocator, HugeRequestsNeverWrap) {
  for (const bool grow : {false, true}) {
    BlockPoolAllocator pool({.n_blocks = 8, .grow_on_exhaustion = grow});
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    EXPECT_THROW(pool.allocate(Stream::kKey, most, kAda), BlockPoolExhaustedError);
    EXPECT_THROW(pool.reserve({{Stream::kKey, most}, {Stream::kKey, 1}}, kAda),
                 std::invalid_argument);
    EXPECT_THROW(pool.reserve({{Stream::kKey, most}, {Stream::kValue, most}}, kAda),
                 BlockPoolExhaustedError);
    EXPECT_THROW(pool.reserve({{Stream::kKey, most}}, kAda), BlockPoolExhaustedError);
    EXPECT_EQ(pool.stats().n_blocks, 8);
    EXPECT_FALSE(pool.owner_is_active(kAda));
  }
}

// Case 1.
TEST(BlockPoolAllocator, Case1RefusedAllocationLeavesNoTrace) {
  BlockPoolAllocator pool({.n_blocks = 8});
  pool.allocate(Stream::kKey, 48, kAda);
  ASSERT_EQ(pool.n_free(Stream::kKey), 1);
  EXPECT_THROW(pool.allocate(Stream::kKey, 48, kBob), BlockPoolExhaustedError);
  EXPECT_EQ(pool.n_free(Stream::kKey), 1);
  EXPECT_TRUE(pool.blocks_for(kBob).empty());
  EXPECT_NO_THROW(pool.register_owner(kBob));
  EXPECT_EQ(pool.stats().n_exhausted, 1);
  // A failed growth keeps what the owner had.
  EXPECT_THROW(pool.allocate(Stream::kKey, 48, kAda), BlockPoolExhaustedError);
  EXPECT_EQ(pool.blocks_for(kAda).size(), 3u);
  EXPECT_TRUE(pool.owner_is_active(kAda));
}

TEST(BlockPoolAllocator, ExhaustionSaysWhatWasWantedAndWhatThereIs) {
  BlockPoolAllocator pool({.n_blocks = 8});
  pool.allocate(Stream::kKey, 48, kAda);
  try {
    pool.allocate(Stream::kKey, 20, kBob);
    FAIL();
  } catch (const BlockPoolExhaustedError& error) {
    EXPECT_STREQ(error.what(),
                 "[BlockPoolAllocator::allocate] 2 block(s) of stream 'k' wanted for 20 token(s), "
                 "but 1 free of 8 in the pool, and growth is off");
  }
}

TEST(BlockPoolAllocator, TryAllocateSaysNoInsteadOfThrowing) {
  BlockPoolAllocator pool({.n_blocks = 4});
  std::vector<Block> blocks;
  const FormatTag int4 = pool.format("int4");
  EXPECT_TRUE(pool.try_allocate(Stream::kValue, 17, kAda, int4, blocks));
  EXPECT_FALSE(pool.try_allocate(Stream::kValue, 1, kAda, int4, blocks));
  EXPECT_EQ(blocks.size(), 2u);
  EXPECT_EQ(pool.format_name(pool.inspect(blocks[1])->format), "int4");
  EXPECT_EQ(pool.stats().n_exhausted, 1);
}

// Case 2.
TEST(BlockPoolAllocator, Case2DoubleFreeChangesNothing) {
  BlockPoolAllocator pool({.n_blocks = 8});
  const auto blocks = pool.allocate(Stream::kKey, 16, kAda);
  pool.free(std::vector<Block>{blocks[0], blocks[0]});
  EXPECT_EQ(pool.stats().n_frees, 1);
  const auto more = pool.allocate(Stream::kKey, 16, kAda);
  pool.free_all(kAda);
  pool.free(more);
  EXPECT_EQ(pool.stats().n_frees, 2);
  const auto all = ids(pool.allocate(Stream::kKey, 64, kAda));
  EXPECT_EQ(std::set<BlockId>(all.begin(), all.end()).size(), 4u);
}

TEST(BlockPoolAllocator, StaleHandleIsRefusedAfterReuse) {
  BlockPoolAllocator pool({.n_blocks = 2});
  const Block stale = pool.allocate(Stream::kKey, 5, kAda)[0];
  pool.free_all(kAda);
  const Block fresh = pool.allocate(Stream::kKey, 7, kBob)[0];
  ASSERT_EQ(stale.id, fresh.id);
  EXPECT_FALSE(pool.inspect(stale).has_value());
  EXPECT_FALSE(pool.mark_used(stale, 16));
  pool.free(std::vector<Block>{stale});
  const auto state = pool.inspect(fresh);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->owner, kBob);
  EXPECT_EQ(state->n_used, 7);
}

TEST(BlockPoolAllocator, ForeignBlockIsRefusedAndNothingFreed) {
  BlockPoolAllocator pool;
  BlockPoolAllocator other;
  auto blocks = pool.allocate(Stream::kKey, 16, kAda);
  blocks.push_back(other.allocate(Stream::kKey, 16, kAda)[0]);
  EXPECT_THROW(pool.free(blocks), std::invalid_argument);
  EXPECT_EQ(pool.stats().n_frees, 0);
  EXPECT_FALSE(pool.mark_used(blocks[1], 3));
  EXPECT_EQ(other.inspect(blocks[1])->n_used, 16);
}

TEST(BlockPoolAllocator, HandleOfADeadPoolIsStaleEvenAtTheSameAddress) {
  Block dead;
  {
    BlockPoolAllocator pool({.n_blocks = 2});
    dead = pool.allocate(Stream::kKey, 1, kAda)[0];
  }
  BlockPoolAllocator pool({.n_blocks = 2});
  const Block block = pool.allocate(Stream::kKey, 1, kBob)[0];
  ASSERT_EQ(dead.id, block.id);
  dead.pool = block.pool;  // as if the new pool lay where the dead one was
  EXPECT_FALSE(pool.inspect(dead).has_value());
  pool.free(std::vector<Block>{dead});
  EXPECT_TRUE(pool.inspect(block).has_value());
}

TEST(BlockPoolAllocator, OwnerStaysActiveUntilItsLastBlockIsFreed) {
  BlockPoolAllocator pool;
  const auto blocks = pool.allocate(Stream::kKey, 32, kAda);
  EXPECT_THROW(pool.register_owner(kAda), OwnerAlreadyActiveError);
  pool.release_owner(kAda);
  EXPECT_THROW(pool.register_owner(kAda), OwnerAlreadyActiveError);
  pool.free(std::vector<Block>{blocks[0]});
  EXPECT_TRUE(pool.owner_is_active(kAda));
  std::vector<OwnerId> cleared;
  pool.free(std::vector<Block>{blocks[1]}, &cleared);
  EXPECT_EQ(cleared, std::vector<OwnerId>{kAda});
  EXPECT_NO_THROW(pool.register_owner(kAda));
  pool.release_owner(kAda);
  EXPECT_FALSE(pool.owner_is_active(kAda));
}

TEST(BlockPoolAllocator, BlocksForKeepsAllocationOrder) {
  BlockPoolAllocator pool;
  auto expected = pool.allocate(Stream::kKey, 40, kAda);
  const auto values = pool.allocate(Stream::kValue, 20, kAda);
  expected.insert(expected.end(), values.begin(), values.end());
  EXPECT_EQ(pool.blocks_for(kAda), expected);
  pool.free(std::vector<Block>{expected[1]});
  expected.erase(expected.begin() + 1);
  EXPECT_EQ(pool.blocks_for(kAda), expected);
  EXPECT_TRUE(pool.blocks_for(kBob).empty());
}

TEST(BlockPoolAllocator, MarkUsedKeepsTheFragmentedCount) {
  BlockPoolAllocator pool({.n_blocks = 4});
  const auto blocks = pool.allocate(Stream::kKey, 17, kAda);
  EXPECT_EQ(pool.stats().fragmented_count, 1);
  EXPECT_TRUE(pool.mark_used(blocks[0], 0));
  EXPECT_EQ(pool.stats().fragmented_count, 2);
  EXPECT_TRUE(pool.mark_used(blocks[0], 16));
  EXPECT_TRUE(pool.mark_used(blocks[1], 16));
  EXPECT_EQ(pool.stats().fragmented_count, 0);
  EXPECT_THROW(pool.mark_used(blocks[0], 17), std::invalid_argument);
  EXPECT_THROW(pool.mark_used(blocks[0], -1), std::invalid_argument);
  EXPECT_EQ(pool.inspect(blocks[0])->n_used, 16);
}

TEST(BlockPoolAllocator, GrowsByJustEnoughUpToTheCap) {
  BlockPoolAllocator pool({.n_blocks = 4, .grow_on_exhaustion = true, .max_blocks = 7});
  EXPECT_EQ(ids(pool.allocate(Stream::kKey, 64, kAda)), (std::vector<BlockId>{5, 4, 1, 0}));
  EXPECT_EQ(pool.stats().n_grown, 2);
  // The one block that still fits under the cap is added, and stays although two were wanted.
  EXPECT_THROW(pool.allocate(Stream::kKey, 32, kBob), BlockPoolExhaustedError);
  EXPECT_EQ(pool.stats().n_blocks, 7);
  EXPECT_EQ(pool.n_free(Stream::kKey), 1);
  EXPECT_EQ(ids(pool.allocate(Stream::kKey, 1, kBob)), std::vector<BlockId>{6});
}

// Case 10.
TEST(BlockPoolAllocator, Case10RetiredBlocksDoNotUseUpTheCap) {
  BlockPoolAllocator pool(
      {.n_blocks = 64, .separate_kv = false, .grow_on_exhaustion = true, .max_blocks = 64});
  const Block held = pool.allocate(Stream::kShared, 1, kAda)[0];
  EXPECT_EQ(pool.shrink(Stream::kShared, 0), 63);
  EXPECT_EQ(pool.stats().n_blocks, 1);
  const auto grown = ids(pool.allocate(Stream::kShared, 63 * 16, kBob));
  EXPECT_EQ(pool.stats().n_blocks, 64);
  EXPECT_EQ(pool.stats().n_retired, 63);
  EXPECT_EQ(pool.stats().n_grown, 63);
  std::set<BlockId> distinct(grown.begin(), grown.end());
  EXPECT_EQ(distinct.size(), 63u);
  EXPECT_FALSE(distinct.contains(held.id));
  EXPECT_THROW(pool.allocate(Stream::kShared, 1, kBob), BlockPoolExhaustedError);
}

TEST(BlockPoolAllocator, ShrinkRetiresFreeBlocksOnly) {
  BlockPoolAllocator pool({.n_blocks = 8});
  const auto blocks = pool.allocate(Stream::kKey, 32, kAda);
  EXPECT_EQ(pool.shrink(Stream::kKey, 1), 1);
  EXPECT_EQ(pool.shrink(Stream::kKey, 1), 0);
  EXPECT_EQ(pool.n_free(Stream::kKey), 1);
  EXPECT_EQ(pool.counts(), (PoolCounts{.managed = 7, .free = 5, .live = 2}));
  EXPECT_THROW(pool.shrink(Stream::kKey, -1), std::invalid_argument);
  EXPECT_TRUE(pool.is_managed(blocks[0].id));
  EXPECT_FALSE(pool.is_managed(1));
  EXPECT_TRUE(pool.is_managed(0));
  EXPECT_FALSE(pool.is_managed(8));
}

TEST(BlockPoolAllocator, BlocksThatWereUsedAndThenRetiredAreManagedNoMore) {
  BlockPoolAllocator pool({.n_blocks = 8});
  const auto blocks = pool.allocate(Stream::kKey, 32, kAda);
  const Block held = pool.allocate(Stream::kKey, 1, kBob)[0];
  pool.free(blocks);
  pool.shrink(Stream::kKey, 0);
  for (const Block& block : blocks) EXPECT_FALSE(pool.is_managed(block.id));
  EXPECT_TRUE(pool.is_managed(held.id));
}

TEST(BlockPoolAllocator, RetiredIdsAreNeverUsedAgain) {
  BlockPoolAllocator pool({.n_blocks = 2, .separate_kv = false, .grow_on_exhaustion = true});
  std::set<BlockId> seen;
  for (int i = 0; i < 3000; ++i) {
    for (const BlockId id : ids(pool.allocate(Stream::kShared, 32, kAda))) {
      ASSERT_TRUE(seen.insert(id).second);
    }
    pool.free_all(kAda);
    ASSERT_EQ(pool.shrink(Stream::kShared, 0), 2);
  }
  EXPECT_EQ(pool.stats().n_blocks, 0);
  EXPECT_FALSE(pool.is_managed(0));
  EXPECT_FALSE(pool.is_managed(5000));
}

TEST(BlockPoolAllocator, HistoryHasAnEntryForEveryCallThatAsksOrGivesBack) {
  BlockPoolAllocator pool({.n_blocks = 2});
  const auto blocks = pool.allocate(Stream::kKey, 1, kAda);                     // 1
  EXPECT_THROW(pool.allocate(Stream::kKey, 1, kBob), BlockPoolExhaustedError);  // 2
  pool.free(blocks);                                                            // 3
  pool.free(blocks);                                                            // 4
  pool.free_all(kBob);                                                          // 5
  pool.shrink(Stream::kKey, 5);                                                 // none retired
  pool.shrink(Stream::kKey, 0);                                                 // 6
  const auto history = pool.history();
  ASSERT_EQ(history.size(), 6u);
  EXPECT_EQ(history[0].blocks_in_use(), 1);
  EXPECT_EQ(history[1].n_exhausted, 1);
  EXPECT_EQ(history[2].blocks_in_use(), 0);
  EXPECT_EQ(history[5], pool.stats());
}

TEST(BlockPoolAllocator, HistoryKeepsTheLast256) {
  BlockPoolAllocator pool;
  for (int i = 0; i < 300; ++i) pool.allocate(Stream::kKey, 1, kAda);
  const auto history = pool.history();
  ASSERT_EQ(history.size(), kDefaultHistorySize);
  EXPECT_EQ(history.front().n_allocations, 300 - 255);
  EXPECT_EQ(history.back().n_allocations, 300);
}

TEST(BlockPoolAllocator, ReuseAndPeakAreCounted) {
  BlockPoolAllocator pool({.n_blocks = 8});
  pool.allocate(Stream::kKey, 33, kAda);
  pool.free_all(kAda);
  pool.allocate(Stream::kKey, 64, kAda);
  EXPECT_EQ(pool.stats().n_reused, 3);
  EXPECT_EQ(pool.stats().peak_blocks_in_use, 4);
  pool.free_all(kAda);
  EXPECT_EQ(pool.stats().peak_blocks_in_use, 4);
}

TEST(BlockPoolAllocator, AMillionBlocksCostNothingUntilUsed) {
  BlockPoolAllocator pool({.n_blocks = std::int64_t{1} << 32, .separate_kv = false});
  EXPECT_EQ(pool.n_free(Stream::kKey), std::int64_t{1} << 32);
  EXPECT_EQ(pool.allocate(Stream::kKey, 1, kAda)[0].id, (BlockId{1} << 32) - 1);
}

}  // namespace
}  // namespace kvpool
