//! The inspection server: which clients get an answer, and that none of them delays the program.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Output;

use anyhow::{Context, Result, bail, ensure};
use raddle_inspect::{PROOF_BYTES, PROOF_WANTED, Request, RequestKind, SocketName, Wire};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle};
use rustix::process::geteuid;

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
    let output = std::process::Command::new(program).args(arguments).output();
    Ok(output?)
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
        ensure!(said.contains("run this as root"), "{said}");
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
