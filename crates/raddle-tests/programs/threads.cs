using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

/// C# programs with threads, on Mono and on .NET. `program.exe CASE` runs one, `--list` prints all.
static class Cases {
    static void Check(bool condition, string what) {
        if (!condition) {
            throw new Exception("failed: " + what);
        }
    }

    /// Runs `body` in `count` threads; the first exception of a thread is thrown here.
    static void InThreads(int count, Action<int> body) {
        Exception first = null;
        var threads = Enumerable.Range(0, count).Select(me => new Thread(() => {
            try {
                body(me);
            } catch (Exception error) {
                Interlocked.CompareExchange(ref first, error, null);
            }
        })).ToArray();
        foreach (var thread in threads) {
            thread.Start();
        }
        foreach (var thread in threads) {
            thread.Join();
        }
        if (first != null) {
            throw new Exception("in a thread", first);
        }
    }

    static void threads_and_locks() {
        var monitor = new object();
        int count = 0, atomic = 0;
        InThreads(50, me => {
            for (int i = 0; i < 1000; i++) {
                lock (monitor) {
                    count++;
                }
                Interlocked.Increment(ref atomic);
            }
        });
        Check(count == 50000 && atomic == 50000, "counts");
    }

    static void many_threads() {
        int count = 0;
        for (int round = 0; round < 5; round++) {
            InThreads(100, me => Interlocked.Increment(ref count));
        }
        Check(count == 500, "count");
    }

    static void monitors_wait_and_pulse() {
        var monitor = new object();
        int turn = 0;
        InThreads(10, me => {
            for (int i = 0; i < 100; i++) {
                lock (monitor) {
                    while (turn % 10 != me) {
                        Monitor.Wait(monitor);
                    }
                    turn++;
                    Monitor.PulseAll(monitor);
                }
            }
        });
        Check(turn == 1000, "turns");
        var watch = Stopwatch.StartNew();
        lock (monitor) {
            Check(!Monitor.Wait(monitor, 40), "timed out");
        }
        Check(watch.ElapsedMilliseconds >= 35, "took its time");
    }

    static void two_threads_take_turns() {
        var monitor = new object();
        int turn = 0;
        InThreads(2, me => {
            for (int i = 0; i < 5000; i++) {
                lock (monitor) {
                    while (turn != me) {
                        Monitor.Wait(monitor);
                    }
                    turn = 1 - me;
                    Monitor.PulseAll(monitor);
                }
            }
        });
    }

    static void events_and_semaphores() {
        var gate = new ManualResetEvent(false);
        var slots = new SemaphoreSlim(3);
        var automatic = new AutoResetEvent(false);
        int inside = 0, woken = 0;
        var threads = Enumerable.Range(0, 10).Select(me => new Thread(() => {
            gate.WaitOne();
            slots.Wait();
            Check(Interlocked.Increment(ref inside) <= 3, "at most 3");
            Thread.Sleep(1);
            Interlocked.Decrement(ref inside);
            slots.Release();
            automatic.WaitOne();
            Interlocked.Increment(ref woken);
        })).ToList();
        threads.ForEach(thread => thread.Start());
        gate.Set();
        while (Volatile.Read(ref woken) < 10) {
            automatic.Set();
            Thread.Sleep(1);
        }
        threads.ForEach(thread => thread.Join());
        Check(!new ManualResetEvent(false).WaitOne(20), "timed out");
        var both = new WaitHandle[] { new AutoResetEvent(false), new AutoResetEvent(true) };
        Check(WaitHandle.WaitAny(both, 10000) == 1, "the second");
    }

    static void the_thread_pool() {
        int done = 0;
        var all = new CountdownEvent(200);
        for (int i = 0; i < 200; i++) {
            ThreadPool.QueueUserWorkItem(_ => {
                Interlocked.Increment(ref done);
                all.Signal();
            });
        }
        Check(all.Wait(30000) && done == 200, "all ran");
    }

    static async Task<int> Twice(int value) {
        await Task.Delay(5);
        await Task.Yield();
        return value * 2;
    }

    static void tasks_and_await() {
        var results = Task.WhenAll(Enumerable.Range(0, 100).Select(i => Twice(i))).Result;
        Check(results.Sum() == 9900, "sum");
        long sum = 0;
        Parallel.For(0, 1000, i => Interlocked.Add(ref sum, i));
        Check(sum == 499500, "parallel");
        var failing = Task.Run(() => { throw new InvalidOperationException(); });
        try {
            failing.Wait();
            Check(false, "thrown");
        } catch (AggregateException error) {
            Check(error.InnerException is InvalidOperationException, "type");
        }
    }

    static void blocking_collections() {
        var queue = new BlockingCollection<int>(10);
        long sum = 0;
        InThreads(8, me => {
            for (int i = 1; i <= 500; i++) {
                if (me % 2 == 0) {
                    queue.Add(i);
                } else {
                    Interlocked.Add(ref sum, queue.Take());
                }
            }
        });
        Check(sum == 4 * 500 * 501 / 2, "sum");
    }

    static void garbage_collection_with_50_threads() {
        var shelf = new ConcurrentDictionary<int, byte[]>();
        int caught = 0;
        InThreads(50, me => {
            var random = new Random(me);
            for (int k = 0; k < 1000; k++) {
                shelf[random.Next(2000)] = new byte[random.Next(2000)];
                if (k % 250 == 0) {
                    Thread.Sleep(1);
                    try {
                        throw new Exception("on purpose");
                    } catch (Exception) {
                        Interlocked.Increment(ref caught);
                    }
                }
                if (me == 0 && k % 200 == 0) {
                    GC.Collect();
                }
            }
        });
        Check(caught == 200, "caught");
    }

    static void compute_loops_stop_for_the_collector() {
        int stop = 0;
        var threads = Enumerable.Range(0, 6).Select(me => new Thread(() => {
            long sum = 0;
            while (Volatile.Read(ref stop) == 0) {
                sum = sum * 31 + 7;
            }
        })).ToList();
        threads.ForEach(thread => thread.Start());
        for (int i = 0; i < 5; i++) {
            Thread.Sleep(10);
            GC.Collect();
        }
        Volatile.Write(ref stop, 1);
        threads.ForEach(thread => thread.Join());
    }

    [ThreadStatic] static int local;

    static void statics_of_threads() {
        var slot = new ThreadLocal<int>(() => 5);
        InThreads(20, me => {
            Check(local == 0 && slot.Value == 5, "fresh");
            for (int i = 0; i < 100; i++) {
                local = slot.Value = me * 1000 + i;
                Thread.Yield();
                Check(local == me * 1000 + i && slot.Value == local, "kept");
            }
        });
    }

    static void null_references_are_exceptions() {
        InThreads(10, me => {
            int caught = 0;
            for (int i = 0; i < 50; i++) {
                string text = i % 2 == 0 ? null : "text";
                try {
                    Check(text.Length == 4, "length");
                } catch (NullReferenceException) {
                    caught++;
                }
            }
            Check(caught == 25, "caught");
        });
    }

    static void interrupt_wakes_a_sleep() {
        bool interrupted = false;
        var thread = new Thread(() => {
            try {
                Thread.Sleep(100000);
            } catch (ThreadInterruptedException) {
                interrupted = true;
            }
        });
        thread.Start();
        Thread.Sleep(30);
        thread.Interrupt();
        thread.Join();
        Check(interrupted, "interrupted");
    }

    static void sockets() {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start(64);
        int port = ((IPEndPoint)listener.LocalEndpoint).Port;
        var server = new Thread(() => {
            for (int i = 0; i < 20; i++) {
                var peer = listener.AcceptTcpClient();
                new Thread(() => {
                    var stream = peer.GetStream();
                    var data = new byte[256];
                    for (int n; (n = stream.Read(data, 0, data.Length)) > 0;) {
                        stream.Write(data, 0, n);
                    }
                    peer.Close();
                }).Start();
            }
        });
        server.Start();
        InThreads(20, me => {
            using (var client = new TcpClient("127.0.0.1", port)) {
                var stream = client.GetStream();
                for (int i = 0; i < 20; i++) {
                    stream.WriteByte((byte)(me + i));
                    Check(stream.ReadByte() == (byte)(me + i), "echo");
                }
            }
        });
        server.Join();
    }

    static void processes() {
        InThreads(4, me => {
            var start = new ProcessStartInfo("/bin/sh", "-c \"echo said; exit " + me + "\"") {
                RedirectStandardOutput = true, UseShellExecute = false
            };
            using (var child = Process.Start(start)) {
                Check(child.StandardOutput.ReadToEnd() == "said\n", "output");
                child.WaitForExit();
                Check(child.ExitCode == me, "status");
            }
        });
    }

    static void exit_with_live_threads() {
        for (int i = 0; i < 20; i++) {
            new Thread(() => Thread.Sleep(1000000)).Start();
        }
        Console.WriteLine("ok exit_with_live_threads");
        Environment.Exit(3);
    }

    static readonly Action[] All = {
        threads_and_locks, many_threads, monitors_wait_and_pulse, two_threads_take_turns,
        events_and_semaphores, the_thread_pool, tasks_and_await, blocking_collections,
        garbage_collection_with_50_threads, compute_loops_stop_for_the_collector,
        statics_of_threads, null_references_are_exceptions, interrupt_wakes_a_sleep, sockets,
        processes, exit_with_live_threads,
    };

    static void Main(string[] arguments) {
        foreach (var body in All) {
            if (arguments[0] == "--list") {
                Console.WriteLine(body.Method.Name);
            } else if (arguments[0] == body.Method.Name) {
                body();
                Console.WriteLine("ok " + body.Method.Name);
            }
        }
    }
}
