//! Profiles for tests.

use raddle_inspect::WaitKind;

use crate::profile::{
    Activity, Function, Interner, Origin, Profile, Sample, Thread, Wait, Waker, Waking,
};

const MS: u64 = 1_000_000;

/// A native function.
pub(super) fn native(name: &str) -> Function {
    Function {
        origin: Origin::Native,
        file: Some("server.c".into()),
        line: Some(30),
        module: Some("server".into()),
        ..Function::note(name)
    }
}

/// A sample of a running thread; other fields are for the caller to set.
pub(super) fn running(thread: u32, stack: u32, weight_ns: u64) -> Sample {
    Sample {
        thread,
        activity: Activity::Running,
        object: 0,
        stack,
        at_ns: 5 * MS,
        weight_ns,
        count: 1,
    }
}

/// A main thread that computes, and nine workers that wait for a mutex.
pub(super) fn small() -> Profile {
    let mut interner = Interner::default();
    let mut stack = |functions: &[Function]| {
        let functions = functions.iter().map(|it| interner.function(it.clone()));
        let functions = functions.collect();
        interner.stack(functions)
    };
    let descend = Function {
        is_inlined: true,
        ..native("descend")
    };
    let kernel = Function {
        origin: Origin::Kernel,
        ..Function::note("ksys_read")
    };
    let computes = stack(&[native("main"), native("descend"), descend]);
    let reads = stack(&[native("main"), native("read"), kernel]);
    let works = stack(&[native("start_thread"), native("work")]);
    let locks = stack(&[
        native("start_thread"),
        native("work"),
        native("pthread_mutex_lock"),
    ]);
    let mut samples = vec![
        running(0, computes, 30 * MS),
        Sample {
            activity: Activity::InKernel,
            ..running(0, reads, 60 * MS)
        },
        running(1, works, 10 * MS),
    ];
    samples.extend((1..10).map(|thread| Sample {
        activity: Activity::Waiting(WaitKind::MUTEX),
        object: 0x5510,
        count: 11,
        at_ns: 100 * MS,
        ..running(thread, locks, 1100 * MS)
    }));
    Profile {
        pid: 4711,
        command: vec!["./server".into(), "--port".into(), "8080".into()],
        began_unix_ns: 1_790_000_000_000_000_000,
        duration_ns: 1000 * MS,
        interval_ns: 10 * MS,
        functions: interner.functions,
        stacks: interner.stacks,
        threads: threads(),
        samples,
        wakings: [
            (
                Waker::Thread {
                    thread: 0,
                    stack: Some(computes),
                },
                1000 * MS,
            ),
            (Waker::Timer, 100 * MS),
        ]
        .map(|(waker, weight_ns)| waking(locks, waker, weight_ns))
        .to_vec(),
        waits: vec![Wait {
            kind: WaitKind::MUTEX,
            object: 0x5510,
            name: Some("table_lock".into()),
            count: 99,
            total_ns: 9900 * MS,
            longest_ns: 200 * MS,
            threads: 9,
            wakers: vec![(0, 99)],
        }],
        ..Profile::default()
    }
}

/// A part of the first worker's wait.
fn waking(stack: u32, waker: Waker, weight_ns: u64) -> Waking {
    Waking {
        thread: 1,
        activity: Activity::Waiting(WaitKind::MUTEX),
        object: 0x5510,
        stack,
        waker,
        weight_ns,
    }
}

fn threads() -> Vec<Thread> {
    let main = Thread {
        tid: 4711,
        name: "main".into(),
        running_ns: 30 * MS,
        in_kernel_ns: 60 * MS,
        turns: 8,
        ..Thread::default()
    };
    let worker = |number: u32| Thread {
        tid: 600_000_000 + number,
        name: format!("worker-{number}"),
        running_ns: if number == 1 { 10 * MS } else { 0 },
        waiting_ns: 1100 * MS,
        turns: 11,
        wakes: 11,
        ..Thread::default()
    };
    [main].into_iter().chain((1..10).map(worker)).collect()
}

/// Names that would end a field, a line, a string or a tag.
pub(super) const NAMES: [&str; 12] = [
    "",
    " ",
    "a;b",
    "a\nb 12",
    "\"quoted\" \\ 'twice'",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u{0}\u{1b}[31m\u{7}",
    "\u{202e}\u{2028}\u{fffd}\u{feff}",
    "&lt;img src=x onerror=alert(1)&gt;",
    "std::map<int, std::vector<char> >::operator[](int&&)",
];

/// Profiles that nothing makes on purpose.
pub(super) fn hostile() -> Vec<Profile> {
    vec![
        Profile::default(),
        without_threads(),
        with_names(),
        with_heavy_weights(),
        with_a_deep_stack(),
    ]
}

/// Positions that don't exist.
fn without_threads() -> Profile {
    Profile {
        threads: Vec::new(),
        stacks: vec![vec![9, u32::MAX]],
        samples: vec![running(3, 0, 1), running(u32::MAX, u32::MAX, 2)],
        waits: vec![Wait {
            wakers: vec![(u32::MAX, 1)],
            ..small().waits[0].clone()
        }],
        wakings: vec![Waking {
            thread: u32::MAX,
            ..waking(
                7,
                Waker::Thread {
                    thread: u32::MAX,
                    stack: Some(u32::MAX),
                },
                u64::MAX,
            )
        }],
        ..small()
    }
}

fn with_names() -> Profile {
    let mut profile = small();
    profile.command = NAMES.iter().map(|&it| it.into()).collect();
    profile.remarks = profile.command.clone();
    profile.waits[0].name = Some(NAMES.concat());
    for (number, name) in NAMES.iter().enumerate() {
        profile.functions.push(Function {
            file: Some((*name).into()),
            module: Some((*name).into()),
            ..native(name)
        });
        profile
            .stacks
            .push(vec![profile.functions.len() as u32 - 1; 3]);
        profile.threads.push(Thread {
            tid: number as u32,
            name: (*name).into(),
            ..Thread::default()
        });
        let thread = profile.threads.len() as u32 - 1;
        let stack = profile.stacks.len() as u32 - 1;
        let waker = Waker::Thread {
            thread,
            stack: Some(stack),
        };
        profile.wakings.push(Waking {
            thread,
            ..waking(stack, waker, u64::MAX)
        });
        profile.samples.push(running(thread, stack, 1_000_000));
    }
    profile
}

fn with_heavy_weights() -> Profile {
    let mut profile = small();
    for sample in &mut profile.samples {
        (sample.weight_ns, sample.count) = (u64::MAX, u64::MAX);
        (sample.at_ns, sample.object) = (u64::MAX, u64::MAX);
        sample.activity = match sample.activity {
            Activity::Running => Activity::Running,
            _ => Activity::Waiting(WaitKind(u32::MAX)),
        };
    }
    for thread in &mut profile.threads {
        (thread.running_ns, thread.waiting_ns) = (u64::MAX, u64::MAX);
        (thread.began_ns, thread.ended_ns) = (Some(u64::MAX), Some(0));
    }
    (profile.duration_ns, profile.interval_ns) = (u64::MAX, u64::MAX);
    (profile.began_unix_ns, profile.pid) = (u64::MAX, u32::MAX);
    (profile.lost_events, profile.lost_samples) = (u64::MAX, u64::MAX);
    profile.waits[0].total_ns = u64::MAX;
    profile
}

fn with_a_deep_stack() -> Profile {
    let mut profile = small();
    profile.stacks[0] = (0..10_000).map(|depth| depth % 4).collect();
    profile
}
