// SharedPool: the core's pool with what Python adds to it, shared by the Python pool object and by
// the handles, statistics and reservations that outlive it. Counted under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "kvpool/pool/block_pool_allocator.h"
#include "owner_table.h"

namespace kvpool::python {

struct SharedPool {
  explicit SharedPool(const PoolConfig& config) : pool(config) {}

  // The interned str of a format, and the tag of one.
  PyObject* format_object(FormatTag tag);
  FormatTag format_tag(PyObject* name);

  // Drops `owner` from the table unless it is active in the core, or claimed.
  void forget_if_inactive(OwnerId owner) {
    if (!pool.owner_is_active(owner)) forget_cleared({owner});
  }

  // Drops owners that the core says are no longer active, but for those that are claimed.
  void forget_cleared(const std::vector<OwnerId>& cleared);

  BlockPoolAllocator pool;
  OwnerTable owners;
  // By owner, a weak reference to the one cache that may use it at a time.
  std::unordered_map<OwnerId, nanobind::object> claims;
  std::vector<nanobind::object> formats;  // by tag
  std::vector<Block> scratch;             // reused between calls; taken out while in use
  std::size_t n_refs = 0;
};

class PoolRef {
 public:
  PoolRef() = default;
  explicit PoolRef(SharedPool* shared) : shared_(shared) { ++shared_->n_refs; }
  PoolRef(const PoolRef& other) : shared_(other.shared_) {
    if (shared_ != nullptr) ++shared_->n_refs;
  }
  PoolRef(PoolRef&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  PoolRef& operator=(PoolRef other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~PoolRef() {
    if (shared_ != nullptr) drop(shared_);
  }

  static void drop(SharedPool* shared) {
    if (--shared->n_refs == 0) delete shared;
  }

  SharedPool* get() const { return shared_; }
  SharedPool* operator->() const { return shared_; }
  SharedPool& operator*() const { return *shared_; }
  explicit operator bool() const { return shared_ != nullptr; }

 private:
  SharedPool* shared_ = nullptr;
};

}  // namespace kvpool::python
