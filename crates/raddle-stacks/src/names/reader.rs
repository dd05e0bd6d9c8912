//! The tool's end: a child that is started when it is needed, and killed when it is late.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Answer, Question, SERVE_NAMES, receive, send};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Starts children and asks them.
pub(crate) struct Reader {
    command: Box<dyn Fn() -> Command>,
    child: Option<Running>,
}

/// A child, and the socket that is its standard input.
struct Running {
    child: Child,
    socket: UnixStream,
    /// The file of its latest question.
    file: PathBuf,
    has_other_files: bool,
}

impl Reader {
    /// A reader that is this executable.
    pub(crate) fn new() -> Reader {
        Reader::started_by(|| {
            let mut command = Command::new("/proc/self/exe");
            command.arg0("raddle").arg(SERVE_NAMES);
            command
        })
    }

    /// A reader that is started by such a command, which calls [`serve_names`](super::serve_names).
    pub(crate) fn started_by(command: impl Fn() -> Command + 'static) -> Reader {
        Reader {
            command: Box::new(command),
            child: None,
        }
    }

    /// Asks, and returns `None` if a child that has read no other file died or was late.
    pub(crate) fn ask(&mut self, question: &Question) -> Option<Answer> {
        loop {
            let mut running = match self.child.take() {
                Some(running) => running,
                None => Running::start((self.command)(), question.file.clone()).ok()?,
            };
            running.has_other_files |= running.file != question.file;
            running.file.clone_from(&question.file);
            if let Ok(answer) = running.ask(question) {
                self.child = Some(running);
                return Some(answer);
            }
            // The memory that other files need counts, too: only a new child knows the culprit.
            if !running.has_other_files {
                return None;
            }
        }
    }
}

impl Running {
    fn start(mut command: Command, file: PathBuf) -> io::Result<Running> {
        let (socket, input) = UnixStream::pair()?;
        command
            .stdin(OwnedFd::from(input))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Running {
            child: command.spawn()?,
            socket,
            file,
            has_other_files: false,
        })
    }

    fn ask(&mut self, question: &Question) -> io::Result<Answer> {
        let mut timed = Timed {
            socket: &self.socket,
            until: Instant::now() + ANSWER_LIMIT,
        };
        send(&mut timed, question)?;
        let answer: Answer = receive(&mut timed)?;
        if answer.len() != question.offsets.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(answer)
    }
}

impl Drop for Running {
    /// Kills the child, which has no state of worth. A child that the kernel keeps in a call on a
    /// file system isn't waited for.
    fn drop(&mut self) {
        const TRIES: u32 = 100;
        let _ = self.child.kill();
        for _ in 0..TRIES {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A socket with a deadline.
struct Timed<'a> {
    socket: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
