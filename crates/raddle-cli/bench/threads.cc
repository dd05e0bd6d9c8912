// The cost of Boost.Fiber's fibers: the shapes of the example api_bench, on one thread.
#include "common.h"
#include <boost/fiber/all.hpp>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fibers = boost::fibers;
using gate = fibers::promise<void>;

static const long waiting = 10000, frames = 10000;

static void per_round(const char *name, uint64_t start, long rounds) {
  metric(name, (double)(now_ns() - start) / (double)rounds, "ns");
}

// A fiber with a stack as large as a light thread's, or as large as a deep one needs.
template <typename Work> static fibers::fiber start_with(size_t stack, Work &&work) {
  return fibers::fiber(std::allocator_arg, fibers::fixedsize_stack(stack),
                       std::forward<Work>(work));
}

static const size_t usual = 64 << 10, large = 4 << 20;

template <typename Work>
static void create(const char *name, size_t stack, long count, Work work) {
  std::vector<gate> gates(count);
  std::vector<fibers::fiber> all;
  long reached = 0;
  uint64_t start = now_ns();
  for (gate &mine : gates)
    all.push_back(start_with(stack, [&reached, &mine, work] {
      work();
      reached++;
      mine.get_future().get();
    }));
  while (reached < count)
    boost::this_fiber::yield();
  per_round(name, start, count);
  for (gate &each : gates)
    each.set_value();
  for (fibers::fiber &each : all)
    each.join();
}

static void link(long left, gate &end) {
  if (left == 0)
    end.set_value();
  else
    start_with(usual, [left, &end] { link(left - 1, end); }).detach();
}

static void resume(long rounds) {
  std::optional<gate> slot;
  fibers::fiber waits = start_with(usual, [&] {
    for (long i = 0; i < rounds; i++) {
      gate mine;
      fibers::future<void> set = mine.get_future();
      slot = std::move(mine);
      set.get();
    }
  });
  fibers::fiber sets = start_with(usual, [&] {
    for (long i = 0; i < rounds; i++) {
      while (!slot)
        boost::this_fiber::yield();
      gate found = std::move(*slot);
      slot.reset();
      found.set_value();
    }
  });
  waits.join();
  sets.join();
}

static void hand_over(long rounds) {
  fibers::mutex mutex;
  fibers::condition_variable changed;
  int turn = 0;
  auto player = [&](int me) {
    for (long i = 0; i < rounds; i++) {
      std::unique_lock<fibers::mutex> lock(mutex);
      while (turn != me)
        changed.wait(lock);
      turn = !me;
      changed.notify_one();
    }
  };
  fibers::fiber first = start_with(usual, [&] { player(0); });
  fibers::fiber second = start_with(usual, [&] { player(1); });
  first.join();
  second.join();
}

__attribute__((noinline)) static long wait_at(long depth) {
  if (depth == 0) {
    start_with(usual, [] {}).join();
    return 0;
  }
  volatile long below = wait_at(depth - 1);
  return below + 1;
}

__attribute__((noinline)) static long deep(long left) {
  volatile long room[16];
  room[left % 16] = left;
  if (left == 0)
    return room[0];
  return deep(left - 1) + room[left % 16];
}

int main(int argc, char **argv) {
  long rounds = rounds_of(argc, argv, 200000);
  uint64_t start = now_ns();
  for (long i = 0; i < rounds; i++)
    start_with(usual, [] {}).join();
  per_round("create+join", start, rounds);
  create("create", usual, waiting, [] {});
  gate end;
  start = now_ns();
  link(rounds, end);
  end.get_future().get();
  per_round("reuse", start, rounds);
  auto yields = [rounds] {
    for (long i = 0; i < rounds; i++)
      boost::this_fiber::yield();
  };
  start = now_ns();
  fibers::fiber one = start_with(usual, yields), other = start_with(usual, yields);
  one.join();
  other.join();
  per_round("yield", start, 2 * rounds);
  start = now_ns();
  resume(rounds);
  per_round("resume", start, rounds);
  for (long depth : {1, 4, 16, 64}) {
    start = now_ns();
    for (long i = 0; i < rounds / 10 + 1; i++)
      wait_at(depth);
    per_round(("wait-" + std::to_string(depth)).c_str(), start, rounds / 10 + 1);
  }
  create("deep-create", large, 50, [] { deep(frames); });
  start = now_ns();
  for (long i = 0; i < 100; i++)
    start_with(large, [] { deep(frames); }).join();
  per_round("deep-reuse", start, 100);
  start = now_ns();
  hand_over(rounds);
  per_round("hand-over", start, 2 * rounds);
  return 0;
}
