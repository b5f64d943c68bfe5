// Many threads on one pool; run under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace kvpool {
namespace {

constexpr int kThreads = 8;

void run_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Each thread keeps a model of what it owns; a block that two threads hold shows at once.
TEST(Threads, RandomOperationsKeepEveryBlockWithOneOwner) {
  constexpr int kOperationsPerThread = 12'500;  // 100,000 in all
  BlockPoolAllocator pool(
      {.block_size = 4, .n_blocks = 64, .grow_on_exhaustion = true, .max_blocks = 96});
  std::vector<std::atomic<int>> holder(4096);
  for (auto& who : holder) who = -1;
  std::atomic<int> n_conflicts{0};

  run_threads([&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    const auto owner = static_cast<OwnerId>(thread);
    const FormatTag format = pool.format("fp16");
    std::vector<Block> mine;
    std::vector<Block> stale;
    const auto claim = [&](const Block& block) {
      int nobody = -1;
      if (!holder.at(block.id).compare_exchange_strong(nobody, thread)) ++n_conflicts;
    };
    const auto give_up = [&](const Block& block) { holder.at(block.id) = -1; };
    for (int i = 0; i < kOperationsPerThread; ++i) {
      const Stream stream = random() % 2 == 0 ? Stream::kKey : Stream::kValue;
      switch (random() % 6) {
        case 0:
        case 1: {
          const std::size_t before = mine.size();
          pool.try_allocate(stream, 1 + static_cast<std::int64_t>(random() % 12), owner, format,
                            mine);
          for (std::size_t b = before; b < mine.size(); ++b) claim(mine[b]);
          break;
        }
        case 2:
          if (mine.empty()) break;
          give_up(mine.back());
          pool.free(std::span(&mine.back(), 1));
          stale.push_back(mine.back());
          mine.pop_back();
          break;
        case 3:
          for (const Block& block : mine) give_up(block);
          stale.insert(stale.end(), mine.begin(), mine.end());
          mine.clear();
          pool.free_all(owner);
          break;
        case 4: {
          pool.free(stale);
          for (const Block& block : stale) {
            if (pool.mark_used(block, 1) || pool.inspect(block)) ++n_conflicts;
          }
          stale.clear();
          break;
        }
        default: {
          try {
            Reservation step = pool.reserve({{stream, 5}, {stream, 3}}, owner);
            for (const Block& block : step.take(0)) {
              claim(block);
              mine.push_back(block);
            }
          } catch (const BlockPoolExhaustedError&) {
            break;
          }
        }
      }
      for (const Block& block : mine) {
        const auto state = pool.inspect(block);
        if (!state || state->owner != owner) ++n_conflicts;
      }
      if (i % 500 == 0) {
        pool.shrink(stream, 20);
        pool.check_invariants();
        if (pool.history().size() > kDefaultHistorySize) ++n_conflicts;
      }
    }
    for (const Block& block : mine) give_up(block);
    pool.free_all(owner);
  });

  EXPECT_EQ(n_conflicts, 0);
  EXPECT_EQ(pool.counts().live, 0);
  EXPECT_EQ(pool.counts().reserved, 0);
  pool.check_invariants();
}

// Case 2.
TEST(Threads, Case2RacingFreeAllFreesEachBlockOnce) {
  BlockPoolAllocator pool({.n_blocks = 64});
  for (int round = 0; round < 50; ++round) {
    const auto blocks = pool.allocate(Stream::kKey, 32 * 16, 1);
    run_threads([&](int thread) {
      if (thread % 2 == 0) {
        pool.free_all(1);
      } else {
        pool.free(blocks);
      }
    });
    ASSERT_EQ(pool.stats().n_frees, 32 * (round + 1));
    pool.check_invariants();
  }
  std::set<BlockId> distinct;
  for (const Block& block : pool.allocate(Stream::kKey, 32 * 16, 1)) distinct.insert(block.id);
  EXPECT_EQ(distinct.size(), 32u);
}

}  // namespace
}  // namespace kvpool
