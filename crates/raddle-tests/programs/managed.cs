using System;
using System.Threading;

/// Three threads that wait in a monitor, and one that sleeps. Says "ready".
static class Managed {
    static readonly object Never = new object();

    static void WaitForEver() {
        lock (Never) {
            Monitor.Wait(Never);
        }
    }

    static void Main() {
        for (int i = 0; i < 3; i++) {
            var thread = new Thread(WaitForEver);
            thread.IsBackground = true;
            thread.Start();
        }
        Thread.Sleep(500);
        Console.WriteLine("ready");
        Thread.Sleep(1000000);
    }
}
