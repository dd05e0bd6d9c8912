// Green and light threads in the shape of std::thread, with std::mutex and a completion.
//
//   c++ -std=c++17 threads.cc $(pkg-config --cflags --libs raddle) -o threads && ./threads
#include "raddle.hpp"

#include <iostream>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

int main() {
    constexpr int count = 100;
    std::mutex lock; // std's own: it parks green threads
    std::vector<int> numbers;
    raddle::completion<const std::string> greeting;

    std::vector<raddle::thread> threads;
    for (int i = 0; i < count; i++) {
        const auto kind = i % 2 ? raddle::kind::light : raddle::kind::green;
        threads.emplace_back(kind, [&, i] {
            greeting.wait();
            const std::lock_guard<std::mutex> guard(lock);
            numbers.push_back(i);
        });
    }
    const std::string text = "go";
    greeting.set(text);
    for (auto &thread : threads) thread.join();

    bool asked = false;
    raddle::thread sleeper([&] {
        raddle_park(); // until another thread has something to do for it
        asked = true;
    });
    sleeper.unpark();
    sleeper.join();

    const int sum = std::accumulate(numbers.begin(), numbers.end(), 0);
    std::cout << "sum " << sum << ", from " << numbers.size() << " threads"
              << (asked ? ", and one that was woken\n" : "\n");
}
