//! `raddle bench servers` for a second: a server runs in every way, and nothing is left behind.

mod common;

use std::io::Read;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Folder, has, raddle, refuses, succeeds, text};

const ONE_WINDOW: [&str; 6] = ["--rounds", "1", "--windows", "1", "--seconds", "1"];
const WAYS: [&str; 4] = [
    "native_all_cpus",
    "native_one_cpu",
    "raddle_one_carrier",
    "raddle_default",
];
const NAMES: &str = "c, waiting, rust, memcached, redis, nginx, apache-worker, apache-event, \
                     gunicorn, tomcat, mono, dotnet, mariadb, python";

fn lines(file: &std::path::Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_window_in_every_way_gives_a_table_and_json_lines() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new();
    let file = folder.0.join("results.jsonl");
    let mut command = raddle(&["bench", "servers", "c", "--clients", "4", "--json"]);
    command.arg(&file).args(ONE_WINDOW).env("TMPDIR", &folder.0);
    let table = text(&succeeds(&mut command).stdout);
    let title = "C, a thread a connection, 4 clients (";
    assert!(table.lines().any(|line| line.starts_with(title)), "{table}");
    for figure in ["rate", "latency-p50", "latency-p99", "cpu-request"] {
        let start = format!("window 1: {figure} ");
        let row = table.lines().find(|line| line.starts_with(&start));
        assert_eq!(row.map(|row| row.matches('x').count()), Some(2), "{table}");
    }
    let lines = lines(&file);
    let rate = lines.iter().find(|line| line["figure"] == "rate").unwrap();
    for way in WAYS {
        assert!(rate["medians"][way].as_f64().unwrap() > 0.0, "{rate}");
        assert_eq!(rate["samples"][way].as_array().map(Vec::len), Some(1));
    }
    assert_eq!(
        (&rate["phase"], &rate["number"]),
        (&"window".into(), &1.into())
    );
    assert_eq!(
        (&rate["server"], &rate["clients"]),
        (&"c".into(), &4.into())
    );
    assert!(rate["times_better"]["raddle_default/native_all_cpus"].is_f64());
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the results are left: {left:?}");
}

#[test]
fn servers_side_by_side_are_compared_in_their_steady_state() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new();
    let file = folder.0.join("results.jsonl");
    let mut command = raddle(&["bench", "servers", "c", "--clients", "4", "--side-by-side"]);
    let two_windows = ["--rounds", "1", "--windows", "2", "--seconds", "1"];
    let command = command.arg("--json").arg(&file).args(two_windows);
    let table = text(&succeeds(command.env("TMPDIR", &folder.0)).stdout);
    for start in ["window 1: rate ", "steady: rate "] {
        assert!(table.lines().any(|line| line.starts_with(start)), "{table}");
    }
    let lines = lines(&file);
    let is_rate = |line: &&serde_json::Value| line["phase"] == "steady" && line["figure"] == "rate";
    let rate = lines.iter().find(is_rate).unwrap();
    for way in WAYS {
        assert!(rate["medians"][way].as_f64().unwrap() > 0.0, "{rate}");
    }
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "only the results are left: {left:?}");
}

#[test]
fn servers_side_by_side_have_no_rates_and_no_port() {
    for other in [["--rate", "10"], ["--port", "7000"]] {
        let mut command = raddle(&["bench", "servers", "c", "--side-by-side"]);
        let output = command.args(other).output().unwrap();
        let said = text(&output.stderr);
        assert!(
            said.contains("--side-by-side") && said.contains(other[0]),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn constant_rates_follow_the_windows() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new();
    let file = folder.0.join("results.jsonl");
    let mut command = raddle(&["bench", "servers", "c", "--clients", "4", "--rate", "5,10"]);
    let command = command.arg("--json").arg(&file).args(ONE_WINDOW);
    let table = text(&succeeds(command).stdout);
    for start in ["window 1: rate", "offered 5 %, ", "offered 10 %, "] {
        assert!(table.lines().any(|line| line.starts_with(start)), "{table}");
    }
    let lines = lines(&file);
    let rate = |line: &&serde_json::Value| line["phase"] == "rate" && line["number"] == 10;
    let median = lines
        .iter()
        .filter(rate)
        .find(|line| line["figure"] == "latency-p99");
    assert!(median.unwrap()["medians"]["native_all_cpus"].is_f64());
    assert!(lines[0]["capacity"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_list_has_every_server_and_what_it_lacks() {
    let empty = Folder::new();
    let mut command = raddle(&["bench", "servers", "--list"]);
    let list = text(&succeeds(command.env("PATH", &empty.0)).stdout);
    for name in NAMES.split(", ") {
        let start = format!("{name} ");
        assert!(list.lines().any(|line| line.starts_with(&start)), "{list}");
    }
    let lacks = "memcached is not installed: apt-get install memcached";
    assert!(list.lines().any(|line| line.ends_with(lacks)), "{list}");
}

#[test]
fn what_is_missing_is_skipped_aloud_unless_it_was_named() {
    let empty = Folder::new();
    let mut all = raddle(&["bench", "servers"]);
    let output = all.env("PATH", &empty.0).output().unwrap();
    let said = text(&output.stdout);
    for line in [
        "c is skipped: cc is not installed: apt-get install build-essential",
        "tomcat is skipped: wrk is not installed: apt-get install wrk",
        "mariadb is skipped: mariadbd is not installed: apt-get install mariadb-server",
    ] {
        assert!(said.lines().any(|other| other == line), "{line}\n{said}");
    }
    assert_eq!(output.status.code(), Some(1));
    let sentence = "raddle: nothing could be measured: see the lines above\n";
    assert_eq!(text(&output.stderr), sentence);
    refuses(
        raddle(&["bench", "servers", "redis"]).env("PATH", &empty.0),
        2,
        "redis: redis-server is not installed: apt-get install redis-server",
    );
}

#[test]
fn bad_input_is_refused_before_the_work() {
    refuses(
        &mut raddle(&["bench", "servers", "iis"]),
        2,
        &format!("there is no server iis: name one of {NAMES}"),
    );
    refuses(
        &mut raddle(&["bench", "servers", "c", "--rate", "10,0"]),
        2,
        "--rate 0: give percentages from 1 to 200, with commas between them",
    );
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    refuses(
        &mut raddle(&["bench", "servers", "c", "--port", &port]),
        2,
        &format!(
            "port {port}: Address already in use (os error 98): name another port, or leave out \
             --port for a free one"
        ),
    );
}

#[test]
fn a_server_that_dies_says_its_last_lines() {
    let tools = Folder::new();
    let script = "#!/bin/sh\necho first >&2\necho the disk is full >&2\nexit 3\n";
    tools.file("redis-server", script, 0o755);
    let mut command = raddle(&["bench", "servers", "redis"]);
    let output = command
        .args(ONE_WINDOW)
        .env("PATH", &tools.0)
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let wanted = "native_one_cpu failed: it ended, exit status: 3: first | the disk is full";
    assert!(said.contains(wanted), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_signal_ends_the_server_and_removes_its_files() {
    if !has("wrk") {
        return;
    }
    let folder = Folder::new();
    let mut command = raddle(&["bench", "servers", "c", "--windows", "100"]);
    command.env("TMPDIR", &folder.0).stderr(Stdio::null());
    let mut bench = command.stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let server = loop {
        assert!(Instant::now() < deadline, "the server was not started");
        std::thread::sleep(Duration::from_millis(20));
        if let Some(server) = process_below(&folder.0) {
            break server;
        }
    };
    // SAFETY: the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(bench.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(bench.wait().unwrap().code(), Some(128 + libc::SIGINT));
    assert!(!server.exists() || process_below(&folder.0).is_none());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    let mut said = String::new();
    bench.stdout.unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains("failed"), "{said}");
}

/// A process that runs the C server in this folder, or raddle with that server as its program.
fn process_below(folder: &std::path::Path) -> Option<std::path::PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut folders = processes.map(|entry| entry.path());
    folders.find(|process| {
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.starts_with(&*folder.to_string_lossy()) && command.contains("/httpd\0")
    })
}
