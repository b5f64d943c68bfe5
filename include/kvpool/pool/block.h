// Block: a caller's handle of one check-out of one block.
//
// The pool keeps the books; a Block only names an entry in them. Every check-out has a generation
// of its own, so a handle from an earlier check-out is *stale*: the pool treats it as the handle of
// a free block, and it can't free, mark or read the block of the next owner. Trivially copyable,
// 24 bytes, owns nothing (Lease does).
#pragma once

#include <cstdint>
#include <string_view>

namespace kvpool {

using BlockId = std::uint64_t;  // indexes storage; never moves, never used again once retired
using OwnerId = std::uint64_t;  // any number the caller likes: a request's or a sequence's id

enum class Stream : std::uint8_t { kKey, kValue, kShared };

// "k", "v", "kv".
std::string_view to_string(Stream stream);

// A format name ("fp16", "int4", …) as one pool numbers it; see BlockPoolAllocator::format.
enum class FormatTag : std::uint16_t {};

struct Block {
  const void* pool = nullptr;  // identity only, never followed
  BlockId id = 0;
  std::uint64_t generation = 0;

  friend bool operator==(const Block&, const Block&) = default;
};

// What the books say of a checked-out block.
struct BlockState {
  Stream stream;
  OwnerId owner;
  std::int64_t n_used;  // token slots in use, 0 … block_size
  FormatTag format;
};

}  // namespace kvpool
