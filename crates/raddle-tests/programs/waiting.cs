using System;
using System.Threading;

/// A hundred threads that wait for ever.
static class Waiting {
    static void Main() {
        var arrived = new CountdownEvent(100);
        var never = new ManualResetEventSlim();
        for (int i = 0; i < 100; i++) {
            new Thread(() => {
                arrived.Signal();
                never.Wait();
            }).Start();
        }
        arrived.Wait();
        Console.WriteLine("waiting");
        never.Wait();
    }
}
