//! Flame graphs of differences, in speedscope's format.
//!
//! | view | a stack's weight |
//! |---|---|
//! | grew, on CPU or off CPU | how much more time it has after |
//! | shrank, on CPU or off CPU | how much more time it had before |
//! | before, after | its time |

use super::Stacks;
use crate::outputs::speedscope::{File, Texts, View};

fn grown(times: [u128; 2]) -> u128 {
    times[1].saturating_sub(times[0])
}

fn shrunk(times: [u128; 2]) -> u128 {
    times[0].saturating_sub(times[1])
}

pub(super) fn file(title: &str, on_cpu: &Stacks, off_cpu: &Stacks) -> File {
    let mut texts = Texts::default();
    let mut view = |name, sides: &[&Stacks], weight: fn([u128; 2]) -> u128| {
        let mut view = View::new(name);
        for (stack, times) in sides.iter().copied().flatten() {
            let weight_ns = weight(*times);
            if weight_ns != 0 {
                view.add(texts.stack(stack.split(';')), weight_ns);
            }
        }
        view
    };
    let views = vec![
        view("grew, on CPU", &[on_cpu], grown),
        view("shrank, on CPU", &[on_cpu], shrunk),
        view("grew, off CPU", &[off_cpu], grown),
        view("shrank, off CPU", &[off_cpu], shrunk),
        view("before", &[on_cpu, off_cpu], |times| times[0]),
        view("after", &[on_cpu, off_cpu], |times| times[1]),
    ];
    File::of(title.into(), texts.finish(), views)
}
