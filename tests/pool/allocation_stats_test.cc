#include "kvpool/pool/allocation_stats.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kvpool {
namespace {

TEST(AllocationStats, FragmentationIsOverManagedBlocks) {
  EXPECT_EQ(AllocationStats{}.fragmentation(), 0.0);
  const AllocationStats stats{.n_blocks = 8, .fragmented_count = 2};
  EXPECT_EQ(stats.fragmentation(), 0.25);
}

TEST(AllocationStats, PrometheusTextIsExact) {
  const AllocationStats stats{.n_blocks = 3,
                              .n_allocations = 10,
                              .n_frees = 8,
                              .n_reused = 7,
                              .n_exhausted = 1,
                              .n_grown = 4,
                              .n_retired = 5,
                              .peak_blocks_in_use = 6,
                              .fragmented_count = 1};
  EXPECT_EQ(stats.to_prometheus("p"),
            "# HELP p_blocks_in_use Blocks checked out.\n"
            "# TYPE p_blocks_in_use gauge\n"
            "p_blocks_in_use 2\n"
            "# HELP p_blocks_total Blocks managed.\n"
            "# TYPE p_blocks_total gauge\n"
            "p_blocks_total 3\n"
            "# HELP p_fragmentation Owned blocks with a free slot over blocks managed.\n"
            "# TYPE p_fragmentation gauge\n"
            "p_fragmentation 0.333333\n"
            "# HELP p_peak_blocks_in_use Most blocks ever checked out at once.\n"
            "# TYPE p_peak_blocks_in_use gauge\n"
            "p_peak_blocks_in_use 6\n"
            "# HELP p_allocations_total Blocks checked out.\n"
            "# TYPE p_allocations_total counter\n"
            "p_allocations_total 10\n"
            "# HELP p_frees_total Blocks given back.\n"
            "# TYPE p_frees_total counter\n"
            "p_frees_total 8\n"
            "# HELP p_reused_total Blocks checked out again after an earlier check-out.\n"
            "# TYPE p_reused_total counter\n"
            "p_reused_total 7\n"
            "# HELP p_exhausted_total Calls refused for want of free blocks.\n"
            "# TYPE p_exhausted_total counter\n"
            "p_exhausted_total 1\n"
            "# HELP p_grown_total Blocks added by growth.\n"
            "# TYPE p_grown_total counter\n"
            "p_grown_total 4\n"
            "# HELP p_retired_total Blocks taken out by shrink.\n"
            "# TYPE p_retired_total counter\n"
            "p_retired_total 5\n");
}

TEST(AllocationStats, InvalidPrefixIsRefused) {
  for (const char* prefix : {"", "9a", "a b", "a\"", "a\n", "é", "a-b"}) {
    EXPECT_THROW(AllocationStats{}.to_prometheus(prefix), std::invalid_argument) << prefix;
  }
  EXPECT_NO_THROW(AllocationStats{}.to_prometheus("_a:b9"));
}

}  // namespace
}  // namespace kvpool
