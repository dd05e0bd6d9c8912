//! The screen: frames again and again, and keys.
//!
//! The loop waits for a key or for the time of the next look, whichever comes first. What may take
//! longer has a thread of its own: requests to the process (`source`), and names of a stack.
//!
//! Each look ends a frame. When the process ends, the last frame stays until the user quits; when
//! it executes another program, that one is looked for once a second.

mod draw;
mod keys;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::Histogram;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Shown;
use super::lints::{Lint, Watch};
use super::look::{Frame, Looker};
use super::source::{Condition, Source};
use crate::cli::TopArguments;
use crate::dump::one::stack_of;
use crate::failure::Failure;
use keys::Wish;

/// How long a key is waited for at most: signals are looked at as often.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the first frame is at most.
const FIRST: Duration = Duration::from_millis(300);
/// How often another program is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// Intervals that keys choose.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
/// Bytes of the stack on which a thread's stack is read.
const STACK_BYTES: usize = 8 << 20;

/// What fills the screen below the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Threads,
    Carriers,
    Delays,
    Lints,
    Stack,
    Help,
}

/// A thread's stack, once it is read.
struct StackView {
    title: String,
    tid: u32,
    lines: Vec<String>,
    coming: Option<Receiver<Vec<String>>>,
}

/// A row of the table of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// The position in the frame.
    Thread(u32),
    /// The position among the groups.
    Group(usize),
}

struct Screen {
    source: Source,
    looker: Looker,
    watch: Watch,
    frame: Option<Frame>,
    lints: Vec<Lint>,
    /// Of the process, which may be gone.
    condition: Condition,
    /// All delays and wake-ups since the command began.
    delays: Histogram,
    wake_ups: Histogram,
    shown: Shown,
    interval: Duration,
    has_colour: bool,
    is_paused: bool,
    page: Page,
    /// The first line, and the selected one, of the page.
    top: usize,
    selected: usize,
    /// Names of the groups that show their threads.
    open_groups: Vec<String>,
    /// The filter that is being typed.
    typed: Option<String>,
    /// The rows that are drawn, the selected one among them.
    items: Vec<Item>,
    /// How many rows there are.
    rows: usize,
    /// How many rows of the page have room.
    height: usize,
    stack: Option<StackView>,
}

pub(super) fn run(arguments: &TopArguments, shown: Shown) -> Result<ExitCode> {
    let source = Source::open(arguments.pid)?;
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    let mut screen = Screen {
        source,
        looker: Looker::default(),
        watch: Watch::default(),
        frame: None,
        lints: Vec::new(),
        condition: Condition::Runs,
        delays: Histogram::EMPTY,
        wake_ups: Histogram::EMPTY,
        shown,
        interval: Duration::from_secs_f64(arguments.interval),
        has_colour: !is_plain,
        is_paused: false,
        page: Page::Threads,
        top: 0,
        selected: 0,
        open_groups: Vec::new(),
        typed: None,
        items: Vec::new(),
        rows: 0,
        height: 0,
        stack: None,
    };
    let ends = Arc::new(AtomicBool::new(false));
    // SIGHUP ends the command at once: there is no terminal to be given back.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    let mut terminal = ratatui::try_init().map_err(|error| no_screen(arguments.pid, &error))?;
    let done = screen.go_on(&mut terminal, &ends);
    ratatui::restore();
    match done {
        // A terminal that is gone is no fault of the command.
        Err(error) if !ends.load(Ordering::Relaxed) => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn no_screen(pid: u32, error: &io::Error) -> Failure {
    Failure::input(
        format!("this terminal can't be used ({error})"),
        format!("give --batch or --once: raddle top {pid} --batch"),
    )
}

impl Screen {
    fn go_on(&mut self, terminal: &mut DefaultTerminal, ends: &AtomicBool) -> Result<()> {
        let mut due = Instant::now();
        let (mut is_changed, mut is_first) = (true, true);
        while !ends.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= due {
                is_changed |= self.look();
                let pause = if is_first {
                    self.interval.min(FIRST)
                } else if self.condition.is_there() {
                    self.interval
                } else {
                    RETRY
                };
                is_first = false;
                due = (due + pause).max(Instant::now());
            }
            is_changed |= self.take_stack();
            if is_changed {
                terminal.draw(|frame| self.draw(frame))?;
                is_changed = false;
            }
            let wait = due.saturating_duration_since(Instant::now()).min(PATIENCE);
            if !is_there(wait) {
                return Ok(());
            }
            while event::poll(Duration::ZERO)? {
                is_changed = true;
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match self.press(key) {
                        Wish::Nothing => {}
                        Wish::Look => due = due.min(Instant::now() + self.interval),
                        Wish::Suspend => suspend(terminal)?,
                        Wish::Quit => return Ok(()),
                    },
                    _ => {} // a new size, for instance
                }
            }
        }
        Ok(())
    }

    /// Returns true if the screen changes.
    fn look(&mut self) -> bool {
        if self.condition == Condition::Executed {
            return self.look_for_another();
        }
        if self.is_paused || self.condition == Condition::Ended {
            return false;
        }
        match self.looker.look(&mut self.source, true) {
            Ok(frame) => {
                self.lints = self.watch.look(&self.source, &frame);
                self.condition = frame.condition;
                add(&mut self.delays, &frame.delays);
                add(&mut self.wake_ups, &frame.wake_ups);
                if let Some(before) = self.frame.replace(frame) {
                    self.looker.recycle(before);
                }
            }
            Err(gone) => {
                self.condition = gone;
                if let Some(frame) = &mut self.frame {
                    frame.condition = gone;
                }
            }
        }
        true
    }

    /// The process has executed another program: looks at that, once it has threads.
    fn look_for_another(&mut self) -> bool {
        let Ok(source) = Source::open(self.source.pid) else {
            let is_there = std::fs::exists(format!("/proc/{}", self.source.pid));
            if !is_there.unwrap_or(true) {
                self.condition = Condition::Ended;
            }
            return true;
        };
        self.source = source;
        (self.looker, self.watch) = (Looker::default(), Watch::default());
        self.condition = Condition::Runs;
        self.stack = None;
        self.look()
    }

    /// Begins to read a thread's stack.
    fn read_stack(&mut self, tid: u32, title: String) {
        let (sender, coming) = channel();
        let pid = self.source.pid;
        let reads = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let lines = stack_of(pid, tid).unwrap_or_else(|error| vec![error.to_string()]);
                let _ = sender.send(lines);
            });
        self.stack = Some(StackView {
            title,
            tid,
            lines: vec!["the stack is being read".into()],
            coming: reads.is_ok().then_some(coming),
        });
        self.open(Page::Stack);
    }

    /// Returns true if a stack has come.
    fn take_stack(&mut self) -> bool {
        let Some(stack) = &mut self.stack else {
            return false;
        };
        match stack.coming.as_ref().map(Receiver::try_recv) {
            Some(Ok(lines)) => (stack.lines, stack.coming) = (lines, None),
            Some(Err(TryRecvError::Disconnected)) => {
                (stack.lines, stack.coming) = (vec!["the stack can't be read".into()], None);
            }
            _ => return false,
        }
        true
    }

    fn open(&mut self, page: Page) {
        self.page = page;
        (self.top, self.selected) = (0, 0);
    }
}

/// Waits for input. Returns false if the terminal is gone: crossterm would read its end for ever.
fn is_there(wait: Duration) -> bool {
    let input = io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let wait = Timespec::try_from(wait).ok();
    // A signal ends the wait, too.
    let _ = poll(&mut polled, wait.as_ref());
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    !polled[0].revents().intersects(gone)
}

fn add(sum: &mut Histogram, more: &Histogram) {
    for (sum, count) in sum.counts.iter_mut().zip(more.counts) {
        *sum = sum.saturating_add(count);
    }
}

/// Stops this command, as ctrl-Z does, and goes on when it is continued.
fn suspend(terminal: &mut DefaultTerminal) -> Result<()> {
    ratatui::restore();
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP)?;
    *terminal = ratatui::try_init()?;
    terminal.clear()?;
    Ok(())
}
