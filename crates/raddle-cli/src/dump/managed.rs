//! Managed frames as text.

use std::rc::Rc;

use raddle_stacks::{Language, ManagedFrame, Stack};

use super::stacks::{NamedFrame, plain};

/// Returns the managed frames that belong to the native frame of this position.
pub(super) fn at(
    stack: &Stack,
    frames: &[Rc<ManagedFrame>],
    position: usize,
) -> Vec<Rc<ManagedFrame>> {
    let here = stack.managed.iter();
    let here = here.filter(|it| it.frame as usize == position);
    here.filter_map(|it| frames.get(it.managed as usize).cloned())
        .collect()
}

/// Leaves out frames in code without a file behind the frame that a Java stack replaces.
pub(super) fn without_covered<'a>(
    frames: impl Iterator<Item = &'a NamedFrame>,
) -> Vec<&'a NamedFrame> {
    let mut is_covered = false;
    let mut kept = Vec::new();
    for frame in frames {
        let is_java = |it: &Rc<ManagedFrame>| it.language == Language::Java;
        if frame.managed.iter().any(is_java) {
            is_covered = true;
        } else if frame.named.module.is_some() {
            is_covered = false;
        } else if is_covered {
            continue;
        }
        kept.push(frame);
    }
    kept
}

/// Returns the line of a managed frame, and those of its notes.
pub(super) fn lines(frame: &ManagedFrame) -> Vec<String> {
    let mark = match frame.language {
        Language::Python => "py",
        Language::Java => "java",
        Language::Mapped => "map",
    };
    let mut line = format!("{mark} {}", plain(&frame.name));
    if let Some(file) = &frame.file {
        line += &format!("  {}", plain(file.rsplit('/').next().unwrap_or(file)));
        line += &frame.line.map_or(String::new(), |line| format!(":{line}"));
    }
    let notes = frame
        .notes
        .iter()
        .map(|note| format!("  - {}", plain(note)));
    std::iter::once(line).chain(notes).collect()
}
