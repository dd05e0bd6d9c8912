//! HotSpot's attach service: a socket in `/tmp`, which the virtual machine makes when it gets
//! SIGQUIT and finds a file `.attach_pidN` in its working folder.
//!
//! Nothing is sent to a process that isn't a virtual machine which handles SIGQUIT: the signal
//! would end it. Nor to one without the service, which would print its stacks. Each step has a time
//! limit, and the answer a limit of bytes.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The most bytes of an answer.
const ANSWER_MAX: u64 = 128 << 20;
/// How long the socket is waited for.
const SOCKET_PATIENCE: Duration = Duration::from_secs(2);
/// How long a whole answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

const SWITCHED_OFF: &str = "its attach service is switched off";
const NO_HANDLER: &str = "it doesn't handle SIGQUIT (-Xrs, or it has just begun)";
const STOPPED: &str = "it is stopped (by SIGSTOP or a debugger)";

/// What the process's tables say of the service.
#[derive(Clone, Copy, Default)]
pub(super) struct Service {
    /// The program has a handler for SIGQUIT.
    pub handles_quit: bool,
    /// There is the thread that acts on the signal. Without it, SIGQUIT ends the process.
    pub has_dispatcher: bool,
    /// There is the thread that listens on the socket: SIGQUIT would make it print all stacks.
    pub has_listener: bool,
}

/// What the kernel says of the process.
struct Process {
    pid: u32,
    /// Its number in its own namespace.
    own_pid: u32,
    user: u32,
    group: u32,
    handles_quit: bool,
    is_stopped: bool,
}

/// Why there is no connection.
enum Missing {
    /// There is no socket, or one on which nothing listens any more.
    Listener { is_left_behind: bool },
    /// For good.
    All(String),
}

/// Asks for the stacks and locks of all Java threads.
pub(super) fn thread_dump(
    pid: u32,
    service: Service,
    is_off: &dyn Fn() -> bool,
    patience: Duration,
) -> Result<String, String> {
    // A signal by this can't reach another process that gets the number.
    let handle = Pid::from_raw(pid.cast_signed()).ok_or("it has ended")?;
    let handle = pidfd_open(handle, PidfdFlags::empty()).map_err(|_| "it has ended")?;
    let process = Process::of(pid).ok_or("it has ended")?;
    if process.is_stopped {
        return Err(STOPPED.into());
    }
    let socket = format!("/proc/{pid}/root/tmp/.java_pid{}", process.own_pid);
    let mut stream = match process.connect(&socket, patience) {
        Ok(stream) => stream,
        Err(Missing::All(reason)) => return Err(reason),
        Err(Missing::Listener { is_left_behind }) => {
            if is_left_behind && service.has_listener {
                return Err("another file is in the place of its attach socket".into());
            }
            process.may_be_signalled(service)?;
            if is_off() {
                return Err(SWITCHED_OFF.into());
            }
            process.start_service(&handle, &socket, patience)?
        }
    };
    let text = ask(&mut stream, &["threaddump", "-l", "", ""])?;
    if text.contains("\nJNI global ref") {
        Ok(text)
    } else {
        Err("its answer has no end: it has ended meanwhile".into())
    }
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
            is_stopped: matches!(*words("State:")?.first()?, "T" | "t"),
        })
    }

    /// Refuses if SIGQUIT would do anything but begin the service.
    fn may_be_signalled(&self, service: Service) -> Result<(), String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        if words.any(|word| word == b"-XX:+DisableAttachMechanism") {
            return Err(SWITCHED_OFF.into());
        }
        if !self.handles_quit || !service.handles_quit || !service.has_dispatcher {
            return Err(NO_HANDLER.into());
        }
        Ok(())
    }

    /// Makes the virtual machine begin its service, as `jcmd` does.
    fn start_service(
        &self,
        handle: &OwnedFd,
        socket: &str,
        patience: Duration,
    ) -> Result<UnixStream, String> {
        let name = format!(".attach_pid{}", self.own_pid);
        let _trigger = Trigger::new(&format!("/proc/{}/cwd", self.pid), &name, self)
            .or_else(|| Trigger::new(&format!("/proc/{}/root/tmp", self.pid), &name, self))
            .ok_or("no file can be made in its working folder, nor in its /tmp")?;
        // It may have become another program meanwhile, which begins without handlers.
        if !Process::of(self.pid).is_some_and(|it| it.handles_quit) {
            return Err(NO_HANDLER.into());
        }
        pidfd_send_signal(handle, Signal::QUIT)
            .map_err(|error| format!("it can't be sent a signal ({error})"))?;
        let started = Instant::now();
        while started.elapsed() < SOCKET_PATIENCE {
            match self.connect(socket, patience) {
                Ok(stream) => return Ok(stream),
                Err(Missing::All(reason)) => return Err(reason),
                Err(Missing::Listener { .. }) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        if Process::of(self.pid).is_some_and(|it| it.is_stopped) {
            return Err(STOPPED.into());
        }
        Err(format!("it made no socket within {SOCKET_PATIENCE:?}"))
    }

    /// Connects to the socket, if it is the process's: all users may write to its folder.
    fn connect(&self, socket: &str, patience: Duration) -> Result<UnixStream, Missing> {
        let failed = |error| Missing::All(format!("its attach socket doesn't answer ({error})"));
        let Ok(facts) = fs::symlink_metadata(socket) else {
            return Err(Missing::Listener {
                is_left_behind: false,
            });
        };
        if !facts.file_type().is_socket() || facts.uid() != self.user {
            let reason = "another file is in the place of its attach socket";
            return Err(Missing::All(reason.into()));
        }
        let stream = match connect_in_time(socket, patience) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(Missing::Listener {
                    is_left_behind: true,
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(Missing::All("its attach socket has a full queue".into()));
            }
            stream => stream.map_err(failed)?,
        };
        let of_peer = peer(&stream).map_err(failed)?;
        if of_peer != self.pid {
            let reason = "its attach socket is another process's";
            return Err(Missing::All(reason.into()));
        }
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        Ok(stream)
    }
}

/// Connects; where the queue is full, waits for so long.
fn connect_in_time(path: &str, patience: Duration) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
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
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it doesn't answer in time".to_owned(),
        _ => format!("it doesn't answer ({error})"),
    };
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
        Some(_) => {
            answer.drain(..2);
            // What is no text is copied.
            let text = String::from_utf8(answer);
            Ok(text.unwrap_or_else(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()))
        }
        None if answer.is_empty() => Err("it has ended without an answer".into()),
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
        let service = Service {
            handles_quit: true,
            has_dispatcher: true,
            has_listener: false,
        };
        let answer = thread_dump(child.id(), service, &|| false, Duration::from_millis(100));
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

    fn reason(missing: Missing) -> String {
        match missing {
            Missing::Listener { is_left_behind } => format!("left behind: {is_left_behind}"),
            Missing::All(reason) => reason,
        }
    }

    #[test]
    fn a_socket_of_another_process_is_not_asked() {
        let own = Process::of(std::process::id()).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer(&ours).unwrap(), own.pid);
        let path = std::env::temp_dir().join(format!("raddle-attach-{}", own.pid));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = path.to_str().unwrap();
        let connect = |process: Process| process.connect(socket, Duration::from_millis(50));
        let of_user = |user| Process {
            user,
            ..Process::of(own.pid).unwrap()
        };
        assert!(connect(of_user(own.user)).is_ok());
        let other = Process {
            pid: 1,
            ..of_user(own.user)
        };
        assert!(reason(connect(other).unwrap_err()).contains("another process"));
        let refused = connect(of_user(own.user + 1));
        assert!(reason(refused.unwrap_err()).contains("another file"));
        // The path stays when the listener ends.
        drop(listener);
        let refused = connect(of_user(own.user));
        assert_eq!(reason(refused.unwrap_err()), "left behind: true");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        let refused = connect(of_user(own.user));
        assert!(reason(refused.unwrap_err()).contains("another file"));
        fs::remove_file(&path).unwrap();
        let refused = connect(own);
        assert_eq!(reason(refused.unwrap_err()), "left behind: false");
    }

    /// Answers one connection with these bytes, as a virtual machine that ends behind them.
    fn answered(bytes: &[u8]) -> Result<String, String> {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        ask(&mut ours, &["threaddump", "-l", "", ""])
    }

    #[test]
    fn an_answer_has_a_status() {
        assert_eq!(answered(b"0\ntext").unwrap(), "text");
        assert!(answered(b"").unwrap_err().contains("ended"));
        for refusal in [&b"1\nno"[..], b"0", b"rubbish"] {
            assert!(answered(refusal).unwrap_err().contains("refuses"));
        }
    }
}
