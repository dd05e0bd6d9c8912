//! The CPUs that the program is shown: as many as there are carriers, if that is fewer.
//!
//! A program that makes a thread for each CPU it sees makes as many as can run. Those that spin for
//! each other would else spin for partners that have no carrier.

use crate::os::cpus;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of the largest mask that any kernel has (8192 CPUs).
const WORDS: usize = 128;

/// What is shown: on one page, because each process writes it at its start.
#[repr(C, align(2048))]
struct Shown {
    /// 1 once the rest may be other than zero. Written first: a page that is read before it is
    /// written faults twice.
    is_set: AtomicU32,
    /// The most CPUs that are shown; 0 for all.
    most: AtomicU32,
    /// 1 if the program sees the machine's CPUs whatever happens.
    all: AtomicU32,
    /// The CPUs that are shown, when there is a limit. Written before `most`.
    mask: [AtomicU64; WORDS],
}

static SHOWN: Shown = Shown {
    is_set: AtomicU32::new(0),
    most: AtomicU32::new(0),
    all: AtomicU32::new(0),
    mask: [const { AtomicU64::new(0) }; WORDS],
};

/// Shows all CPUs from now on.
pub fn show_all() {
    SHOWN.all.store(1, Ordering::Relaxed);
}

/// Sets how many of the process's CPUs later questions are answered with; 0 for all.
#[unsafe(link_section = ".text.raddle_start")] // see `raddle_preload::start`
pub fn show(most: u32) {
    SHOWN.is_set.store(1, Ordering::Relaxed);
    if SHOWN.all.load(Ordering::Relaxed) != 0 {
        return;
    }
    if most != 0 {
        let mut mask = [0; WORDS];
        cpus::read_affinity_mask(&mut mask);
        keep_first(&mut mask, most);
        for (shown, word) in SHOWN.mask.iter().zip(mask) {
            if shown.load(Ordering::Relaxed) != word {
                shown.store(word, Ordering::Relaxed);
            }
        }
    }
    if SHOWN.most.load(Ordering::Relaxed) != most {
        SHOWN.most.store(most, Ordering::Release);
    }
}

/// The most CPUs that are shown, unless all are.
pub fn most() -> Option<u32> {
    match SHOWN.most.load(Ordering::Acquire) {
        0 => None,
        most => Some(most),
    }
}

/// Leaves those of a mask that are shown.
pub fn keep_shown(mask: &mut [u64]) {
    if let Some(most) = most() {
        keep_first(mask, most);
    }
}

/// The CPU that stands for `cpu`: itself if it is shown.
pub fn in_place_of(cpu: u32) -> u32 {
    let Some(most) = most() else {
        return cpu;
    };
    let word = |index: usize| {
        SHOWN
            .mask
            .get(index)
            .map_or(0, |it| it.load(Ordering::Relaxed))
    };
    stand_in(cpu, most, word)
}

fn stand_in(cpu: u32, most: u32, word: impl Fn(usize) -> u64) -> u32 {
    if word(cpu as usize / 64) >> (cpu % 64) & 1 != 0 {
        return cpu;
    }
    let mut left = cpu % most;
    for index in 0..WORDS {
        let mut bits = word(index);
        if left >= bits.count_ones() {
            left -= bits.count_ones();
            continue;
        }
        for _ in 0..left {
            bits &= bits - 1;
        }
        return index as u32 * 64 + bits.trailing_zeros();
    }
    cpu
}

fn keep_first(mask: &mut [u64], most: u32) {
    let mut left = most;
    for word in mask {
        while word.count_ones() > left {
            *word &= !(1 << (63 - word.leading_zeros()));
        }
        left -= word.count_ones();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_kept() {
        let mut mask = [0b1011, u64::MAX, 0b1];
        keep_first(&mut mask, 5);
        assert_eq!(mask, [0b1011, 0b11, 0]);
        keep_first(&mut mask, 5);
        assert_eq!(mask, [0b1011, 0b11, 0]);
        keep_first(&mut mask, 1);
        assert_eq!(mask, [1, 0, 0]);
    }

    #[test]
    fn who_is_not_shown_has_a_stand_in_that_is() {
        let shown = |index: usize| [0b1010, 1 << 63].get(index).copied().unwrap_or(0);
        let stands_for = |cpu| stand_in(cpu, 3, shown);
        assert_eq!([1, 3, 127].map(stands_for), [1, 3, 127]);
        assert_eq!([0, 4, 8, 9000].map(stands_for), [1, 3, 127, 1]);
        assert_eq!(stand_in(7, 1, |_| 0), 7);
    }
}
