//! Names of code without a file: by a perf map, and HotSpot's own.

use super::Camera;
use crate::managed::{Language, ManagedAt, ManagedFrame};
use crate::unwind::Frame;

impl Camera<'_> {
    /// Returns the frames that the process's perf map names.
    pub(super) fn mapped(&mut self, frames: &[Frame]) -> Vec<ManagedAt> {
        let mut placed = Vec::new();
        for (position, frame) in frames.iter().enumerate() {
            if self.target.modules.has_file(frame.inside()) {
                continue;
            }
            if let Some(name) = self.map.name(frame.inside()).map(str::to_owned) {
                placed.extend(self.mapped_frame(position, &name));
            }
        }
        placed
    }

    fn mapped_frame(&mut self, position: usize, name: &str) -> Option<ManagedAt> {
        let managed = self.managed.number(ManagedFrame {
            language: Language::Mapped,
            name: name.to_owned(),
            file: None,
            line: None,
            notes: Vec::new(),
        });
        Some(ManagedAt {
            frame: position as u32,
            managed: managed?,
        })
    }

    /// Adds the names of HotSpot's blocks of code that are no methods, such as the stub by which a
    /// method enters a monitor.
    pub(super) fn blocks(&mut self, frames: &[Frame], placed: &mut Vec<ManagedAt>) {
        let is_placed = |position: usize| placed.iter().any(|it| it.frame as usize == position);
        let modules = self.target.modules;
        let mut found = Vec::new();
        for (position, frame) in frames.iter().enumerate() {
            if modules.has_file(frame.inside()) || is_placed(position) {
                continue;
            }
            if let Some(name) = self.unwinder.block_name(frame.inside()) {
                found.extend(self.mapped_frame(position, &name));
            }
        }
        placed.extend(found);
    }
}
