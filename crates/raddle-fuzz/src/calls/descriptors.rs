//! Calls that any descriptor may get: reading, writing, closing, copying, locks on files.

use super::Argument::{
    Buffer, Descriptor, Flags, Folder, In, Int, Length, Long, Made, OneOf, Out, Path,
};
use super::{Answer, Spec, kinds, names};
use crate::generate::structures;

const POSITION: super::Argument = Long(&[0, 1, 16, 4095, 4096, 100_000, -1, i64::MAX]);
const HALF: super::Argument = Long(&[0, 0, 1, 0x8000_0000, -1]);
const VECTOR: super::Argument = In(structures::vector);
const COUNT: super::Argument = Long(&[1, 2, 3, 0, 1024, 1025, -1]);

pub(super) const CALLS: &[Spec] = &[
    Spec::of(
        kinds::READABLE,
        "read",
        libc::SYS_read,
        &[Descriptor, Buffer, Length],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::WRITABLE,
        "write",
        libc::SYS_write,
        &[Descriptor, Buffer, Length],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::READABLE,
        "readv",
        libc::SYS_readv,
        &[Descriptor, VECTOR, COUNT],
    )
    .long()
    .waits()
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::WRITABLE,
        "writev",
        libc::SYS_writev,
        &[Descriptor, VECTOR, COUNT],
    )
    .long()
    .waits()
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::FILES,
        "pread64",
        libc::SYS_pread64,
        &[Descriptor, Buffer, Length, POSITION],
    )
    .long(),
    Spec::of(
        kinds::FILES,
        "pwrite64",
        libc::SYS_pwrite64,
        &[Descriptor, Buffer, Length, POSITION],
    )
    .long(),
    Spec::of(
        kinds::FILES,
        "preadv",
        libc::SYS_preadv,
        &[Descriptor, VECTOR, COUNT, POSITION, HALF],
    )
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::FILES,
        "pwritev",
        libc::SYS_pwritev,
        &[Descriptor, VECTOR, COUNT, POSITION, HALF],
    )
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::READABLE,
        "preadv2",
        libc::SYS_preadv2,
        &[Descriptor, VECTOR, COUNT, POSITION, HALF, Flags(names::RWF)],
    )
    .waits()
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::WRITABLE,
        "pwritev2",
        libc::SYS_pwritev2,
        &[Descriptor, VECTOR, COUNT, POSITION, HALF, Flags(names::RWF)],
    )
    .waits()
    .adjusted(structures::fit_vector),
    Spec::of(kinds::FILES, "fsync", libc::SYS_fsync, &[Descriptor]).int(),
    Spec::of(
        kinds::FILES,
        "fdatasync",
        libc::SYS_fdatasync,
        &[Descriptor],
    )
    .int(),
    Spec::of(
        kinds::FILES,
        "sync_file_range",
        libc::SYS_sync_file_range,
        &[Descriptor, POSITION, POSITION, Flags(names::SYNC_RANGE)],
    )
    .int(),
    Spec::of(kinds::FILES, "syncfs", libc::SYS_syncfs, &[Descriptor]).int(),
    Spec::new("sync", libc::SYS_sync, &[]),
    Spec::new("close", libc::SYS_close, &[Descriptor]).int(),
    Spec::new("dup", libc::SYS_dup, &[Descriptor]).int(),
    Spec::new("dup2", libc::SYS_dup2, &[Descriptor, Descriptor]).int(),
    Spec::new(
        "dup3",
        libc::SYS_dup3,
        &[Descriptor, Descriptor, Flags(names::DUP)],
    )
    .int(),
    Spec::new(
        "close_range",
        libc::SYS_close_range,
        &[Descriptor, Descriptor, Flags(names::CLOSE_RANGE)],
    )
    .int(),
    Spec::new(
        "fcntl",
        libc::SYS_fcntl,
        &[
            Descriptor,
            OneOf(names::FCNTL),
            Made(structures::fcntl_argument),
        ],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::FILES,
        "flock",
        libc::SYS_flock,
        &[Descriptor, OneOf(names::FLOCK)],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::TRANSFER,
        "sendfile",
        libc::SYS_sendfile,
        &[Descriptor, Descriptor, OFFSET, AMOUNT],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::TRANSFER,
        "splice",
        libc::SYS_splice,
        &[
            Descriptor,
            OFFSET,
            Descriptor,
            OFFSET,
            AMOUNT,
            Flags(names::SPLICE),
        ],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::PIPES,
        "tee",
        libc::SYS_tee,
        &[Descriptor, Descriptor, AMOUNT, Flags(names::SPLICE)],
    )
    .long()
    .waits(),
    Spec::of(
        kinds::PIPES,
        "vmsplice",
        libc::SYS_vmsplice,
        &[Descriptor, VECTOR, COUNT, Flags(names::SPLICE)],
    )
    .long()
    .waits()
    .adjusted(structures::fit_vector),
    Spec::of(
        kinds::FILES,
        "copy_file_range",
        libc::SYS_copy_file_range,
        &[
            Descriptor,
            OFFSET,
            Descriptor,
            OFFSET,
            AMOUNT,
            Int(&[0, 0, 0, 1]),
        ],
    )
    .long(),
    Spec::of(
        kinds::FILES,
        "lseek",
        libc::SYS_lseek,
        &[Descriptor, POSITION, OneOf(names::SEEK)],
    )
    .long(),
    Spec::of(
        kinds::FILES,
        "ftruncate",
        libc::SYS_ftruncate,
        &[Descriptor, Long(&[0, 1, 4096, 10_000, -1])],
    )
    .int(),
    Spec::new(
        "ioctl",
        libc::SYS_ioctl,
        &[Descriptor, REQUEST, Made(structures::ioctl_argument)],
    )
    .int(),
    Spec::new("pipe2", libc::SYS_pipe2, &[Out(8), Flags(names::DUP)]).int(),
    Spec::new(
        "eventfd2",
        libc::SYS_eventfd2,
        &[Int(&[0, 1, 5]), Flags(names::DUP)],
    ),
    Spec::new(
        "memfd_create",
        libc::SYS_memfd_create,
        &[Path, Int(&[0, 1, 2, 3])],
    )
    .int(),
    Spec::of(
        kinds::INOTIFY,
        "inotify_add_watch",
        libc::SYS_inotify_add_watch,
        &[Descriptor, Path, Int(&[0xfff, 2, 0x300])],
    )
    .int(),
    Spec::of(kinds::FOLDERS, "fchdir", libc::SYS_fchdir, &[Folder]).int(),
    Spec::of(
        kinds::FILES,
        "readahead",
        libc::SYS_readahead,
        &[Descriptor, POSITION, AMOUNT],
    )
    .long(),
    Spec::new(
        "pidfd_open",
        libc::SYS_pidfd_open,
        &[super::Argument::Process, Int(&[0, 0, 0x800])],
    )
    .answers(Answer::Number),
];

/// FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, TIOCGWINSZ, TCFLSH, nothing.
const REQUEST: super::Argument = Int(&[
    0x541b, 0x5421, 0x5452, 0x5451, 0x5450, 0x5413, 0x540b, 0x1234,
]);
const OFFSET: super::Argument = In(structures::offset);
const AMOUNT: super::Argument = Long(&[1, 16, 4096, 65536, 131_072, 200_000, 0, -1, i64::MIN]);
