//! A trace for Perfetto (<https://ui.perfetto.dev>), written as the events come.
//!
//! Carriers are shown as CPUs: their events are those of the kernel's scheduler, `sched_switch` and
//! `sched_waking`, because all of Perfetto's views and tables of threads are made of these: what
//! ran where, how long a thread was runnable, what woke it. What a thread waits for is a slice on
//! the thread's track, from the moment at which it stops running to the one at which it runs again.
//!
//! Format: <https://perfetto.dev/docs/reference/trace-packet-proto>. Times are CLOCK_BOOTTIME.

mod messages;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use prost::Message;
use raddle_inspect::{Event, EventKind, WaitKind};

use crate::rings::Lane;
use messages::{
    Clock, ClockSnapshot, FtraceEvent, FtraceEventBundle, Process, ProcessTree, SchedSwitch,
    SchedWaking, Thread, ThreadDescriptor, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Linux's clock ids.
const BOOTTIME: u32 = 6;
/// Of a thread that was runnable when it stopped running, as `sched_switch` says.
const RUNNABLE: i64 = 0;
/// Of one that waits.
const SLEEPING: i64 = 1;
/// Of one that has ended.
const DEAD: i64 = 16;
/// The priority that Linux shows for nice 0.
const PRIORITY: i32 = 120;
/// All slices come from one sequence of packets.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: u32 = 1;
const SLICE_END: u32 = 2;
/// In `sequence_flags`: nothing before counts.
const STATE_CLEARED: u32 = 1;
/// Scheduler events that are kept until they are written in one packet.
const BUNDLE: usize = 512;

/// Writes a trace.
pub struct PerfettoWriter<W> {
    output: W,
    pid: i32,
    /// Names of threads, by their ids.
    names: HashMap<u32, String>,
    /// Threads with a track.
    tracks: HashSet<u32>,
    /// Threads with an open slice.
    waiting: HashSet<u32>,
    /// Scheduler events of each lane that aren't written yet.
    bundles: HashMap<u32, Vec<FtraceEvent>>,
    counts: Counts,
}

/// How many events of each kind were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a thread began to run.
    pub runs: u64,
    pub wakes: u64,
}

impl<W: Write> PerfettoWriter<W> {
    /// Begins a trace of the process `pid`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        let mut writer = PerfettoWriter {
            output,
            pid: pid as i32,
            names: HashMap::new(),
            tracks: HashSet::new(),
            waiting: HashSet::new(),
            bundles: HashMap::new(),
            counts: Counts::default(),
        };
        writer.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![Clock {
                    clock_id: Some(BOOTTIME),
                    timestamp: Some(boot_ns),
                }],
                primary_trace_clock: Some(BOOTTIME),
            }),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            ..TracePacket::default()
        })?;
        writer.packet(TracePacket {
            timestamp: Some(boot_ns),
            process_tree: Some(ProcessTree {
                processes: vec![Process {
                    pid: Some(writer.pid),
                    cmdline: command,
                }],
                threads: Vec::new(),
            }),
            ..TracePacket::default()
        })?;
        Ok(writer)
    }

    /// Tells a thread's name.
    ///
    /// # Errors
    /// Those of the output.
    pub fn name(&mut self, tid: u32, name: &str) -> io::Result<()> {
        if self.names.get(&tid).is_some_and(|known| known == name) {
            return Ok(());
        }
        self.names.insert(tid, name.to_owned());
        self.packet(TracePacket {
            process_tree: Some(ProcessTree {
                processes: Vec::new(),
                threads: vec![Thread {
                    tid: Some(tid as i32),
                    name: Some(name.to_owned()),
                    tgid: Some(self.pid),
                }],
            }),
            ..TracePacket::default()
        })
    }

    /// Returns true if the thread has a name here.
    pub fn knows(&self, tid: u32) -> bool {
        self.names.contains_key(&tid)
    }

    /// Writes an event that happened at `boot_ns`. Events come in the order of time.
    ///
    /// # Errors
    /// Those of the output.
    pub fn event(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        match event.kind {
            EventKind::SWITCH | EventKind::END => self.switch(lane, event, boot_ns),
            EventKind::WAKE | EventKind::CREATE => self.wake(lane, event, boot_ns),
            _ => Ok(()),
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        let is_end = event.kind == EventKind::END;
        let is_runnable = matches!(event.wait, WaitKind::YIELD | WaitKind::NONE);
        let state = match (is_end, is_runnable) {
            (true, _) => DEAD,
            (_, true) => RUNNABLE,
            _ => SLEEPING,
        };
        if event.other != 0 {
            self.counts.runs += 1;
        }
        let switch = SchedSwitch {
            prev_comm: self.comm(event.thread),
            prev_pid: Some(event.thread as i32),
            prev_prio: Some(PRIORITY),
            prev_state: Some(state),
            next_comm: self.comm(event.other),
            next_pid: Some(event.other as i32),
            next_prio: Some(PRIORITY),
        };
        self.scheduled(lane, FtraceEvent {
            timestamp: Some(boot_ns),
            pid: Some(event.thread),
            sched_switch: Some(switch),
            ..FtraceEvent::default()
        })?;
        if event.thread != 0 && state == SLEEPING {
            self.begin_wait(event, boot_ns)?;
        }
        if event.other != 0 && self.waiting.remove(&event.other) {
            self.slice(event.other, SLICE_END, None, boot_ns)?;
        }
        Ok(())
    }

    fn wake(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        self.counts.wakes += 1;
        let cpu = cpu_of(lane) as i32;
        let waking = SchedWaking {
            comm: self.comm(event.thread),
            pid: Some(event.thread as i32),
            prio: Some(PRIORITY),
            success: Some(1),
            target_cpu: Some(cpu),
        };
        self.scheduled(lane, FtraceEvent {
            timestamp: Some(boot_ns),
            pid: Some(event.other),
            sched_waking: Some(waking),
            ..FtraceEvent::default()
        })
    }

    fn comm(&self, tid: u32) -> Option<String> {
        match tid {
            0 => Some("swapper".into()),
            _ => self.names.get(&tid).cloned(),
        }
    }

    fn begin_wait(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        if self.waiting.insert(event.thread) {
            let name = wait_name(event);
            self.slice(event.thread, SLICE_BEGIN, Some(name), boot_ns)?;
        }
        Ok(())
    }

    fn slice(&mut self, tid: u32, kind: u32, name: Option<String>, at: u64) -> io::Result<()> {
        let uuid = self.track(tid)?;
        self.packet(TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(TrackEvent {
                r#type: Some(kind),
                track_uuid: Some(uuid),
                categories: name.iter().map(|_| "wait".to_owned()).collect(),
                name,
                counter_value: None,
            }),
            ..TracePacket::default()
        })
    }

    /// Returns the id of a thread's track.
    fn track(&mut self, tid: u32) -> io::Result<u64> {
        let uuid = u64::from(tid) << 1 | 1;
        if self.tracks.insert(tid) {
            let thread = ThreadDescriptor {
                pid: Some(self.pid),
                tid: Some(i64::from(tid)),
                thread_name: self.comm(tid),
            };
            self.packet(TracePacket {
                trusted_packet_sequence_id: Some(SEQUENCE),
                track_descriptor: Some(TrackDescriptor {
                    uuid: Some(uuid),
                    thread: Some(thread),
                    ..TrackDescriptor::default()
                }),
                ..TracePacket::default()
            })?;
        }
        Ok(uuid)
    }

    fn scheduled(&mut self, lane: Lane, event: FtraceEvent) -> io::Result<()> {
        let cpu = cpu_of(lane);
        let bundle = self.bundles.entry(cpu).or_default();
        bundle.push(event);
        if bundle.len() < BUNDLE {
            return Ok(());
        }
        let events = std::mem::take(bundle);
        self.bundle(cpu, events)
    }

    fn bundle(&mut self, cpu: u32, event: Vec<FtraceEvent>) -> io::Result<()> {
        self.packet(TracePacket {
            ftrace_events: Some(FtraceEventBundle {
                cpu: Some(cpu),
                event,
                lost_events: None,
            }),
            ..TracePacket::default()
        })
    }

    /// Writes what is left, ends the waits that are open, and returns how many events there were.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self, boot_ns: u64) -> io::Result<Counts> {
        let mut open: Vec<_> = self.waiting.drain().collect();
        open.sort_unstable();
        for tid in open {
            self.slice(tid, SLICE_END, None, boot_ns)?;
        }
        let mut left: Vec<_> = self.bundles.drain().collect();
        left.sort_unstable_by_key(|&(cpu, _)| cpu);
        for (cpu, events) in left.into_iter().filter(|(_, events)| !events.is_empty()) {
            self.bundle(cpu, events)?;
        }
        self.output.flush()?;
        Ok(self.counts)
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let trace = Trace {
            packet: vec![packet],
        };
        self.output.write_all(&trace.encode_to_vec())
    }
}

/// The CPU as which a lane is shown. Kernel threads that are no carriers share one behind all.
fn cpu_of(lane: Lane) -> u32 {
    match lane {
        Lane::Carrier(id) => id,
        Lane::Other => OTHERS,
    }
}

/// Perfetto refuses numbers of CPUs from 4096 on.
const OTHERS: u32 = 4095;

/// Names what a thread waits for: the kind, and the object if there is one.
fn wait_name(event: &Event) -> String {
    let word = event.wait.word();
    match event.wait {
        WaitKind::FUTEX
        | WaitKind::CONDVAR
        | WaitKind::SEMAPHORE
        | WaitKind::MUTEX
        | WaitKind::JOIN => format!("{word} {:#x}", event.arg),
        WaitKind::FD_READ | WaitKind::FD_WRITE => format!("{word} {}", event.arg),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, thread: u32, other: u32, wait: WaitKind) -> Event {
        Event {
            stamp: 1,
            kind,
            thread,
            other,
            wait,
            arg: 0x1000,
        }
    }

    #[test]
    fn switches_wakes_and_waits_are_written() {
        let mut bytes = Vec::new();
        let mut writer = PerfettoWriter::new(&mut bytes, 7, vec!["a".into()], 1).unwrap();
        writer.name(7, "main").unwrap();
        writer.name(8, "worker").unwrap();
        let lane = Lane::Carrier(3);
        let waits = event(EventKind::SWITCH, 8, 7, WaitKind::MUTEX);
        writer.event(lane, &waits, 100).unwrap();
        let woken = event(EventKind::WAKE, 8, 7, WaitKind::MUTEX);
        writer.event(lane, &woken, 200).unwrap();
        let ends = event(EventKind::END, 7, 8, WaitKind::NONE);
        writer.event(lane, &ends, 300).unwrap();
        assert_eq!(writer.finish(400).unwrap(), Counts { runs: 2, wakes: 1 });
        let trace = Trace::decode(&bytes[..]).unwrap();
        let slices: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| Some((packet.timestamp?, packet.track_event.clone()?)))
            .map(|(at, slice)| (at, slice.r#type.unwrap(), slice.name.unwrap_or_default()))
            .collect();
        let name = "mutex 0x1000".to_owned();
        assert_eq!(slices, [(100, SLICE_BEGIN, name), (300, SLICE_END, String::new())]);
        let bundles: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| packet.ftrace_events.as_ref())
            .collect();
        let [bundle] = bundles[..] else {
            panic!("one bundle: {bundles:?}");
        };
        assert_eq!(bundle.cpu, Some(3));
        let states: Vec<_> = bundle
            .event
            .iter()
            .filter_map(|event| event.sched_switch.as_ref())
            .map(|switch| (switch.prev_state, switch.next_comm.as_deref()))
            .collect();
        let expected = [(Some(SLEEPING), Some("main")), (Some(DEAD), Some("worker"))];
        assert_eq!(states, expected);
        assert_eq!(bundle.event.len(), 3);
    }
}
