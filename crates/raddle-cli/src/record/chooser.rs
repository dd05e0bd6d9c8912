//! Which stacks of waiting threads are read: as many as cost a quarter of a percent of a CPU, by
//! lot, or two percent where a CPU has nothing else to do. A higher frequency raises this part in
//! proportion. Costs are CPU time: by the clock a stack
//! costs what others compute meanwhile, too, so that fewer were read the busier the machine was.

use std::time::{Duration, Instant};

use raddle_inspect::Lots;

/// The part of a CPU that reading may take at the usual frequency, and at any.
const PART: f64 = 0.0025;
/// It may take so many times that part where a CPU is idle.
const TIMES_IDLE: f64 = 8.0;
const PART_MOST: f64 = 0.2;
const USUAL_HZ: f64 = 99.0;
/// What may be spent at once: the first look at the threads of a process, and bursts.
const BURST: Duration = Duration::from_millis(4);
/// What may be spent when the recording is over, for threads that have waited all the time.
const AT_END: Duration = Duration::from_millis(100);
/// So many stacks are read at each look, on average, whatever they cost.
const LEAST_STACKS: f64 = 0.5;
/// What the first stack is expected to cost.
const FIRST_COST: f64 = 10e-6;

/// See the module.
pub(super) struct Chooser {
    part: f64,
    is_idle: bool,
    /// Seconds that may be spent.
    left: f64,
    filled: Instant,
    /// The usual cost of a stack, in seconds.
    cost: f64,
    lots: Lots,
}

impl Chooser {
    pub(super) fn new(seed: u64, frequency: u32) -> Chooser {
        let times = (f64::from(frequency) / USUAL_HZ).max(1.0);
        Chooser {
            part: PART * times,
            is_idle: false,
            left: BURST.as_secs_f64(),
            filled: Instant::now(),
            cost: FIRST_COST,
            lots: Lots::new(seed),
        }
    }

    /// Returns the chance that each of so many stacks has to be read now.
    pub(super) fn chance(&mut self, count: usize) -> f64 {
        let now = Instant::now();
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.filled = now;
        let most = self.left.max(BURST.as_secs_f64());
        let times = if self.is_idle { TIMES_IDLE } else { 1.0 };
        self.left = (self.left + passed * (self.part * times).min(PART_MOST)).min(most);
        // A look without a chance would leave out what threads do just then.
        let affordable = (self.left / self.cost).max(LEAST_STACKS);
        (affordable / count.max(1) as f64).min(1.0)
    }

    /// A CPU has nothing else to do from now on, or has.
    pub(super) fn set_idle(&mut self, is_idle: bool) {
        self.is_idle = is_idle;
    }

    /// The recording is over: what is read from now on is no burden of it.
    pub(super) fn end(&mut self) {
        self.left = AT_END.as_secs_f64();
    }

    /// Decides by lot.
    pub(super) fn draws(&mut self, chance: f64) -> bool {
        self.lot() < chance
    }

    /// Returns a number by lot, at least 0 and less than 1.
    pub(super) fn lot(&mut self) -> f64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        (self.lots.draw() >> 11) as f64 / STEPS
    }

    /// Chooses one of so many by lot.
    pub(super) fn draw_of(&mut self, count: usize) -> usize {
        (self.lots.draw() % count.max(1) as u64) as usize
    }

    /// Returns false if no more may be spent now.
    pub(super) fn can_afford_one(&self) -> bool {
        self.left >= self.cost
    }

    /// Counts the CPU time that a stack has cost.
    pub(super) fn spent(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.left -= seconds;
        self.cost += (seconds - self.cost) / 16.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lots_are_fair() {
        let mut chooser = Chooser::new(7, 99);
        let drawn = (0..10_000).filter(|_| chooser.draws(0.3)).count();
        assert!((2_800..3_200).contains(&drawn), "{drawn}");
        assert!(!chooser.draws(0.0) && chooser.draws(1.0));
    }

    #[test]
    fn what_is_spent_lowers_the_chance() {
        let mut chooser = Chooser::new(7, 99);
        assert_eq!(chooser.chance(10), 1.0);
        assert!(chooser.chance(1_000_000) < 0.01);
        chooser.spent(BURST);
        assert!(!chooser.can_afford_one());
        assert!(chooser.chance(1000) < 0.5);
    }

    #[test]
    fn more_is_spent_where_a_cpu_is_idle() {
        let refilled = |is_idle| {
            let mut chooser = Chooser::new(7, 99);
            chooser.set_idle(is_idle);
            chooser.spent(BURST);
            std::thread::sleep(Duration::from_millis(20));
            chooser.chance(1000);
            chooser.left
        };
        assert!(refilled(true) > 0.02 * 0.02 && refilled(true) > 2.0 * refilled(false));
    }

    #[test]
    fn the_rest_is_read_at_the_end() {
        let mut chooser = Chooser::new(7, 99);
        chooser.spent(BURST);
        assert!(chooser.chance(300) < 0.1);
        chooser.end();
        assert_eq!(chooser.chance(300), 1.0);
        assert!(chooser.can_afford_one());
        chooser.spent(AT_END);
        assert!(!chooser.can_afford_one());
    }
}
