//! The kernel's scheduler events, as which turns and wake-ups are shown: lists with an item for
//! each event, a packet for many (`FtraceEventBundle.CompactSched`). The lists are encoded as they
//! grow. A time is the difference to the one before in its list.

use rustc_hash::FxHashMap;

use super::encode::{put, put_bytes};

/// The priority that Linux shows for nice 0.
const PRIORITY: u64 = 120;
/// In the flags of a wake-up: no thread has made it (the bit of a softirq).
const BY_NO_THREAD: u64 = 1 << 4;
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
    pub(super) fn drain(&mut self) -> Vec<Vec<u8>> {
        let first = self.first.drain(..).enumerate();
        let first = first.map(|(cpu, bundle)| (cpu as u32, bundle));
        let mut left: Vec<_> = first.chain(self.others.drain()).collect();
        left.sort_unstable_by_key(|&(cpu, _)| cpu);
        let left = left.into_iter().filter(|(_, bundle)| bundle.count != 0);
        left.map(|(cpu, mut bundle)| bundle.take(cpu)).collect()
    }
}

/// Lists of `CompactSched`, in the order of [`LISTS`].
enum List {
    SwitchTime,
    PreviousState,
    NextThread,
    NextPriority,
    NextCommand,
    WakeTime,
    Woken,
    WakeCpu,
    WokenPriority,
    WokenCommand,
    WakeFlags,
}

/// The fields of the lists.
const LISTS: [u32; 11] = [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12];
/// The field of the names.
const TABLE: u32 = 5;

/// Scheduler events of a CPU.
#[derive(Default)]
pub(super) struct Bundle {
    lists: [Vec<u8>; LISTS.len()],
    /// How many events there are.
    count: usize,
    /// The names, encoded.
    table: Vec<u8>,
    /// Places of the names in the table.
    commands: FxHashMap<u32, u32>,
    /// The times of the last switch and the last wake-up.
    switched_ns: u64,
    woke_ns: u64,
}

impl Bundle {
    pub(super) fn is_full(&self) -> bool {
        self.count >= BUNDLE
    }

    /// The CPU runs `next`, or nothing; the state is that of the thread before.
    pub(super) fn switch(&mut self, next: u32, name: Option<&str>, state: u64, boot_ns: u64) {
        let command = self.command(next, name);
        let since_ns = boot_ns.saturating_sub(self.switched_ns);
        self.switched_ns = boot_ns.max(self.switched_ns);
        self.put(List::SwitchTime, since_ns);
        self.put(List::PreviousState, state);
        self.put(List::NextThread, next.into());
        self.put(List::NextPriority, PRIORITY);
        self.put(List::NextCommand, command);
        self.count += 1;
    }

    /// `tid` was woken here, by the thread on the CPU or by no thread.
    pub(super) fn wake(
        &mut self,
        tid: u32,
        name: Option<&str>,
        (cpu, is_by_thread): (u32, bool),
        boot_ns: u64,
    ) {
        let command = self.command(tid, name);
        let since_ns = boot_ns.saturating_sub(self.woke_ns);
        self.woke_ns = boot_ns.max(self.woke_ns);
        self.put(List::WakeTime, since_ns);
        self.put(List::Woken, tid.into());
        self.put(List::WakeCpu, cpu.into());
        self.put(List::WokenPriority, PRIORITY);
        self.put(List::WokenCommand, command);
        self.put(List::WakeFlags, if is_by_thread { 0 } else { BY_NO_THREAD });
        self.count += 1;
    }

    #[inline]
    fn put(&mut self, list: List, value: u64) {
        put(value, &mut self.lists[list as usize]);
    }

    /// Returns the place of a thread's name in the table.
    fn command(&mut self, tid: u32, name: Option<&str>) -> u64 {
        let next = self.commands.len() as u32;
        let command = *self.commands.entry(tid).or_insert(next);
        if command == next {
            let name = if tid == 0 { Some("swapper") } else { name };
            put_bytes(TABLE, name.unwrap_or_default().as_bytes(), &mut self.table);
        }
        command.into()
    }

    /// Takes the events as a packet. The next one begins with whole times.
    pub(super) fn take(&mut self, cpu: u32) -> Vec<u8> {
        const FTRACE_EVENTS: u32 = 1;
        const CPU: [u8; 1] = [1 << 3];
        const COMPACT_SCHED: u32 = 4;
        let mut sched = Vec::new();
        for (list, &field) in self.lists.iter_mut().zip(&LISTS) {
            if !list.is_empty() {
                put_bytes(field, list, &mut sched);
                list.clear();
            }
        }
        sched.extend_from_slice(&self.table);
        self.table.clear();
        self.commands.clear();
        (self.count, self.switched_ns, self.woke_ns) = (0, 0, 0);
        let mut bundle = CPU.to_vec();
        put(cpu.into(), &mut bundle);
        put_bytes(COMPACT_SCHED, &sched, &mut bundle);
        let mut packet = Vec::new();
        put_bytes(FTRACE_EVENTS, &bundle, &mut packet);
        packet
    }
}
