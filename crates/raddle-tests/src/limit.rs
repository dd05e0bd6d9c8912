//! A limit on the time of what a test starts: a tool that hangs fails its test, not the whole run.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::tools::say;

/// How long a test may take in one mode: far more than any needs on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Between looks at what a test starts after that.
const AGAIN: Duration = Duration::from_secs(1);

/// Until it is dropped: after [`LIMIT`] it kills what the calling thread has started and starts.
pub(crate) struct Limit {
    _is_over: Sender<()>,
}

impl Limit {
    pub(crate) fn start(test: &str) -> Limit {
        Limit::after(LIMIT, test)
    }

    fn after(limit: Duration, test: &str) -> Limit {
        let (is_over, end) = channel::<()>();
        let list = format!("/proc/self/task/{}/children", rustix::thread::gettid());
        let test = test.to_owned();
        thread::spawn(move || {
            let mut wait = limit;
            while end.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                if wait == limit {
                    let seconds = limit.as_secs();
                    say(&format!(
                        "{test}: what it has started is killed after {seconds} s"
                    ));
                }
                wait = AGAIN;
                kill_all(&list);
            }
        });
        Limit { _is_over: is_over }
    }
}

/// Kills the processes in a list of the kernel's, and those that they have started.
fn kill_all(list: &str) {
    let text = fs::read_to_string(list).unwrap_or_default();
    for pid in text.split_whitespace().filter_map(|text| text.parse().ok()) {
        if let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) {
            for thread in threads.flatten() {
                kill_all(&thread.path().join("children").to_string_lossy());
            }
        }
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL); // it may have ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let _limit = Limit::after(Duration::from_millis(200), "a test");
        let output = Command::new("sh")
            .args(["-c", "sleep 1000; sleep 1000"])
            .output();
        assert!(!output.expect("there is a shell").status.success());
    }
}
