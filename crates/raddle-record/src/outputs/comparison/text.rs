//! A comparison as text.

use super::{Comparison, FunctionChange, FunctionComparison, Measure, Pair, Side};
use crate::outputs::columns::{Page, Rows, count, time};

/// The lines of each table.
const ROWS: usize = 10;

pub(super) fn text(comparison: &Comparison, width: usize) -> String {
    let mut out = Page::new(width);
    side("before", &comparison.before, &mut out);
    side("after", &comparison.after, &mut out);
    let (unit, explained) = match comparison.measure {
        Measure::NsPerSecond => ("/s", "times are those in a second of the recording"),
        Measure::Billionths => ("", "times are shares: a file does not say how long it took"),
    };
    out.sentence(explained);
    out.gap();
    let show = Show {
        measure: comparison.measure,
        unit,
    };
    let mut rows = Rows::new(&["before", "after", "change", "all threads together"]);
    let mut activities: Vec<_> = comparison.activities.iter().collect();
    activities.sort_by(|a, b| b.1.change().abs().total_cmp(&a.1.change().abs()));
    for (activity, pair) in activities {
        rows.row(vec![
            show.value(pair.before),
            show.value(pair.after),
            show.change(*pair),
            activity.clone(),
        ]);
    }
    rows.write(&mut out);
    for (title, pick, direction) in [
        (
            "on CPU, grew",
            on_cpu as fn(&FunctionComparison) -> &FunctionChange,
            1.0,
        ),
        ("on CPU, shrank", on_cpu, -1.0),
        ("off CPU, grew", off_cpu, 1.0),
        ("off CPU, shrank", off_cpu, -1.0),
    ] {
        table(comparison, &show, title, pick, direction, &mut out);
    }
    out.into_text()
}

fn on_cpu(function: &FunctionComparison) -> &FunctionChange {
    &function.on_cpu
}

fn off_cpu(function: &FunctionComparison) -> &FunctionChange {
    &function.off_cpu
}

fn side(title: &str, side: &Side, out: &mut Page) {
    let lost = match (side.lost_events, side.lost_samples) {
        (0, 0) => String::new(),
        (events, samples) => format!(
            "; lost: {}, {}",
            count(events, "event"),
            count(samples, "sample")
        ),
    };
    let line = format!(
        "{title}: {} for {}, {}{lost}",
        if side.command.is_empty() {
            "recorded"
        } else {
            &side.command
        },
        time(side.duration_ns.into()),
        count(side.threads as u64, "thread"),
    );
    out.line(&line);
    for remark in &side.remarks {
        out.line(&format!("  {remark}"));
    }
}

/// How numbers are shown.
struct Show {
    measure: Measure,
    unit: &'static str,
}

impl Show {
    fn value(&self, value: f64) -> String {
        match self.measure {
            Measure::Billionths => format!("{:.2}%", value / 1e7),
            Measure::NsPerSecond if value < 0.5 => "-".into(),
            Measure::NsPerSecond => format!("{}{}", time(value as u128), self.unit),
        }
    }

    fn change(&self, pair: Pair) -> String {
        let change = pair.change();
        let sign = if change < 0.0 { '-' } else { '+' };
        match self.value(change.abs()) {
            value if value == "-" => value,
            value => format!("{sign}{value}"),
        }
    }
}

/// The functions with the largest change of their own time in one direction.
fn table(
    comparison: &Comparison,
    show: &Show,
    title: &str,
    pick: fn(&FunctionComparison) -> &FunctionChange,
    direction: f64,
    out: &mut Page,
) {
    let change = |function: &FunctionComparison| pick(function).own.change() * direction;
    let functions = comparison.functions.iter();
    let mut sorted: Vec<_> = functions.filter(|it| change(it) >= 0.5).collect();
    sorted.sort_by(|a, b| change(b).total_cmp(&change(a)));
    if sorted.is_empty() {
        return;
    }
    let mut rows = Rows::new(&["self", "before", "after", "share", "total", "function"]);
    for function in sorted.iter().take(ROWS) {
        let times = pick(function);
        rows.row(vec![
            show.change(times.own),
            show.value(times.own.before),
            show.value(times.own.after),
            format!("{:+.1}%", times.self_share.change() * 100.0),
            show.change(times.total),
            function.name.clone(),
        ]);
    }
    let part = if sorted.len() > ROWS {
        format!(" ({ROWS} of {})", sorted.len())
    } else {
        String::new()
    };
    out.gap();
    out.line(&format!("{title}{part}"));
    rows.write(out);
}
