// Threads that wait while an exception is on its way: in a destructor, in a catch block, and below
// inlined functions. Prints "ready" once all have begun.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <sys/prctl.h>
#include <thread>
#include <vector>

static std::latch begun(5);
static volatile bool stop = false; // else the compiler knows that nothing is ever caught
static std::mutex lock;
static std::condition_variable never;

[[gnu::noinline]] static void wait_forever(const char *name)
{
    prctl(PR_SET_NAME, name);
    begun.count_down();
    std::unique_lock guard(lock);
    never.wait(guard, [] { return stop; });
}

struct Waits {
    const char *name;
    [[gnu::noinline]] ~Waits() { wait_forever(name); }
};

[[gnu::noinline]] static void throw_it(int value)
{
    if (value > 0) {
        throw std::runtime_error("on its way");
    }
}

[[gnu::noinline]] static void unwind_through(int value)
{
    Waits waits{"destructor"};
    throw_it(value);
}

[[gnu::noinline]] static void catch_and_wait(int value)
{
    try {
        throw_it(value);
    } catch (const std::exception &error) {
        wait_forever("catch");
    }
}

template <typename Call>
[[gnu::always_inline]] static inline void call_inlined(Call call)
{
    call();
    begun.wait();
}

[[gnu::noinline]] static void wait_inlined()
{
    call_inlined([] { wait_forever("inlined"); });
}

int main()
{
    std::vector<std::jthread> threads;
    threads.emplace_back([] {
        try {
            unwind_through(1);
        } catch (...) {
        }
    });
    threads.emplace_back(catch_and_wait, 1);
    threads.emplace_back(wait_inlined);
    begun.count_down(2);
    begun.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::puts("ready");
    std::fflush(stdout);
    wait_forever("main");
}
