"""Forty threads that stay below chains of functions of all kinds. When all have arrived, it prints
what the interpreter itself says of each: "stack TID", then LINE FUNCTION FILE for each frame, the
innermost first. At last it prints "ready"."""

import asyncio
import contextlib
import functools
import queue
import sys
import threading
import time

LOCK = threading.Lock()
REENTRANT = threading.RLock()
NEVER = threading.Event()
EMPTY = queue.Queue()
CONDITION = threading.Condition()
COPIES = 4


def take_lock():
    with LOCK:
        pass


def take_reentrant():
    with REENTRANT:
        pass


def wait_for_event():
    NEVER.wait()


def wait_for_item():
    EMPTY.get()


def wait_for_notice():
    with CONDITION:
        CONDITION.wait()


def sleep_long():
    time.sleep(1 << 20)


def generates():
    yield 1
    take_lock()
    yield 2


def by_generator():
    return [number + 1 for number in generates()]


def recurse(depth):
    if depth == 0:
        wait_for_event()
    return recurse(depth - 1) + 1


def by_recursion():
    recurse(100)


def by_callback():
    def is_key(value):
        take_reentrant()
        return value

    sorted([3, 1, 2], key=is_key)


def by_reduction():
    functools.reduce(lambda left, right: take_lock() or right, [1, 2])


class Holder:
    @property
    def größe(self):
        wait_for_notice()
        return 1

    def __enter__(self):
        return self.größe

    def __exit__(self, *reason):
        pass


def by_context():
    with Holder() as size:
        return size


@contextlib.contextmanager
def managed():
    wait_for_item()
    yield


def by_manager():
    with managed():
        pass


def by_text():
    text = "def called():\n\n    wait()\n\ncalled()\n"
    exec(compile(text, "<made>", "exec"), {"wait": sleep_long})


async def pause():
    await asyncio.sleep(0)
    take_lock()


async def pauses():
    await pause()


def by_loop():
    asyncio.run(pauses())


BODIES = [
    by_generator,
    by_recursion,
    by_callback,
    by_reduction,
    by_context,
    by_manager,
    by_text,
    by_loop,
    take_reentrant,
    sleep_long,
]


def chain(frame):
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        yield "%d %s %s" % (frame.f_lineno, name, code.co_filename)
        frame = frame.f_back


def settled(threads):
    """The frames of all threads, once these stay where they are."""
    same = 0
    before = None
    while same < 5:
        time.sleep(0.05)
        frames = sys._current_frames()
        now = {thread.native_id: list(chain(frames[thread.ident])) for thread in threads}
        same = same + 1 if now == before else 0
        before = now
    return now


LOCK.acquire()
REENTRANT.acquire()
workers = [threading.Thread(target=body, daemon=True) for body in BODIES * COPIES]
for worker in workers:
    worker.start()
for tid, lines in settled(workers).items():
    print("stack", tid)
    print("\n".join(lines))
print("ready", flush=True)
time.sleep(1 << 20)
