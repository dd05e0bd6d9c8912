//! Calls on sockets.

use super::Argument::{Any, Buffer, Descriptor, Flags, In, Int, Length, Made, OneOf};
use super::{Spec, kinds, names};
use crate::generate::structures;

/// An address that the call stores; its port differs from run to run.
const NAME_OUT: super::Argument = Any(128, structures::room_for_name);
const NAME_LENGTH_OUT: super::Argument = In(structures::name_length);
const NAME: super::Argument = In(structures::socket_name);
const NAME_LENGTH: super::Argument = Int(&[16, 110, 2, 0, 3, 128, 129, -1]);
const COUNT: super::Argument = Int(&[1, 2, 3, 0, 1025, -1]);

pub(super) const CALLS: &[Spec] = &[
    Spec::of(
        kinds::SOCKETS,
        "recvfrom",
        libc::SYS_recvfrom,
        &[
            Descriptor,
            Buffer,
            Length,
            Flags(names::MSG),
            NAME_OUT,
            NAME_LENGTH_OUT,
        ],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "sendto",
        libc::SYS_sendto,
        &[
            Descriptor,
            Buffer,
            Length,
            Flags(names::MSG),
            NAME,
            NAME_LENGTH,
        ],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "recvmsg",
        libc::SYS_recvmsg,
        &[Descriptor, In(structures::message_in), Flags(names::MSG)],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "sendmsg",
        libc::SYS_sendmsg,
        &[Descriptor, In(structures::message_out), Flags(names::MSG)],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "recvmmsg",
        libc::SYS_recvmmsg,
        &[
            Descriptor,
            In(structures::messages_in),
            COUNT,
            Flags(names::MSG),
            Any(16, structures::time_limit),
        ],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "sendmmsg",
        libc::SYS_sendmmsg,
        &[
            Descriptor,
            In(structures::messages_out),
            COUNT,
            Flags(names::MSG),
        ],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::LISTENERS,
        "accept",
        libc::SYS_accept,
        &[Descriptor, NAME_OUT, NAME_LENGTH_OUT],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::LISTENERS,
        "accept4",
        libc::SYS_accept4,
        &[Descriptor, NAME_OUT, NAME_LENGTH_OUT, Flags(names::DUP)],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::UNCONNECTED,
        "connect",
        libc::SYS_connect,
        &[Descriptor, NAME, NAME_LENGTH],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::SOCKETS,
        "setsockopt",
        libc::SYS_setsockopt,
        &[
            Descriptor,
            OneOf(names::SOCKET_LEVEL),
            OneOf(names::SOCKET_OPTION),
            In(structures::option_value),
            Int(&[16, 4, 8, 0, 15, 3, 17, -1]),
        ],
    )
    .int(),
    Spec::of(
        kinds::SOCKETS,
        "getsockopt",
        libc::SYS_getsockopt,
        &[
            Descriptor,
            OneOf(names::SOCKET_LEVEL),
            OneOf(names::SOCKET_OPTION),
            super::Argument::Out(16),
            NAME_LENGTH_OUT,
        ],
    )
    .int(),
    Spec::new(
        "socket",
        libc::SYS_socket,
        &[
            OneOf(names::DOMAIN),
            OneOf(names::SOCKET_KIND),
            Int(&[0, 0, 6, 17]),
        ],
    )
    .int(),
    Spec::new(
        "socketpair",
        libc::SYS_socketpair,
        &[
            OneOf(names::DOMAIN),
            OneOf(names::SOCKET_KIND),
            Int(&[0]),
            super::Argument::Out(8),
        ],
    )
    .int(),
    Spec::of(
        kinds::UNCONNECTED,
        "bind",
        libc::SYS_bind,
        &[Descriptor, NAME, NAME_LENGTH],
    )
    .int(),
    Spec::of(
        kinds::LISTENERS,
        "listen",
        libc::SYS_listen,
        &[Descriptor, Int(&[1, 0, 5, -1])],
    )
    .int(),
    Spec::of(
        kinds::SOCKETS,
        "shutdown",
        libc::SYS_shutdown,
        &[Descriptor, OneOf(names::SHUTDOWN)],
    )
    .int(),
    Spec::of(
        kinds::SOCKETS,
        "getsockname",
        libc::SYS_getsockname,
        &[Descriptor, NAME_OUT, Made(structures::name_length)],
    )
    .int(),
];
