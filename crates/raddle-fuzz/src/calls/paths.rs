//! Calls that may look at `/proc`.

use super::Argument::{Descriptor, Flags, Folder, Int, Length, OneOf, OutAny, Path};
use super::{Answer, Spec, kinds, names};

const MODE: super::Argument = Int(&[0o600, 0, 0o777, -1]);
const STAT: super::Argument = OutAny(144);

pub(super) const CALLS: &[Spec] = &[
    Spec::new("open", libc::SYS_open, &[Path, Flags(names::OPEN), MODE]).int(),
    Spec::new(
        "openat",
        libc::SYS_openat,
        &[Folder, Path, Flags(names::OPEN), MODE],
    )
    .int(),
    Spec::new("stat", libc::SYS_stat, &[Path, STAT]).int(),
    Spec::new("lstat", libc::SYS_lstat, &[Path, STAT]).int(),
    Spec::of(kinds::FILES, "fstat", libc::SYS_fstat, &[Descriptor, STAT]).int(),
    Spec::new(
        "newfstatat",
        libc::SYS_newfstatat,
        &[Folder, Path, STAT, Flags(names::AT)],
    ),
    Spec::new(
        "statx",
        libc::SYS_statx,
        &[
            Folder,
            Path,
            Flags(names::AT),
            Int(&[0x7ff, 0xfff, 0, -1]),
            OutAny(256),
        ],
    )
    .int(),
    Spec::new("access", libc::SYS_access, &[Path, OneOf(names::ACCESS)]).int(),
    Spec::new(
        "faccessat",
        libc::SYS_faccessat,
        &[Folder, Path, OneOf(names::ACCESS)],
    ),
    Spec::new(
        "faccessat2",
        libc::SYS_faccessat2,
        &[Folder, Path, OneOf(names::ACCESS), Flags(names::AT)],
    ),
    // The text of a link of /proc has process ids in it.
    Spec::new(
        "readlink",
        libc::SYS_readlink,
        &[Path, OutAny(4096), Length],
    )
    .long()
    .answers(Answer::Any),
    Spec::new(
        "readlinkat",
        libc::SYS_readlinkat,
        &[Folder, Path, OutAny(4096), Length],
    )
    .long()
    .answers(Answer::Any),
    Spec::of(
        kinds::FOLDERS,
        "getdents64",
        libc::SYS_getdents64,
        &[Descriptor, OutAny(4096), Length],
    )
    .answers(Answer::Number),
    Spec::new("mkdirat", libc::SYS_mkdirat, &[Folder, Path, MODE]).int(),
    Spec::new(
        "unlinkat",
        libc::SYS_unlinkat,
        &[Folder, Path, Int(&[0, 0, 0x200])],
    )
    .int(),
    Spec::new("chdir", libc::SYS_chdir, &[Path]).int(),
    Spec::new("umask", libc::SYS_umask, &[MODE]),
];
