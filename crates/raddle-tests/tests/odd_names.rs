//! Names of threads that would control a terminal, and functions of the runtime: what tools show of
//! both.

use std::ffi::OsString;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};
use serde_json::Value;

const NAME: &str = "a\u{1b}[2J\u{202e}\"b";
/// As tools print it.
const PLAIN: &str = "a\\u{1b}[2J\\u{202e}\"b";
const QUOTED: &str = "\"a\\u{1b}[2J\\u{202e}\\\"b\"";

fn start(mode: Mode, source: &str, arguments: &[&str]) -> Result<Running> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let running = Running::start(mode, mode.command(&line)?, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn run(arguments: &[&str]) -> Result<Output> {
    let output = Command::new(raddle()?).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(output)
}

#[test]
fn a_terminal_gets_names_as_text() {
    let name = "odd_names::a_terminal_gets_names_as_text";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let running = start(mode, "odd_name.c", &[])?;
        let pid = running.pid().to_string();
        let lines: [(&[&str], &str); 7] = [
            (&["dump", &pid], QUOTED),
            (&["dump", &pid, "--group"], QUOTED),
            (&["dump", &pid, "--no-stacks"], QUOTED),
            (&["top", &pid, "--once", "-d", "0.3"], PLAIN),
            (&["top", &pid, "--once", "-d", "0.3", "--by-name"], PLAIN),
            (&["record", &pid, "-d", "0.5"], PLAIN),
            (&["locks", &pid, "-d", "0.5"], "lock_odd"),
        ];
        for (arguments, shown) in lines {
            let text = String::from_utf8(run(arguments)?.stdout)?;
            // Groups have stars for numbers.
            let stars = shown.replace("[2J", "[*J");
            let is_odd = |it: char| it == '\u{202e}' || it.is_control() && it != '\n';
            ensure!(!text.contains(is_odd), "{arguments:?}: {text:?}");
            ensure!(
                text.contains(shown) || text.contains(&stars),
                "{arguments:?}: {text}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_document_has_the_names_themselves() {
    let name = "odd_names::a_document_has_the_names_themselves";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let running = start(mode, "odd_name.c", &[])?;
        let pid = running.pid().to_string();
        for (arguments, list) in [
            (vec!["dump", &pid, "--json"], "threads"),
            (vec!["top", &pid, "--once", "--json", "-d", "0.2"], "rows"),
        ] {
            let document: Value = serde_json::from_slice(&run(&arguments)?.stdout)?;
            let rows = document[list].as_array();
            let has = rows.is_some_and(|rows| rows.iter().any(|row| row["name"] == NAME));
            ensure!(has, "{arguments:?}: {document}");
        }
        Ok(())
    });
}

/// Functions that threads are met in when they are preempted.
const OF_RUNTIME: [&str; 5] = ["raddle_", "on_signal", "give_way", "preempted", "__vdso_"];

#[test]
fn a_profile_names_no_function_inside_of_the_runtime() {
    let name = "odd_names::a_profile_names_no_function_inside_of_the_runtime";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let folder = RunFolder::new(&format!("inside-{mode}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let running = start(mode, "busy.c", &["crowd", "20"])?;
        let pid = running.pid().to_string();
        run(&["record", &pid, "-F", "4999", "-d", "2", "-o", path])?;
        let folded = std::fs::read_to_string(&file)?;
        ensure!(folded.contains(";spin "), "{folded}");
        for line in folded.lines() {
            let mut frames = line.split(';').skip(1);
            let is_inside = |frame: &str| OF_RUNTIME.iter().any(|it| frame.starts_with(it));
            ensure!(!frames.any(is_inside), "{line}");
        }
        Ok(())
    });
}
