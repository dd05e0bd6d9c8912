import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Virtual threads, from JDK 21 on. Some stay on their carriers below known chains of methods: a
 * comment "at: THREAD NUMBER METHOD" is at each line of a chain, the innermost method first. Others
 * wait for ever in the heap of the virtual machine, or hold locks there that threads wait for.
 *
 * When all have arrived, it prints what the virtual machine itself says of those on carriers:
 * "stack THREAD CARRIER", then CLASS.METHOD:LINE for each method. At last it prints "ready".
 */
public class Virtual {
    static final int PARKED = 100;
    static final int WARM = 20_000;
    static final List<Thread> MOUNTED = new ArrayList<>();
    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static volatile long sink;

    static void forEver() {
        while (true) {
            LockSupport.park();
        }
    }

    // A class initializer keeps its thread on the carrier.

    static class Initialized {
        static {
            forEver(); // at: initializer 1 Virtual$Initialized.<clinit>
        }

        static void touch() {}
    }

    static int touches(int depth) {
        if (depth > 0) {
            return touches(depth - 1) + 1;
        }
        Initialized.touch(); // at: initializer 2 Virtual.touches
        return 0;
    }

    static void initializes() {
        touches(0); // at: initializer 3 Virtual.initializes
    }

    // So does a loader of classes that the virtual machine has called.

    static class Loader extends ClassLoader {
        @Override
        protected Class<?> findClass(String name) {
            forEver(); // at: loader 1 Virtual$Loader.findClass
            return null;
        }
    }

    static void loads() throws ClassNotFoundException {
        Class.forName("no.such.Name", true, new Loader()); // at: loader 2 Virtual.loads
    }

    // Compiled and inlined methods below an initializer.

    static class Compiled {
        static {
            for (int i = 0; i < WARM; i++) {
                sink += outer(i, false);
            }
            outer(1, true); // at: compiled 3 Virtual$Compiled.<clinit>
        }

        static int inner(int number, boolean stays) {
            if (stays) {
                forEver(); // at: compiled 1 Virtual$Compiled.inner
            }
            return number * 31;
        }

        static int outer(int number, boolean stays) {
            return inner(number, stays) + 1; // at: compiled 2 Virtual$Compiled.outer
        }

        static void touch() {}
    }

    static void compiles() {
        Compiled.touch(); // at: compiled 4 Virtual.compiles
    }

    // A thread that has waited in the heap has its outer frames there still.

    static class Moved {
        static {
            forEver(); // at: moved 1 Virtual$Moved.<clinit>
        }

        static void touch() {}
    }

    static int deep(int depth) {
        if (depth > 0) {
            return deep(depth - 1) + 1;
        }
        LockSupport.parkNanos(1_000_000);
        Moved.touch(); // at: moved 2 Virtual.deep
        return 0;
    }

    static void moves() {
        deep(40);
    }

    interface Body {
        void run() throws Exception;
    }

    static Thread start(String name, Body body) {
        Runnable whole = () -> {
            try {
                body.run();
            } catch (Exception thrown) {
                throw new IllegalStateException(thrown);
            }
        };
        try {
            var builder = Thread.class.getMethod("ofVirtual").invoke(null);
            var kind = Class.forName("java.lang.Thread$Builder$OfVirtual");
            kind.getMethod("name", String.class).invoke(builder, name);
            return (Thread) kind.getMethod("start", Runnable.class).invoke(builder, whole);
        } catch (ReflectiveOperationException missing) {
            throw new IllegalStateException(missing);
        }
    }

    /** Waits until a thread stays where it is. */
    static StackTraceElement[] settled(Thread thread) throws InterruptedException {
        for (int same = 0; ; ) {
            var before = thread.getStackTrace();
            Thread.sleep(20);
            boolean stays = before.length > 2 && Arrays.equals(before, thread.getStackTrace());
            same = stays ? same + 1 : 0;
            if (same == 5) {
                return before;
            }
        }
    }

    /** Virtual threads hold a monitor and a lock in the heap for a time. Others want them. */
    static void hold() throws InterruptedException {
        var held = new CountDownLatch(2);
        start("monitor-holder", () -> {
            synchronized (MONITOR) {
                held.countDown();
                Thread.sleep(1L << 40);
            }
        });
        start("lock-holder", () -> {
            LOCK.lock();
            held.countDown();
            Thread.sleep(1L << 40);
        });
        held.await();
        Runnable enters = () -> {
            synchronized (MONITOR) {
                sink++;
            }
        };
        for (var body : List.of(enters, (Runnable) LOCK::lock)) {
            var thread = new Thread(body, "wants");
            thread.setDaemon(true);
            thread.start();
            start("wants", body::run);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        MOUNTED.add(start("initializer", Virtual::initializes));
        MOUNTED.add(start("loader", Virtual::loads));
        MOUNTED.add(start("compiled", Virtual::compiles));
        MOUNTED.add(start("moved", Virtual::moves));
        for (int i = 0; i < PARKED; i++) {
            start("parked-" + i, Virtual::forEver);
        }
        hold();
        for (var thread : MOUNTED) {
            settled(thread);
        }
        var text = new StringBuilder();
        for (var thread : MOUNTED) {
            var frames = settled(thread);
            var carrier = thread.toString().replaceFirst(".*@", "");
            text.append("stack ").append(thread.getName()).append(' ').append(carrier);
            text.append('\n');
            for (var frame : frames) {
                text.append(frame.getClassName()).append('.').append(frame.getMethodName());
                text.append(':').append(frame.getLineNumber()).append('\n');
            }
        }
        System.out.print(text + "ready\n");
        Thread.sleep(1L << 40);
    }
}
