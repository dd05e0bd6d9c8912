// An exception that leaves a callback ends the process: nothing unwinds through the library.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <raddle.h>

static void *throws(void *) { throw 5; }

int main() {
    raddle_thread thread;
    std::set_terminate([] { std::_Exit(3); });
    if (raddle_spawn(&thread, nullptr, throws, nullptr) == 0) raddle_join(thread, nullptr);
    std::puts("went on");
}
