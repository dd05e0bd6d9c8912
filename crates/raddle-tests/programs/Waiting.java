import java.util.concurrent.CountDownLatch;

/** A hundred threads that wait for ever. */
public class Waiting {
    public static void main(String[] arguments) throws InterruptedException {
        var arrived = new CountDownLatch(100);
        var never = new CountDownLatch(1);
        for (int i = 0; i < 100; i++) {
            new Thread(() -> {
                arrived.countDown();
                try {
                    never.await();
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            }).start();
        }
        arrived.await();
        System.out.println("waiting");
        never.await();
    }
}
