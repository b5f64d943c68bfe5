// SharedPool: the core's pool with what Python adds to it, shared by the Python pool object and by
// the handles, statistics and reservations that outlive it. Counted under the GIL.
#pragma once

#include <nanobind/nanobind.h>

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

  // Drops `owner` from the table unless the core still has it active.
  void forget_if_inactive(OwnerId owner) {
    if (!pool.owner_is_active(owner)) Py_DECREF(owners.remove(owner));
  }

  BlockPoolAllocator pool;
  OwnerTable owners;
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
