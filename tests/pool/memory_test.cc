// When the pool asks the system for memory: not while blocks come and go, and never to free one.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace {
std::atomic<std::int64_t> g_n_allocations{0};
std::atomic<std::int64_t> g_n_bytes{0};  // held
}  // namespace

// Not inlined: GCC 12 would take the pair for one that does not match.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_n_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  g_n_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  g_n_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace kvpool {
namespace {

TEST(Memory, BlocksThatComeAndGoNeedNone) {
  BlockPoolAllocator pool({.n_blocks = 10'000});
  const FormatTag format = pool.format("fp16");
  std::vector<Block> blocks;
  blocks.reserve(8);
  const auto cycle = [&](OwnerId owner) {
    blocks.clear();
    ASSERT_TRUE(pool.try_allocate(Stream::kKey, 100, owner, format, blocks));
    pool.free(blocks);
  };
  for (OwnerId owner = 0; owner < 2; ++owner) cycle(owner);
  const std::int64_t before = g_n_allocations;
  for (OwnerId owner = 2; owner < 1000; ++owner) cycle(owner);
  EXPECT_EQ(g_n_allocations, before);
}

class FreeingInAnyOrder : public testing::TestWithParam<std::int64_t> {};

TEST_P(FreeingInAnyOrder, NeedsNone) {
  BlockPoolAllocator pool({.n_blocks = GetParam(), .grow_on_exhaustion = true});
  for (int round = 0; round < 3; ++round) {
    std::vector<Block> blocks;
    for (OwnerId owner = 0; owner < 50; ++owner) {
      const auto more = pool.allocate(Stream::kKey, 100 * 16, owner);
      blocks.insert(blocks.end(), more.begin(), more.end());
    }
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(static_cast<unsigned>(round)));
    const std::int64_t before = g_n_allocations;
    for (const Block& block : blocks) pool.free(std::span(&block, 1));
    EXPECT_EQ(g_n_allocations, before);
  }
}

// All there at first, and grown as needed.
INSTANTIATE_TEST_SUITE_P(Pools, FreeingInAnyOrder, testing::Values(20'000, 1));

TEST(Memory, GrowingAndShrinkingForEverNeedsNoMoreAndMore) {
  BlockPoolAllocator pool(
      {.n_blocks = 64, .separate_kv = false, .grow_on_exhaustion = true, .max_blocks = 64});
  const std::int64_t before = g_n_bytes;
  for (OwnerId round = 0; round < 2000; ++round) {
    EXPECT_THROW(pool.allocate(Stream::kKey, 65 * 16, round), BlockPoolExhaustedError);
    pool.shrink(Stream::kKey, 0);
    pool.free(pool.allocate(Stream::kKey, 64 * 16, round));
    pool.shrink(Stream::kKey, 0);
  }
  // 128,000 blocks came and went; what stays is a directory of their chunks.
  EXPECT_LT(g_n_bytes - before, 200'000);
}

}  // namespace
}  // namespace kvpool
