#include "kvpool/base/fork_aware_mutex.h"

#include <pthread.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace kvpool {
namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<std::uint64_t> g_fork_count{0};

void count_fork_in_child() { g_fork_count.fetch_add(1, std::memory_order_relaxed); }

void count_forks_from_now_on() {
  static const int registered = pthread_atfork(nullptr, nullptr, count_fork_in_child);
  if (registered != 0) {
    throw std::runtime_error("[ForkAwareMutex] pthread_atfork failed with error " +
                             std::to_string(registered));
  }
}

}  // namespace

ForkAwareMutex::ForkAwareMutex(const char* subject) : subject_(subject) {
  count_forks_from_now_on();
  fork_count_.store(g_fork_count.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void ForkAwareMutex::lock() {
  if (fork_count_.load(std::memory_order_relaxed) == g_fork_count.load(std::memory_order_relaxed))
      [[likely]] {
    mutex_.lock();
    return;
  }
  lock_after_fork();
}

// Only one thread exists right after a fork, so whoever gets the mutex here proves that nobody held
// it at the fork. A second thread of the child may be refused for as long as the first one works
// under the mutex; it waits up to a second, far longer than any call of ours holds a mutex.
void ForkAwareMutex::lock_after_fork() {
  const std::uint64_t now = g_fork_count.load(std::memory_order_relaxed);
  if (broken_at_.load(std::memory_order_relaxed) == now) throw_broken();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  do {
    if (mutex_.try_lock()) {
      fork_count_.store(now, std::memory_order_relaxed);
      return;
    }
    if (fork_count_.load(std::memory_order_relaxed) == now) {
      mutex_.lock();
      return;
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  broken_at_.store(now, std::memory_order_relaxed);
  throw_broken();
}

void ForkAwareMutex::throw_broken() const {
  throw std::runtime_error(std::string("[") + subject_ +
                           "] another thread was inside this object when the process was forked, "
                           "so its books may be half-changed here; make a new one in the child");
}

}  // namespace kvpool
