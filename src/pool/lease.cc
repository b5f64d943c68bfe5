#include "kvpool/pool/lease.h"

#include <exception>
#include <utility>

#include "pool_books.h"

namespace kvpool {

Lease::Lease(std::shared_ptr<internal::PoolBooks> books, std::vector<Block> blocks) noexcept
    : books_(std::move(books)), blocks_(std::move(blocks)) {}

Lease::Lease(Lease&& other) noexcept
    : books_(std::move(other.books_)), blocks_(std::exchange(other.blocks_, {})) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    reset();
    books_ = std::move(other.books_);
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

Lease::~Lease() { reset(); }

void Lease::reset() noexcept {
  if (!blocks_.empty()) {
    try {
      books_->free(blocks_, nullptr);
    } catch (const std::exception&) {
      // Only in a forked child whose copy of the pool is unusable: nothing there to give back to.
    }
  }
  blocks_.clear();
  books_.reset();
}

std::vector<Block> Lease::detach() noexcept {
  books_.reset();
  return std::exchange(blocks_, {});
}

}  // namespace kvpool
