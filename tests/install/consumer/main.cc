// Allocates, frees, and says by its exit status whether the books balance.
#include <kvpool/pool/block_pool_allocator.h>

#include <vector>

int main() {
  kvpool::BlockPoolAllocator pool({.block_size = 16, .n_blocks = 8});
  const std::vector<kvpool::Block> blocks = pool.allocate(kvpool::Stream::kKey, 33, /*owner=*/7);
  const bool allocated = blocks.size() == 3 && pool.counts().live == 3;
  pool.free(blocks);
  const bool given_back = pool.counts().live == 0 && pool.counts().free == 8;
  return allocated && given_back ? 0 : 1;
}
