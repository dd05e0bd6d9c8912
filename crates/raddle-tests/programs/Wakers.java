import java.util.concurrent.locks.LockSupport;

// A thread that parks, and another one that ends the waits from three methods, after 1, 2 and 3
// parts of the time. Prints "part NAME TIME" as wakers.c does.
final class Wakers {
    static final long PART_MS = 2;
    static Thread waiter;
    static volatile boolean isOver;
    static volatile int turn;
    static final double[] ended = new double[3];

    static void wake(int number) throws InterruptedException {
        Thread.sleep(number * PART_MS);
        turn = number;
        LockSupport.unpark(waiter);
    }

    static void wakeOne() throws InterruptedException {
        wake(1);
    }

    static void wakeTwo() throws InterruptedException {
        wake(2);
    }

    static void wakeThree() throws InterruptedException {
        wake(3);
    }

    static void waitsHere() {
        long begin = System.nanoTime();
        while (turn == 0 && !isOver) {
            LockSupport.park();
        }
        if (turn != 0) {
            ended[turn - 1] += (System.nanoTime() - begin) / 1e9;
        }
        turn = 0;
    }

    public static void main(String[] arguments) throws InterruptedException {
        waiter = new Thread(() -> {
            while (!isOver) {
                waitsHere();
            }
        }, "waiter");
        waiter.start();
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        while (System.nanoTime() < end) {
            wakeOne();
            wakeTwo();
            wakeThree();
        }
        isOver = true;
        LockSupport.unpark(waiter);
        waiter.join();
        String[] names = {"wakeOne", "wakeTwo", "wakeThree"};
        for (int number = 0; number < 3; number++) {
            System.out.println("part " + names[number] + " " + ended[number]);
        }
    }
}
