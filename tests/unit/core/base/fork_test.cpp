// SPDX-License-Identifier: Apache-2.0
// Objects of the process in a child made by fork.
#include "core/base/fork.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/config.hpp"
#include "core/base/immortal.hpp"
#include "core/base/log.hpp"
#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using testing_fork::run_in_child;

struct Plain {
  int value = 1;
  std::mutex mutex;
};

struct Inherited {
  Inherited() = default;
  Inherited(AfterFork /*tag*/, Inherited& parents) : value(parents.value + 1) {}
  int value = 1;
};

struct Counted final : ForkAware {
  Counted() { Forks::add(*this); }
  void hold() noexcept override { ++held; }
  void release() noexcept override { ++released; }
  void leave() noexcept override { ++left; }
  int held = 0;
  int released = 0;
  int left = 0;
};

TEST(Fork, IsCounted) {
  const uint64_t before = Forks::count();
  run_in_child([&] {
    EXPECT_EQ(Forks::count(), before + 1);
    run_in_child([&] { EXPECT_EQ(Forks::count(), before + 2); });
  });
  EXPECT_EQ(Forks::count(), before);
}

TEST(Fork, AChildHasObjectsOfItsOwn) {
  Plain& mine = Immortal<Plain>::instance();
  mine.value = 7;
  run_in_child([&] {
    EXPECT_NE(&Immortal<Plain>::instance(), &mine);
    EXPECT_EQ(Immortal<Plain>::instance().value, 1);
    EXPECT_EQ(&Immortal<Plain>::instance(), &Immortal<Plain>::instance());
    EXPECT_EQ(mine.value, 7);
  });
  EXPECT_EQ(&Immortal<Plain>::instance(), &mine);
}

TEST(Fork, AnObjectMayTakeAfterItsParents) {
  Immortal<Inherited>::instance().value = 5;
  run_in_child([] {
    EXPECT_EQ(Immortal<Inherited>::instance().value, 6);
    run_in_child([] { EXPECT_EQ(Immortal<Inherited>::instance().value, 7); });
    EXPECT_EQ(Immortal<Inherited>::instance().value, 6);
  });
}

TEST(Fork, ALockThatAnotherThreadHoldsIsNotTheChilds) {
  std::atomic<bool> held{false};
  std::atomic<bool> done{false};
  std::thread other([&] {
    const std::lock_guard lock(Immortal<Plain>::instance().mutex);
    const auto environment = hold_environment();
    held = true;
    while (!done) {
      std::this_thread::yield();
    }
  });
  while (!held) {
    std::this_thread::yield();
  }
  run_in_child([] {
    const std::lock_guard lock(Immortal<Plain>::instance().mutex);
    EXPECT_TRUE(read_config().has_value());
  });
  done = true;
  other.join();
}

TEST(Fork, WhoMustBeAtRestIsAskedOnceAndAChildsObjectsAreItsOwn) {
  Counted& mine = Immortal<Counted>::instance();
  mine.held = mine.released = 0;
  run_in_child([&] {
    EXPECT_EQ(mine.left, 1);
    EXPECT_EQ(Immortal<Counted>::instance().held, 0);
    run_in_child([&] {
      EXPECT_EQ(mine.held, 1) << "a grandparent's object is nobody's any more";
      EXPECT_EQ(mine.left, 1);
    });
    EXPECT_EQ(Immortal<Counted>::instance().held, 1);
  });
  EXPECT_EQ(mine.held, 1);
  EXPECT_EQ(mine.released, 1);
  EXPECT_EQ(mine.left, 0);
}

TEST(Fork, ThreadsThatMakeAnObjectAtOnceGetOne) {
  struct Fresh {};
  run_in_child([] {
    std::vector<std::thread> threads;
    std::atomic<Fresh*> first{nullptr};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        Fresh* const mine = &Immortal<Fresh>::instance();
        Fresh* none = nullptr;
        EXPECT_TRUE(first.compare_exchange_strong(none, mine) || none == mine);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
}

TEST(Fork, SeveralThreadsForkWhileOthersLog) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a child of fork may find the allocator of GCC 12's AddressSanitizer locked";
#endif
  std::atomic<bool> done{false};
  std::thread logger([&] {
    while (!done) {
      warn(fail(Code::kInvalidUsage, "busy"));
    }
  });
  std::vector<std::thread> forkers;
  for (int i = 0; i < 2; ++i) {
    forkers.emplace_back([] {
      for (int round = 0; round < 10; ++round) {
        run_in_child([] {
          warn(fail(Code::kInvalidUsage, "mine"));
          EXPECT_STREQ(last_error_text(), "mine");
        });
      }
    });
  }
  for (std::thread& forker : forkers) {
    forker.join();
  }
  done = true;
  logger.join();
}

}  // namespace
}  // namespace plexus
