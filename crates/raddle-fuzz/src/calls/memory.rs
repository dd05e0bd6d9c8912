//! Calls about memory.

use super::Argument::{Descriptor, Flags, In, Int, Long, Made, OneOf, Out};
use super::{Answer, Spec, names};
use crate::generate::structures;

/// An address that a call about memory may change: within its own pages, or in no mapping.
const AT: super::Argument = Made(structures::changing_place);
const BYTES: super::Argument = Made(structures::changing_bytes);

pub(super) const CALLS: &[Spec] = &[
    Spec::new(
        "mmap",
        libc::SYS_mmap,
        &[
            AT,
            BYTES,
            Flags(names::PROTECTION),
            Flags(names::MAP),
            Descriptor,
            Long(&[0, 0, 4096, 1, -4096]),
        ],
    )
    .long()
    .answers(Answer::Address)
    .adjusted(structures::fit_mapping),
    Spec::new("munmap", libc::SYS_munmap, &[AT, BYTES]).int(),
    Spec::new(
        "mprotect",
        libc::SYS_mprotect,
        &[AT, BYTES, Flags(names::PROTECTION)],
    )
    .int(),
    Spec::new(
        "madvise",
        libc::SYS_madvise,
        &[AT, BYTES, OneOf(names::MADVISE)],
    )
    .int(),
    Spec::new(
        "mremap",
        libc::SYS_mremap,
        &[AT, BYTES, BYTES, Flags(names::MREMAP), AT],
    )
    .answers(Answer::Address)
    .adjusted(structures::fit_remapping),
    Spec::new("msync", libc::SYS_msync, &[AT, BYTES, Flags(names::MS)]).int(),
    Spec::new("mincore", libc::SYS_mincore, &[AT, BYTES, Out(0)]).int(),
    Spec::new("mlock", libc::SYS_mlock, &[AT, BYTES]).int(),
    Spec::new("munlock", libc::SYS_munlock, &[AT, BYTES]).int(),
    Spec::new("brk", libc::SYS_brk, &[AT]).answers(Answer::Any),
    Spec::new(
        "pkey_mprotect",
        libc::SYS_pkey_mprotect,
        &[
            AT,
            BYTES,
            Flags(names::PROTECTION),
            Int(&[-1, -1, 0, 1, 16]),
        ],
    ),
    Spec::new("mlock2", libc::SYS_mlock2, &[AT, BYTES, Int(&[0, 1, 2])]),
    Spec::new("mlockall", libc::SYS_mlockall, &[Int(&[0, 4, 5, 8])]).int(),
    Spec::new("mseal", libc::SYS_mseal, &[AT, BYTES, Long(&[0, 0, 1])]),
    Spec::new(
        "shmat",
        libc::SYS_shmat,
        &[Int(&[-1, 0, 1 << 30]), AT, Int(&[0, 0o10000, 0o20000])],
    )
    .answers(Answer::Address),
    Spec::new(
        "mbind",
        libc::SYS_mbind,
        &[
            AT,
            BYTES,
            OneOf(names::MEMORY_POLICY),
            In(structures::small_set),
            Long(&[0, 1, 64, 1 << 20]),
            Int(&[0, 1, 2, 8]),
        ],
    ),
    Spec::new(
        "set_mempolicy_home_node",
        libc::SYS_set_mempolicy_home_node,
        &[AT, BYTES, Long(&[0, 1, 1 << 20]), Long(&[0, 0, 1])],
    ),
    Spec::new(
        "process_madvise",
        libc::SYS_process_madvise,
        &[
            Descriptor,
            In(structures::vector),
            Long(&[1, 2, 0, 1025]),
            OneOf(names::MADVISE),
            Int(&[0, 0, 1]),
        ],
    )
    .long(),
    Spec::new("process_vm_readv", libc::SYS_process_vm_readv, VM).long(),
    Spec::new("process_vm_writev", libc::SYS_process_vm_writev, VM).long(),
    Spec::new(
        "set_mempolicy",
        libc::SYS_set_mempolicy,
        &[
            OneOf(names::MEMORY_POLICY),
            In(structures::small_set),
            Long(&[0, 1, 64, 1 << 20]),
        ],
    ),
];

const VM: &[super::Argument] = &[
    super::Argument::Thread,
    In(structures::vector),
    Long(&[1, 2, 0, 1025]),
    In(structures::vector),
    Long(&[1, 2, 0, 1025]),
    Int(&[0, 0, 1]),
];
