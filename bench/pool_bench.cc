// What a block of the pool costs next to 64 KiB from malloc and from mimalloc.
//
// Each benchmark is one way to get memory for 16 tokens and give it back. Statistics and history of
// the pool are always on. `kvpool bench alloc --program <this>` runs it with interleaved
// repetitions and prints the ratios; alone:
//
//   pool_bench --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
//
// mimalloc is loaded at run time, with its names kept to itself: Debian builds its library to take
// the place of malloc, so a program that links it has no other malloc left to compare with.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"

namespace {

using kvpool::Block;
using kvpool::BlockPoolAllocator;
using kvpool::FormatTag;
using kvpool::Lease;
using kvpool::OwnerId;
using kvpool::Stream;

constexpr std::int64_t kBlockSize = 16;
constexpr std::int64_t kPoolBlocks = 4096;
// A block of keys of one layer at 8 heads of 128 channels in float32: 16 * 8 * 128 * 4.
constexpr std::size_t kPairBytes = std::size_t{64} * 1024;
constexpr int kBatch = 16;

// A heap under test, by its two functions.
struct Heap {
  using Malloc = void* (*)(std::size_t);
  using Free = void (*)(void*);
  Malloc malloc = nullptr;
  Free free = nullptr;
};

Heap load_mimalloc() {
  for (const char* name : {"libmimalloc.so.2", "libmimalloc.so", "libmimalloc.dylib"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      return {.malloc = reinterpret_cast<Heap::Malloc>(dlsym(library, "mi_malloc")),
              .free = reinterpret_cast<Heap::Free>(dlsym(library, "mi_free"))};
    }
  }
  return {};
}

BlockPoolAllocator& shared_pool() {
  static BlockPoolAllocator pool({.block_size = kBlockSize, .n_blocks = kPoolBlocks});
  return pool;
}

OwnerId owner_of(const benchmark::State& state) {
  return static_cast<OwnerId>(state.thread_index()) + 1;
}

// n_blocks blocks out and back by the non-throwing call, into a vector that has room.
void pool_allocate_free(benchmark::State& state, std::int64_t n_blocks) {
  BlockPoolAllocator& pool = shared_pool();
  const FormatTag format = pool.format("fp16");
  const OwnerId owner = owner_of(state);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(n_blocks));
  for (auto _ : state) {
    if (!pool.try_allocate(Stream::kKey, n_blocks * kBlockSize, owner, format, blocks)) {
      state.SkipWithError("the pool is exhausted");
      break;
    }
    benchmark::DoNotOptimize(blocks.data());
    pool.free(blocks);
    blocks.clear();
  }
  state.SetItemsProcessed(state.iterations() * n_blocks);
}

// The same for an owner that holds `n_held` other blocks all the while.
void pool_allocate_free_beside(benchmark::State& state, std::int64_t n_held) {
  BlockPoolAllocator pool({.block_size = kBlockSize, .n_blocks = 2 * (n_held + 1)});
  const FormatTag format = pool.format("fp16");
  const OwnerId owner = 1;
  const std::vector<Block> held = pool.allocate(Stream::kKey, n_held * kBlockSize, owner);
  std::vector<Block> blocks;
  blocks.reserve(1);
  for (auto _ : state) {
    if (!pool.try_allocate(Stream::kKey, kBlockSize, owner, format, blocks)) {
      state.SkipWithError("the pool is exhausted");
      break;
    }
    pool.free(blocks);
    blocks.clear();
  }
  benchmark::DoNotOptimize(held.data());
  state.SetItemsProcessed(state.iterations());
}

void pool_lease(benchmark::State& state) {
  BlockPoolAllocator& pool = shared_pool();
  const OwnerId owner = owner_of(state);
  for (auto _ : state) {
    const Lease lease = pool.lease(Stream::kKey, kBlockSize, owner);
    benchmark::DoNotOptimize(lease.blocks().data());
  }
  state.SetItemsProcessed(state.iterations());
}

void heap_pairs(benchmark::State& state, Heap heap, int n_pairs) {
  std::array<void*, kBatch> pointers{};
  const auto n = static_cast<std::size_t>(n_pairs);
  for (auto _ : state) {
    for (std::size_t i = 0; i < n; ++i) {
      pointers[i] = heap.malloc(kPairBytes);
      benchmark::DoNotOptimize(pointers[i]);
    }
    for (std::size_t i = 0; i < n; ++i) heap.free(pointers[i]);
  }
  state.SetItemsProcessed(state.iterations() * n_pairs);
}

void register_heap(const std::string& name, Heap heap) {
  benchmark::RegisterBenchmark((name + "/1").c_str(), heap_pairs, heap, 1);
  benchmark::RegisterBenchmark((name + "/16").c_str(), heap_pairs, heap, kBatch);
  benchmark::RegisterBenchmark((name + "/1").c_str(), heap_pairs, heap, 1)
      ->Threads(8)
      ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

  benchmark::RegisterBenchmark("pool/1", pool_allocate_free, 1);
  benchmark::RegisterBenchmark("pool/16", pool_allocate_free, kBatch);
  benchmark::RegisterBenchmark("pool/1", pool_allocate_free, 1)->Threads(8)->UseRealTime();
  benchmark::RegisterBenchmark("pool_holding_16384/1", pool_allocate_free_beside, 16384);
  benchmark::RegisterBenchmark("lease/1", pool_lease);
  register_heap("malloc", {.malloc = std::malloc, .free = std::free});
  const Heap mimalloc = load_mimalloc();
  const bool has_mimalloc = mimalloc.malloc != nullptr && mimalloc.free != nullptr;
  benchmark::AddCustomContext("mimalloc", has_mimalloc ? "loaded" : "absent");
  if (has_mimalloc) register_heap("mimalloc", mimalloc);

  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
