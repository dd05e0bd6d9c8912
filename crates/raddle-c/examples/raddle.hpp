// A C++17 wrapper for raddle.h, in the shape of <thread>: to be copied and changed.
#pragma once

#include <exception>
#include <memory>
#include <raddle.h>
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

// As std::thread: it must be joined or detached before it is destroyed, and an exception that
// leaves its function ends the program.
class thread {
public:
    thread() noexcept = default;

    template <class F, class... Arguments,
              class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, thread>>>
    explicit thread(F &&function, Arguments &&...arguments)
        : thread(kind::green, std::forward<F>(function), std::forward<Arguments>(arguments)...) {}

    template <class F, class... Arguments>
    thread(kind which, F &&function, Arguments &&...arguments) {
        using call = std::tuple<std::decay_t<F>, std::decay_t<Arguments>...>;
        auto owned = std::make_unique<call>(std::forward<F>(function),
                                            std::forward<Arguments>(arguments)...);
        raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
        options.flags = static_cast<uint32_t>(which);
        check(raddle_spawn(&handle_, &options, run<call>, owned.get()), "raddle::thread");
        owned.release(); // it is the thread's now
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

    void join() {
        check(raddle_join(handle_, nullptr), "raddle::thread::join");
        handle_ = {0};
    }

    void detach() {
        check(raddle_detach(handle_), "raddle::thread::detach");
        handle_ = {0};
    }

private:
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
