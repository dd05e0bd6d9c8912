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
    Clock, ClockSnapshot, CompactSched, FtraceEventBundle, Interned, InternedData, Process,
    ProcessTree, Thread, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
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
/// In `sequence_flags`: numbers of strings begin anew.
const STATE_CLEARED: u32 = 1;
/// In `sequence_flags`: the packet refers to strings.
const NEEDS_STATE: u32 = 2;
/// The number of the category of waits.
const WAIT_CATEGORY: u64 = 1;
/// The most names that are kept; then numbers begin anew.
const NAMES_MAX: usize = 1 << 16;
/// Scheduler events that are kept until they are written in one packet.
const BUNDLE: usize = 1024;
/// The tag of a packet in the file: field 1, with a length.
const PACKET: u8 = 1 << 3 | 2;

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
    /// Scheduler events of each CPU that aren't written yet.
    bundles: HashMap<u32, Bundle>,
    /// Numbers of the names of slices.
    interned: HashMap<(WaitKind, u64), u64>,
    counts: Counts,
    packet: Vec<u8>,
}

/// Scheduler events of a CPU.
#[derive(Default)]
struct Bundle {
    events: CompactSched,
    /// The times of the last switch and the last wake-up.
    switched_ns: u64,
    woke_ns: u64,
    /// Places of the names in the table.
    commands: HashMap<u32, u32>,
}

impl Bundle {
    fn len(&self) -> usize {
        self.events.switch_timestamp.len() + self.events.waking_timestamp.len()
    }

    /// Returns the place of a thread's name in the table.
    fn command(&mut self, tid: u32, names: &HashMap<u32, String>) -> u32 {
        let table = &mut self.events.intern_table;
        *self.commands.entry(tid).or_insert_with(|| {
            let name = match tid {
                0 => "swapper",
                _ => names.get(&tid).map_or("", String::as_str),
            };
            table.push(name.to_owned());
            table.len() as u32 - 1
        })
    }
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
            interned: HashMap::new(),
            counts: Counts::default(),
            packet: Vec::new(),
        };
        writer.packet(&TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![Clock {
                    clock_id: Some(BOOTTIME),
                    timestamp: Some(boot_ns),
                }],
                primary_trace_clock: Some(BOOTTIME),
            }),
            ..TracePacket::default()
        })?;
        writer.begin_names()?;
        writer.packet(&TracePacket {
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
        self.packet(&TracePacket {
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
        let bundle = self.bundles.entry(cpu_of(lane)).or_default();
        let command = bundle.command(event.other, &self.names);
        let events = &mut bundle.events;
        let since_ns = boot_ns.saturating_sub(bundle.switched_ns);
        events.switch_timestamp.push(since_ns);
        bundle.switched_ns = boot_ns.max(bundle.switched_ns);
        events.switch_prev_state.push(state);
        events.switch_next_pid.push(event.other as i32);
        events.switch_next_prio.push(PRIORITY);
        events.switch_next_comm_index.push(command);
        self.bundle_if_full(cpu_of(lane))?;
        if event.thread != 0 && state == SLEEPING {
            self.begin_wait(event, boot_ns)?;
        }
        if event.other != 0 && self.waiting.remove(&event.other) {
            self.end_wait(event.other, boot_ns)?;
        }
        Ok(())
    }

    fn wake(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        self.counts.wakes += 1;
        let cpu = cpu_of(lane);
        let bundle = self.bundles.entry(cpu).or_default();
        let command = bundle.command(event.thread, &self.names);
        let events = &mut bundle.events;
        let since_ns = boot_ns.saturating_sub(bundle.woke_ns);
        events.waking_timestamp.push(since_ns);
        bundle.woke_ns = boot_ns.max(bundle.woke_ns);
        events.waking_pid.push(event.thread as i32);
        events.waking_target_cpu.push(cpu as i32);
        events.waking_prio.push(PRIORITY);
        events.waking_comm_index.push(command);
        events.waking_common_flags.push(0);
        self.bundle_if_full(cpu)
    }

    fn begin_wait(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        if !self.waiting.insert(event.thread) {
            return Ok(());
        }
        let key = (event.wait, event.arg);
        let (name_iid, interned_data) = match self.interned.get(&key) {
            Some(&iid) => (iid, None),
            None => {
                if self.interned.len() == NAMES_MAX {
                    self.begin_names()?;
                }
                let iid = self.interned.len() as u64 + 1;
                self.interned.insert(key, iid);
                let name = Interned {
                    iid: Some(iid),
                    name: Some(wait_name(event)),
                };
                let data = InternedData {
                    event_names: vec![name],
                    ..InternedData::default()
                };
                (iid, Some(data))
            }
        };
        let begin = TrackEvent {
            r#type: Some(SLICE_BEGIN),
            track_uuid: Some(self.track(event.thread)?),
            category_iids: vec![WAIT_CATEGORY],
            name_iid: Some(name_iid),
        };
        self.slice(begin, interned_data, boot_ns)
    }

    fn end_wait(&mut self, tid: u32, boot_ns: u64) -> io::Result<()> {
        let end = TrackEvent {
            r#type: Some(SLICE_END),
            track_uuid: Some(self.track(tid)?),
            ..TrackEvent::default()
        };
        self.slice(end, None, boot_ns)
    }

    fn slice(
        &mut self,
        event: TrackEvent,
        interned_data: Option<InternedData>,
        boot_ns: u64,
    ) -> io::Result<()> {
        self.packet(&TracePacket {
            timestamp: Some(boot_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(NEEDS_STATE),
            track_event: Some(event),
            interned_data,
            ..TracePacket::default()
        })
    }

    /// Begins to number strings.
    fn begin_names(&mut self) -> io::Result<()> {
        self.interned.clear();
        let category = Interned {
            iid: Some(WAIT_CATEGORY),
            name: Some("wait".to_owned()),
        };
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: vec![category],
                ..InternedData::default()
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
                thread_name: self.names.get(&tid).cloned(),
            };
            self.packet(&TracePacket {
                trusted_packet_sequence_id: Some(SEQUENCE),
                track_descriptor: Some(TrackDescriptor {
                    uuid: Some(uuid),
                    thread: Some(thread),
                }),
                ..TracePacket::default()
            })?;
        }
        Ok(uuid)
    }

    fn bundle_if_full(&mut self, cpu: u32) -> io::Result<()> {
        match self.bundles.get_mut(&cpu) {
            Some(bundle) if bundle.len() >= BUNDLE => {
                let bundle = std::mem::take(bundle);
                self.bundle(cpu, bundle)
            }
            _ => Ok(()),
        }
    }

    fn bundle(&mut self, cpu: u32, bundle: Bundle) -> io::Result<()> {
        self.packet(&TracePacket {
            ftrace_events: Some(FtraceEventBundle {
                cpu: Some(cpu),
                lost_events: None,
                compact_sched: Some(bundle.events),
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
            self.end_wait(tid, boot_ns)?;
        }
        let mut left: Vec<_> = self.bundles.drain().collect();
        left.sort_unstable_by_key(|&(cpu, _)| cpu);
        for (cpu, bundle) in left.into_iter().filter(|(_, bundle)| bundle.len() != 0) {
            self.bundle(cpu, bundle)?;
        }
        self.output.flush()?;
        Ok(self.counts)
    }

    fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.packet.clear();
        self.packet.push(PACKET);
        let encoded = packet.encode_length_delimited(&mut self.packet);
        encoded.map_err(io::Error::other)?; // a vector has room for all
        self.output.write_all(&self.packet)
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
        let trace = messages::Trace::decode(&bytes[..]).unwrap();
        let names: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| packet.interned_data.as_ref())
            .flat_map(|data| &data.event_names)
            .map(|name| (name.iid, name.name.as_deref()))
            .collect();
        assert_eq!(names, [(Some(1), Some("mutex 0x1000"))]);
        let slices: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| Some((packet.timestamp?, packet.track_event.as_ref()?)))
            .map(|(at, slice)| (at, slice.r#type.unwrap(), slice.name_iid))
            .collect();
        assert_eq!(
            slices,
            [(100, SLICE_BEGIN, Some(1)), (300, SLICE_END, None)]
        );
        let bundles: Vec<_> = trace
            .packet
            .iter()
            .filter_map(|packet| packet.ftrace_events.as_ref())
            .collect();
        let [bundle] = bundles[..] else {
            panic!("one bundle: {bundles:?}");
        };
        assert_eq!(bundle.cpu, Some(3));
        let events = bundle.compact_sched.as_ref().unwrap();
        assert_eq!(events.switch_timestamp, [100, 200]);
        assert_eq!(events.switch_prev_state, [SLEEPING, DEAD]);
        assert_eq!(events.switch_next_pid, [7, 8]);
        assert_eq!(events.intern_table, ["main", "worker"]);
        assert_eq!(events.waking_timestamp, [200]);
        assert_eq!(
            (&events.waking_pid[..], &events.waking_comm_index[..]),
            (&[8][..], &[1][..])
        );
    }
}
