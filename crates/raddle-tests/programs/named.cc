// Threads of C++ that sort, look up, call through std::function and wait, for the seconds of the
// first argument: code that compilers inline into other code.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
Clock::time_point end;
std::atomic<std::uint64_t> sink;
std::mutex lock;
std::condition_variable turned;
std::uint64_t turn;

bool is_over() { return Clock::now() >= end; }

template <typename Compare> std::uint64_t sorted(std::size_t count, Compare compare)
{
    std::vector<std::string> words(count);
    for (std::size_t i = 0; i < count; i++)
        words[i] = std::to_string(i * 2654435761u);
    std::sort(words.begin(), words.end(), compare);
    return words.front().size();
}

void sorts()
{
    while (!is_over())
        sink += sorted(2000, [](const auto &a, const auto &b) { return a > b; });
}

void looks_up()
{
    std::map<std::string, int> counts;
    const std::function<int(int)> next = [&](int i) { return ++counts[std::to_string(i % 500)]; };
    while (!is_over())
        for (int i = 0; i < 1000; i++)
            sink += next(i);
}

void waits(std::uint64_t me)
{
    std::unique_lock<std::mutex> guard(lock);
    while (!is_over()) {
        turned.wait_for(guard, std::chrono::milliseconds(20), [=] { return turn % 2 == me; });
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        turn++;
        turned.notify_all();
    }
}

} // namespace

int main(int count, char **arguments)
{
    const double seconds = count > 1 ? std::atof(arguments[1]) : 2;
    end = Clock::now() + std::chrono::microseconds(std::int64_t(seconds * 1e6));
    std::vector<std::thread> threads;
    threads.emplace_back(sorts);
    threads.emplace_back(looks_up);
    for (std::uint64_t me = 0; me < 2; me++)
        threads.emplace_back(waits, me);
    for (auto &thread : threads)
        thread.join();
    return 0;
}
