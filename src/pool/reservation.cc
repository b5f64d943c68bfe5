#include "kvpool/pool/reservation.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "pool_books.h"

namespace kvpool {

Reservation::Reservation(std::shared_ptr<internal::PoolBooks> books,
                         std::vector<internal::ReservedItem> items, OwnerId owner) noexcept
    : books_(std::move(books)), items_(std::move(items)), owner_(owner) {}

Reservation::Reservation(Reservation&& other) noexcept
    : books_(std::move(other.books_)),
      items_(std::exchange(other.items_, {})),
      owner_(other.owner_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    cancel();
    books_ = std::move(other.books_);
    items_ = std::exchange(other.items_, {});
    owner_ = other.owner_;
  }
  return *this;
}

Reservation::~Reservation() { cancel(); }

std::int64_t Reservation::n_reserved() const {
  std::int64_t n = 0;
  for (const internal::ReservedItem& item : items_) {
    if (item.pending) n += static_cast<std::int64_t>(item.blocks.size());
  }
  return n;
}

std::vector<Block> Reservation::take(std::size_t index) {
  if (!is_pending(index)) {
    throw std::invalid_argument(
        "[Reservation::take] item " + std::to_string(index) + " of " +
        std::to_string(items_.size()) +
        (index >= items_.size() ? " does not exist" : " was taken or given back already"));
  }
  books_->take(items_[index], owner_);
  return std::exchange(items_[index].blocks, {});
}

std::vector<std::vector<Block>> Reservation::commit() {
  std::vector<std::vector<Block>> taken;
  taken.reserve(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (is_pending(i)) taken.push_back(take(i));
  }
  return taken;
}

void Reservation::cancel() noexcept {
  if (!books_) return;
  try {
    books_->cancel(items_, owner_);
  } catch (const std::exception&) {
    // Only in a forked child whose copy of the pool is unusable: nothing there to give back to.
    items_.clear();
  }
  books_.reset();
}

}  // namespace kvpool
