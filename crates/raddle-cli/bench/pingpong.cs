using System;
using System.Diagnostics;
using System.Globalization;
using System.Threading;

// Two threads hand a turn to each other through a monitor; the last of three runs counts.
class PingPong {
  const int Runs = 3;
  static readonly object monitor = new object();
  static int rounds = 300000;
  static int turn;

  static void Play(int me) {
    for (int i = 0; i < rounds; i++) {
      lock (monitor) {
        while (turn != me)
          Monitor.Wait(monitor);
        turn = 1 - me;
        Monitor.PulseAll(monitor);
      }
    }
  }

  static void Main(string[] arguments) {
    if (arguments.Length > 0)
      rounds = int.Parse(arguments[0]);
    double nanoseconds = 0;
    for (int run = 0; run < Runs; run++) {
      Stopwatch watch = Stopwatch.StartNew();
      Thread first = new Thread(() => Play(0));
      Thread second = new Thread(() => Play(1));
      first.Start();
      second.Start();
      first.Join();
      second.Join();
      nanoseconds = watch.Elapsed.TotalMilliseconds * 1e6 / (2.0 * rounds);
      GC.Collect();
    }
    Console.WriteLine(
        "METRIC hand-off " + nanoseconds.ToString("F1", CultureInfo.InvariantCulture) + " ns");
  }
}
