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

TEST(BlockTable, AChunkWhoseBlocksAreAllRetiredIsGivenBack) {
  BlockTable table;
  table.ensure(0);
  table.ensure(BlockTable::kChunkBlocks);
  for (BlockId id = 0; id < BlockTable::kChunkBlocks; ++id) {
    ASSERT_NE(table.find(0), nullptr) << id;
    table.retire(id);
  }
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_NE(table.find(BlockTable::kChunkBlocks), nullptr);
}

}  // namespace
}  // namespace kvpool::internal
