//! Managed frames as text.

use std::rc::Rc;

use raddle_stacks::{Language, ManagedFrame, Stack};

use super::stacks::plain;

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
