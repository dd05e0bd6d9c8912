//! Frames, equal ones once.

use std::collections::HashMap;

use serde::Serialize;

use crate::outputs::names;
use crate::profile::Profile;

/// The most frames that are shown of a stack.
pub(super) const DEPTH: usize = 500;
/// Of these, the outermost.
const OUTERMOST: usize = 200;

/// A frame. A function's lines are one frame, so that the viewer's tables have a row for each
/// function.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
pub(in crate::outputs) struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

/// All frames of a file.
pub(super) struct Frames<'a> {
    profile: &'a Profile,
    frames: Vec<Frame>,
    numbers: HashMap<Frame, u32>,
    /// The frames of the profile's functions.
    functions: Vec<u32>,
}

impl<'a> Frames<'a> {
    pub(super) fn of(profile: &'a Profile) -> Frames<'a> {
        let mut frames = Frames {
            profile,
            frames: Vec::new(),
            numbers: HashMap::new(),
            functions: Vec::new(),
        };
        for function in &profile.functions {
            let file = function.file.as_deref().or(function.module.as_deref());
            let number = frames.number(Frame {
                name: names::frame(function),
                file: file.map(names::plain),
            });
            frames.functions.push(number);
        }
        frames
    }

    fn number(&mut self, frame: Frame) -> u32 {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame, number);
        number
    }

    /// Returns the frame of a text.
    pub(super) fn name(&mut self, name: String) -> u32 {
        self.number(Frame { name, file: None })
    }

    /// Returns the frame of a text, if there is one.
    pub(super) fn named(&mut self, name: Option<String>) -> Option<u32> {
        name.map(|name| self.name(name))
    }

    /// Returns the frames of a stack, the outermost first.
    pub(super) fn stack(&mut self, stack: u32) -> Vec<u32> {
        let functions = self.profile.stacks.get(stack as usize);
        let functions = functions.into_iter().flatten();
        let frames = functions.filter_map(|&it| self.functions.get(it as usize));
        let mut frames: Vec<u32> = frames.copied().collect();
        if frames.len() > DEPTH {
            let left_out = frames.len() - DEPTH;
            let note = self.name(format!("[{left_out} frames left out]"));
            frames.splice(OUTERMOST..OUTERMOST + left_out, [note]);
        }
        frames
    }

    /// Returns the innermost frames of a stack, so many at most.
    pub(super) fn innermost(&mut self, stack: u32, most: usize) -> Vec<u32> {
        let mut frames = self.stack(stack);
        let left_out = frames.len().saturating_sub(most);
        frames.drain(..left_out);
        frames
    }

    /// Returns the most frames that a stack has.
    pub(super) fn depth(&self, stack: u32) -> usize {
        let functions = self.profile.stacks.get(stack as usize);
        functions.map_or(0, |it| it.len().min(DEPTH + 1))
    }

    pub(super) fn finish(self) -> Vec<Frame> {
        self.frames
    }
}

/// Frames that are known by their texts alone.
#[derive(Default)]
pub(in crate::outputs) struct Texts {
    frames: Vec<Frame>,
    numbers: HashMap<String, u32>,
}

impl Texts {
    /// Returns the frames of a stack, the outermost first; of a deep one, those at both ends.
    pub(in crate::outputs) fn stack<'a>(
        &mut self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Vec<u32> {
        let mut frames: Vec<u32> = texts.map(|text| self.number(text)).collect();
        if frames.len() > DEPTH {
            let left_out = frames.len() - DEPTH;
            let note = self.number(&format!("[{left_out} frames left out]"));
            frames.splice(OUTERMOST..OUTERMOST + left_out, [note]);
        }
        frames
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.numbers.insert(text.into(), number);
        self.frames.push(Frame {
            name: text.into(),
            file: None,
        });
        number
    }

    pub(in crate::outputs) fn finish(self) -> Vec<Frame> {
        self.frames
    }
}
