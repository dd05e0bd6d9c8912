"""A program of known shares, as shares.c is one: five functions compute for 1 to 5 parts of the
time, five wait for as many, and three locks are held for 1 to 3 parts.

Usage: shares.py SECONDS [wait]. At the end it prints what it has measured itself, and it waits, as
shares.c does.
"""

import signal
import sys
import threading
import time

UNIT_NS = 400_000
CYCLE = 0.03
NAMES = ["one", "two", "three", "four", "five"]

waits = len(sys.argv) > 2 and sys.argv[2] == "wait"
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
# A thread that has waited gets the interpreter sooner from the one that computes.
sys.setswitchinterval(0.001)
measured = {}


def turn(turns):
    value = 1
    for _ in range(turns):
        value = (value * 69069 + 1) & 0xFFFFFFFF
    return value


def compute_one():
    turn(unit)


def compute_two():
    turn(2 * unit)


def compute_three():
    turn(3 * unit)


def compute_four():
    turn(4 * unit)


def compute_five():
    turn(5 * unit)


def wait_rest(rest):
    time.sleep(rest)


def wait_one():
    time.sleep(CYCLE / 10)


def wait_two():
    time.sleep(CYCLE * 2 / 10)


def wait_three():
    time.sleep(CYCLE * 3 / 10)


def wait_four():
    time.sleep(CYCLE * 4 / 10)


def wait_five():
    time.sleep(CYCLE * 5 / 10)


def lock_one():
    LOCKS[0].acquire()


def lock_two():
    LOCKS[1].acquire()


def lock_three():
    LOCKS[2].acquire()


COMPUTING = [compute_one, compute_two, compute_three, compute_four, compute_five]
WAITING = [wait_one, wait_two, wait_three, wait_four, wait_five]
LOCKING = [lock_one, lock_two, lock_three]
LOCKS = [threading.Lock() for _ in range(3)]
adding = threading.Lock()


def is_over():
    return time.monotonic() - begun > seconds


def add(name, ns):
    measured[name] = measured.get(name, 0) + ns


def computes():
    while not is_over():
        for function in COMPUTING:
            begin = time.thread_time_ns()
            function()
            add(function.__name__, time.thread_time_ns() - begin)


# Each thread waits in one function for its part of a cycle, and in another one for the rest.
def sleeps(number):
    function, rested = WAITING[number], 0
    while not is_over():
        begin = time.monotonic_ns()
        function()
        middle = time.monotonic_ns()
        wait_rest(CYCLE * (9 - number) / 10)
        add(function.__name__, middle - begin)
        rested += time.monotonic_ns() - middle
    with adding:
        add("wait_rest", rested)


# Two threads contend for each lock, and hold it for its parts.
def contends(number):
    function = LOCKING[number]
    while not is_over():
        begin = time.monotonic_ns()
        function()
        add(function.__name__, time.monotonic_ns() - begin)  # the lock is held
        time.sleep((number + 1) * 0.005)
        LOCKS[number].release()
        time.sleep(0.0001)


if waits:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    threading.Thread(target=signal.pause, daemon=True).start()
    print("ready", flush=True)
    signal.sigwait([signal.SIGUSR1])
# How many turns a unit has on this machine.
turn(10_000)
trial_begun = time.process_time_ns()
turn(200_000)
unit = 200_000 * UNIT_NS // (time.process_time_ns() - trial_begun + 1) + 1
begun = time.monotonic()

threads = [threading.Thread(target=computes)]
threads += [threading.Thread(target=sleeps, args=[number]) for number in range(5)]
threads += [threading.Thread(target=contends, args=[number % 3]) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for name, ns in measured.items():
    print(f"part {name} {ns / 1e9:.6f}", flush=True)
if waits:
    signal.pause()
