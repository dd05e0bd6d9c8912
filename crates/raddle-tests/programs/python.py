"""CPython's threads and what it builds on them. `python.py CASE` runs one, `--list` prints all."""

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import queue
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time


def in_threads(count, run):
    """Runs `run(0)` to `run(count - 1)`; the first exception of a thread is raised here."""
    errors = []

    def guarded(me):
        try:
            run(me)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def threads_and_locks():
    lock, total = threading.Lock(), [0]

    def add(_):
        for _ in range(1000):
            with lock:
                total[0] += 1

    in_threads(50, add)
    assert total[0] == 50_000


def a_thousand_threads():
    gate, arrived = threading.Event(), threading.Semaphore(0)

    def wait(_):
        arrived.release()
        assert gate.wait(30)

    threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=wait, args=(0,)) for _ in range(1000)]
    for thread in threads:
        thread.start()
    for _ in threads:
        arrived.acquire()
    gate.set()
    for thread in threads:
        thread.join()


def queues_hand_over():
    there, back = queue.Queue(), queue.Queue()

    def pong():
        while (item := there.get()) is not None:
            back.put(item + 1)

    thread = threading.Thread(target=pong)
    thread.start()
    for i in range(5000):
        there.put(i)
        assert back.get() == i + 1
    there.put(None)
    thread.join()


def a_queue_has_time_limits():
    started = time.monotonic()
    try:
        queue.Queue().get(timeout=0.05)
        raise AssertionError("got something")
    except queue.Empty:
        assert 0.05 <= time.monotonic() - started < 5
    taken = threading.Lock()
    assert taken.acquire() and not taken.acquire(timeout=0.02)
    assert not threading.Event().wait(0.02)


def producers_and_consumers():
    work, sums = queue.Queue(10), [0] * 8

    def run(me):
        if me < 8:
            for i in range(500):
                work.put(i)
            work.put(None)
        else:
            while (item := work.get()) is not None:
                sums[me - 8] += item

    in_threads(16, run)
    assert sum(sums) == 8 * sum(range(500))


def conditions_and_barriers():
    condition, turn = threading.Condition(), [0]
    barrier = threading.Barrier(10)

    def run(me):
        for i in range(30):
            with condition:
                assert condition.wait_for(lambda: turn[0] % 10 == me, 30)
                turn[0] += 1
                condition.notify_all()
        barrier.wait(30)

    in_threads(10, run)
    assert turn[0] == 300


def locals_belong_to_threads():
    local = threading.local()

    def run(me):
        for i in range(200):
            local.value = (me, i)
            time.sleep(0)
            assert local.value == (me, i)

    in_threads(20, run)
    assert not hasattr(local, "value")


def identities_differ():
    seen, lock, barrier = set(), threading.Lock(), threading.Barrier(20)

    def run(_):
        barrier.wait()
        with lock:
            seen.add((threading.get_ident(), threading.get_native_id()))
        barrier.wait()

    in_threads(20, run)
    assert len(seen) == 20
    assert threading.get_native_id() == os.getpid()


def a_pool_of_threads():
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        def square(i):
            time.sleep(0.001)
            return i * i

        assert list(pool.map(square, range(300))) == [i * i for i in range(300)]
        failing = pool.submit(lambda: 1 / 0)
        assert isinstance(failing.exception(), ZeroDivisionError)


def asyncio_with_threads():
    def block(i):
        time.sleep(0.01)
        return i

    async def talk(port, me):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(20):
            writer.write(b"%d %d\n" % (me, i))
            assert await reader.readline() == b"%d %d\n" % (me, i)
        writer.close()
        await writer.wait_closed()

    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*(talk(port, me) for me in range(20)))
        results = await asyncio.gather(*(asyncio.to_thread(block, i) for i in range(40)))
        assert results == list(range(40))
        server.close()

    asyncio.run(main())
    in_threads(4, lambda _: asyncio.run(asyncio.sleep(0.02)))


def sockets_with_a_thread_for_each_client():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve(peer):
        with peer:
            while data := peer.recv(4096):
                peer.sendall(data)

    def accept():
        for _ in range(30):
            threading.Thread(target=serve, args=(listener.accept()[0],)).start()

    def talk(me):
        with socket.create_connection(listener.getsockname(), timeout=30) as peer:
            for i in range(20):
                message = b"%d-%d" % (me, i)
                peer.sendall(message)
                assert peer.recv(100) == message

    server = threading.Thread(target=accept)
    server.start()
    in_threads(30, talk)
    server.join()


def select_and_time_limits():
    a, b = socket.socketpair()
    a.settimeout(0.05)
    started = time.monotonic()
    try:
        a.recv(1)
        raise AssertionError("received something")
    except TimeoutError:
        assert 0.045 <= time.monotonic() - started < 5
    assert select.select([a], [], [], 0.02)[0] == []
    threading.Timer(0.02, lambda: b.send(b"x")).start()
    assert select.select([a], [], [], 30)[0] == [a]


def subprocesses_from_threads():
    def run(me):
        result = subprocess.run(
            ["sh", "-c", f"read line; echo $line {me}; exit {me}"],
            input=b"said\n", capture_output=True, timeout=30,
        )
        assert (result.returncode, result.stdout) == (me, b"said %d\n" % me)

    in_threads(8, run)
    assert subprocess.check_output([sys.executable, "-c", "print(6 * 7)"]) == b"42\n"


def fork_with_threads_running():
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(stop.is_set, True)])
    thread.start()
    for status in range(10):
        if (child := os.fork()) == 0:
            inner = threading.Thread(target=time.sleep, args=(0.001,))
            inner.start()
            inner.join()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
    stop.set()
    thread.join()


def square(i):
    return i * i


def a_pool_of_processes():
    for method in "fork", "spawn":
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(square, range(20)) == [i * i for i in range(20)]


def processes_with_queues():
    context = multiprocessing.get_context("fork")
    there, back = context.Queue(), context.SimpleQueue()
    child = context.Process(target=lambda: [back.put(there.get() * 2) for _ in range(100)])
    child.start()
    for i in range(100):
        there.put(i)
    assert [back.get() for _ in range(100)] == [2 * i for i in range(100)]
    child.join(30)
    assert child.exitcode == 0


def signals_reach_the_main_thread():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    sleeper = threading.Thread(target=time.sleep, args=(0.2,))
    sleeper.start()
    for _ in range(5):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.005)
    sleeper.join()
    assert seen and set(seen) == {threading.main_thread()}
    signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    time.sleep(0.1)
    assert seen[-1] == "alarm"
    signal.set_wakeup_fd(-1)


def interrupted_by_the_keyboard():
    # A shell starts background jobs with SIGINT ignored, and Python keeps that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        time.sleep(30)
        raise AssertionError("slept on")
    except KeyboardInterrupt:
        pass


def garbage_is_collected_in_all_threads():
    def run(me):
        numbers = random.Random(me)
        for _ in range(50):
            ring = [[] for _ in range(numbers.randrange(1, 200))]
            for a, b in zip(ring, ring[1:] + ring[:1]):
                a.append(b)
            if numbers.random() < 0.1:
                gc.collect()

    in_threads(20, run)


def computing_threads_take_turns():
    stop, counts = threading.Event(), [0] * 4

    def run(me):
        while not stop.is_set():
            counts[me] += 1

    def watch():
        deadline = time.monotonic() + 10
        while not all(counts) and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()

    threading.Thread(target=watch).start()
    in_threads(4, run)
    assert all(counts)


def daemon_threads_end_with_the_process():
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    print("ok daemon_threads_end_with_the_process", flush=True)
    sys.exit(5)


def exit_handlers_run():
    import atexit
    atexit.register(lambda: print("ok exit_handlers_run", flush=True))
    threading.Thread(target=lambda: time.sleep(0.05)).start()
    sys.exit(0)


CASES = [
    threads_and_locks, a_thousand_threads, queues_hand_over, a_queue_has_time_limits,
    producers_and_consumers, conditions_and_barriers, locals_belong_to_threads,
    identities_differ, a_pool_of_threads, asyncio_with_threads,
    sockets_with_a_thread_for_each_client, select_and_time_limits, subprocesses_from_threads,
    fork_with_threads_running, a_pool_of_processes, processes_with_queues,
    signals_reach_the_main_thread, interrupted_by_the_keyboard,
    garbage_is_collected_in_all_threads, computing_threads_take_turns,
    daemon_threads_end_with_the_process, exit_handlers_run,
]

if __name__ == "__main__":
    for case in CASES:
        if sys.argv[1] == "--list":
            print(case.__name__)
        elif sys.argv[1] == case.__name__:
            case()
            print("ok", case.__name__)
