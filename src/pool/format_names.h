// FormatNames: numbers the format names that one pool has been given.
//
// A pool sees a handful of formats; 65,535 is the most it tells apart. Thread-safe.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kvpool/base/fork_aware_mutex.h"
#include "kvpool/pool/block.h"

namespace kvpool::internal {

class FormatNames {
 public:
  FormatTag tag(std::string_view name) {
    const ForkAwareMutex::Guard guard(mutex_);
    std::size_t number = 0;
    while (number < names_.size() && names_[number] != name) ++number;
    if (number == kMost) {
      throw std::invalid_argument("[BlockPoolAllocator::format] a pool tells at most " +
                                  std::to_string(kMost) + " format names apart, got one more: \"" +
                                  std::string(name) + "\"");
    }
    if (number == names_.size()) names_.emplace_back(name);
    return FormatTag(number);
  }

  std::string name(FormatTag tag) const {
    const ForkAwareMutex::Guard guard(mutex_);
    return names_.at(static_cast<std::size_t>(tag));
  }

 private:
  static constexpr std::size_t kMost = 65535;

  mutable ForkAwareMutex mutex_{"BlockPoolAllocator"};
  std::vector<std::string> names_{"fp16"};
};

}  // namespace kvpool::internal
