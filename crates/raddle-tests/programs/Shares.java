import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Locale;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A program of known shares, as shares.c is one: five methods compute for 1 to 5 parts of the time,
 * five wait for as many, and three locks are held for 1 to 3 parts: two monitors and a lock of
 * java.util.concurrent.
 *
 * <p>Usage: Shares SECONDS. At the end it prints what it has measured itself, as shares.c does.
 */
public class Shares {
    static final long UNIT_NS = 400_000;
    static final long CYCLE_MS = 30;

    interface Body {
        void run() throws InterruptedException;
    }

    static double seconds;
    static long begunNs;
    static long turnsOfUnit;
    static volatile long sink;

    static boolean isOver() {
        return System.nanoTime() - begunNs > seconds * 1e9;
    }

    static void turn(long turns) {
        long sum = sink;
        for (long i = 0; i < turns; i++) {
            sum = sum * 6364136223846793005L + 1442695040888963407L;
        }
        sink = sum;
    }

    static void computeOne() { turn(turnsOfUnit); }
    static void computeTwo() { turn(2 * turnsOfUnit); }
    static void computeThree() { turn(3 * turnsOfUnit); }
    static void computeFour() { turn(4 * turnsOfUnit); }
    static void computeFive() { turn(5 * turnsOfUnit); }

    static final Body[] COMPUTING = {
        Shares::computeOne, Shares::computeTwo, Shares::computeThree, Shares::computeFour,
        Shares::computeFive,
    };
    static final long[] computedNs = new long[5];

    static void compute() throws InterruptedException {
        var clock = ManagementFactory.getThreadMXBean();
        while (!isOver()) {
            for (int number = 0; number < 5; number++) {
                long begin = clock.getCurrentThreadCpuTime();
                COMPUTING[number].run();
                computedNs[number] += clock.getCurrentThreadCpuTime() - begin;
            }
        }
    }

    // Each thread waits in one method for its part of a cycle, and in another one for the rest.
    static void waitRest(long ms) throws InterruptedException { Thread.sleep(ms); }
    static void waitOne() throws InterruptedException { Thread.sleep(CYCLE_MS / 10); }
    static void waitTwo() throws InterruptedException { Thread.sleep(CYCLE_MS * 2 / 10); }
    static void waitThree() throws InterruptedException { Thread.sleep(CYCLE_MS * 3 / 10); }
    static void waitFour() throws InterruptedException { Thread.sleep(CYCLE_MS * 4 / 10); }
    static void waitFive() throws InterruptedException { Thread.sleep(CYCLE_MS * 5 / 10); }

    static final Body[] WAITING = {
        Shares::waitOne, Shares::waitTwo, Shares::waitThree, Shares::waitFour, Shares::waitFive,
    };
    static final long[] waitedNs = new long[5];
    static final long[] restedNs = new long[5];

    static void sleep(int number) throws InterruptedException {
        while (!isOver()) {
            long begin = System.nanoTime();
            WAITING[number].run();
            long middle = System.nanoTime();
            waitRest(CYCLE_MS * (9 - number) / 10);
            waitedNs[number] += middle - begin;
            restedNs[number] += System.nanoTime() - middle;
        }
    }

    static final Object ONE = new Object();
    static final Object TWO = new Object();
    static final ReentrantLock THREE = new ReentrantLock();
    /** Of both threads; changed while the lock is held. */
    static final long[] lockedNs = new long[3];

    static void hold(int number, long begin) throws InterruptedException {
        lockedNs[number] += System.nanoTime() - begin;
        Thread.sleep((number + 1) * 5);
    }

    static void lockOne() throws InterruptedException {
        long begin = System.nanoTime();
        synchronized (ONE) {
            hold(0, begin);
        }
    }

    static void lockTwo() throws InterruptedException {
        long begin = System.nanoTime();
        synchronized (TWO) {
            hold(1, begin);
        }
    }

    static void lockThree() throws InterruptedException {
        long begin = System.nanoTime();
        THREE.lock();
        try {
            hold(2, begin);
        } finally {
            THREE.unlock();
        }
    }

    static final Body[] LOCKING = {Shares::lockOne, Shares::lockTwo, Shares::lockThree};

    /** Two threads contend for each lock, and hold it for its parts. */
    static void contend(int number) throws InterruptedException {
        while (!isOver()) {
            LOCKING[number].run();
            Thread.sleep(1);
        }
    }

    static Thread start(String name, Body body) {
        var thread = new Thread(() -> {
            try {
                body.run();
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }, name);
        thread.start();
        return thread;
    }

    static void print(String name, long ns) {
        System.out.println(String.format(Locale.ROOT, "part %s %.6f", name, ns / 1e9));
    }

    public static void main(String[] arguments) throws InterruptedException {
        seconds = arguments.length > 0 ? Double.parseDouble(arguments[0]) : 2;
        // How many turns a unit has on this machine, once the loop is compiled.
        long trial = 1_000_000;
        for (int i = 0; i < 20; i++) {
            turn(trial);
        }
        var clock = ManagementFactory.getThreadMXBean();
        long begin = clock.getCurrentThreadCpuTime();
        turn(4 * trial);
        turnsOfUnit = 4 * trial * UNIT_NS / (clock.getCurrentThreadCpuTime() - begin + 1) + 1;
        begunNs = System.nanoTime();

        var threads = new ArrayList<Thread>();
        threads.add(start("computes", Shares::compute));
        for (int i = 0; i < 5; i++) {
            int number = i;
            threads.add(start("sleeps", () -> sleep(number)));
        }
        for (int i = 0; i < 6; i++) {
            int number = i % 3;
            threads.add(start("contends", () -> contend(number)));
        }
        for (var thread : threads) {
            thread.join();
        }
        String[] names = {"One", "Two", "Three", "Four", "Five"};
        long rest = 0;
        for (int number = 0; number < 5; number++) {
            print("Shares.compute" + names[number], computedNs[number]);
            print("Shares.wait" + names[number], waitedNs[number]);
            rest += restedNs[number];
        }
        print("Shares.waitRest", rest);
        for (int number = 0; number < 3; number++) {
            print("Shares.lock" + names[number], lockedNs[number]);
        }
    }
}
