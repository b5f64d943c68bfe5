#include "pool/free_list.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kvpool::internal {
namespace {

std::vector<BlockId> next_ids(const FreeList& list, std::int64_t n) {
  std::vector<BlockId> ids;
  list.visit_next(n, [&](BlockId id) { ids.push_back(id); });
  return ids;
}

TEST(FreeList, PopsTheHighestOfTheLastRangeFirst) {
  FreeList list;
  list.push(0, 3);
  list.push(10, 2);
  EXPECT_EQ(next_ids(list, 5), (std::vector<BlockId>{11, 10, 2, 1, 0}));
  EXPECT_EQ(list.pop(), 11u);
  list.push(7);
  EXPECT_EQ(list.pop(), 7u);
  EXPECT_EQ(list.size(), 4);
}

TEST(FreeList, BehavesAsAStackOfIds) {
  std::mt19937 random(1);
  FreeList list;
  std::vector<BlockId> stack;
  std::vector<BlockId> outside;
  for (BlockId id = 0; id < 40; ++id) stack.push_back(id);
  list.push(0, 40);
  for (int i = 0; i < 20'000; ++i) {
    if (!outside.empty() && (stack.empty() || random() % 2 == 0)) {
      const std::size_t which = random() % outside.size();
      list.push(outside[which]);
      stack.push_back(outside[which]);
      outside.erase(outside.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      ASSERT_EQ(list.pop(), stack.back());
      outside.push_back(stack.back());
      stack.pop_back();
    }
    ASSERT_EQ(list.size(), static_cast<std::int64_t>(stack.size()));
    ASSERT_EQ(next_ids(list, list.size()), std::vector<BlockId>(stack.rbegin(), stack.rend()));
    for (const BlockId id : outside) ASSERT_FALSE(list.contains(id));
    for (const BlockId id : stack) ASSERT_TRUE(list.contains(id));
  }
}

}  // namespace
}  // namespace kvpool::internal
