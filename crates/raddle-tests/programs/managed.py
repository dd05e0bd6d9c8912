"""Threads that wait below known functions: by a call, a call through C, a generator, a method.

With a number, so many threads wait beside them. Prints "ready" at last.
"""

import functools
import sys
import threading
import time

LOCK = threading.Lock()
NEVER = threading.Event()


def wait_for_lock():
    with LOCK:
        pass


def call_plainly():
    wait_for_lock()  # here: plain


def called_by_c(left, right):
    wait_for_lock()  # here: c
    return left


def call_through_c():
    functools.reduce(called_by_c, [1, 2])


def generate():
    wait_for_lock()  # here: generator
    yield 1


def call_by_generator():
    for _ in generate():
        pass


class Holder:
    def hold(self):
        largest = max(
            1,
            self.größe(),
        )
        return largest

    def größe(self):
        wait_for_lock()  # here: method
        return 1


def wait_for_event():
    NEVER.wait()


LOCK.acquire()
BODIES = {
    "plain": call_plainly,
    "through_c": call_through_c,
    "generator": call_by_generator,
    "method": Holder().hold,
}
for name, body in BODIES.items():
    threading.Thread(target=body, name=name, daemon=True).start()
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
    threading.Thread(target=wait_for_event, daemon=True).start()
time.sleep(0.3)
print("ready", flush=True)
time.sleep(1000)
