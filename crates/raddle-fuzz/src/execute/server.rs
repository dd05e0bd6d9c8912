//! The server: forks a process for each case, several at a time, and watches them.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use anyhow::{Context, Result, ensure};

use super::board::now_ns;
use super::shared::{AGENTS, Slot};
use super::state::AFTER_EXEC;
use super::{calling, delays, interpret};
use crate::case::{Case, agent_name, parse};

/// How cases are run.
pub struct Options {
    /// Cases at a time.
    pub slots: usize,
    /// Milliseconds after which a call counts as one that waits for ever.
    pub limit_ms: u64,
    /// A folder that the cases' own folders are made in.
    pub folder: PathBuf,
    /// A case reports it if its sites aren't patched once it has threads.
    pub patched: bool,
    /// The seed of the agents' delays, if they have any.
    pub delays: Option<u64>,
}

/// How often the server looks whether a call waits.
const LOOK_MS: i32 = 5;
/// How many times the limit a call may last while some thread of its process is runnable.
const HUNGRY: u64 = 8;
/// The longest that a case takes to begin and to end.
const CASE_LIMIT_NS: u64 = 20_000_000_000;

/// A line of a results file that begins a case's result.
pub(super) const RESULT_HEAD: &str = "== ";
/// A line of a file of cases that begins a case.
pub(super) const CASE_HEAD: &str = "== ";

/// A case that runs.
struct Running {
    id: String,
    pid: i32,
    pidfd: i32,
    slot: usize,
    began_ns: u64,
    /// The lines about calls that wait.
    waits: String,
}

/// Runs the cases of a file, and writes each result to another file as soon as the case is over.
///
/// # Errors
/// A file that can't be read or written; a case that is none.
pub fn serve(cases: &Path, results: &Path, options: &Options) -> Result<()> {
    let text = fs::read_to_string(cases).with_context(|| format!("{}", cases.display()))?;
    let mut waiting = read_cases(&text)?;
    let mut output = fs::File::create(results).with_context(|| format!("{}", results.display()))?;
    calling::find_functions();
    become_subreaper();
    let slots = Slot::many(options.slots)?;
    let mut free: Vec<usize> = (0..options.slots).collect();
    let mut running: Vec<Running> = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while let Some(&index) = free.last()
            && let Some((id, case)) = waiting.pop_front()
        {
            free.pop();
            running.push(start(id, case, index, &slots[index], options)?);
        }
        wait_for_any(&running);
        let mut index = 0;
        while index < running.len() {
            let case = &mut running[index];
            let slot = &slots[case.slot];
            let mut end = ended(case.pid);
            if end.is_none() {
                stop_if_it_waits(case, slot, options.limit_ms);
                end = ended(case.pid);
            }
            match end {
                Some(status) => {
                    let case = running.swap_remove(index);
                    finish(&mut output, &case, slot, status, options)?;
                    free.push(case.slot);
                }
                None => index += 1,
            }
        }
        reap_orphans(&running);
    }
    Ok(())
}

fn read_cases(text: &str) -> Result<VecDeque<(String, Case)>> {
    let parts = text.split(CASE_HEAD).filter(|part| !part.is_empty());
    let cases = parts.map(|part| {
        let (id, text) = part.split_once('\n').context("a case without a text")?;
        let case = parse(text).with_context(|| format!("case {id}"))?;
        Ok((id.to_owned(), case))
    });
    cases.collect()
}

fn become_subreaper() {
    // SAFETY: a plain call.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

fn folder_of(options: &Options, slot: usize) -> PathBuf {
    options.folder.join(format!("slot-{slot}"))
}

fn start(
    id: String,
    case: Case,
    index: usize,
    slot: &'static Slot,
    options: &Options,
) -> Result<Running> {
    slot.clear();
    let folder = folder_of(options, index);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    // SAFETY: the server has one thread.
    let pid = unsafe { libc::fork() };
    ensure!(
        pid >= 0,
        "no process could be made: {}",
        std::io::Error::last_os_error()
    );
    if pid == 0 {
        enter(&folder);
        if let Some(seed) = options.delays {
            delays::begin(delays::seed_of(seed, &id));
        }
        interpret::run(case, slot, options.patched);
    }
    // SAFETY: a plain call.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    Ok(Running {
        id,
        pid,
        pidfd,
        slot: index,
        began_ns: now_ns(),
        waits: String::new(),
    })
}

/// In the child: its folder, and no descriptor of the server's.
fn enter(folder: &Path) {
    std::env::set_current_dir(folder).expect("the folder is new");
    // SAFETY: the child's own descriptors.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(null, standard);
        }
        libc::close_range(3, u32::MAX, 0);
    }
}

/// Waits until a case is over, for a few milliseconds.
fn wait_for_any(running: &[Running]) {
    let entries = running.iter().map(|case| libc::pollfd {
        fd: case.pidfd,
        events: libc::POLLIN,
        revents: 0,
    });
    let mut entries: Vec<_> = entries.collect();
    // SAFETY: a live array.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, LOOK_MS) };
}

/// Kills a case with a call that has lasted too long, and tells which calls are being made.
fn stop_if_it_waits(case: &mut Running, slot: &Slot, limit_ms: u64) {
    if !case.waits.is_empty() {
        return;
    }
    let now = now_ns();
    let busy_since = slot.busy_since.load(SeqCst);
    let limit_ns = (limit_ms + u64::from(slot.events_ms.load(Relaxed))) * 1_000_000;
    let busy_ns = if busy_since == 0 {
        0
    } else {
        now.saturating_sub(busy_since)
    };
    let waits = busy_ns > limit_ns && (busy_ns > HUNGRY * limit_ns || !is_runnable(case.pid));
    if !waits && now - case.began_ns < CASE_LIMIT_NS {
        return;
    }
    for agent in 0..AGENTS {
        let step = slot.calling[agent].load(SeqCst);
        if step != 0 {
            let _ = writeln!(case.waits, "{} {} waits", agent_name(agent as u8), step - 1);
        }
    }
    if case.waits.is_empty() {
        case.waits.push_str("main executor waits\n");
    }
    // SAFETY: the case's own processes.
    unsafe {
        libc::kill(-case.pid, libc::SIGKILL);
        libc::kill(case.pid, libc::SIGKILL);
    }
}

/// Returns true if a thread of a process runs or would like to: on a busy machine that is no wait.
fn is_runnable(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut stats =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    // The state follows the name, which is in parentheses.
    stats.any(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

/// The status of a process that has ended.
fn ended(pid: i32) -> Option<ExitStatus> {
    let mut status = 0;
    // SAFETY: room for a status; a child of the server's.
    let result = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
    (result == pid).then(|| ExitStatus::from_raw(status))
}

fn finish(
    output: &mut fs::File,
    case: &Running,
    slot: &Slot,
    status: ExitStatus,
    options: &Options,
) -> Result<()> {
    use std::io::Write as _;
    // SAFETY: the case's remains: processes of its group, a descriptor, System V's objects.
    unsafe {
        libc::kill(-case.pid, libc::SIGKILL);
        for pid in &slot.pids {
            let pid = pid.load(Relaxed);
            if pid > 0 {
                libc::kill(pid, libc::SIGKILL);
            }
        }
        libc::close(case.pidfd);
        let queue = slot.queue.load(Relaxed);
        if queue > 0 {
            libc::msgctl(queue - 1, libc::IPC_RMID, std::ptr::null_mut());
        }
        let semaphores = slot.semaphores.load(Relaxed);
        if semaphores > 0 {
            libc::semctl(semaphores - 1, 0, libc::IPC_RMID);
        }
    }
    let end = match (status.signal(), status.code()) {
        _ if !case.waits.is_empty() => case.waits.clone(),
        (Some(signal), _) => format!("killed by {signal}\n"),
        (_, Some(code)) => format!("exits with {code}\n"),
        _ => "ends\n".into(),
    };
    let folder = folder_of(options, case.slot);
    let started = fs::read_to_string(folder.join(AFTER_EXEC)).unwrap_or_default();
    let text = format!("{RESULT_HEAD}{}\n{}{started}{end}", case.id, slot.text());
    output.write_all(text.as_bytes())?;
    let _ = fs::remove_dir_all(folder);
    Ok(())
}

/// Reaps processes that cases left behind: children's children, and clones that chose another
/// parent.
fn reap_orphans(running: &[Running]) {
    loop {
        let mut information: libc::siginfo_t = unsafe_zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: room for the information.
        let pid = unsafe {
            libc::waitid(libc::P_ALL, 0, &raw mut information, flags);
            information.si_pid()
        };
        if pid == 0 || running.iter().any(|case| case.pid == pid) {
            return;
        }
        // SAFETY: a child that nothing else waits for.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    }
}

fn unsafe_zeroed() -> libc::siginfo_t {
    // SAFETY: zeros are a value.
    unsafe { std::mem::zeroed() }
}
