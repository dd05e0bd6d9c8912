import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Two threads pass a token back and forth through two blocking queues; the second game counts. */
public class PingPong {
    static final int ROUNDS = 200_000;

    public static void main(String[] arguments) throws Exception {
        long nanoseconds = 0;
        for (int game = 0; game < 2; game++) nanoseconds = play();
        System.out.println(nanoseconds / (2L * ROUNDS) + " ns/hand-off");
    }

    static long play() throws Exception {
        BlockingQueue<Byte> left = new LinkedBlockingQueue<>();
        BlockingQueue<Byte> right = new LinkedBlockingQueue<>();
        Thread first = new Thread(() -> player(left, right));
        Thread second = new Thread(() -> player(right, left));
        long start = System.nanoTime();
        first.start();
        second.start();
        left.put((byte) 1);
        first.join();
        second.join();
        return System.nanoTime() - start;
    }

    static void player(BlockingQueue<Byte> inbox, BlockingQueue<Byte> outbox) {
        try {
            for (int round = 0; round < ROUNDS; round++) outbox.put(inbox.take());
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
