// A C++17 wrapper for raddle.h, in the shape of <thread>: to be copied and changed.
#pragma once

#include <exception>
#include <memory>
#include <raddle_engine.h>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace raddle {

inline int check(int result, const char *what) {
    if (result < 0) throw std::system_error(-result, std::generic_category(), what);
    return result;
}

enum class kind : uint32_t { green = 0, light = RADDLE_LIGHT };

// Carriers with a policy ("fair", "priority", ...) and a share of the CPUs in percent of one; 0 for
// as many carriers, or as much CPU time, as there is. A destroyed engine goes on until its last
// thread has ended.
class engine {
public:
    explicit engine(const std::string &policy, uint32_t carriers = 0, uint32_t cpu_share = 0) {
        raddle_engine_options options = RADDLE_ENGINE_OPTIONS_INIT;
        options.policy = policy.c_str();
        options.carriers = carriers;
        options.cpu_share = cpu_share;
        check(raddle_engine_create(&handle_, &options), "raddle::engine");
    }

    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;
    ~engine() { raddle_engine_free(handle_); }

    void wait() const { check(raddle_engine_wait(handle_, -1), "raddle::engine::wait"); }

    raddle_engine_counters counters() const {
        raddle_engine_counters counters = RADDLE_ENGINE_COUNTERS_INIT;
        check(raddle_engine_count(handle_, &counters), "raddle::engine::counters");
        return counters;
    }

    raddle_engine handle() const noexcept { return handle_; }

private:
    raddle_engine handle_ = {0};
};

// Options of a thread; as raddle_thread_options.
inline raddle_thread_options in(const engine &engine, uint32_t priority = 0) {
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    options.engine = engine.handle();
    options.priority = priority;
    return options;
}

// As std::thread: it must be joined or detached before it is destroyed, and an exception that
// leaves its function ends the program.
class thread {
public:
    thread() noexcept = default;

    template <class F, class... Arguments,
              class = std::enable_if_t<
                  std::is_invocable_v<std::decay_t<F>, std::decay_t<Arguments>...>>>
    explicit thread(F &&function, Arguments &&...arguments)
        : thread(kind::green, std::forward<F>(function), std::forward<Arguments>(arguments)...) {}

    template <class F, class... Arguments>
    thread(kind which, F &&function, Arguments &&...arguments)
        : thread(of(which), std::forward<F>(function), std::forward<Arguments>(arguments)...) {}

    template <class F, class... Arguments>
    thread(raddle_thread_options options, F &&function, Arguments &&...arguments) {
        using call = std::tuple<std::decay_t<F>, std::decay_t<Arguments>...>;
        auto owned = std::make_unique<call>(std::forward<F>(function),
                                            std::forward<Arguments>(arguments)...);
        check(raddle_spawn(&handle_, &options, run<call>, owned.get()), "raddle::thread");
        owned.release(); // the thread owns it now
    }

    thread(thread &&other) noexcept : handle_(std::exchange(other.handle_, {0})) {}

    thread &operator=(thread &&other) noexcept {
        if (joinable()) std::terminate();
        handle_ = std::exchange(other.handle_, {0});
        return *this;
    }

    ~thread() {
        if (joinable()) std::terminate();
    }

    bool joinable() const noexcept { return handle_.id != 0; }

    // Lets the thread go on from raddle_park(), now or at its next call.
    void unpark() { check(raddle_unpark(handle_), "raddle::thread::unpark"); }

    raddle_thread native_handle() const noexcept { return handle_; }

    void join() {
        check(raddle_join(handle_, nullptr), "raddle::thread::join");
        handle_ = {0};
    }

    void detach() {
        check(raddle_detach(handle_), "raddle::thread::detach");
        handle_ = {0};
    }

private:
    static raddle_thread_options of(kind which) {
        raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
        options.flags = static_cast<uint32_t>(which);
        return options;
    }

    template <class Call> static void *run(void *argument) noexcept {
        std::unique_ptr<Call> call(static_cast<Call *>(argument));
        std::apply([](auto &function, auto &...rest) { function(std::move(rest)...); }, *call);
        return nullptr;
    }

    raddle_thread handle_ = {0};
};

// A value that is set once and waited for by any number of threads. The value must outlive it.
template <class T> class completion {
public:
    completion() { check(raddle_completion_create(&handle_), "raddle::completion"); }
    completion(const completion &) = delete;
    completion &operator=(const completion &) = delete;
    ~completion() { raddle_completion_free(handle_); }

    void set(T &value) {
        void *address = const_cast<std::remove_const_t<T> *>(&value);
        check(raddle_completion_set(handle_, address), "raddle::completion::set");
    }

    T &wait() {
        void *value = nullptr;
        check(raddle_completion_wait(handle_, &value), "raddle::completion::wait");
        return *static_cast<T *>(value);
    }

private:
    raddle_completion handle_ = {0};
};

} // namespace raddle
