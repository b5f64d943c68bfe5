// BlockTable: the record of every block that was ever touched, by id.
//
// Records live in chunks made when an id in them is first handed out, so a pool costs memory for
// the blocks it has used, not for those it could. A chunk goes back to the system when every block
// in it that was ever handed out has been retired. 40 bytes a block; lookup is two loads.
//
//          made on first touch      made by               made by
//   free ───────────────────▶ free ────────▶ live ───────────────▶ free …
//                              │   reserve ▶ reserved ─ take ▶ live
//                              └ shrink ▶ retired (for good)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool::internal {

inline constexpr BlockId kNoBlock = ~BlockId{0};

enum class BlockPhase : std::uint8_t { kFree, kReserved, kLive, kRetired };

struct BlockRecord {
  OwnerId owner = 0;
  std::uint64_t generation = 0;  // of the present check-out; stale handles carry another
  BlockId previous = kNoBlock;   // neighbours in the owner's blocks, in allocation order
  BlockId next = kNoBlock;
  std::uint32_t n_used = 0;
  FormatTag format{};
  Stream stream{};
  BlockPhase phase : 4 = BlockPhase::kFree;
  std::uint8_t ever_allocated : 1 = 0;
};
static_assert(sizeof(BlockRecord) == 40);

class BlockTable {
 public:
  static constexpr BlockId kChunkBlocks = 1024;

  // Makes the record of `id` exist. May throw std::bad_alloc, leaving the table as it was.
  void ensure(BlockId id) {
    const std::size_t index = id / kChunkBlocks;
    if (index >= chunks_.size()) chunks_.resize(index + 1);
    if (!chunks_[index].records) chunks_[index].records.reset(new BlockRecord[kChunkBlocks]);
  }

  // Null for a block that was never touched, or whose chunk has been given back.
  BlockRecord* find(BlockId id) {
    const std::size_t index = id / kChunkBlocks;
    if (index >= chunks_.size() || !chunks_[index].records) return nullptr;
    return &chunks_[index].records[id % kChunkBlocks];
  }

  // The record of an id that ensure() has been called for.
  BlockRecord& operator[](BlockId id) {
    return chunks_[id / kChunkBlocks].records[id % kChunkBlocks];
  }

  // To be called at an id's first check-out.
  void count_use(BlockId id) { ++chunks_[id / kChunkBlocks].n_used; }

  // Gives the chunk of `id` back if none of its blocks was ever handed out.
  void release_unused(BlockId id) {
    const std::size_t index = id / kChunkBlocks;
    if (index < chunks_.size() && chunks_[index].n_used == 0) chunks_[index].records.reset();
  }

  void retire(BlockId id) {
    BlockRecord* record = find(id);
    if (record == nullptr) return;
    record->phase = BlockPhase::kRetired;
    Chunk& chunk = chunks_[id / kChunkBlocks];
    // Ids that were never handed out have nothing to remember: a chunk goes with the last that was.
    if (record->generation != 0 && --chunk.n_used == 0) chunk.records.reset();
  }

 private:
  struct Chunk {
    std::unique_ptr<BlockRecord[]> records;
    BlockId n_used = 0;  // records of ids handed out and not retired
  };

  std::vector<Chunk> chunks_;
};

}  // namespace kvpool::internal
