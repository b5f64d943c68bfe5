// When the pool asks the system for memory: not while blocks come and go, and never to free one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace {
std::atomic<std::int64_t> g_n_allocations{0};
}

// Not inlined: GCC 12 would take the pair for one that does not match.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++g_n_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

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

TEST(Memory, FreeingInAnyOrderNeedsNone) {
  BlockPoolAllocator pool({.n_blocks = 20'000});
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

}  // namespace
}  // namespace kvpool
