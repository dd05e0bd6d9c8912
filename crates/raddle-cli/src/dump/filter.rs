//! Which threads are shown.

use raddle_inspect::{Header, Snapshot, ThreadFlags, ThreadRecord, ThreadState, Wire};

use crate::failure::Failure;

/// Threads by id, name and state; an empty list picks all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub tids: Vec<u32>,
    pub names: Vec<String>,
    pub states: Vec<ThreadState>,
}

impl Filter {
    /// Returns true if it picks every thread.
    pub(super) fn is_open(&self) -> bool {
        self.tids.is_empty() && self.names.is_empty() && self.states.is_empty()
    }

    pub(crate) fn picks(&self, record: &ThreadRecord) -> bool {
        let is_name = |glob: &String| matches_glob(glob.as_bytes(), record.name_bytes());
        (self.tids.is_empty() || self.tids.contains(&record.tid))
            && (self.names.is_empty() || self.names.iter().any(is_name))
            && (self.states.is_empty() || self.states.contains(&record.state))
    }

    /// As [`Filter::picks`], before it is known what light threads wait for: these may still turn
    /// out to be runnable.
    pub(super) fn may_pick(&self, record: &ThreadRecord) -> bool {
        let is_open = |state| {
            let record = ThreadRecord { state, ..*record };
            self.picks(&record)
        };
        is_open(record.state)
            || record.flags.contains(ThreadFlags::LIGHT) && is_open(ThreadState::RUNNABLE)
    }

    /// Returns a snapshot with those of its threads that are picked.
    pub(super) fn apply(&self, snapshot: &Snapshot<'_>) -> Vec<u8> {
        let picked: Vec<_> = snapshot
            .threads()
            .filter(|record| self.picks(record))
            .collect();
        rebuild(snapshot, picked.iter().copied())
    }
}

/// Checks that ids that the user asks for picked a thread.
pub(super) fn check(pid: u32, tids: &[u32], picked: &Snapshot<'_>) -> Result<(), Failure> {
    if tids.is_empty() || picked.header().threads != 0 {
        return Ok(());
    }
    let list: Vec<String> = tids.iter().map(u32::to_string).collect();
    Err(Failure::input(
        format!("process {pid} has no such thread: {}", list.join(", ")),
        format!("see the ids in raddle dump {pid}, and leave out other filters"),
    ))
}

/// Returns a snapshot like this one, with other threads.
pub(crate) fn rebuild(
    snapshot: &Snapshot<'_>,
    threads: impl ExactSizeIterator<Item = ThreadRecord>,
) -> Vec<u8> {
    let own = Header::new();
    let header = Header {
        threads: threads.len() as u64,
        header_size: own.header_size,
        record_size: own.record_size,
        carrier_record_size: own.carrier_record_size,
        ..*snapshot.header()
    };
    let mut bytes = header.as_bytes().to_vec();
    for carrier in snapshot.carriers() {
        bytes.extend_from_slice(carrier.as_bytes());
    }
    for thread in threads {
        bytes.extend_from_slice(thread.as_bytes());
    }
    bytes
}

/// Returns true if a name matches a pattern in which `*` stands for any bytes and `?` for one.
fn matches_glob(glob: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if the last star stands for one more byte.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from + 1));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((behind, next)) => {
                    star = Some((behind, next + 1));
                    (at, from) = (behind, next);
                }
                None => return false,
            },
        }
    }
    glob[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let matches = |glob: &str, name: &str| matches_glob(glob.as_bytes(), name.as_bytes());
        assert!(matches("GC*", "GC Thread#0") && matches("*", "") && matches("a?c", "abc"));
        assert!(matches("*b*b", "abab") && matches("*ab", "aab") && matches("", ""));
        assert!(!matches("GC", "GC Thread") && !matches("?", "") && !matches("*b", "ba"));
    }

    #[test]
    fn all_conditions_must_hold() {
        let record = ThreadRecord {
            tid: 7,
            name: *b"io\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            state: ThreadState::WAITING,
            ..ThreadRecord::default()
        };
        let mut filter = Filter::default();
        assert!(filter.is_open() && filter.picks(&record));
        filter.tids = vec![6, 7];
        filter.names = vec!["i*".into()];
        assert!(filter.picks(&record));
        filter.states = vec![ThreadState::RUNNING];
        assert!(!filter.picks(&record));
    }
}
