import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that wait below known methods: for a monitor, for a lock of java.util.concurrent, in
 * Object.wait, asleep, below a class initializer, below compiled code. With a number, so many
 * threads wait beside them. Prints "ready" at last.
 */
public class Managed {
    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final CountDownLatch OWNED = new CountDownLatch(2);
    static int warm;

    static void ownMonitor() throws InterruptedException {
        synchronized (MONITOR) {
            OWNED.countDown();
            Thread.sleep(1_000_000); // here: ownMonitor
        }
    }

    static void enterMonitor() {
        synchronized (MONITOR) { warm++; } // here: enterMonitor
    }

    static void ownLock() {
        LOCK.lock();
        OWNED.countDown();
        while (true) {
            LockSupport.park(); // here: ownLock
        }
    }

    static void takeLock() {
        LOCK.lock(); // here: takeLock
    }

    static void waitForObject() throws InterruptedException {
        var own = new Object();
        synchronized (own) {
            own.wait(); // here: waitForObject
        }
    }

    static class Slow {
        static {
            LockSupport.parkNanos(1L << 60); // here: initialize
        }

        static void touch() {}
    }

    static int parkIfDeep(int depth, boolean mayPark) {
        if (depth == 0) {
            if (mayPark) {
                LockSupport.parkNanos(1L << 60); // here: parkIfDeep
            }
            return 1;
        }
        return parkIfDeep(depth - 1, mayPark) + 1;
    }

    static void parkBelowCompiledCode() {
        for (int i = 0; i < 100_000; i++) {
            warm += parkIfDeep(10, false);
        }
        parkIfDeep(10, true);
    }

    interface Body {
        void run() throws InterruptedException;
    }

    static void start(String name, Body body) {
        var thread = new Thread(() -> {
            try {
                body.run();
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        start("monitor-owner", Managed::ownMonitor);
        start("lock-owner", Managed::ownLock);
        OWNED.await();
        start("monitor-waiter", Managed::enterMonitor);
        start("lock-waiter", Managed::takeLock);
        start("object-waiter", Managed::waitForObject);
        start("initializer", () -> Slow.touch());
        start("compiled", Managed::parkBelowCompiledCode);
        int more = arguments.length == 0 ? 0 : Integer.parseInt(arguments[0]);
        var arrived = new CountDownLatch(more);
        for (int i = 0; i < more; i++) {
            start("worker-" + i, () -> {
                arrived.countDown();
                LockSupport.parkNanos(1L << 60); // here: worker
            });
        }
        arrived.await();
        Thread.sleep(1000);
        System.out.println("ready");
        Thread.sleep(1_000_000);
    }
}
