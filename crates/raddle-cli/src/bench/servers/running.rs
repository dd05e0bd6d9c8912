//! A running server: started in one of the ways, listening, and ended when this is dropped.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::catalog::Server;
use super::{registry, tree};
use crate::bench::process::{Way, readable_within};
use crate::failure::Failure;

/// The longest time from the start until the server listens.
const START: Duration = Duration::from_secs(60);
/// The time between two checks whether the server listens.
const LOOK: Duration = Duration::from_millis(1);
/// The longest time from SIGTERM to the end.
const STOP: Duration = Duration::from_secs(15);
/// The number of last lines that are reported of a server that died.
const LAST_LINES: usize = 3;

pub(super) struct Running {
    child: Child,
    pub port: u16,
    /// From the start until it listened.
    pub start_up: Duration,
    log: PathBuf,
    ended: bool,
}

impl Running {
    /// Starts the server in this way, and waits until it listens.
    pub(super) fn start(
        server: &Server,
        way: Way,
        port: Option<u16>,
        raddle: &Path,
        folder: &Path,
    ) -> Result<Running, String> {
        let text = |error: io::Error| error.to_string();
        let port = match port {
            Some(port) => ensure_free(port)
                .map(|()| port)
                .map_err(|why| why.to_string())?,
            None => free_port().map_err(text)?,
        };
        server.write_files(port).map_err(text)?;
        let log = folder.join("server.log");
        let out = File::create(&log).map_err(text)?;
        let mut command = way.command(raddle, &server.command(port));
        command
            .stdout(out.try_clone().map_err(text)?)
            .stderr(out)
            .current_dir(folder)
            .process_group(0);
        let started = Instant::now();
        let child = registry::start(|| way.spawn_processes(&mut command)).map_err(text)?;
        let mut running = Running {
            child,
            port,
            start_up: Duration::ZERO,
            log,
            ended: false,
        };
        running.listen(started)?;
        Ok(running)
    }

    fn listen(&mut self, started: Instant) -> Result<(), String> {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            self.ensure_alive()?;
            if started.elapsed() > START {
                let limit_s = START.as_secs();
                let last = self.last_lines();
                return Err(format!("it did not listen within {limit_s} s: {last}"));
            }
            std::thread::sleep(LOOK);
        }
        self.start_up = started.elapsed();
        // The port may be another server's now, if this server has just died.
        self.ensure_alive()
    }

    /// Fails with the server's last lines if it has ended.
    pub(super) fn ensure_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("it ended, {status}: {}", self.last_lines())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn last_lines(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&bytes))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of all its processes.
    pub(super) fn cpu_time(&self) -> Duration {
        tree::cpu_time(Pid::from_child(&self.child))
    }

    /// Ends the server. Fails if it has to be killed.
    pub(super) fn stop(mut self) -> Result<(), String> {
        self.ensure_alive()?;
        match self.end() {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!(
                "it did not end within {} s after SIGTERM, and was killed",
                STOP.as_secs()
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends the server. Returns whether SIGTERM was enough.
    fn end(&mut self) -> io::Result<bool> {
        self.ended = true;
        let leader = Pid::from_child(&self.child);
        let ask = || -> io::Result<bool> {
            let pidfd = pidfd_open(leader, PidfdFlags::empty())?;
            kill_process(leader, Signal::TERM)?;
            readable_within(&pidfd, STOP)
        };
        let asked = ask();
        let _ = self.child.kill();
        registry::leave(leader);
        self.child.wait()?;
        asked
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

/// A port that is free now.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Fails if a server could not listen on this port.
pub(super) fn ensure_free(port: u16) -> Result<(), Failure> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    bound.map(drop).map_err(|error| {
        Failure::input(
            format!("port {port}: {error}"),
            "name another port, or leave out --port for a free one",
        )
    })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    match last {
        [] => "it said nothing".into(),
        _ => last.join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_few() {
        assert_eq!(last_lines("a\nb\n\nc\nd\n"), "b | c | d");
        assert_eq!(last_lines("\n"), "it said nothing");
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let failure = ensure_free(listener.local_addr().unwrap().port()).unwrap_err();
        assert!(failure.what.contains("Address already in use"), "{failure}");
        ensure_free(free_port().unwrap()).unwrap();
    }
}
