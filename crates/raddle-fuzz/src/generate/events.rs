//! The calls of other agents while a call waits.

use super::Maker;
use crate::calls::{self, Spec};
use crate::case::{Call, Event, FIRST_CHILD, MAIN, Page, Place, Value};

/// When an event happens after its step began.
const DELAYS_MS: [u8; 2] = [10, 20];

impl Maker {
    /// Events for a step of this call; none if there is no other thread.
    pub(super) fn make_events(&mut self, call: &Call) -> Vec<Event> {
        let chance = if call.spec.waits { 85 } else { 4 };
        if self.case.threads == 0 || call.agent >= FIRST_CHILD || !self.random.chance(chance) {
            return Vec::new();
        }
        let count = *self.random.pick(&[1, 1, 1, 2]);
        let (agent, calm) = (self.agent, self.calm);
        self.calm = true;
        let events = (0..count).map(|index| {
            self.agent = self.other_agent(agent);
            let call = self.ending(call);
            self.event(DELAYS_MS[index], call)
        });
        let events = events.collect();
        (self.agent, self.calm) = (agent, calm);
        events
    }

    /// An agent other than this; the main one only as an event's last resort.
    fn other_agent(&mut self, agent: u8) -> u8 {
        let threads = u64::from(self.case.threads);
        let others: Vec<u8> = (1..=threads as u8)
            .filter(|&other| other != agent)
            .collect();
        match others[..] {
            [] => MAIN,
            _ => *self.random.pick(&others),
        }
    }

    fn named(&mut self, name: &str, arguments: Vec<Value>) -> Call {
        let spec = calls::find(name).expect("it stands in a table");
        self.call(spec, arguments)
    }

    /// A call that may end another that waits.
    fn ending(&mut self, waiting: &Call) -> Call {
        match self.random.below(10) {
            0..3 => self.signalling(waiting),
            3..8 => self.providing(waiting),
            8 => self.spoiling(waiting),
            _ => {
                let table = *self.random.pick(calls::TABLES);
                let spec: &'static Spec = self.random.pick(table);
                match spec.answer {
                    calls::Answer::Number if !spec.waits => self.make_call(spec),
                    _ => self.signalling(waiting),
                }
            }
        }
    }

    fn signalling(&mut self, waiting: &Call) -> Call {
        let signal = self.signal();
        match self.random.below(3) {
            0 => self.named("kill", vec![Value::Pid, signal]),
            _ => {
                let target = Value::Tid(waiting.agent);
                self.named("tgkill", vec![Value::Pid, target, signal])
            }
        }
    }

    /// A call that provides what the other waits for: data, room, a wake-up.
    fn providing(&mut self, waiting: &Call) -> Call {
        let first = waiting.arguments.first().copied().unwrap_or(Value::Int(0));
        let number = |value: u64| Value::Int(value);
        match waiting.spec.name {
            "futex" | "futex_waitv" => {
                let (word, wake) = (first, number(*self.random.pick(&[1, 129])));
                self.named("futex", vec![word, wake, number(1)])
            }
            "pthread_cond_wait" | "pthread_cond_timedwait" | "pthread_cond_clockwait" => {
                let name = *self
                    .random
                    .pick(&["pthread_cond_signal", "pthread_cond_broadcast"]);
                self.named(name, vec![first])
            }
            "sem_wait" | "sem_timedwait" | "sem_clockwait" => self.named("sem_post", vec![first]),
            "pthread_barrier_wait" => self.named("pthread_barrier_wait", vec![first]),
            "pthread_mutex_lock" | "pthread_mutex_timedlock" => {
                self.named("pthread_mutex_unlock", vec![first])
            }
            "semop" | "semtimedop" | "msgsnd" | "msgrcv" => {
                let name = *self.random.pick(&["semop", "msgsnd", "msgrcv"]);
                self.make_call(calls::find(name).expect("it stands in a table"))
            }
            "rt_sigtimedwait" | "rt_sigsuspend" | "pause" | "sigwait" | "sigwaitinfo"
            | "sigsuspend" | "nanosleep" | "clock_nanosleep" | "usleep" => self.signalling(waiting),
            _ => self.feeding(first),
        }
    }

    /// Writes to, reads from or closes the other end of a descriptor.
    fn feeding(&mut self, descriptor: Value) -> Call {
        let other = self.other_end(descriptor);
        let buffer = Value::Place(Place::new(Page::BUFFERS, 0));
        let bytes = Value::Int(*self.random.pick(&[1, 8, 64]));
        match self.random.below(8) {
            0..4 => self.named("write", vec![other, buffer, bytes]),
            4..6 => self.named("read", vec![other, buffer, Value::Int(4096)]),
            6 => self.named("close", vec![other]),
            _ => self.named("shutdown", vec![other, Value::Int(2)]),
        }
    }

    /// The other descriptor of a pair, or itself.
    fn other_end(&mut self, descriptor: Value) -> Value {
        let Value::Int(number) = descriptor else {
            return self.descriptor();
        };
        let found = self.case.resources.iter().find_map(|resource| {
            let [first, second] = resource.numbers.map(u64::from);
            match (number == first, number == second) {
                (true, _) => Some(if second == 0 { first } else { second }),
                (_, true) => Some(first),
                _ => None,
            }
        });
        found.map_or_else(|| self.descriptor(), Value::Int)
    }

    /// Takes away what the call uses: its descriptor or its memory.
    fn spoiling(&mut self, waiting: &Call) -> Call {
        let pages = Value::Place(Place::new(Page::CHANGING, 0));
        match waiting.arguments.first() {
            Some(&descriptor) if self.random.chance(60) => self.named("close", vec![descriptor]),
            _ => self.named("munmap", vec![pages, Value::Int(4096)]),
        }
    }
}
