//! What the kernel keeps for a thread as such.

use super::Argument::{In, Int, Long};
use super::{Answer, Spec};
use crate::generate::{objects, structures};

pub const CALLS: &[Spec] = &[
    Spec::new("gettid", libc::SYS_gettid, &[]).int(),
    Spec::new(
        "set_tid_address",
        libc::SYS_set_tid_address,
        &[In(objects::word)],
    ),
    Spec::new(
        "rseq",
        libc::SYS_rseq,
        &[
            In(structures::small_buffer),
            Int(&[32, 0, 33]),
            Int(&[0, 1, 2]),
            Long(&[0x5305_3053, 0]),
        ],
    )
    .answers(Answer::Number),
];
