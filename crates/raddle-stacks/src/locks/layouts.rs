//! The objects of glibc in memory, as they are on x86-64 from 2.34 to 2.43: `struct
//! __pthread_mutex_s`, `struct __pthread_rwlock_arch_t`, `struct pthread_barrier`, and the id in
//! `struct pthread`.
//!
//! All of it is the other process's word. A parser returns `None` for what no such object can be.

use crate::memory::Memory;

/// The bits of a word that name its owner, in futexes that the kernel knows the owner of.
pub(super) const TID_MASK: u32 = 0x3fff_ffff;
/// Set in such a word while threads wait.
const WAITERS: u32 = 1 << 31;

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// How a mutex finds out which thread owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Plain,
    Robust,
    InheritsPriority,
}

/// A mutex for which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mutex {
    pub owner: u32,
    /// 0 normal, 1 recursive, 2 error-checking, 3 adaptive.
    pub kind: u32,
    pub protocol: Protocol,
    /// It is made for several processes.
    pub is_shared: bool,
}

impl Mutex {
    const BYTES: usize = 24;
    const ROBUST: u32 = 16;
    const INHERITS: u32 = 32;
    const PROTECTS: u32 = 64;
    const SHARED: u32 = 128;
    /// Bits of lock elision.
    const ELISION: u32 = 0x300;
    /// The most threads that use one.
    const USERS_MAX: u32 = 1 << 22;

    pub(super) fn read(memory: &dyn Memory, address: u64) -> Option<Mutex> {
        let mut bytes = [0; Mutex::BYTES];
        memory.read_all(address, &mut bytes)?;
        Mutex::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Option<Mutex> {
        const TYPES: u32 = 3;
        let [word, _count, owner, users] = [0, 4, 8, 12].map(|at| half(bytes, at));
        let (word, owner, users, bits) = (word?, owner?, users?, half(bytes, 16)?);
        let known = TYPES
            | Mutex::ROBUST
            | Mutex::INHERITS
            | Mutex::PROTECTS
            | Mutex::SHARED
            | Mutex::ELISION;
        if bits & !known != 0 || users > Mutex::USERS_MAX || owner == 0 || owner > TID_MASK {
            return None;
        }
        let protocol = match () {
            () if bits & Mutex::INHERITS != 0 => Protocol::InheritsPriority,
            () if bits & Mutex::ROBUST != 0 => Protocol::Robust,
            () => Protocol::Plain,
        };
        let has_waiters = match protocol {
            // The ceiling is in the upper bits.
            Protocol::Plain if bits & Mutex::PROTECTS != 0 => word & 3 == 2,
            Protocol::Plain => word == 2,
            _ => word & WAITERS != 0 && word & TID_MASK == owner,
        };
        has_waiters.then_some(Mutex {
            owner,
            kind: bits & TYPES,
            protocol,
            is_shared: bits & Mutex::SHARED != 0,
        })
    }
}

/// Returns the owner of a futex by FUTEX_LOCK_PI, for which threads wait.
pub(super) fn inheriting_owner(memory: &dyn Memory, address: u64) -> Option<u32> {
    let word = memory.half(address)?;
    let owner = word & TID_MASK;
    (word & WAITERS != 0 && owner != 0).then_some(owner)
}

/// A read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadWriteLock {
    pub address: u64,
    /// 0 for none.
    pub writer: u32,
    pub readers: u32,
    pub is_shared: bool,
}

impl ReadWriteLock {
    const BYTES: usize = 56;
    /// Where a waiter's word is: `__readers`, `__wrphase_futex`, `__writers_futex`.
    const READERS: u64 = 0;
    const PHASE: u64 = 8;
    const WRITERS: u64 = 12;

    /// Finds the lock by the word that a thread waits for; `None` if that can be two, or none.
    pub(super) fn read(memory: &dyn Memory, word: u64, writes: bool) -> Option<ReadWriteLock> {
        let places = if writes {
            [ReadWriteLock::PHASE, ReadWriteLock::WRITERS]
        } else {
            [ReadWriteLock::PHASE, ReadWriteLock::READERS]
        };
        let at = |place: u64| {
            let address = word.checked_sub(place)?;
            let mut bytes = [0; ReadWriteLock::BYTES];
            memory.read_all(address, &mut bytes)?;
            ReadWriteLock::parse(address, &bytes, place)
        };
        match places.map(at) {
            [Some(lock), None] | [None, Some(lock)] => Some(lock),
            _ => None,
        }
    }

    fn parse(address: u64, bytes: &[u8], place: u64) -> Option<ReadWriteLock> {
        const WRITE_PHASE: u32 = 1;
        const WRITE_LOCKED: u32 = 2;
        const READERS_WAIT: u32 = 4;
        const READERS_SHIFT: u32 = 3;
        /// Of the two futexes: threads wait for it.
        const IS_USED: u32 = 2;
        let [readers, _writers, phase, writers, padding, more] =
            [0, 4, 8, 12, 16, 20].map(|at| half(bytes, at));
        let (readers, phase, writers) = (readers?, phase?, writers?);
        let [writer, shared, flags] = [24, 28, 48].map(|at| half(bytes, at));
        let (writer, shared, flags) = (writer?, shared?, flags?);
        let is_one = phase <= 3
            && writers <= 3
            && padding? | more? == 0
            && shared <= 1
            && flags <= 3
            && writer <= TID_MASK;
        let has_waiter = match place {
            ReadWriteLock::PHASE => phase & IS_USED != 0,
            ReadWriteLock::WRITERS => writers & IS_USED != 0,
            _ => readers & READERS_WAIT != 0,
        };
        let is_written = readers & WRITE_PHASE != 0 && readers & WRITE_LOCKED != 0;
        (is_one && has_waiter).then_some(ReadWriteLock {
            address,
            writer: if is_written { writer } else { 0 },
            readers: if readers & WRITE_PHASE == 0 {
                readers >> READERS_SHIFT
            } else {
                0
            },
            is_shared: shared != 0,
        })
    }
}

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    pub address: u64,
    pub arrived: u32,
    pub count: u32,
}

impl Barrier {
    /// Finds the barrier by the word that a thread waits for.
    pub(super) fn read(memory: &dyn Memory, word: u64) -> Option<Barrier> {
        const ROUND: u64 = 4;
        let address = word.checked_sub(ROUND)?;
        let mut bytes = [0; 16];
        memory.read_all(address, &mut bytes)?;
        let [entered, round, count, shared] = [0, 4, 8, 12].map(|at| half(&bytes, at));
        let (count, arrived) = (count?, entered?.wrapping_sub(round?));
        let is_one = count > 0 && arrived <= count && shared? <= 128;
        is_one.then_some(Barrier {
            address,
            arrived,
            count,
        })
    }
}

/// Returns the thread of which a join awaits the end: `word` is the id in its `struct pthread`,
/// which has its own address near its beginning.
pub(super) fn joined(memory: &dyn Memory, word: u64) -> Option<u32> {
    const TID: u64 = 0x2d0;
    const SELF: u64 = 0x10;
    let block = word.checked_sub(TID)?;
    (memory.word(block.checked_add(SELF)?)? == block).then_some(())?;
    memory.half(word).filter(|&tid| tid != 0 && tid <= TID_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(halves: &[u32]) -> Vec<u8> {
        halves.iter().flat_map(|half| half.to_le_bytes()).collect()
    }

    #[test]
    fn a_mutex_is_told_from_rubbish() {
        let plain = |halves: [u32; 6]| Mutex::parse(&bytes(&halves));
        let found = plain([2, 0, 4_200_000, 1, 0, 0]).unwrap();
        assert_eq!(
            (found.owner, found.kind, found.is_shared),
            (4_200_000, 0, false)
        );
        assert!(
            plain([1, 0, 4_200_000, 1, 0, 0]).is_none(),
            "no thread waits"
        );
        assert!(plain([2, 0, 0, 1, 0, 0]).is_none(), "no owner");
        assert!(plain([2, 0, 7, 1, 4, 0]).is_none(), "no such kind");
        assert!(plain([2, 0, 7, u32::MAX, 0, 0]).is_none(), "too many users");
        let inherits = plain([1 << 31 | 7, 1, 7, 1, 32, 0]).unwrap();
        assert_eq!(inherits.protocol, Protocol::InheritsPriority);
        assert!(
            plain([1 << 31 | 8, 1, 7, 1, 16, 0]).is_none(),
            "owners differ"
        );
        assert!(Mutex::parse(&[2; 8]).is_none());
    }

    #[test]
    fn a_lock_is_found_from_each_of_its_words() {
        let written = bytes(&[1 | 2 | 4, 0, 3, 3, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        for place in [0, 8, 12] {
            let lock = ReadWriteLock::parse(0x100, &written, place).unwrap();
            assert_eq!((lock.writer, lock.readers), (77, 0));
        }
        let read = bytes(&[2 << 3 | 2, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let lock = ReadWriteLock::parse(0x100, &read, 8).unwrap();
        assert_eq!((lock.writer, lock.readers), (0, 2));
        assert!(
            ReadWriteLock::parse(0x100, &read, 12).is_none(),
            "no writer waits there"
        );
        assert!(ReadWriteLock::parse(0x100, &[0xff; 56], 8).is_none());
    }
}
