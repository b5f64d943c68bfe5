#include "kvpool/pool/pool_config.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace kvpool {
namespace {

std::string error_of(const PoolConfig& config) {
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(PoolConfig, DefaultsAreValid) {
  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(PoolConfig{}.block_size, 16);
  EXPECT_EQ(PoolConfig{}.n_blocks, 1024);
}

TEST(PoolConfig, BoundsAreAccepted) {
  EXPECT_EQ(error_of({.block_size = 1, .n_blocks = 1, .max_blocks = 1}), "");
  EXPECT_EQ(error_of({.block_size = kMaxBlockSize, .n_blocks = kMaxManagedBlocks}), "");
}

TEST(PoolConfig, ErrorsShowTheValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of({.block_size = 0}), "[PoolConfig] block_size must be 1 to 2147483647, got 0");
  EXPECT_EQ(error_of({.block_size = kMaxBlockSize + 1}),
            "[PoolConfig] block_size must be 1 to 2147483647, got 2147483648");
  EXPECT_EQ(error_of({.n_blocks = -7}), "[PoolConfig] n_blocks must be 1 to 4294967296, got -7");
  EXPECT_EQ(error_of({.n_blocks = 64, .max_blocks = 63}),
            "[PoolConfig] max_blocks must be at least n_blocks (64), got 63");
}

}  // namespace
}  // namespace kvpool
