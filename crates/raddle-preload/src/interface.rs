//! The runtime's side of the explicit API.

use crate::{reusable, start, symbols, workers};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::engine::Plan;
use raddle_engine::process::MAX_WANTED;
use raddle_engine::{Carrier, PROCESS, Thread, accounting, bound, events, ums};
use raddle_interface::{Birth, EnginePlan, HostControl, Runtime, VERSION, WorkerControl};
use raddle_kernel::memory::loading;
use raddle_kernel::scheduling;
use raddle_kernel::task::reuse;
use raddle_sched::policies::Kind;

/// 1 once the process is taken over.
static UP: AtomicU32 = AtomicU32::new(0);

/// See [`Runtime`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static raddle_runtime: Runtime = Runtime {
    version: VERSION,
    is_up,
    is_green,
    next_is_green,
    set_carriers,
    carriers,
    set_host,
    next_is_worker,
    execute_worker: workers::execute,
    yield_worker: workers::yield_to_scheduler,
    pass_token: workers::pass_token,
    return_token: workers::return_token,
    take_token: workers::take_token,
    set_scheduler,
    current_worker,
    limit_worker,
    open_engine,
    close_engine,
    set_quota,
    next_birth,
    set_policy,
    policy,
    engine_cpu_ns,
    loads: loading::count,
    may_reuse,
    forgo_reuse,
    keep: reusable::keep,
    reuse,
    wait,
    wake,
    trace_word: &accounting::ON,
    trace_mask: accounting::EVENTS,
    trace,
};

/// The process is taken over.
pub(crate) fn set_up() {
    UP.store(1, Ordering::Relaxed);
}

extern "C" fn is_up() -> u32 {
    start::ensure(); // the caller is about to make threads
    UP.load(Ordering::Relaxed)
}

/// The calling thread, unless it is a kernel thread that isn't the runtime's.
pub(crate) fn thread<'a>() -> Option<&'a Thread> {
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { Carrier::current_or_null().as_ref() }?;
    (carrier.raw.get() == 0).then(|| carrier.thread_or_none())?
}

extern "C" fn is_green() -> u32 {
    let is_lone = PROCESS.is_explicit() && !PROCESS.is_started();
    u32::from(!is_lone && thread().is_some_and(|thread| !thread.is_bound()))
}

extern "C" fn next_is_green(green: u32) {
    if let Some(thread) = thread() {
        thread.green_next.set(green != 0);
    }
}

extern "C" fn set_carriers(count: u32) {
    PROCESS.set_wanted(count.min(MAX_WANTED));
}

extern "C" fn carriers() -> u32 {
    PROCESS.first().wanted()
}

extern "C" fn set_host(host: *const HostControl) {
    if let Some(thread) = thread() {
        thread.host.set(host);
    }
}

extern "C" fn next_is_worker(control: *const WorkerControl) {
    if thread().is_some() {
        ums::next_is_worker(control);
    }
}

/// A scheduler with a kernel thread of its own would cost two wake-ups of kernel threads for each
/// worker that it executes, and hear of no page fault. So it is green meanwhile.
extern "C" fn set_scheduler(schedules: u32) {
    if thread().is_none() {
        return;
    }
    if schedules != 0 {
        bound::unbind();
    } else if bound::bind_again() {
        scheduling::give_to_kernel(Carrier::current().thread());
    }
    symbols::leave();
}

extern "C" fn limit_worker(control: &WorkerControl, quantum_ns: u64) {
    ums::limit(control, quantum_ns);
}

extern "C" fn current_worker() -> *const WorkerControl {
    match thread() {
        Some(_) => ums::current(),
        None => core::ptr::null(),
    }
}

/// A built-in policy by its number; fifo for any other.
fn built_in(number: u32) -> Kind {
    match Kind::from_code(number) {
        Kind::Plugin => Kind::Fifo,
        kind => kind,
    }
}

extern "C" fn open_engine(plan: &EnginePlan) -> u32 {
    let plan = Plan {
        kind: built_in(plan.policy),
        carriers: plan.carriers,
        quota: plan.quota,
    };
    PROCESS.engines.open(plan).unwrap_or(0)
}

extern "C" fn close_engine(number: u32) {
    PROCESS.engines.close(number);
}

extern "C" fn set_quota(number: u32, percent: u32) {
    if let Some(engine) = PROCESS.engines.get(number) {
        engine.set_quota(percent);
    }
}

extern "C" fn next_birth(birth: &Birth) {
    if let Some(thread) = thread() {
        thread.next.set(*birth);
    }
}

extern "C" fn set_policy(number: u32) {
    while !PROCESS.first().choose_policy(built_in(number)) {}
}

extern "C" fn policy() -> u32 {
    PROCESS.first().queue.kind() as u32
}

extern "C" fn engine_cpu_ns(number: u32) -> u64 {
    PROCESS.engines.cpu_ns(number)
}

/// The calling thread, once there are others.
fn one_of_many<'a>() -> Option<&'a Thread> {
    thread().filter(|_| PROCESS.is_started())
}

extern "C" fn may_reuse(stack_size: usize, mask: &mut u64) -> u32 {
    let may = one_of_many().and_then(|thread| reuse::may_reuse(thread, stack_size));
    may.map_or(0, |before| {
        *mask = before;
        1
    })
}

extern "C" fn forgo_reuse(mask: u64) {
    if let Some(thread) = one_of_many() {
        reuse::forgo_reuse(thread, mask);
        symbols::leave();
    }
}

extern "C" fn reuse(stack_size: usize, next: *mut c_void) -> usize {
    let id = one_of_many().map_or(0, |_| reuse::reuse(stack_size, next).unwrap_or(0));
    if id != 0 {
        symbols::leave();
    }
    id
}

extern "C" fn wait(word: &AtomicU32, seen: u32) {
    if one_of_many().is_some() {
        reuse::wait(word, seen);
        symbols::leave();
    }
}

extern "C" fn wake(address: usize) {
    if one_of_many().is_some() {
        reuse::wake(address);
        symbols::leave();
    }
}

extern "C" fn trace(kind: u32, text: *const u8, length: u32, value: i64) {
    if let Some(thread) = thread() {
        events::annotated(thread, kind, text.addr() as u64, length, value);
        symbols::leave();
    }
}
