//! What imaginary tasks do at the ends of their pieces of work.

use super::{Behaviour, Event, MOMENT_NS, US, World};
use raddle_sched::share::gives_way;

/// How long a task waits for a lock at most.
const TIME_LIMIT_NS: u64 = 50 * US;

impl World {
    /// As the engine's: the next task is not one that is ahead if this one is, or has woken it.
    fn make_room(&mut self, own: usize, green: usize) {
        let carrier = &self.carriers[own];
        let is_ahead = self.greens[green].used.is_ahead_after(0, &self.clock);
        if is_ahead || carrier.queue.peek_lifo().is_some() {
            carrier.chooser.made_room();
        }
    }

    pub(super) fn work_done(&mut self, own: usize) {
        let green = self.carriers[own].running.expect("a running task");
        match self.greens[green].behaviour {
            Behaviour::Compute => unreachable!("it never ends"),
            Behaviour::RunAndSleep { sleep, .. } => {
                self.leave(own);
                self.greens[green].left_ns = 0;
                let sleep_ns = self.between(sleep);
                self.after(sleep_ns, Event::Wake(green));
            }
            Behaviour::First(_) => {
                self.wake(own, green + 1);
                self.wait(own, green);
            }
            Behaviour::Second(_) => {
                self.wake(own, green - 1);
                self.wait(own, green);
            }
            Behaviour::Woken(_) => self.wait(own, green),
            Behaviour::Yield(ns) => {
                let turn_ns = self.now_ns - self.carriers[own].since_ns;
                self.leave(own);
                self.greens[green].left_ns = ns;
                self.make_room(own, green);
                self.carriers[own].chooser.yielded(turn_ns);
                self.queue(own, green, false);
            }
            Behaviour::Create(ns) => self.create(own, green, ns),
            Behaviour::Created(_) => self.end(own, green),
            Behaviour::Lend(distance) => {
                self.lend(own, green, green - distance);
                self.leave(own);
                self.greens[green].left_ns = 0;
                self.after(TIME_LIMIT_NS, Event::Wake(green));
            }
            Behaviour::Waker(ns) => self.woke(own, green, green + 1, ns),
            Behaviour::Dispatch(ns, workers) => {
                let next = self.greens[green].next;
                self.greens[green].next = (next + 1) % workers;
                self.woke(own, green, green + 1 + next, ns);
            }
        }
    }

    /// The running task wakes `woken`, and runs on for `ns` or gives way.
    fn woke(&mut self, own: usize, green: usize, woken: usize, ns: u64) {
        let woken = self.wake(own, woken);
        self.run_on(own, green, ns);
        if let Some(woken) = woken {
            let turn_ns = self.now_ns - self.carriers[own].since_ns;
            let own_ns = self.greens[green].used.own.recent_ns(self.now_ns) + turn_ns;
            let woken_ns = self.greens[woken].used.own.recent_ns(self.now_ns);
            if gives_way(own_ns, woken_ns) {
                self.preempt(own);
            }
        }
    }

    fn run_on(&mut self, own: usize, green: usize, ns: u64) {
        self.greens[green].left_ns = ns + (self.now_ns - self.carriers[own].since_ns);
        let turn = self.carriers[own].turn;
        self.after(ns, Event::Done(own, turn));
    }

    fn wake(&mut self, own: usize, green: usize) -> Option<usize> {
        if !std::mem::take(&mut self.greens[green].waits) {
            return None;
        }
        self.greens[green].was_woken = true;
        self.queue(own, green, true);
        Some(green)
    }

    fn wait(&mut self, own: usize, green: usize) {
        self.leave(own);
        self.greens[green].left_ns = 0;
        self.greens[green].waits = true;
    }

    /// The running task makes a new one, or waits for the end of the one that it has made.
    fn create(&mut self, own: usize, green: usize, ns: u64) {
        let joins = std::mem::take(&mut self.greens[green].next) != 0;
        if !joins {
            self.greens[green].next = 1;
            let (maker, new) = (
                &self.greens[green].used.own,
                &self.greens[green + 1].used.own,
            );
            new.reset(self.clock.read_ns());
            new.inherit(maker);
            self.woke(own, green, green + 1, MOMENT_NS);
        } else if self.greens[green + 1].waits {
            self.run_on(own, green, ns);
        } else {
            self.wait(own, green);
        }
    }

    /// The running task ends. The task before it waits for that, perhaps.
    fn end(&mut self, own: usize, green: usize) {
        if self.forgets_last_turns {
            self.carriers[own].running = None;
            self.carriers[own].turn += 1;
            self.after(super::SWITCH_NS, Event::Pick(own));
        } else {
            self.leave(own);
            let (maker, ended) = (&self.greens[green - 1].used, &self.greens[green].used);
            maker.own.inherit_back(&ended.own, self.now_ns);
        }
        self.greens[green].left_ns = 0;
        self.greens[green].waits = true;
        self.wake(own, green - 1);
    }

    /// As the engine's: the running task waits for a lock that `holder` has.
    fn lend(&mut self, own: usize, green: usize, holder: usize) {
        let lends = !self.greens[green].used.is_ahead_after(0, &self.clock);
        if (lends || self.lends_for_nothing) && self.ahead.take(self.task(holder)) {
            self.greens[holder].lender = Some(green);
            if let Some(task) = self.carriers[own].queue.push_lifo(self.task(holder))
                && let Some(overflow) = self.carriers[own].queue.push(task)
            {
                self.injector.push_all(overflow);
            }
        }
    }
}
