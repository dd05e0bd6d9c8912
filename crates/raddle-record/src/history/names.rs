//! Names of threads that live.

use raddle_inspect::Event;

use super::{History, THREADS_MAX};

impl History {
    /// Notes the name of a thread that lives.
    pub fn name(&mut self, tid: u32, name: &[u8]) {
        let are_many = |position: usize| self.further_threads != 0 && position + 1 == THREADS_MAX;
        if let Some(position) = self.position(tid)
            && !are_many(position as usize)
            && let Some(thread) = self.threads.get_mut(position as usize)
            && thread.name.as_bytes() != name
        {
            thread.name = String::from_utf8_lossy(name).into_owned();
        }
    }

    /// Takes an event with a part of a name: a thread that ends soon is seen by no look.
    pub(super) fn take_name(&mut self, event: &Event) {
        if let Some(name) = self.name_parts.take(event) {
            self.name(event.thread, &name);
        }
    }

    /// Returns true if a thread has begun since the last call.
    pub fn has_new_threads(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
    }
}
