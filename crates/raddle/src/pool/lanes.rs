//! The shared queue of a pool: a lane for each priority, first in, first out.
//!
//! The queue is plain data under the pool's one lock. Workers take batches, so they take the lock
//! once for many items; a queueing thread takes it once for each item. Items are kept in chunks of
//! a page: a backlog of a million never moves as a whole, as it would in one growing buffer.

use super::Priority;
use super::job::Job;
use std::collections::VecDeque;

/// Jobs in a chunk: one page of them.
const CHUNK: usize = 128;
/// Empty chunks that are kept for reuse.
const SPARE_CHUNKS: usize = 16;
/// In one of so many takes the lowest lane comes first, so that no lane starves.
const LOWEST_FIRST: u32 = 64;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; Priority::COUNT],
    spare: Vec<VecDeque<Job>>,
    takes: u32,
}

#[derive(Default)]
struct Lane {
    chunks: VecDeque<VecDeque<Job>>,
    len: usize,
}

impl Lanes {
    /// Jobs in all lanes.
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.len).sum()
    }

    /// Jobs of the highest priority.
    pub(super) fn urgent(&self) -> usize {
        self.lanes[Priority::High as usize].len
    }

    /// Appends a job to its lane.
    #[inline(always)]
    pub(super) fn push(&mut self, priority: Priority, job: Job) {
        let lane = &mut self.lanes[priority as usize];
        lane.len += 1;
        match lane.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push_back(job),
            _ => {
                let spare = self.spare.pop();
                let mut chunk = spare.unwrap_or_else(|| VecDeque::with_capacity(CHUNK));
                chunk.push_back(job);
                lane.chunks.push_back(chunk);
            }
        }
    }

    /// Moves up to `most` jobs of one lane, the oldest first, to the end of `batch`.
    pub(super) fn take(&mut self, most: usize, batch: &mut Vec<Job>) {
        self.takes = self.takes.wrapping_add(1);
        let occupied = |lane: &usize| self.lanes[*lane].len > 0;
        let lane = match self.takes % LOWEST_FIRST {
            0 => (0..Priority::COUNT).rev().find(occupied),
            _ => (0..Priority::COUNT).find(occupied),
        };
        if let Some(lane) = lane {
            self.take_from(lane, most, batch);
        }
    }

    fn take_from(&mut self, lane: usize, most: usize, batch: &mut Vec<Job>) {
        let lane = &mut self.lanes[lane];
        let mut left = most.min(lane.len);
        lane.len -= left;
        while left > 0 {
            let chunk = &mut lane.chunks[0];
            let here = left.min(chunk.len());
            batch.extend(chunk.drain(..here));
            left -= here;
            if chunk.is_empty() {
                let chunk = lane.chunks.pop_front();
                self.spare.extend(chunk);
                self.spare.truncate(SPARE_CHUNKS);
            }
        }
    }

    /// Takes the oldest job of the lowest lane that has one.
    pub(super) fn take_least(&mut self) -> Option<Job> {
        let lanes = (0..Priority::COUNT).rev();
        let lane = lanes.into_iter().find(|&lane| self.lanes[lane].len > 0)?;
        let mut batch = Vec::with_capacity(1);
        self.take_from(lane, 1, &mut batch);
        batch.pop()
    }

    /// Takes all jobs.
    pub(super) fn clear(&mut self) -> Vec<Job> {
        let mut all = Vec::with_capacity(self.len());
        (0..Priority::COUNT).for_each(|lane| self.take_from(lane, usize::MAX, &mut all));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Fixture(Lanes, mpsc::Sender<u32>, mpsc::Receiver<u32>);

    impl Fixture {
        fn new() -> Self {
            let (sender, receiver) = mpsc::channel();
            Self(Lanes::default(), sender, receiver)
        }

        fn push(&mut self, priority: Priority, number: u32) {
            let sender = self.1.clone();
            let job = Job::new(move || sender.send(number).unwrap());
            self.0.push(priority, job);
        }

        fn take(&mut self, most: usize) -> Vec<u32> {
            let mut batch = Vec::new();
            self.0.take(most, &mut batch);
            batch.into_iter().for_each(Job::run);
            self.2.try_iter().collect()
        }
    }

    #[test]
    fn a_lane_is_first_in_first_out_over_its_chunks() {
        let mut lanes = Fixture::new();
        (0..1000).for_each(|number| lanes.push(Priority::Normal, number));
        let mut seen = lanes.take(1);
        while lanes.0.len() > 0 {
            seen.extend(lanes.take(77));
        }
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn higher_lanes_come_first_and_lower_ones_do_not_starve() {
        let mut lanes = Fixture::new();
        lanes.push(Priority::Low, 1000);
        (0..100).for_each(|number| lanes.push(Priority::High, number));
        let seen: Vec<_> = (0..100).flat_map(|_| lanes.take(1)).collect();
        let low = seen.iter().position(|&number| number == 1000).unwrap();
        assert!((1..LOWEST_FIRST as usize).contains(&low), "{low}");
        assert_eq!((lanes.0.len(), lanes.0.urgent()), (1, 1));
    }

    #[test]
    fn the_least_is_the_oldest_of_the_lowest() {
        let mut lanes = Fixture::new();
        lanes.push(Priority::High, 1);
        lanes.push(Priority::Normal, 2);
        lanes.push(Priority::Normal, 3);
        lanes.0.take_least().unwrap().run();
        assert_eq!(lanes.2.try_recv(), Ok(2));
        assert_eq!(lanes.0.clear().len(), 2);
        assert!(lanes.0.take_least().is_none());
    }
}
