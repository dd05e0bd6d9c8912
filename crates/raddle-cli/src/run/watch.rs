//! `raddle run --watch-deadlocks`: a process beside the program that looks for deadlocks from
//! outside, and reports each once on the program's standard error.
//!
//! Protocol:
//!
//! 1. The launcher makes a process, which makes the watcher and ends. So the watcher is a child of
//!    init, or of what adopts orphans, and not of the program. Neither sends SIGCHLD. The launcher
//!    reaps the first, declares the watcher as its tracer for Yama, and becomes the program.
//! 2. The watcher leaves the session and the folder, and closes all descriptors but one that stands
//!    for the program's process: a pipe's reader must not wait for the watcher's end.
//! 3. It looks at the tables of the program, and of its children, a few times a second
//!    ([`raddle_stacks::locks::Watch`]). The program does nothing for that: it is asked once where
//!    its tables are. A suspicion is followed by what `raddle dump --deadlocks` does.
//! 4. A report goes to the program's descriptor 2, if that is still the file which the launcher had
//!    there: the program may have a file of its own there since.
//! 5. The watcher ends with the program.
//!
//! Rejected: a thread inside of the process, which the program would pay for and which a deadlock
//! in libc could stop; sysmon, which would need an unwinder and names, or could report less; a
//! watcher that is the program's parent, which changes its process id for the caller.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_stacks::locks::{Deadlock, Edge, ObjectKind, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::dump::deadlocks::find;
use crate::dump::stacks::Subject;
use crate::failure::say;

/// Looks take at most this part of the time, as far as [`INTERVAL_MAX`] allows.
const PART: u32 = 20;
const INTERVAL_MAX: Duration = Duration::from_millis(800);
/// The most processes that are watched at a time.
const PROCESSES_MAX: usize = 256;
/// The most reports of one process.
const REPORTS_MAX: usize = 100;

const NAME: &CStr = c"raddle-watch";

/// Starts the watcher of this process. Where that isn't possible, says so: the program runs in any
/// case.
pub(super) fn start(interval: Duration) {
    if let Err(error) = try_start(interval) {
        say(&format!("no watch for deadlocks: {error}"));
    }
}

fn try_start(interval: Duration) -> io::Result<()> {
    let own = getpid();
    if own.is_init() || adopts_orphans() {
        return Err(io::Error::other(
            "this process adopts orphans, and would be the watcher's parent (run it below an init)",
        ));
    }
    let program = pidfd_open(own, PidfdFlags::empty())?;
    let errors = identity(libc::STDERR_FILENO)?;
    let (from, to) = io::pipe()?;
    match clone_process()? {
        0 => {
            // The process in between: it tells the watcher's number, and ends.
            let watcher = clone_process();
            if let Ok(0) = watcher {
                drop((from, to));
                detach(&program);
                watch(own, errors, interval);
            }
            let number = watcher.unwrap_or(0);
            let _ = io::Write::write_all(&mut &to, &number.to_ne_bytes());
            exit_at_once()
        }
        between => {
            drop(to);
            let mut number = [0; 4];
            let told = io::Read::read_exact(&mut &from, &mut number);
            // SAFETY: a child of this process; no status is wanted.
            unsafe { libc::waitpid(between, std::ptr::null_mut(), libc::__WALL) };
            told?;
            match i32::from_ne_bytes(number) {
                0 => Err(io::Error::other("no further process can be made")),
                watcher => {
                    // SAFETY: sets an attribute of this process. Without Yama it fails.
                    unsafe { libc::prctl(libc::PR_SET_PTRACER, watcher) };
                    Ok(())
                }
            }
        }
    }
}

/// Makes a process like `fork(2)`, of which the end sends no signal.
fn clone_process() -> io::Result<i32> {
    let none = 0usize;
    // SAFETY: without flags it is a fork. This process has one thread, so that no lock is held by
    // another.
    let made = unsafe { libc::syscall(libc::SYS_clone, none, none, none, none, none) };
    match made {
        -1 => Err(io::Error::last_os_error()),
        made => Ok(made as i32),
    }
}

fn exit_at_once() -> ! {
    // SAFETY: it doesn't return; nothing of this copy of the process is to be cleaned up.
    unsafe { libc::_exit(0) }
}

fn adopts_orphans() -> bool {
    let mut adopts: libc::c_int = 0;
    // SAFETY: the kernel writes a number.
    let done = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts) };
    done == 0 && adopts != 0
}

/// The descriptor of the program's process, in the watcher.
const PROGRAM: libc::c_int = 3;

/// Leaves all that the launcher shares with the watcher.
fn detach(program: &OwnedFd) {
    // SAFETY: plain calls, in a process of one thread. Descriptors that Rust's objects stand for
    // are closed here; these objects are not used any more.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
        let program = libc::fcntl(program.as_raw_fd(), libc::F_DUPFD, PROGRAM + 1);
        for descriptor in 0..PROGRAM {
            libc::close(descriptor);
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        }
        libc::dup2(program, PROGRAM);
        libc::syscall(libc::SYS_close_range, PROGRAM + 1, u32::MAX, 0);
    }
}

/// Which file a descriptor is: its device and its number there.
type Identity = (u64, u64);

fn identity(descriptor: libc::c_int) -> io::Result<Identity> {
    let mut facts = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure, or fails.
    let done = unsafe { libc::fstat(descriptor, facts.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled.
    let facts = unsafe { facts.assume_init() };
    Ok((facts.st_dev, facts.st_ino))
}

/// A process that is watched.
#[derive(Default)]
struct Watched {
    /// What changes when it becomes another program.
    program: Option<String>,
    subject: Option<Subject>,
    watch: Watch,
    reported: HashSet<Vec<(u32, u64)>>,
}

/// The watcher's life. A deadlock is suspected at the second look after its birth.
fn watch(root: Pid, errors: Identity, interval: Duration) -> ! {
    // SAFETY: `detach` has made it; nothing else closes it.
    let program = unsafe { OwnedFd::from_raw_fd(PROGRAM) };
    let mut processes: HashMap<u32, Watched> = HashMap::new();
    let root = root.as_raw_nonzero().get().unsigned_abs();
    let mut pause = interval;
    while !has_ended(&program, pause) {
        let began = Instant::now();
        let family = family(root);
        processes.retain(|pid, _| family.contains(pid));
        for pid in family {
            let watched = processes.entry(pid).or_default();
            if let Ok(Some(report)) = watched.look(pid) {
                write_report(&program, errors, &report);
            }
        }
        pause = (began.elapsed() * PART).clamp(interval, INTERVAL_MAX.max(interval));
    }
    exit_at_once()
}

/// Waits; returns true if the program ends meanwhile.
fn has_ended(program: &OwnedFd, pause: Duration) -> bool {
    let mut polled = [PollFd::new(program, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: pause.as_secs().cast_signed(),
        tv_nsec: pause.subsec_nanos().into(),
    };
    !matches!(
        poll(&mut polled, Some(&limit)),
        Ok(0) | Err(rustix::io::Errno::INTR)
    )
}

/// Returns a process and those that descend from it.
fn family(root: u32) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            let children = children.split_whitespace();
            let children = children.filter_map(|it| it.parse::<u32>().ok());
            family.extend(children.take(PROCESSES_MAX.saturating_sub(family.len())));
        }
    }
    family
}

impl Watched {
    /// Looks at the process; returns a report of what is new.
    fn look(&mut self, pid: u32) -> Result<Option<String>> {
        let program = program_of(pid);
        if program != self.program || self.subject.is_none() {
            *self = Watched {
                program,
                subject: Subject::of_watched(pid)?,
                ..Watched::default()
            };
        }
        let Some(subject) = &self.subject else {
            return Ok(None);
        };
        if !subject.is_readable() {
            self.subject = None;
            return Ok(None);
        }
        if !subject.with_target(|target| self.watch.look(target))? {
            return Ok(None);
        }
        // Carriers and code may be others than at the start.
        let Some(subject) = Subject::of_watched(pid)? else {
            return Ok(None);
        };
        let Some(mut findings) = find(&subject, true)? else {
            return Ok(None);
        };
        self.watch.settle(&findings.deadlocks);
        let reported = &mut self.reported;
        findings
            .deadlocks
            .retain(|it| reported.len() < REPORTS_MAX && reported.insert(key(it)));
        if findings.deadlocks.is_empty() {
            return Ok(None);
        }
        let mut text = b"raddle: ".to_vec();
        findings.write(pid, &crate::dump::Shown::PLAIN, &mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Returns what tells a deadlock from others: its threads, and how often each has run. Of a thread
/// that waits for a lock of Java, the thread alone: it may run, and look at the lock again.
fn key(deadlock: &Deadlock) -> Vec<(u32, u64)> {
    let switches = |edge: &Edge| match &edge.object.kind {
        ObjectKind::Other(_) => 0,
        _ => edge.switches,
    };
    let edges = deadlock.edges.iter();
    let mut key: Vec<_> = edges.map(|edge| (edge.waiter, switches(edge))).collect();
    key.sort_unstable();
    key
}

/// Returns where the program's code and stack begin, which another program has elsewhere.
fn program_of(pid: u32) -> Option<String> {
    const CODE: usize = 23;
    const STACK: usize = 25;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(format!("{} {}", fields.get(CODE)?, fields.get(STACK)?))
}

/// Writes to the program's standard error, if that is what it was.
fn write_report(program: &OwnedFd, errors: Identity, report: &str) {
    // SAFETY: makes a descriptor, or fails.
    let got = unsafe {
        libc::syscall(
            libc::SYS_pidfd_getfd,
            program.as_raw_fd(),
            libc::STDERR_FILENO,
            0,
        )
    };
    let Ok(descriptor) = i32::try_from(got) else {
        return;
    };
    if descriptor < 0 {
        return;
    }
    // SAFETY: the kernel has just made it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if identity(descriptor.as_raw_fd()).ok() != Some(errors) {
        return;
    }
    let mut rest = report.as_bytes();
    while !rest.is_empty() && is_writable(&descriptor) && !has_ended(program, Duration::ZERO) {
        // A pipe with room takes so much without a wait.
        let (piece, behind) = rest.split_at(rest.len().min(libc::PIPE_BUF));
        match rustix::io::write(&descriptor, piece) {
            Ok(written) => rest = rest.get(written..).unwrap_or(behind),
            Err(_) => return,
        }
    }
}

/// Returns true if the file takes more within a moment.
fn is_writable(descriptor: &OwnedFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::OUT)];
    let limit = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    matches!(poll(&mut polled, Some(&limit)), Ok(1))
}
