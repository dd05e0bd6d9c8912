//! Signals and timers that send them.

use super::Argument::{
    Any, Flags, In, Int, Long, Made, OneOf, Out, OutAny, Process, Signal, Thread,
};
use super::{Spec, kinds, names};
use crate::generate::structures;

const SET: super::Argument = In(structures::signal_set);
const SET_OUT: super::Argument = Out(8);
const BYTES: super::Argument = Long(&[8, 8, 8, 8, 0, 4, 16, 128]);
const INFORMATION: super::Argument = In(structures::signal_information);
const TIMER: super::Argument = Made(structures::timer);

pub(super) const CALLS: &[Spec] = &[
    Spec::new(
        "rt_sigaction",
        libc::SYS_rt_sigaction,
        &[Signal, In(structures::signal_action), OutAny(32), BYTES],
    ),
    Spec::new(
        "rt_sigprocmask",
        libc::SYS_rt_sigprocmask,
        &[OneOf(names::SIGNAL_HOW), SET, SET_OUT, BYTES],
    ),
    Spec::new("rt_sigpending", libc::SYS_rt_sigpending, &[SET_OUT, BYTES]),
    Spec::new("rt_sigsuspend", libc::SYS_rt_sigsuspend, &[SET, BYTES]).waits(),
    Spec::new(
        "rt_sigtimedwait",
        libc::SYS_rt_sigtimedwait,
        &[
            SET,
            Any(128, structures::room_for_name),
            In(structures::time_limit),
            BYTES,
        ],
    )
    .waits(),
    Spec::new("kill", libc::SYS_kill, &[Process, Signal]).int(),
    Spec::new("tgkill", libc::SYS_tgkill, &[Process, Thread, Signal]).int(),
    Spec::new("tkill", libc::SYS_tkill, &[Thread, Signal]),
    Spec::new(
        "rt_sigqueueinfo",
        libc::SYS_rt_sigqueueinfo,
        &[Process, Signal, INFORMATION],
    ),
    Spec::new(
        "rt_tgsigqueueinfo",
        libc::SYS_rt_tgsigqueueinfo,
        &[Process, Thread, Signal, INFORMATION],
    ),
    Spec::new(
        "sigaltstack",
        libc::SYS_sigaltstack,
        &[In(structures::signal_stack), Out(24)],
    )
    .int(),
    Spec::of(
        kinds::SIGNALS,
        "signalfd",
        libc::SYS_signalfd,
        &[DESCRIPTOR_OR_NEW, SET, BYTES],
    ),
    Spec::of(
        kinds::SIGNALS,
        "signalfd4",
        libc::SYS_signalfd4,
        &[DESCRIPTOR_OR_NEW, SET, BYTES, Flags(names::SIGNALFD)],
    ),
    Spec::new("pause", libc::SYS_pause, &[]).int().waits(),
    Spec::new("alarm", libc::SYS_alarm, &[Int(&[0, 1])]).int(),
    Spec::new(
        "setitimer",
        libc::SYS_setitimer,
        &[
            Int(&[0, 1, 2, 3]),
            In(structures::interval_us),
            Any(32, structures::room_for_name),
        ],
    )
    .int(),
    Spec::new(
        "timer_create",
        libc::SYS_timer_create,
        &[
            OneOf(names::CLOCK),
            In(structures::signal_event),
            Made(structures::room_for_timer),
        ],
    ),
    Spec::new(
        "timer_settime",
        libc::SYS_timer_settime,
        &[
            TIMER,
            Flags(names::TIMER_ABSTIME),
            In(structures::interval),
            Any(32, structures::room_for_name),
        ],
    ),
    Spec::new(
        "timer_gettime",
        libc::SYS_timer_gettime,
        &[TIMER, Any(32, structures::room_for_name)],
    ),
    Spec::new("timer_getoverrun", libc::SYS_timer_getoverrun, &[TIMER]),
    Spec::new("timer_delete", libc::SYS_timer_delete, &[TIMER]),
    Spec::function("raise", super::Width::Int, &[Signal]),
    Spec::function(
        "sigprocmask",
        super::Width::Int,
        &[OneOf(names::SIGNAL_HOW), SET, SET_OUT],
    ),
    Spec::function(
        "pthread_sigmask",
        super::Width::Code,
        &[OneOf(names::SIGNAL_HOW), SET, SET_OUT],
    ),
    Spec::function(
        "sigwaitinfo",
        super::Width::Int,
        &[SET, Any(128, structures::room_for_name)],
    )
    .waits(),
    Spec::function("sigwait", super::Width::Code, &[SET, Out(4)]).waits(),
    Spec::function("sigsuspend", super::Width::Int, &[SET]).waits(),
    Spec::function(
        "sigqueue",
        super::Width::Int,
        &[Process, Signal, Long(&[0, 42, -1])],
    ),
    Spec::function("sigpending", super::Width::Int, &[SET_OUT]),
];

const DESCRIPTOR_OR_NEW: super::Argument = Made(structures::descriptor_or_new);
