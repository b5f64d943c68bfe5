#include "kvpool/base/fork_aware_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

namespace kvpool {
namespace {

// Runs `body` in a forked child and returns its exit code; a hang ends the child by SIGALRM.
int exit_code_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int lock_and_unlock(ForkAwareMutex& mutex) {
  try {
    const ForkAwareMutex::Guard guard(mutex);
    return 0;
  } catch (const std::runtime_error& error) {
    return std::string(error.what()).find("[subject]") == 0 ? 1 : 2;
  }
}

TEST(ForkAwareMutex, ExcludesThreads) {
  ForkAwareMutex mutex("subject");
  int n = 0;
  const auto count = [&] {
    for (int i = 0; i < 10'000; ++i) {
      const ForkAwareMutex::Guard guard(mutex);
      ++n;
    }
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(n, 20'000);
}

TEST(ForkAwareMutex, ChildMayUseAMutexThatNobodyHeld) {
  ForkAwareMutex mutex("subject");
  EXPECT_EQ(exit_code_of_child([&] { return lock_and_unlock(mutex) + lock_and_unlock(mutex); }), 0);
  EXPECT_EQ(lock_and_unlock(mutex), 0);
}

TEST(ForkAwareMutex, ChildOfAForkDuringAnotherThreadsCallThrowsInsteadOfHanging) {
  ForkAwareMutex mutex("subject");
  std::atomic<bool> held{false};
  std::atomic<bool> done{false};
  std::thread holder([&] {
    const ForkAwareMutex::Guard guard(mutex);
    held = true;
    held.notify_one();
    done.wait(false);
  });
  held.wait(false);
  const int code = exit_code_of_child([&] { return lock_and_unlock(mutex); });
  done = true;
  done.notify_one();
  holder.join();
  EXPECT_EQ(code, 1);
  EXPECT_EQ(lock_and_unlock(mutex), 0);
}

TEST(ForkAwareMutex, GrandchildMayUseItToo) {
  ForkAwareMutex mutex("subject");
  EXPECT_EQ(exit_code_of_child([&] {
              return lock_and_unlock(mutex) +
                     exit_code_of_child([&] { return lock_and_unlock(mutex); });
            }),
            0);
}

}  // namespace
}  // namespace kvpool
