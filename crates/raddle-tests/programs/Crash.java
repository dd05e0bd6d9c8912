import java.lang.reflect.Field;

/** Crashes natively in a thread called `crasher`, or waits for a crash. */
public class Crash {
    public static void main(String[] arguments) throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        sun.misc.Unsafe unsafe = (sun.misc.Unsafe) field.get(null);
        for (int i = 0; i < 10; i++) {
            Thread thread = new Thread(() -> sleep(100_000), "sleeper");
            thread.setDaemon(true);
            thread.start();
        }
        Thread crasher = new Thread(() -> {
            System.out.println("ready");
            sleep(arguments[0].equals("alone") ? 100 : 100_000);
            unsafe.putAddress(0, 1);
        }, "crasher");
        crasher.start();
        crasher.join();
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
