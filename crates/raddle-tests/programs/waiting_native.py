"""A thread of Python waits in a lock, one sleeps, one reads from a pipe. Prints "ready" at last."""

import os
import threading
import time

LOCK = threading.Lock()


def wait_for_lock():
    with LOCK:
        pass


def sleep_long():
    time.sleep(1000)


def read_pipe(descriptor):
    os.read(descriptor, 1)


LOCK.acquire()
reader, writer = os.pipe()
for body, arguments in [(wait_for_lock, ()), (sleep_long, ()), (read_pipe, (reader,))]:
    threading.Thread(target=body, args=arguments, daemon=True).start()
time.sleep(0.3)
print("ready", flush=True)
time.sleep(1000)
