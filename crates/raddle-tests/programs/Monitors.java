import java.util.ArrayList;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Monitors of objects that move: four threads want two monitors in one method, and two others want
 * one monitor in two methods, while garbage is collected. Two more wait for a notification that
 * never comes.
 *
 * <p>Usage: Monitors SECONDS.
 */
public class Monitors {
    /** What is locked. */
    static class Table {
        int uses;
    }

    /** What is waited for. */
    static class Signal {}

    static final Signal SIGNAL = new Signal();
    static final Table[] TABLES = {new Table(), new Table()};
    static final StringBuilder SHARED = new StringBuilder("shared");
    static volatile Object garbage;
    static long endNs;

    static boolean isOver() {
        return System.nanoTime() > endNs;
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void use(Table table, long ms) {
        synchronized (table) {
            table.uses++;
            pause(ms);
        }
    }

    static void read() {
        synchronized (SHARED) {
            pause(4);
        }
    }

    static void write() {
        synchronized (SHARED) {
            pause(6);
        }
    }

    static void await() {
        synchronized (SIGNAL) {
            try {
                SIGNAL.wait(50);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Pauses of various lengths, so that no thread finds a monitor free each time. */
    static void repeat(Runnable body) {
        while (!isOver()) {
            body.run();
            pause(ThreadLocalRandom.current().nextLong(4));
        }
    }

    /** Has the collector move what lives. */
    static void collect() {
        var kept = new ArrayList<byte[]>();
        while (!isOver()) {
            for (int i = 0; i < 64; i++) {
                kept.add(new byte[1 << 10]);
            }
            if (kept.size() > 1 << 10) {
                kept.clear();
            }
            garbage = kept;
            System.gc();
            pause(100);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        endNs = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        Runnable[] bodies = {
            () -> repeat(() -> use(TABLES[0], 5)),
            () -> repeat(() -> use(TABLES[0], 5)),
            () -> repeat(() -> use(TABLES[1], 9)),
            () -> repeat(() -> use(TABLES[1], 9)),
            () -> repeat(Monitors::read),
            () -> repeat(Monitors::write),
            () -> repeat(Monitors::await),
            () -> repeat(Monitors::await),
            Monitors::collect,
        };
        var threads = new ArrayList<Thread>();
        for (var body : bodies) {
            threads.add(new Thread(body));
        }
        for (var thread : threads) {
            thread.start();
        }
        for (var thread : threads) {
            thread.join();
        }
    }
}
