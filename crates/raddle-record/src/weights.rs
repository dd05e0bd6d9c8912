//! What a history and the stacks of some of its spans come to: samples with weights.
//!
//! The exact time of each [`Doing`] is known, and the stacks of some of its spans. These get the
//! time in proportion to what they stand for:
//!
//! | sample | stands for |
//! |---|---|
//! | of a span, read with chance *p* | its length, at least the time between looks, over *p* |
//! | of a carrier that executes | the CPU time since the sample before |
//!
//! A span that is shorter than the time between two looks is seen by chance, too, in proportion to
//! its length; so each one that is seen stands for that time.
//!
//! A doing without any stack borrows those of threads with the same name but for digits: of the
//! same object, else of the same activity. Without these its stack is a note.
//!
//! Time on a carrier may be more than CPU time: the kernel ran another process, or the thread was
//! in the kernel where that is not sampled. The rest is a note of its own. Its part is the same for
//! all threads of a name, because few samples say little of one thread.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::history::{Doing, Position, StackNumber, Told, Total};
use crate::profile::{Activity, Function, Interner, Sample};

/// From so many samples on, equal ones are one.
const SAMPLES_MAX: usize = 1 << 18;
/// The most stacks that are lent.
const LENT_MAX: usize = 16;
/// The part of the time on carriers that may be missing by chance.
const SLACK: f64 = 0.03;

/// A carrier that executed a thread, at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnCpu {
    pub thread: Position,
    pub stack: StackNumber,
    pub at_ns: u64,
    /// The CPU time for which it stands.
    pub ns: u64,
}

/// Of fewer samples nothing is said: a program that executes for so short a time has few.
const SAID_LEAST: f64 = 50.0;

/// Returns what is to be said of samples of carriers that were meant to be `interval_ns` of CPU
/// time apart: if they are fewer than half as many, by how many points shares of what executes may
/// be off. That is twice the standard deviation of a share of a half, by samples that stand for
/// different times.
pub fn shortcoming(on_cpu: &[OnCpu], interval_ns: u64) -> Option<String> {
    let sum: f64 = on_cpu.iter().map(|it| it.ns as f64).sum();
    let squares: f64 = on_cpu.iter().map(|it| (it.ns as f64).powi(2)).sum();
    let meant = sum / interval_ns.max(1) as f64;
    if meant < SAID_LEAST || on_cpu.len() as f64 * 2.0 >= meant {
        return None;
    }
    let points = (100.0 * squares.sqrt() / sum).ceil();
    Some(format!(
        "on a busy machine {} samples of CPU time were taken in place of {meant:.0}: shares of \
         what executes may be off by {points} points",
        on_cpu.len()
    ))
}

/// How a recording was made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// By CLOCK_BOOTTIME.
    pub begin_ns: u64,
    pub interval_ns: u64,
    /// The CPU time of the process, as the kernel counts it: threads executed for no longer.
    pub most_cpu_ns: Option<u64>,
    /// The kernel was sampled, too.
    pub is_with_kernel: bool,
}

/// A sample before its weight is known.
struct Seen {
    doing: Doing,
    stack: u32,
    at_ns: u64,
    stands_for: f64,
}

/// Stacks, with what they stand for.
type Lent = Vec<(u32, f64)>;

/// Returns the samples of a recording. `resolve` gives a reader's stack its number in the interner.
pub fn samples(
    told: &Told,
    on_cpu: &[OnCpu],
    made: &Made,
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
    interner: &mut Interner,
) -> Vec<Sample> {
    let seen = seen(told, on_cpu, resolve);
    let mut sums: FxHashMap<Doing, f64> = FxHashMap::default();
    for it in &seen {
        *sums.entry(it.doing).or_default() += it.stands_for;
    }
    let groups = Groups::of(told);
    let shares = groups.cpu_shares(told, &sums, made);
    let of_cpu = |doing: &Doing| match doing.activity {
        Activity::Running => shares[groups.of_thread(doing.thread)],
        _ => 1.0,
    };
    let mut samples = Vec::new();
    for it in &seen {
        let (Some(total), Some(&sum)) = (told.totals.get(&it.doing), sums.get(&it.doing)) else {
            continue;
        };
        let part = it.stands_for / sum;
        let at_ns = it.at_ns.saturating_sub(made.begin_ns);
        samples.push(sample(
            &it.doing,
            it.stack,
            at_ns,
            total,
            part,
            of_cpu(&it.doing),
        ));
    }
    let lent = groups.lent(&seen);
    let mut without: Vec<_> = told.totals.iter().collect();
    without.sort_by_key(|(doing, total)| (total.first_ns, doing.thread));
    let mut notes = Notes::default();
    for (doing, total) in without {
        let at_ns = total.first_ns.saturating_sub(made.begin_ns);
        let cpu = of_cpu(doing);
        if cpu < 1.0 {
            let note = notes.number(interner, off_cpu(made.is_with_kernel));
            let note = sample(doing, note, at_ns, total, 1.0, 1.0 - cpu);
            samples.push(Sample {
                activity: Activity::WithoutCpu,
                ..note
            });
        }
        if sums.contains_key(doing) || total.ns == 0 {
            continue;
        }
        match groups.lent_to(doing, &lent) {
            Some(stacks) => {
                let sum: f64 = stacks.iter().map(|(_, weight)| weight).sum();
                let each = stacks.iter();
                let of = |&(stack, weight)| sample(doing, stack, at_ns, total, weight / sum, cpu);
                samples.extend(each.map(of));
            }
            None => {
                let note = notes.number(interner, "[stack not read]");
                samples.push(sample(doing, note, at_ns, total, 1.0, cpu));
            }
        }
    }
    share_counts(&mut samples, told);
    if samples.len() > SAMPLES_MAX {
        samples = merged(&samples);
    }
    samples.sort_by_key(|it| (it.at_ns, it.thread));
    samples
}

fn off_cpu(is_with_kernel: bool) -> &'static str {
    if is_with_kernel {
        "[on a carrier without a CPU]"
    } else {
        "[in the kernel, or on a carrier without a CPU]"
    }
}

fn seen(told: &Told, on_cpu: &[OnCpu], resolve: &dyn Fn(StackNumber) -> Option<u32>) -> Vec<Seen> {
    let spans = told.spans.iter().filter_map(|span| {
        Some(Seen {
            doing: span.doing,
            stack: resolve(span.stack)?,
            at_ns: span.from_ns,
            stands_for: span.stands_for_ns,
        })
    });
    let running = on_cpu.iter().filter_map(|it| {
        Some(Seen {
            doing: Doing {
                thread: it.thread,
                activity: Activity::Running,
                object: 0,
            },
            stack: resolve(it.stack)?,
            at_ns: it.at_ns,
            stands_for: it.ns as f64,
        })
    });
    spans.chain(running).collect()
}

fn sample(doing: &Doing, stack: u32, at_ns: u64, total: &Total, part: f64, of: f64) -> Sample {
    Sample {
        thread: doing.thread,
        activity: doing.activity,
        object: doing.object,
        stack,
        at_ns,
        weight_ns: (total.ns as f64 * part * of).round() as u64,
        count: 0,
    }
}

/// Divides the counts of spans among the samples in proportion to their weights, so that no span is
/// counted twice.
fn share_counts(samples: &mut [Sample], told: &Told) {
    let of = |sample: &Sample| Doing {
        thread: sample.thread,
        activity: sample.activity,
        object: sample.object,
    };
    let mut sums: FxHashMap<Doing, u64> = FxHashMap::default();
    for sample in &*samples {
        *sums.entry(of(sample)).or_default() += sample.weight_ns;
    }
    let mut told_of: FxHashMap<Doing, u64> = FxHashMap::default();
    for sample in samples {
        let doing = of(sample);
        let (Some(total), Some(&sum)) = (told.totals.get(&doing), sums.get(&doing)) else {
            continue;
        };
        let before = told_of.entry(doing).or_default();
        let counts = |ns: u64| u128::from(total.count) * u128::from(ns) / u128::from(sum.max(1));
        let earlier = counts(*before);
        *before += sample.weight_ns;
        sample.count = (counts(*before) - earlier) as u64;
    }
}

/// Makes equal samples one, at the time of the first.
fn merged(samples: &[Sample]) -> Vec<Sample> {
    let mut all: FxHashMap<(Doing, u32), Sample> = FxHashMap::default();
    for sample in samples {
        let doing = Doing {
            thread: sample.thread,
            activity: sample.activity,
            object: sample.object,
        };
        all.entry((doing, sample.stack))
            .and_modify(|it| {
                it.weight_ns += sample.weight_ns;
                it.count += sample.count;
                it.at_ns = it.at_ns.min(sample.at_ns);
            })
            .or_insert(*sample);
    }
    all.into_values().collect()
}

/// The stacks of notes, each made once.
#[derive(Default)]
struct Notes(BTreeMap<&'static str, u32>);

impl Notes {
    fn number(&mut self, interner: &mut Interner, text: &'static str) -> u32 {
        *self.0.entry(text).or_insert_with(|| {
            let function = interner.function(Function::note(text));
            interner.stack(vec![function])
        })
    }
}

/// Threads with the same name but for digits.
struct Groups {
    /// By the threads' positions.
    numbers: Vec<usize>,
    count: usize,
}

impl Groups {
    fn of(told: &Told) -> Groups {
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        let numbers = told.threads.iter().map(|thread| {
            let next = known.len();
            let name = thread.name.chars().filter(|it| !it.is_ascii_digit());
            *known.entry(name.collect()).or_insert(next)
        });
        Groups {
            numbers: numbers.collect(),
            count: known.len(),
        }
    }

    fn of_thread(&self, thread: Position) -> usize {
        self.numbers[thread as usize]
    }

    /// Returns for each group which part of its time on carriers is CPU time.
    fn cpu_shares(&self, told: &Told, sums: &FxHashMap<Doing, f64>, made: &Made) -> Vec<f64> {
        let mut times = vec![(0.0, 0.0); self.count];
        for (doing, total) in &told.totals {
            if doing.activity == Activity::Running {
                let (wall, cpu) = &mut times[self.of_thread(doing.thread)];
                *wall += total.ns as f64;
                *cpu += sums.get(doing).copied().unwrap_or(0.0);
            }
        }
        // Samples come by chance: as many more or fewer as the root of their number, twice.
        let share = |&(wall, cpu): &(f64, f64)| {
            let count = cpu / made.interval_ns.max(1) as f64;
            let slack = SLACK + 2.0 / count.sqrt().max(1.0);
            match cpu / wall {
                share if wall == 0.0 || cpu == 0.0 || share + slack >= 1.0 => 1.0,
                share => share,
            }
        };
        let mut shares: Vec<f64> = times.iter().map(share).collect();
        if let Some(most_ns) = made.most_cpu_ns {
            limit(&mut shares, &times, most_ns as f64);
        }
        shares
    }

    /// Returns what groups can lend: for an object, and for an activity.
    fn lent(&self, seen: &[Seen]) -> FxHashMap<(usize, Activity, Option<u64>), Lent> {
        let mut sums: FxHashMap<(usize, Activity, Option<u64>), FxHashMap<u32, f64>> =
            FxHashMap::default();
        for it in seen {
            let group = self.of_thread(it.doing.thread);
            for object in [Some(it.doing.object), None] {
                let stacks = sums.entry((group, it.doing.activity, object)).or_default();
                *stacks.entry(it.stack).or_default() += it.stands_for;
            }
        }
        let most = |stacks: FxHashMap<u32, f64>| {
            let mut stacks: Lent = stacks.into_iter().collect();
            stacks.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            stacks.truncate(LENT_MAX);
            stacks
        };
        sums.into_iter()
            .map(|(key, stacks)| (key, most(stacks)))
            .collect()
    }

    fn lent_to<'l>(
        &self,
        doing: &Doing,
        lent: &'l FxHashMap<(usize, Activity, Option<u64>), Lent>,
    ) -> Option<&'l Lent> {
        let group = self.of_thread(doing.thread);
        [Some(doing.object), None]
            .into_iter()
            .find_map(|object| lent.get(&(group, doing.activity, object)))
    }
}

/// Reduces shares of times on carriers until these come to no more than a CPU time. What was given
/// to groups because they have few samples goes first, in equal parts; then a part of all. `times`
/// are those on carriers, and those of the samples.
fn limit(shares: &mut [f64], times: &[(f64, f64)], most: f64) {
    let whole: f64 = times.iter().map(|(wall, _)| wall).sum();
    let used = |shares: &[f64]| -> f64 {
        let each = shares.iter().zip(times);
        each.map(|(share, (wall, _))| share * wall).sum()
    };
    let given = used(shares);
    if whole == 0.0 || given <= most {
        return;
    }
    // A group without a sample has executed as others have, but took nothing of their samples.
    let each = times.iter().zip(&*shares);
    let of_samples: f64 = each.map(|(it, share)| it.1.min(share * it.0)).sum();
    let without = times.iter().filter(|it| it.1 == 0.0).map(|it| it.0);
    let without = without.sum::<f64>().max(1.0);
    let usual = (most / whole).min((most - of_samples).max(0.0) / without);
    let sampled = times.iter().zip(&*shares).map(|(&(wall, cpu), &share)| {
        let sampled = if cpu == 0.0 { usual } else { cpu / wall };
        sampled.min(share)
    });
    let sampled: Vec<f64> = sampled.collect();
    let least = used(&sampled);
    let (kept, of_all) = if least >= most {
        (0.0, most / least)
    } else {
        ((most - least) / (given - least), 1.0)
    };
    for (share, least) in shares.iter_mut().zip(sampled) {
        *share = (least + (*share - least) * kept) * of_all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Span;
    use crate::profile::Thread;
    use raddle_inspect::WaitKind;

    const MADE: Made = Made {
        begin_ns: 100,
        interval_ns: 10,
        most_cpu_ns: None,
        is_with_kernel: true,
    };
    const MUTEX: Activity = Activity::Waiting(WaitKind::MUTEX);

    fn number(number: u32) -> StackNumber {
        StackNumber { epoch: 0, number }
    }

    #[test]
    fn samples_that_are_too_few_say_how_far_they_are_off() {
        let on_cpu = |count: usize, ns| {
            let one = OnCpu {
                thread: 0,
                stack: number(0),
                at_ns: 0,
                ns,
            };
            vec![one; count]
        };
        assert_eq!(shortcoming(&on_cpu(1000, 10), 10), None);
        assert_eq!(shortcoming(&on_cpu(500, 20), 10), None);
        assert_eq!(shortcoming(&on_cpu(4, 100), 10), None, "it hardly executed");
        assert_eq!(shortcoming(&[], 10), None);
        let said = |on_cpu: &[OnCpu]| shortcoming(on_cpu, 10).unwrap();
        let few = said(&on_cpu(100, 100));
        assert!(few.contains(" 100 samples of CPU time were taken in place of 1000:"));
        assert!(few.ends_with("off by 10 points"), "{few}");
        // A few that stand for most of the time say little.
        let uneven = said(&[on_cpu(100, 100), on_cpu(4, 10_000)].concat());
        assert!(uneven.ends_with("off by 41 points"), "{uneven}");
    }

    fn doing(thread: Position, activity: Activity, object: u64) -> Doing {
        Doing {
            thread,
            activity,
            object,
        }
    }

    fn told(names: &[&str], totals: &[(Doing, u64)], spans: &[(Doing, u32, u64, f64)]) -> Told {
        let thread = |name: &&str| Thread {
            name: (*name).into(),
            ..Thread::default()
        };
        let total = |&(doing, ns): &(Doing, u64)| {
            let total = Total {
                ns,
                count: 4,
                longest_ns: ns,
                first_ns: 100,
            };
            (doing, total)
        };
        let span = |&(doing, stack, ns, chance): &(Doing, u32, u64, f64)| Span {
            doing,
            stack: number(stack),
            from_ns: 150,
            ns,
            stands_for_ns: ns.max(10) as f64 / chance,
        };
        Told {
            threads: names.iter().map(thread).collect(),
            totals: totals.iter().map(total).collect(),
            ended: FxHashMap::default(),
            wakers: FxHashMap::default(),
            holds: FxHashMap::default(),
            spans: spans.iter().map(span).collect(),
            dropped_spans: 0,
        }
    }

    fn weights(told: &Told, on_cpu: &[OnCpu]) -> Vec<(u32, u32, u64)> {
        let mut interner = Interner::default();
        let resolve = |stack: StackNumber| Some(stack.number);
        // The first stacks are those of readers.
        for stack in 0..8 {
            interner.stack(vec![stack, 100]);
        }
        let samples = samples(told, on_cpu, &MADE, &resolve, &mut interner);
        let mut weights: Vec<_> = samples
            .iter()
            .map(|it| (it.thread, it.stack, it.weight_ns))
            .collect();
        weights.sort_unstable();
        weights
    }

    #[test]
    fn stacks_share_the_exact_time_by_what_they_stand_for() {
        let wait = doing(0, MUTEX, 7);
        // 30 ns with chance 1, and 2 ns, which are an interval of 10, with chance a half.
        let told = told(
            &["a"],
            &[(wait, 1000)],
            &[(wait, 1, 30, 1.0), (wait, 2, 2, 0.5)],
        );
        assert_eq!(weights(&told, &[]), [(0, 1, 600), (0, 2, 400)]);
    }

    #[test]
    fn each_span_is_counted_once() {
        let wait = doing(0, MUTEX, 7);
        let spans: Vec<_> = (0..9).map(|it| (wait, it % 3, 30, 1.0)).collect();
        let told = told(&["a"], &[(wait, 1000)], &spans);
        let mut interner = Interner::default();
        let resolve = |stack: StackNumber| Some(stack.number);
        let samples = samples(&told, &[], &MADE, &resolve, &mut interner);
        assert_eq!(samples.len(), 9);
        assert_eq!(samples.iter().map(|it| it.count).sum::<u64>(), 4);
    }

    #[test]
    fn a_wait_without_a_stack_borrows_from_threads_of_the_name() {
        let (first, second) = (doing(0, MUTEX, 7), doing(1, MUTEX, 7));
        let (other, alone) = (doing(1, MUTEX, 9), doing(2, MUTEX, 7));
        let told = told(
            &["pool-1", "pool-2", "main"],
            &[(first, 100), (second, 60), (other, 40), (alone, 5)],
            &[(first, 3, 20, 1.0)],
        );
        let note = 8;
        let expected = [(0, 3, 100), (1, 3, 40), (1, 3, 60), (2, note, 5)];
        assert_eq!(weights(&told, &[]), expected);
    }

    #[test]
    fn time_without_a_cpu_is_a_note() {
        let running = doing(0, Activity::Running, 0);
        let told = told(&["a"], &[(running, 20_000)], &[]);
        let on_cpu = |stack| OnCpu {
            thread: 0,
            stack: number(stack),
            at_ns: 120,
            ns: 10,
        };
        let half: Vec<_> = (0..1000).map(|it| on_cpu(1 + it % 2)).collect();
        let weights = weights(&told, &half);
        let of = |stack| -> u64 {
            let of_stack = weights.iter().filter(|it| it.1 == stack);
            of_stack.map(|it| it.2).sum()
        };
        assert_eq!((of(1), of(2), of(8)), (5000, 5000, 10_000));
        let all: Vec<_> = (0..1960).map(|_| on_cpu(1)).collect();
        let whole = super::tests::weights(&told, &all);
        assert!(whole.iter().all(|it| it.1 == 1));
    }

    #[test]
    fn threads_without_samples_take_no_cpu_time_of_those_with_samples() {
        // The first has samples, and the second waited in the kernel.
        let times = [(1000.0, 400.0), (1000.0, 0.0)];
        let mut shares = [0.4, 1.0];
        limit(&mut shares, &times, 420.0);
        let off = (shares[0] - 0.4).abs() + (shares[1] - 0.02).abs();
        assert!(off < 1e-9, "{shares:?}");
    }

    #[test]
    fn threads_execute_for_no_longer_than_the_kernel_says() {
        // The first has 300 us of samples, the second too few to tell, and the third none.
        let running = |thread| doing(thread, Activity::Running, 0);
        let times = [
            (running(0), 1_000_000),
            (running(1), 100_000),
            (running(2), 100_000),
        ];
        let told = told(&["a", "b", "c"], &times, &[]);
        let sample = |thread, ns| OnCpu {
            thread,
            stack: number(1),
            at_ns: 120,
            ns,
        };
        let mut on_cpu: Vec<_> = (0..30).map(|_| sample(0, 10_000)).collect();
        on_cpu.push(sample(1, 20_000));
        let on_cpu_ns = |most_cpu_ns| -> u64 {
            let made = Made {
                most_cpu_ns,
                interval_ns: 10_000,
                ..MADE
            };
            let mut interner = Interner::default();
            let resolve = |stack: StackNumber| Some(stack.number);
            let samples = samples(&told, &on_cpu, &made, &resolve, &mut interner);
            let on_cpu = samples.iter().filter(|it| it.activity.is_on_cpu());
            on_cpu.map(|it| it.weight_ns).sum()
        };
        // Each sample is rounded.
        let is_near = |most_us: Option<u64>, us: u64| {
            let found_ns = on_cpu_ns(most_us.map(|it| it * 1000));
            assert!(
                found_ns.abs_diff(us * 1000) <= 40,
                "{found_ns}, not {us} us"
            );
        };
        is_near(None, 500);
        is_near(Some(1200), 500);
        is_near(Some(400), 400);
        is_near(Some(100), 100);
    }
}
