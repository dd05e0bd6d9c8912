//! `raddle dump` of processes that look like Java virtual machines and are none, or are virtual
//! machines without an attach service: each dump ends in time, with bounded memory and one
//! sentence, and no process gets a signal that it doesn't handle.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, or_skip, raddle};

const MODE: Mode = Mode::Raddle { carriers: 2 };
/// Two seconds for a socket, two for a place in its queue, ten for the answer; a shared machine
/// gets more.
const LIMIT: Duration = Duration::from_secs(40);
/// The most address space of the tool, in KiB.
const MEMORY_MAX: &str = "2500000";

fn start(line: &[OsString], variables: &[(&str, &str)]) -> Result<Running> {
    let mut command = MODE.command(line)?;
    command.envs(variables.iter().copied());
    let running = Running::start(MODE, command, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn dump(running: &Running) -> Result<Output> {
    let started = Instant::now();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_MAX}; exec \"$0\" \"$@\"")]);
    command.arg(raddle()?).arg("dump");
    let output = command.arg(running.pid().to_string()).output()?;
    let took = started.elapsed();
    ensure!(took < LIMIT, "{took:?}");
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

/// Dumps a process that does so at its attach socket. It gets SIGQUIT or not, and the dump says why
/// there are no locks.
fn check(how: &str, is_signalled: bool, why: &str) -> Result<()> {
    let program = Program::build("fake_jvm.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("fake_jvm.c is one program");
    };
    let running = start(&[variant.command[0].clone(), how.into()], &[])?;
    let output = dump(&running);
    let _ = fs::remove_file(format!("/tmp/.java_pid{}", running.pid()));
    let output = output?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = usize::from(!why.is_empty());
    ensure!(
        said.contains(why) && said.lines().count() == lines,
        "{said}{}{}",
        running.stdout_so_far(),
        String::from_utf8_lossy(&output.stdout)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("\" main"), "{text}");
    let printed = running.stdout_so_far();
    let expected = if is_signalled {
        "ready\nquit\n"
    } else {
        "ready\n"
    };
    ensure!(printed == expected, "{printed}");
    ensure!(!running.has_ended_within(Duration::ZERO)?, "it has ended");
    Ok(())
}

fn check_all(test: &str, hows: &[(&str, &str)], is_signalled: bool) {
    for (how, why) in hows {
        let outcome = check(how, is_signalled, why);
        or_skip(test, outcome.with_context(|| (*how).to_owned()));
    }
}

#[test]
fn processes_that_do_not_expect_the_signal_do_not_get_it() {
    let test = "attach::processes_that_do_not_expect_the_signal_do_not_get_it";
    let hows = [
        ("unhandled", "doesn't handle SIGQUIT"),
        ("ignores", "doesn't handle SIGQUIT"),
        ("undispatched", "doesn't handle SIGQUIT"),
        ("no_library", ""),
    ];
    check_all(test, &hows, false);
}

#[test]
fn sockets_on_which_nothing_comes_have_a_time_limit() {
    let test = "attach::sockets_on_which_nothing_comes_have_a_time_limit";
    let hows = [
        ("no_socket", "no socket"),
        ("silent", "in time"),
        ("hangs", "in time"),
        ("full", "full queue"),
        ("drips", "no end"),
    ];
    check_all(test, &hows, true);
}

#[test]
fn answers_that_make_no_sense_do_no_harm() {
    let test = "attach::answers_that_make_no_sense_do_no_harm";
    let hows = [
        ("early", "answer"),
        ("garbage", "no end"),
        ("endless", "no end"),
        ("locks", ""),
        ("line", ""),
    ];
    check_all(test, &hows, true);
}

/// The switch is not on the command line: only the virtual machine's memory says it.
#[test]
fn a_service_that_the_environment_switches_off_gets_no_signal() {
    let test = "attach::a_service_that_the_environment_switches_off_gets_no_signal";
    let Some(program) = or_skip(test, Program::build("Managed.java")) else {
        return;
    };
    for variant in program.variants {
        let one = || -> Result<()> {
            let variable = ("JAVA_TOOL_OPTIONS", "-XX:+DisableAttachMechanism");
            let running = start(&variant.command, &[variable])?;
            let output = dump(&running)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(
                said.contains("switched off") && said.lines().count() == 1,
                "{said}"
            );
            let text = String::from_utf8_lossy(&output.stdout);
            ensure!(text.contains("java Managed.main"), "{text}");
            ensure!(running.stdout_so_far() == "ready\n", "it printed stacks");
            Ok(())
        };
        or_skip(test, one().map_err(|error| variant.name(error)));
    }
}
