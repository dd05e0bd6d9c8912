//! Limits that decide how many green threads there can be.

use std::io;

use super::probe;
use super::{Finding, State};

/// With guard pages by `mprotect`, a stack takes two mappings.
const MAPPINGS_A_STACK: i64 = 2;

/// Green thread ids start here; the kernel's own never reach it.
const PID_MAX_LIMIT: i64 = 1 << 22;

pub(super) fn guards() -> Finding {
    judge_guards(probe::guard_install())
}

fn judge_guards(probed: io::Result<()>) -> Finding {
    match probed {
        Ok(()) => Finding::ok("stack guards", "by MADV_GUARD_INSTALL, without mappings"),
        Err(error) => Finding::degraded(
            "stack guards",
            format!("no MADV_GUARD_INSTALL ({error})"),
            "guard pages take two mappings a stack, and limit how many threads there can be",
            "use Linux 6.13 or later",
        ),
    }
}

pub(super) fn mappings() -> Finding {
    let guards_take_mappings = guards().state != State::Ok;
    judge_mappings(probe::setting("vm/max_map_count"), guards_take_mappings)
}

fn judge_mappings(limit: Option<i64>, guards_take_mappings: bool) -> Finding {
    const NAME: &str = "max_map_count";
    let Some(limit) = limit else {
        return Finding::ok(NAME, "can't be read");
    };
    if !guards_take_mappings {
        return Finding::ok(NAME, format!("{limit}; stacks don't use them up"));
    }
    Finding::degraded(
        NAME,
        format!("{limit}, so about {} threads", limit / MAPPINGS_A_STACK),
        "creating more fails with EAGAIN",
        "sysctl -w vm.max_map_count=1048576",
    )
}

pub(super) fn thread_ids() -> Finding {
    judge_thread_ids(probe::setting("kernel/pid_max"))
}

fn judge_thread_ids(pid_max: Option<i64>) -> Finding {
    const NAME: &str = "pid_max";
    match pid_max {
        Some(limit) if limit <= PID_MAX_LIMIT => {
            Finding::ok(NAME, format!("{limit}; green threads don't use them up"))
        }
        Some(limit) => Finding::degraded(
            NAME,
            limit.to_string(),
            "ids of green threads can meet ids of other processes",
            "sysctl -w kernel.pid_max=4194304",
        ),
        None => Finding::ok(NAME, "can't be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_matter_only_without_guard_regions() {
        assert_eq!(judge_mappings(Some(65_530), false).state, State::Ok);
        let finding = judge_mappings(Some(65_530), true);
        assert_eq!(finding.state, State::Degraded);
        assert_eq!(finding.seen, "65530, so about 32765 threads");
    }

    #[test]
    fn an_old_kernel_degrades_guards_with_a_cure() {
        let finding = judge_guards(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(finding.state, State::Degraded);
        assert!(finding.cure.is_some_and(|cure| cure.contains("6.13")));
    }

    #[test]
    fn thread_ids_stay_apart_from_the_kernels() {
        assert_eq!(judge_thread_ids(Some(4_194_304)).state, State::Ok);
        assert_eq!(judge_thread_ids(Some(4_194_305)).state, State::Degraded);
    }
}
