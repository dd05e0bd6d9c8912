//! Which vector and x87 registers an image's functions may hold over calls of each other.
//!
//! Compilers know what a function does that they compile or link together with its caller, and let
//! the caller keep values in registers that the function leaves alone. So the functions of one
//! image are judged together.

use crate::decode::{Flow, Vectors, decode};
use crate::flow::{MAX_LEN, Offsets};
use crate::image::{Image, Span};
use crate::unwind::Functions;

/// The longest text that is decoded: some milliseconds.
const LONG: usize = 1 << 19;

/// Returns which registers any code of the image touches. Text that is long, or that can't be
/// decoded as a whole, may touch all of them.
pub(crate) fn vectors(image: &Image, functions: &Functions<'_>) -> Vectors {
    let (mut vectors, mut run) = (Vectors::None, Run::new());
    for text in image.texts() {
        if text.len() > LONG {
            return Vectors::Wide;
        }
        let mut at = text.start;
        while at < text.end && vectors != Vectors::Wide {
            let span = span_at(image, functions, at, text);
            vectors = vectors.max(run.decode(image, span));
            at = span.end;
        }
    }
    vectors
}

/// Returns the instructions that follow each other from `at` on: those of a function, those behind
/// its unwind entry, or those before the first function.
fn span_at(image: &Image, functions: &Functions<'_>, at: usize, text: Span) -> Span {
    let (start, end) = match functions.at(at) {
        Some(function) if function.covered.contains(at) => (at, function.covered.end),
        Some(function) => (behind_zeros(image, at), function.whole.end),
        None => {
            let first = functions.first().filter(|&first| first > at);
            (at, first.unwrap_or(text.end))
        }
    };
    let end = end.min(text.end).max(at + 1);
    Span {
        start: start.min(end),
        end,
    }
}

/// Returns where the next section may begin: linkers fill the space before it with zeros.
fn behind_zeros(image: &Image, at: usize) -> usize {
    const ALIGNMENT: usize = 4;
    let bytes = image.from(at).unwrap_or(&[]);
    let to_next = at.next_multiple_of(ALIGNMENT) - at;
    let is_filled = bytes.iter().take(to_next).all(|&byte| byte == 0);
    if is_filled { at + to_next } else { at }
}

/// Where the instructions of a run begin, and where its jumps and calls lead within the run. The
/// sets take 16 KiB.
struct Run {
    starts: Offsets,
    targets: Offsets,
    /// The length of the run in bytes.
    len: usize,
}

impl Run {
    fn new() -> Self {
        Self {
            starts: Offsets::new(),
            targets: Offsets::new(),
            len: 0,
        }
    }

    /// Returns which registers the instructions of `span` touch. All, if they don't end where it
    /// does, or where zeros fill it up; or if one is jumped into, since data in the text has hidden
    /// another one.
    fn decode(&mut self, image: &Image, span: Span) -> Vectors {
        let Some(bytes) = image.bytes(span).filter(|bytes| bytes.len() <= MAX_LEN) else {
            return Vectors::Wide;
        };
        self.starts.clear(self.len);
        self.targets.clear(self.len);
        self.len = bytes.len();
        let (mut vectors, mut offset) = (Vectors::None, 0);
        while let Some(instruction) = bytes.get(offset..).and_then(decode) {
            self.starts.insert(offset);
            vectors = vectors.max(instruction.vectors());
            if let Flow::Branch(by) | Flow::Jump(by) | Flow::Call(by) = instruction.flow() {
                let target = offset.wrapping_add_signed(by as isize);
                if target < bytes.len() {
                    self.targets.insert(target);
                }
            }
            offset += instruction.len();
        }
        let is_whole = bytes[offset..].iter().all(|&byte| byte == 0);
        if is_whole && self.targets.is_within(&self.starts, self.len) {
            vectors
        } else {
            Vectors::Wide
        }
    }
}
