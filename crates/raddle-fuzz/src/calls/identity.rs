//! Credentials, and the other attributes that the kernel keeps for a thread.

use super::Argument::{Descriptor, Flags, In, Int, Long, Made, OneOf, Out};
use super::{Spec, names};
use crate::generate::structures;

const ID: super::Argument = Int(&[0, 1000, 65534, -1]);

pub(super) const CALLS: &[Spec] = &[
    Spec::new("setuid", libc::SYS_setuid, &[ID]).int(),
    Spec::new("setgid", libc::SYS_setgid, &[ID]).int(),
    Spec::new("setreuid", libc::SYS_setreuid, &[ID, ID]).int(),
    Spec::new("setregid", libc::SYS_setregid, &[ID, ID]).int(),
    Spec::new("setresuid", libc::SYS_setresuid, &[ID, ID, ID]).int(),
    Spec::new("setresgid", libc::SYS_setresgid, &[ID, ID, ID]).int(),
    Spec::new(
        "setgroups",
        libc::SYS_setgroups,
        &[Int(&[0, 1, 2, -1, 65537]), In(structures::small_set)],
    )
    .int(),
    Spec::new("setfsuid", libc::SYS_setfsuid, &[ID]).int(),
    Spec::new("setfsgid", libc::SYS_setfsgid, &[ID]).int(),
    Spec::new("getresuid", libc::SYS_getresuid, &[Out(4), Out(4), Out(4)]).int(),
    Spec::new("getresgid", libc::SYS_getresgid, &[Out(4), Out(4), Out(4)]).int(),
    Spec::new(
        "capget",
        libc::SYS_capget,
        &[In(structures::capability_header), Out(24)],
    ),
    Spec::new(
        "capset",
        libc::SYS_capset,
        &[
            In(structures::capability_header),
            In(structures::capabilities),
        ],
    ),
    Spec::new("unshare", libc::SYS_unshare, &[Flags(names::UNSHARE)]).int(),
    Spec::new(
        "setns",
        libc::SYS_setns,
        &[Descriptor, Int(&[0, 0x0400_0000, -1])],
    )
    .int(),
    // Not PTRACE_TRACEME: the parent doesn't expect it.
    Spec::new(
        "ptrace",
        libc::SYS_ptrace,
        &[
            Int(&[1, 2, 7, 8, 12, 17, 0x4200, 0x4206, -1]),
            Int(&[0, -1, 0x7fff_ffff]),
            Int(&[0, -1]),
            Int(&[0, -1]),
        ],
    )
    .int(),
    Spec::new(
        "seccomp",
        libc::SYS_seccomp,
        &[
            OneOf(names::SECCOMP),
            Int(&[0, 1, 2, 4, -1]),
            In(structures::filter),
        ],
    )
    .adjusted(structures::fit_filter),
    Spec::new(
        "landlock_restrict_self",
        libc::SYS_landlock_restrict_self,
        &[Descriptor, Int(&[0, 0, 1])],
    ),
    Spec::new(
        "ioperm",
        libc::SYS_ioperm,
        &[
            Long(&[0x80, 0, 65536, -1]),
            Long(&[1, 0, 65536, -1]),
            Int(&[0, 1]),
        ],
    )
    .int(),
    Spec::new("iopl", libc::SYS_iopl, &[Int(&[0, 3, 4, -1])]).int(),
    Spec::new(
        "personality",
        libc::SYS_personality,
        &[Made(structures::personality)],
    )
    .int(),
    Spec::new(
        "prctl",
        libc::SYS_prctl,
        &[
            OneOf(names::PRCTL),
            Made(structures::prctl_argument),
            Made(structures::prctl_argument),
            Long(&[0, 0, 0, 1]),
            Long(&[0, 0, 0, 1]),
        ],
    )
    .adjusted(structures::fit_prctl),
];
