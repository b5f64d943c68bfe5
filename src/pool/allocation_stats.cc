#include "kvpool/pool/allocation_stats.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>

namespace kvpool {
namespace {

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

bool continues_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

void check_prefix(std::string_view prefix) {
  if (prefix.empty() || !begins_name(prefix.front()) ||
      !std::all_of(prefix.begin(), prefix.end(), continues_name)) {
    throw std::invalid_argument(
        "[AllocationStats::to_prometheus] prefix must match [a-zA-Z_:][a-zA-Z0-9_:]*, got \"" +
        std::string(prefix) + "\"");
  }
}

std::string six_decimals(double value) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.6f", value);
  return std::string(text.data(), static_cast<std::size_t>(size));
}

struct Family {
  const char* suffix;
  const char* type;
  const char* help;
  std::string value;
};

}  // namespace

std::string AllocationStats::to_prometheus(std::string_view prefix) const {
  check_prefix(prefix);
  const std::array<Family, 10> families{{
      {"_blocks_in_use", "gauge", "Blocks checked out.", std::to_string(blocks_in_use())},
      {"_blocks_total", "gauge", "Blocks managed.", std::to_string(n_blocks)},
      {"_fragmentation", "gauge", "Owned blocks with a free slot over blocks managed.",
       six_decimals(fragmentation())},
      {"_peak_blocks_in_use", "gauge", "Most blocks ever checked out at once.",
       std::to_string(peak_blocks_in_use)},
      {"_allocations_total", "counter", "Blocks checked out.", std::to_string(n_allocations)},
      {"_frees_total", "counter", "Blocks given back.", std::to_string(n_frees)},
      {"_reused_total", "counter", "Blocks checked out again after an earlier check-out.",
       std::to_string(n_reused)},
      {"_exhausted_total", "counter", "Calls refused for want of free blocks.",
       std::to_string(n_exhausted)},
      {"_grown_total", "counter", "Blocks added by growth.", std::to_string(n_grown)},
      {"_retired_total", "counter", "Blocks taken out by shrink.", std::to_string(n_retired)},
  }};
  std::string text;
  for (const Family& family : families) {
    const std::string name = std::string(prefix) + family.suffix;
    text += "# HELP " + name + ' ' + family.help + '\n';
    text += "# TYPE " + name + ' ' + family.type + '\n';
    text += name + ' ' + family.value + '\n';
  }
  return text;
}

}  // namespace kvpool
