//! What reading events costs: CPU time for each event of made streams, from the rings in memory to
//! a history, and to a trace.
//!
//! The rings are in this process and are read as another process's are. The stream is written
//! between the readings and takes no part of the time. `cargo run --release -p raddle-record
//! --example replay` prints a line for each stream and sink; words behind it pick those that have
//! one of these names.

use std::io;
use std::time::Duration;

use raddle_inspect::{EVENT_WORDS, Event, EventKind, Layout, WaitKind};
use raddle_record::clock::{Clock, Moment};
use raddle_record::history::{History, Look};
use raddle_record::order::Order;
use raddle_record::perfetto::PerfettoWriter;
use raddle_record::rings::{From, Lane, Rings};
use raddle_stacks::ProcessMemory;
use rustix::time::{ClockId, clock_gettime};

/// Slots of a ring, as a power of two.
const CAPACITY: u32 = 16;
/// Readings of a stream.
const READINGS: usize = 200;
/// Events that a history is told at a time.
const BATCH: usize = 16;
/// Ticks of the counter between two events.
const TICKS: u64 = 9_000;

/// What `CarrierOffsets::events` tells of: the slots and their number, the first event, and the
/// number of events written; and the carrier's id.
#[repr(C)]
struct Ring {
    place: u64,
    start: u64,
    written: u64,
    id: u64,
}

/// A process with two carriers.
struct Process {
    slots: Vec<Vec<[u64; EVENT_WORDS]>>,
    rings: Box<[Ring; 2]>,
    carriers: Box<[u64; 2]>,
    count: Box<u32>,
    stamp: u64,
}

impl Process {
    fn new() -> Process {
        // A page more: the low bits of a ring's place are its size.
        let slots = || vec![[0; EVENT_WORDS]; (1 << CAPACITY) + 256];
        let slots = vec![slots(), slots()];
        let place = |slots: &[[u64; EVENT_WORDS]]| {
            let at = (slots.as_ptr() as u64).next_multiple_of(4096);
            at | u64::from(CAPACITY)
        };
        let ring = |id: usize| Ring {
            place: place(&slots[id]),
            start: 0,
            written: 0,
            id: id as u64,
        };
        let rings = Box::new([ring(0), ring(1)]);
        let carriers = Box::new([&raw const rings[0] as u64, &raw const rings[1] as u64]);
        Process {
            slots,
            rings,
            carriers,
            count: Box::new(2),
            stamp: 1 << 40,
        }
    }

    /// A layout of which a carrier is its ring.
    fn layout(&self) -> Option<Layout> {
        let mut bytes = vec![0; size_of::<Layout>()];
        bytes[..8].copy_from_slice(&raddle_inspect::LAYOUT_MAGIC);
        bytes[8..12].copy_from_slice(&raddle_inspect::LAYOUT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(size_of::<Layout>() as u32).to_le_bytes());
        let mut layout = Layout::parse(&bytes)?;
        layout.carrier_count = &raw const *self.count as u64;
        layout.carriers = self.carriers.as_ptr() as u64;
        layout.carrier_id = std::mem::offset_of!(Ring, id) as u64;
        Some(layout)
    }

    fn push(&mut self, carrier: usize, kind: EventKind, threads: [u32; 2], wait: (WaitKind, u64)) {
        self.stamp += TICKS;
        let event = Event {
            stamp: self.stamp,
            kind,
            thread: threads[0],
            other: threads[1],
            wait: wait.0,
            arg: wait.1,
        };
        let ring = &mut self.rings[carrier];
        let begin = ring.place & !Layout::RING_CAPACITY;
        let skipped = (begin - self.slots[carrier].as_ptr() as u64) as usize;
        let at = ring.written & ((1 << CAPACITY) - 1);
        let bytes = EVENT_WORDS * 8;
        // Slots needn't begin at one of the array's: all are words.
        let words = self.slots[carrier].as_flattened_mut();
        let first = (skipped + at as usize * bytes) / 8;
        words[first..first + EVENT_WORDS].copy_from_slice(&event.words());
        ring.written += 1;
    }
}

/// A stream: its name, and what carriers do for a number of rounds.
type Stream = (&'static str, fn(&mut Process, u32));

const STREAMS: [Stream; 3] = [("server", server), ("locks", locks), ("pair", pair)];
const TID: u32 = 1 << 22;

/// 500 threads, each of which waits for a descriptor of its own.
fn server(process: &mut Process, round: u32) {
    for number in 0..500u32 {
        let carrier = (number % 2) as usize;
        let thread = |number: u32| TID + (number % 500) * 7;
        let number = number + round;
        // Those of one carrier follow one another.
        let (next, running) = (thread(number + 2), thread(number));
        let wait = |thread: u32| (WaitKind::FD_READ, u64::from(thread % 65_521));
        process.push(carrier, EventKind::WAKE, [next, running], wait(next));
        process.push(carrier, EventKind::SWITCH, [running, next], wait(running));
    }
}

/// 128 threads that wait for descriptors and for eight mutexes.
fn locks(process: &mut Process, round: u32) {
    for number in 0..512u32 {
        let carrier = (number % 2) as usize;
        let thread = |number: u32| TID + (number % 128) * 7;
        let step = number / 128 + round;
        let (next, running) = (thread(number + 2), thread(number));
        let wait = |thread: u32| match step % 4 {
            0 => (WaitKind::FD_READ, u64::from(thread % 65_521)),
            step => (WaitKind::FUTEX, 0x7f00_0000_0000 + u64::from(step * 64)),
        };
        process.push(carrier, EventKind::WAKE, [next, running], wait(next));
        process.push(carrier, EventKind::SWITCH, [running, next], wait(running));
    }
}

/// Two threads on each carrier that wake each other.
fn pair(process: &mut Process, _round: u32) {
    for number in 0..512u32 {
        let carrier = number % 2;
        let (one, other) = (TID + carrier * 2, TID + carrier * 2 + 1);
        let turn = number / 2 % 2;
        let pair = [[one, other], [other, one]][turn as usize];
        let wait = |thread: u32| (WaitKind::FUTEX, 0x1000 + u64::from(thread) * 64);
        let [running, next] = pair;
        let carrier = carrier as usize;
        process.push(carrier, EventKind::WAKE, [next, running], wait(next));
        process.push(carrier, EventKind::SWITCH, [running, next], wait(running));
    }
}

/// What is made of events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    Order,
    History,
    Trace,
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Tells a history events as `raddle record` does.
fn tell(history: &mut History, batch: &mut Vec<(Lane, Event, u64)>) {
    batch.iter().for_each(|(_, event, _)| history.expect(event));
    for (lane, event, boot_ns) in batch.drain(..) {
        history.event(lane, &event, boot_ns);
    }
}

/// Returns the CPU time for an event, in nanoseconds, of readings of so many rounds.
fn measure(stream: &Stream, rounds: u32, sink: Sink) -> io::Result<f64> {
    let mut process = Process::new();
    let layout = process.layout().ok_or_else(|| io::Error::other("layout"))?;
    let memory = ProcessMemory::of(std::process::id());
    let mut rings = Rings::new(layout, From::Now);
    rings.poll(&memory, |_, _| {});
    let mut order = Order::default();
    let at = |stamp, boot_ns| Moment { stamp, boot_ns };
    let mut clock = Clock::between(at(0, 0), at(1 << 40, 1 << 39));
    let mut history = History::new(1 << 39);
    let mut trace = PerfettoWriter::new(io::sink(), 1, Vec::new(), 1 << 39)?;
    let (mut spent, mut count, mut sum) = (Duration::ZERO, 0u64, 0);
    let mut batch = Vec::with_capacity(BATCH);
    for reading in 0..READINGS {
        (0..rounds).for_each(|round| (stream.1)(&mut process, reading as u32 * rounds + round));
        clock.go_on_to(at(process.stamp, process.stamp / 2));
        let begun = cpu();
        let goes_on = rings.poll(&memory, |lane, event| order.add(lane, event));
        order.tell(process.stamp, |lane, event| {
            count += 1;
            let boot_ns = clock.boot_ns(event.stamp);
            match sink {
                Sink::Order => sum ^= boot_ns,
                Sink::History => {
                    batch.push((lane, event, boot_ns));
                    if batch.len() == BATCH {
                        tell(&mut history, &mut batch);
                    }
                }
                Sink::Trace => trace.event(lane, &event, boot_ns).unwrap_or_default(),
            }
        });
        if sink == Sink::History {
            tell(&mut history, &mut batch);
            sum ^= history
                .fresh(Look {
                    mean_ns: 10_000_000,
                    late_ns: 0,
                })
                .len() as u64;
        }
        spent += cpu() - begun;
        assert!(goes_on, "the rings are this process's own");
    }
    std::hint::black_box(sum);
    assert_eq!(rings.lost(&memory), 0);
    Ok(spent.as_nanos() as f64 / count as f64)
}

fn main() -> io::Result<()> {
    let picked: Vec<String> = std::env::args().skip(1).collect();
    let is_picked = |name: &str| picked.is_empty() || picked.iter().any(|it| it == name);
    println!("ns of CPU an event, read 1,000 and 20,000 at a time");
    for stream in &STREAMS {
        for (name, sink) in [
            ("order", Sink::Order),
            ("history", Sink::History),
            ("trace", Sink::Trace),
        ] {
            if !is_picked(stream.0) && !is_picked(name) {
                continue;
            }
            let (few, many) = (measure(stream, 1, sink)?, measure(stream, 20, sink)?);
            println!("{:8} {name:8} {few:6.1} {many:6.1}", stream.0);
        }
    }
    Ok(())
}
