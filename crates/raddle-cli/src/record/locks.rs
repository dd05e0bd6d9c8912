//! The locks of a recording: the waits for them, and what their holders did meanwhile.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use raddle_inspect::WaitKind;
use raddle_record::history::{StackNumber, Told};
use raddle_record::profile::{Activity, Holder, Holds, Lock};
use raddle_stacks::locks::ObjectKind;

use super::recorder::Holding;
use super::result::{Kinds, Object};

/// The most stacks of a lock that are told.
const STACKS_MAX: usize = 16;
/// Waits that are not shown for so long are mentioned.
const WORTH_SAYING_NS: u64 = 100_000_000;
/// The most locks.
const LOCKS_MAX: usize = 1 << 12;

/// Returns the locks that threads waited for, the longest time first.
pub(super) fn locks(
    told: &Told,
    kinds: &Kinds<'_>,
    names: &HashMap<Object, String>,
    holders: &[Holding],
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
) -> Vec<Lock> {
    let mut locks: HashMap<Object, Lock> = HashMap::new();
    for (doing, total) in &told.totals {
        let Activity::Waiting(kind) = doing.activity else {
            continue;
        };
        let object = (kind, doing.object);
        let Some(kind) = kinds.get(&object).filter(|kind| kind.is_lock()) else {
            continue;
        };
        let lock = locks.entry(object).or_insert_with(|| Lock {
            kind: kind.word_of_all().to_owned(),
            address: doing.object,
            name: names.get(&object).cloned(),
            ..Lock::default()
        });
        lock.waits += total.count;
        lock.waited_ns += total.ns;
        lock.longest_wait_ns = lock.longest_wait_ns.max(total.longest_ns);
        lock.waiters += 1;
    }
    for (doing, ended) in &told.ended {
        if let Activity::Waiting(kind) = doing.activity
            && let Some(lock) = locks.get_mut(&(kind, doing.object))
        {
            lock.ended_elsewhere_ns += ended.kernel_ns;
        }
    }
    for (object, hold) in &told.holds {
        if let Some(lock) = locks.get_mut(object) {
            lock.holds = (hold.count != 0).then_some(Holds {
                count: hold.count,
                ns: hold.ns,
                longest_ns: hold.longest_ns,
            });
        }
    }
    add_waiters(&mut locks, told, resolve);
    add_holders(&mut locks, told, holders, resolve);
    let mut locks: Vec<Lock> = locks.into_values().collect();
    locks.sort_by_key(|lock| (Reverse(lock.waited_ns), lock.address));
    locks.truncate(LOCKS_MAX);
    locks
}

/// Says how long threads waited for futexes that are no known kind of lock, if that is worth it:
/// programs make locks, queues and events of them.
pub(super) fn not_shown(told: &Told, kinds: &Kinds<'_>) -> Option<String> {
    let is_unknown = |object: &Object| {
        let kind = kinds.get(object);
        kind.is_none_or(|kind| matches!(kind, ObjectKind::Futex))
    };
    let unknown = told.totals.iter().filter(|(doing, _)| {
        let is_futex = doing.activity == Activity::Waiting(WaitKind::FUTEX);
        is_futex && is_unknown(&(WaitKind::FUTEX, doing.object))
    });
    let ns: u64 = unknown.map(|(_, total)| total.ns).sum();
    (ns >= WORTH_SAYING_NS).then(|| {
        format!(
            "waits for futexes that are no known kind of lock are not shown ({:.1} s); `raddle \
             record` shows them",
            ns as f64 / 1e9
        )
    })
}

fn add_waiters(
    locks: &mut HashMap<Object, Lock>,
    told: &Told,
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
) {
    let mut weights: HashMap<Object, HashMap<u32, f64>> = HashMap::new();
    for span in &told.spans {
        if let Activity::Waiting(kind) = span.doing.activity
            && let Some(stack) = resolve(span.stack)
        {
            let stacks = weights.entry((kind, span.doing.object)).or_default();
            *stacks.entry(stack).or_default() += span.stands_for_ns;
        }
    }
    for (object, stacks) in weights {
        if let Some(lock) = locks.get_mut(&object) {
            lock.waits_at = shares(stacks, lock.waited_ns);
        }
    }
}

fn add_holders(
    locks: &mut HashMap<Object, Lock>,
    told: &Told,
    holders: &[Holding],
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
) {
    /// A thread and its stack.
    type Weights = HashMap<(Option<u32>, Option<u32>), f64>;
    let mut weights: HashMap<Object, Weights> = HashMap::new();
    let waits = told.stand_for();
    for holding in holders {
        let stack = holding.stack.and_then(resolve);
        let holders = weights.entry(holding.lock).or_default();
        let stands_for = waits.get(&holding.wait).copied().unwrap_or_default();
        *holders.entry((holding.thread, stack)).or_default() += stands_for;
    }
    for (object, holders) in weights {
        if let Some(lock) = locks.get_mut(&object) {
            let shares = shares(holders, lock.waited_ns);
            let holder = |((thread, stack), waited_ns)| Holder {
                thread,
                stack,
                waited_ns,
            };
            lock.held_at = shares.into_iter().map(holder).collect();
        }
    }
}

/// Shares a time in proportion to weights, the most first.
fn shares<K: Ord + Hash + Copy>(weights: HashMap<K, f64>, total_ns: u64) -> Vec<(K, u64)> {
    let sum: f64 = weights.values().sum();
    let share = |(key, weight): (K, f64)| {
        let ns = total_ns as f64 * weight / sum.max(f64::MIN_POSITIVE);
        (key, ns.round() as u64)
    };
    let mut shares: Vec<(K, u64)> = weights.into_iter().map(share).collect();
    shares.sort_by_key(|&(key, ns)| (Reverse(ns), key));
    shares.truncate(STACKS_MAX);
    shares
}
