//! The tracks of threads.

use std::cmp::Reverse;

use super::TRACKS;
use crate::outputs::names;
use crate::profile::{Profile, Thread};

/// A track.
pub(super) struct Track {
    pub tid: u32,
    pub name: String,
    pub began_ns: u64,
    pub ended_ns: Option<u64>,
}

/// All tracks; the last one may be that of many threads.
pub(super) struct Tracks {
    pub all: Vec<Track>,
    /// The tracks of threads, by their positions.
    of_threads: Vec<usize>,
}

impl Tracks {
    /// The heaviest threads have a track each: first those that used a CPU most.
    pub(super) fn of(profile: &Profile) -> Tracks {
        let threads = &profile.threads;
        let mut order: Vec<usize> = (0..threads.len()).collect();
        order.sort_by_key(|&position| Reverse(weight(&threads[position])));
        let (own, rest) = order.split_at(order.len().min(TRACKS));
        let mut own = own.to_vec();
        // The first thread of a process is its main thread.
        own.sort_unstable();
        let mut tracks = Tracks {
            all: own.iter().map(|&it| track(&threads[it])).collect(),
            of_threads: vec![own.len(); threads.len()],
        };
        for (number, &position) in own.iter().enumerate() {
            tracks.of_threads[position] = number;
        }
        let is_short = |sample: &crate::profile::Sample| sample.thread as usize >= threads.len();
        if !rest.is_empty() || profile.samples.iter().any(is_short) {
            tracks.all.push(Track {
                tid: u32::MAX,
                name: format!("{} other threads", rest.len()),
                began_ns: 0,
                ended_ns: None,
            });
        }
        tracks
    }

    /// Returns a thread's track.
    pub(super) fn of_thread(&self, thread: u32) -> usize {
        let known = self.of_threads.get(thread as usize).copied();
        known.unwrap_or(self.all.len().saturating_sub(1))
    }
}

fn weight(thread: &Thread) -> (u64, u64, u64) {
    let held = thread.in_kernel_ns.saturating_add(thread.runnable_ns);
    (thread.running_ns, held, thread.waiting_ns)
}

fn track(thread: &Thread) -> Track {
    Track {
        tid: thread.tid,
        name: names::thread(thread),
        began_ns: thread.began_ns.unwrap_or(0),
        ended_ns: thread.ended_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_have_few_tracks() {
        let thread = |tid: u32| Thread {
            tid,
            running_ns: u64::from(tid % 250),
            ..Thread::default()
        };
        let profile = Profile {
            threads: (0..1000).map(thread).collect(),
            ..Profile::default()
        };
        let tracks = Tracks::of(&profile);
        assert_eq!(tracks.all.len(), TRACKS + 1);
        assert_eq!(tracks.all[TRACKS].name, "800 other threads");
        assert_eq!(tracks.of_thread(0), TRACKS);
        assert_eq!(tracks.all[tracks.of_thread(249)].tid, 249);
        assert_eq!(tracks.of_thread(u32::MAX), TRACKS);
    }

    #[test]
    fn few_threads_have_a_track_each() {
        let profile = crate::outputs::samples::small();
        assert_eq!(Tracks::of(&profile).all.len(), 10);
    }
}
