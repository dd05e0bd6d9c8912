//! The columns of what `raddle record`, `locks` and `report` print: those of the terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};

/// Runs the command on a terminal with so many columns, and returns what it prints.
fn print_at(columns: u16, arguments: &[&str]) -> Result<String> {
    let (mut own, mut theirs) = (0, 0);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (name, settings) = (null_mut(), null_mut());
    // SAFETY: two live integers and a live structure.
    let made = unsafe {
        libc::openpty(
            &raw mut own,
            &raw mut theirs,
            name,
            settings,
            &raw const size as *mut _,
        )
    };
    ensure!(made == 0, "no terminal");
    // SAFETY: two descriptors of this function's own.
    let (mut own, theirs) = unsafe { (File::from_raw_fd(own), File::from_raw_fd(theirs)) };
    let mut child = Command::new(raddle()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(theirs)
        .spawn()?;
    let mut text = Vec::new();
    // The terminal is an error once its last user has ended.
    let _ = own.read_to_end(&mut text);
    ensure!(child.wait()?.success(), "{arguments:?}");
    Ok(String::from_utf8(text)?.replace("\r\n", "\n"))
}

/// Returns the most columns of a line.
fn widest(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

/// Checks lines on terminals of all widths, and without one.
fn check(arguments: &[&str], more_at_200: bool) -> Result<()> {
    let mut widths = Vec::new();
    for (columns, most) in [(40, 40), (80, 80), (200, 200), (10, 40), (0, 80)] {
        let text = print_at(columns, arguments)?;
        let width = widest(&text);
        ensure!(width <= most && width > 20, "{columns}: {width}: {text}");
        widths.push(width);
    }
    ensure!(!more_at_200 || widths[2] > 80, "{arguments:?}: {widths:?}");
    let output = Command::new(raddle()?).args(arguments).output()?;
    let width = widest(&String::from_utf8(output.stdout)?);
    ensure!(width <= 80, "no terminal: {width}");
    Ok(())
}

#[test]
fn lines_have_the_columns_of_the_terminal() {
    let name = "widths::lines_have_the_columns_of_the_terminal";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) {
            return Ok(());
        }
        let program = Program::build("shares.c")?;
        let [variant] = program.variants.as_slice() else {
            bail!("one program");
        };
        let mut line = variant.command.clone();
        line.push("60".into());
        let running = Running::start(mode, mode.command(&line)?, None)?;
        let pid = running.pid().to_string();
        let folder = RunFolder::new("widths")?;
        let file = folder.path().join("a.pb.gz");
        let file = file.to_str().context("a path")?;
        std::thread::sleep(Duration::from_millis(500));
        check(&["record", "-d", "0.3", &pid], true)?;
        check(&["locks", "-d", "0.5", &pid], true)?;
        let record = ["record", "-d", "0.5", "-o", file, &pid];
        let output = Command::new(raddle()?).args(record).output()?;
        ensure!(output.status.success(), "{output:?}");
        check(&["report", file], true)?;
        check(&["report", file, file], false)
    });
}
