//! Features of the kernel, and limits of a security policy.

use std::fs;
use std::io;

use super::Finding;
use super::probe;
use crate::machine::{self, has_procfs};

const KERNEL_FLOOR: (u32, u32) = (5, 11);

pub(super) fn version() -> Finding {
    judge_version(&machine::kernel_release())
}

fn judge_version(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || {
        numbers
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let version = (number(), number());
    let seen = format!("Linux {release}");
    if version >= KERNEL_FLOOR {
        Finding::ok("kernel", seen)
    } else {
        Finding::broken(
            "kernel",
            seen,
            "system calls are missing that green threads need",
            "use Linux 5.11 or later",
        )
    }
}

pub(super) fn procfs() -> Finding {
    judge_procfs(has_procfs())
}

fn judge_procfs(is_mounted: bool) -> Finding {
    const NAME: &str = "/proc";
    if is_mounted {
        return Finding::ok(NAME, "mounted");
    }
    Finding::degraded(
        NAME,
        "not mounted",
        "programs run, but raddle dump and the other tools find none, and settings of the kernel \
         can't be read",
        "mount -t proc proc /proc",
    )
}

pub(super) fn text_patching() -> Finding {
    judge_text_patching(probe::patch_text())
}

fn judge_text_patching(probed: io::Result<()>) -> Finding {
    const NAME: &str = "text patching";
    match probed {
        Ok(()) => Finding::ok(NAME, "libc's text may be patched"),
        Err(error) => Finding::degraded(
            NAME,
            format!("refused ({error})"),
            "programs run on kernel threads",
            "allow execmod (SELinux), or set MemoryDenyWriteExecute=no (systemd)",
        ),
    }
}

pub(super) fn perf_events() -> Finding {
    judge_perf_events(
        probe::perf_event(),
        probe::setting("kernel/perf_event_paranoid"),
    )
}

fn judge_perf_events(probed: io::Result<()>, paranoid: Option<i64>) -> Finding {
    const NAME: &str = "perf events";
    let level = match paranoid {
        Some(level) => format!("perf_event_paranoid is {level}"),
        None => "perf_event_paranoid is not there".into(),
    };
    match probed {
        Ok(()) => Finding::ok(
            NAME,
            format!("allowed: the kernel says which carrier waits in it; {level}"),
        ),
        Err(error) => Finding::degraded(
            NAME,
            format!("refused ({error}); {level}"),
            "sysmon looks for carriers that wait in the kernel instead, and sees them later",
            "sysctl -w kernel.perf_event_paranoid=2, and a seccomp filter that allows it",
        ),
    }
}

pub(super) fn io_uring() -> Finding {
    judge_io_uring(
        probe::io_uring(),
        probe::setting("kernel/io_uring_disabled"),
    )
}

fn judge_io_uring(probed: io::Result<()>, disabled: Option<i64>) -> Finding {
    let Err(error) = probed else {
        return Finding::ok("io_uring", "allowed");
    };
    let cure = match (error.raw_os_error(), disabled) {
        (Some(libc::ENOSYS), _) => "use a kernel that has io_uring",
        (_, Some(1 | 2)) => "sysctl -w kernel.io_uring_disabled=0",
        _ => "use a seccomp filter that allows io_uring (Docker's own does not)",
    };
    Finding::degraded(
        "io_uring",
        format!("refused ({error})"),
        "calls that epoll can't watch are made by helpers",
        cure,
    )
}

pub(super) fn selinux() -> Finding {
    let enforcing = fs::read_to_string("/sys/fs/selinux/enforce").ok();
    judge_selinux(enforcing.as_deref().map(str::trim))
}

/// A hint only: `text_patching` shows whether SELinux refuses to patch *this* process.
fn judge_selinux(enforcing: Option<&str>) -> Finding {
    match enforcing {
        None => Finding::ok("SELinux", "not there"),
        Some("1") => Finding::ok(
            "SELinux",
            "enforcing; a confined program needs execmod: setsebool -P selinuxuser_execmod on",
        ),
        Some(_) => Finding::ok("SELinux", "permissive"),
    }
}

pub(super) fn seccomp() -> Finding {
    judge_seccomp(probe::seccomp_mode())
}

fn judge_seccomp(mode: Option<u32>) -> Finding {
    match mode {
        Some(2) => Finding::ok("seccomp", "a filter; what it refuses shows above"),
        Some(_) => Finding::ok("seccomp", "none"),
        None => Finding::ok("seccomp", "this kernel has none"),
    }
}

pub(super) fn ptrace() -> Finding {
    judge_ptrace(probe::setting("kernel/yama/ptrace_scope"), probe::is_root())
}

fn judge_ptrace(scope: Option<i64>, root: bool) -> Finding {
    const NAME: &str = "yama";
    match scope {
        None => Finding::ok(NAME, "not there"),
        Some(0) => Finding::ok(NAME, "ptrace_scope is 0"),
        Some(scope @ 1..=2) if root => Finding::ok(
            NAME,
            format!("ptrace_scope is {scope}, which does not concern root"),
        ),
        Some(scope) => Finding::degraded(
            NAME,
            format!("ptrace_scope is {scope}"),
            "gdb can't attach to a running program of yours; raddle dump can",
            "run gdb as root, or sysctl -w kernel.yama.ptrace_scope=0",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn refused() -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn kernels_are_judged_by_number() {
        assert_eq!(judge_version("6.18.44-custom").state, State::Ok);
        assert_eq!(judge_version("5.11.0").state, State::Ok);
        assert_eq!(judge_version("5.9.16").state, State::Broken);
        assert_eq!(judge_version("4.18.0-553.el8").state, State::Broken);
    }

    #[test]
    fn a_refusal_degrades_and_names_its_cure() {
        assert_eq!(judge_text_patching(refused()).state, State::Degraded);
        assert_eq!(judge_perf_events(refused(), Some(3)).state, State::Degraded);
        let cure = |disabled| judge_io_uring(refused(), disabled).cure.unwrap();
        assert!(cure(Some(2)).starts_with("sysctl"));
        assert!(cure(Some(0)).contains("seccomp"));
        let missing = Err(io::Error::from_raw_os_error(libc::ENOSYS));
        assert!(
            judge_io_uring(missing, None)
                .cure
                .unwrap()
                .contains("kernel")
        );
    }

    #[test]
    fn ptrace_is_roots_up_to_scope_two() {
        assert_eq!(judge_ptrace(Some(1), false).state, State::Degraded);
        assert_eq!(judge_ptrace(Some(1), true).state, State::Ok);
        assert_eq!(judge_ptrace(Some(3), true).state, State::Degraded);
        assert_eq!(judge_ptrace(None, false).state, State::Ok);
    }
}
