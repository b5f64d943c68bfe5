#include "kvpool/pool/block_pool_allocator.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "pool_books.h"

namespace kvpool {
namespace {

void check_n_tokens(std::int64_t n_tokens, const char* function) {
  if (n_tokens < 1) {
    throw std::invalid_argument(std::string("[BlockPoolAllocator::") + function +
                                "] n_tokens must be at least 1, got " + std::to_string(n_tokens));
  }
}

[[noreturn]] void throw_exhausted(const char* function, std::int64_t n_tokens,
                                  const internal::Shortfall& shortfall, const PoolConfig& config) {
  std::string text =
      std::string("[BlockPoolAllocator::") + function + "] " + std::to_string(shortfall.n_wanted) +
      " block(s) of stream '" + std::string(to_string(shortfall.stream)) + "' wanted for " +
      std::to_string(n_tokens) + " token(s), but " + std::to_string(shortfall.n_free) +
      " free of " + std::to_string(shortfall.n_managed) + " in the pool";
  if (!config.grow_on_exhaustion) {
    text += ", and growth is off";
  } else if (config.max_blocks) {
    text += ", which may grow to " + std::to_string(*config.max_blocks);
  } else {
    text += ", and a pool manages at most " + std::to_string(kMaxManagedBlocks);
  }
  throw BlockPoolExhaustedError(text);
}

}  // namespace

std::string_view to_string(Stream stream) {
  switch (stream) {
    case Stream::kKey:
      return "k";
    case Stream::kValue:
      return "v";
    case Stream::kShared:
      break;
  }
  return "kv";
}

BlockPoolAllocator::BlockPoolAllocator(const PoolConfig& config)
    : books_(std::make_shared<internal::PoolBooks>(config)) {}

const PoolConfig& BlockPoolAllocator::config() const { return books_->config(); }

FormatTag BlockPoolAllocator::format(std::string_view name) { return books_->formats().tag(name); }

std::string BlockPoolAllocator::format_name(FormatTag format) const {
  return books_->formats().name(format);
}

Stream BlockPoolAllocator::resolve(Stream stream, const char* function) const {
  if (!config().separate_kv) return Stream::kShared;
  if (stream == Stream::kShared) {
    throw std::invalid_argument(std::string("[BlockPoolAllocator::") + function +
                                "] stream must be 'k' or 'v' in a pool with separate_kv, got 'kv'");
  }
  return stream;
}

std::vector<Block> BlockPoolAllocator::allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                                std::string_view format_name) {
  std::vector<Block> blocks;
  allocate(stream, n_tokens, owner, format(format_name), blocks);
  return blocks;
}

void BlockPoolAllocator::allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                  FormatTag format, std::vector<Block>& out) {
  check_n_tokens(n_tokens, "allocate");
  const auto shortfall =
      books_->allocate(resolve(stream, "allocate"), n_tokens, owner, format, out);
  if (shortfall) throw_exhausted("allocate", n_tokens, *shortfall, config());
}

bool BlockPoolAllocator::try_allocate(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                      FormatTag format, std::vector<Block>& out) {
  check_n_tokens(n_tokens, "try_allocate");
  return !books_->allocate(resolve(stream, "try_allocate"), n_tokens, owner, format, out);
}

Lease BlockPoolAllocator::lease(Stream stream, std::int64_t n_tokens, OwnerId owner,
                                std::string_view format) {
  return {books_, allocate(stream, n_tokens, owner, format)};
}

Reservation BlockPoolAllocator::reserve(std::span<const ReservationItem> items, OwnerId owner) {
  std::vector<internal::ReservedItem> reserved;
  reserved.reserve(items.size());
  std::array<std::int64_t, 3> n_tokens{};  // by Stream
  for (const ReservationItem& item : items) {
    check_n_tokens(item.n_tokens, "reserve");
    const Stream stream = resolve(item.stream, "reserve");
    reserved.push_back({stream, item.n_tokens, format(item.format), true, {}});
    std::int64_t& n_of_stream = n_tokens[static_cast<std::size_t>(stream)];
    if (__builtin_add_overflow(n_of_stream, item.n_tokens, &n_of_stream)) {
      throw std::invalid_argument(
          "[BlockPoolAllocator::reserve] the n_tokens of one stream add up to more than "
          "2**63 - 1");
    }
  }
  if (!items.empty()) {
    const auto shortfall = books_->reserve(reserved, owner);
    if (shortfall) {
      throw_exhausted("reserve", n_tokens[static_cast<std::size_t>(shortfall->stream)], *shortfall,
                      config());
    }
  }
  return {books_, std::move(reserved), owner};
}

void BlockPoolAllocator::free(std::span<const Block> blocks, std::vector<OwnerId>* cleared_owners) {
  if (!books_->free(blocks, cleared_owners)) {
    throw std::invalid_argument(
        "[BlockPoolAllocator::free] a block belongs to another pool; nothing was freed");
  }
}

bool BlockPoolAllocator::free_all(OwnerId owner) { return books_->free_all(owner); }

void BlockPoolAllocator::register_owner(OwnerId owner) {
  if (!books_->register_owner(owner)) {
    throw OwnerAlreadyActiveError("[BlockPoolAllocator::register_owner] owner " +
                                  std::to_string(owner) +
                                  " is active: registered, or still holding blocks");
  }
}

void BlockPoolAllocator::release_owner(OwnerId owner) { books_->release_owner(owner); }

bool BlockPoolAllocator::owner_is_active(OwnerId owner) const {
  return books_->owner_is_active(owner);
}

bool BlockPoolAllocator::mark_used(const Block& block, std::int64_t n_used) {
  if (n_used < 0 || n_used > config().block_size) {
    throw std::invalid_argument("[BlockPoolAllocator::mark_used] n_used must be 0 to " +
                                std::to_string(config().block_size) + ", got " +
                                std::to_string(n_used));
  }
  return books_->mark_used(block, n_used);
}

std::int64_t BlockPoolAllocator::shrink(Stream stream, std::int64_t target_free) {
  if (target_free < 0) {
    throw std::invalid_argument(
        "[BlockPoolAllocator::shrink] target_free must be at least 0, got " +
        std::to_string(target_free));
  }
  return books_->shrink(resolve(stream, "shrink"), target_free);
}

std::optional<BlockState> BlockPoolAllocator::inspect(const Block& block) const {
  return books_->inspect(block);
}

std::vector<Block> BlockPoolAllocator::blocks_for(OwnerId owner) const {
  return books_->blocks_for(owner);
}

std::int64_t BlockPoolAllocator::n_free(Stream stream) const {
  return books_->n_free(resolve(stream, "n_free"));
}

bool BlockPoolAllocator::is_managed(BlockId id) const { return books_->is_managed(id); }

AllocationStats BlockPoolAllocator::stats() const { return books_->stats(); }

std::vector<AllocationStats> BlockPoolAllocator::history() const { return books_->history(); }

PoolCounts BlockPoolAllocator::counts() const { return books_->counts(); }

void BlockPoolAllocator::check_invariants() const { books_->check_invariants(); }

}  // namespace kvpool
