//! Names of threads, of which an event has no more than a part.

use raddle_inspect::{Event, EventKind};

/// The rest of a name that a later event begins, and its thread.
#[derive(Debug, Default)]
pub(crate) struct NameParts(u32, [u8; Event::NAME_PART]);

impl NameParts {
    /// Takes an event with a part of a name. Returns the name if it is whole.
    pub(crate) fn take(&mut self, event: &Event) -> Option<Vec<u8>> {
        if event.kind == EventKind::NAME_REST {
            *self = NameParts(event.thread, event.name_part());
            return None;
        }
        let mut bytes = event.name_part().to_vec();
        if self.0 == event.thread {
            bytes.extend(std::mem::take(self).1);
        }
        let end = bytes.iter().position(|&byte| byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_of_parts_of_the_same_thread() {
        let mut parts = NameParts::default();
        let mut take = |kind, thread, part: &[u8]| {
            let event = Event::of_name(kind, 1, thread, part);
            parts.take(&event).map(String::from_utf8)
        };
        assert_eq!(take(EventKind::NAME_REST, 7, b"-1234"), None);
        assert_eq!(take(EventKind::NAME, 8, b"short"), Some(Ok("short".into())));
        assert_eq!(
            take(EventKind::NAME, 7, b"long-worker"),
            Some(Ok("long-worker-1234".into()))
        );
        assert_eq!(take(EventKind::NAME, 7, b"short"), Some(Ok("short".into())));
    }
}
