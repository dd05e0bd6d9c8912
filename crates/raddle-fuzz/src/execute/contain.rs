//! Containment of an executor: nothing that a case does to files, processes, mounts, queues or
//! networks reaches the machine.
//!
//! New namespaces of processes, mounts, System V's objects and networks; all file systems are
//! read-only but for one folder. Without them nothing runs: a case may unlink any path it names.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Process ids begin here, so that no small number of a trace looks like one.
const FIRST_PID: u32 = 100_000;

/// The exit status for a machine where nothing can be contained.
pub const NOT_CONTAINED: u8 = 77;

/// Runs a command in namespaces of its own, in which only `writable` can be written, and waits for
/// it.
///
/// # Errors
/// No process can be made.
pub fn contain(writable: &Path, command: &[OsString]) -> Result<ExitCode> {
    const NAMESPACES: i32 =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET;
    // SAFETY: plain calls; the process has one thread.
    let contained = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::unshare(NAMESPACES) == 0 || libc::unshare(NAMESPACES | libc::CLONE_NEWUSER) == 0
    };
    if !contained {
        eprintln!("no namespaces here: {}", Error::last_os_error());
        return Ok(ExitCode::from(NOT_CONTAINED));
    }
    // SAFETY: the process has one thread.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "no process could be made");
    if pid == 0 {
        let error = enter(writable, command);
        eprintln!("{error:#}");
        std::process::exit(NOT_CONTAINED.into());
    }
    let mut status = 0;
    // SAFETY: room for a status.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    Ok(ExitCode::from(code_of(status)))
}

fn code_of(status: i32) -> u8 {
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status) as u8
    } else {
        126
    }
}

/// Becomes the first process of the namespace; its child becomes the command.
fn enter(writable: &Path, command: &[OsString]) -> anyhow::Error {
    // SAFETY: a plain call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if let Err(error) = arrange(writable) {
        return error.context("no world of its own");
    }
    // SAFETY: the process has one thread.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        wait_as_first(pid);
    }
    let [program, arguments @ ..] = command else {
        return anyhow::anyhow!("no command");
    };
    Command::new(program).args(arguments).exec().into()
}

/// Reaps the processes that are left to the first one, and ends with its only child.
fn wait_as_first(pid: i32) -> ! {
    loop {
        let mut status = 0;
        // SAFETY: room for a status.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if ended == pid || ended < 0 {
            std::process::exit(code_of(status).into());
        }
    }
}

/// Read-only file systems, `/proc` of the new processes, a loopback, and large process ids.
fn arrange(writable: &Path) -> Result<()> {
    const PRIVATE: u64 = libc::MS_REC | libc::MS_PRIVATE;
    let none = std::ptr::null();
    let folder = CString::new(writable.as_os_str().as_bytes())?;
    let at = folder.as_ptr();
    // SAFETY: live strings.
    let done = unsafe {
        libc::mount(none, c"/".as_ptr(), none, PRIVATE, none.cast()) == 0
            && libc::mount(at, at, none, libc::MS_BIND, none.cast()) == 0
    };
    ensure!(done, "no mounts: {}", Error::last_os_error());
    set_read_only(c"/", true)?;
    set_read_only(&folder, false)?;
    // SAFETY: live strings.
    let done = unsafe {
        libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            0,
            none.cast(),
        ) == 0
    };
    ensure!(done, "no /proc: {}", Error::last_os_error());
    raise_loopback();
    fs::write("/proc/sys/kernel/ns_last_pid", FIRST_PID.to_string()).context("ns_last_pid")
}

/// `mount_setattr(2)`, with all mounts below.
fn set_read_only(path: &std::ffi::CStr, read_only: bool) -> Result<()> {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const AT_RECURSIVE: u64 = 0x8000;
    let (set, clear) = if read_only {
        (MOUNT_ATTR_RDONLY, 0)
    } else {
        (0, MOUNT_ATTR_RDONLY)
    };
    let attributes = [set, clear, 0, 0];
    // SAFETY: live arguments of the call's types.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            AT_RECURSIVE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    ensure!(
        result == 0,
        "{path:?} can't be made read-only: {}",
        Error::last_os_error()
    );
    Ok(())
}

fn raise_loopback() {
    // SAFETY: a live structure of the request's type.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request);
        libc::close(socket);
    }
}
