import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;

/** PingPong with the JDK's virtual threads in the place of platform threads. */
public class VirtualPingPong {
    static final int RUNS = 3;
    static final ExecutorService THREAD_POOL = Executors.newVirtualThreadPerTaskExecutor();

    public static void main(String[] arguments) throws Exception {
        int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 1_000_000;
        long elapsed = 0;
        for (int run = 0; run < RUNS; run++) {
            BlockingQueue<Byte> there = new LinkedBlockingQueue<>();
            BlockingQueue<Byte> back = new LinkedBlockingQueue<>();
            THREAD_POOL.submit(() -> pingPong(back, there, rounds));
            Future<Long> last = THREAD_POOL.submit(() -> pingPong(there, back, rounds));
            there.put((byte) 1);
            elapsed = last.get();
        }
        THREAD_POOL.shutdownNow();
        System.out.println("METRIC hand-off " + elapsed / (2.0 * rounds) + " ns");
    }

    private static long pingPong(BlockingQueue<Byte> in, BlockingQueue<Byte> out, int rounds)
            throws Exception {
        long start = System.nanoTime();
        for (int i = 0; i < rounds; i++) {
            out.put(in.take());
        }
        return System.nanoTime() - start;
    }
}
