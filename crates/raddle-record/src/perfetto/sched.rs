//! The kernel's scheduler events, as which turns and wake-ups are shown: lists with an item for
//! each event, a packet for many.

use rustc_hash::FxHashMap;

use super::messages::{CompactSched, FtraceEventBundle, TracePacket};

/// The priority that Linux shows for nice 0.
const PRIORITY: i32 = 120;
/// Events that are kept until they are written in one packet.
const BUNDLE: usize = 1024;

/// The bundles of all CPUs.
#[derive(Default)]
pub(super) struct Bundles {
    /// By CPU, all below [`DENSE`].
    first: Vec<Bundle>,
    others: FxHashMap<u32, Bundle>,
}

/// CPUs that are found by their number.
const DENSE: u32 = 64;

impl Bundles {
    pub(super) fn of(&mut self, cpu: u32) -> &mut Bundle {
        if cpu >= DENSE {
            return self.others.entry(cpu).or_default();
        }
        let at = cpu as usize;
        if self.first.len() <= at {
            self.first.resize_with(at + 1, Bundle::default);
        }
        &mut self.first[at]
    }

    /// Takes the packets of what is left.
    pub(super) fn drain(&mut self) -> Vec<TracePacket> {
        let first = self.first.drain(..).enumerate();
        let first = first.map(|(cpu, bundle)| (cpu as u32, bundle));
        let mut left: Vec<_> = first.chain(self.others.drain()).collect();
        left.sort_unstable_by_key(|&(cpu, _)| cpu);
        let left = left.into_iter().filter(|(_, bundle)| bundle.len() != 0);
        left.map(|(cpu, mut bundle)| bundle.take(cpu)).collect()
    }
}

/// Scheduler events of a CPU.
#[derive(Default)]
pub(super) struct Bundle {
    events: CompactSched,
    /// The times of the last switch and the last wake-up.
    switched_ns: u64,
    woke_ns: u64,
    /// Places of the names in the table.
    commands: FxHashMap<u32, u32>,
}

impl Bundle {
    fn len(&self) -> usize {
        self.events.switch_timestamp.len() + self.events.waking_timestamp.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= BUNDLE
    }

    /// The CPU runs `next`, or nothing; the state is that of the thread before.
    pub(super) fn switch(&mut self, next: u32, name: Option<&str>, state: i64, boot_ns: u64) {
        let command = self.command(next, name);
        let events = &mut self.events;
        let since_ns = boot_ns.saturating_sub(self.switched_ns);
        events.switch_timestamp.push(since_ns);
        self.switched_ns = boot_ns.max(self.switched_ns);
        events.switch_prev_state.push(state);
        events.switch_next_pid.push(next as i32);
        events.switch_next_prio.push(PRIORITY);
        events.switch_next_comm_index.push(command);
    }

    /// `tid` was woken here.
    pub(super) fn wake(&mut self, tid: u32, name: Option<&str>, cpu: u32, boot_ns: u64) {
        let command = self.command(tid, name);
        let events = &mut self.events;
        let since_ns = boot_ns.saturating_sub(self.woke_ns);
        events.waking_timestamp.push(since_ns);
        self.woke_ns = boot_ns.max(self.woke_ns);
        events.waking_pid.push(tid as i32);
        events.waking_target_cpu.push(cpu as i32);
        events.waking_prio.push(PRIORITY);
        events.waking_comm_index.push(command);
        events.waking_common_flags.push(0);
    }

    /// Returns the place of a thread's name in the table.
    fn command(&mut self, tid: u32, name: Option<&str>) -> u32 {
        let table = &mut self.events.intern_table;
        *self.commands.entry(tid).or_insert_with(|| {
            let name = if tid == 0 { Some("swapper") } else { name };
            table.push(name.unwrap_or_default().to_owned());
            table.len() as u32 - 1
        })
    }

    /// Takes the events as a packet. The next one begins with whole times.
    pub(super) fn take(&mut self, cpu: u32) -> TracePacket {
        let bundle = std::mem::take(self);
        TracePacket {
            ftrace_events: Some(FtraceEventBundle {
                cpu: Some(cpu),
                lost_events: None,
                compact_sched: Some(bundle.events),
            }),
            ..TracePacket::default()
        }
    }
}
