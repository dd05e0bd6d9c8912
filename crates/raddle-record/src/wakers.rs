//! Which code ended the waits of which: wake-ups by timers, the kernel and ends of threads, which
//! are counted exactly, and samples of those by threads that run.
//!
//! 1. A sample has the stamp of its event, and stands for some time waited.
//! 2. The sample is read before the event is told ([`Wakers::is_due`]), so the history still has
//!    the wait that the wake-up ends: what the thread waited for, and since when.
//! 3. At the end, the time of each place where threads waited is divided ([`divided`]): the parts
//!    that were counted exactly are those of the same wait, and the rest is shared among the
//!    samples of the place in proportion to the time for which they stand. So the parts of a place
//!    have its time as their sum.
//!
//! | a place without samples borrows those of | |
//! |---|---|
//! | the same thread and object | at another place |
//! | threads with the same name but for digits | at the same object, else in the same activity |
//!
//! Without these, it is not known what ended the waits.

use std::collections::{BTreeMap, VecDeque};

use raddle_inspect::{By, Event, EventKind, WaitKind};
use raddle_stacks::WakeSample;
use rustc_hash::FxHashMap;

use crate::clock::Clock;
use crate::history::{Doing, Ended, History, Position, StackNumber, Told};
use crate::profile::{Activity, Sample, Waker, Waking};

/// The most samples that wait for their events, and that are kept.
const PENDING_MAX: usize = 1 << 12;
const OF_WORDS_MAX: usize = 1 << 8;
const SAMPLES_MAX: usize = 1 << 18;
/// The most wakers of a place; the rest is not told apart.
const WAKERS_MAX: usize = 32;

/// A sample of which the event was found.
pub struct Joined {
    pub sample: WakeSample,
    pub doing: Doing,
    pub waker: Position,
    pub stands_for: f64,
}

/// A wake-up of which the stacks were read.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    pub doing: Doing,
    pub stack: Option<StackNumber>,
    pub waker: Position,
    pub waker_stack: Option<StackNumber>,
    pub stands_for: f64,
}

/// See the module.
#[derive(Default)]
pub struct Wakers {
    pending: VecDeque<WakeSample>,
    /// Those of shared words, for which threads wait in the kernel. The event comes later, from
    /// another kernel thread.
    of_words: VecDeque<WakeSample>,
    joined: Vec<Joined>,
    /// The samples of all events up to this stamp were read.
    read_to: u64,
    woken: Vec<Woken>,
    /// Samples without an event.
    unmatched: u64,
}

impl Wakers {
    /// Returns true if samples must be read before this event is told.
    pub fn is_due(&self, event: &Event) -> bool {
        event.kind == EventKind::WAKE && event.stamp > self.read_to
    }

    /// Takes the samples, in the order of their stamps, that were read at `stamp` or later.
    pub fn add(&mut self, samples: Vec<WakeSample>, stamp: u64) {
        self.read_to = stamp;
        let (of_words, samples): (Vec<_>, Vec<_>) =
            samples.into_iter().partition(|sample| sample.word != 0);
        self.of_words.extend(of_words);
        let over = self.of_words.len().saturating_sub(OF_WORDS_MAX);
        self.of_words.drain(..over);
        self.unmatched += over as u64;
        let room = PENDING_MAX - self.pending.len().min(PENDING_MAX);
        self.pending.extend(samples.into_iter().take(room));
        self.pending
            .make_contiguous()
            .sort_by_key(|sample| sample.stamp);
    }

    /// Takes an event that the history has not got yet.
    pub fn event(&mut self, history: &History, event: &Event, at_ns: u64, clock: &Clock) {
        if event.kind != EventKind::WAKE || self.pending.is_empty() && self.of_words.is_empty() {
            return;
        }
        if let By::Thread(tid) = Event::by(event.other) {
            self.join(history, event, at_ns, tid, clock);
            self.join_of_word(history, event, at_ns, tid, clock);
        }
    }

    fn join(&mut self, history: &History, event: &Event, at_ns: u64, waker: u32, clock: &Clock) {
        while let Some(sample) = self.pending.pop_front_if(|it| it.stamp <= event.stamp) {
            let is_same =
                (sample.stamp, sample.thread, sample.waker) == (event.stamp, event.thread, waker);
            let waiting = history.waiting(event.thread).filter(|_| is_same);
            let (Some((doing, since_ns)), Some(waker)) = (waiting, history.position(waker)) else {
                self.unmatched += 1;
                continue;
            };
            let ns = at_ns.saturating_sub(since_ns) as f64;
            self.keep(sample, doing, waker, ns, clock);
        }
    }

    /// Finds the sample of a wake-up of a shared word: the first since the thread began to wait.
    fn join_of_word(
        &mut self,
        history: &History,
        event: &Event,
        at_ns: u64,
        waker: u32,
        clock: &Clock,
    ) {
        let Some((doing, since_ns)) = history.waiting(event.thread) else {
            return;
        };
        let is_it = |it: &WakeSample| {
            (it.waker, it.word) == (waker, event.arg)
                && it.stamp <= event.stamp
                && clock.boot_ns(it.stamp) >= since_ns
        };
        if event.wait == WaitKind::FUTEX
            && let Some(at) = self.of_words.iter().position(is_it)
            && let Some(sample) = self.of_words.remove(at)
            && let Some(waker) = history.position(waker)
        {
            let ns = at_ns.saturating_sub(since_ns) as f64;
            self.keep(sample, doing, waker, ns, clock);
        }
    }

    /// Keeps a sample of a wait that took so long by its events.
    fn keep(&mut self, sample: WakeSample, doing: Doing, waker: Position, ns: f64, clock: &Clock) {
        // The process may have counted a wait from before that the thread was followed.
        let from = sample.stamp.saturating_sub(sample.waited);
        let said_ns = clock.boot_ns(sample.stamp) - clock.boot_ns(from);
        let stands_for = sample.stands_for as f64 * (ns / (said_ns as f64).max(1.0)).min(1.0);
        if self.joined.len() + self.woken.len() < SAMPLES_MAX {
            self.joined.push(Joined {
                sample,
                doing,
                waker,
                stands_for,
            });
        }
    }

    /// Has `read` read the stacks of the samples of which the events have come: that of the waker,
    /// and that of the thread that it woke.
    pub fn read(&mut self, mut read: impl FnMut(&WakeSample) -> [Option<StackNumber>; 2]) {
        for joined in self.joined.drain(..) {
            let [waker_stack, stack] = read(&joined.sample);
            self.woken.push(Woken {
                doing: joined.doing,
                stack,
                waker: joined.waker,
                waker_stack,
                stands_for: joined.stands_for,
            });
        }
    }

    /// Returns how many samples had no event.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// Ends the recording.
    pub fn finish(self) -> Vec<Woken> {
        self.woken
    }
}

/// The thread that waited, the kind of the wait, the object, the stack, and the waker.
type Part = (Position, u32, u64, u32, Waker);
/// A waker with its stack.
type Key = (Position, Option<u32>);
/// What ended waits, with the time for which it stands.
type Shares = Vec<(Waker, f64)>;

/// Divides the time of samples of waits among what ended these waits. `resolve` gives a reader's
/// stack its number in the profile. `plain` gives a stack that waits for a monitor of Java the
/// number of the equal one of a wake-up, which has none.
pub fn divided(
    woken: &[Woken],
    told: &Told,
    samples: &[Sample],
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
    plain: &dyn Fn(u32) -> u32,
) -> Vec<Waking> {
    let by = Places::of(woken, told, resolve);
    let mut parts: BTreeMap<Part, (Activity, u64)> = BTreeMap::new();
    for sample in samples {
        let Activity::Waiting(kind) = sample.activity else {
            continue;
        };
        let doing = Doing {
            thread: sample.thread,
            activity: sample.activity,
            object: sample.object,
        };
        let total_ns = told.totals.get(&doing).map_or(0, |total| total.ns);
        let ended = told.ended.get(&doing).copied().unwrap_or_default();
        let shares = shares(&by, &doing, plain(sample.stack), total_ns, ended);
        let mut left = sample.weight_ns;
        let last = shares.len() - 1;
        for (at, (waker, share)) in shares.into_iter().enumerate() {
            let ns = if at == last {
                left
            } else {
                ((sample.weight_ns as f64 * share).round() as u64).min(left)
            };
            left -= ns;
            let key = (sample.thread, kind.0, sample.object, sample.stack, waker);
            let part = parts.entry(key).or_insert((sample.activity, 0));
            part.1 = part.1.saturating_add(ns);
        }
    }
    let waking = |((thread, _, object, stack, waker), (activity, weight_ns))| Waking {
        thread,
        activity,
        object,
        stack,
        waker,
        weight_ns,
    };
    let parts = parts.into_iter().filter(|(_, (_, ns))| *ns != 0);
    parts.map(waking).collect()
}

/// Returns the parts of a place's time, which are 1 together: at least one.
fn shares(by: &Places, doing: &Doing, stack: u32, total_ns: u64, ended: Ended) -> Shares {
    let total = (total_ns as f64).max(1.0);
    let mut left = 1.0;
    let mut shares = Shares::new();
    for (waker, ns) in [
        (Waker::Timer, ended.timer_ns),
        (Waker::Kernel, ended.kernel_ns),
        (Waker::End, ended.end_ns),
        (Waker::None, ended.lasting_ns),
    ] {
        let share = (ns as f64 / total).min(left);
        if ns != 0 {
            shares.push((waker, share));
        }
        left -= share;
    }
    // A part of a million is a matter of rounding.
    if left < 1e-6 && !shares.is_empty() {
        return shares;
    }
    match by.find(doing, stack) {
        Some(threads) => shares.extend(threads.iter().map(|&(waker, part)| (waker, part * left))),
        None => shares.push((Waker::Unknown, left)),
    }
    shares
}

/// The samples, by what they are samples of. The parts of each are 1 together.
struct Places {
    /// By the threads' positions: their names without digits, as numbers.
    groups: Vec<usize>,
    by_stack: FxHashMap<(Doing, u32), Shares>,
    by_doing: FxHashMap<Doing, Shares>,
    by_object: FxHashMap<(usize, Activity, u64), Shares>,
    by_activity: FxHashMap<(usize, Activity), Shares>,
}

impl Places {
    fn of(woken: &[Woken], told: &Told, resolve: &dyn Fn(StackNumber) -> Option<u32>) -> Places {
        let groups = groups(told);
        let mut by_stack = FxHashMap::default();
        let mut by_doing = FxHashMap::default();
        let mut by_object = FxHashMap::default();
        let mut by_activity = FxHashMap::default();
        for woken in woken {
            let doing = woken.doing;
            let key: Key = (woken.waker, woken.waker_stack.and_then(resolve));
            let Some(&group) = groups.get(doing.thread as usize) else {
                continue;
            };
            if let Some(stack) = woken.stack.and_then(resolve) {
                count(&mut by_stack, (doing, stack), key, woken.stands_for);
            }
            count(&mut by_doing, doing, key, woken.stands_for);
            let activity = (group, doing.activity);
            let object = (group, doing.activity, doing.object);
            count(&mut by_object, object, key, woken.stands_for);
            count(&mut by_activity, activity, key, woken.stands_for);
        }
        Places {
            groups,
            by_stack: finished(by_stack),
            by_doing: finished(by_doing),
            by_object: finished(by_object),
            by_activity: finished(by_activity),
        }
    }

    fn find(&self, doing: &Doing, stack: u32) -> Option<&Shares> {
        let group = self.groups.get(doing.thread as usize).copied();
        let group = group.unwrap_or(usize::MAX);
        let object = (group, doing.activity, doing.object);
        self.by_stack
            .get(&(*doing, stack))
            .or_else(|| self.by_doing.get(doing))
            .or_else(|| self.by_object.get(&object))
            .or_else(|| self.by_activity.get(&(group, doing.activity)))
    }
}

fn groups(told: &Told) -> Vec<usize> {
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    let number = |name: &String| {
        let next = known.len();
        let name = name.chars().filter(|it| !it.is_ascii_digit());
        *known.entry(name.collect()).or_insert(next)
    };
    told.threads.iter().map(|it| &it.name).map(number).collect()
}

type Counts<K> = FxHashMap<K, FxHashMap<Key, f64>>;

fn count<K: std::hash::Hash + Eq>(all: &mut Counts<K>, of: K, key: Key, stands_for: f64) {
    *all.entry(of).or_default().entry(key).or_default() += stands_for;
}

fn finished<K: std::hash::Hash + Eq>(all: Counts<K>) -> FxHashMap<K, Shares> {
    let shares = |(of, counts): (K, FxHashMap<Key, f64>)| (of, parts(counts));
    all.into_iter().map(shares).collect()
}

/// Returns the part of each waker, the largest first.
fn parts(counts: FxHashMap<Key, f64>) -> Shares {
    let sum: f64 = counts.values().sum();
    let mut counts: Vec<(Key, f64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let others: f64 = counts.iter().skip(WAKERS_MAX).map(|(_, part)| part).sum();
    counts.truncate(WAKERS_MAX);
    let part = |((thread, stack), part): (Key, f64)| {
        let waker = Waker::Thread { thread, stack };
        (waker, part / sum.max(f64::MIN_POSITIVE))
    };
    let mut parts: Shares = counts.into_iter().map(part).collect();
    if others != 0.0 {
        parts.push((Waker::Unknown, others / sum));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Total;
    use crate::profile::Thread;

    const CONDITION: Activity = Activity::Waiting(WaitKind::CONDVAR);

    fn doing(thread: Position, object: u64) -> Doing {
        Doing {
            thread,
            activity: CONDITION,
            object,
        }
    }

    fn told(totals: &[(Doing, u64)]) -> Told {
        let thread = |name: &str| Thread {
            name: name.into(),
            ..Thread::default()
        };
        let total = |&(doing, ns): &(Doing, u64)| {
            let total = Total {
                ns,
                ..Total::default()
            };
            (doing, total)
        };
        Told {
            threads: ["pool-1", "pool-2", "main"].map(thread).to_vec(),
            totals: totals.iter().map(total).collect(),
            ended: FxHashMap::default(),
            wakers: FxHashMap::default(),
            holds: FxHashMap::default(),
            spans: Vec::new(),
            dropped_spans: 0,
        }
    }

    fn woken(doing: Doing, stack: Option<u32>, waker_stack: u32, stands_for: f64) -> Woken {
        let number = |number| StackNumber { epoch: 0, number };
        Woken {
            doing,
            stack: stack.map(number),
            waker: 2,
            waker_stack: Some(number(waker_stack)),
            stands_for,
        }
    }

    /// Divides a place's time of 999 ns; returns the parts by waker. Stacks from 100 on are at a
    /// monitor, and equal to those with 100 less.
    fn parts(told: &Told, woken: &[Woken], doing: Doing, stack: u32) -> Vec<(Waker, u64)> {
        let sample = Sample {
            thread: doing.thread,
            activity: doing.activity,
            object: doing.object,
            stack,
            at_ns: 0,
            weight_ns: 999,
            count: 1,
        };
        let resolve = |stack: StackNumber| Some(stack.number);
        let plain = |stack| stack % 100;
        let divided = divided(woken, told, &[sample], &resolve, &plain);
        let sum: u64 = divided.iter().map(|part| part.weight_ns).sum();
        assert_eq!(sum, sample.weight_ns);
        divided.iter().map(|it| (it.waker, it.weight_ns)).collect()
    }

    fn thread(stack: u32) -> Waker {
        Waker::Thread {
            thread: 2,
            stack: Some(stack),
        }
    }

    #[test]
    fn a_place_is_divided_among_its_own_samples() {
        let (wait, other) = (doing(0, 7), doing(0, 9));
        let told = told(&[(wait, 999)]);
        let wakings = [
            woken(wait, Some(1), 20, 1.0),
            woken(wait, Some(1), 21, 2.0),
            woken(wait, Some(2), 22, 9.0),
            woken(other, Some(1), 23, 9.0),
        ];
        let found = parts(&told, &wakings, wait, 1);
        assert_eq!(found, [(thread(20), 333), (thread(21), 666)]);
        assert_eq!(parts(&told, &wakings, wait, 101), found, "at a monitor");
        // Another stack at the same object has the parts of all of its samples.
        let found = parts(&told, &wakings, wait, 3);
        assert_eq!(found[2], (thread(22), 749));
    }

    #[test]
    fn timers_and_the_kernel_have_their_exact_parts() {
        let wait = doing(0, 7);
        let mut told = told(&[(wait, 2000)]);
        let ended = Ended {
            timer_ns: 1000,
            kernel_ns: 0,
            end_ns: 0,
            lasting_ns: 500,
        };
        told.ended.insert(wait, ended);
        let wakings = [woken(wait, None, 20, 5.0)];
        let found = parts(&told, &wakings, wait, 1);
        let expected = [(thread(20), 249), (Waker::Timer, 500), (Waker::None, 250)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_place_without_samples_borrows_or_is_not_known() {
        let told = told(&[]);
        let wakings = [woken(doing(0, 7), Some(1), 20, 5.0)];
        let all = [(thread(20), 999)];
        assert_eq!(parts(&told, &wakings, doing(1, 7), 4), all);
        assert_eq!(parts(&told, &wakings, doing(1, 8), 4), all);
        let none = [(Waker::Unknown, 999)];
        assert_eq!(parts(&told, &wakings, doing(2, 7), 4), none);
        assert_eq!(parts(&told, &wakings, doing(77, 7), 4), none);
    }
}
