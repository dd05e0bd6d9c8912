//! Frames of managed code: functions that a runtime of their language executes, and of which the
//! native stack shows the runtime's own frames only.

use std::collections::HashMap;

/// The most different managed frames that are kept of a process.
const FRAMES_MAX: usize = 1 << 20;
/// The most bytes of their texts. Names may be long, and differ in lines only.
const BYTES_MAX: usize = 64 << 20;

/// The language of a managed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    Python,
    Java,
    /// Named by a perf map: .NET, Mono, JavaScript, or a compiled method of Java alone.
    Mapped,
}

impl Language {
    /// Returns the word for it, as the JSON document has it.
    pub fn word(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Java => "java",
            Language::Mapped => "map",
        }
    }
}

/// A managed function that hasn't returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagedFrame {
    pub language: Language,
    /// With its class or module, as far as the runtime has it.
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// What the runtime says beside it: locks that are held or waited for.
    pub notes: Vec<String>,
}

/// Where a managed frame is on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ManagedAt {
    /// The position of the native frame that executes it; the number of frames if that is not
    /// known.
    pub frame: u32,
    /// The number of the frame in [`Stacks::managed`](crate::Stacks::managed).
    pub managed: u32,
}

/// Managed frames, equal ones once.
#[derive(Default)]
pub(crate) struct ManagedFrames {
    pub all: Vec<ManagedFrame>,
    numbers: HashMap<ManagedFrame, u32>,
    bytes: usize,
}

impl ManagedFrames {
    /// Returns the number of a frame; `None` if there are too many.
    pub(crate) fn number(&mut self, frame: ManagedFrame) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&frame) {
            return Some(number);
        }
        let notes = frame.notes.iter().map(String::len).sum::<usize>();
        let bytes = frame.name.len() + frame.file.as_ref().map_or(0, String::len) + notes;
        if self.all.len() == FRAMES_MAX || self.bytes + bytes > BYTES_MAX {
            return None;
        }
        self.bytes += bytes;
        let number = self.all.len() as u32;
        self.all.push(frame.clone());
        self.numbers.insert(frame, number);
        Some(number)
    }
}

/// Managed frames that one native frame executes, from the inside out.
pub(crate) struct Run {
    /// An address in the part of the stack that belongs to the native frame, if it is known.
    pub at: Option<u64>,
    pub frames: Vec<u32>,
}

/// Gives each run of a stack its native frame. `pointers` are the stack pointers of the native
/// frames, and `by_code` the frames that look like the executing function: they count where an
/// address is missing, if there are as many as runs.
pub(crate) fn place(runs: Vec<Run>, pointers: &[u64], by_code: &[usize]) -> Vec<ManagedAt> {
    let mut placed = Vec::new();
    let are_as_many = runs.len() == by_code.len();
    for (number, run) in runs.into_iter().enumerate() {
        let by_address = run.at.and_then(|at| holder(pointers, at));
        let by_order = by_code.get(number).filter(|_| are_as_many);
        let frame = by_address.or(by_order.copied()).unwrap_or(pointers.len());
        placed.extend(run.frames.into_iter().map(|managed| ManagedAt {
            frame: frame as u32,
            managed,
        }));
    }
    placed.sort_by_key(|it| it.frame);
    placed
}

/// Returns the frame that an address on the stack belongs to. A signal's stack may be elsewhere, so
/// that pointers needn't grow; the outermost frame has no end.
fn holder(pointers: &[u64], at: u64) -> Option<usize> {
    let ends = pointers.windows(2);
    ends.into_iter()
        .position(|pair| (pair[0]..pair[1]).contains(&at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(at: Option<u64>, frames: &[u32]) -> Run {
        Run {
            at,
            frames: frames.to_vec(),
        }
    }

    fn pairs(placed: &[ManagedAt]) -> Vec<(u32, u32)> {
        placed.iter().map(|it| (it.frame, it.managed)).collect()
    }

    #[test]
    fn runs_go_where_their_addresses_are() {
        let pointers = [100, 200, 300, 400];
        let runs = vec![run(Some(250), &[7, 8]), run(Some(399), &[9])];
        let placed = place(runs, &pointers, &[]);
        assert_eq!(pairs(&placed), [(1, 7), (1, 8), (2, 9)]);
        let elsewhere = place(vec![run(Some(4000), &[7])], &pointers, &[]);
        assert_eq!(pairs(&elsewhere), [(4, 7)]);
    }

    #[test]
    fn runs_without_addresses_go_by_their_order() {
        let pointers = [100, 200, 300];
        let runs = || vec![run(None, &[7]), run(None, &[8])];
        assert_eq!(pairs(&place(runs(), &pointers, &[0, 2])), [(0, 7), (2, 8)]);
        assert_eq!(pairs(&place(runs(), &pointers, &[2])), [(3, 7), (3, 8)]);
    }
}
