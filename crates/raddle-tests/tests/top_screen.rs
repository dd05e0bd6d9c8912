//! The screen of `raddle top`, in a terminal of tmux.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, find_tool, in_every_mode, raddle};
use rustix::process::{Pid, Signal};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server of tmux with one window, in which a shell runs a command.
struct Terminal {
    tmux: std::path::PathBuf,
    socket: String,
}

impl Terminal {
    /// Opens a window of 80 columns and 24 lines, in which a line says how the command ended.
    fn run(name: &str, command: &str) -> Result<Terminal> {
        let terminal = Terminal {
            tmux: find_tool("tmux")?,
            socket: format!("raddle-{}-{name}", std::process::id()),
        };
        let line = format!("{command}; echo status=$?; exec sleep 1000");
        let size = ["-x", "80", "-y", "24"];
        let begin = ["-f", "/dev/null", "new-session", "-d"];
        terminal.tmux(&[&begin[..], &size, &[&line]].concat())?;
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.tmux);
        command.args(["-L", &self.socket]).args(arguments);
        let output = command
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the process that the shell runs.
    fn child(&self) -> Result<Pid> {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"])?;
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        let child = children.split_whitespace().next().context("a child")?;
        Pid::from_raw(child.parse()?).context("a process")
    }

    fn press(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&[&["send-keys"], keys].concat()).map(drop)
    }

    fn text(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as wanted, and returns it.
    fn wait(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> Result<String> {
        let begun = Instant::now();
        loop {
            let text = self.text()?;
            if is_wanted(&text) {
                return Ok(text);
            }
            if begun.elapsed() > PATIENCE {
                bail!("no {what}:\n{text}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for(&self, part: &str) -> Result<String> {
        self.wait(part, |text| text.contains(part))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Calls `test` with `busy.c` with two carriers, and the command that shows it.
fn with_busy(name: &str, arguments: &[&str], test: impl Fn(&Running, &str) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(());
        };
        find_tool("tmux")?;
        let program = Program::build("busy.c")?;
        let [variant] = program.variants.as_slice() else {
            bail!("busy.c is one program");
        };
        let mut line = variant.command.clone();
        line.extend(arguments.iter().map(OsString::from));
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        let raddle = raddle()?;
        let raddle = raddle.to_str().context("a path in UTF-8")?;
        test(
            &running,
            &format!("'{raddle}' top {} -d 0.2", running.pid()),
        )
    });
}

#[test]
fn keys_sort_filter_fold_and_show_a_stack() {
    let name = "top_screen::keys_sort_filter_fold_and_show_a_stack";
    with_busy(name, &["mixed", "6"], |_, command| {
        let terminal = Terminal::run("keys", command)?;
        let text = terminal.wait_for("spin-0")?;
        ensure!(
            text.contains("threads 14:") && text.contains("by cpu"),
            "{text}"
        );
        ensure!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let first = |text: &str| {
            let mut lines = text.lines();
            lines
                .find(|it| it.contains("TID  CPU%"))
                .context("titles")?;
            Ok::<_, anyhow::Error>(lines.next().unwrap_or_default().to_owned())
        };
        terminal.wait("the spinning thread first", |text| {
            first(text).is_ok_and(|line| line.contains("spin-0"))
        })?;
        terminal.press(&["w"])?;
        let text = terminal.wait_for("by wait")?;
        ensure!(!first(&text)?.contains("spin-0"), "{text}");
        terminal.press(&["n"])?;
        terminal.wait_for("rest-*")?;
        terminal.press(&["N", "Down", "Enter"])?;
        terminal.wait("threads below their name", |it| {
            it.contains("rest-*") && it.contains("rest-5")
        })?;
        terminal.press(&["n", "/"])?;
        terminal.wait_for("names with:")?;
        terminal.press(&["-l", "rest-3"])?;
        terminal.press(&["Enter"])?;
        terminal.wait("one thread", |it| {
            it.contains("rest-3") && !it.contains("rest-4")
        })?;
        terminal.press(&["Enter"])?;
        let text = terminal.wait_for("pthread_cond_wait")?;
        ensure!(
            text.contains("\"rest-3\" waiting for") && text.contains("  busy.c:"),
            "{text}"
        );
        terminal.press(&["Escape"])?;
        terminal.wait_for("TID  CPU%")?;
        terminal.press(&["2"])?;
        terminal.wait_for("engine 0: policy fifo, 2 carriers wanted")?;
        terminal.press(&["3"])?;
        terminal.wait_for("from runnable to running")?;
        terminal.press(&["4"])?;
        terminal.wait_for("nothing is wrong")?;
        terminal.press(&["h"])?;
        terminal.wait_for("the stack of the selected thread")?;
        terminal.press(&["q"])?;
        terminal.wait_for("status=0").map(drop)
    });
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    let name = "top_screen::a_terminal_of_any_size_is_drawn_on";
    with_busy(name, &["mixed", "30"], |_, command| {
        let terminal = Terminal::run("sizes", command)?;
        terminal.wait_for("spin-0")?;
        for (width, height) in [
            ("20", "5"),
            ("3", "2"),
            ("1", "1"),
            ("200", "60"),
            ("80", "24"),
        ] {
            terminal.tmux(&["resize-window", "-x", width, "-y", height])?;
            for keys in [
                ["End", "Home"],
                ["n", "n"],
                ["2", "3"],
                ["4", "h"],
                ["1", "PageDown"],
            ] {
                terminal.press(&keys)?;
            }
            thread::sleep(Duration::from_millis(300));
        }
        terminal.press(&["Home"])?;
        terminal.wait("all lines", |it| {
            it.contains("spin-0") && it.contains("q quit")
        })?;
        terminal.press(&["C-c"])?;
        terminal.wait_for("status=0").map(drop)
    });
}

#[test]
fn a_process_that_stops_and_one_that_ends_are_told() {
    let name = "top_screen::a_process_that_stops_and_one_that_ends_are_told";
    with_busy(name, &["mixed"], |running, command| {
        let terminal = Terminal::run("ends", command)?;
        terminal.wait_for("spin-0")?;
        running.signal(Signal::STOP)?;
        terminal.wait_for("the process is stopped")?;
        running.signal(Signal::CONT)?;
        terminal.wait("a process that runs", |it| {
            !it.contains("the process is stopped")
        })?;
        running.signal(Signal::KILL)?;
        let text = terminal.wait_for("the process has ended")?;
        ensure!(text.contains("spin-0"), "the last state stays:\n{text}");
        terminal.press(&["w"])?;
        terminal.wait_for("by wait")?;
        terminal.press(&["Enter"])?;
        terminal.wait_for("there is no process")?;
        terminal.press(&["q"])?;
        terminal.wait_for("status=0").map(drop)
    });
}

#[test]
fn a_process_that_executes_another_program_is_followed() {
    let name = "top_screen::a_process_that_executes_another_program_is_followed";
    with_busy(name, &["again", "3"], |running, command| {
        let terminal = Terminal::run("again", command)?;
        terminal.wait_for("tick-0")?;
        running.signal(Signal::USR1)?;
        let text = terminal.wait("another program", |it| it.contains("rest-2"))?;
        ensure!(!text.contains("tick-0"), "{text}");
        terminal.press(&["q"])?;
        terminal.wait_for("status=0").map(drop)
    });
}

#[test]
fn a_terminal_is_as_it_was_after_each_end() {
    let name = "top_screen::a_terminal_is_as_it_was_after_each_end";
    with_busy(name, &["held", "5"], |_, command| {
        let terminal = Terminal::run("colours", &format!("NO_COLOR=1 {command}"))?;
        terminal.wait_for("! 5 threads wait for mutex")?;
        let escapes = terminal.tmux(&["capture-pane", "-p", "-e"])?;
        ensure!(!escapes.contains("\x1b[33m"), "{escapes:?}");
        let child = terminal.child()?;
        rustix::process::kill_process(child, Signal::TERM)?;
        let text = terminal.wait_for("status=0")?;
        ensure!(
            !text.contains("threads wait for"),
            "the screen is given back:\n{text}"
        );
        let dumb = Terminal::run("dumb", &format!("TERM=dumb {command}"))?;
        dumb.wait_for("--batch")?;
        dumb.wait_for("status=2")?;
        // Without its terminal it ends, though SIGHUP is ignored.
        let gone = Terminal::run("gone", &format!("trap '' HUP; {command}; exit"))?;
        gone.wait_for("! 5 threads wait for mutex")?;
        let child = gone.child()?;
        drop(gone);
        let begun = Instant::now();
        while rustix::process::test_kill_process(child).is_ok() {
            ensure!(
                begun.elapsed() < PATIENCE,
                "it goes on without its terminal"
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
}
