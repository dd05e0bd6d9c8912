//! Clocks and sleeping.

use super::Argument::{Any, Flags, In, Int, OneOf, Out, OutAny};
use super::{Spec, Width, kinds, names};
use crate::generate::structures;

const REMAINING: super::Argument = Any(32, structures::room_for_name);

pub(super) const CALLS: &[Spec] = &[
    Spec::new(
        "nanosleep",
        libc::SYS_nanosleep,
        &[In(structures::short_time), REMAINING],
    )
    .int()
    .waits(),
    Spec::new(
        "clock_nanosleep",
        libc::SYS_clock_nanosleep,
        &[
            OneOf(names::CLOCK),
            Flags(names::TIMER_ABSTIME),
            In(structures::short_time),
            REMAINING,
        ],
    )
    .wrapped(Width::Code)
    .waits()
    .adjusted(structures::fit_sleep),
    Spec::new(
        "clock_gettime",
        libc::SYS_clock_gettime,
        &[OneOf(names::CLOCK), OutAny(16)],
    )
    .int(),
    Spec::new(
        "clock_getres",
        libc::SYS_clock_getres,
        &[OneOf(names::CLOCK), Out(16)],
    )
    .int(),
    Spec::new(
        "timerfd_create",
        libc::SYS_timerfd_create,
        &[OneOf(names::CLOCK), Flags(names::DUP)],
    )
    .int(),
    Spec::of(
        kinds::TIMERS,
        "timerfd_settime",
        libc::SYS_timerfd_settime,
        &[
            super::Argument::Descriptor,
            Int(&[0, 0, 1, 3]),
            In(structures::interval),
            REMAINING,
        ],
    )
    .int(),
    Spec::of(
        kinds::TIMERS,
        "timerfd_gettime",
        libc::SYS_timerfd_gettime,
        &[super::Argument::Descriptor, REMAINING],
    )
    .int(),
    Spec::function("usleep", Width::Int, &[Int(&[0, 1000, 5000])]).waits(),
];
