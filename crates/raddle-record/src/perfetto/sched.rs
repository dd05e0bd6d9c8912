//! The kernel's scheduler events, as which turns and wake-ups are shown: lists with an item for
//! each event, a packet for many (`FtraceEventBundle.CompactSched`). The lists are encoded as they
//! grow. A time is the difference to the one before in its list.

use rustc_hash::FxHashMap;

use super::encode::{length, put, put_bytes, put_head};
use super::threads::{Place, ThreadState};

/// The priority that Linux shows for nice 0; one byte as a varint.
const PRIORITY: u8 = 120;
/// In the flags of a wake-up: no thread has made it (the bit of a softirq).
const BY_NO_THREAD: u64 = 1 << 4;
/// Events that are kept until they are written in one packet.
const BUNDLE: usize = 1024;
/// Bytes of such a packet, of threads with names of some bytes.
const BUNDLE_BYTES: u64 = 1 << 15;

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
    #[inline]
    pub(super) fn of(&mut self, cpu: u32) -> &mut Bundle {
        if cpu >= DENSE {
            return self.others.entry(cpu).or_insert_with(|| Bundle::new(cpu));
        }
        let at = cpu as usize;
        for number in self.first.len()..=at {
            self.first.push(Bundle::new(number as u32));
        }
        &mut self.first[at]
    }

    /// Returns how many bytes the packets of what is left have at most.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        (self.first.len() + self.others.len()) as u64 * BUNDLE_BYTES
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Bundle> {
        self.first.iter_mut().chain(self.others.values_mut())
    }

    /// Takes the packets of what is left.
    pub(super) fn drain(&mut self) -> Vec<Vec<u8>> {
        let first = self.first.drain(..);
        let others = self.others.drain().map(|(_, bundle)| bundle);
        let mut left: Vec<_> = first.chain(others).collect();
        left.sort_unstable_by_key(|bundle| bundle.cpu);
        let left = left.into_iter().filter(|bundle| bundle.count() != 0);
        left.map(|mut bundle| bundle.take()).collect()
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

/// The place of a thread's name in the table of a packet.
#[derive(Clone, Copy, Default)]
pub(super) struct Command {
    /// See [`Bundle::number`].
    bundle: u64,
    place: u32,
}

/// Scheduler events of a CPU.
pub(super) struct Bundle {
    cpu: u32,
    /// Tells the bundle from all others of the trace; never 0.
    number: u64,
    /// The thread that the CPU runs.
    pub(super) running: Option<Place>,
    /// The CPU runs a thread that is not bound.
    pub(super) runs: bool,
    lists: [Vec<u8>; LISTS.len()],
    switches: usize,
    wakes: usize,
    /// The names, encoded, and how many there are.
    table: Vec<u8>,
    names: u32,
    /// The name of no thread, and that of a thread that is not known.
    idle: Command,
    nameless: Command,
    /// The times of the last switch and the last wake-up.
    switched_ns: u64,
    woke_ns: u64,
}

impl Bundle {
    fn new(cpu: u32) -> Bundle {
        Bundle {
            cpu,
            number: u64::from(cpu) << 32 | 1,
            running: None,
            runs: false,
            lists: Default::default(),
            switches: 0,
            wakes: 0,
            table: Vec::new(),
            names: 0,
            idle: Command::default(),
            nameless: Command::default(),
            switched_ns: 0,
            woke_ns: 0,
        }
    }

    fn count(&self) -> usize {
        self.switches + self.wakes
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() >= BUNDLE
    }

    /// The CPU runs `next`, or nothing; the state is that of the thread before.
    #[inline]
    pub(super) fn switch(&mut self, next: Option<&mut ThreadState>, state: u64, boot_ns: u64) {
        let since_ns = boot_ns.saturating_sub(self.switched_ns);
        self.switched_ns = boot_ns.max(self.switched_ns);
        let tid = next.as_ref().map_or(0, |next| next.tid);
        let command = match next {
            Some(next) => self.command(next),
            None => {
                self.idle = self.same(self.idle, "swapper");
                self.idle.place.into()
            }
        };
        self.put(List::SwitchTime, since_ns);
        self.put(List::PreviousState, state);
        self.put(List::NextThread, tid.into());
        self.put(List::NextCommand, command);
        self.switches += 1;
    }

    /// `tid` was woken here, by the thread on the CPU or by no thread.
    #[inline]
    pub(super) fn wake(
        &mut self,
        tid: u32,
        woken: Option<&mut ThreadState>,
        is_by_thread: bool,
        boot_ns: u64,
    ) {
        let since_ns = boot_ns.saturating_sub(self.woke_ns);
        self.woke_ns = boot_ns.max(self.woke_ns);
        let command = match woken {
            Some(woken) => self.command(woken),
            None => {
                self.nameless = self.same(self.nameless, "");
                self.nameless.place.into()
            }
        };
        self.put(List::WakeTime, since_ns);
        self.put(List::Woken, tid.into());
        self.put(List::WokenCommand, command);
        self.put(List::WakeFlags, if is_by_thread { 0 } else { BY_NO_THREAD });
        self.wakes += 1;
    }

    #[inline]
    fn put(&mut self, list: List, value: u64) {
        put(value, &mut self.lists[list as usize]);
    }

    /// Returns the place of a thread's name in the table.
    #[inline]
    fn command(&mut self, thread: &mut ThreadState) -> u64 {
        let command = &mut thread.commands[(self.cpu % 2) as usize];
        if command.bundle != self.number {
            let name = thread.name.as_deref().unwrap_or_default();
            *command = self.add(name);
        }
        command.place.into()
    }

    /// Returns the place of a name that stays the same; the last one is known.
    fn same(&mut self, last: Command, name: &str) -> Command {
        if last.bundle == self.number {
            last
        } else {
            self.add(name)
        }
    }

    fn add(&mut self, name: &str) -> Command {
        put_bytes(TABLE, name.as_bytes(), &mut self.table);
        self.names += 1;
        Command {
            bundle: self.number,
            place: self.names - 1,
        }
    }

    /// Takes the events as a packet. The next one begins with whole times.
    pub(super) fn take(&mut self) -> Vec<u8> {
        const FTRACE_EVENTS: u32 = 1;
        const CPU: u32 = 1;
        const COMPACT_SCHED: u32 = 4;
        let cpu = u64::from(self.cpu);
        let same = [
            (List::NextPriority, u64::from(PRIORITY), self.switches),
            (List::WokenPriority, u64::from(PRIORITY), self.wakes),
            (List::WakeCpu, cpu, self.wakes),
        ];
        for (list, value, count) in same {
            let list = &mut self.lists[list as usize];
            (0..count).for_each(|_| put(value, list));
        }
        let lists = || self.lists.iter().zip(LISTS).filter(|it| !it.0.is_empty());
        let size = |list: &[u8]| 1 + length(list.len() as u64) + list.len();
        let sched = lists().map(|it| size(it.0)).sum::<usize>() + self.table.len();
        let bundle = 1 + length(cpu) + 1 + length(sched as u64) + sched;
        let mut packet = Vec::with_capacity(1 + length(bundle as u64) + bundle);
        put_head(FTRACE_EVENTS, bundle, &mut packet);
        put((CPU << 3).into(), &mut packet);
        put(cpu, &mut packet);
        put_head(COMPACT_SCHED, sched, &mut packet);
        lists().for_each(|(list, field)| put_bytes(field, list, &mut packet));
        packet.extend_from_slice(&self.table);
        self.lists.iter_mut().for_each(Vec::clear);
        self.table.clear();
        (self.switches, self.wakes, self.names) = (0, 0, 0);
        (self.switched_ns, self.woke_ns) = (0, 0);
        // The low half wraps around to 1.
        let next = (self.number as u32).checked_add(1).unwrap_or(1);
        self.number = u64::from(self.cpu) << 32 | u64::from(next);
        packet
    }
}
