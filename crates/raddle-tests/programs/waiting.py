"""A hundred threads that wait for ever."""

import threading

arrived = threading.Semaphore(0)
never = threading.Event()


def wait():
    arrived.release()
    never.wait()


for _ in range(100):
    threading.Thread(target=wait).start()
for _ in range(100):
    arrived.acquire()
print("waiting", flush=True)
never.wait()
