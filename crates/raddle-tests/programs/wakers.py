# A thread that waits for a condition, and another one that ends the waits from three functions,
# after 1, 2 and 3 parts of the time. Prints "part NAME TIME" as wakers.c does.
import sys
import threading
import time

PART_S = 0.002
condition = threading.Condition()
turn = 0
is_over = False
ended = [0.0] * 3


def wake(number):
    global turn
    with condition:
        turn = number
        condition.notify()


def wake_one():
    time.sleep(1 * PART_S)
    wake(1)


def wake_two():
    time.sleep(2 * PART_S)
    wake(2)


def wake_three():
    time.sleep(3 * PART_S)
    wake(3)


def waits_here():
    global turn
    begin = time.monotonic()
    with condition:
        while turn == 0 and not is_over:
            condition.wait()
        if turn != 0:
            ended[turn - 1] += time.monotonic() - begin
        turn = 0


def waiter():
    while not is_over:
        waits_here()


thread = threading.Thread(target=waiter)
thread.start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    wake_one()
    wake_two()
    wake_three()
is_over = True
wake(0)
thread.join()
for name, seconds in zip(("wake_one", "wake_two", "wake_three"), ended):
    print("part", name, seconds)
