//! Where a tool finds the threads and their stacks in this process's memory.

use crate::state::accounting::CpuTime;
use crate::state::carrier::Carrier;
use crate::state::delays::READY_FLAGS;
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::wakers::Wakes;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use raddle_inspect::{CodePlaces, LAYOUT_MAGIC, LAYOUT_VERSION, Layout, ThreadOffsets};
use raddle_interface::{GroupControl, HostControl};
use raddle_sched::Task;
use raddle_sched::policies::{Node, Terms};

pub(crate) fn layout() -> Layout {
    let table = PROCESS.threads.places();
    let (code, save_area_bytes) = (PROCESS.hooks().code_places)();
    Layout {
        magic: LAYOUT_MAGIC,
        version: LAYOUT_VERSION,
        size: size_of::<Layout>() as u32,
        chunks: table.chunks as u64,
        chunk_count: table.chunk_count as u64,
        slots_per_chunk: table.slots_per_chunk as u64,
        slot_bytes: size_of::<Thread>() as u64,
        used: table.used as u64,
        main: (&raw const PROCESS.main).addr() as u64,
        carrier_id: offset_of!(Carrier, id) as u64,
        carrier_kernel_tid: offset_of!(Carrier, kernel_tid) as u64,
        ready_flags: READY_FLAGS,
        save_area_bytes: save_area_bytes as u64,
        started: (&raw const PROCESS.started_ns).addr() as u64,
        carriers: (&raw const PROCESS.list).addr() as u64,
        carrier_count: (&raw const PROCESS.listed).addr() as u64,
        thread_fs: offset_of!(Thread, fs) as u64,
        common_events: (&raw const PROCESS.recorder.common).addr() as u64,
        lost_events: (&raw const PROCESS.recorder.lost).addr() as u64,
        event_moments: (&raw const PROCESS.recorder.moments).addr() as u64,
        host_group: offset_of!(HostControl, group) as u64,
        group_lights: offset_of!(GroupControl, lights) as u64,
        blocked: (&raw const PROCESS.blocking.total).addr() as u64,
        carrier_samples: offset_of!(Carrier, samples) as u64,
        carrier_wakes: (offset_of!(Carrier, wakes) + Wakes::RING) as u64,
        code,
        thread: OFFSETS,
        carrier: Carrier::OFFSETS,
        engine: Engine::OFFSETS,
    }
}

/// The layout where a reader of this process's memory finds it without a request: a debugger by its
/// symbol, a reader of a core file by [`LAYOUT_MAGIC`]. Nothing in the process reads it.
#[repr(transparent)]
struct Anchor(UnsafeCell<Layout>);

// SAFETY: written by `publish` alone, while the process has one thread; never read here.
unsafe impl Sync for Anchor {}

/// The magic keeps it out of `.bss`, so that it is near the start of the library's data.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static raddle_layout: Anchor = Anchor(UnsafeCell::new(Layout {
    magic: LAYOUT_MAGIC,
    version: 0,
    size: 0,
    chunks: 0,
    chunk_count: 0,
    slots_per_chunk: 0,
    slot_bytes: 0,
    used: 0,
    main: 0,
    carrier_id: 0,
    carrier_kernel_tid: 0,
    ready_flags: 0,
    save_area_bytes: 0,
    started: 0,
    carriers: 0,
    carrier_count: 0,
    thread_fs: 0,
    common_events: 0,
    lost_events: 0,
    event_moments: 0,
    host_group: 0,
    group_lights: 0,
    blocked: 0,
    carrier_samples: 0,
    carrier_wakes: 0,
    code: CodePlaces {
        text_start: 0,
        text_end: 0,
        child_start: 0,
        pass_end: 0,
        actions: 0,
    },
    thread: OFFSETS,
    carrier: Carrier::OFFSETS,
    engine: Engine::OFFSETS,
}));

/// Fills the anchor.
///
/// # Safety
/// Only while the process has one thread.
pub(crate) unsafe fn publish() {
    // SAFETY: the only access, by the only thread.
    unsafe { raddle_layout.0.get().write_volatile(layout()) };
}

const OFFSETS: ThreadOffsets = ThreadOffsets {
    tid: offset_of!(Thread, tid) as u32,
    life: Thread::LIFE as u32,
    on_cpu: (offset_of!(Thread, task) + offset_of!(Task, on_cpu)) as u32,
    claim: (offset_of!(Thread, task) + Task::CLAIM) as u32,
    wait_kind: offset_of!(Thread, wait_kind) as u32,
    wait_arg: offset_of!(Thread, wait_arg) as u32,
    wait_lock: offset_of!(Thread, wait_lock) as u32,
    since_ns: offset_of!(Thread, since_ns) as u32,
    deadline_ns: offset_of!(Thread, deadline_ns) as u32,
    ready_ns: offset_of!(Thread, ready_ns) as u32,
    context: offset_of!(Thread, context) as u32,
    switches: offset_of!(Thread, switches) as u32,
    steal: offset_of!(Thread, steal) as u32,
    preempt: offset_of!(Thread, preempt) as u32,
    park: offset_of!(Thread, park) as u32,
    carrier: offset_of!(Thread, carrier) as u32,
    bound: offset_of!(Thread, bound) as u32,
    save_area: offset_of!(Thread, save_area) as u32,
    engine: Thread::ENGINE as u32,
    group: (offset_of!(Thread, task)
        + offset_of!(Task, policy)
        + offset_of!(Node, terms)
        + Terms::GROUP) as u32,
    name: offset_of!(Thread, name) as u32,
    host: offset_of!(Thread, host) as u32,
    charged_ns: (offset_of!(Thread, cpu) + CpuTime::CHARGED) as u32,
};
