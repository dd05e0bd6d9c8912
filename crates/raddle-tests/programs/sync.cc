// The standard library of C++ 20: threads, locks, latches, barriers, futures, atomic waiting.
#include "check.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <queue>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

template <typename Function> static void in_threads(int count, Function run)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++) {
        threads.emplace_back(run, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

CASE(threads_and_mutex)
{
    std::mutex mutex;
    long count = 0;
    in_threads(50, [&](int) {
        for (int i = 0; i < 2000; i++) {
            std::lock_guard guard(mutex);
            count++;
        }
    });
    IS(count, 100000);
}

CASE(scoped_lock_of_several_does_not_deadlock)
{
    std::mutex a, b, c;
    int count = 0;
    in_threads(12, [&](int me) {
        for (int i = 0; i < 500; i++) {
            if (me % 2) {
                std::scoped_lock guard(a, b, c);
                count++;
            } else {
                std::scoped_lock guard(c, b, a);
                count++;
            }
        }
    });
    IS(count, 6000);
}

CASE(timed_mutex_times_out)
{
    std::timed_mutex mutex;
    std::unique_lock guard(mutex);
    in_threads(4, [&](int) {
        auto started_ns = now_ns();
        CHECK(!mutex.try_lock_for(40ms));
        check_took(started_ns, 40);
    });
}

CASE(condition_variable_queue)
{
    std::mutex mutex;
    std::condition_variable ready;
    std::queue<int> queue;
    std::atomic<long> sum = 0;
    std::vector<std::jthread> consumers;
    for (int i = 0; i < 8; i++) {
        consumers.emplace_back([&] {
            for (;;) {
                std::unique_lock guard(mutex);
                ready.wait(guard, [&] { return !queue.empty(); });
                int item = queue.front();
                queue.pop();
                if (item < 0) {
                    return;
                }
                sum += item;
            }
        });
    }
    in_threads(4, [&](int) {
        for (int i = 1; i <= 2000; i++) {
            std::lock_guard guard(mutex);
            queue.push(i);
            ready.notify_one();
        }
    });
    for (int i = 0; i < 8; i++) {
        std::lock_guard guard(mutex);
        queue.push(-1);
        ready.notify_one();
    }
    consumers.clear();
    IS(sum, 4L * 2000 * 2001 / 2);
}

CASE(condition_variable_wait_for_times_out)
{
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock guard(mutex);
    auto started_ns = now_ns();
    CHECK(!never.wait_for(guard, 50ms, [] { return false; }));
    check_took(started_ns, 50);
}

CASE(shared_mutex_shares_and_excludes)
{
    std::shared_mutex mutex;
    long a = 0, b = 0;
    in_threads(16, [&](int me) {
        for (int i = 0; i < 300; i++) {
            if ((i + me) % 5 == 0) {
                std::unique_lock guard(mutex);
                a++;
                std::this_thread::yield();
                b++;
            } else {
                std::shared_lock guard(mutex);
                IS(a, b);
            }
        }
    });
    IS(a, 960);
}

CASE(latch_and_barrier)
{
    std::latch started(20), finished(20);
    int phases = 0;
    std::barrier barrier(20, [&]() noexcept { phases++; });
    in_threads(20, [&](int) {
        started.arrive_and_wait();
        for (int i = 0; i < 50; i++) {
            barrier.arrive_and_wait();
            IS(phases, 2 * i + 1);
            barrier.arrive_and_wait();
        }
        finished.count_down();
    });
    finished.wait();
    IS(phases, 100);
}

CASE(counting_semaphore)
{
    std::counting_semaphore<3> slots(3);
    std::atomic<int> inside = 0, most = 0;
    in_threads(20, [&](int) {
        for (int i = 0; i < 50; i++) {
            // acquire() may wait for ever: libstdc++'s release() wakes none if there was a slot.
            while (!slots.try_acquire_for(100ms)) {
            }
            int now = ++inside;
            CHECK(now <= 3);
            int seen = most;
            while (seen < now && !most.compare_exchange_weak(seen, now)) {
            }
            std::this_thread::yield();
            inside--;
            slots.release();
        }
    });
    CHECK(!std::binary_semaphore(0).try_acquire_for(10ms));
}

CASE(atomic_wait_and_notify)
{
    std::atomic<int> turn = 0;
    in_threads(4, [&](int me) {
        for (int i = 0; i < 2000; i++) {
            for (int seen; (seen = turn) % 4 != me;) {
                turn.wait(seen);
            }
            turn++;
            turn.notify_all();
        }
    });
    IS(turn, 8000);
}

CASE(jthread_stops_on_request)
{
    std::mutex mutex;
    std::condition_variable_any changed;
    std::atomic<int> stopped = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 20; i++) {
            threads.emplace_back([&](std::stop_token token) {
                std::unique_lock guard(mutex);
                changed.wait(guard, token, [] { return false; });
                CHECK(token.stop_requested());
                stopped++;
            });
        }
        let_others_block();
        IS(stopped, 0);
    }
    IS(stopped, 20);
}

CASE(futures_promises_and_async)
{
    std::promise<std::string> promise;
    auto text = promise.get_future();
    CHECK(text.wait_for(10ms) == std::future_status::timeout);
    std::thread sender([&] { promise.set_value("sent"); });
    CHECK(text.get() == "sent");
    sender.join();
    std::vector<std::future<int>> results;
    for (int i = 0; i < 50; i++) {
        results.push_back(std::async(std::launch::async, [i] {
            std::this_thread::sleep_for(2ms);
            return i;
        }));
    }
    int sum = 0;
    for (auto &result : results) {
        sum += result.get();
    }
    IS(sum, 1225);
}

CASE(a_future_carries_an_exception)
{
    auto result = std::async(std::launch::async, []() -> int {
        std::this_thread::yield();
        throw std::runtime_error("carried");
    });
    bool caught = false;
    try {
        result.get();
    } catch (const std::runtime_error &error) {
        caught = std::string(error.what()) == "carried";
    }
    CHECK(caught);
}

CASE(call_once_retries_after_an_exception)
{
    std::once_flag flag;
    std::atomic<int> tries = 0, failures = 0;
    in_threads(20, [&](int) {
        try {
            std::call_once(flag, [&] {
                std::this_thread::sleep_for(1ms);
                if (++tries < 5) {
                    throw 1;
                }
            });
        } catch (int) {
            failures++;
        }
    });
    IS(tries, 5);
    IS(failures, 4);
}

struct Counted {
    static inline std::atomic<int> alive = 0, made = 0;
    Counted() { alive++, made++; }
    ~Counted() { alive--; }
};

static thread_local Counted counted;

CASE(thread_local_objects_are_destroyed)
{
    in_threads(100, [](int) {
        for (int i = 0; i < 10; i++) {
            asm volatile("" : : "r"(&counted) : "memory");
            std::this_thread::yield();
        }
        CHECK(Counted::alive >= 1);
    });
    IS(Counted::alive, 0);
    IS(Counted::made, 100);
}

CASE(static_initialisation_happens_once)
{
    static std::atomic<int> initialised = 0;
    struct Slow {
        Slow()
        {
            std::this_thread::sleep_for(30ms);
            initialised++;
        }
    };
    in_threads(20, [](int) {
        static Slow slow;
        asm volatile("" : : "r"(&slow) : "memory");
        IS(initialised, 1);
    });
}

CASE(threads_sleep_until)
{
    auto limit = std::chrono::steady_clock::now() + 50ms;
    in_threads(10, [&](int) {
        std::this_thread::sleep_until(limit);
        CHECK(std::chrono::steady_clock::now() >= limit);
    });
}

CASE(thread_ids_differ)
{
    auto main_id = std::this_thread::get_id();
    in_threads(10, [&](int) { CHECK(std::this_thread::get_id() != main_id); });
    CHECK(std::this_thread::get_id() == main_id);
}
