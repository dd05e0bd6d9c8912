//! Calls that wait for descriptors.

use super::Argument::{Any, Descriptor, Flags, In, Int, Long, Made, On, OneOf, Out};
use super::{Answer, Spec, kinds, names};
use crate::generate::structures;

const LIMIT_MS: super::Argument = Int(&[0, 0, 5, 10, -1, -1, -2, i32::MIN as i64]);
const MASK: super::Argument = In(structures::signal_set);
const MASK_BYTES: super::Argument = Long(&[8, 8, 8, 8, 0, 4, 16, 128]);
const SET: super::Argument = In(structures::descriptor_set);
const NUMBER: super::Argument = Int(&[16, 24, 64, 0, 1024, 1025, -1]);
const LIMIT_OUT: super::Argument = Any(16, structures::time_limit);

pub(super) const CALLS: &[Spec] = &[
    Spec::of(
        kinds::READABLE,
        "poll",
        libc::SYS_poll,
        &[In(structures::poll_list), POLL_COUNT, LIMIT_MS],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::READABLE,
        "ppoll",
        libc::SYS_ppoll,
        &[
            In(structures::poll_list),
            POLL_COUNT,
            LIMIT_OUT,
            MASK,
            MASK_BYTES,
        ],
    )
    .waits(),
    Spec::of(
        kinds::READABLE,
        "select",
        libc::SYS_select,
        &[NUMBER, SET, SET, SET, Any(16, structures::time_limit_us)],
    )
    .waits(),
    Spec::of(
        kinds::READABLE,
        "pselect6",
        libc::SYS_pselect6,
        &[
            NUMBER,
            SET,
            SET,
            SET,
            LIMIT_OUT,
            In(structures::set_and_size),
        ],
    )
    .waits(),
    Spec::of(
        kinds::EPOLL,
        "epoll_wait",
        libc::SYS_epoll_wait,
        &[Descriptor, Out(48), EVENTS, LIMIT_MS],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::EPOLL,
        "epoll_pwait",
        libc::SYS_epoll_pwait,
        &[Descriptor, Out(48), EVENTS, LIMIT_MS, MASK, MASK_BYTES],
    )
    .waits(),
    Spec::of(
        kinds::EPOLL,
        "epoll_pwait2",
        libc::SYS_epoll_pwait2,
        &[
            Descriptor,
            Out(48),
            EVENTS,
            In(structures::time_limit),
            MASK,
            MASK_BYTES,
        ],
    )
    .waits(),
    Spec::new(
        "epoll_create1",
        libc::SYS_epoll_create1,
        &[Int(&[0, 0o2_000_000, 1])],
    )
    .int(),
    Spec::of(
        kinds::READABLE,
        "epoll_ctl",
        libc::SYS_epoll_ctl,
        &[
            On(kinds::EPOLL),
            OneOf(names::EPOLL_CTL),
            Descriptor,
            In(structures::epoll_event),
        ],
    )
    .int(),
    Spec::of(
        kinds::RINGS,
        "io_uring_enter",
        libc::SYS_io_uring_enter,
        &[
            Descriptor,
            Int(&[0, 1, -1]),
            Int(&[0, 1, 2]),
            Flags(names::ENTER),
            In(structures::signal_set),
            MASK_BYTES,
        ],
    )
    .waits(),
    Spec::new(
        "io_getevents",
        libc::SYS_io_getevents,
        &[
            CONTEXT,
            Long(&[0, 1, 2, -1]),
            Long(&[1, 2, 0, -1]),
            Out(64),
            In(structures::time_limit),
        ],
    )
    .waits(),
    Spec::new(
        "io_pgetevents",
        333, // the crate libc has no name for it
        &[
            CONTEXT,
            Long(&[0, 1, 2, -1]),
            Long(&[1, 2, 0, -1]),
            Out(64),
            In(structures::time_limit),
            In(structures::set_and_size),
        ],
    )
    .waits(),
    Spec::new(
        "io_setup",
        libc::SYS_io_setup,
        &[Int(&[1, 8, 0]), Made(structures::room_for_context)],
    )
    .answers(Answer::Number),
];

const POLL_COUNT: super::Argument = Int(&[1, 2, 3, 0, -1, 5000]);
const EVENTS: super::Argument = Int(&[1, 2, 4, 0, -1, i32::MAX as i64]);
/// A context that `io_setup` made at a fixed place, or none.
const CONTEXT: super::Argument = super::Argument::Made(structures::aio_context);
