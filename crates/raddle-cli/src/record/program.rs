//! A program that is started to be recorded.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::recorder::Recorder;
use crate::failure::Failure;

/// How often it is looked whether the program can be recorded: at first, and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);
/// After this time a program without green threads runs on without a recording.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Program(RefCell<Child>);

impl Program {
    /// Starts `raddle run` with the program, which becomes it.
    pub(super) fn start(command: &[OsString]) -> Result<Program> {
        let own = crate::own_path::executable()?;
        let child = Command::new(own).args(["run", "--"]).args(command).spawn();
        Ok(Program(RefCell::new(child?)))
    }

    /// Begins to record as soon as the program has green threads.
    pub(super) fn recorder(
        &mut self,
        frequency: u32,
        ends: &Arc<AtomicBool>,
    ) -> Result<Recorder, Failure> {
        let pid = self.0.borrow().id();
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match Recorder::start(pid, frequency, true) {
                Ok(recorder) => return Ok(recorder),
                Err(failure) => failure,
            };
            let is_over = ends.load(Ordering::Relaxed) || self.has_ended();
            if is_over || begun.elapsed() >= PATIENCE {
                let why = if self.has_ended() {
                    "it has ended without green threads".to_owned()
                } else {
                    format!("{failure:#}")
                };
                return Err(Failure::input(
                    format!("the program was not recorded, because {why}"),
                    "see raddle run -v -- PROGRAM",
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Returns true if the program has ended. The kernel keeps what it has counted for it until
    /// [`Program::wait`].
    pub(super) fn has_ended(&self) -> bool {
        let id = WaitId::Pid(Pid::from_child(&self.0.borrow()));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(id, options), Ok(Some(_)) | Err(_))
    }

    /// Returns true if the program was not found, or could not be executed.
    pub(super) fn was_not_executed(&self) -> bool {
        let status = self.0.borrow_mut().try_wait();
        let code = status.ok().flatten().and_then(|status| status.code());
        matches!(code, Some(126 | 127))
    }

    /// Passes a signal on.
    pub(super) fn signal(&self, signal: i32) {
        if self.has_ended() {
            return;
        }
        let child = self.0.borrow();
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(Pid::from_child(&child), signal);
        }
    }

    /// Waits for the end of the program, and returns its status as a shell does.
    pub(super) fn wait(self) -> Result<ExitCode> {
        let status = self.0.into_inner().wait()?;
        Ok(ExitCode::from(code(status)))
    }
}

fn code(status: ExitStatus) -> u8 {
    const SIGNALLED: i32 = 128;
    let signal = status.signal().map(|signal| SIGNALLED + signal);
    status.code().or(signal).unwrap_or(1) as u8
}
