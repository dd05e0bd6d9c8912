"""Two threads pass a token back and forth through two queues."""

import queue
import threading
import time

ROUNDS = 30_000


def player(inbox, outbox):
    for _ in range(ROUNDS):
        outbox.put(inbox.get())


left, right = queue.Queue(), queue.Queue()
players = [
    threading.Thread(target=player, args=(left, right)),
    threading.Thread(target=player, args=(right, left)),
]
start = time.perf_counter()
for thread in players:
    thread.start()
left.put("token")
for thread in players:
    thread.join()
print(f"{(time.perf_counter() - start) * 1e9 / (2 * ROUNDS):.0f} ns/hand-off")
