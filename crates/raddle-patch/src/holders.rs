//! Which vector and x87 registers an image's functions may hold over calls of each other.
//!
//! Compilers know what a function does that they compile or link together with its caller, and let
//! the caller keep values in registers that the function leaves alone. So the functions of one
//! image are judged together.

use crate::decode::{Vectors, decode};
use crate::image::{Image, Span};
use crate::unwind::Functions;

/// The longest text that is decoded: some milliseconds.
const LONG: usize = 1 << 19;

/// Returns which registers any code of the image touches. Text that is long, or that can't be
/// decoded as a whole, may touch all of them.
pub(crate) fn vectors(image: &Image, functions: &Functions<'_>) -> Vectors {
    let mut vectors = Vectors::None;
    for text in image.texts() {
        if text.len() > LONG {
            return Vectors::Wide;
        }
        let mut at = text.start;
        while at < text.end && vectors != Vectors::Wide {
            let run = run_at(image, functions, at, text);
            vectors = vectors.max(of_run(image, run));
            at = run.end;
        }
    }
    vectors
}

/// Returns the instructions that follow each other from `at` on: those of a function, those behind
/// its unwind entry, or those before the first function.
fn run_at(image: &Image, functions: &Functions<'_>, at: usize, text: Span) -> Span {
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

/// Returns which registers a run of instructions touches: all, if they don't end where it does, or
/// where zeros fill it up.
fn of_run(image: &Image, run: Span) -> Vectors {
    let Some(bytes) = image.bytes(run) else {
        return Vectors::Wide;
    };
    let (mut vectors, mut rest) = (Vectors::None, bytes);
    while let Some(instruction) = decode(rest) {
        vectors = vectors.max(instruction.vectors());
        rest = &rest[instruction.len()..];
    }
    if rest.iter().all(|&byte| byte == 0) {
        vectors
    } else {
        Vectors::Wide
    }
}
