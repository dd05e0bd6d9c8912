import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads with stacks of every kind of code: interpreted, compiled, inlined, called by native code,
 * called back from it, and with odd names. The first argument says how many threads there are of
 * each kind; with a second one, "hangs", a thread computes without a safepoint. Prints "ready".
 */
public class Mixed {
    static final CountDownLatch NEVER = new CountDownLatch(1);
    static final Object MONITOR = new Object();
    static volatile long sink;

    static int inlined(int depth, boolean mayPark) {
        return outer(depth, mayPark) + 1;
    }

    static int outer(int depth, boolean mayPark) {
        return middle(depth, mayPark) + 1;
    }

    static int middle(int depth, boolean mayPark) {
        if (depth > 0) {
            return inlined(depth - 1, mayPark) + 1;
        }
        if (mayPark) {
            park();
        }
        return 1;
    }

    static void park() {
        while (true) {
            LockSupport.parkNanos(1L << 60); // here: park
        }
    }

    static void compiled() {
        for (int i = 0; i < 100_000; i++) {
            sink += inlined(5, false);
        }
        inlined(5, true);
    }

    static void interpreted() {
        try {
            NEVER.await(); // here: interpreted
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static void reflected() {
        try {
            Mixed.class.getDeclaredMethod("interpreted").invoke(null);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static void inStream() {
        java.util.stream.IntStream.range(0, 1).forEach(i -> interpreted());
    }

    static class Slow {
        static {
            interpreted(); // here: initialize
        }

        static void touch() {}
    }

    static void owner() {
        synchronized (MONITOR) {
            interpreted(); // here: owner
        }
    }

    static void waiter() {
        synchronized (MONITOR) {
            sink++;
        }
    }

    static class Pinned {
        static {
            interpreted(); // here: pinned
        }

        static void touch() {}
    }

    /** Frames that move to the heap while it sleeps; the inner ones come back. */
    static int moved(int depth) {
        if (depth > 0) {
            return moved(depth - 1) + 1;
        }
        try {
            for (int i = 0; i < 10; i++) {
                Thread.sleep(5);
            }
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        Pinned.touch(); // here: moved
        return 1;
    }

    /** Starts a virtual thread, from version 21 on. */
    static void startVirtual(Runnable body) {
        try {
            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
        } catch (ReflectiveOperationException | UnsupportedOperationException missing) {
            return;
        }
    }

    /** A counted loop, in which the compiler puts no safepoint where it is told so. */
    static long hang(int rounds) {
        long sum = rounds;
        for (int i = 1; i < rounds; i++) {
            sum = sum % 1_000_003 * i % 999_983 + sum / (i | 1) % 7919;
        }
        return sum;
    }

    static void start(String name, Runnable body) {
        var thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[0]);
        start("odd \"name\" nid=1\n\tat Not.a(Frame.java:1)\nzwölf\n\"", Mixed::owner);
        for (int i = 0; i < count; i++) {
            start("compiled-" + i, Mixed::compiled);
            start("interpreted-" + i, Mixed::interpreted);
            start("reflected-" + i, Mixed::reflected);
            start("stream-" + i, Mixed::inStream);
        }
        start("initializer", () -> Slow.touch());
        startVirtual(() -> moved(5));
        Thread.sleep(1000);
        start("waiter", Mixed::waiter);
        Thread.sleep(1000);
        System.out.println("ready");
        // From here on a safepoint may keep every thread from whatever it does next.
        if (arguments.length > 1) {
            for (int i = 0; i < 20_000; i++) {
                sink += hang(10);
            }
            start("hanging", () -> sink += hang(Integer.MAX_VALUE));
        }
        Thread.sleep(1_000_000);
    }
}
