//! Programs under a filter of system calls, or under limits, that were there before `raddle run`:
//! what runs natively runs under raddle, on kernel threads at worst, and `-v` says why.

use std::ffi::OsString;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};
use raddle_tests::{Program, or_skip, raddle};

/// Calls that `raddle run` or the runtime makes by itself, and the program may not.
#[rustfmt::skip]
const CALLS: [libc::c_long; 78] = [
    libc::SYS_open, libc::SYS_stat, libc::SYS_fstat, libc::SYS_lstat,
    libc::SYS_poll, libc::SYS_lseek, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_ioctl, libc::SYS_pread64, libc::SYS_access,
    libc::SYS_sched_yield, libc::SYS_mremap, libc::SYS_mincore, libc::SYS_madvise,
    libc::SYS_nanosleep, libc::SYS_getpid, libc::SYS_socket, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_bind, libc::SYS_listen, libc::SYS_getsockopt, libc::SYS_clone, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_wait4, libc::SYS_kill, libc::SYS_fcntl,
    libc::SYS_getcwd, libc::SYS_readlink, libc::SYS_getrlimit, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_capget, libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack,
    libc::SYS_personality, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_prctl, libc::SYS_gettid,
    libc::SYS_getxattr, libc::SYS_tkill, libc::SYS_sched_setaffinity, libc::SYS_sched_getaffinity,
    libc::SYS_io_setup, libc::SYS_getdents64, libc::SYS_timer_create, libc::SYS_timer_settime,
    libc::SYS_clock_gettime, libc::SYS_exit_group, libc::SYS_epoll_wait, libc::SYS_epoll_ctl,
    libc::SYS_tgkill, libc::SYS_waitid, libc::SYS_ppoll, libc::SYS_get_robust_list,
    libc::SYS_epoll_pwait, libc::SYS_eventfd2, libc::SYS_epoll_create1, libc::SYS_dup3,
    libc::SYS_perf_event_open, libc::SYS_process_vm_readv, libc::SYS_sched_getattr,
    libc::SYS_getrandom, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_statx,
    libc::SYS_io_uring_setup, libc::SYS_pidfd_open, libc::SYS_clone3, libc::SYS_close_range,
    libc::SYS_faccessat2, libc::SYS_epoll_pwait2, libc::SYS_membarrier,
];

/// The program's status if all is well.
const STATUS: i32 = 7;

struct Programs {
    filter: OsString,
    program: OsString,
}

impl Programs {
    fn build() -> Result<Programs> {
        let command = |source: &str| {
            let mut program = Program::build(source)?;
            let variant = program
                .variants
                .pop()
                .context("a C program is one program")?;
            variant.command.into_iter().next().context("a path")
        };
        Ok(Programs {
            filter: command("refused.c")?,
            program: command("filtered.c")?,
        })
    }

    /// The program under filters of these words, natively or under raddle with flags.
    fn command(&self, words: &[String], flags: Option<&[&str]>) -> Result<Command> {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "20"]);
        if !words.is_empty() {
            command.arg(&self.filter).args(words);
        }
        if let Some(flags) = flags {
            command.arg(raddle()?).arg("run").args(flags);
        }
        command.arg(&self.program);
        Ok(command)
    }

    /// The difference that raddle makes under these filters, if it makes one.
    fn difference(&self, words: &[String], carriers: &str) -> Result<Option<String>> {
        let native = self.command(words, None)?.output()?;
        if native.status.code() != Some(STATUS) {
            return Ok(None);
        }
        let other = self.command(words, Some(&["-n", carriers]))?.output()?;
        Ok((!is_same(&native, &other))
            .then(|| format!("{words:?} on {carriers} carriers: {other:?}")))
    }
}

/// Returns true if the program did the same, in silence.
fn is_same(native: &Output, other: &Output) -> bool {
    (other.status, &other.stdout) == (native.status, &native.stdout) && other.stderr.is_empty()
}

#[test]
fn a_call_that_is_refused_or_kills_stops_no_program() {
    let Some(programs) = or_skip("cc", Programs::build()) else {
        return;
    };
    let verdicts = |call: libc::c_long| ["1", "38", "kill"].map(|it| format!("{call}={it}"));
    let words: Vec<_> = CALLS.into_iter().flat_map(verdicts).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(word) = words.get(at) else {
                return found;
            };
            let carriers = if at.is_multiple_of(2) { "1" } else { "2" };
            let difference = programs.difference(std::slice::from_ref(word), carriers);
            found.extend(difference.expect("the program runs"));
        }
    };
    let differences: Vec<_> = thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        let found = workers.map(|worker| worker.join().expect("no panic"));
        found.concat()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Asserts that the program runs under filters of `calls`, and that `-v` says what is `expected`.
#[track_caller]
fn assert_said(programs: &Programs, calls: &[libc::c_long], verdict: &str, expected: &str) {
    let words: Vec<_> = calls.iter().map(|it| format!("{it}={verdict}")).collect();
    let command = programs.command(&words, Some(&["-v"]));
    let output = command.and_then(|mut it| Ok(it.output()?));
    let output = output.expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(STATUS), "{said}");
    assert!(
        said.contains(expected) && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn verbose_names_the_call_that_a_filter_refuses() {
    let Some(programs) = or_skip("cc", Programs::build()) else {
        return;
    };
    for (call, name) in [
        (libc::SYS_getpid, "getpid"),
        (libc::SYS_epoll_ctl, "epoll_ctl"),
        (libc::SYS_preadv2, "preadv2"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sigaltstack, "sigaltstack"),
        (libc::SYS_rt_sigaction, "rt_sigaction"),
        (libc::SYS_exit_group, "exit_group"),
    ] {
        let expected = format!(
            "raddle: runs on kernel threads: a filter of system calls (seccomp) refuses {name}, \
             which green threads need; allow it\n"
        );
        assert_said(&programs, &[call], "1", &expected);
    }
    for (call, expected) in [
        (
            libc::SYS_eventfd2,
            "refuses eventfd2, which green threads need",
        ),
        (
            libc::SYS_rt_sigreturn,
            "refuses rt_sigreturn, which green threads need",
        ),
        (
            libc::SYS_faccessat2,
            "kills for faccessat2, which raddle run needs",
        ),
    ] {
        assert_said(&programs, &[call], "kill", expected);
    }
}

#[test]
fn threads_are_green_where_only_calls_for_speed_are_refused() {
    let Some(programs) = or_skip("cc", Programs::build()) else {
        return;
    };
    let calls = [
        libc::SYS_io_setup,
        libc::SYS_io_uring_setup,
        libc::SYS_perf_event_open,
        libc::SYS_timer_create,
        libc::SYS_membarrier,
        libc::SYS_mincore,
    ];
    for verdict in ["1", "kill"] {
        assert_said(&programs, &calls, verdict, "threads are green");
    }
}

/// Shell commands that set limits which the program runs under natively.
const LIMITS: [&str; 8] = [
    "ulimit -d 100000",
    "ulimit -v 100000",
    "ulimit -v 300000",
    "ulimit -n 16",
    "ulimit -n 6",
    "ulimit -s 100",
    "ulimit -l 0",
    "ulimit -f 0",
];

#[test]
fn limits_stop_no_program() {
    let Some(programs) = or_skip("cc", Programs::build()) else {
        return;
    };
    let mut differences = Vec::new();
    for limit in LIMITS {
        let run = |flags: Option<&[&str]>| -> Result<Output> {
            let command = programs.command(&[], flags)?;
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{limit}; exec \"$@\""), "sh"]);
            shell.arg(command.get_program()).args(command.get_args());
            Ok(shell.output()?)
        };
        let native = run(None).expect("the program runs");
        for carriers in ["1", "2"] {
            let other = run(Some(&["-n", carriers])).expect("the program runs");
            if native.status.code() == Some(STATUS) && !is_same(&native, &other) {
                differences.push(format!("{limit} on {carriers} carriers: {other:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_program_without_threads_needs_no_memory_for_raddle() {
    for kilobytes in ["600", "1000", "2000", "3500"] {
        let script = format!("ulimit -d {kilobytes}; exec \"$@\"");
        let run = |flags: &[&str]| {
            let raddle = raddle().expect("the command");
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]).arg(raddle).arg("run");
            command.args(flags).args(["--", "echo", "here"]).output()
        };
        let quiet = run(&[]).expect("a shell");
        let verbose = run(&["-v"]).expect("a shell");
        assert_eq!(quiet.stdout, b"here\n", "{kilobytes}: {quiet:?}");
        assert_eq!(quiet.stderr, b"", "{kilobytes}");
        let said = String::from_utf8_lossy(&verbose.stderr).into_owned();
        let expected = "raddle: echo: runs on kernel threads: the limit on data leaves raddle too \
                        little; raise it (ulimit -d) to 4096 or more\n";
        assert_eq!(said, expected, "{kilobytes}");
    }
}
