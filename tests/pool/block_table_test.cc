#include "pool/block_table.h"

#include <gtest/gtest.h>

namespace kvpool::internal {
namespace {

TEST(BlockTable, RecordsAreMadeOnFirstTouch) {
  BlockTable table;
  EXPECT_EQ(table.find(5000), nullptr);
  table.ensure(5000);
  ASSERT_NE(table.find(5000), nullptr);
  EXPECT_EQ(table.find(5000)->generation, 0u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(1'000'000), nullptr);
}

// As a check-out does.
void use(BlockTable& table, BlockId id) {
  table.ensure(id);
  table.count_use(id);
  table[id].generation = 1;
}

TEST(BlockTable, AChunkGoesWithTheLastBlockThatWasUsed) {
  BlockTable table;
  for (const BlockId id : {BlockId{3}, BlockId{700}, BlockTable::kChunkBlocks}) use(table, id);
  table.retire(3);
  table.retire(4);  // never handed out
  EXPECT_NE(table.find(700), nullptr);
  table.retire(700);
  EXPECT_EQ(table.find(700), nullptr);
  EXPECT_NE(table.find(BlockTable::kChunkBlocks), nullptr);
}

TEST(BlockTable, ChunksOfWhichNothingWasUsedCanBeGivenBack) {
  BlockTable table;
  table.ensure(3);
  use(table, BlockTable::kChunkBlocks);
  table.release_unused(3);
  table.release_unused(BlockTable::kChunkBlocks);
  EXPECT_EQ(table.find(3), nullptr);
  EXPECT_NE(table.find(BlockTable::kChunkBlocks), nullptr);
}

}  // namespace
}  // namespace kvpool::internal
