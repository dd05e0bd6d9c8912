//! Making room: a thread that others wait for gives its carrier up before it has to wait itself.

use crate::scheduling::switch::{come_back, leave, leave_to, look_around_at, move_away};
use crate::scheduling::timed;
use crate::scheduling::ums;
use crate::state::carrier::Carrier;
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use crate::state::turn::Turn;
use crate::state::{clock, events};
use core::sync::atomic::Ordering;
use raddle_inspect::EventKind;

/// The running thread has used up its quantum: waiting threads run first, those of timers and
/// descriptors included.
pub fn give_way() {
    let carrier = Carrier::current();
    if come_back(carrier) {
        return;
    }
    Carrier::count(&carrier.preempt);
    Carrier::count(&carrier.thread().preempt);
    if carrier.thread().strays_on(carrier) {
        return move_away(|| {});
    }
    carrier.follow_policy();
    let thread = carrier.thread();
    let now_ns = clock::now_ns();
    if !timed::has_looked(carrier, now_ns) || !carrier.is_wanted(thread) {
        look_around_at(carrier, now_ns);
    }
    if !carrier.is_wanted(thread) && ums::preempted(carrier, thread) {
        return;
    }
    if !carrier.is_wanted(thread) {
        carrier.preempt_at.store(0, Ordering::Relaxed); // no thread waits
        return;
    }
    thread.waits_for(WaitKind::YIELD, 0, 0);
    if events::is_on() {
        events::note(carrier, EventKind::PREEMPT, Some(thread), 0);
    }
    Turn::interrupted(thread);
    PROCESS.push_preempted(carrier, thread, now_ns);
    leave(carrier, thread);
    Turn::resumed(thread, clock::now_ns());
    if thread.strays_on(Carrier::current()) {
        move_away(|| {}); // bound while it waited for its turn
    }
}

/// A signal that came to this carrier has woken another thread here: the running one makes room for
/// it at the end of its call, or before it goes on. The kernel runs a thread that it wakes for a
/// signal at once, too.
///
/// A bound thread's carrier runs no other thread. Under a policy, the policy decides.
pub fn make_room(carrier: &Carrier) {
    if carrier.has_queue() && carrier.thread_or_none().is_some() {
        carrier.preempt_here();
    }
}

/// The running thread has woken another one for a signal. A carrier that has nothing to do is asked
/// to run that one; without such a carrier it runs here at once, and this thread goes on when it
/// waits or ends, before all others. So a sender that computes doesn't keep the handler waiting for
/// its quantum.
#[inline(always)]
pub fn let_signalled_run() {
    let carrier = Carrier::current();
    if carrier.roused.replace(false) {
        let_woken_run(carrier);
    }
}

#[cold]
fn let_woken_run(carrier: &Carrier) {
    let thread = carrier.thread();
    if !carrier.has_queue() || thread.is_special() {
        return;
    }
    let engine = carrier.engine();
    if engine.has_help() {
        return engine.backlog(carrier);
    }
    if carrier.is_timed() {
        return carrier.preempt_here(); // the accounts say what runs then
    }
    let Some(woken) = carrier.queue.take_lifo() else {
        return;
    };
    thread.waits_for(WaitKind::YIELD, 0, 0);
    if let Some(displaced) = carrier.queue.push_lifo(thread.task_ref()) {
        engine.push_ring(carrier, displaced);
    }
    leave_to(carrier, thread, Some(Thread::of(woken)));
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}
