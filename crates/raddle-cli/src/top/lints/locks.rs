//! Findings of locks.

use super::Lint;
use crate::top::look::Frame;
use crate::top::source::Source;

/// What is remembered of locks between looks.
#[derive(Default)]
pub(super) struct Locks;

impl Locks {
    pub(super) fn look(&mut self, _: &Source, _: &Frame) -> Vec<Lint> {
        Vec::new()
    }
}
