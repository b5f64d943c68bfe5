// A mutex whose owner can tell that the process has forked since it was last used.
//
// A child of fork() inherits a copy of every mutex. One that another thread held at that moment can
// never be unlocked there, and what it guards may be half-changed. Locking it would hang for ever;
// this mutex throws instead. One that nobody held is sound, and the child may go on using it.
//
// Thread-safety: any thread. Cost: one relaxed load on top of std::mutex.
//
//   ForkAwareMutex mutex("BlockPoolAllocator");
//   ForkAwareMutex::Guard guard(mutex);   // throws std::runtime_error in such a child
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace kvpool {

class ForkAwareMutex {
 public:
  // `subject` names what is guarded, for the error's text; it must outlive the mutex.
  explicit ForkAwareMutex(const char* subject);
  ForkAwareMutex(const ForkAwareMutex&) = delete;
  ForkAwareMutex& operator=(const ForkAwareMutex&) = delete;

  // Throws std::runtime_error where another thread held the mutex when this process was forked.
  void lock();
  void unlock() { mutex_.unlock(); }

  using Guard = std::lock_guard<ForkAwareMutex>;

 private:
  void lock_after_fork();
  [[noreturn]] void throw_broken() const;

  std::mutex mutex_;
  std::atomic<std::uint64_t> fork_count_;    // the process's forks when last locked
  std::atomic<std::uint64_t> broken_at_{0};  // the fork count at which it was found unusable
  const char* subject_;
};

}  // namespace kvpool
