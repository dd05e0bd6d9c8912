//! A light thread's turns on a host: how they begin and end.

use super::super::group::GROUP;
use super::{FAIRNESS, Host, Light};
use raddle_arch::switch_keep_fs;
use raddle_sched::TaskRef;
use std::sync::atomic::Ordering;

/// Makes a new light thread runnable.
pub(in crate::light) fn start(light: &'static Light) {
    match Host::current() {
        Some(host) if host.light().is_some() => {
            host.come_back();
            host.push(light.task_ref());
        }
        _ => inject(light.task_ref()),
    }
}

fn inject(task: TaskRef) {
    GROUP.control.injector.push(task);
    GROUP.wake_one();
}

/// Lets others run; the calling light thread goes behind them.
pub(in crate::light) fn yield_now(light: &'static Light) {
    let host = light.host();
    if host.come_back() && GROUP.has_surplus() {
        // Another host has taken this one's place.
        if light.migrates.get() {
            inject(light.task_ref())
        } else {
            host.own.push(light.task_ref())
        }
        return leave_for_loop(light, host);
    }
    let has_others = !host.queue().is_empty() || !host.own.is_empty();
    let alone = !has_others && GROUP.control.injector.is_empty();
    if alone || host.picks.load(Ordering::Relaxed) % FAIRNESS == 1 {
        std::thread::yield_now(); // the awaited thread may be no light one, or on another host
    }
    if alone {
        return;
    }
    if light.migrates.get() {
        host.push(light.task_ref())
    } else {
        host.own.push(light.task_ref())
    }
    leave(light);
}

/// Parks the calling light thread, which has prepared its task and registered with a waker.
pub(crate) fn park(light: &'static Light) {
    let host = light.host();
    if host.come_back() && GROUP.has_surplus() {
        return leave_for_loop(light, host);
    }
    leave(light);
}

/// Makes a claimed light thread runnable. May be called on any thread.
pub(crate) fn unpark(task: TaskRef) {
    match Host::current() {
        Some(host) if host.light().is_some() => {
            host.come_back();
            host.wake_next(task);
        }
        _ => match Light::of(task).home() {
            Some(home) => home.deliver(task),
            None => inject(task),
        },
    }
}

/// Makes a claimed light thread runnable, behind all others. May be called on any thread. Returns
/// true if any host may run it: the caller wakes one.
pub(in crate::light) fn expired(task: TaskRef) -> bool {
    match Light::of(task).home() {
        Some(home) if Host::current().is_some_and(|own| std::ptr::eq(own, home)) => {
            home.own.push(task);
            false
        }
        Some(home) => {
            home.deliver(task);
            false
        }
        None => {
            GROUP.control.injector.push(task);
            true
        }
    }
}

/// As [`unpark`], on a light thread that ends without another wait: its host runs the woken one
/// next, if it may.
pub(crate) fn hand_over(task: TaskRef) {
    let own = Host::current().filter(|host| host.light().is_some());
    let may_run = |host: &&Host| {
        let home = Light::of(task).home();
        home.is_none_or(|home| std::ptr::eq(home, *host))
    };
    match own.filter(may_run) {
        Some(host) => {
            host.come_back();
            host.follower.set(task);
        }
        None => unpark(task),
    }
}

/// Gives the host up; returns when the light thread was pushed and picked again.
#[inline(always)]
pub(super) fn leave(light: &'static Light) {
    let host = light.host();
    match host.pick() {
        Some(next) if std::ptr::eq(next, light) => {}
        Some(next) if next.task.on_cpu.load(Ordering::Acquire) == 0 => {
            switch_to(light, host, next);
        }
        next => {
            host.next.set(next);
            leave_for_loop(light, host);
        }
    }
}

/// Gives the host to `next`, which the host may run and which is off its stack.
#[inline(always)]
pub(super) fn switch_to(light: &'static Light, host: &Host, next: &'static Light) {
    host.enter(next);
    let on_cpu = light.task.on_cpu.as_ptr();
    // SAFETY: `next` was popped or handed over, so it is this host's, and off its stack; a waker
    // will push `light`, or it has ended.
    unsafe { switch_keep_fs(light.context.as_ptr(), next.context.get(), on_cpu) };
}

#[inline(never)]
pub(super) fn leave_for_loop(light: &'static Light, host: &'static Host) {
    host.control.lends.store(0, Ordering::Relaxed);
    host.light.set(None);
    // SAFETY: the loop is parked while a light thread runs.
    unsafe {
        switch_keep_fs(
            light.context.as_ptr(),
            host.context.get(),
            light.task.on_cpu.as_ptr(),
        );
    }
}
