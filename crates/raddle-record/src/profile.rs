//! A profile: where threads of a process ran, and where they waited.
//!
//! | noun | is |
//! |---|---|
//! | [`Profile`] | all that was recorded, with names |
//! | [`Function`] | a named piece of code; equal ones are kept once |
//! | [`Sample`] | a stack of one thread, and the time for which it stands |
//! | [`Activity`] | what the thread did with this time |
//! | [`Thread`] | a thread, and its exact times |
//! | [`Wait`] | an object that threads waited for, and for how long |
//! | [`Waking`] | the part of a wait's time that one waker ended |
//! | [`Lock`] | a lock that threads waited for, with those that held it |
//!
//! Times of threads and waits are exact: the process has recorded each switch. Samples say where in
//! the code these times were spent. Those of one thread in one kind of wait have the weight of that
//! time together.

use std::collections::HashMap;

use raddle_inspect::WaitKind;

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activity {
    /// It executed on a carrier.
    Running,
    /// It was on a carrier that had no CPU, or was in the kernel without being seen there.
    WithoutCpu,
    /// It was runnable, and no carrier ran it.
    Runnable,
    /// It waited in the kernel, and its carrier with it.
    InKernel,
    /// It waited, and its carrier ran other threads.
    Waiting(WaitKind),
}

impl Activity {
    /// Returns the word for it: `running`, `without a CPU`, `runnable`, `in kernel`, or the kind of
    /// the wait.
    pub fn word(self) -> String {
        match self {
            Activity::Running => "running".into(),
            Activity::WithoutCpu => "without a CPU".into(),
            Activity::Runnable => "runnable".into(),
            Activity::InKernel => "in kernel".into(),
            Activity::Waiting(kind) => kind.word().into(),
        }
    }

    /// Returns true if the thread used a CPU.
    pub fn is_on_cpu(self) -> bool {
        self == Activity::Running
    }
}

/// The origin of a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Native code, by the symbols of its file.
    Native,
    Python,
    Java,
    /// Code that a compiler at run time has named in a perf map.
    Mapped,
    /// The kernel.
    Kernel,
    /// The profile itself: a part without a name or a stack.
    Note,
}

/// A named piece of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: String,
    pub origin: Origin,
    /// The source file, if it is known.
    pub file: Option<String>,
    /// The line that was executed, if it is known.
    pub line: Option<u32>,
    /// The last part of the path of the file with the code, if there is one.
    pub module: Option<String>,
    /// True if the function has no frame of its own.
    pub is_inlined: bool,
}

impl Function {
    /// A part of the profile without a name in the program.
    pub fn note(name: impl Into<String>) -> Function {
        Function {
            name: name.into(),
            origin: Origin::Note,
            file: None,
            line: None,
            module: None,
            is_inlined: false,
        }
    }
}

/// A stack of one thread, and the time for which it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The position of the thread in [`Profile::threads`].
    pub thread: u32,
    pub activity: Activity,
    /// What it waited for: an address, a descriptor, a number; 0 otherwise.
    pub object: u64,
    /// The position of the stack in [`Profile::stacks`].
    pub stack: u32,
    /// When the stack was read, in nanoseconds since the profile's begin.
    pub at_ns: u64,
    /// The time for which it stands, in nanoseconds.
    pub weight_ns: u64,
    /// The number of the waits or turns for which it stands; 0 if others stand for them.
    pub count: u64,
}

/// A green thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    pub tid: u32,
    pub name: String,
    /// When it began, and when it ended, in nanoseconds since the profile's begin; none where it
    /// was there before or is there still.
    pub began_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    pub running_ns: u64,
    pub runnable_ns: u64,
    pub in_kernel_ns: u64,
    pub waiting_ns: u64,
    /// How often it began to run.
    pub turns: u64,
    /// How often it was woken.
    pub wakes: u64,
    /// The longest time for which it was runnable.
    pub longest_runnable_ns: u64,
}

/// What threads waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub kind: WaitKind,
    /// An address, a descriptor, a number, or 0.
    pub object: u64,
    /// The name of the object, if there is one: a static variable, a file.
    pub name: Option<String>,
    /// The number of waits, those of all threads together.
    pub count: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    /// The number of threads that waited.
    pub threads: u64,
    /// The threads that woke others from it, by their positions, with how often; most often first.
    pub wakers: Vec<(u32, u64)>,
}

/// A lock that threads waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// What kind of lock it is: `mutex`, `std::sync::Mutex`.
    pub kind: String,
    /// The address of the word that threads waited for.
    pub address: u64,
    /// The name of the variable, if it is a static one.
    pub name: Option<String>,
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_wait_ns: u64,
    /// The number of threads that waited.
    pub waiters: u64,
    /// What threads of this process held it for while others waited, if that is known of any hold.
    pub holds: Option<Holds>,
    /// The time of waits that no thread of this process has ended, but for time limits.
    pub ended_elsewhere_ns: u64,
    /// Stacks of waiters, with the time waited there; the longest first.
    pub waits_at: Vec<(u32, u64)>,
    /// What holders did while others waited; the most first.
    pub held_at: Vec<Holder>,
}

/// Holds of a lock that others waited for, which ended with the wake-up of another thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    pub count: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

/// A thread that held a lock while others waited for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holder {
    /// The position of the thread in [`Profile::threads`]; none for readers of a read-write lock,
    /// which notes only how many they are.
    pub thread: Option<u32>,
    /// The position of its stack in [`Profile::stacks`]; none while it executed, and for readers.
    pub stack: Option<u32>,
    /// The time that others waited meanwhile, as far as samples tell.
    pub waited_ns: u64,
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Waker {
    /// A thread, by its position, at a place in the code if that was read.
    Thread { thread: u32, stack: Option<u32> },
    /// The time for which the thread wanted to wait at most is over.
    Timer,
    /// The kernel: a descriptor is ready, a transfer is done.
    Kernel,
    /// Another thread has ended.
    End,
    /// The wait went on when the recording ended.
    None,
    /// It is not known.
    Unknown,
}

/// A part of the time that a thread waited at a place, with what ended these waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waking {
    /// As in [`Sample`].
    pub thread: u32,
    pub activity: Activity,
    pub object: u64,
    /// The stack of the thread that waited.
    pub stack: u32,
    pub waker: Waker,
    pub weight_ns: u64,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub pid: u32,
    /// The command line.
    pub command: Vec<String>,
    /// When recording began, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    pub duration_ns: u64,
    /// The time between two samples of a running thread.
    pub interval_ns: u64,
    pub functions: Vec<Function>,
    /// Positions of functions, from the outermost caller inwards.
    pub stacks: Vec<Vec<u32>>,
    pub threads: Vec<Thread>,
    /// In the order of `at_ns`.
    pub samples: Vec<Sample>,
    /// The same waits as in the samples, with the same sum, by what ended them; empty if that was
    /// not recorded.
    pub wakings: Vec<Waking>,
    /// The longest time first.
    pub waits: Vec<Wait>,
    /// The longest time waited first.
    pub locks: Vec<Lock>,
    /// Events that were lost: times that contain them are too short or too long.
    pub lost_events: u64,
    /// Samples that the kernel had no room for.
    pub lost_samples: u64,
    /// Sentences on what is missing.
    pub remarks: Vec<String>,
}

impl Profile {
    /// Returns the functions of a stack, from the outermost caller inwards; those that don't exist
    /// are left out.
    pub fn functions_of(&self, stack: u32) -> impl DoubleEndedIterator<Item = &Function> {
        let stack = self.stacks.get(stack as usize).map_or(&[][..], |it| it);
        stack
            .iter()
            .filter_map(|&function| self.functions.get(function as usize))
    }
}

/// Functions and stacks, equal ones once.
#[derive(Default)]
pub struct Interner {
    pub functions: Vec<Function>,
    pub stacks: Vec<Vec<u32>>,
    function_numbers: HashMap<Function, u32>,
    stack_numbers: HashMap<(Vec<u32>, u32), u32>,
    /// The monitors of Java that stacks wait for, by the stacks' positions: the numbers of their
    /// objects.
    pub monitors: HashMap<u32, u32>,
}

impl Interner {
    /// Returns the position of a function.
    pub fn function(&mut self, function: Function) -> u32 {
        let next = self.functions.len() as u32;
        let all = &mut self.functions;
        *self
            .function_numbers
            .entry(function)
            .or_insert_with_key(|function| {
                all.push(function.clone());
                next
            })
    }

    /// Returns the position of a stack.
    pub fn stack(&mut self, stack: Vec<u32>) -> u32 {
        self.stack_at(stack, 0)
    }

    /// Returns the position of a stack that waits for the monitor of an object, or for none (0):
    /// equal stacks that wait for others have others.
    pub fn stack_at(&mut self, stack: Vec<u32>, monitor: u32) -> u32 {
        let next = self.stacks.len() as u32;
        let (all, monitors) = (&mut self.stacks, &mut self.monitors);
        let entry = self.stack_numbers.entry((stack, monitor));
        *entry.or_insert_with_key(|(stack, monitor)| {
            all.push(stack.clone());
            if *monitor != 0 {
                monitors.insert(next, *monitor);
            }
            next
        })
    }

    /// Returns the position of the equal stack that waits for no monitor; that of this one, if
    /// there is none.
    pub fn without_monitor(&self, stack: u32) -> u32 {
        if !self.monitors.contains_key(&stack) {
            return stack;
        }
        let functions = self.stacks[stack as usize].clone();
        let plain = self.stack_numbers.get(&(functions, 0));
        plain.copied().unwrap_or(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_functions_and_stacks_are_kept_once() {
        let mut interner = Interner::default();
        let main = interner.function(Function::note("main"));
        let work = interner.function(Function::note("work"));
        assert_eq!(interner.function(Function::note("main")), main);
        let stack = interner.stack(vec![main, work]);
        assert_eq!(interner.stack(vec![main, work]), stack);
        assert_ne!(interner.stack(vec![work, main]), stack);
        assert_eq!((interner.functions.len(), interner.stacks.len()), (2, 2));
        let at_monitor = interner.stack_at(vec![main, work], 3);
        assert_ne!(at_monitor, stack);
        assert_eq!(interner.stack_at(vec![main, work], 3), at_monitor);
        assert_eq!(interner.monitors.get(&at_monitor), Some(&3));
        assert_eq!(interner.without_monitor(at_monitor), stack);
        assert_eq!(interner.without_monitor(stack), stack);
    }

    #[test]
    fn a_stack_that_does_not_exist_has_no_functions() {
        let profile = Profile {
            functions: vec![Function::note("main")],
            stacks: vec![vec![0, 7]],
            ..Profile::default()
        };
        assert_eq!(profile.functions_of(0).count(), 1);
        assert_eq!(profile.functions_of(1).count(), 0);
    }
}
