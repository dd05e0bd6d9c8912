//! MariaDB's server with one thread a connection, under load by sysbench.
//!
//! One data folder is made natively, once, with sysbench's table in it; the tests take turns with
//! it, and each leaves it by a clean shutdown. The client is never under raddle.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, RunFolder, Running, find_tool, in_every_mode, status_number};
use rustix::process::{Signal, getuid};

const LIMIT: Duration = Duration::from_secs(60);

/// The folder, once it is made; locked by the test that runs a server in it.
static DATA: Mutex<Option<Data>> = Mutex::new(None);

struct Data {
    folder: RunFolder,
    socket: PathBuf,
}

struct Server {
    running: Running,
    socket: PathBuf,
    log: PathBuf,
}

impl Data {
    fn make() -> Result<Data> {
        let install = find_tool("mariadb-install-db")?;
        find_tool("mariadbd")?;
        find_tool("sysbench")?;
        let folder = RunFolder::new("mariadb")?;
        // Not below the target folder: the name of a Unix socket has 107 bytes at most.
        let socket = env::temp_dir().join(format!("raddle-tests-{}.sock", std::process::id()));
        let mut command = Command::new(install);
        command.args(["--no-defaults", "--skip-test-db"]);
        command.arg("--auth-root-authentication-method=normal");
        command.arg(format!(
            "--datadir={}",
            folder.path().join("data").display()
        ));
        run(as_root(&mut command))?;
        let data = Data { folder, socket };
        let server = data.start(Mode::Native)?;
        run(Command::new(find_tool("mariadb")?)
            .args([
                "--no-defaults",
                "-u",
                "root",
                "-e",
                "CREATE DATABASE sbtest",
            ])
            .arg(format!("--socket={}", server.socket.display())))?;
        run(server.sysbench(1)?.arg("prepare"))?;
        server.shut_down()?;
        Ok(data)
    }

    fn start(&self, mode: Mode) -> Result<Server> {
        let folder = self.folder.path();
        let log = folder.join("log.err");
        let _ = fs::remove_file(&log);
        let mut line = vec![find_tool("mariadbd")?.into_os_string()];
        let options = [
            "--no-defaults".to_owned(),
            format!("--datadir={}", folder.join("data").display()),
            format!("--socket={}", self.socket.display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--log-error={}", log.display()),
            "--skip-networking".to_owned(),
            "--max-connections=400".to_owned(),
            "--innodb-buffer-pool-size=64M".to_owned(),
            "--thread-handling=one-thread-per-connection".to_owned(),
        ];
        line.extend(options.map(Into::into));
        let mut command = mode.command(&line)?;
        let running = Running::start(mode, move_to(as_root(&mut command), folder), None)?;
        let server = Server {
            running,
            socket: self.socket.clone(),
            log,
        };
        server.wait_until_ready()?;
        Ok(server)
    }
}

/// The server refuses to be root unless it is told.
fn as_root(command: &mut Command) -> &mut Command {
    if getuid().is_root() {
        command.arg("--user=root");
    }
    command
}

fn move_to(command: &mut Command, folder: &Path) -> Command {
    command.current_dir(folder);
    std::mem::replace(command, Command::new("true"))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("can't start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{text}{errors}"
    );
    Ok(text)
}

impl Server {
    fn wait_until_ready(&self) -> Result<()> {
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            let ended = self.running.has_ended_within(Duration::ZERO)?;
            ensure!(!ended, "the server ended at once:\n{}", self.log_text());
            ensure!(
                started.elapsed() < LIMIT,
                "the server is not ready:\n{}",
                self.log_text()
            );
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn sysbench(&self, clients: u32) -> Result<Command> {
        let mut command = Command::new(find_tool("sysbench")?);
        command.args([
            "oltp_point_select",
            "--table-size=1000",
            "--mysql-user=root",
            "--time=1",
        ]);
        command.arg(format!("--threads={clients}"));
        command.arg(format!("--mysql-socket={}", self.socket.display()));
        Ok(command)
    }

    /// One second of point selects; gives how many were made.
    fn load(&self, clients: u32) -> Result<u64> {
        let text = run(self.sysbench(clients)?.arg("run"))?;
        let find = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<u64>().ok())
        };
        ensure!(find("ignored errors:") == Some(0), "errors:\n{text}");
        ensure!(find("reconnects:") == Some(0), "reconnects:\n{text}");
        find("queries:").with_context(|| format!("sysbench said no count:\n{text}"))
    }

    fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn shut_down(self) -> Result<()> {
        self.running.signal(Signal::TERM)?;
        let outcome = self.running.wait(LIMIT)?;
        let text = fs::read_to_string(self.log).unwrap_or_default();
        let status = status_number(outcome.status);
        ensure!(
            status == 0,
            "the server ended with {status}:\n{text}{}",
            outcome.stderr
        );
        ensure!(
            text.contains("Shutdown complete"),
            "no clean shutdown:\n{text}"
        );
        Ok(())
    }
}

fn check(test: &str, clients: u32) {
    let mut data = DATA.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    in_every_mode(test, |mode| {
        if data.is_none() {
            *data = Some(Data::make()?);
        }
        let server = data.as_ref().context("it was just made")?.start(mode)?;
        let selects = server.load(clients)?;
        ensure!(selects > 100, "only {selects} selects in a second");
        server.shut_down()
    });
}

#[test]
fn serves_1_client_and_shuts_down() {
    check("mariadb::serves_1_client_and_shuts_down", 1);
}

#[test]
fn serves_16_clients_and_shuts_down() {
    check("mariadb::serves_16_clients_and_shuts_down", 16);
}

#[test]
fn serves_128_clients_and_shuts_down() {
    check("mariadb::serves_128_clients_and_shuts_down", 128);
}
