// FormatNames: numbers the format names that one pool has been given.
//
// A pool sees a handful of formats; 65,535 is the most it tells apart. Thread-safe.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool::internal {

class FormatNames {
 public:
  FormatTag tag(std::string_view name) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = find(name); found < names_.size()) return FormatTag(found);
    }
    const std::unique_lock lock(mutex_);
    const std::size_t found = find(name);
    if (found == kMost) {
      throw std::invalid_argument("[BlockPoolAllocator::format] a pool tells at most " +
                                  std::to_string(kMost) + " format names apart, got one more: \"" +
                                  std::string(name) + "\"");
    }
    if (found == names_.size()) names_.emplace_back(name);
    return FormatTag(found);
  }

  std::string name(FormatTag tag) const {
    const std::shared_lock lock(mutex_);
    return names_.at(static_cast<std::size_t>(tag));
  }

 private:
  static constexpr std::size_t kMost = 65535;

  // The name's number; the number it would get where it has none.
  std::size_t find(std::string_view name) const {
    std::size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    return i;
  }

  mutable std::shared_mutex mutex_;
  std::vector<std::string> names_{"fp16"};
};

}  // namespace kvpool::internal
