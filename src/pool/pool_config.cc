#include "kvpool/pool/pool_config.h"

#include <stdexcept>
#include <string>

namespace kvpool {
namespace {

void check_range(const char* field, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw std::invalid_argument(std::string("[PoolConfig] ") + field + " must be 1 to " +
                                std::to_string(most) + ", got " + std::to_string(value));
  }
}

}  // namespace

void PoolConfig::validate() const {
  check_range("block_size", block_size, kMaxBlockSize);
  check_range("n_blocks", n_blocks, kMaxManagedBlocks);
  if (max_blocks.has_value() && *max_blocks < n_blocks) {
    throw std::invalid_argument("[PoolConfig] max_blocks must be at least n_blocks (" +
                                std::to_string(n_blocks) + "), got " + std::to_string(*max_blocks));
  }
}

}  // namespace kvpool
