//! Texts of the program's own events, which are read while the process lives.

use raddle_inspect::Event;
use raddle_record::perfetto::{TEXTS_MAX, text_place};
use raddle_stacks::Memory;
use rustc_hash::FxHashSet;

use super::spool::{Record, Spool};

/// The places of texts that were read, and of those that have to be.
#[derive(Default)]
pub(super) struct Texts {
    known: FxHashSet<(u64, u8)>,
    wanted: Vec<(u64, u8)>,
}

impl Texts {
    /// Takes an event, which may have a text.
    pub(super) fn note(&mut self, event: &Event) {
        if let Some(place) = text_place(event) {
            self.want(place);
        }
    }

    #[cold]
    fn want(&mut self, place: (u64, u8)) {
        if self.known.insert(place) {
            self.wanted.push(place);
        }
    }

    /// Reads the texts that events since the last call have.
    pub(super) fn read(&mut self, memory: &dyn Memory, spool: &mut Spool<'_>) {
        for place in self.wanted.drain(..) {
            let text = &text(memory, place);
            spool.record(&Record::Text { place, text });
        }
    }

    /// Forgets all texts when there are many, after the events that have them.
    pub(super) fn forget_many(&mut self, spool: &mut Spool<'_>) {
        if self.known.len() >= TEXTS_MAX {
            self.known.clear();
            spool.record(&Record::ForgetTexts);
        }
    }
}

/// Returns the text at a place, or its address.
pub(super) fn text(memory: &dyn Memory, (address, length): (u64, u8)) -> String {
    let mut bytes = [0; Event::TEXT_MAX];
    let most = if length == 0 {
        bytes.len()
    } else {
        length.into()
    };
    let got = memory.read(address, &mut bytes[..most]);
    let text = bytes[..got].split(|&byte| byte == 0).next();
    match text {
        Some(text) if !text.is_empty() => String::from_utf8_lossy(text).into_owned(),
        _ => format!("{address:#x}"),
    }
}
