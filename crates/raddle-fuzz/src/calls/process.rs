//! Processes: their creation, their end, and the news for their parents.

use super::Argument::{Any, Descriptor, Flags, Folder, In, Int, OneOf, Out, OutAny, Path, Process};
use super::{Answer, Spec, kinds, names};
use crate::generate::structures;

pub(super) const CALLS: &[Spec] = &[
    Spec::new("fork", libc::SYS_fork, &[])
        .int()
        .answers(Answer::Fork),
    Spec::new("vfork", libc::SYS_vfork, &[]).answers(Answer::Fork),
    Spec::new(
        "clone",
        libc::SYS_clone,
        &[
            Flags(names::CLONE),
            super::Argument::Made(structures::clone_stack),
            Out(4),
            Out(4),
            In(structures::robust_head),
        ],
    )
    .answers(Answer::Fork)
    .adjusted(structures::fit_clone),
    Spec::new(
        "clone3",
        libc::SYS_clone3,
        &[
            In(structures::clone_arguments),
            super::Argument::Long(&[88, 64, 80, 0, 63, 4097]),
        ],
    )
    .answers(Answer::Fork),
    Spec::new(
        "execve",
        libc::SYS_execve,
        &[
            Path,
            In(structures::program_arguments),
            In(structures::program_arguments),
        ],
    )
    .int()
    .adjusted(structures::fit_program),
    Spec::new(
        "execveat",
        libc::SYS_execveat,
        &[
            Folder,
            Path,
            In(structures::program_arguments),
            In(structures::program_arguments),
            Flags(names::AT),
        ],
    )
    .adjusted(structures::fit_program),
    Spec::new(
        "wait4",
        libc::SYS_wait4,
        &[Process, Out(4), Flags(names::WAIT), OutAny(144)],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::PIDFDS,
        "waitid",
        libc::SYS_waitid,
        &[
            OneOf(names::ID_KIND),
            Process,
            Out(128),
            Flags(names::WAIT),
            OutAny(144),
        ],
    )
    .waits()
    .adjusted(structures::fit_wait),
    Spec::new("exit", libc::SYS_exit, &[Int(&[0, 7, 255, 256])]).answers(Answer::Never),
    Spec::new(
        "exit_group",
        libc::SYS_exit_group,
        &[Int(&[0, 7, 255, 256])],
    )
    .answers(Answer::Never),
    Spec::new("getpgid", libc::SYS_getpgid, &[super::Argument::Thread]).int(),
    Spec::new("getsid", libc::SYS_getsid, &[super::Argument::Thread]).int(),
    Spec::new("setpgid", libc::SYS_setpgid, &[Process, Process]).int(),
    Spec::new("setsid", libc::SYS_setsid, &[]).int(),
    Spec::new(
        "setrlimit",
        libc::SYS_setrlimit,
        &[OneOf(names::LIMIT), In(structures::limit)],
    )
    .int(),
    Spec::new(
        "prlimit64",
        libc::SYS_prlimit64,
        &[
            super::Argument::Thread,
            OneOf(names::LIMIT),
            In(structures::limit),
            Out(16),
        ],
    )
    .int(),
    Spec::new(
        "getrusage",
        libc::SYS_getrusage,
        &[OneOf(names::RUSAGE), OutAny(144)],
    )
    .int(),
    Spec::new("getpid", libc::SYS_getpid, &[]).int(),
    Spec::new("getppid", libc::SYS_getppid, &[]).answers(Answer::Any),
    Spec::of(
        kinds::PIDFDS,
        "pidfd_send_signal",
        libc::SYS_pidfd_send_signal,
        &[
            Descriptor,
            super::Argument::Signal,
            In(structures::signal_information),
            Int(&[0, 0, 0, 1, 2, 8]),
        ],
    ),
    Spec::new(
        "msgget",
        libc::SYS_msgget,
        &[Int(&[0]), Int(&[0o1600, 0o600])],
    )
    .answers(Answer::Any),
    Spec::new(
        "semget",
        libc::SYS_semget,
        &[Int(&[0]), Int(&[2, 1, 0]), Int(&[0o1600])],
    )
    .answers(Answer::Any),
    Spec::new(
        "msgsnd",
        libc::SYS_msgsnd,
        &[
            super::Argument::Made(structures::message_queue),
            In(structures::queue_message),
            super::Argument::Length,
            Flags(names::IPC),
        ],
    )
    .int()
    .waits(),
    Spec::new(
        "msgrcv",
        libc::SYS_msgrcv,
        &[
            super::Argument::Made(structures::message_queue),
            Any(0, structures::queue_message),
            super::Argument::Length,
            super::Argument::Long(&[0, 0, 1, 2, -1, i64::MIN]),
            Flags(names::IPC),
        ],
    )
    .long()
    .waits(),
    Spec::new(
        "semop",
        libc::SYS_semop,
        &[
            super::Argument::Made(structures::semaphore_set),
            In(structures::semaphore_operations),
            Int(&[1, 2, 0, 501]),
        ],
    )
    .int()
    .waits(),
    Spec::new(
        "semtimedop",
        libc::SYS_semtimedop,
        &[
            super::Argument::Made(structures::semaphore_set),
            In(structures::semaphore_operations),
            Int(&[1, 2, 0, 501]),
            In(structures::time_limit),
        ],
    )
    .int()
    .waits(),
    Spec::of(
        kinds::QUEUES,
        "mq_timedsend",
        libc::SYS_mq_timedsend,
        &[
            Descriptor,
            super::Argument::Buffer,
            super::Argument::Length,
            Int(&[0, 1, 32768, -1]),
            In(structures::deadline),
        ],
    )
    .waits(),
    Spec::of(
        kinds::QUEUES,
        "mq_timedreceive",
        libc::SYS_mq_timedreceive,
        &[
            Descriptor,
            super::Argument::Buffer,
            super::Argument::Length,
            Out(4),
            In(structures::deadline),
        ],
    )
    .waits(),
    Spec::function(
        "execv",
        super::Width::Int,
        &[Path, In(structures::program_arguments)],
    )
    .adjusted(structures::fit_program),
    Spec::function(
        "system",
        super::Width::Int,
        &[In(structures::shell_command)],
    ),
    Spec::new("gettid", libc::SYS_gettid, &[]).int(),
    Spec::new(
        "set_tid_address",
        libc::SYS_set_tid_address,
        &[In(crate::generate::objects::word)],
    ),
    Spec::new(
        "rseq",
        libc::SYS_rseq,
        &[
            In(structures::small_buffer),
            Int(&[32, 0, 33]),
            Int(&[0, 1, 2]),
            super::Argument::Long(&[0x5305_3053, 0]),
        ],
    )
    .answers(Answer::Number),
];
