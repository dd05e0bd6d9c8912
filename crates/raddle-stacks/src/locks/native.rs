//! The waits of native code, from the threads' records, the names on their stacks, and the objects
//! in memory.
//!
//! What an object is, is decided in this order: by the kind of the wait that the runtime has noted;
//! by the function of libc or of a library that waits; by the object itself, if it can be nothing
//! else. A stripped libc has names for its exported functions only.

use std::collections::{HashMap, HashSet};

use raddle_inspect::settings::THREADS_MAX;
use raddle_inspect::{ThreadState, WaitKind};

use super::layouts::{Barrier, Mutex, Protocol, ReadWriteLock, TID_MASK, inheriting_owner, joined};
use super::pipes::Pipes;
use super::{Edge, Object, ObjectKind, Owner, mentions};
use crate::capture::{Captured, Stack, Stacks, Target};
use crate::memory::Memory;
use crate::symbols::Symbols;
use crate::table::Table;

/// The frames, behind those of the runtime, in which the waiting function is looked for.
const FRAMES: usize = 4;

/// Returns the waits of all threads.
pub fn edges(target: &Target<'_>, stacks: &Stacks, symbols: &mut Symbols<'_>) -> Vec<Edge> {
    let mut reader = Reader {
        target,
        owners: Owners::new(target),
        pipes: None,
    };
    let mut names: HashMap<u32, Option<Waiter>> = HashMap::new();
    let mut edges = Vec::new();
    for captured in stacks.green() {
        let record = &captured.record;
        if record.state != ThreadState::WAITING {
            continue;
        }
        let waiter = captured.stack.and_then(|number| {
            let waiter = names.entry(number).or_insert_with(|| {
                let stack = stacks.stacks.get(number as usize)?;
                waiting_function(target, stack, symbols)
            });
            *waiter
        });
        if let Some((object, owner)) = reader.look(captured, waiter) {
            edges.push(Edge {
                waiter: record.tid,
                switches: record.switches,
                object: Object {
                    is_timed: record.deadline_ns != 0,
                    ..object
                },
                owner,
            });
        }
    }
    mentions::remark(target, &mut edges);
    edges
}

/// Returns what a thread with this stack waits for on a futex, by the function that waits.
pub fn waited_for(
    target: &Target<'_>,
    stack: &Stack,
    symbols: &mut Symbols<'_>,
) -> Option<ObjectKind> {
    Some(match waiting_function(target, stack, symbols)? {
        Waiter::Mutex => ObjectKind::Mutex,
        Waiter::ReadLock => ObjectKind::ReadLock,
        Waiter::WriteLock => ObjectKind::WriteLock,
        Waiter::Condition | Waiter::ParkingCondition => ObjectKind::Condition,
        Waiter::Semaphore => ObjectKind::Semaphore,
        Waiter::Barrier => ObjectKind::Barrier,
        Waiter::Join => ObjectKind::Thread,
        Waiter::Once => ObjectKind::Once,
        Waiter::Libc => ObjectKind::Libc,
        Waiter::RustMutex => ObjectKind::RustMutex,
        Waiter::RustReadLock | Waiter::RustWriteLock => ObjectKind::RustReadWriteLock,
        Waiter::ParkingMutex => ObjectKind::ParkingMutex,
        Waiter::ParkingReadWriteLock => ObjectKind::ParkingReadWriteLock,
        Waiter::ParkingLot => ObjectKind::ParkingLot,
        Waiter::PythonMutex => ObjectKind::PythonMutex,
        Waiter::PythonLot => ObjectKind::PythonLot,
    })
}

/// Returns the thread that has the lock with this word, for which others wait; `None` if it doesn't
/// say, or is none. Any word may look like a lock: the thread must be known to be one.
pub fn holder(memory: &dyn Memory, word: u64) -> Option<u32> {
    if let Some(mutex) = Mutex::read(memory, word) {
        return Some(mutex.owner);
    }
    let writers = read_write_locks(memory, word).map(|lock| lock.writer);
    let mut writers = writers.filter(|&writer| writer != 0);
    writers.next().or_else(|| inheriting_owner(memory, word))
}

/// Returns true if the lock with this word, for which others wait, is a read-write lock that
/// threads hold to read.
pub fn has_readers(memory: &dyn Memory, word: u64) -> bool {
    Mutex::read(memory, word).is_none()
        && read_write_locks(memory, word).any(|lock| lock.writer == 0 && lock.readers != 0)
}

/// Returns what the lock with this word can be, for those that want to read and to write.
fn read_write_locks(memory: &dyn Memory, word: u64) -> impl Iterator<Item = ReadWriteLock> {
    let locks = [false, true].map(|writes| ReadWriteLock::read(memory, word, writes));
    locks.into_iter().flatten()
}

/// The threads that may own something.
pub(super) struct Owners {
    live: HashSet<u32>,
    /// Ids in slots that are free now.
    former: HashSet<u32>,
    /// The ids in slots that have a thread now, by the slots' places.
    places: HashMap<u32, u32>,
}

/// The lowest id of a green thread that isn't the main one: above any process's.
const TID_BASE: u32 = 1 << 22;

fn place(tid: u32) -> Option<u32> {
    Some(tid.checked_sub(TID_BASE)? % THREADS_MAX)
}

impl Owners {
    pub(super) fn new(target: &Target<'_>) -> Owners {
        let mut owners = Owners {
            live: HashSet::new(),
            former: HashSet::new(),
            places: HashMap::new(),
        };
        if let Some(mut table) = Table::new(target) {
            table.for_each_id(|tid, is_free| {
                if is_free {
                    owners.former.insert(tid);
                } else {
                    owners.live.insert(tid);
                    owners.places.extend(place(tid).map(|place| (place, tid)));
                }
            });
        }
        owners
    }

    /// Returns what an object's word says of its owner.
    pub(super) fn named(&self, tid: u32, is_shared: bool) -> Owner {
        match tid {
            0 => Owner::Unknown,
            tid if self.live.contains(&tid) => Owner::Thread(tid),
            tid if is_shared => Owner::Elsewhere(tid),
            tid if self.has_ended(tid) => Owner::Ended(tid),
            _ => Owner::Unknown,
        }
    }

    pub(super) fn is_live(&self, tid: u32) -> bool {
        self.live.contains(&tid)
    }

    /// Returns true if the table had a thread with this id. A thread's id has the place of its
    /// slot. The child of a fork doesn't find the thread that forked: that one lives on there, by
    /// another id, and with all that it owned.
    fn has_ended(&self, tid: u32) -> bool {
        let Some(place) = place(tid) else {
            return false;
        };
        let is_older = self.places.get(&place).is_some_and(|&now| now != tid);
        self.former.contains(&tid) || is_older
    }
}

struct Reader<'a> {
    target: &'a Target<'a>,
    owners: Owners,
    /// Those of the process, once a thread waits for a descriptor.
    pipes: Option<Pipes>,
}

type Found = Option<(Object, Owner)>;

impl Reader<'_> {
    fn look(&mut self, captured: &Captured, waiter: Option<Waiter>) -> Found {
        let record = &captured.record;
        let address = record.wait_arg;
        match record.wait_kind {
            WaitKind::JOIN => self.join(address),
            WaitKind::MUTEX => self.mutex(address).or_else(|| self.inheriting(address)),
            WaitKind::SEMAPHORE => match waiter {
                Some(Waiter::PythonMutex) => self.python_lock(ObjectKind::PythonMutex, address),
                Some(Waiter::PythonLot) => self.python_lock(ObjectKind::PythonLot, address),
                _ => found(ObjectKind::Semaphore, address, self.last_taker(address)),
            },
            WaitKind::CONDVAR => self.condition(address, captured.wait_lock),
            WaitKind::FUTEX => self.futex(address, waiter),
            WaitKind::FD_READ => self.pipe(address, ObjectKind::EmptyPipe),
            WaitKind::FD_WRITE => self.pipe(address, ObjectKind::FullPipe),
            _ => None,
        }
    }

    fn futex(&mut self, address: u64, waiter: Option<Waiter>) -> Found {
        let unknown = |kind| found(kind, address, Owner::Unknown);
        match waiter {
            Some(Waiter::Mutex) => self.mutex(address).or_else(|| unknown(ObjectKind::Mutex)),
            Some(Waiter::ReadLock) => self.lock(address, false),
            Some(Waiter::WriteLock) => self.lock(address, true),
            Some(Waiter::Condition) => unknown(ObjectKind::Condition),
            Some(Waiter::Semaphore) => unknown(ObjectKind::Semaphore),
            Some(Waiter::Barrier) => self.barrier(address),
            Some(Waiter::Join) => self.join(address),
            Some(Waiter::Once) => unknown(ObjectKind::Once),
            Some(Waiter::Libc) => unknown(ObjectKind::Libc),
            Some(Waiter::RustMutex) => without_owner(ObjectKind::RustMutex, address),
            Some(Waiter::RustReadLock) => self.rust_lock(address, 0),
            // The second of the lock's two words.
            Some(Waiter::RustWriteLock) => self.rust_lock(address, 4),
            // It waits on a word of the thread's own.
            Some(Waiter::ParkingMutex) => without_owner(ObjectKind::ParkingMutex, 0),
            Some(Waiter::ParkingReadWriteLock) => {
                without_owner(ObjectKind::ParkingReadWriteLock, 0)
            }
            Some(Waiter::ParkingCondition) => found(ObjectKind::Condition, 0, Owner::Unknown),
            Some(Waiter::ParkingLot) => found(ObjectKind::ParkingLot, 0, Owner::Unknown),
            Some(Waiter::PythonMutex | Waiter::PythonLot) => unknown(ObjectKind::Futex),
            None => self.mutex(address).or_else(|| unknown(ObjectKind::Futex)),
        }
    }

    /// Reads a mutex. One with an owner that this process never had is none, unless it is shared.
    fn mutex(&self, address: u64) -> Found {
        let mutex = Mutex::read(self.target.memory, address)?;
        let owner = self.owners.named(mutex.owner, mutex.is_shared);
        let kind = match (mutex.protocol, mutex.kind) {
            _ if owner == Owner::Unknown => return None,
            (Protocol::InheritsPriority, _) => ObjectKind::PriorityInheritingMutex,
            (Protocol::Robust, _) => ObjectKind::RobustMutex,
            (_, 1) => ObjectKind::RecursiveMutex,
            (_, 2) => ObjectKind::ErrorCheckingMutex,
            (_, 3) => ObjectKind::AdaptiveMutex,
            _ => ObjectKind::Mutex,
        };
        // The end of an owner wakes the waiters of these.
        let is_given_on = mutex.protocol != Protocol::Plain;
        let owner = match owner {
            Owner::Ended(_) if is_given_on => Owner::Unknown,
            owner => owner,
        };
        let (mut object, owner) = found(kind, address, owner)?;
        object.note = mutex
            .is_shared
            .then(|| "made for several processes".to_owned());
        Some((object, owner))
    }

    fn inheriting(&self, address: u64) -> Found {
        let memory = self.target.memory;
        let Some(tid) = inheriting_owner(memory, address) else {
            return found(ObjectKind::Mutex, address, Owner::Unknown);
        };
        let owner = match self.owners.named(tid, false) {
            Owner::Thread(tid) => Owner::Thread(tid),
            _ => Owner::Unknown,
        };
        found(ObjectKind::PriorityInheritingMutex, address, owner)
    }

    fn lock(&self, word: u64, writes: bool) -> Found {
        let kind = if writes {
            ObjectKind::WriteLock
        } else {
            ObjectKind::ReadLock
        };
        let Some(lock) = ReadWriteLock::read(self.target.memory, word, writes) else {
            return found(kind, 0, Owner::Unknown);
        };
        let owner = self.owners.named(lock.writer, lock.is_shared);
        let (mut object, owner) = found(kind, lock.address, owner)?;
        object.note = match lock.readers {
            0 => None,
            1 => Some("read by 1 thread, which it doesn't note".into()),
            readers => Some(format!("read by {readers} threads, which it doesn't note")),
        };
        Some((object, owner))
    }

    /// A read-write lock of Rust's library, of which the word for which a thread waits is so many
    /// bytes behind the state: the number of readers, or all ones for a writer.
    fn rust_lock(&self, word: u64, behind: u64) -> Found {
        const HOLDERS: u32 = (1 << 30) - 1;
        let address = word.checked_sub(behind)?;
        let (mut object, owner) = without_owner(ObjectKind::RustReadWriteLock, address)?;
        let state = self.target.memory.half(address);
        object.note = match state.map(|state| state & HOLDERS) {
            Some(HOLDERS) => Some("held by a writer, which it doesn't note".into()),
            Some(1) => Some("read by 1 thread, which it doesn't note".into()),
            Some(readers) if readers != 0 => {
                Some(format!("read by {readers} threads, which it doesn't note"))
            }
            _ => object.note,
        };
        Some((object, owner))
    }

    fn barrier(&self, word: u64) -> Found {
        let Some(barrier) = Barrier::read(self.target.memory, word) else {
            return found(ObjectKind::Barrier, 0, Owner::Unknown);
        };
        let (mut object, owner) = found(ObjectKind::Barrier, barrier.address, Owner::Unknown)?;
        object.note = Some(format!(
            "{} of {} have arrived",
            barrier.arrived, barrier.count
        ));
        Some((object, owner))
    }

    fn join(&self, word: u64) -> Found {
        let tid = joined(self.target.memory, word).filter(|&tid| self.owners.is_live(tid));
        let owner = tid.map_or(Owner::Unknown, Owner::Thread);
        found(ObjectKind::Thread, word, owner)
    }

    /// A condition variable, and the holder of the mutex that goes with it.
    fn condition(&self, address: u64, mutex: u64) -> Found {
        const OWNER: u64 = 8;
        let (mut object, owner) = found(ObjectKind::Condition, address, Owner::Unknown)?;
        if mutex != 0 {
            let tid = mutex
                .checked_add(OWNER)
                .and_then(|at| self.target.memory.half(at));
            object.note = match tid.filter(|&tid| tid <= TID_MASK) {
                Some(0) => Some(format!("its mutex {mutex:#x} is free")),
                Some(tid) if self.owners.is_live(tid) => {
                    Some(format!("its mutex {mutex:#x} is held by #{tid}"))
                }
                _ => None,
            };
        }
        Some((object, owner))
    }

    /// A thread that waits in CPython's lot has a semaphore on its own stack. In the word before is
    /// the address of what the thread waits for.
    fn python_lock(&self, kind: ObjectKind, semaphore: u64) -> Found {
        let before = semaphore.checked_sub(8);
        let address = before.and_then(|at| self.target.memory.word(at));
        // It must be there.
        let address = address.filter(|&at| self.target.memory.read_all(at, &mut [0]).is_some());
        match kind {
            ObjectKind::PythonMutex => without_owner(kind, address.unwrap_or(0)),
            _ => found(kind, address.unwrap_or(0), Owner::Unknown),
        }
    }

    /// Returns the thread that took a semaphore last. The symbol layer notes it in the bytes of
    /// `sem_t` that libc doesn't use.
    fn last_taker(&self, address: u64) -> Owner {
        const TAKER: u64 = 16;
        let at = address.checked_add(TAKER);
        let tid = at.and_then(|at| self.target.memory.half(at));
        let live = tid.filter(|&tid| self.owners.is_live(tid));
        live.map_or(Owner::Unknown, Owner::LastTaker)
    }

    fn pipe(&mut self, descriptor: u64, kind: ObjectKind) -> Found {
        let (other, writes) = match kind {
            ObjectKind::EmptyPipe => ("to write", true),
            _ => ("to read", false),
        };
        // The number of a core's process may be another's now.
        if self.target.stopped.is_some() {
            return None;
        }
        let pid = self.target.pid;
        let pipes = self.pipes.get_or_insert_with(|| Pipes::of(pid));
        let ends = pipes.ends(descriptor, writes)?;
        let (mut object, owner) = found(kind, 0, Owner::Unknown)?;
        object.note = Some(match ends.as_slice() {
            [] => format!("descriptor {descriptor}; this process has no end {other}"),
            ends => {
                let list: Vec<String> = ends.iter().map(u64::to_string).collect();
                let list = list.join(", ");
                format!("descriptor {descriptor}; ends {other} in this process: {list}")
            }
        });
        Some((object, owner))
    }
}

fn found(kind: ObjectKind, address: u64, owner: Owner) -> Found {
    let object = Object {
        kind,
        address,
        note: None,
        is_timed: false,
    };
    Some((object, owner))
}

/// A lock of a kind that notes no owner.
fn without_owner(kind: ObjectKind, address: u64) -> Found {
    let (mut object, owner) = found(kind, address, Owner::Unknown)?;
    object.note = Some("it notes no owner".into());
    Some((object, owner))
}

/// A function that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    Mutex,
    ReadLock,
    WriteLock,
    Condition,
    Semaphore,
    Barrier,
    Join,
    Once,
    Libc,
    RustMutex,
    RustReadLock,
    RustWriteLock,
    ParkingMutex,
    ParkingReadWriteLock,
    ParkingCondition,
    /// A function that all locks of parking_lot wait in.
    ParkingLot,
    PythonMutex,
    /// Likewise of CPython.
    PythonLot,
}

/// Returns the function that waits on a stack: the first that is known behind the runtime's.
fn waiting_function(
    target: &Target<'_>,
    stack: &Stack,
    symbols: &mut Symbols<'_>,
) -> Option<Waiter> {
    let code = &target.layout.code;
    let runtime = code.text_start..code.text_end;
    let frames = stack.frames.iter();
    let frames = frames.skip_while(|frame| runtime.contains(&frame.inside()));
    let mut common = None;
    for frame in frames.take(FRAMES) {
        let named = symbols.name(frame);
        for waiter in named.functions.iter().filter_map(|it| waiter(&it.name)) {
            let is_python = matches!(waiter, Waiter::PythonMutex | Waiter::PythonLot);
            match (common, waiter) {
                // CPython's lot waits on semaphores.
                (Some(Waiter::Semaphore), _) if !is_python => {}
                (_, Waiter::ParkingLot | Waiter::PythonLot | Waiter::Semaphore) => {
                    common = Some(waiter);
                }
                _ => return Some(waiter),
            }
        }
    }
    common
}

/// Returns what a function waits for, by its name without the marks of libc's own names.
fn waiter(name: &str) -> Option<Waiter> {
    let plain = name.trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").unwrap_or(plain);
    let plain = plain.trim_start_matches('_');
    let begins = |start: &str| plain.starts_with(start);
    let has = |part: &str| name.contains(part);
    match () {
        () if begins("pthread_mutex_") => Some(Waiter::Mutex),
        () if begins("pthread_rwlock_") && has("rdlock") => Some(Waiter::ReadLock),
        () if begins("pthread_rwlock_") && has("wrlock") => Some(Waiter::WriteLock),
        () if begins("pthread_cond_") => Some(Waiter::Condition),
        () if begins("pthread_barrier_wait") => Some(Waiter::Barrier),
        () if begins("pthread_once") => Some(Waiter::Once),
        () if begins("sem_wait") || begins("new_sem_wait") => Some(Waiter::Semaphore),
        () if begins("sem_timedwait") || begins("sem_clockwait") => Some(Waiter::Semaphore),
        () if begins("pthread_clockjoin") || begins("pthread_join") => Some(Waiter::Join),
        () if begins("pthread_timedjoin") => Some(Waiter::Join),
        () if begins("PyMutex_Lock") => Some(Waiter::PythonMutex),
        () if begins("PyParkingLot_Park") => Some(Waiter::PythonLot),
        () if begins("lll_lock_wait_private") => Some(Waiter::Libc),
        () if begins("lll_mutex_lock") => Some(Waiter::Mutex),
        () if has("parking_lot::raw_mutex::") => Some(Waiter::ParkingMutex),
        () if has("parking_lot::raw_rwlock::") => Some(Waiter::ParkingReadWriteLock),
        () if has("parking_lot::condvar::") => Some(Waiter::ParkingCondition),
        () if begins("parking_lot") || has("<parking_lot") => Some(Waiter::ParkingLot),
        () if has("::mutex::futex::") || has("futex_mutex::") => Some(Waiter::RustMutex),
        () if (has("::rwlock::futex::") || has("futex_rwlock::")) && has("read") => {
            Some(Waiter::RustReadLock)
        }
        () if has("::rwlock::futex::") || has("futex_rwlock::") => Some(Waiter::RustWriteLock),
        () if has("::condvar::futex::") || has("futex_condvar::") => Some(Waiter::Condition),
        () if has("::once::futex::") || has("futex_once::") => Some(Waiter::Once),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_functions_are_known_by_all_their_names() {
        for (name, wanted) in [
            ("___pthread_mutex_lock", Some(Waiter::Mutex)),
            ("__GI___pthread_mutex_cond_lock", Some(Waiter::Mutex)),
            ("pthread_mutex_timedlock", Some(Waiter::Mutex)),
            ("__pthread_rwlock_rdlock_full64", Some(Waiter::ReadLock)),
            ("pthread_rwlock_clockwrlock", Some(Waiter::WriteLock)),
            ("__pthread_clockjoin_ex", Some(Waiter::Join)),
            ("__GI___lll_lock_wait_private", Some(Waiter::Libc)),
            ("__GI___lll_lock_wait", None),
            (
                "parking_lot::raw_mutex::RawMutex::lock_slow",
                Some(Waiter::ParkingMutex),
            ),
            (
                "parking_lot::raw_rwlock::RawRwLock::lock_shared_slow",
                Some(Waiter::ParkingReadWriteLock),
            ),
            (
                "parking_lot::condvar::Condvar::wait_until_internal",
                Some(Waiter::ParkingCondition),
            ),
            (
                "parking_lot_core::parking_lot::park",
                Some(Waiter::ParkingLot),
            ),
            (
                "std::sys::sync::rwlock::futex::RwLock::read_contended",
                Some(Waiter::RustReadLock),
            ),
            (
                "std::sys::sync::rwlock::futex::RwLock::write_contended",
                Some(Waiter::RustWriteLock),
            ),
            (
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
                Some(Waiter::RustMutex),
            ),
            ("my_pthread_mutex_lock", None),
            ("futex_wait", None),
            ("_PyMutex_LockTimed", Some(Waiter::PythonMutex)),
            ("PyMutex_Lock", Some(Waiter::PythonMutex)),
            ("_PyParkingLot_Park", Some(Waiter::PythonLot)),
            ("", None),
        ] {
            assert_eq!(waiter(name), wanted, "{name}");
        }
    }
}
