//! CPU times of green threads, from two snapshots.

use std::collections::HashMap;

use raddle_inspect::{Snapshot, ThreadRecord};

/// The threads' CPU time between two snapshots.
pub(super) struct Usage {
    /// CPU time before, by thread.
    before_ns: HashMap<u32, u64>,
    /// The time between the two snapshots.
    interval_ns: u64,
}

impl Usage {
    pub(super) fn between(before: &Snapshot<'_>, after: &Snapshot<'_>) -> Usage {
        let cpu = |record: ThreadRecord| (record.tid, record.cpu_ns);
        let interval_ns = after.header().now_ns.saturating_sub(before.header().now_ns);
        Usage {
            before_ns: before.threads().map(cpu).collect(),
            interval_ns: interval_ns.max(1),
        }
    }

    /// Returns the CPU time of a record of the later snapshot, in percent of the interval. A new
    /// thread has used all of its time in the interval.
    pub(super) fn percent(&self, record: &ThreadRecord) -> f64 {
        let before_ns = self.before_ns.get(&record.tid).copied().unwrap_or(0);
        let used_ns = record.cpu_ns.saturating_sub(before_ns);
        used_ns as f64 * 100.0 / self.interval_ns as f64
    }

    /// Returns the threads of the later snapshot, the largest users in the interval first.
    pub(super) fn sorted(&self, snapshot: &Snapshot<'_>) -> Vec<ThreadRecord> {
        let mut threads: Vec<ThreadRecord> = snapshot.threads().collect();
        threads.sort_by(|a, b| self.percent(b).total_cmp(&self.percent(a)));
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{Header, Wire};

    fn snapshot(now_ns: u64, cpu_ns: &[(u32, u64)]) -> Vec<u8> {
        let header = Header {
            now_ns,
            threads: cpu_ns.len() as u64,
            ..Header::new()
        };
        let record = |&(tid, cpu_ns): &(u32, u64)| ThreadRecord {
            tid,
            cpu_ns,
            ..ThreadRecord::default()
        };
        let mut bytes = header.as_bytes().to_vec();
        for record in cpu_ns.iter().map(record) {
            bytes.extend_from_slice(record.as_bytes());
        }
        bytes
    }

    #[test]
    fn threads_are_sorted_by_what_they_used_between() {
        let before = snapshot(1000, &[(1, 5000), (2, 0), (4, 9)]);
        let after = snapshot(2000, &[(1, 5100), (2, 900), (3, 250)]);
        let after = Snapshot::parse(&after).unwrap();
        let usage = Usage::between(&Snapshot::parse(&before).unwrap(), &after);
        let sorted = usage.sorted(&after);
        let shown: Vec<_> = sorted
            .iter()
            .map(|record| (record.tid, usage.percent(record)))
            .collect();
        assert_eq!(shown, [(2, 90.0), (3, 25.0), (1, 10.0)]);
    }
}
