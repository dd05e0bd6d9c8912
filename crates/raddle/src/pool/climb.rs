//! The most productive number of workers, by hill climbing on throughput.
//!
//! The climber stands at one number of workers and measures; then it tries the next, up or down,
//! and measures again; it stays there if the difference is worth it, and goes back otherwise.
//! Steps up must gain, steps down must not lose: of two numbers with equal throughput the smaller
//! wins. Noise is judged by the measurements' own spread (two standard errors of the difference).
//! When neither neighbour is better, the climber rests, each time longer, until throughput
//! changes.
//!
//! The .NET thread pool superimposes a wave on the number and looks for it in the throughput
//! (Hellerstein, Morrison, Eilebrecht 2009). That finds small slopes in much noise, at the price of
//! constant motion; a pool that stands still when nothing can be gained suits fewer, longer
//! measurements.

use std::ops::RangeInclusive;

/// Ticks in one measurement.
const SAMPLES: usize = 4;
/// A step up must gain at least this much of the throughput, beyond noise.
const GAIN: f64 = 0.03;
/// Throughput that changed by this factor ends a rest.
const CHANGE: f64 = 1.3;
const LONGEST_REST_TICKS: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Measurement {
    mean: f64,
    /// Variance of the mean.
    variance: f64,
}

impl Measurement {
    fn of(samples: &[f64]) -> Self {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares = samples.iter().map(|sample| (sample - mean).powi(2));
        let variance = squares.sum::<f64>() / (count - 1.0) / count;
        Self { mean, variance }
    }
}

#[derive(Debug)]
enum Step {
    /// Measures where the climber stands.
    Here,
    /// Measures a neighbour of the number with this measurement.
    Trying(Measurement),
    /// Rests: neither neighbour was better.
    Resting { ticks: u32, throughput: f64 },
}

/// State of the climb: see the module. `tick` is called for each tick in which the pool was busy.
#[derive(Debug)]
pub(super) struct Climber {
    range: RangeInclusive<usize>,
    /// The best number so far.
    stand: usize,
    upward: bool,
    /// Directions tried in vain since the last success.
    failures: u32,
    rest_ticks: u32,
    step: Step,
    samples: Vec<f64>,
}

impl Climber {
    pub(super) fn new(range: RangeInclusive<usize>) -> Self {
        Self {
            stand: *range.start(),
            range,
            upward: true,
            failures: 0,
            rest_ticks: 4,
            step: Step::Here,
            samples: Vec::with_capacity(SAMPLES),
        }
    }

    /// Starts anew from a number that the pool has set by other means.
    pub(super) fn stand_at(&mut self, workers: usize) {
        if workers != self.stand && !matches!(self.step, Step::Trying(_)) {
            self.stand = workers;
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.step = Step::Here;
        self.failures = 0;
        self.samples.clear();
    }

    /// Returns the number of workers for the next tick, after one with `throughput` items a second.
    pub(super) fn tick(&mut self, throughput: f64) -> usize {
        if let Step::Resting {
            ticks,
            throughput: usual,
        } = &mut self.step
        {
            let factor = throughput.max(1e-9) / usual.max(1e-9);
            *ticks = ticks.saturating_sub(1);
            if *ticks == 0 || !(1.0 / CHANGE..CHANGE).contains(&factor) {
                self.begin();
            }
            return self.stand;
        }
        self.samples.push(throughput);
        if self.samples.len() < SAMPLES {
            return self.now();
        }
        let measured = Measurement::of(&self.samples);
        self.samples.clear();
        match self.step {
            Step::Trying(before) => self.judge(before, measured),
            _ => self.step = Step::Trying(measured),
        }
        if matches!(self.step, Step::Trying(_)) && self.neighbour() == self.stand {
            self.turn(measured);
        }
        self.now()
    }

    /// Returns the number that is in force while measuring.
    fn now(&self) -> usize {
        match self.step {
            Step::Trying(_) => self.neighbour(),
            _ => self.stand,
        }
    }

    fn neighbour(&self) -> usize {
        let next = if self.upward {
            self.stand + 1
        } else {
            self.stand.saturating_sub(1)
        };
        next.clamp(*self.range.start(), *self.range.end())
    }

    fn judge(&mut self, before: Measurement, after: Measurement) {
        let noise = 2.0 * (before.variance + after.variance).sqrt();
        let gain = after.mean - before.mean;
        let worth = if self.upward {
            gain > noise + GAIN * before.mean
        } else {
            gain > -noise.min(GAIN * before.mean)
        };
        if worth {
            self.stand = self.neighbour();
            self.failures = 0;
            self.rest_ticks = 4;
            self.step = Step::Trying(after);
        } else {
            self.turn(before);
        }
    }

    /// Turns round after a direction without gain, or rests after both.
    fn turn(&mut self, here: Measurement) {
        self.upward = !self.upward;
        self.failures += 1;
        self.step = match self.failures {
            0 | 1 => Step::Here,
            _ => {
                let ticks = self.rest_ticks;
                self.rest_ticks = (2 * ticks).min(LONGEST_REST_TICKS);
                let throughput = here.mean;
                Step::Resting { ticks, throughput }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where the climber stands most of the last half of the ticks, for a throughput by
    /// workers with some noise.
    fn climb(ticks: usize, curve: impl Fn(usize, usize) -> f64) -> usize {
        let mut climber = Climber::new(2..=20);
        let (mut workers, mut random, mut histogram) = (2, 1u32, [0; 21]);
        for tick in 0..ticks {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = f64::from(random >> 8) / f64::from(1 << 24) - 0.5;
            workers = climber.tick(curve(tick, workers) * (1.0 + 0.04 * noise));
            assert!((2..=20).contains(&workers));
            histogram[workers] += usize::from(tick > ticks / 2);
        }
        (0..=20).max_by_key(|&n| histogram[n]).unwrap_or(workers)
    }

    #[test]
    fn it_finds_the_top_of_a_hill() {
        let hill = |_, n: usize| 1000.0 * n.min(9) as f64 - 300.0 * n.saturating_sub(9) as f64;
        assert!((8..=10).contains(&climb(2000, hill)));
    }

    #[test]
    fn it_stays_low_where_more_workers_do_no_more() {
        assert_eq!(climb(2000, |_, _| 5000.0), 2);
    }

    #[test]
    fn it_comes_down_when_the_hill_moves() {
        let hill = |tick: usize, n: usize| {
            if tick < 700 {
                100.0 * n as f64
            } else {
                1000.0 - 40.0 * n as f64
            }
        };
        assert!(climb(3000, hill) <= 4);
    }
}
