import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;

/**
 * Threads that stay below known chains of methods. A comment "at: THREAD NUMBER METHOD" is at each
 * line that belongs to the chain of a thread, the innermost method first. Threads are warmed up
 * before, so that the compilers have compiled and inlined what they want to.
 *
 * When all threads have arrived, the program prints what the virtual machine itself says of each:
 * "stack THREAD", then CLASS.METHOD:LINE for each method. At last it prints "ready". With a number,
 * so many threads compute from then on.
 */
public class Frames {
    /** Calls of a method until it is compiled by the second compiler, and some more. */
    static final int WARM = 30_000;
    static final Object MONITOR = new Object();
    static final Frames RECEIVER = new Frames();
    static final List<Thread> THREADS = new ArrayList<>();
    static volatile boolean isOwned;
    static volatile long sink;

    interface Body {
        void run() throws Throwable;
    }

    static void forEver() {
        while (true) {
            LockSupport.parkNanos(1L << 60);
        }
    }

    // Object.wait.

    static void waitInner(boolean stays) throws InterruptedException {
        if (stays) {
            var own = new Object();
            synchronized (own) {
                synchronized (MONITOR.getClass()) {
                    sink++;
                }
                own.wait(); // at: wait 1 Frames.waitInner
            }
        }
        sink++;
    }

    static void waitOuter(boolean stays) throws InterruptedException {
        waitInner(stays); // at: wait 2 Frames.waitOuter
    }

    static void waits() throws InterruptedException {
        for (int i = 0; i < WARM; i++) {
            waitOuter(false);
        }
        waitOuter(true); // at: wait 3 Frames.waits
    }

    // LockSupport.park, without a warm-up.

    static void parkInner() {
        while (true) {
            LockSupport.park(RECEIVER); // at: park 1 Frames.parkInner
        }
    }

    static void parks() {
        parkInner(); // at: park 2 Frames.parks
    }

    // A monitor and a synchronized method that another thread owns.

    static void owns() {
        synchronized (MONITOR) {
            synchronized (RECEIVER) {
                isOwned = true;
                forEver(); // at: owner 1 Frames.owns
            }
        }
    }

    static int enterBlock(Object monitor) {
        int before = (int) sink;
        // The interpreter enters a monitor when it has gone on to the next byte of code.
        synchronized (monitor) { before += (int) sink; } // at: block 1 Frames.enterBlock
        return before;
    }

    static void entersBlock() {
        for (int i = 0; i < WARM; i++) {
            sink += enterBlock(THREADS);
        }
        enterBlock(MONITOR); // at: block 2 Frames.entersBlock
    }

    synchronized long enterMethod() {
        return sink; // at: method 1 Frames.enterMethod
    }

    static void entersMethod() {
        var other = new Frames();
        for (int i = 0; i < WARM; i++) {
            sink += other.enterMethod();
        }
        RECEIVER.enterMethod(); // at: method 2 Frames.entersMethod
    }

    // Native methods.

    static void sleepsLong() throws InterruptedException {
        Thread.sleep(1L << 40); // at: sleep 1 Frames.sleepsLong
    }

    static void accepts() throws Exception {
        try (var socket = new java.net.ServerSocket(0)) {
            socket.accept(); // at: accept 1 Frames.accepts
        }
    }

    // Methods that are small enough to be inlined, with a loop.

    static int smallest(int number, boolean stays) {
        if (stays) {
            forEver(); // at: inlined 1 Frames.smallest
        }
        return number * 31;
    }

    static int smaller(int number, boolean stays) {
        return smallest(number, stays) + 1; // at: inlined 2 Frames.smaller
    }

    int small(int number, boolean stays) {
        return number
            + smaller(number, stays); // at: inlined 3 Frames.small
    }

    static int loops(int rounds, boolean stays) {
        int sum = 0;
        for (int i = 0; i < rounds; i++) {
            sum += RECEIVER.small(i, stays && i == rounds - 1); // at: inlined 4 Frames.loops
        }
        return sum;
    }

    static void inlines() {
        for (int i = 0; i < WARM; i++) {
            sink += loops(10, false);
        }
        loops(10, true); // at: inlined 5 Frames.inlines
    }

    // A method that is called once, and compiled in its loop.

    static void isReplaced() {
        long sum = 0;
        for (int i = 0; i <= 4_000_000; i++) {
            sum = sum * 31 + i;
            if (i == 4_000_000) {
                forEver(); // at: loop 1 Frames.isReplaced
            }
        }
        sink = sum;
    }

    // Two methods that call each other.

    static int even(int depth, boolean stays) {
        if (depth == 0) {
            if (stays) {
                forEver();
            }
            return 0;
        }
        return odd(depth - 1, stays) + 1;
    }

    static int odd(int depth, boolean stays) {
        long much = depth * 3L;
        int result = even(depth - 1, stays) + 1;
        return result + (int) (much >> 60);
    }

    static void recurses() {
        for (int i = 0; i < WARM; i++) {
            sink += even(20, false);
        }
        even(200, true);
    }

    // Lambdas, references, method handles, reflection, other methods of the library.

    static int supply(IntSupplier supplier) {
        return supplier.getAsInt() + 1; // at: lambda 2 Frames.supply
    }

    static int supplies(boolean stays) {
        return supply(() -> { // at: lambda 3 Frames.supplies
            if (stays) {
                forEver(); // at: lambda 1 Frames.lambda$supplies$
            }
            return 1;
        });
    }

    static void lambdas() {
        for (int i = 0; i < WARM; i++) {
            sink += supplies(false);
        }
        supplies(true); // at: lambda 4 Frames.lambdas
    }

    static void reflects() throws Throwable {
        var method = Frames.class.getDeclaredMethod("forEver");
        var handles = MethodHandles.lookup();
        var type = MethodType.methodType(Object.class, Object.class, Object[].class);
        var invoke = handles.findVirtual(java.lang.reflect.Method.class, "invoke", type);
        var nothing = invoke.invoke(method, null, new Object[0]); // at: reflect 1 Frames.reflects
        sink += nothing.hashCode();
    }

    static void sorts() {
        var numbers = new Integer[] {3, 1, 2};
        Arrays.sort(numbers, (a, b) -> { // at: sort 2 Frames.sorts
            forEver(); // at: sort 1 Frames.lambda$sorts$
            return a - b;
        });
    }

    static class Text {
        @Override
        public String toString() {
            forEver(); // at: text 1 Frames$Text.toString
            return "";
        }
    }

    static void concatenates() {
        var text = "text " + new Text() + sink; // at: text 2 Frames.concatenates
        sink += text.length();
    }

    // Constructors, initializers, default and bridge methods.

    interface Named {
        default String name() {
            return new Holder(this).toString(); // at: default 2 Frames$Named.name
        }
    }

    static class Holder implements Comparable<Holder> { // at: bridge 3 Frames$Holder.compareTo
        Holder(Object of) {
            if (of instanceof Named) {
                forEver(); // at: default 1 Frames$Holder.<init>
            }
        }

        @Override
        public int compareTo(Holder other) {
            Initialized.touch(); // at: bridge 2 Frames$Holder.compareTo
            return 0;
        }
    }

    static class Initialized {
        static {
            forEver(); // at: bridge 1 Frames$Initialized.<clinit>
        }

        static void touch() {}
    }

    static void defaults() {
        new Named() {}.name(); // at: default 3 Frames.defaults
    }

    static <T extends Comparable<T>> int compare(T one, T other) {
        return one.compareTo(other); // at: bridge 4 Frames.compare
    }

    static void bridges() {
        compare(new Holder(""), new Holder("")); // at: bridge 5 Frames.bridges
    }

    // Code that a class which is loaded later makes invalid while its frames are on the stack.

    abstract static class Shape {
        abstract int sides(boolean stays);
    }

    static class Round extends Shape {
        @Override
        int sides(boolean stays) {
            if (stays) {
                forEver(); // at: invalid 1 Frames$Round.sides
            }
            return 1;
        }
    }

    static class Square extends Shape {
        @Override
        int sides(boolean stays) {
            return 4;
        }
    }

    static int count(Shape shape, boolean stays) {
        return shape.sides(stays) + 1; // at: invalid 2 Frames.count
    }

    static void counts() {
        Shape round = new Round();
        for (int i = 0; i < WARM; i++) {
            sink += count(round, false);
        }
        count(round, true); // at: invalid 3 Frames.counts
    }

    // Methods with many arguments, on the stack and in vector registers.

    static double many(int a, long b, double c, float d, int e, long f, double g, float h, int i,
            long j, double k, float l, boolean stays) {
        if (stays) {
            forEver(); // at: many 1 Frames.many
        }
        return a + b + c + d + e + f + g + h + i + j + k + l;
    }

    static void passesMany() {
        for (int i = 0; i < WARM; i++) {
            sink += (long) many(i, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, false);
        }
        many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, true); // at: many 2 Frames.passesMany
    }

    // Threads that execute: with an argument only.

    static long mix(long number) {
        return (number ^ number >>> 17) * 0x9e3779b97f4a7c15L;
    }

    static long chew(long[] numbers, int rounds) {
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            var copy = Arrays.copyOf(numbers, numbers.length);
            sum += mix(copy[i % copy.length] + i) + (long) Math.sin(i);
        }
        return sum;
    }

    static void computes() {
        var numbers = new long[100];
        while (true) {
            sink += chew(numbers, 100);
            numbers[(int) (sink & 63)] = sink;
        }
    }

    static void start(String name, Body body) {
        var thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable thrown) {
                throw new IllegalStateException(thrown);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        THREADS.add(thread);
    }

    /** Waits until a thread stays where it is. */
    static StackTraceElement[] settled(Thread thread) throws InterruptedException {
        for (int same = 0; ; ) {
            var before = thread.getStackTrace();
            Thread.sleep(20);
            var state = thread.getState();
            boolean stays = state != Thread.State.RUNNABLE || thread.getName().equals("accept");
            same = stays && Arrays.equals(before, thread.getStackTrace()) ? same + 1 : 0;
            if (same == 5) {
                return before;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = arguments.length == 0 ? 0 : Integer.parseInt(arguments[0]);
        start("owner", Frames::owns);
        while (!isOwned) {
            Thread.sleep(1);
        }
        start("wait", Frames::waits);
        start("park", Frames::parks);
        start("block", Frames::entersBlock);
        start("method", Frames::entersMethod);
        start("sleep", Frames::sleepsLong);
        start("accept", Frames::accepts);
        start("inlined", Frames::inlines);
        start("loop", Frames::isReplaced);
        start("recurse", Frames::recurses);
        start("lambda", Frames::lambdas);
        start("reflect", Frames::reflects);
        start("sort", Frames::sorts);
        start("text", Frames::concatenates);
        start("default", Frames::defaults);
        start("bridge", Frames::bridges);
        start("invalid", Frames::counts);
        start("many", Frames::passesMany);
        for (var thread : THREADS) {
            settled(thread);
        }
        sink += count(new Square(), false);
        var text = new StringBuilder();
        for (var thread : THREADS) {
            text.append("stack ").append(thread.getName()).append('\n');
            for (var frame : settled(thread)) {
                text.append(frame.getClassName()).append('.').append(frame.getMethodName());
                text.append(':').append(frame.getLineNumber()).append('\n');
            }
        }
        for (int i = 0; i < count; i++) {
            start("compute-" + i, Frames::computes);
        }
        System.out.print(text + "ready\n");
        Thread.sleep(1L << 40);
    }
}
