// Unwinding through threads: destructors on exit and cancellation, exceptions over waits.
#include "check.h"

#include <atomic>
#include <cxxabi.h>
#include <exception>
#include <execinfo.h>
#include <future>
#include <mutex>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <thread>
#include <vector>

static std::atomic<int> destroyed;

struct Guard {
    ~Guard() { destroyed++; }
};

static int ends[2];

__attribute__((noinline)) static void wait_below(int depth)
{
    Guard guard;
    if (depth > 0) {
        wait_below(depth - 1);
    } else {
        char byte;
        (void)!read(ends[0], &byte, 1);
    }
    asm volatile("");
}

static void *wait_in_frames(void *)
{
    wait_below(9);
    return nullptr;
}

CASE(cancelling_a_read_runs_destructors_of_every_frame)
{
    GET(pipe(ends));
    for (int i = 0; i < 10; i++) {
        destroyed = 0;
        pthread_t thread = start(wait_in_frames, nullptr);
        sleep_ms(i % 3 * 10);
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED);
        CHECK(destroyed == 10 || (i % 3 == 0 && destroyed <= 10));
    }
}

static void *sleep_in_frame(void *)
{
    Guard guard;
    sleep(1000);
    return nullptr;
}

CASE(cancelling_a_sleep_runs_destructors)
{
    pthread_t thread = start(sleep_in_frame, nullptr);
    sleep_ms(50);
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
    IS(destroyed, 1);
}

__attribute__((noinline)) static void exit_below(int depth)
{
    Guard guard;
    if (depth == 0) {
        pthread_exit(number(21));
    }
    if (depth > 0) {
        exit_below(depth - 1);
    }
    asm volatile("");
}

CASE(pthread_exit_runs_destructors)
{
    IS(join(start(
           [](void *) -> void * {
               exit_below(9);
               return nullptr;
           },
           nullptr)),
       21);
    IS(destroyed, 10);
}

static void *rethrow_cancellation(void *)
{
    try {
        sleep(1000);
    } catch (abi::__forced_unwind &) {
        destroyed++;
        throw;
    }
    return nullptr;
}

CASE(a_cancellation_is_caught_and_rethrown)
{
    pthread_t thread = start(rethrow_cancellation, nullptr);
    sleep_ms(30);
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
    IS(destroyed, 1);
}

__attribute__((noinline)) static void throw_below(int depth, int value)
{
    Guard guard;
    if (depth == 0) {
        sched_yield();
        throw std::runtime_error(std::to_string(value));
    }
    throw_below(depth - 1, value);
    asm volatile("");
}

static void throw_often(int me)
{
    for (int i = 0; i < 200; i++) {
        int value = me * 1000 + i;
        try {
            throw_below(10, value);
            CHECK(!"reached");
        } catch (const std::exception &error) {
            sched_yield();
            IS(std::stoi(error.what()), value);
        }
    }
}

CASE(exceptions_in_32_threads)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 32; i++) {
        threads.emplace_back(throw_often, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    IS(destroyed, 32 * 200 * 11);
}

// The exceptions a thread is handling are its own, also while it waits in the handler.
static void wait_in_handler(int me)
{
    try {
        throw me;
    } catch (int) {
        for (int i = 0; i < 20; i++) {
            usleep(200);
            sched_yield();
            CHECK(std::uncaught_exceptions() == 0);
            try {
                std::rethrow_exception(std::current_exception());
            } catch (int again) {
                IS(again, me);
            }
        }
    }
    CHECK(!std::current_exception());
}

CASE(exceptions_being_handled_belong_to_their_thread)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 32; i++) {
        threads.emplace_back(wait_in_handler, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

static int frames;

__attribute__((noinline)) static void *count_frames(void *)
{
    void *addresses[64];
    sched_yield();
    frames = backtrace(addresses, 64);
    char **names = backtrace_symbols(addresses, frames);
    CHECK(names != nullptr);
    free(names);
    return nullptr;
}

CASE(backtrace_ends_in_main_and_in_threads)
{
    count_frames(nullptr);
    CHECK(frames >= 3 && frames < 30);
    for (int i = 0; i < 10; i++) {
        join(start(count_frames, nullptr));
        CHECK(frames >= 2 && frames < 30);
    }
}

static void frames_in_handler(int)
{
    void *addresses[64];
    frames = backtrace(addresses, 64);
}

static void *sleep_once(void *)
{
    struct timespec time = {10, 0};
    nanosleep(&time, nullptr);
    return nullptr;
}

CASE(backtrace_from_a_handler_passes_the_interrupted_wait)
{
    void *warm_up[4];
    backtrace(warm_up, 4);
    struct sigaction action = {};
    action.sa_handler = frames_in_handler;
    sigaction(SIGUSR1, &action, nullptr);
    pthread_t thread = start(sleep_once, nullptr);
    void *value;
    do {
        sleep_ms(20);
        pthread_kill(thread, SIGUSR1);
    } while (pthread_tryjoin_np(thread, &value) == EBUSY);
    CHECK(frames >= 4 && frames < 40);
}

CASE(an_exception_that_nobody_catches_aborts)
{
    std::set_terminate([] {
        say_ok();
        abort();
    });
    std::thread([] { throw 1; }).join();
}

static int thrower(const void *, const void *)
{
    Guard guard;
    sched_yield();
    throw std::runtime_error("in a comparator");
}

static void throw_through_libc(int)
{
    for (int i = 0; i < 50; i++) {
        int numbers[4] = {3, 1, 2, 4};
        try {
            qsort(numbers, 4, sizeof numbers[0], thrower);
            CHECK(!"reached");
        } catch (const std::runtime_error &) {
            sched_yield();
        }
    }
}

CASE(exceptions_pass_callbacks_of_libc)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back(throw_through_libc, i);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    IS(destroyed, 8 * 50);
}

static std::atomic<int> attempts;

static void fail_twice()
{
    usleep(1000);
    if (attempts++ < 2) {
        throw attempts.load();
    }
}

CASE(a_call_once_that_throws_is_tried_by_the_next)
{
    static std::once_flag once;
    static std::atomic<int> caught, done;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([] {
            try {
                std::call_once(once, fail_twice);
                done++;
            } catch (int) {
                caught++;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    IS(attempts, 3);
    IS(caught, 2);
    IS(done, 6);
}

static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

CASE(a_pthread_once_that_throws_is_tried_by_the_next)
{
    static std::atomic<int> caught;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([] {
            try {
                pthread_once(&plain_once, fail_twice);
            } catch (int) {
                caught++;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    IS(attempts, 3);
    IS(caught, 2);
}

CASE(an_exception_of_a_thread_reaches_who_asks_for_its_result)
{
    std::vector<std::future<int>> results;
    for (int i = 0; i < 20; i++) {
        results.push_back(std::async(std::launch::async, [i]() -> int {
            usleep(500);
            throw_below(5, i);
            return 0;
        }));
    }
    for (int i = 0; i < 20; i++) {
        try {
            results[i].get();
            CHECK(!"reached");
        } catch (const std::exception &error) {
            IS(std::stoi(error.what()), i);
        }
    }
}

// A clean-up that waits, and uses exceptions of its own, while a cancellation unwinds.
struct WaitsAndCatches {
    ~WaitsAndCatches()
    {
        try {
            usleep(1000);
            throw 1;
        } catch (int) {
            sched_yield();
            destroyed++;
        }
    }
};

CASE(a_cancellation_unwinds_through_waits_and_exceptions)
{
    GET(pipe(ends));
    pthread_t threads[20];
    for (pthread_t &thread : threads) {
        thread = start(
            [](void *) -> void * {
                WaitsAndCatches outer;
                wait_below(3);
                return nullptr;
            },
            nullptr);
    }
    sleep_ms(30);
    for (pthread_t thread : threads) {
        OK(pthread_cancel(thread));
    }
    for (pthread_t thread : threads) {
        CHECK(join(thread) == PTHREAD_CANCELED);
    }
    IS(destroyed, 20 * 5);
}

static std::atomic<long> traces, whole;
static __thread uintptr_t first_frame;

static void trace_in_handler(int)
{
    void *addresses[64];
    int count = backtrace(addresses, 64);
    traces++;
    for (int i = 0; i < count; i++) {
        whole += (uintptr_t)addresses[i] - first_frame < 4096;
    }
}

__attribute__((noinline)) static void *call_often(void *)
{
    first_frame = (uintptr_t)call_often;
    sigset_t profile;
    sigemptyset(&profile);
    sigaddset(&profile, SIGPROF);
    pthread_sigmask(SIG_UNBLOCK, &profile, nullptr);
    char byte = 0;
    /* Fewer traces where each yield to the kernel waits for others: the process hardly runs. */
    int64_t limit_ns = now_ns() + 15 * SECOND;
    while (traces < 300 && now_ns() < limit_ns) {
        (void)!write(ends[1], &byte, 1);
        (void)!read(ends[0], &byte, 1);
        sched_yield();
    }
    pthread_sigmask(SIG_BLOCK, &profile, nullptr);
    return nullptr;
}

CASE(backtraces_at_any_moment_reach_the_first_frame)
{
    void *warm_up[4];
    backtrace(warm_up, 4);
    GET(pipe(ends));
    struct sigaction action = {};
    action.sa_handler = trace_in_handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    sigset_t profile;
    sigemptyset(&profile);
    sigaddset(&profile, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &profile, nullptr);
    pthread_t threads[4];
    for (pthread_t &thread : threads) {
        thread = start(call_often, nullptr);
    }
    struct itimerval often = {{0, 1000}, {0, 1000}};
    GET(setitimer(ITIMER_PROF, &often, nullptr));
    for (pthread_t thread : threads) {
        join(thread);
    }
    CHECK(whole >= traces);
}
