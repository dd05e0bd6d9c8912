//! Stacks of threads that wait, and of those that hold what these wait for.

use std::time::Duration;

use raddle_inspect::{ThreadState, WaitKind};
use raddle_record::history::{Look, StackNumber, Unread};
use raddle_record::profile::Activity;
use raddle_stacks::{Captured, Kind, StackReader};

use super::{HOLDERS_MAX, Holding, Recorder};
use crate::peers::cpu_time;

impl Recorder {
    /// Reads stacks of threads that wait or are runnable: first of those that have begun to since
    /// the last call, then of all that were not chosen before. Each of them has the same chance.
    pub(super) fn read_waits(&mut self, reader: &mut StackReader<'_>, mut fresh: Vec<Unread>) {
        let chance = self.chooser.chance(fresh.len());
        self.history.expect_chance(&mut fresh, chance);
        for unread in fresh {
            if !(self.chooser.draws(chance) && self.read_wait(reader, &unread)) {
                self.history.put_back(unread);
            }
        }
        let all = self.history.count_put_back();
        let mut missed = Vec::new();
        while self.chooser.can_afford_one() && self.history.count_put_back() > 0 {
            let at = self.chooser.draw_of(self.history.count_put_back());
            if let Some(unread) = self.history.take_put_back(at)
                && !self.read_wait(reader, &unread)
            {
                missed.push(unread);
            }
        }
        let taken = all - self.history.count_put_back();
        let chance = if self.chooser.can_afford_one() {
            1.0
        } else {
            taken as f64 / all.max(1) as f64
        };
        self.history.took_put_back(chance);
        for unread in missed {
            self.history.put_back(unread);
        }
    }

    /// Reads stacks of threads that wait when the recording is over, and of which none was read. So
    /// a recording need not read those of thousands of threads when it begins.
    pub(super) fn read_rest(&mut self, reader: &mut StackReader<'_>, since_look: Duration) {
        let look = Look {
            mean_ns: 0,
            late_ns: since_look.as_nanos() as u64,
        };
        let fresh = self.history.fresh(look);
        self.chooser.end();
        self.read_waits(reader, self.needed(fresh));
    }

    /// Returns false if the thread was not found, or not in this span: a later look may find it.
    fn read_wait(&mut self, reader: &mut StackReader<'_>, unread: &Unread) -> bool {
        let begun = cpu_time();
        let captured = reader.read(unread.tid);
        let captured = captured.filter(|it| is_still(it, unread));
        if let Some((monitor, object)) = reader.entered().filter(|_| captured.is_some()) {
            self.read_owner(reader, monitor, object, unread);
        }
        if let Activity::Waiting(kind @ (WaitKind::FUTEX | WaitKind::MUTEX)) = unread.activity {
            self.read_holder(reader, kind, unread);
        }
        self.chooser.spent(cpu_time().saturating_sub(begun));
        let epoch = self.epochs.number();
        let Some(captured) = captured else {
            return false;
        };
        if let Some(number) = captured.stack {
            let stack = StackNumber { epoch, number };
            self.history.mark(unread, stack);
        }
        true
    }

    /// Reads what the holder of a lock does.
    fn read_holder(&mut self, reader: &mut StackReader<'_>, kind: WaitKind, unread: &Unread) {
        let (mut thread, mut stack) = (None, None);
        if let Some(tid) = reader.holder(unread.object) {
            thread = self.history.position(tid);
            stack = reader.read(tid).and_then(|captured| captured.stack);
        }
        if thread.is_none() && !reader.has_readers(unread.object) {
            return;
        }
        let epoch = self.epochs.number();
        if self.holders.len() < HOLDERS_MAX {
            self.holders.push(Holding {
                lock: (kind, unread.object),
                thread,
                stack: stack.map(|number| StackNumber { epoch, number }),
                wait: (unread.position, unread.since_ns),
            });
        }
    }

    /// Reads what the owner of a monitor of Java does.
    fn read_owner(
        &mut self,
        reader: &mut StackReader<'_>,
        monitor: u64,
        object: u32,
        unread: &Unread,
    ) {
        let Some(tid) = reader.monitor_owner(monitor) else {
            return;
        };
        let Some(thread) = self.history.position(tid) else {
            return;
        };
        let epoch = self.epochs.number();
        let stack = reader.read(tid).and_then(|captured| captured.stack);
        let is_still = reader.monitor_owner(monitor) == Some(tid);
        if is_still && self.monitor_owners.len() < HOLDERS_MAX {
            self.monitor_owners.push(Holding {
                lock: (WaitKind::CONDVAR, object.into()),
                thread: Some(thread),
                stack: stack.map(|number| StackNumber { epoch, number }),
                wait: (unread.position, unread.since_ns),
            });
        }
    }
}

/// Returns true if a thread was still in the span when it was read.
fn is_still(captured: &Captured, unread: &Unread) -> bool {
    let record = &captured.record;
    match unread.activity {
        Activity::Waiting(WaitKind::SLEEP) => record.wait_kind == WaitKind::SLEEP,
        Activity::Waiting(kind) => {
            record.wait_kind == kind && (unread.object == 0 || record.wait_arg == unread.object)
        }
        Activity::Runnable => record.state == ThreadState::RUNNABLE,
        Activity::InKernel => matches!(captured.kind, Kind::InKernel(_) | Kind::LentToChild),
        Activity::Running | Activity::WithoutCpu => false,
    }
}
