import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.IntStream;

/** Java programs with threads. `Threads CASE` runs one case, `--list` prints all. */
public class Threads {
    interface Body {
        void run() throws Exception;
    }

    interface Indexed {
        void run(int me) throws Exception;
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Runs `body` in `count` threads; the first exception of a thread is thrown here. */
    static void inThreads(int count, Indexed body) throws Exception {
        AtomicReference<Throwable> first = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int me = i;
            threads.add(new Thread(() -> {
                try {
                    body.run(me);
                } catch (Throwable error) {
                    first.compareAndSet(null, error);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (first.get() != null) {
            throw new Exception(first.get());
        }
    }

    static void start_and_join() throws Exception {
        AtomicInteger count = new AtomicInteger();
        for (int round = 0; round < 10; round++) {
            inThreads(100, me -> count.incrementAndGet());
        }
        check(count.get() == 1000, "all ran");
    }

    static void interrupt_wakes_every_wait() throws Exception {
        Object monitor = new Object();
        Body[] waits = {
            () -> Thread.sleep(100_000),
            () -> { synchronized (monitor) { monitor.wait(); } },
            () -> new CountDownLatch(1).await(),
            () -> new LinkedBlockingQueue<Integer>().take(),
        };
        for (int i = 0; i < 4; i++) {
            Body wait = waits[i];
            AtomicBoolean interrupted = new AtomicBoolean();
            Thread thread = new Thread(() -> {
                try {
                    wait.run();
                } catch (InterruptedException expected) {
                    interrupted.set(true);
                } catch (Exception other) {
                    throw new RuntimeException(other);
                }
            });
            thread.start();
            Thread.sleep(10);
            thread.interrupt();
            thread.join();
            check(interrupted.get(), "wait " + i);
        }
    }

    static void executors() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(20);
        List<Future<Integer>> results = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
            int value = i;
            results.add(pool.submit(() -> {
                if (value % 50 == 0) {
                    Thread.sleep(5);
                }
                return value * 2;
            }));
        }
        for (int i = 0; i < 500; i++) {
            check(results.get(i).get() == 2 * i, "result " + i);
        }
        pool.shutdown();
        check(pool.awaitTermination(30, TimeUnit.SECONDS), "terminated");
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(2);
        CountDownLatch ticks = new CountDownLatch(5);
        timer.scheduleAtFixedRate(ticks::countDown, 5, 5, TimeUnit.MILLISECONDS);
        check(ticks.await(30, TimeUnit.SECONDS), "ticks");
        timer.shutdownNow();
    }

    static void fork_join_and_streams() {
        long sum = IntStream.range(0, 200_000).parallel().mapToLong(i -> i).sum();
        check(sum == 199_999L * 100_000, "sum");
        CompletableFuture<Integer> future = CompletableFuture.completedFuture(0);
        for (int i = 0; i < 100; i++) {
            future = future.thenApplyAsync(value -> value + 1);
        }
        check(future.join() == 100, "chain");
    }

    static int turn;

    static void wait_and_notify() throws Exception {
        Object monitor = new Object();
        inThreads(10, me -> {
            for (int i = 0; i < 100; i++) {
                synchronized (monitor) {
                    while (turn % 10 != me) {
                        monitor.wait();
                    }
                    turn++;
                    monitor.notifyAll();
                }
            }
        });
        check(turn == 1000, "turns");
    }

    static void queues_hand_over() throws Exception {
        BlockingQueue<Integer> there = new LinkedBlockingQueue<>();
        BlockingQueue<Integer> back = new SynchronousQueue<>();
        Thread thread = new Thread(() -> {
            try {
                for (int i = 0; i < 20_000; i++) {
                    back.put(there.take() + 1);
                }
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            }
        });
        thread.start();
        for (int i = 0; i < 20_000; i++) {
            there.put(i);
            check(back.take() == i + 1, "item " + i);
        }
        thread.join();
    }

    static long counter;

    static void contended_monitors_and_locks() throws Exception {
        Object monitor = new Object();
        ReentrantLock lock = new ReentrantLock(true);
        long[] counts = new long[2];
        inThreads(20, me -> {
            for (int i = 0; i < 2000; i++) {
                synchronized (monitor) {
                    counts[0]++;
                }
                if (i % 20 == 0) {
                    lock.lock();
                    try {
                        counts[1]++;
                    } finally {
                        lock.unlock();
                    }
                }
            }
        });
        check(counts[0] == 40_000 && counts[1] == 2000, "counts");
    }

    static void park_and_unpark() throws Exception {
        AtomicInteger token = new AtomicInteger();
        Thread[] both = new Thread[2];
        for (int i = 0; i < 2; i++) {
            int me = i;
            both[i] = new Thread(() -> {
                for (int k = 0; k < 10_000; k++) {
                    while (token.get() % 2 != me) {
                        LockSupport.park();
                    }
                    token.incrementAndGet();
                    LockSupport.unpark(both[1 - me]);
                }
            });
        }
        both[0].start();
        both[1].start();
        both[0].join();
        both[1].join();
        check(token.get() == 20_000, "tokens");
        long started = System.nanoTime();
        LockSupport.parkNanos(20_000_000);
        check(System.nanoTime() - started < 10_000_000_000L, "parkNanos");
    }

    static void sockets() throws Exception {
        ServerSocket listener = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());
        Thread server = new Thread(() -> {
            try {
                for (int i = 0; i < 30; i++) {
                    Socket peer = listener.accept();
                    new Thread(() -> echo(peer)).start();
                }
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        server.start();
        inThreads(30, me -> {
            try (Socket socket = new Socket(listener.getInetAddress(), listener.getLocalPort())) {
                DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                DataInputStream in = new DataInputStream(socket.getInputStream());
                for (int i = 0; i < 20; i++) {
                    out.writeInt(me * 100 + i);
                    check(in.readInt() == me * 100 + i, "echo");
                }
                socket.setSoTimeout(20);
                try {
                    in.readInt();
                    check(false, "read something");
                } catch (SocketTimeoutException expected) {
                    socket.shutdownOutput();
                }
            }
        });
        server.join();
    }

    static void echo(Socket peer) {
        try (peer) {
            byte[] data = new byte[4096];
            for (int n; (n = peer.getInputStream().read(data)) > 0;) {
                peer.getOutputStream().write(data, 0, n);
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void selectors() throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        InetSocketAddress address = (InetSocketAddress) listener.getLocalAddress();
        AtomicBoolean stop = new AtomicBoolean();
        Thread loop = new Thread(() -> {
            try {
                while (!stop.get()) {
                    selector.select(Threads::serveKey);
                }
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        });
        loop.start();
        inThreads(10, me -> {
            try (SocketChannel channel = SocketChannel.open(address)) {
                for (int i = 0; i < 20; i++) {
                    ByteBuffer buffer = ByteBuffer.allocate(4).putInt(me * 50 + i).flip();
                    channel.write(buffer);
                    buffer.clear();
                    while (buffer.hasRemaining()) {
                        check(channel.read(buffer) > 0, "read");
                    }
                    check(buffer.flip().getInt() == me * 50 + i, "echo");
                }
            }
        });
        stop.set(true);
        selector.wakeup();
        loop.join();
    }

    static void serveKey(SelectionKey key) {
        try {
            if (key.isAcceptable()) {
                SocketChannel peer = ((ServerSocketChannel) key.channel()).accept();
                peer.configureBlocking(false);
                peer.register(key.selector(), SelectionKey.OP_READ);
                return;
            }
            ByteBuffer buffer = ByteBuffer.allocate(256);
            SocketChannel peer = (SocketChannel) key.channel();
            if (peer.read(buffer) < 0) {
                peer.close();
            } else {
                peer.write(buffer.flip());
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void garbage_collection_with_100_threads() throws Exception {
        Map<Integer, byte[]> shelf = new ConcurrentHashMap<>();
        Object monitor = new Object();
        AtomicLong caught = new AtomicLong();
        inThreads(100, me -> {
            Random random = new Random(me);
            for (int k = 0; k < 3000; k++) {
                shelf.put(random.nextInt(5000), new byte[random.nextInt(2000)]);
                if (k % 100 == 0) {
                    synchronized (monitor) {
                        turn += shelf.size() & 1;
                    }
                }
                if (k % 1000 == 500) {
                    Thread.sleep(1);
                    try {
                        throw new IllegalStateException("on purpose");
                    } catch (IllegalStateException expected) {
                        caught.incrementAndGet();
                    }
                }
                if (me == 0 && k % 1000 == 0) {
                    System.gc();
                }
            }
        });
        check(caught.get() == 300, "caught");
    }

    static int depth(int n) {
        return n == 0 ? 0 : 1 + depth(n - 1);
    }

    static int endless(int n) {
        return endless(n + 1) + 1;
    }

    static void stacks_overflow_safely() throws Exception {
        inThreads(10, me -> {
            check(depth(2000) == 2000, "depth");
            try {
                endless(0);
                check(false, "endless");
            } catch (StackOverflowError expected) {
                check(depth(100) == 100, "after");
            }
        });
    }

    static void null_pointers_are_exceptions() throws Exception {
        inThreads(20, me -> {
            int caught = 0;
            for (int i = 0; i < 2000; i++) {
                String text = i % 2 == 0 ? null : "text";
                try {
                    counter += text.length();
                } catch (NullPointerException expected) {
                    caught++;
                }
            }
            check(caught == 1000, "caught");
        });
    }

    static void compute_loops_stop_for_the_collector() throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        Thread[] threads = new Thread[6];
        for (int i = 0; i < 6; i++) {
            threads[i] = new Thread(() -> {
                long sum = 0;
                while (!stop.get()) {
                    sum = sum * 31 + 7;
                }
                counter = sum;
            });
            threads[i].start();
        }
        for (int i = 0; i < 5; i++) {
            Thread.sleep(10);
            System.gc();
        }
        stop.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void thread_dumps() throws Exception {
        CountDownLatch gate = new CountDownLatch(1);
        Thread[] threads = new Thread[20];
        for (int i = 0; i < 20; i++) {
            threads[i] = new Thread(() -> {
                try {
                    gate.await();
                } catch (InterruptedException error) {
                    throw new RuntimeException(error);
                }
            }, "dumped " + i);
            threads[i].start();
        }
        for (int i = 0; i < 20; i++) {
            long found = Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("dumped")).count();
            check(found == 20, "found " + found);
        }
        gate.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void processes() throws Exception {
        inThreads(4, me -> {
            Process child = new ProcessBuilder("sh", "-c", "read x; echo got $x; exit " + me)
                .redirectErrorStream(true).start();
            child.getOutputStream().write("word\n".getBytes());
            child.getOutputStream().close();
            BufferedReader output =
                new BufferedReader(new InputStreamReader(child.getInputStream()));
            check("got word".equals(output.readLine()), "output");
            check(child.waitFor() == me, "status");
        });
    }

    static void exit_with_live_threads() {
        for (int i = 0; i < 50; i++) {
            new Thread(() -> LockSupport.park()).start();
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            System.out.println("ok exit_with_live_threads")));
        System.exit(3);
    }

    static void an_uncaught_exception_ends_with_1() throws Exception {
        Thread thread = new Thread(() -> { throw new IllegalStateException("on purpose"); });
        thread.setUncaughtExceptionHandler((who, what) ->
            System.out.println("ok an_uncaught_exception_ends_with_1"));
        thread.start();
        thread.join();
        throw new IllegalStateException("on purpose");
    }

    static final Map<String, Body> CASES = new LinkedHashMap<>();

    static {
        CASES.put("start_and_join", Threads::start_and_join);
        CASES.put("interrupt_wakes_every_wait", Threads::interrupt_wakes_every_wait);
        CASES.put("executors", Threads::executors);
        CASES.put("fork_join_and_streams", Threads::fork_join_and_streams);
        CASES.put("wait_and_notify", Threads::wait_and_notify);
        CASES.put("queues_hand_over", Threads::queues_hand_over);
        CASES.put("contended_monitors_and_locks", Threads::contended_monitors_and_locks);
        CASES.put("park_and_unpark", Threads::park_and_unpark);
        CASES.put("sockets", Threads::sockets);
        CASES.put("selectors", Threads::selectors);
        CASES.put("garbage_collection_with_100_threads",
            Threads::garbage_collection_with_100_threads);
        CASES.put("stacks_overflow_safely", Threads::stacks_overflow_safely);
        CASES.put("null_pointers_are_exceptions", Threads::null_pointers_are_exceptions);
        CASES.put("compute_loops_stop_for_the_collector",
            Threads::compute_loops_stop_for_the_collector);
        CASES.put("thread_dumps", Threads::thread_dumps);
        CASES.put("processes", Threads::processes);
        CASES.put("exit_with_live_threads", Threads::exit_with_live_threads);
        CASES.put("an_uncaught_exception_ends_with_1",
            Threads::an_uncaught_exception_ends_with_1);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--list")) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        CASES.get(arguments[0]).run();
        System.out.println("ok " + arguments[0]);
    }
}
