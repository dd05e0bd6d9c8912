//! A server of one thread a connection, under load by wrk.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, Running, find_tool, in_every_mode, status_number};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(30);

struct Server {
    running: Running,
    port: u16,
}

impl Server {
    fn start(mode: Mode) -> Result<Server> {
        let program = Program::build("http_server.c")?;
        let command = mode.command(&program.variants[0].command)?;
        let running = Running::start(mode, command, None)?;
        let started = Instant::now();
        loop {
            let text = running.stdout_so_far();
            if let Some(port) = text
                .strip_prefix("port ")
                .and_then(|rest| rest.strip_suffix('\n'))
            {
                let port = port.parse()?;
                return Ok(Server { running, port });
            }
            ensure!(
                started.elapsed() < LIMIT,
                "the server never said its port: {text}"
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// One second of requests by wrk; gives how many were answered.
    fn load(&self, connections: u32) -> Result<u64> {
        let output = Command::new(find_tool("wrk")?)
            .args(["-t", "1", "-d", "1s", "-c", &connections.to_string()])
            .arg(format!("http://127.0.0.1:{}/", self.port))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "wrk failed:\n{text}");
        ensure!(
            !text.contains("Socket errors") && !text.contains("Non-2xx"),
            "errors:\n{text}"
        );
        let line = text.lines().find(|line| line.contains(" requests in "));
        let count = line.and_then(|line| line.split_whitespace().next());
        Ok(count
            .with_context(|| format!("wrk said no count:\n{text}"))?
            .parse()?)
    }

    fn end(self) -> Result<()> {
        self.running.signal(Signal::TERM)?;
        let outcome = self.running.wait(LIMIT)?;
        ensure!(
            status_number(outcome.status) == 0,
            "the server ended with {}",
            outcome.status
        );
        Ok(())
    }

    /// Processor time that its kernel threads have used.
    fn used(&self) -> Result<Duration> {
        let mut used_ns = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.running.pid()))? {
            // The time, the time that it waited for a CPU, how often it got one.
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let time_ns = text.split(' ').next().context("schedstat")?;
            used_ns += time_ns.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(used_ns))
    }
}

fn check_load(test: &str, connections: u32) {
    in_every_mode(test, |mode| {
        let server = Server::start(mode)?;
        let answered = server.load(connections)?;
        ensure!(
            answered > 500,
            "only {answered} requests were answered in a second"
        );
        server.end()
    });
}

#[test]
fn answers_1_connection() {
    check_load("servers::answers_1_connection", 1);
}

#[test]
fn answers_50_connections() {
    check_load("servers::answers_50_connections", 50);
}

#[test]
fn answers_500_connections() {
    check_load("servers::answers_500_connections", 500);
}

#[test]
fn an_idle_server_uses_no_processor_time() {
    /// A thousandth of a CPU.
    const MOST: Duration = Duration::from_millis(2);
    in_every_mode("servers::an_idle_server_uses_no_processor_time", |mode| {
        let server = Server::start(mode)?;
        server.load(20)?;
        sleep(Duration::from_millis(200));
        let before = server.used()?;
        sleep(1000 * MOST);
        let used = server.used()?.saturating_sub(before);
        ensure!(used <= MOST, "{used:?} in two seconds without requests");
        server.end()
    });
}
