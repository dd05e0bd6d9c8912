// Two engines in one process: interactive work by priorities, and batch work that gets half a CPU
// at most. They share locks as all threads do.
//
//   c++ -std=c++17 engines.cc $(pkg-config --cflags --libs raddle) -o engines && ./engines

#include "raddle.hpp"
#include <iostream>
#include <mutex>
#include <vector>

int main() {
    std::mutex lock;
    long sums[2] = {0, 0};
    raddle::engine interactive("priority", 1), batch("fair", 1, 50);
    std::vector<raddle::thread> threads;
    for (int i = 0; i < 10; i++) {
        auto add = [&lock, &sums, i](int which) {
            for (int j = i * 10; j < i * 10 + 10; j++) {
                std::lock_guard<std::mutex> guard(lock);
                sums[which] += j;
            }
        };
        threads.emplace_back(raddle::in(interactive, 1 + i), add, 0);
        threads.emplace_back(raddle::in(batch), add, 1);
    }
    for (auto &thread : threads) thread.join();
    interactive.wait();
    batch.wait();
    auto started = interactive.counters().started + batch.counters().started;
    std::cout << "sums " << sums[0] << ' ' << sums[1] << ", by " << started << " threads\n";
}
