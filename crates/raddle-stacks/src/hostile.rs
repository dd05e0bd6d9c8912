//! For tests: memory of a true process that lies, and how much memory its reader takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::memory::{Memory, ProcessMemory};

/// Counts what each thread has allocated.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: all is passed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Calls a function, and returns the most bytes that it had at a time.
pub(crate) fn most_bytes(call: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    call();
    (MOST.get() - before) as usize
}

/// How memory lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// A byte is another one.
    Byte,
    /// A word is the address where it is, or one near it.
    Itself,
    /// A word is a huge number.
    Huge,
    /// A word is one that was read before.
    Earlier,
}

const LIES: [Lie; 4] = [Lie::Byte, Lie::Itself, Lie::Huge, Lie::Earlier];

/// The memory of a process in which one of so many bytes is a lie. All follows from a seed.
pub(crate) struct Damaged {
    memory: ProcessMemory,
    random: Cell<u64>,
    lie: Lie,
    one_in: u64,
    earlier: Cell<u64>,
}

impl Damaged {
    pub(crate) fn of(pid: u32, seed: u64) -> Damaged {
        Damaged {
            memory: ProcessMemory::of(pid),
            random: Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            lie: LIES[seed as usize % LIES.len()],
            one_in: 1 << (5 + seed / LIES.len() as u64 % 12),
            earlier: Cell::new(0),
        }
    }

    pub(crate) fn random(&self, limit: u64) -> u64 {
        let mut word = self.random.get();
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        self.random.set(word);
        word.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }

    /// Changes the byte at a position, or the word that it is in.
    fn change(&self, address: u64, bytes: &mut [u8], at: usize) {
        let word_at = (address as usize + at) / 8 * 8;
        let start = word_at.wrapping_sub(address as usize);
        let word = match self.lie {
            Lie::Byte => {
                bytes[at] = self.random(256) as u8;
                return;
            }
            Lie::Itself => word_at as u64 ^ (self.random(4) * 8),
            Lie::Huge => u64::MAX >> self.random(40),
            Lie::Earlier => self.earlier.get(),
        };
        let Some(place) = bytes.get_mut(start..).and_then(|it| it.first_chunk_mut()) else {
            return;
        };
        self.earlier.set(u64::from_le_bytes(*place));
        *place = word.to_le_bytes();
    }
}

impl Memory for Damaged {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let got = self.memory.read(address, to);
        let mut at = self.random(self.one_in);
        while at < got as u64 {
            self.change(address, &mut to[..got], at as usize);
            at += 1 + self.random(self.one_in);
        }
        got
    }
}
