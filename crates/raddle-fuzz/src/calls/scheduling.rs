//! Scheduling attributes.

use super::Argument::{In, Int, Long, OneOf, Out, Thread};
use super::{Spec, names};
use crate::generate::structures;

const PARAMETER: super::Argument = In(structures::scheduling_parameter);

pub(super) const CALLS: &[Spec] = &[
    Spec::new("sched_yield", libc::SYS_sched_yield, &[]).int(),
    Spec::new(
        "sched_getaffinity",
        libc::SYS_sched_getaffinity,
        &[Thread, Long(&[8, 128, 0, 4, 9, -1]), Out(128)],
    ),
    Spec::new(
        "sched_setaffinity",
        libc::SYS_sched_setaffinity,
        &[
            Thread,
            Long(&[8, 128, 0, 1, 4096, -1]),
            In(structures::processor_set),
        ],
    ),
    Spec::new(
        "sched_getparam",
        libc::SYS_sched_getparam,
        &[Thread, Out(4)],
    )
    .int(),
    Spec::new(
        "sched_setparam",
        libc::SYS_sched_setparam,
        &[Thread, PARAMETER],
    )
    .int(),
    Spec::new(
        "sched_getscheduler",
        libc::SYS_sched_getscheduler,
        &[Thread],
    )
    .int(),
    Spec::new(
        "sched_setscheduler",
        libc::SYS_sched_setscheduler,
        &[Thread, OneOf(names::SCHEDULER), PARAMETER],
    )
    .int(),
    Spec::new(
        "sched_getattr",
        libc::SYS_sched_getattr,
        &[
            Thread,
            Out(64),
            Int(&[48, 56, 64, 0, 47, 4097]),
            Int(&[0, 0, 1]),
        ],
    ),
    Spec::new(
        "sched_setattr",
        libc::SYS_sched_setattr,
        &[
            Thread,
            In(structures::scheduling_attributes),
            Int(&[0, 0, 1]),
        ],
    ),
    Spec::new(
        "sched_rr_get_interval",
        libc::SYS_sched_rr_get_interval,
        &[Thread, Out(16)],
    )
    .int(),
    Spec::new(
        "sched_get_priority_max",
        libc::SYS_sched_get_priority_max,
        &[OneOf(names::SCHEDULER)],
    )
    .int(),
    Spec::new(
        "getpriority",
        libc::SYS_getpriority,
        &[OneOf(names::PRIORITY_OF), Thread],
    ),
    Spec::new(
        "setpriority",
        libc::SYS_setpriority,
        &[
            OneOf(names::PRIORITY_OF),
            Thread,
            Int(&[0, 1, 5, 19, 20, 100, -1, -20, -100]),
        ],
    )
    .int(),
    Spec::new(
        "ioprio_set",
        libc::SYS_ioprio_set,
        &[
            OneOf(names::IO_PRIORITY_OF),
            Thread,
            Int(&[0, 0x4004, 0x6007, 0x2000, 0x8000, -1]),
        ],
    ),
    Spec::new(
        "ioprio_get",
        libc::SYS_ioprio_get,
        &[OneOf(names::IO_PRIORITY_OF), Thread],
    ),
];
