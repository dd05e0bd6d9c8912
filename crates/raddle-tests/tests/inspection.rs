//! The inspection server: which clients get an answer, and that none of them delays the program.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use raddle_inspect::{PROOF_BYTES, PROOF_WANTED, Request, RequestKind, SocketName, Wire};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Signal, geteuid};
use serde_json::Value;

/// The tool waits two seconds for an answer; a machine that is shared gets more.
const SILENCE_MAX: Duration = Duration::from_secs(6);

/// Calls `test` with the program, at each number of carriers.
fn with_program(name: &str, arguments: &[&str], test: impl Fn(&Running) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build("inspected.c")?;
        let [variant] = program.variants.as_slice() else {
            bail!("inspected.c is one program");
        };
        let mut line = variant.command.clone();
        line.extend(arguments.iter().map(OsString::from));
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ticks\n")?;
        test(&running)
    });
}

fn connect(running: &Running) -> Result<UnixStream> {
    let name = SocketName::of(running.pid());
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    Ok(UnixStream::connect_addr(&address)?)
}

fn dump(running: &Running, words: &[&str]) -> Result<Output> {
    let raddle = raddle()?;
    let mut line: Vec<OsString> = words.iter().map(OsString::from).collect();
    line.extend([raddle.into_os_string(), "dump".into()]);
    line.push(running.pid().to_string().into());
    let (program, arguments) = line.split_first().context("at least raddle")?;
    let output = Command::new(program).args(arguments).output();
    Ok(output?)
}

fn dump_with(running: &Running, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(running.pid().to_string());
    Ok(command.args(arguments).output()?)
}

#[test]
fn a_wrong_proof_gets_nothing() {
    let name = "inspection::a_wrong_proof_gets_nothing";
    with_program(name, &[], |running| {
        let mut client = connect(running)?;
        let mut wanted = [0; PROOF_WANTED.len()];
        client.read_exact(&mut wanted)?;
        ensure!(wanted == PROOF_WANTED);
        client.write_all(&[b'0'; PROOF_BYTES])?;
        // The server may have closed the connection by now.
        let _ = client.write_all(Request::new(RequestKind::SNAPSHOT, 0).as_bytes());
        let mut answer = Vec::new();
        let end = client
            .read_to_end(&mut answer)
            .map_err(|error| error.kind());
        ensure!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)));
        ensure!(answer.is_empty(), "{} bytes", answer.len());
        Ok(())
    });
}

/// Clients that may look by their user id alone; the kernel refuses them: root without
/// capabilities, or the user of a process that made itself undumpable.
#[test]
fn a_client_that_may_not_look_gets_nothing() {
    let name = "inspection::a_client_that_may_not_look_gets_nothing";
    const POWERLESS: [&str; 4] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
    with_program(name, &["undumpable"], |running| {
        let words: &[&str] = if geteuid().is_root() { &POWERLESS } else { &[] };
        let refused = dump(running, words)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.stdout.is_empty() && !refused.status.success());
        let cure = if geteuid().is_root() {
            "give this command CAP_SYS_PTRACE"
        } else {
            "run this as root"
        };
        ensure!(said.contains(cure), "{said}");
        if geteuid().is_root() {
            let given = dump(running, &[])?;
            ensure!(given.status.success(), "{given:?}");
        }
        Ok(())
    });
}

/// Each client is dropped after a second. If the server waited for them, the thread that computes
/// would be preempted once between two of them.
#[test]
fn clients_that_stall_delay_nothing() {
    const CLIENTS: usize = 14;
    let name = "inspection::clients_that_stall_delay_nothing";
    with_program(name, &[], |running| {
        let clients = (0..CLIENTS).map(|_| connect(running));
        let mut clients: Vec<UnixStream> = clients.collect::<Result<_>>()?;
        for client in clients.iter_mut().step_by(2) {
            client.write_all(&[b'0'; PROOF_BYTES / 2])?;
        }
        running.wait_until_it_says(&"ticks\n".repeat(4))?;
        let last = clients.last_mut().context("there are some")?;
        last.set_nonblocking(true)?;
        let error = last.read(&mut [0]).err().map(|error| error.kind());
        ensure!(error == Some(ErrorKind::WouldBlock), "{error:?}");
        Ok(())
    });
}

#[test]
fn nothing_lasts_longer_than_the_process() {
    let name = "inspection::nothing_lasts_longer_than_the_process";
    with_program(name, &[], |running| {
        let text = String::from_utf8(dump(running, &[])?.stdout)?;
        let seconds_after = |word: &str| {
            let mut all = text.split(word).skip(1);
            let numbers = all
                .by_ref()
                .map(|rest| rest.split('s').next()?.parse().ok());
            numbers.collect::<Option<Vec<f64>>>()
        };
        let up = seconds_after(", up ").context("how long it is up")?;
        let since = seconds_after("since ").context("since when threads are as they are")?;
        ensure!(up.len() == 1 && !since.is_empty(), "{text}");
        ensure!(since.iter().all(|since| since <= &up[0]), "{text}");
        Ok(())
    });
}

/// The threads that a dump in JSON has, by their ids, and why the process didn't answer.
fn read_without_help(running: &Running) -> Result<(Vec<u64>, String)> {
    let started = Instant::now();
    let output = dump_with(running, &["--json", "--stacks"])?;
    let took = started.elapsed();
    ensure!(took < SILENCE_MAX, "{took:?}");
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let threads = document["threads"].as_array().context("no threads")?;
    let tids = threads.iter().map(|it| it["tid"].as_u64().unwrap_or(0));
    let why = document["answer_missing"].as_str().unwrap_or("").to_owned();
    ensure!(
        document["carriers"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
    );
    Ok((tids.collect(), why))
}

/// What needs its answer fails in one sentence.
fn refuses(running: &Running, arguments: &[&str], why: &str) -> Result<()> {
    let started = Instant::now();
    let output = dump_with(running, arguments)?;
    let took = started.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    let is_one = said.lines().count() == 1 && said.contains(why);
    ensure!(output.status.code() == Some(2) && is_one, "{output:?}");
    ensure!(took < SILENCE_MAX, "{took:?}");
    Ok(())
}

#[test]
fn a_stopped_process_is_read_without_its_help() {
    let name = "inspection::a_stopped_process_is_read_without_its_help";
    with_program(name, &[], |running| {
        let (all, why) = read_without_help(running)?;
        ensure!(!all.is_empty() && why.is_empty(), "{all:?} {why}");
        stop(running)?;
        let (read, why) = read_without_help(running)?;
        ensure!(read == all && why.contains("is stopped"), "{read:?} {why}");
        let output = dump_with(running, &[])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.lines().count() == 1,
            "{output:?}"
        );
        ensure!(!output.stdout.is_empty());
        refuses(running, &["--stats"], "is stopped")?;
        let output = dump_with(running, &["--deadlocks"])?;
        ensure!(output.status.code().is_some_and(|it| it != 2), "{output:?}");
        // The server must not have been disturbed.
        running.signal(Signal::CONT)?;
        let (later, why) = read_without_help(running)?;
        ensure!(later == all && why.is_empty(), "{later:?} {why}");
        Ok(())
    });
}

/// A carrier that has slept was woken, and a thread is not stolen from where it never was.
#[test]
fn wake_ups_of_carriers_and_first_turns_of_threads_are_counted() {
    let name = "inspection::wake_ups_of_carriers_and_first_turns_of_threads_are_counted";
    with_program(name, &[], |running| {
        for arguments in [&["--json"][..], &["--json", "--no-stacks"]] {
            let output = dump_with(running, arguments)?;
            let document: Value = serde_json::from_slice(&output.stdout)?;
            let rows = |list: &str| document[list].as_array().cloned().unwrap_or_default();
            let count = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
            let carriers = rows("carriers");
            let slept = carriers.iter().filter(|it| count(it, "park") > 1);
            let woken = slept.clone().filter(|it| count(it, "wakeups") > 0);
            ensure!(slept.count() == woken.count(), "{document}");
            let mut threads = rows("threads");
            threads.retain(|it| count(it, "active") != 0);
            let is_whole = |it: &Value| count(it, "steal") < count(it, "active");
            ensure!(threads.iter().all(is_whole), "{document}");
        }
        Ok(())
    });
}

/// A filter that forbids memory files takes the proof from the server.
#[test]
fn a_process_whose_filter_forbids_memory_files_is_read_without_its_help() {
    let name = "inspection::a_process_whose_filter_forbids_memory_files_is_read_without_its_help";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let mut line = Vec::new();
        for source in ["refused.c", "inspected.c"] {
            let program = Program::build(source)?;
            let [variant] = program.variants.as_slice() else {
                bail!("{source} is one program");
            };
            line.extend(variant.command.clone());
        }
        line.insert(1, "memfd_create".into());
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ticks\n")?;
        let (read, why) = read_without_help(&running)?;
        ensure!(
            !read.is_empty() && why.contains("a filter forbids"),
            "{read:?} {why}"
        );
        let output = dump_with(&running, &[])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.contains("permit memfd_create"),
            "{output:?}"
        );
        refuses(&running, &["--stats"], "permit memfd_create")
    });
}

/// Of a queue that is full, the kernel lets a client wait until there is room.
#[test]
fn a_full_queue_of_clients_stops_no_dump() {
    let name = "inspection::a_full_queue_of_clients_stops_no_dump";
    with_program(name, &[], |running| {
        let (all, _) = read_without_help(running)?;
        let clients = fill_queue(running)?;
        let (read, why) = read_without_help(running)?;
        ensure!(read == all && !why.is_empty(), "{read:?} {why}");
        refuses(running, &["--stats"], "in time")?;
        stop(running)?;
        let _more = fill_queue(running)?;
        let (read, why) = read_without_help(running)?;
        ensure!(read == all && why.contains("is stopped"), "{read:?} {why}");
        running.signal(Signal::CONT)?;
        drop((clients, _more));
        let (later, why) = read_without_help(running)?;
        ensure!(later == all && why.is_empty(), "{later:?} {why}");
        Ok(())
    });
}

fn stop(running: &Running) -> Result<()> {
    running.signal(Signal::STOP)?;
    let status = format!("/proc/{}/status", running.pid());
    while !fs::read_to_string(&status)?.contains("T (stopped)") {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Connects until there is no room any more.
fn fill_queue(running: &Running) -> Result<Vec<OwnedFd>> {
    let name = SocketName::of(running.pid());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let mut clients = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match net::connect(&client, &address) {
            Ok(()) => clients.push(client),
            Err(Errno::AGAIN) => return Ok(clients),
            Err(error) => bail!("{error}"),
        }
        ensure!(clients.len() < 1000, "there is always room");
    }
}
