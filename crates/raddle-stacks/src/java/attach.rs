//! HotSpot's attach service: a socket in `/tmp`, which the virtual machine makes when it gets
//! SIGQUIT and finds a file `.attach_pidN` in its working folder.
//!
//! Nothing is sent to a process that isn't a virtual machine which handles SIGQUIT: the signal
//! would end it. The answer has a time limit.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The most bytes of an answer.
const ANSWER_MAX: u64 = 256 << 20;
/// How long the socket is waited for.
const SOCKET_PATIENCE: Duration = Duration::from_secs(2);
/// How long a whole answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// What the kernel says of the process.
struct Process {
    pid: u32,
    /// Its number in its own namespace.
    own_pid: u32,
    user: u32,
    group: u32,
    handles_quit: bool,
}

/// Asks for the stacks and locks of all Java threads.
pub(super) fn thread_dump(
    pid: u32,
    has_dispatcher: bool,
    patience: Duration,
) -> Result<String, String> {
    let process = Process::of(pid).ok_or("the process has ended")?;
    let socket = format!("/proc/{pid}/root/tmp/.java_pid{}", process.own_pid);
    if !process.owns_socket(&socket) {
        process.may_be_signalled(has_dispatcher)?;
        process.make_socket(&socket)?;
    }
    let mut stream = process.connect(&socket, patience)?;
    ask(&mut stream, &["threaddump", "-l", "", ""])
}

impl Process {
    fn of(pid: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let words = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>())
        };
        let effective = |name| words(name)?.get(1)?.parse().ok();
        let caught = u64::from_str_radix(words("SigCgt:")?.first()?, 16).ok()?;
        Some(Process {
            pid,
            own_pid: words("NSpid:")?.last()?.parse().ok()?,
            user: effective("Uid:")?,
            group: effective("Gid:")?,
            handles_quit: caught & 1 << (libc::SIGQUIT - 1) != 0,
        })
    }

    /// Returns true if this is the process's socket: a name in a folder that all may write to.
    fn owns_socket(&self, socket: &str) -> bool {
        let facts = fs::symlink_metadata(socket);
        facts.is_ok_and(|it| it.file_type().is_socket() && it.uid() == self.user)
    }

    /// Refuses if SIGQUIT would do anything but begin the service.
    fn may_be_signalled(&self, has_dispatcher: bool) -> Result<(), String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        if words.any(|word| word == b"-XX:+DisableAttachMechanism") {
            return Err("its attach service is switched off".into());
        }
        if !self.handles_quit || !has_dispatcher {
            let reason = "it doesn't handle SIGQUIT (-Xrs, or it has just begun)";
            return Err(reason.into());
        }
        Ok(())
    }

    /// Makes the virtual machine begin its service, as `jcmd` does.
    fn make_socket(&self, socket: &str) -> Result<(), String> {
        let name = format!(".attach_pid{}", self.own_pid);
        let trigger = Trigger::new(&format!("/proc/{}/cwd", self.pid), &name, self)
            .or_else(|| Trigger::new(&format!("/proc/{}/root/tmp", self.pid), &name, self))
            .ok_or("no file can be made in its working folder, nor in its /tmp")?;
        // SAFETY: a plain call; the process was found to be a virtual machine that handles this.
        let sent = unsafe { libc::kill(self.pid as libc::pid_t, libc::SIGQUIT) };
        if sent != 0 {
            return Err("the kernel doesn't let this user send it a signal".into());
        }
        let started = Instant::now();
        while started.elapsed() < SOCKET_PATIENCE {
            if self.owns_socket(socket) {
                drop(trigger);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("it made no socket within {SOCKET_PATIENCE:?}"))
    }

    fn connect(&self, socket: &str, patience: Duration) -> Result<UnixStream, String> {
        let failed = |error| format!("its attach socket doesn't answer ({error})");
        let stream = UnixStream::connect(socket).map_err(failed)?;
        let of_peer = peer(&stream).map_err(failed)?;
        if of_peer != self.pid {
            return Err("its attach socket is another process's".into());
        }
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        Ok(stream)
    }
}

/// Returns the process that listens.
fn peer(stream: &UnixStream) -> std::io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to a live structure of that size.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if got != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(peer.pid as u32)
}

/// The file that tells the virtual machine what SIGQUIT means; it goes with this value.
struct Trigger {
    folder: File,
    name: CString,
}

impl Trigger {
    /// Makes the file, the process's own, in a folder. Neither is followed if it is a link.
    fn new(folder: &str, name: &str, process: &Process) -> Option<Trigger> {
        // The last part of a path of /proc is the folder itself, and no link that has to be
        // followed by its text.
        let is_own_link = folder.ends_with("/cwd");
        let flags = if is_own_link { 0 } else { libc::O_NOFOLLOW };
        let folder = open_folder(folder, flags)?;
        let name = CString::new(name).ok()?;
        // One that was left behind is ours to replace.
        // SAFETY: plain calls on a live descriptor and a live name.
        let file = unsafe {
            libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0);
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
            libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, 0o600)
        };
        if file < 0 {
            return None;
        }
        // SAFETY: the kernel has just made this descriptor.
        let file = unsafe { File::from_raw_fd(file) };
        let trigger = Trigger { folder, name };
        // SAFETY: a plain call on a live descriptor. Older versions want the file to be their own.
        let _ = unsafe { libc::fchown(file.as_raw_fd(), process.user, process.group) };
        Some(trigger)
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        // SAFETY: a plain call on a live descriptor and a live name.
        unsafe { libc::unlinkat(self.folder.as_raw_fd(), self.name.as_ptr(), 0) };
    }
}

/// Opens a folder for names in it.
fn open_folder(path: &str, flags: libc::c_int) -> Option<File> {
    let path = CString::new(path).ok()?;
    let flags = flags | libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a plain call with a live name.
    let folder = unsafe { libc::open(path.as_ptr(), flags) };
    // SAFETY: the kernel has just made this descriptor.
    (folder >= 0).then(|| unsafe { File::from_raw_fd(folder) })
}

/// Sends a command with three arguments, and reads the answer.
fn ask(stream: &mut UnixStream, words: &[&str; 4]) -> Result<String, String> {
    let failed = |error| format!("it doesn't answer ({error})");
    let mut request = b"1\0".to_vec();
    for word in words {
        request.extend_from_slice(word.as_bytes());
        request.push(0);
    }
    stream.write_all(&request).map_err(failed)?;
    let started = Instant::now();
    let (mut answer, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match stream.read(&mut piece).map_err(failed)? {
            0 => break,
            got => answer.extend_from_slice(&piece[..got]),
        }
        if answer.len() as u64 > ANSWER_MAX || started.elapsed() > ANSWER_PATIENCE {
            return Err("its answer has no end".into());
        }
    }
    match answer.strip_prefix(b"0\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        None => Err("it refuses to answer".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_virtual_machine_gets_no_signal() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let answer = thread_dump(child.id(), true, Duration::from_millis(100));
        assert!(answer.unwrap_err().contains("SIGQUIT"));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_service_that_never_answers_has_a_time_limit() {
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let patience = Duration::from_millis(50);
        ours.set_read_timeout(Some(patience)).unwrap();
        let started = Instant::now();
        assert!(ask(&mut ours, &["threaddump", "-l", "", ""]).is_err());
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_socket_of_another_process_is_not_asked() {
        let own = Process::of(std::process::id()).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer(&ours).unwrap(), own.pid);
        let path = std::env::temp_dir().join(format!("raddle-attach-{}", own.pid));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = path.to_str().unwrap();
        assert!(own.owns_socket(socket));
        let other = Process { pid: 1, ..own };
        let refused = other.connect(socket, Duration::from_millis(50));
        assert!(refused.unwrap_err().contains("another process"));
        std::fs::remove_file(&path).unwrap();
    }
}
