//! Whether a carrier's threads compute in turns of whole quanta, so regularly that a timer of the
//! carrier's own may end the turns.
//!
//! A timer that is no longer needed costs as much as one that is. So a timer starts only after some
//! whole turns in a row, and after more of them if the last timer was soon stopped.

/// Whole turns in a row before the first timer.
pub const FIRST: u32 = 4;
/// The most whole turns that are required.
pub const MOST: u32 = 256;
/// A timer that ended this many turns was worth its start.
pub const WORTH: u64 = 64;

/// See the module. One for each carrier.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// The carrier's count of switches when a thread was preempted last.
    at: u64,
    turns: u32,
    needed: u32,
}

impl Rhythm {
    /// No turn was seen.
    pub const fn new() -> Self {
        Self {
            at: 0,
            turns: 0,
            needed: FIRST,
        }
    }

    /// The thread that the carrier runs since its switch number `switches` has used up its quantum.
    /// Returns true if enough such turns came in a row.
    pub fn turned(&mut self, switches: u64) -> bool {
        let in_a_row = self.turns != 0 && switches == self.at + 1;
        self.turns = if in_a_row { self.turns + 1 } else { 1 };
        self.at = switches;
        self.turns >= self.needed
    }

    /// The timer was stopped after it had ended `turns` turns.
    pub fn broke(&mut self, turns: u64) {
        self.turns = 0;
        self.needed = match turns {
            WORTH.. => FIRST,
            _ => (self.needed * 2).min(MOST),
        };
    }
}

impl Default for Rhythm {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn only_whole_turns_in_a_row_make_a_rhythm() {
        let mut rhythm = Rhythm::new();
        assert!((7..10).all(|switches| !rhythm.turned(switches)));
        assert!(rhythm.turned(10) && rhythm.turned(11));
        assert!(!rhythm.turned(11), "the same thread");
        assert!((12..14).all(|switches| !rhythm.turned(switches)));
        assert!(!rhythm.turned(15), "somebody ran between");
        assert!((16..18).all(|switches| !rhythm.turned(switches)));
        assert!(rhythm.turned(18));
    }

    #[test]
    fn a_timer_that_was_of_little_use_comes_later_next_time() {
        let mut rhythm = Rhythm::new();
        let after = |rhythm: &mut Rhythm| (1..).take_while(|&at| !rhythm.turned(at)).count() + 1;
        assert_eq!(after(&mut rhythm), FIRST as usize);
        for needed in [8, 16, 32, 64, 128, 256, 256] {
            rhythm.broke(WORTH - 1);
            assert_eq!(after(&mut rhythm), needed);
        }
        rhythm.broke(WORTH);
        assert_eq!(after(&mut rhythm), FIRST as usize);
    }
}
