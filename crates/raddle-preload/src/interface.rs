//! The runtime's side of the explicit API.

use crate::symbols;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::engine::MAX_WANTED;
use raddle_engine::sides::Plan;
use raddle_engine::{Carrier, ENGINE, Thread, ums};
use raddle_interface::{
    Birth, Claim, Ended, EnginePlan, HostControl, Runtime, VERSION, WorkerControl,
};
use raddle_sched::policies::Kind;

/// 1 once the process is taken over.
static UP: AtomicU32 = AtomicU32::new(0);

/// See [`Runtime`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static raddle_runtime: Runtime = Runtime {
    version: VERSION,
    is_up,
    is_green,
    next_is_green,
    set_carriers,
    carriers,
    set_host,
    next_is_worker,
    claim_worker,
    execute_worker,
    yield_worker,
    current_worker,
    execute_worker_for,
    open_engine,
    close_engine,
    set_quota,
    next_birth,
    set_policy,
    policy,
};

/// The process is taken over.
pub fn set_up() {
    UP.store(1, Ordering::Relaxed);
}

extern "C" fn is_up() -> u32 {
    UP.load(Ordering::Relaxed)
}

/// The calling thread, unless it is a kernel thread that isn't the runtime's.
fn thread<'a>() -> Option<&'a Thread> {
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { Carrier::current_or_null().as_ref() }?;
    (carrier.raw.get() == 0).then(|| carrier.thread_or_none())?
}

extern "C" fn is_green() -> u32 {
    let is_bound = |thread: &Thread| !thread.bound.load(Ordering::Relaxed).is_null();
    let is_lone = ENGINE.is_explicit() && !ENGINE.is_started();
    u32::from(!is_lone && thread().is_some_and(|thread| !is_bound(thread)))
}

extern "C" fn next_is_green(green: u32) {
    if let Some(thread) = thread() {
        thread.green_next.set(green != 0);
    }
}

extern "C" fn set_carriers(count: u32) {
    ENGINE.set_wanted(count.min(MAX_WANTED));
}

extern "C" fn carriers() -> u32 {
    ENGINE.wanted()
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

extern "C" fn claim_worker(control: &WorkerControl) -> Claim {
    ums::claim(control)
}

extern "C" fn execute_worker(control: &WorkerControl, parameter: &mut usize) -> Ended {
    execute_worker_for(control, parameter, 0)
}

extern "C" fn execute_worker_for(
    control: &WorkerControl,
    parameter: &mut usize,
    quantum_ns: u64,
) -> Ended {
    let (ended, given) = ums::execute(control, quantum_ns);
    symbols::leave();
    *parameter = given;
    ended
}

extern "C" fn yield_worker(parameter: usize) -> u32 {
    let has_yielded = thread().is_some() && ums::yield_to_scheduler(parameter);
    symbols::leave();
    u32::from(has_yielded)
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
    ENGINE.sides.open(plan).unwrap_or(0)
}

extern "C" fn close_engine(number: u32) {
    ENGINE.sides.close(number);
}

extern "C" fn set_quota(number: u32, percent: u32) {
    if let Some(side) = ENGINE.sides.get(number) {
        side.set_quota(percent);
    }
}

extern "C" fn next_birth(birth: &Birth) {
    if let Some(thread) = thread() {
        thread.next.set(*birth);
    }
}

extern "C" fn set_policy(number: u32) {
    while !ENGINE.choose_policy(built_in(number)) {}
}

extern "C" fn policy() -> u32 {
    ENGINE.injector.kind() as u32
}
