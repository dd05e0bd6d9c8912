"""Python functions on green threads, by ctypes; their results come back by completions.

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


def load():
    """The library, with the types of what is used here."""
    raddle = ctypes.CDLL(os.environ.get("RADDLE_LIBRARY", "libraddle.so.0"))
    pointer = ctypes.POINTER
    raddle.raddle_run.argtypes = [
        pointer(Completion),
        ctypes.c_void_p,
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
    return raddle


RADDLE = load()


def check(result):
    """Errors are negative errno values."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class Future:
    """What a function on a green thread of its own will have returned."""

    def __init__(self, function, *arguments):
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
        check(RADDLE.raddle_run(self._completion, None, self._callback, None))

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
    print("sum of squares:", total)


if __name__ == "__main__":
    main()
