//! The green threads' programs: lists of steps, made from a seed.
//!
//! Every list ends: each wait without a deadline has a post, by a thread that waits for nothing but
//! its partner.

use crate::rng::Rng;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Computes.
    Run(u64),
    /// Adds one to a counter and wakes one waiter, which runs next.
    Post(usize),
    /// Adds many at once and wakes as many waiters, which queue up.
    PostMany(usize, u32),
    /// Takes one from a counter; parks while it is zero.
    Wait(usize),
    /// The same, for so many nanoseconds at most.
    WaitFor(usize, u64),
    Sleep(u64),
    Yield,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// All kinds of steps.
    Mixed,
    /// Pairs that hand each other turns.
    PingPong,
    /// One carrier gets more threads than its ring holds; other threads sleep.
    Crowd,
    /// Threads that compute for long after they made another thread runnable.
    Stuck,
    /// Deadlines, most of which don't pass.
    Timers,
    /// Threads that only the world outside wakes.
    Outside,
}

impl Workload {
    pub(crate) const ALL: [Self; 6] = [
        Self::Mixed,
        Self::PingPong,
        Self::Crowd,
        Self::Stuck,
        Self::Timers,
        Self::Outside,
    ];
}

/// The lists, and the counters that the world outside posts to.
pub(crate) struct Programs {
    pub lists: Vec<Vec<Step>>,
    pub counters: usize,
    pub from_outside: Vec<usize>,
}

struct Maker<'a> {
    rng: &'a mut Rng,
    made: Programs,
}

pub(crate) fn make(workload: Workload, rng: &mut Rng) -> Programs {
    let made = Programs {
        lists: Vec::new(),
        counters: 0,
        from_outside: Vec::new(),
    };
    let mut maker = Maker { rng, made };
    match workload {
        Workload::Mixed => {
            maker.repeat(1, 4, |maker| maker.ping_pong(20_000));
            maker.repeat(1, 3, Maker::producers_and_consumers);
            maker.repeat(0, 2, Maker::fan_out);
            maker.repeat(0, 6, Maker::sleeper);
            maker.repeat(0, 4, Maker::timed_waiter);
            maker.repeat(0, 3, Maker::yielder);
            maker.repeat(0, 5, Maker::waits_for_outside);
        }
        Workload::PingPong => maker.repeat(1, 12, |maker| maker.ping_pong(3_000)),
        Workload::Crowd => {
            maker.crowd();
            maker.repeat(0, 5, Maker::sleeper);
        }
        Workload::Stuck => {
            maker.repeat(2, 5, |maker| maker.ping_pong(2_000));
            maker.repeat(1, 3, Maker::leaves_waiting);
        }
        Workload::Timers => {
            maker.repeat(2, 20, Maker::timed_waiter);
            maker.repeat(2, 40, Maker::sleeper);
        }
        Workload::Outside => maker.repeat(1, 10, Maker::waits_for_outside),
    }
    maker.made
}

impl Maker<'_> {
    fn repeat(&mut self, least: u64, most: u64, mut make: impl FnMut(&mut Self)) {
        for _ in 0..self.rng.between(least, most) {
            make(self);
        }
    }

    fn counter(&mut self) -> usize {
        self.made.counters += 1;
        self.made.counters - 1
    }

    fn run(&mut self, longest_ns: u64) -> Step {
        Step::Run(self.rng.between(20, longest_ns))
    }

    fn ping_pong(&mut self, longest_ns: u64) {
        let (ping, pong) = (self.counter(), self.counter());
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.between(5, 60) {
            one.extend([self.run(longest_ns), Step::Post(ping), Step::Wait(pong)]);
            two.extend([Step::Wait(ping), self.run(longest_ns), Step::Post(pong)]);
        }
        self.made.lists.extend([one, two]);
    }

    fn producers_and_consumers(&mut self) {
        let counter = self.counter();
        let (threads, rounds) = (self.rng.between(1, 5), self.rng.between(2, 20));
        for _ in 0..threads {
            let (mut producer, mut consumer) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                producer.extend([self.run(20_000), Step::Post(counter)]);
                if self.rng.once_in(4) {
                    producer.push(Step::Sleep(self.rng.between(1_000, 300_000)));
                }
                consumer.extend([Step::Wait(counter), self.run(40_000)]);
            }
            self.made.lists.extend([producer, consumer]);
        }
    }

    /// One thread starts many at once, more than a ring holds.
    fn fan_out(&mut self) {
        let (counter, width) = (self.counter(), self.rng.between(100, 400));
        for _ in 0..width {
            let list = vec![Step::Wait(counter), self.run(30_000)];
            self.made.lists.push(list);
        }
        let pause = Step::Sleep(self.rng.between(1_000, 3_000_000));
        self.made
            .lists
            .push(vec![pause, Step::PostMany(counter, width as u32)]);
    }

    fn sleeper(&mut self) {
        let mut list = Vec::new();
        for _ in 0..self.rng.between(1, 8) {
            list.push(Step::Sleep(self.rng.between(1, 2_000_000)));
            list.push(self.run(10_000));
        }
        self.made.lists.push(list);
    }

    /// Waits with deadlines for posts that come for some of them.
    fn timed_waiter(&mut self) {
        let counter = self.counter();
        let (mut waiter, mut poster) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.between(1, 10) {
            waiter.push(Step::WaitFor(counter, self.rng.between(1, 1_000_000)));
            poster.push(Step::Sleep(self.rng.between(1, 1_000_000)));
            if self.rng.once_in(2) {
                poster.push(Step::Post(counter));
            }
        }
        self.made.lists.extend([waiter, poster]);
    }

    fn yielder(&mut self) {
        let mut list = Vec::new();
        for _ in 0..self.rng.between(5, 50) {
            list.extend([self.run(15_000), Step::Yield]);
        }
        self.made.lists.push(list);
    }

    fn waits_for_outside(&mut self) {
        let counter = self.counter();
        let rounds = self.rng.between(1, 6) as usize;
        let list = (0..rounds)
            .flat_map(|_| [Step::Wait(counter), self.run(2_000)])
            .collect();
        self.made.lists.push(list);
        self.made.from_outside.extend(vec![counter; rounds]);
    }

    /// Many threads that yield for longer than any bound.
    fn crowd(&mut self) {
        let (counter, width) = (self.counter(), self.rng.between(10, 350));
        let turns = 150_000_000 / (width * 20_000) + 2;
        for _ in 0..width {
            let mut list = vec![Step::Wait(counter)];
            for _ in 0..turns {
                list.extend([self.run(40_000), Step::Yield]);
            }
            self.made.lists.push(list);
        }
        self.made.lists.push(vec![
            Step::Sleep(500_000),
            Step::PostMany(counter, width as u32),
        ]);
    }

    /// Makes another thread runnable in the slot or the ring, then computes for long.
    fn leaves_waiting(&mut self) {
        let counter = self.counter();
        let several = self.rng.between(1, 3) as u32;
        let pause = Step::Sleep(self.rng.between(1_000, 2_000_000));
        let post = if several == 1 {
            Step::Post(counter)
        } else {
            Step::PostMany(counter, several)
        };
        let long = Step::Run(self.rng.between(500_000_000, 900_000_000));
        self.made.lists.push(vec![pause, post, long]);
        for _ in 0..several {
            let list = vec![Step::Wait(counter), self.run(20_000)];
            self.made.lists.push(list);
        }
    }
}
