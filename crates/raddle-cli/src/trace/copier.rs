//! The recording of a trace: copies events to a spool, with what can be read only while the process
//! lives.
//!
//! Protocol of a round: the rings are read; each event goes to the spool as it is, and is looked at
//! for what it needs. When the rings were read, texts that the events need are read, and now and
//! then other processes; then the reading is noted: it tells the events of the round. Looks at
//! bound threads and names follow.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use raddle_inspect::{Event, EventKind};
use raddle_record::clock::Moment;
use raddle_record::rings::{Lane, Words};
use raddle_stacks::Memory;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::bound::Looks;
use super::spool::{LOOK_EVERY, Record, Spool};
use super::texts::Texts;
use super::wakers::Wakers;
use crate::recording::{Copies, Reading, Recording};

/// How often names of new threads are read at most, and those of old ones.
const NEW_NAMES: Duration = Duration::from_millis(100);
const NAMES: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Copier<'o> {
    spool: Spool<'o>,
    wakers: Wakers,
    looks: Looks,
    texts: Texts,
    /// Hashes of the names that the spool has, by threads.
    names: FxHashMap<u32, u64>,
    /// When names were read last.
    named: Instant,
    /// A thread has begun since then.
    has_new: bool,
    /// The time of the round, by CLOCK_BOOTTIME.
    now_ns: u64,
    readings: usize,
}

impl<'o> Copier<'o> {
    /// Begins a recording.
    pub(super) fn new(recording: &mut Recording, spool: Spool<'o>) -> Self {
        let pid = recording.pid();
        let mut copier = Copier {
            spool,
            wakers: Wakers::new(pid),
            looks: Looks::new(pid),
            texts: Texts::default(),
            names: FxHashMap::default(),
            named: Instant::now(),
            has_new: false,
            now_ns: Moment::now().boot_ns,
            readings: 0,
        };
        copier.name_all(recording);
        copier.looks.follow(recording.bound(), &mut copier.spool);
        copier
    }

    /// Does one round. Returns false if the recording is over.
    pub(super) fn round(&mut self, recording: &mut Recording, is_last: bool) -> bool {
        self.now_ns = Moment::now().boot_ns;
        let goes_on = recording.copy(is_last, self);
        self.looks.look(&mut self.spool);
        self.spool.record(&Record::Looked);
        if is_last || !goes_on || self.spool.has_ended() {
            return false;
        }
        let due = if self.has_new { NEW_NAMES } else { NAMES };
        if self.named.elapsed() >= due {
            self.name_all(recording);
            self.looks.follow(recording.bound(), &mut self.spool);
        }
        true
    }

    /// Ends the recording, and returns what it has.
    pub(super) fn finish(mut self, recording: &mut Recording) -> Spool<'o> {
        self.name_all(recording);
        for (lane, tid) in recording.running() {
            self.spool.record(&Record::Runs { lane, tid });
        }
        self.spool
    }

    /// Takes the names that have changed.
    fn name_all(&mut self, recording: &mut Recording) {
        self.named = Instant::now();
        self.has_new = false;
        let before = std::mem::take(&mut self.names);
        for (tid, name, group) in recording.names() {
            let hash = FxBuildHasher.hash_one((&name, group));
            if before.get(&tid) != Some(&hash) {
                let name = &name;
                self.spool.record(&Record::Name { tid, group, name });
            }
            self.names.insert(tid, hash);
        }
    }
}

impl Copies for Copier<'_> {
    #[inline]
    fn event(&mut self, lane: Lane, words: Words) {
        self.spool.event(lane, words);
        let Some(event) = Event::from_words(words) else {
            return;
        };
        match event.kind {
            EventKind::SWITCH | EventKind::WAKE => self.wakers.note(&event, self.now_ns),
            EventKind::CREATE => {
                self.has_new = true;
                self.names.remove(&event.thread); // that of a thread with this id before
            }
            _ => self.texts.note(&event),
        }
    }

    fn read(&mut self, reading: &Reading, memory: &dyn Memory) {
        self.texts.read(memory, &mut self.spool);
        self.readings += 1;
        if self.readings.is_multiple_of(LOOK_EVERY) || reading.is_last {
            let spool = &mut self.spool;
            self.wakers.look(self.now_ns, |object, by| {
                let by = by.cloned();
                spool.record(&Record::WokenBy { object, by });
            });
        }
        self.spool.record(&Record::Read(*reading));
        self.texts.forget_many(&mut self.spool);
    }
}
