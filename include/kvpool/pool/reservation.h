// Reservation: blocks of several streams and layers set aside for one owner, whole or not at all.
//
// This is how a forward step is made atomic: reserve what every layer will need, then let each
// layer take its item at its turn. Reserved blocks are neither free nor in use. What was not taken
// goes back when the reservation goes away, leaving the free lists as they were.
//
// Move-only. Stays safe when the pool object goes first. Not thread-safe itself; the pool is.
//
//   Reservation step = pool.reserve({{Stream::kKey, 256}, {Stream::kValue, 256}}, request_id);
//   std::vector<Block> keys = step.take(0);
//   std::vector<Block> values = step.take(1);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool {

namespace internal {
class PoolBooks;

struct ReservedItem {
  Stream stream{};
  std::int64_t n_tokens = 0;
  FormatTag format{};
  bool pending = true;  // not taken and not given back
  std::vector<Block> blocks;
};
}  // namespace internal

// One stream of one layer.
struct ReservationItem {
  Stream stream;
  std::int64_t n_tokens;  // at least 1
  std::string_view format = "fp16";
};

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  std::size_t n_items() const { return items_.size(); }

  // Whether item `index` can still be taken.
  bool is_pending(std::size_t index) const {
    return index < items_.size() && items_[index].pending;
  }

  // Blocks not taken yet.
  std::int64_t n_reserved() const;

  // Makes item `index` blocks of the owner, as allocate() would. std::invalid_argument for an item
  // that does not exist, was taken, or was given back.
  std::vector<Block> take(std::size_t index);

  // Takes every item that is left, in order.
  std::vector<std::vector<Block>> commit();

  // Gives back what was not taken.
  void cancel() noexcept;

 private:
  friend class BlockPoolAllocator;
  Reservation(std::shared_ptr<internal::PoolBooks> books, std::vector<internal::ReservedItem> items,
              OwnerId owner) noexcept;

  std::shared_ptr<internal::PoolBooks> books_;
  std::vector<internal::ReservedItem> items_;
  OwnerId owner_ = 0;
};

}  // namespace kvpool
