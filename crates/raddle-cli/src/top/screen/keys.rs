//! Keys, and what they do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use raddle_inspect::ThreadState;

use super::{INTERVALS, Item, Page, Screen};
use crate::cli::SortKey;
use crate::top::select::{Group, groups, plain};
use crate::top::text::short;

/// The most characters of a filter.
const FILTER_MAX: usize = 64;

/// Keys that are not in the last line.
pub(super) const HELP: [&str; 21] = [
    "up, down, j, k, page up, page down, home, end   move",
    "Enter       the stack of the selected thread; of a name its threads",
    "r           reads the stack again",
    "Esc         back; ends a filter",
    "1 2 3 4     threads, carriers, delays, lints; Tab goes on to the next",
    "",
    "c w d       sorts by CPU time, by wait, by delay: runnable without a turn",
    "e t p       by wake-ups, by turns, by preemptions",
    "N I         by name, by id",
    "n           one row for names that differ in digits only, and back",
    "/           filters by name, with * and ?; Enter keeps the filter",
    "s           filters by state: running, runnable, waiting, all",
    "",
    "space       pause, and on",
    "+ -         a longer or shorter interval",
    "ctrl-Z      suspends; q, ctrl-C end",
    "",
    "CPU% is of one CPU. WAKES are ends of waits, TURNS what carriers gave.",
    "SINCE: for how long the thread has been in its state.",
    "NO CPU: for how long carriers wanted a CPU and had none.",
    "A line with ! says what is wrong, and the cure.",
];

/// What the loop has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// The interval has changed.
    Look,
    Suspend,
    Quit,
}

impl Screen {
    pub(super) fn press(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wish::Quit,
                KeyCode::Char('z') => Wish::Suspend,
                _ => Wish::Nothing,
            };
        }
        if self.typed.is_some() {
            self.type_filter(key.code);
            return Wish::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Char('+') => return self.change_interval(2.0),
            KeyCode::Char('-') => return self.change_interval(0.5),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('h' | '?') => self.open(Page::Help),
            KeyCode::Char('1') => self.open(Page::Threads),
            KeyCode::Char('2') => self.open(Page::Carriers),
            KeyCode::Char('3') => self.open(Page::Delays),
            KeyCode::Char('4') => self.open(Page::Lints),
            KeyCode::Tab => self.open(match self.page {
                Page::Threads => Page::Carriers,
                Page::Carriers => Page::Delays,
                Page::Delays => Page::Lints,
                _ => Page::Threads,
            }),
            KeyCode::Esc => self.go_back(),
            KeyCode::Enter => self.enter(),
            KeyCode::Char(letter) => self.press_letter(letter),
            code => self.go(code),
        }
        Wish::Nothing
    }

    fn press_letter(&mut self, letter: char) {
        match letter {
            'j' => self.go(KeyCode::Down),
            'k' => self.go(KeyCode::Up),
            'c' => self.sort(SortKey::Cpu),
            'w' => self.sort(SortKey::Wait),
            'd' => self.sort(SortKey::Delay),
            'e' => self.sort(SortKey::Wakes),
            't' => self.sort(SortKey::Turns),
            'p' => self.sort(SortKey::Preempts),
            'N' => self.sort(SortKey::Name),
            'I' => self.sort(SortKey::Tid),
            'n' => {
                self.shown.by_name = !self.shown.by_name;
                self.open(Page::Threads);
            }
            's' => self.next_state(),
            '/' => {
                self.open(Page::Threads);
                let names = &self.shown.filter.names;
                self.typed = Some(names.first().cloned().unwrap_or_default());
            }
            'r' if self.page == Page::Stack => {
                if let Some(stack) = self.stack.take() {
                    self.read_stack(stack.tid, stack.title);
                }
            }
            _ => {}
        }
    }

    fn sort(&mut self, key: SortKey) {
        self.shown.sort = key;
        self.open(Page::Threads);
    }

    fn next_state(&mut self) {
        let states = &mut self.shown.filter.states;
        *states = match states.first() {
            None => vec![ThreadState::RUNNING],
            Some(&ThreadState::RUNNING) => vec![ThreadState::RUNNABLE],
            Some(&ThreadState::RUNNABLE) => vec![ThreadState::WAITING],
            _ => Vec::new(),
        };
        self.open(Page::Threads);
    }

    /// A filter without stars and question marks picks names that contain it.
    fn type_filter(&mut self, code: KeyCode) {
        let Some(typed) = &mut self.typed else {
            return;
        };
        match code {
            KeyCode::Char(letter) if typed.len() < FILTER_MAX => typed.push(letter),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Enter => {
                let has_signs = typed.contains(['*', '?']);
                self.shown.filter.names = match typed.as_str() {
                    "" => Vec::new(),
                    glob if has_signs => vec![glob.to_owned()],
                    part => vec![format!("*{part}*")],
                };
                self.typed = None;
                (self.top, self.selected) = (0, 0);
            }
            KeyCode::Esc => self.typed = None,
            _ => {}
        }
    }

    fn change_interval(&mut self, factor: f64) -> Wish {
        let [least, most] = INTERVALS;
        let wanted = self.interval.mul_f64(factor);
        self.interval = wanted.clamp(least.min(self.interval), most.max(self.interval));
        Wish::Look
    }

    fn go_back(&mut self) {
        let filter = &mut self.shown.filter;
        if self.page != Page::Threads {
            self.open(Page::Threads);
        } else if !filter.names.is_empty() || !filter.states.is_empty() {
            filter.names.clear();
            filter.states.clear();
        } else {
            self.open_groups.clear();
        }
    }

    /// Moves the selection, or the text of a page without one.
    fn go(&mut self, code: KeyCode) {
        let page = self.height.max(1);
        let at = match code {
            KeyCode::Up => self.selected.saturating_sub(1),
            KeyCode::Down => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(page),
            KeyCode::PageDown => self.selected + page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return,
        };
        self.selected = at.min(self.rows.saturating_sub(1));
    }

    fn enter(&mut self) {
        if self.page != Page::Threads {
            return;
        }
        let Some(frame) = &self.frame else {
            return;
        };
        match self.items.get(self.selected.saturating_sub(self.top)) {
            Some(&Item::Thread(at)) => {
                let Some(row) = frame.rows.get(at as usize) else {
                    return;
                };
                let record = &row.record;
                let since = match row.since_ns() {
                    0 => String::new(),
                    since_ns => format!(" for {}", short(frame.now_ns.saturating_sub(since_ns))),
                };
                let name = plain(record.name_bytes());
                let title = format!("#{} \"{name}\" {}{since}", record.tid, record.state.word());
                self.read_stack(record.tid, title);
            }
            Some(&Item::Group(at)) => {
                let groups = groups(frame, &self.shown.filter, self.shown.sort);
                if let Some(Group { name, .. }) = groups.into_iter().nth(at) {
                    match self.open_groups.iter().position(|it| *it == name) {
                        Some(at) => drop(self.open_groups.remove(at)),
                        None => self.open_groups.push(name),
                    }
                }
            }
            None => {}
        }
    }
}
