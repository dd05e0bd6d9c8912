//! What is on the screen.

use raddle_inspect::{Histogram, upper_ns};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::keys::HELP;
use super::{Item, Page, Screen};
use crate::top::look::{Frame, Row};
use crate::top::select::{Group, Prefix, groups, plain, sorted};
use crate::top::source::Condition;
use crate::top::text::{
    CARRIER_COLUMNS, GROUPS, THREADS, carrier, group, head, line, short, thread, titles,
};

/// Lines for lints above the page.
const LINT_LINES: usize = 4;
/// The most threads below the name of an open group.
const MEMBERS_MAX: usize = 1000;

/// A line of a page, and how it looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Plain,
    Title,
    Warning,
}

impl Screen {
    pub(super) fn draw(&mut self, canvas: &mut ratatui::Frame<'_>) {
        let area = canvas.area();
        let width = usize::from(area.width);
        let mut above = self.above(width);
        above.truncate(usize::from(area.height).saturating_sub(2));
        let heights = [
            Constraint::Length(above.len() as u16),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, body, foot] = Layout::vertical(heights).areas(area);
        let lines = above.into_iter();
        let lines: Vec<_> = lines.map(|(text, look)| self.styled(text, look)).collect();
        canvas.render_widget(Paragraph::new(lines), head);
        self.draw_page(canvas, body);
        let foot_line = Line::styled(self.foot(), Style::new().add_modifier(Modifier::REVERSED));
        canvas.render_widget(Paragraph::new(foot_line), foot);
    }

    fn styled(&self, text: String, look: Look) -> Line<'static> {
        let style = match look {
            Look::Plain => Style::new(),
            Look::Title => Style::new().add_modifier(Modifier::BOLD),
            Look::Warning if self.has_colour => Style::new().fg(Color::Yellow),
            Look::Warning => Style::new().add_modifier(Modifier::BOLD),
        };
        Line::styled(text, style)
    }

    /// The lines about the whole process, and the first lints.
    fn above(&self, width: usize) -> Vec<(String, Look)> {
        let Some(frame) = &self.frame else {
            let pid = self.source.pid;
            return vec![(format!("process {pid}: no look yet"), Look::Title)];
        };
        let mut lines: Vec<(String, Look)> = head(&self.source, frame)
            .into_iter()
            .map(|text| (text, Look::Plain))
            .collect();
        if let Some((_, look)) = lines.first_mut() {
            *look = Look::Title;
        }
        let note = match self.condition {
            Condition::Ended => Some("the process has ended: this is its last state; q quits"),
            Condition::Executed => {
                Some("the process has executed another program: this is its state before")
            }
            Condition::Stopped => Some("the process is stopped, by a signal or a debugger"),
            Condition::Runs if self.is_paused => Some("paused: space goes on"),
            Condition::Runs => None,
        };
        lines.extend(note.map(|note| (note.to_owned(), Look::Warning)));
        if self.page != Page::Lints && !self.lints.is_empty() {
            let mut texts: Vec<String> = Vec::new();
            for lint in &self.lints {
                texts.extend(wrapped(&format!("! {}: {}", lint.text, lint.cure), width));
            }
            if texts.len() > LINT_LINES {
                texts.truncate(LINT_LINES - 1);
                texts.push(format!("! {} in all: 4 shows them", self.lints.len()));
            }
            lines.extend(texts.into_iter().map(|text| (text, Look::Warning)));
        }
        lines.push((String::new(), Look::Plain));
        lines
    }

    fn foot(&self) -> String {
        if let Some(typed) = &self.typed {
            return format!("names with: {typed}_   Enter keeps, Esc leaves");
        }
        let filter = &self.shown.filter;
        let mut text = format!("every {:.1}s", self.interval.as_secs_f64());
        for name in &filter.names {
            text += &format!("  {name}");
        }
        for state in &filter.states {
            text += &format!("  {}", state.word());
        }
        let sort = format!("{:?}", self.shown.sort).to_lowercase();
        text += &format!("  by {sort}");
        text + "  q quit  h help  Enter stack  / filter  n names  Tab pages"
    }

    fn draw_page(&mut self, canvas: &mut ratatui::Frame<'_>, area: Rect) {
        let width = usize::from(area.width);
        match self.page {
            Page::Threads => self.draw_threads(canvas, area),
            page => {
                let lines = match page {
                    Page::Carriers => self.carriers(),
                    Page::Delays => self.delays(width),
                    Page::Lints => self.all_lints(width),
                    Page::Stack => self.stack_lines(width),
                    _ => HELP
                        .iter()
                        .map(|it| ((*it).to_owned(), Look::Plain))
                        .collect(),
                };
                self.draw_lines(canvas, area, lines);
            }
        }
    }

    /// Draws lines without a selection: these are moved as a whole.
    fn draw_lines(
        &mut self,
        canvas: &mut ratatui::Frame<'_>,
        area: Rect,
        lines: Vec<(String, Look)>,
    ) {
        self.height = usize::from(area.height);
        self.rows = lines.len().saturating_sub(self.height) + 1;
        self.selected = self.selected.min(self.rows - 1);
        let lines = lines.into_iter().skip(self.selected).take(self.height);
        let lines: Vec<_> = lines.map(|(text, look)| self.styled(text, look)).collect();
        canvas.render_widget(Paragraph::new(lines), area);
    }

    fn draw_threads(&mut self, canvas: &mut ratatui::Frame<'_>, area: Rect) {
        let Some(frame) = &self.frame else {
            return;
        };
        self.height = usize::from(area.height).saturating_sub(1);
        let columns = if self.shown.by_name {
            &GROUPS[..]
        } else {
            &THREADS[..]
        };
        let mut lines = vec![self.styled(titles(columns), Look::Title)];
        let (items, rows) = if self.shown.by_name {
            self.items_by_name(frame)
        } else {
            let most = self.selected.saturating_add(self.height).saturating_add(1);
            let (picked, all) = sorted(frame, &self.shown.filter, self.shown.sort, most);
            (picked.into_iter().map(Item::Thread).collect(), all)
        };
        // The list may be shorter than it was.
        let selected = self.selected.min(rows.saturating_sub(1));
        let mut top = self.top.min(selected);
        if selected >= top + self.height {
            top = selected + 1 - self.height.min(selected + 1);
        }
        let items: Vec<Item> = items.into_iter().skip(top).take(self.height).collect();
        let all_groups = if self.shown.by_name {
            groups(frame, &self.shown.filter, self.shown.sort)
        } else {
            Vec::new()
        };
        for (number, item) in items.iter().enumerate() {
            let text = self.item(frame, &all_groups, item);
            let style = if top + number == selected {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new()
            };
            lines.push(Line::styled(text, style));
        }
        (self.items, self.rows, self.selected, self.top) = (items, rows, selected, top);
        canvas.render_widget(Paragraph::new(lines), area);
    }

    /// Returns the rows of groups, with the threads of those that are open, and how many these are.
    fn items_by_name(&self, frame: &Frame) -> (Vec<Item>, usize) {
        let filter = &self.shown.filter;
        let groups = groups(frame, filter, self.shown.sort);
        let mut items = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            items.push(Item::Group(at));
            if !self.open_groups.contains(&group.name) {
                continue;
            }
            let (all, _) = sorted(frame, filter, self.shown.sort, usize::MAX);
            let row = |at: &u32| &frame.rows[*at as usize];
            let is_its = |at: &u32| is_of(row(at), group);
            items.extend(
                all.into_iter()
                    .filter(is_its)
                    .take(MEMBERS_MAX)
                    .map(Item::Thread),
            );
        }
        let rows = items.len();
        (items, rows)
    }

    fn item(&self, frame: &Frame, groups: &[Group], item: &Item) -> String {
        match item {
            Item::Thread(at) => {
                let cells = thread(frame, &frame.rows[*at as usize]);
                line(&THREADS, cells.iter().map(String::as_str))
            }
            Item::Group(at) => match groups.get(*at) {
                Some(found) => {
                    let cells = group(frame, found);
                    line(&GROUPS, cells.iter().map(String::as_str))
                }
                None => String::new(),
            },
        }
    }

    fn carriers(&self) -> Vec<(String, Look)> {
        let Some(frame) = &self.frame else {
            return Vec::new();
        };
        let mut lines = vec![(titles(&CARRIER_COLUMNS), Look::Title)];
        for row in &frame.carriers {
            let cells = carrier(frame, row);
            let text = line(&CARRIER_COLUMNS, cells.iter().map(String::as_str));
            lines.push((text, Look::Plain));
        }
        lines.push((String::new(), Look::Plain));
        for engine in &frame.engines {
            let quota = match engine.quota {
                0 => String::new(),
                percent => format!(", quota {percent}% of a CPU"),
            };
            let text = format!(
                "engine {}: policy {}, {} carriers wanted, {} extra{quota}; threads for any \
                 carrier {}, ahead of their share {}",
                engine.number,
                engine.policy.word(),
                engine.wanted,
                engine.extra,
                engine.queue_len,
                engine.ahead_len
            );
            lines.push((text, Look::Plain));
        }
        let text = format!(
            "carriers replaced because they waited in the kernel: {}, {:.1} a second",
            frame.blocked_ever,
            frame.per_second(frame.blocked)
        );
        lines.push((text, Look::Plain));
        lines
    }

    fn delays(&self, width: usize) -> Vec<(String, Look)> {
        let kinds = [
            ("from runnable to running", &self.delays),
            ("from a wake-up to running, a sample", &self.wake_ups),
        ];
        let mut lines = Vec::new();
        for (title, histogram) in kinds {
            let text = format!("{title}: {} since this began", histogram.total());
            lines.push((text, Look::Title));
            let bars = bars(histogram, width);
            lines.extend(bars.into_iter().map(|text| (text, Look::Plain)));
            lines.push((String::new(), Look::Plain));
        }
        lines
    }

    fn all_lints(&self, width: usize) -> Vec<(String, Look)> {
        let mut lines = Vec::new();
        for lint in &self.lints {
            let now_ns = self.frame.as_ref().map_or(0, |frame| frame.now_ns);
            let for_ns = now_ns.saturating_sub(lint.since_ns);
            lines.push((
                format!("{}, for {}", lint.kind.word(), short(for_ns)),
                Look::Title,
            ));
            for text in [&lint.text, &lint.cure] {
                lines.extend(wrapped(text, width).into_iter().map(|it| (it, Look::Plain)));
            }
            lines.push((String::new(), Look::Plain));
        }
        if lines.is_empty() {
            lines.push((
                "nothing is wrong for longer than a moment".into(),
                Look::Plain,
            ));
        }
        lines
    }

    fn stack_lines(&self, width: usize) -> Vec<(String, Look)> {
        let Some(stack) = &self.stack else {
            return Vec::new();
        };
        let mut lines = vec![(stack.title.clone(), Look::Title)];
        for text in &stack.lines {
            let parts = wrapped(&plain(text.as_bytes()), width);
            lines.extend(parts.into_iter().map(|part| (part, Look::Plain)));
        }
        lines
    }
}

fn is_of(row: &Row, group: &Group) -> bool {
    Prefix::of(row.record.name_bytes()).text() == group.name
}

/// Returns a bar for each power of two that has durations.
fn bars(histogram: &Histogram, width: usize) -> Vec<String> {
    /// Buckets of a histogram for each doubling.
    const QUARTERS: usize = 4;
    let parts: Vec<u64> = histogram
        .counts
        .chunks(QUARTERS)
        .map(|it| it.iter().sum())
        .collect();
    let most = parts.iter().copied().max().unwrap_or(0).max(1);
    let room = width.saturating_sub(26).max(1) as u64;
    let bar = |(number, &count): (usize, &u64)| {
        let upper = short(upper_ns(number * QUARTERS + QUARTERS - 1).saturating_add(1));
        let long = (u128::from(count) * u128::from(room)).div_ceil(u128::from(most)) as usize;
        (count != 0).then(|| format!("  below {upper:>6} {count:>9} {}", "#".repeat(long)))
    };
    parts.iter().enumerate().filter_map(bar).collect()
}

/// Breaks a text between words, and long words anywhere.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let indent = text.len() - text.trim_start().len();
    let mut lines = Vec::new();
    let mut now = " ".repeat(indent.min(width / 2));
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let long = now.chars().count() + word.chars().count() + usize::from(!is_empty);
        if !is_empty && long > width {
            lines.push(std::mem::replace(&mut now, "  ".into()));
            is_empty = true;
        }
        if !is_empty {
            now.push(' ');
        }
        for letter in word.chars() {
            if now.chars().count() == width {
                lines.push(std::mem::take(&mut now));
            }
            now.push(letter);
        }
        is_empty = false;
    }
    lines.push(now);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrapped("  one  two", 20), ["  one  two"]);
        assert_eq!(wrapped("", 20), [""]);
        let long = wrapped(&"x".repeat(20), 8);
        assert!(long.iter().all(|it| it.len() <= 8) && long.concat().len() == 20);
        assert!(
            wrapped(&"a b ".repeat(100), 0)
                .iter()
                .all(|it| it.len() <= 8)
        );
    }

    #[test]
    fn bars_are_as_long_as_their_counts() {
        let mut histogram = Histogram::EMPTY;
        assert!(bars(&histogram, 80).is_empty());
        histogram.counts[raddle_inspect::bucket_of(1000)] = 10;
        histogram.counts[raddle_inspect::bucket_of(1 << 20)] = u64::MAX / 4;
        let bars = bars(&histogram, 46);
        assert_eq!(bars.len(), 2);
        assert!(bars[0].ends_with(" 10 #") && bars[1].ends_with(&"#".repeat(20)));
    }
}
