import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** What a watch for deadlocks has to report, and what not, by the first argument. */
public class Watched {
    static final Object A = new Object();
    static final Object B = new Object();
    static final Object C = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final ReentrantLock OTHER = new ReentrantLock(true);
    static final ReentrantReadWriteLock SHARED = new ReentrantReadWriteLock();
    static volatile Object garbage;

    interface Body {
        void run() throws Exception;
    }

    static Thread begin(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void nested(Object own, CyclicBarrier all, Object other) throws Exception {
        synchronized (own) {
            all.await();
            synchronized (other) {
                System.out.println("never");
            }
        }
    }

    /** Three threads in a ring, and one behind it. */
    static void three() throws Exception {
        CyclicBarrier all = new CyclicBarrier(4);
        begin("first", () -> nested(A, all, B));
        begin("second", () -> nested(B, all, C));
        begin("third", () -> nested(C, all, A));
        begin("behind", () -> nested(new Object(), all, A));
    }

    static void locks() {
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> {
            LOCK.lock();
            all.await();
            OTHER.lock();
        });
        begin("second", () -> {
            OTHER.lock();
            all.await();
            LOCK.lock();
        });
    }

    /** A lock with a writer is wanted by a reader. */
    static void shared() {
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> {
            SHARED.writeLock().lock();
            all.await();
            synchronized (A) {
                System.out.println("never");
            }
        });
        begin("second", () -> {
            synchronized (A) {
                all.await();
                SHARED.readLock().lock();
            }
        });
    }

    static void second() throws Exception {
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> nested(A, all, B));
        begin("second", () -> nested(B, all, A));
        Thread.sleep(3000);
        CyclicBarrier later = new CyclicBarrier(2);
        Object mine = new Object();
        begin("third", () -> nested(mine, later, C));
        begin("fourth", () -> nested(C, later, mine));
    }

    /** Objects move all the time. */
    static void moving() throws Exception {
        begin("allocator", () -> {
            for (int number = 0; ; number++) {
                garbage = new byte[1 << 16];
                if (number % 64 == 0) {
                    System.gc();
                }
            }
        });
        Object mine = new Object();
        Object yours = new Object();
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> nested(mine, all, yours));
        begin("second", () -> nested(yours, all, mine));
    }

    /** Locks in opposite orders, but never two at a time; and two at a time in one order. */
    static void contended() {
        for (int number = 0; number < 8; number++) {
            boolean isEven = number % 2 == 0;
            begin("turns-" + number, () -> {
                for (;;) {
                    synchronized (isEven ? A : B) {
                        Thread.yield();
                    }
                    synchronized (isEven ? B : A) {
                        garbage = new byte[100];
                    }
                    synchronized (A) {
                        synchronized (B) {
                            garbage = new byte[100];
                        }
                    }
                    (isEven ? LOCK : OTHER).lock();
                    Thread.yield();
                    (isEven ? LOCK : OTHER).unlock();
                    (isEven ? OTHER : LOCK).lock();
                    (isEven ? OTHER : LOCK).unlock();
                }
            });
        }
        Object turn = new Object();
        for (int number = 0; number < 2; number++) {
            begin("notes-" + number, () -> {
                synchronized (turn) {
                    for (;;) {
                        turn.notifyAll();
                        turn.wait(1);
                    }
                }
            });
        }
    }

    /** A cycle that a time limit ends. */
    static void timed() {
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> {
            LOCK.lock();
            all.await();
            synchronized (A) {
                System.out.println("first has both");
            }
        });
        begin("second", () -> {
            synchronized (A) {
                all.await();
                System.out.println(LOCK.tryLock(4, TimeUnit.SECONDS) ? "got it" : "gave up");
            }
        });
    }

    /** Threads that wait long, for what others will do. */
    static void resting() throws Exception {
        Condition condition = LOCK.newCondition();
        begin("condition", () -> {
            LOCK.lock();
            synchronized (B) {
                condition.await();
            }
        });
        begin("sleeper", () -> {
            synchronized (A) {
                Thread.sleep(1_000_000);
            }
        });
        Thread.sleep(100);
        begin("wants", () -> nested(LOCK, new CyclicBarrier(1), A));
        begin("wants-too", () -> nested(new Object(), new CyclicBarrier(1), B));
        begin("wants-lock", () -> {
            OTHER.lock();
            synchronized (A) {
                System.out.println("never");
            }
        });
        begin("wants-other", () -> OTHER.lock());
    }

    static class First {
        static {
            pause(200);
            Second.touch();
        }

        static void touch() {
        }
    }

    static class Second {
        static {
            pause(200);
            First.touch();
        }

        static void touch() {
        }
    }

    /** HotSpot itself doesn't call that a deadlock. */
    static void classes() {
        begin("first", First::touch);
        begin("second", Second::touch);
    }

    static void virtual() throws Exception {
        CyclicBarrier all = new CyclicBarrier(2);
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        for (boolean isFirst : new boolean[] {true, false}) {
            Runnable body = () -> {
                try {
                    nested(isFirst ? A : B, all, isFirst ? B : A);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            };
            type.getMethod("start", Runnable.class).invoke(builder, body);
        }
    }

    static void virtualTraffic() throws Exception {
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> type = Class.forName("java.lang.Thread$Builder");
        for (int number = 0; number < 200; number++) {
            boolean isEven = number % 2 == 0;
            Runnable body = () -> {
                for (;;) {
                    synchronized (isEven ? A : B) {
                        pause(1);
                    }
                    synchronized (isEven ? B : A) {
                        garbage = new byte[100];
                    }
                    LOCK.lock();
                    pause(1);
                    LOCK.unlock();
                }
            };
            type.getMethod("start", Runnable.class).invoke(builder, body);
        }
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The process ends a moment after a deadlock began. */
    static void ending(long milliseconds) throws Exception {
        CyclicBarrier all = new CyclicBarrier(2);
        begin("first", () -> nested(A, all, B));
        begin("second", () -> nested(B, all, A));
        Thread.sleep(milliseconds);
        System.exit(7);
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "three": three(); break;
            case "locks": locks(); break;
            case "shared": shared(); break;
            case "second": second(); break;
            case "moving": moving(); break;
            case "contended": contended(); break;
            case "timed": timed(); break;
            case "resting": resting(); break;
            case "classes": classes(); break;
            case "virtual": virtual(); break;
            case "virtual-traffic": virtualTraffic(); break;
            case "ending": ending(Long.parseLong(arguments[1])); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("ready");
        Thread.sleep(1_000_000);
    }
}
