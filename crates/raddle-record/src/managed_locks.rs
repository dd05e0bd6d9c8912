//! Locks of runtimes that threads wait for on words of their own: Java's monitors and the locks of
//! `java.util.concurrent`, and CPython's locks of one byte. No word tells two such locks apart. A
//! monitor is told by its object, which the virtual machine notes for the waiting thread. Any other
//! lock here is a place in the code, the method that wants it; so is a monitor of which the object
//! is not known.
//!
//! 1. The stack of a wait tells what is wanted, by functions of the runtime between the wait and
//!    the innermost function of the program ([`wanted`]).
//! 2. The times are those of the samples, which have the time of all waits as their sum.
//! 3. The holder of a monitor is the thread that owned it when the stack of a wait was read, with
//!    its stack then. For other locks it is the thread that ended the wait: it has released the
//!    lock. Its stack is that of the release.
//!
//! The word that a thread waits on has the name of a lock if the thread waited there for that lock
//! most of the time.
//!
//! Waits for a notification (`Object.wait`, `Condition.await`, `threading.Condition.wait`) are no
//! waits for a lock, unless the thread has been notified and wants the lock again.
//!
//! Rejected: the address of the monitor, from registers and frames of the virtual machine. Objects
//! move, and where a frame has its monitors differs by version and by compiler. The address of the
//! structure that is the monitor: it serves one object after another.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use raddle_inspect::WaitKind;

use crate::history::Position;
use crate::profile::{Activity, Function, Holder, Lock, Origin, Profile, Waker};

/// The most stacks, and holders, of a lock.
const STACKS_MAX: usize = 16;
/// The most such locks.
const LOCKS_MAX: usize = 1 << 12;

/// What is known of a lock: its kind, and its object or the place.
type Key = (&'static str, String);

/// What spans of which the stack was read say of that stack. Samples borrow stacks from threads of
/// the same name.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub longest_ns: u64,
    pub threads: HashSet<Position>,
}

/// What is known of the monitors of Java.
#[derive(Debug, Default)]
pub struct Monitors {
    /// The names of the objects that stacks wait for.
    pub names: HashMap<u32, String>,
    /// The owners of objects with these names while others waited, and for how many waits each
    /// stands.
    pub owners: HashMap<String, Owners>,
}

/// Threads with their stacks, and for how many waits each stands.
pub type Owners = HashMap<(Position, Option<u32>), f64>;

/// The kind of a monitor.
const MONITOR: &str = "Java monitor";
/// What the name of a monitor begins with if its object is known.
const OF_OBJECT: &str = "of ";

/// Sums of one lock.
#[derive(Default)]
struct Sums {
    lock: Lock,
    waiters: HashSet<Position>,
    waits_at: HashMap<u32, u64>,
    held_at: HashMap<(u32, Option<u32>), u64>,
}

/// Adds these locks to a profile. `seen` has what is known of its stacks.
pub fn add(profile: &mut Profile, seen: &HashMap<u32, Seen>, monitors: &Monitors) {
    let mut keys: HashMap<u32, Option<Key>> = HashMap::new();
    let mut locks: HashMap<Key, Sums> = HashMap::new();
    let mut key_of = |stack: u32| {
        let key = keys.entry(stack).or_insert_with(|| {
            if let Some(object) = monitors.names.get(&stack) {
                return Some((MONITOR, format!("{OF_OBJECT}{object}")));
            }
            let functions: Vec<_> = profile.functions_of(stack).rev().collect();
            wanted(&functions).map(|(kind, place)| (kind, format!("wanted at {place}")))
        });
        key.clone()
    };
    let mut words: HashMap<(WaitKind, u64), HashMap<Key, u64>> = HashMap::new();
    for sample in &profile.samples {
        let Activity::Waiting(kind) = sample.activity else {
            continue;
        };
        let Some(key) = key_of(sample.stack) else {
            continue;
        };
        let word = words.entry((kind, sample.object)).or_default();
        *word.entry(key.clone()).or_default() += sample.weight_ns;
        let sums = locks.entry(key).or_default();
        sums.lock.waits += sample.count;
        sums.lock.waited_ns += sample.weight_ns;
        if let Some(seen) = seen.get(&sample.stack) {
            sums.lock.longest_wait_ns = sums.lock.longest_wait_ns.max(seen.longest_ns);
            sums.waiters.extend(&seen.threads);
        }
        *sums.waits_at.entry(sample.stack).or_default() += sample.weight_ns;
    }
    for waking in &profile.wakings {
        let Waker::Thread { thread, stack } = waking.waker else {
            continue;
        };
        if let Some(sums) = key_of(waking.stack).and_then(|key| locks.get_mut(&key)) {
            *sums.held_at.entry((thread, stack)).or_default() += waking.weight_ns;
        }
    }
    name_words(profile, &words);
    let locks = locks.into_iter().map(|((kind, name), sums)| {
        // What ends waits at a place may be the owner of another object's monitor.
        let held_at = match name.strip_prefix(OF_OBJECT) {
            Some(object) => {
                let owners = monitors.owners.get(object);
                owners.map_or_else(HashMap::new, |owners| shares(owners, sums.lock.waited_ns))
            }
            None => sums.held_at,
        };
        let held_at = most(held_at)
            .into_iter()
            .map(|((thread, stack), waited_ns)| Holder {
                thread: Some(thread),
                stack,
                waited_ns,
            });
        Lock {
            kind: kind.to_owned(),
            name: Some(name),
            waiters: sums.waiters.len() as u64,
            waits_at: most(sums.waits_at),
            held_at: held_at.collect(),
            ..sums.lock
        }
    });
    let mut locks: Vec<Lock> = locks.collect();
    locks.sort_by(|a, b| (b.waited_ns, &a.name).cmp(&(a.waited_ns, &b.name)));
    locks.truncate(LOCKS_MAX);
    profile.locks.extend(locks);
    profile.locks.sort_by_key(|lock| Reverse(lock.waited_ns));
}

/// Names the words for which threads waited, if these are of one lock most of the time.
fn name_words(profile: &mut Profile, words: &HashMap<(WaitKind, u64), HashMap<Key, u64>>) {
    for wait in profile.waits.iter_mut().filter(|wait| wait.name.is_none()) {
        let keys = words.get(&(wait.kind, wait.object));
        let largest = keys.and_then(|keys| keys.iter().max_by_key(|&(key, ns)| (ns, key)));
        if let Some(((kind, name), _)) = largest.filter(|(_, ns)| **ns > wait.total_ns / 2) {
            wait.name = Some(format!("{kind} {name}"));
        }
    }
}

/// Shares a time among owners.
fn shares(owners: &Owners, total_ns: u64) -> HashMap<(Position, Option<u32>), u64> {
    let sum: f64 = owners.values().sum();
    let part = |weight: f64| (total_ns as f64 * weight / sum.max(f64::MIN_POSITIVE)).round();
    let shares = owners
        .iter()
        .map(|(&owner, &weight)| (owner, part(weight) as u64));
    shares.collect()
}

/// Returns the largest of some sums, the largest first.
fn most<K: Ord + Hash + Copy>(sums: HashMap<K, u64>) -> Vec<(K, u64)> {
    let mut sums: Vec<(K, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|&(key, ns)| (Reverse(ns), key));
    sums.truncate(STACKS_MAX);
    sums
}

/// Returns true if a thread with this stack wants to enter a monitor of Java; the innermost
/// function is the first.
pub fn wants_monitor(stack: &[&Function]) -> bool {
    wanted(stack).is_some_and(|(kind, _)| kind == MONITOR)
}

/// Returns the lock that a thread with this stack waits for; the innermost function is the first.
fn wanted(stack: &[&Function]) -> Option<Key> {
    let first = stack.iter().position(is_managed)?;
    let (native, program) = stack.split_at(first);
    let calls = |part: &str| native.iter().any(|function| function.name.contains(part));
    match program[0].origin {
        Origin::Java if calls("ObjectMonitor::") => {
            // From JDK 25 on, its enter has several parts; a thread that was notified enters again.
            let enters = ["enter", "EnterI", "reenter", "ReenterI"];
            let enters = enters
                .iter()
                .any(|name| calls(&format!("ObjectMonitor::{name}")));
            enters.then(|| (MONITOR, place(program[0])))
        }
        Origin::Java => synchronizer(program),
        Origin::Python if calls("PyMutex_Lock") => {
            let is_notice = program[0].name.ends_with("Condition.wait");
            (!is_notice).then(|| ("PyMutex", place(program[0])))
        }
        _ => None,
    }
}

fn is_managed(function: &&Function) -> bool {
    matches!(function.origin, Origin::Java | Origin::Python)
}

/// The package of Java's locks.
const PACKAGE: &str = "java.util.concurrent.locks.";

/// Returns true for a method that a lock of Java has on the way to its wait.
fn is_of_library(function: &Function) -> bool {
    let starts = ["jdk.internal.", "java.lang.", PACKAGE];
    starts.iter().any(|start| function.name.starts_with(start))
}

/// Returns the part of a stack, the innermost function first, from the program's own innermost
/// function on.
pub(crate) fn of_program<'s, 'f>(stack: &'s [&'f Function]) -> &'s [&'f Function] {
    let is_own = |it: &&Function| is_managed(it) && !is_of_library(it);
    let own = stack.iter().position(is_own);
    own.map_or(stack, |own| &stack[own..])
}

/// Returns the lock of `java.util.concurrent` that is wanted: between the method that parks and
/// the program's own are methods of that lock.
fn synchronizer(program: &[&Function]) -> Option<Key> {
    const LOCKS: [&str; 3] = ["ReentrantLock", "ReentrantReadWriteLock", "StampedLock"];
    let is_parked = program[0].name.ends_with("Unsafe.park");
    let inner = program.iter().position(|it| !is_of_library(it))?;
    let methods = &program[..inner];
    let wants = methods.iter().position(|function| {
        let class = function.name.strip_prefix(PACKAGE);
        class.is_some_and(|class| LOCKS.iter().any(|lock| class.starts_with(lock)))
    });
    let awaits = methods
        .iter()
        .position(|function| function.name.contains("ConditionObject."));
    let acquires = methods
        .iter()
        .position(|function| function.name.ends_with("Synchronizer.acquire"));
    let is_lock = match (wants, awaits, acquires) {
        // A notified thread acquires its lock again below its wait.
        (_, Some(awaits), Some(acquires)) => acquires < awaits,
        (Some(_), None, _) => true,
        _ => false,
    };
    (is_parked && is_lock).then(|| ("Java lock", place(program[inner])))
}

/// Returns a function with its file and line.
fn place(function: &Function) -> String {
    match (&function.file, function.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{} {file}:{line}", function.name)
        }
        _ => function.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Sample, Wait, Waking};

    fn function(name: &str) -> Function {
        let origin = match () {
            () if name.starts_with("py ") => Origin::Python,
            () if name.starts_with("java ") => Origin::Java,
            () => Origin::Native,
        };
        let plain = name.strip_prefix("py ").or(name.strip_prefix("java "));
        Function {
            origin,
            file: (origin != Origin::Native).then(|| "/src/A.x".into()),
            line: Some(7),
            ..Function::note(plain.unwrap_or(name))
        }
    }

    fn key(names: &[&str]) -> Option<(&'static str, String)> {
        let functions: Vec<Function> = names.iter().map(|name| function(name)).collect();
        wanted(&functions.iter().collect::<Vec<_>>())
    }

    const LOCKED: [&str; 5] = [
        "java jdk.internal.misc.Unsafe.park",
        "java java.util.concurrent.locks.LockSupport.park",
        "java java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire",
        "java java.util.concurrent.locks.ReentrantLock.lock",
        "java A.take",
    ];

    #[test]
    fn stacks_tell_what_is_wanted() {
        let at = |kind, place: &str| Some((kind, place.to_owned()));
        let monitor = [
            "pthread_cond_wait",
            "ObjectMonitor::enter_internal(JavaThread*)",
        ];
        let monitor = [&monitor[..], &["java A.b", "java A.c"]].concat();
        assert_eq!(key(&monitor), at("Java monitor", "A.b A.x:7"));
        let wait = [
            "pthread_cond_wait",
            "ObjectMonitor::wait(long, bool, JavaThread*)",
        ];
        let wait = [&wait[..], &["java java.lang.Object.wait0", "java A.c"]].concat();
        assert_eq!(key(&wait), None);
        let again = ["ObjectMonitor::ReenterI(JavaThread*, ObjectWaiter*)"];
        let again = [&again[..], &wait].concat();
        let place = "java.lang.Object.wait0 A.x:7";
        assert_eq!(key(&again), at("Java monitor", place));
        assert_eq!(key(&LOCKED), at("Java lock", "A.take A.x:7"));
        let python = ["sem_wait", "_PyMutex_LockTimed", "py take", "py run"];
        assert_eq!(key(&python), at("PyMutex", "take A.x:7"));
        let notice = ["_PyMutex_LockTimed", "py Condition.wait", "py run"];
        assert_eq!(key(&notice), None);
        assert_eq!(key(&["pthread_mutex_lock", "main"]), None);
        assert_eq!(key(&[]), None);
    }

    #[test]
    fn what_is_no_lock_of_java_is_none() {
        let latch = "java java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire";
        let latch = [
            LOCKED[0],
            LOCKED[1],
            latch,
            "java java.util.concurrent.CountDownLatch.await",
        ];
        assert_eq!(key(&latch), None);
        let object =
            "java java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await";
        let awaits = [LOCKED[0], LOCKED[1], object, "java A.take"];
        assert_eq!(key(&awaits), None);
        let again = [LOCKED[0], LOCKED[1], LOCKED[2], object, "java A.take"];
        assert_eq!(key(&again), Some(("Java lock", "A.take A.x:7".into())));
        assert_eq!(key(&LOCKED[..4]), None);
    }

    #[test]
    fn a_monitor_of_java_is_its_object() {
        let mut interner = crate::profile::Interner::default();
        let put = interner.function(function("java A.put"));
        let get = interner.function(function("java A.get"));
        let stacks = [(put, 1), (put, 2), (get, 1)]
            .map(|(function, object)| interner.stack_at(vec![function], object));
        let sample = |stack| Sample {
            thread: stack,
            activity: Activity::Waiting(WaitKind::CONDVAR),
            object: 0x1000,
            stack,
            at_ns: 0,
            weight_ns: 10,
            count: 1,
        };
        let name = |object| format!("A no. {object}");
        let names = interner.monitors.iter();
        let monitors = Monitors {
            names: names
                .map(|(&stack, object)| (stack, name(object)))
                .collect(),
            owners: HashMap::from([(name(&1), Owners::from([((7, Some(stacks[1])), 2.0)]))]),
        };
        let mut profile = Profile {
            functions: interner.functions,
            stacks: interner.stacks,
            samples: stacks.map(sample).to_vec(),
            ..Profile::default()
        };
        add(&mut profile, &HashMap::new(), &monitors);
        let [one, two] = &profile.locks[..] else {
            panic!("{:?}", profile.locks);
        };
        assert_eq!(
            (one.name.as_deref(), one.waited_ns),
            (Some("of A no. 1"), 20)
        );
        assert_eq!(
            (two.name.as_deref(), two.waited_ns),
            (Some("of A no. 2"), 10)
        );
        assert_eq!(one.waits_at, [(stacks[0], 10), (stacks[2], 10)]);
        let owner = Holder {
            thread: Some(7),
            stack: Some(stacks[1]),
            waited_ns: 20,
        };
        assert_eq!((&one.held_at[..], two.held_at.len()), (&[owner][..], 0));
    }

    #[test]
    fn times_of_a_place_are_those_of_its_samples_and_the_waker_is_the_holder() {
        let stacks = [&LOCKED[..], &["java A.release", "java A.main"]];
        let mut interner = crate::profile::Interner::default();
        let stacks = stacks.map(|names| {
            let names = names.iter().rev();
            let numbers = names
                .map(|name| interner.function(function(name)))
                .collect();
            interner.stack(numbers)
        });
        let sample = |thread, weight_ns, count| Sample {
            thread,
            activity: Activity::Waiting(WaitKind::CONDVAR),
            object: 0x1000 + u64::from(thread),
            stack: stacks[0],
            at_ns: 0,
            weight_ns,
            count,
        };
        let holder = Waker::Thread {
            thread: 2,
            stack: Some(stacks[1]),
        };
        let waking = |waker| Waking {
            thread: 0,
            activity: Activity::Waiting(WaitKind::CONDVAR),
            object: 0x1000,
            stack: stacks[0],
            waker,
            weight_ns: 40,
        };
        let wait = |object, total_ns| Wait {
            kind: WaitKind::CONDVAR,
            object,
            name: None,
            count: 3,
            total_ns,
            longest_ns: 9,
            threads: 1,
            wakers: Vec::new(),
        };
        let mut profile = Profile {
            waits: vec![wait(0x1000, 80), wait(0x1001, 80), wait(7, 1)],
            functions: interner.functions,
            stacks: interner.stacks,
            samples: vec![sample(0, 50, 3), sample(1, 30, 2), sample(0, 20, 0)],
            wakings: vec![waking(holder), waking(Waker::Timer)],
            ..Profile::default()
        };
        let seen = Seen {
            longest_ns: 45,
            threads: HashSet::from([0, 1]),
        };
        let seen = HashMap::from([(stacks[0], seen)]);
        add(&mut profile, &seen, &Monitors::default());
        let [lock] = &profile.locks[..] else {
            panic!("{:?}", profile.locks);
        };
        assert_eq!((lock.waited_ns, lock.waits, lock.waiters), (100, 5, 2));
        assert_eq!((lock.longest_wait_ns, lock.holds), (45, None));
        assert_eq!(lock.name.as_deref(), Some("wanted at A.take A.x:7"));
        assert_eq!(lock.waits_at, [(stacks[0], 100)]);
        let names = profile.waits.iter().map(|wait| wait.name.as_deref());
        let named = Some("Java lock wanted at A.take A.x:7");
        assert!(names.eq([named, None, None]), "{:?}", profile.waits);
        let held = &lock.held_at[..];
        assert!(matches!(
            held,
            [Holder {
                thread: Some(2),
                stack: Some(_),
                waited_ns: 40
            }]
        ));
    }
}
