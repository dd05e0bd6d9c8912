// Two fibers of Boost.Fiber hand a turn to each other: one mutex, one condition variable each.
#include "common.h"
#include <boost/fiber/all.hpp>
#include <mutex>

static boost::fibers::mutex mutex;
static boost::fibers::condition_variable changed[2];
static int turn;
static long rounds;

static void player(int me) {
  for (long i = 0; i < rounds; i++) {
    std::unique_lock<boost::fibers::mutex> lock(mutex);
    while (turn != me)
      changed[me].wait(lock);
    turn = !me;
    changed[!me].notify_one();
  }
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 1000000);
  uint64_t start = now_ns();
  boost::fibers::fiber first(player, 0), second(player, 1);
  first.join();
  second.join();
  metric("hand-off", (double)(now_ns() - start) / (2.0 * (double)rounds), "ns");
  return 0;
}
