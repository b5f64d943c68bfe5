// The two ways in which a well-formed request to the pool can be refused.
#pragma once

#include <stdexcept>

namespace kvpool {

// Too few free blocks, and the pool may not grow far enough. Nothing was handed out.
class BlockPoolExhaustedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The owner is registered already, or still holds blocks.
class OwnerAlreadyActiveError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace kvpool
