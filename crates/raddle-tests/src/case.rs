//! A case: one behaviour of one program, run in every mode and compared.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::child::{Outcome, Running, status_number};
use crate::known::{Known, judge};
use crate::limit::Limit;
use crate::mode::{Mode, builds_only, modes, raddle};
use crate::program::{Program, Variant, folder, shared_object};
use crate::tools::{or_skip, say};

/// How long a case may take: `RADDLE_TEST_TIMEOUT_S`, or a minute.
fn timeout() -> Duration {
    let wanted = env::var("RADDLE_TEST_TIMEOUT_S").ok();
    let seconds = wanted.map_or(60, |text| text.parse().expect("a timeout in whole seconds"));
    Duration::from_secs(seconds)
}

pub struct Case {
    /// The test's name, as the known failures know it.
    test: String,
    source: String,
    arguments: Vec<String>,
    input: Option<Vec<u8>>,
    /// A shared object that the program gets as its last argument.
    library: Option<String>,
    status: i32,
    timeout: Duration,
    /// The last line that the program prints when all is well.
    last_line: Option<String>,
}

impl Case {
    /// The case `name` of `programs/SOURCE`, tested by `MODULE::NAME`.
    pub fn new(module: &str, source: &str, name: &str) -> Case {
        Case {
            test: format!("{module}::{name}"),
            source: source.to_owned(),
            arguments: vec![name.to_owned()],
            input: None,
            library: None,
            status: 0,
            timeout: timeout(),
            last_line: Some(format!("ok {name}")),
        }
    }

    /// Names another test as the one that the known failures know.
    pub fn tested_by(mut self, test: &str) -> Case {
        self.test = test.to_owned();
        self
    }

    pub fn exits_with(mut self, status: i32) -> Case {
        self.status = status;
        self
    }

    /// Adds an argument after the case's name.
    pub fn argument(mut self, argument: &str) -> Case {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Gives the program a pipe with this text as its standard input.
    pub fn input(mut self, input: &str) -> Case {
        self.input = Some(input.as_bytes().to_owned());
        self
    }

    /// Compiles `programs/SOURCE` as a shared object and passes its path.
    pub fn library(mut self, source: &str) -> Case {
        self.library = Some(source.to_owned());
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Case {
        self.timeout = timeout;
        self
    }

    /// For programs that don't end with `ok CASE`.
    pub fn without_last_line(mut self) -> Case {
        self.last_line = None;
        self
    }

    /// Applies the settings that all cases of a program share.
    pub fn with(self, change: impl FnOnce(Case) -> Case) -> Case {
        change(self)
    }

    /// Runs the case in every mode.
    ///
    /// # Panics
    ///
    /// When it fails natively; when it fails under raddle and is not known to; when it is known
    /// to and passes.
    pub fn check(&self) {
        let built = Program::build(&self.source).and_then(|program| {
            self.library.as_deref().map(shared_object).transpose()?;
            Ok(program)
        });
        let Some(program) = or_skip(&self.test, built) else {
            return;
        };
        if builds_only() {
            return;
        }
        let mut native = Vec::new();
        in_every_mode(&self.test, |mode| {
            for (index, variant) in program.variants.iter().enumerate() {
                let outcome = self
                    .run(mode, variant)
                    .map_err(|error| variant.name(error))?;
                if mode == Mode::Native {
                    self.check_native(&outcome)
                        .with_context(|| describe(&outcome))?;
                    native.push(outcome);
                } else {
                    compare(&native[index], &outcome).map_err(|error| variant.name(error))?;
                }
            }
            Ok(())
        });
    }

    fn check_native(&self, outcome: &Outcome) -> Result<()> {
        let status = status_number(outcome.status);
        ensure!(
            status == self.status,
            "exit status {status}, not {}",
            self.status
        );
        if let Some(expected) = &self.last_line {
            let last = outcome.stdout.lines().last().unwrap_or_default();
            ensure!(last == expected, "the last line is not `{expected}`");
        }
        Ok(())
    }

    fn run(&self, mode: Mode, variant: &Variant) -> Result<Outcome> {
        let mut line = variant.command.clone();
        line.extend(self.arguments.iter().map(OsString::from));
        if let Some(library) = &self.library {
            line.push(shared_object(library)?.into());
        }
        let folder = RunFolder::new(&format!("{}-{mode}", self.test))?;
        let mut command = mode.command(&line)?;
        command.current_dir(&folder.0).env("TMPDIR", &folder.0);
        let running = Running::start(mode, command, self.input.as_deref())?;
        running.wait(self.timeout)
    }
}

/// Runs `body` natively, then under raddle with each number of carriers until it fails.
///
/// # Panics
///
/// When it fails natively; when it fails under raddle and `test` is not known to; when it is
/// known to and passes. A missing tool skips the rest, unless CI skips nothing. What it starts is
/// killed after five minutes.
pub fn in_every_mode(test: &str, mut body: impl FnMut(Mode) -> Result<()>) {
    let mut body = |mode| {
        let _limit = Limit::start(test);
        body(mode)
    };
    let (native, others) = (Mode::Native, &modes()[1..]);
    if or_skip(test, body(native).context("natively")).is_none() || others.is_empty() {
        return;
    }
    if let Err(error) = raddle() {
        panic!("{test}: {error:#}");
    }
    let known = Known::load();
    let mut run = |&mode: &Mode| body(mode).with_context(|| mode.to_string());
    let outcome = others.iter().try_for_each(&mut run);
    let judged = known.and_then(|known| judge(test, known.reason(test), outcome));
    if let Some(Some(line)) = or_skip(test, judged) {
        say(&line);
    }
}

/// Asserts that `program` with `arguments` does the same natively and in every other mode, whatever
/// that is. For programs that don't check themselves.
///
/// # Panics
///
/// When output or status differ, unless `test` is a known failure.
pub fn assert_same(test: &str, source: &str, arguments: &[&str]) {
    let mut case = Case::new("", source, "")
        .tested_by(test)
        .without_last_line();
    case.arguments = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    case.check();
}

/// Asserts that the program's own list of cases is `listed`: none is forgotten.
///
/// # Panics
///
/// When one is missing here or there.
pub fn check_list(source: &str, listed: &[&str]) {
    let Some(program) = or_skip(source, Program::build(source)) else {
        return;
    };
    let list = || -> Result<String> {
        let variant = program
            .variants
            .first()
            .context("a program has a variant")?;
        let mut line = variant.command.clone();
        line.push("--list".into());
        let running = Running::start(Mode::Native, Mode::Native.command(&line)?, None)?;
        Ok(running.wait(timeout())?.stdout)
    };
    let text = or_skip(source, list()).unwrap_or_default();
    let mut theirs: Vec<&str> = text.lines().collect();
    let mut ours = listed.to_owned();
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(
        theirs, ours,
        "{source}: its cases (left) and the tests (right)"
    );
}

/// Fails unless both outcomes are the same.
pub fn compare(native: &Outcome, other: &Outcome) -> Result<()> {
    let (expected, status) = (status_number(native.status), status_number(other.status));
    if expected != status {
        bail!(
            "exit status {status}, natively {expected}\n{}",
            describe(other)
        );
    }
    if native.stdout != other.stdout && other.stdout.lines().count() > SHORT {
        bail!("other output than natively\n{}", differences(native, other));
    }
    if native.stdout != other.stdout {
        bail!(
            "other output than natively\n{}--- natively\n{}",
            describe(other),
            native.stdout
        );
    }
    Ok(())
}

/// Lines of an output that is shown whole.
const SHORT: usize = 100;

/// The first lines that differ, natively and not, of outputs with a line a result.
fn differences(native: &Outcome, other: &Outcome) -> String {
    const MOST: usize = 20;
    let pairs = native.stdout.lines().zip(other.stdout.lines());
    let differing = pairs.filter(|(expected, got)| expected != got);
    let shown = differing.map(|(expected, got)| format!("natively {expected}\nnow      {got}\n"));
    let lines = |outcome: &Outcome| outcome.stdout.lines().count();
    format!(
        "{}--- of {} lines natively and {} now\n--- stderr\n{}",
        shown.take(MOST).collect::<String>(),
        lines(native),
        lines(other),
        other.stderr
    )
}

fn describe(outcome: &Outcome) -> String {
    format!(
        "--- stdout\n{}--- stderr\n{}",
        outcome.stdout, outcome.stderr
    )
}

/// A folder for the files of one run, removed after it.
pub struct RunFolder(PathBuf);

impl RunFolder {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn new(name: &str) -> Result<RunFolder> {
        let path = folder("runs")?.join(name.replace("::", "-"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(RunFolder(path))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
