"""Two threads pass an object through two queues."""

import queue
import sys
import threading
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000


def player(incoming, outgoing):
    for _ in range(ROUNDS):
        outgoing.put(incoming.get())


there, back = queue.Queue(), queue.Queue()
threads = [
    threading.Thread(target=player, args=(there, back)),
    threading.Thread(target=player, args=(back, there)),
]
start = time.monotonic()
for thread in threads:
    thread.start()
there.put(1)
for thread in threads:
    thread.join()
print("METRIC hand-off %.1f ns" % ((time.monotonic() - start) * 1e9 / (2 * ROUNDS)))
