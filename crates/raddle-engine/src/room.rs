//! Making room: a thread that others wait for gives its carrier up before it has to wait itself.

use crate::carrier::Carrier;
use crate::engine::ENGINE;
use crate::switch::{come_back, leave, leave_to, look_around, move_away};
use crate::thread::{Thread, WaitKind};
use crate::turn::Turn;
use crate::{clock, ums};
use core::sync::atomic::Ordering;

/// The running thread has used up its quantum: whoever waits runs first, timers and descriptors
/// included.
pub fn give_way() {
    let carrier = Carrier::current();
    if come_back(carrier) {
        return;
    }
    Carrier::count(&carrier.preemptions);
    Carrier::count(&carrier.thread().preemptions);
    if carrier.thread().strays_on(carrier) {
        return move_away(|| {});
    }
    carrier.follow_policy();
    look_around(carrier);
    let thread = carrier.thread();
    if !ENGINE.sides.wants_carrier(carrier, thread) && ums::preempted(carrier, thread) {
        return;
    }
    if !ENGINE.sides.wants_carrier(carrier, thread) {
        carrier.preempt_at.store(0, Ordering::Relaxed); // no thread waits
        return;
    }
    let (since_ns, left_ns) = (
        carrier.now_ns.get(),
        carrier.preempt_left_ns.load(Ordering::Relaxed),
    );
    Turn::interrupted(thread, left_ns);
    let switches = thread.switches.load(Ordering::Relaxed);
    for _ in 0..2 {
        thread.waits_for(WaitKind::Yield, 0, 0);
        ENGINE.push_spent(thread.task_ref(), left_ns != 0);
        leave(carrier, thread);
        // A look that takes spent threads first may find this one, although others wait. The next
        // look doesn't.
        let stays = thread.switches.load(Ordering::Relaxed) == switches;
        if !stays || carrier.queue.is_empty() {
            break;
        }
    }
    let now_ns = clock::now_ns();
    Turn::resumed(thread, now_ns, now_ns.saturating_sub(since_ns));
    if thread.strays_on(Carrier::current()) {
        move_away(|| {}); // bound while it waited for its turn
    }
}

/// A signal that came to this carrier has woken another thread here: the running one makes room for
/// it at the end of its call, or before it goes on, with what is left of its quantum. The kernel
/// runs a thread that it wakes for a signal at once, too.
///
/// A bound thread's carrier runs no other thread. Under a policy, the policy decides.
pub fn make_room(carrier: &Carrier) {
    let is_fifo = carrier.queueless.get() == 0 && carrier.bound.load(Ordering::Relaxed).is_null();
    let Some(thread) = carrier.thread_or_none().filter(|_| is_fifo) else {
        return;
    };
    let left_ns = Turn::left_ns(thread, ENGINE.quantum_on(carrier), clock::now_ns());
    carrier.preempt_left_ns.store(left_ns, Ordering::Relaxed);
    carrier.preempt_here();
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
    let is_bound = !carrier.bound.load(Ordering::Relaxed).is_null();
    if is_bound || carrier.queueless.get() != 0 || thread.is_special() {
        return;
    }
    if ENGINE.has_help() {
        return ENGINE.backlog(carrier);
    }
    let Some(woken) = carrier.queue.take_lifo() else {
        return;
    };
    thread.waits_for(WaitKind::Yield, 0, 0);
    if let Some(displaced) = carrier.queue.push_lifo(thread.task_ref()) {
        ENGINE.push_ring(carrier, displaced);
    }
    leave_to(carrier, thread, Some(Thread::of(woken)));
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}
