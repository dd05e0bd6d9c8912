"""Two threads wait in functions of their own. `later` prints their tracebacks after a tenth of a
second; at SIGUSR1 they are printed again. Prints "ready" when both threads wait."""

import faulthandler
import signal
import threading
import time

faulthandler.register(signal.SIGUSR1, all_threads=True)
signal.signal(signal.SIGUSR2, lambda *_: print("handled", flush=True))
LOCK = threading.Lock()


def wait_for_the_lock():
    with LOCK:
        pass


def sleep_for_long():
    time.sleep(1000)


LOCK.acquire()
for body in (wait_for_the_lock, sleep_for_long):
    threading.Thread(target=body, daemon=True).start()
time.sleep(0.2)
faulthandler.dump_traceback_later(0.1)
time.sleep(0.5)
print("ready", flush=True)
while True:
    time.sleep(1000)
