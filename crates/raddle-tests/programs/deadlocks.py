"""Deadlocks of Python's locks, by the first argument. Prints "ready" before the last wait."""

import sys
import threading

lock_a = threading.Lock()
lock_b = threading.Lock()
both = threading.Barrier(2)


def take_two(own, other):
    with own:
        both.wait()
        with other:
            pass


def cycle():
    first = threading.Thread(target=take_two, args=(lock_a, lock_b), name="first")
    second = threading.Thread(target=take_two, args=(lock_b, lock_a), name="second")
    first.start()
    second.start()
    print("ready", flush=True)
    first.join()


def until_interrupted():
    """In good health: it waits for Ctrl-C."""
    ends = threading.Event()
    threading.Thread(target=ends.wait).start()
    print("ready", flush=True)
    try:
        threading.Event().wait()
    finally:
        ends.set()


{"cycle": cycle, "until_interrupted": until_interrupted}[sys.argv[1]]()
