import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.locks.ReentrantLock;

/** Deadlocks of Java's locks, by the first argument. Prints "ready" before the last wait. */
public class Deadlocks {
    static final Object A = new Object();
    static final Object B = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final CyclicBarrier BOTH = new CyclicBarrier(2);

    /** Take and give back a pthread mutex. */
    static native void take();

    static native void give();

    static void meet() {
        try {
            BOTH.await();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void begin(String name, Runnable body) {
        new Thread(body, name).start();
    }

    static void nested(Object own, Object other) {
        synchronized (own) {
            meet();
            synchronized (other) {
                System.out.println("never");
            }
        }
    }

    static void monitors() {
        begin("first", () -> nested(A, B));
        begin("second", () -> nested(B, A));
    }

    static void synchronizers() {
        begin("first", () -> {
            LOCK.lock();
            meet();
            synchronized (A) {
                LOCK.unlock();
            }
        });
        begin("second", () -> {
            synchronized (A) {
                meet();
                LOCK.lock();
            }
        });
    }

    static void jni() {
        begin("first", () -> {
            take();
            meet();
            synchronized (A) {
                give();
            }
        });
        begin("second", () -> {
            synchronized (A) {
                meet();
                take();
            }
        });
    }

    /** In good health: a queue's reader waits, and a thread sleeps with a lock. */
    static void healthy() {
        begin("first", () -> {
            synchronized (A) {
                try {
                    A.wait();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
        });
        begin("second", () -> {
            synchronized (B) {
                pause();
            }
        });
        begin("third", () -> nested(B, A));
    }

    static void pause() {
        try {
            Thread.sleep(1_000_000);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) {
        System.load(arguments[1]);
        switch (arguments[0]) {
            case "monitors":
                monitors();
                break;
            case "synchronizers":
                synchronizers();
                break;
            case "jni":
                jni();
                break;
            default:
                healthy();
        }
        System.out.println("ready");
        pause();
    }
}
