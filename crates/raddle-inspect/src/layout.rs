//! Where the tables of a process are in its memory, and how their entries are laid out. It follows
//! the carriers in the answer to a [`RequestKind::LAYOUT`](crate::RequestKind), so that the tool
//! reads threads and stacks from outside, without help of the process. The preloaded library keeps
//! a copy in its data, by the name `raddle_layout`, for readers of a core file and debuggers: its
//! version is 0 until the program has made its second thread.
//!
//! A reader of a thread's slot must expect that the thread goes on meanwhile. A thread that is off
//! its stack has `on_cpu` 0 and continues at `context`; before it continues, `on_cpu` becomes 1,
//! then `switches` grows, and then the stack changes. So what was read is one state of one thread
//! if `on_cpu` is 0, and `tid` and `switches` are the same, before and after.

use crate::records::Wire;

/// The first eight bytes of a [`Layout`].
pub const LAYOUT_MAGIC: [u8; 8] = *b"RADDLE\0\x07";

/// The version of the layout. A reader knows one version only: fields change with the runtime.
pub const LAYOUT_VERSION: u32 = 7;

/// Places in the process's memory: addresses, except where a field says otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// [`LAYOUT_MAGIC`].
    pub magic: [u8; 8],
    /// [`LAYOUT_VERSION`] of the writer.
    pub version: u32,
    /// Bytes of this structure as the writer knows it.
    pub size: u32,
    /// An array of pointers to chunks of slots; null where no slot was used yet.
    pub chunks: u64,
    /// The number of those pointers.
    pub chunk_count: u64,
    /// Slots in a chunk.
    pub slots_per_chunk: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// A word with the number of slots that were ever used.
    pub used: u64,
    /// A word with the address of the main thread's slot.
    pub main: u64,
    /// The offset of a carrier's id in the carrier: four bytes.
    pub carrier_id: u64,
    /// The offset of its kernel thread's id: four bytes, 0 without one.
    pub carrier_kernel_tid: u64,
    /// Bits of `ready_ns` that are no part of the time.
    pub ready_flags: u64,
    /// Bytes of a save area, in which a preempted thread's context is.
    pub save_area_bytes: u64,
    /// A word with the time when the engine started.
    pub started: u64,
    /// An array of pointers to carriers.
    pub carriers: u64,
    /// Four bytes with the number of those pointers.
    pub carrier_count: u64,
    /// The offset of the FS base in a slot: the thread block of the C library.
    pub thread_fs: u64,
    /// The ring of events of kernel threads that are no carriers; see [`CarrierOffsets::events`].
    pub common_events: u64,
    /// A word with the number of events that no ring had room for.
    pub lost_events: u64,
    /// Four words by which the time of an event's stamp is known: the time-stamp counter and
    /// CLOCK_BOOTTIME in nanoseconds, when recording began; and both once more, some time later.
    /// The last two are 0 before.
    pub event_moments: u64,
    /// The offset of the group's address in the control of a host of light threads.
    pub host_group: u64,
    /// The offset of a word in a group: the address of a
    /// [`LightPlaces`](crate::LightPlaces), or null.
    pub group_lights: u64,
    /// A word with the number of times that a carrier was replaced because it waited in the kernel.
    pub blocked: u64,
    /// The offset of a carrier's ring of samples: the address of the slots or null, the number of
    /// slots less one, and the number of samples ever written. Sample `n` is in slot `n` modulo the
    /// number of slots. A copy of sample `n` is good if the number read after it is at most `n` and
    /// the number of slots less one. A slot begins with a [`SampleHeader`](crate::SampleHeader).
    pub carrier_samples: u64,
    /// The offset of a carrier's ring of wake-ups, likewise. A slot begins with a
    /// [`WakeHeader`](crate::WakeHeader).
    pub carrier_wakes: u64,
    /// Places in the runtime's code.
    pub code: CodePlaces,
    /// Offsets in a slot.
    pub thread: ThreadOffsets,
    /// Further offsets in a carrier.
    pub carrier: CarrierOffsets,
    /// Offsets in an engine.
    pub engine: EngineOffsets,
}

/// Offsets of fields in a carrier, in bytes. Fields have eight bytes unless noted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierOffsets {
    /// The address of the slot of the thread that it runs, or null.
    pub current: u32,
    /// Four bytes: 0 while it runs a thread, 1 idle, 2 in the event pump, 3 ended.
    pub state: u32,
    /// Four bytes: not 0 while another carrier runs in its place.
    pub handed_off: u32,
    pub switches: u32,
    pub steal: u32,
    pub steal_fail: u32,
    pub preempt: u32,
    pub park: u32,
    /// Its ring of events, three words: the address of the slots or null, with the binary logarithm
    /// of their number in the bits of [`Layout::RING_CAPACITY`]; the first event that these slots
    /// have had; the number of events ever written. Event `n` is in slot `n` modulo the number of
    /// slots. A copy of event `n` is good if the number read after it is at most `n` and the number
    /// of slots less one.
    pub events: u32,
    /// The address of its engine.
    pub engine: u32,
    /// The address of the only thread that it runs, or null.
    pub bound: u32,
    /// Four bytes: the number of the first entry of its run queue, modulo 2^32.
    pub queue_head: u32,
    /// Four bytes: likewise, of the entry behind the last.
    pub queue_tail: u32,
    /// Not 0 if one more thread waits in front of the queue.
    pub queue_slot: u32,
    /// While CPU time is counted: when the slice of the running thread began, or 0; the CPU time of
    /// the kernel thread at its last reading; and what threads were charged since.
    pub slice_started_ns: u32,
    pub slice_read_ns: u32,
    pub slice_charged_ns: u32,
    /// A [`Histogram`](crate::Histogram) of the time from a wake-up to running: a sample.
    pub wake_ups: u32,
    /// Likewise, of the time from runnable to running, as far as it is measured.
    pub delays: u32,
}

/// Offsets of fields in an engine, in bytes. Fields have four bytes unless noted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineOffsets {
    /// Its number; 0 for the default one.
    pub number: u32,
    /// Carriers that may be active.
    pub wanted: u32,
    /// Carriers beside these, while other processes want the CPUs.
    pub extra: u32,
    /// A [`PolicyKind`](crate::PolicyKind).
    pub policy: u32,
    /// Percent of one CPU that it may use; 0 for all.
    pub quota: u32,
    /// Eight bytes: the number of threads that any of its carriers may take.
    pub queue_len: u32,
    /// Eight bytes: the number of runnable threads that have used more than their share.
    pub ahead_len: u32,
    /// Words of eight bytes, with a bit for each carrier: the lowest bit of the first word
    /// is that of carrier 0. Set for a carrier that sleeps until another blocks in the kernel.
    pub spares: u32,
}

/// Places in the runtime's code that tell where a thread is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodePlaces {
    /// The first address of the runtime's code.
    pub text_start: u64,
    /// The end of the runtime's code.
    pub text_end: u64,
    /// Where a new thread begins; its registers are at its stack pointer: rdi, rsi, rdx, r10, r8,
    /// r9, rbx, rbp, r12 to r15, and the address in the stub where the thread goes on.
    pub child_start: u64,
    /// The address behind the system call that an entry passes to the kernel. The entry's frame
    /// pointer is 56 bytes above the stack pointer there, or 64 if the latter was aligned.
    pub pass_end: u64,
    /// The program's signal actions: an entry of 32 bytes for each number from 0 to 64, which
    /// begins with the handler's address; 0 and 1 are no handlers.
    pub actions: u64,
}

/// Offsets of fields in a slot, in bytes. Fields have eight bytes unless noted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadOffsets {
    /// Four bytes.
    pub tid: u32,
    /// Four bytes: 0 for a free slot, 2 for a thread that ends.
    pub life: u32,
    /// Four bytes: not 0 while a carrier is on the thread's stack.
    pub on_cpu: u32,
    /// Four bytes: 1 or 6 while the thread waits.
    pub claim: u32,
    /// Four bytes: a [`WaitKind`](crate::WaitKind).
    pub wait_kind: u32,
    pub wait_arg: u32,
    /// The mutex that goes with the condition variable for which it waits, or 0.
    pub wait_lock: u32,
    pub since_ns: u32,
    pub deadline_ns: u32,
    pub ready_ns: u32,
    /// The address of a switch frame: control words, then the address where the thread continues.
    pub context: u32,
    pub switches: u32,
    pub steal: u32,
    pub preempt: u32,
    pub park: u32,
    /// The address of a carrier, or null.
    pub carrier: u32,
    /// The address of a carrier, or null.
    pub bound: u32,
    /// The lowest address of the save area, or null.
    pub save_area: u32,
    /// Four bytes: the number of the engine, 0 for the default one.
    pub engine: u32,
    /// Four bytes: the group of the policy.
    pub group: u32,
    /// Sixteen bytes.
    pub name: u32,
    /// The address of its control, if it hosts light threads, or null.
    pub host: u32,
    /// The CPU time that it was charged, as far as CPU time was counted. The running slice of its
    /// carrier isn't in it.
    pub charged_ns: u32,
}

impl Layout {
    /// Bits of a ring's first word that are no part of an address.
    pub const RING_CAPACITY: u64 = 63;
    /// The state of the claim word while the thread waits.
    pub const CLAIM_WAITING: u32 = 1;
    /// Likewise, while it is queued for one futex.
    pub const CLAIM_QUEUED: u32 = 6;
    /// The value of `state` of a carrier that has ended.
    pub const CARRIER_ENDED: u32 = 3;
    /// The value of `life` in a free slot.
    pub const LIFE_FREE: u32 = 0;
    /// The value of `life` of a thread that ends.
    pub const LIFE_EXITING: u32 = 2;

    /// Reads the layout at the start of `bytes`; `None` if this is none of the version that the
    /// reader knows.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(raddle_inspect::Layout::parse(&[0; 4096]), None);
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<Layout> {
        let layout = Layout::from_prefix(bytes)?;
        let is_known = layout.magic == LAYOUT_MAGIC
            && layout.version == LAYOUT_VERSION
            && layout.size as usize == size_of::<Layout>();
        is_known.then_some(layout)
    }
}

// SAFETY: integers and structures of them; `_LAYOUT` checks that no byte is padding.
unsafe impl Wire for Layout {}

const _LAYOUT: () = {
    assert!(size_of::<CodePlaces>() == 5 * 8);
    assert!(size_of::<ThreadOffsets>() == 23 * 4);
    assert!(size_of::<CarrierOffsets>() == 19 * 4);
    assert!(size_of::<EngineOffsets>() == 8 * 4);
    assert!(size_of::<Layout>() == 8 + 2 * 4 + 22 * 8 + 5 * 8 + (23 + 19 + 8) * 4);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_not_read() {
        let layout = Layout {
            magic: LAYOUT_MAGIC,
            version: LAYOUT_VERSION,
            size: size_of::<Layout>() as u32,
            chunks: 1,
            chunk_count: 2,
            slots_per_chunk: 3,
            slot_bytes: 4,
            used: 5,
            main: 6,
            carrier_id: 7,
            carrier_kernel_tid: 8,
            ready_flags: 3,
            save_area_bytes: 8,
            started: 9,
            carriers: 10,
            carrier_count: 11,
            thread_fs: 12,
            common_events: 13,
            lost_events: 14,
            event_moments: 17,
            host_group: 15,
            group_lights: 16,
            blocked: 18,
            carrier_samples: 19,
            carrier_wakes: 20,
            carrier: CarrierOffsets::default(),
            engine: EngineOffsets::default(),
            code: CodePlaces::default(),
            thread: ThreadOffsets::default(),
        };
        assert_eq!(Layout::parse(layout.as_bytes()), Some(layout));
        let later = Layout {
            version: LAYOUT_VERSION + 1,
            ..layout
        };
        assert_eq!(Layout::parse(later.as_bytes()), None);
        let longer = Layout { size: 1, ..layout };
        assert_eq!(Layout::parse(longer.as_bytes()), None);
        assert_eq!(Layout::parse(&layout.as_bytes()[1..]), None);
    }
}
