"""Python functions on green threads, by ctypes; their results come back by completions. Some run
on an engine of their own: one carrier, a policy, and half a CPU.

    python3 callbacks.py

RADDLE_LIBRARY names the library where ld.so doesn't find it. Load it before the first thread is
made: threads are kernel threads otherwise, and raddle_status() says so.
"""

import ctypes
import os

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Completion(ctypes.Structure):
    """raddle_completion: a handle."""

    _fields_ = [("id", ctypes.c_uint64)]


class Engine(ctypes.Structure):
    """raddle_engine: a handle."""

    _fields_ = [("id", ctypes.c_uint64)]


class EngineOptions(ctypes.Structure):
    """raddle_engine_options; all zero but the size asks for nothing."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("policy", ctypes.c_char_p),
        ("policy_table", ctypes.c_void_p),
        ("carriers", ctypes.c_uint32),
        ("cpu_share", ctypes.c_uint32),
    ]


class ThreadOptions(ctypes.Structure):
    """raddle_thread_options; likewise."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("stack_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("flags", ctypes.c_uint32),
        ("nice", ctypes.c_int32),
        ("engine", Engine),
        ("deadline_ns", ctypes.c_uint64),
        ("priority", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


def load():
    """The library, with the types of what is used here."""
    raddle = ctypes.CDLL(os.environ.get("RADDLE_LIBRARY", "libraddle.so.0"))
    pointer = ctypes.POINTER
    raddle.raddle_run.argtypes = [
        pointer(Completion),
        pointer(ThreadOptions),
        FUNCTION,
        ctypes.c_void_p,
    ]
    raddle.raddle_completion_wait.argtypes = [Completion, pointer(ctypes.c_void_p)]
    raddle.raddle_completion_wait_for.argtypes = [
        Completion,
        ctypes.c_int64,
        pointer(ctypes.c_void_p),
    ]
    raddle.raddle_completion_free.argtypes = [Completion]
    raddle.raddle_engine_create.argtypes = [pointer(Engine), pointer(EngineOptions)]
    raddle.raddle_engine_wait.argtypes = [Engine, ctypes.c_int64]
    raddle.raddle_engine_free.argtypes = [Engine]
    return raddle


RADDLE = load()


def check(result):
    """Errors are negative errno values."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Future:
    """What a function on a green thread of its own will have returned."""

    def __init__(self, function, *arguments, engine=None, priority=0):
        self._result = None
        self._error = None

        def run(_):
            try:
                self._result = function(*arguments)
            except BaseException as error:  # nothing may leave a callback
                self._error = error
            return None

        self._callback = FUNCTION(run)  # kept as long as the thread may call it
        self._completion = Completion()
        options = ThreadOptions(ctypes.sizeof(ThreadOptions), priority=priority)
        if engine is not None:
            options.engine = engine
        check(RADDLE.raddle_run(self._completion, options, self._callback, None))

    def result(self, timeout=None):
        """Waits; without the interpreter's lock, as ctypes calls do."""
        if timeout is None:
            check(RADDLE.raddle_completion_wait(self._completion, None))
        else:
            nanoseconds = int(timeout * 1e9)
            check(RADDLE.raddle_completion_wait_for(self._completion, nanoseconds, None))
        if self._error is not None:
            raise self._error
        return self._result

    def free(self):
        """To be called after the result was waited for."""
        check(RADDLE.raddle_completion_free(self._completion))


def square(number):
    return number * number


def cubes_on_an_engine():
    """The most important first, whenever the engine's carrier is free."""
    size = ctypes.sizeof(EngineOptions)
    engine = Engine()
    options = EngineOptions(size, b"cubes", b"priority", carriers=1, cpu_share=50)
    if RADDLE.raddle_status() != 1:  # there are no engines
        return sum(number**3 for number in range(10))
    check(RADDLE.raddle_engine_create(engine, options))
    futures = [
        Future(lambda number: number**3, number, engine=engine, priority=number + 1)
        for number in range(10)
    ]
    total = sum(future.result(timeout=10) for future in futures)
    check(RADDLE.raddle_engine_wait(engine, -1))
    for future in futures:
        future.free()
    check(RADDLE.raddle_engine_free(engine))
    return total


def main():
    status = RADDLE.raddle_status()
    print("green threads" if status == 1 else f"kernel threads ({status})")
    futures = [Future(square, number) for number in range(10)]
    total = sum(future.result(timeout=10) for future in futures)
    failing = Future(square, None)
    try:
        failing.result()
    except TypeError:
        print("an exception goes to who waits")
    for future in [*futures, failing]:
        future.free()
    print(f"sum of squares: {total}, of cubes: {cubes_on_an_engine()}")


if __name__ == "__main__":
    main()
