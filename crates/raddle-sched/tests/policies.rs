//! Policies, driven with random events and with imaginary carriers in virtual time.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use proptest::collection::vec;
use proptest::prelude::*;
use raddle_sched::policies::fair::GROUPS;
use raddle_sched::policies::foreign::{VERSION, View};
use raddle_sched::policies::lanes::{LANES, RELIEF_NS, lane};
use raddle_sched::policies::{Class, Fault, Host, Kind, Order, Reason, Table};
use raddle_sched::{Task, TaskRef};

struct Tasks(Vec<Task>);

impl Tasks {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Task::new()).collect())
    }

    fn get(&self, index: usize) -> TaskRef {
        // SAFETY: the tasks live as long as the test.
        unsafe { TaskRef::new(NonNull::from(&self.0[index])) }
    }

    fn index(&self, task: TaskRef) -> usize {
        (task.as_ptr().addr() - self.0.as_ptr().addr()) / size_of::<Task>()
    }

    fn set(&self, index: usize, class: Class, priority: u32, nice: i32, deadline_ns: u64) {
        let terms = &self.0[index].policy.terms;
        terms.set_attributes(class, priority, nice, deadline_ns);
    }

    fn drain(&self, order: &mut Order, now_ns: u64) -> Vec<usize> {
        core::iter::from_fn(|| order.pick(now_ns))
            .map(|task| self.index(task))
            .collect()
    }
}

const BUILT_IN: [Kind; 5] = [
    Kind::Fifo,
    Kind::Lifo,
    Kind::Priority,
    Kind::Fair,
    Kind::Deadline,
];
const REASONS: [Reason; 4] = [
    Reason::New,
    Reason::Woken,
    Reason::Yielded,
    Reason::Preempted,
];

fn order_of(kind: Kind) -> Order {
    let mut order = Order::new();
    order.choose(kind, 0);
    order
}

/// Class, priority, niceness, deadline, group and run time of a task.
type Attributes = (u32, u32, i32, u64, u32, u64);

fn attributes() -> impl Strategy<Value = Attributes> {
    let class = prop_oneof![Just(0u32), Just(1), Just(2), Just(5), Just(6)];
    (class, 1..100u32, -20..20i32, 0..50u64, 0..4u32, 0..1000u64)
}

proptest! {
    #[test]
    fn every_policy_gives_back_what_it_got_and_nothing_else(
        kind in prop::sample::select(&BUILT_IN[..]),
        all in vec(attributes(), 20),
        steps in vec((0..30usize, 0..4usize, 0..3u64), 1..400),
    ) {
        let (tasks, mut order) = (Tasks::new(all.len()), order_of(kind));
        for (index, (class, priority, nice, deadline_ns, group, ran_ns)) in all.iter().enumerate() {
            tasks.set(index, Class(*class), *priority, *nice, *deadline_ns);
            tasks.0[index].policy.terms.set_group(*group);
            tasks.0[index].policy.terms.set_ran_ns(*ran_ns);
        }
        let (mut queued, mut now_ns) = (vec![false; all.len()], 0);
        for (index, reason, wait) in steps {
            now_ns += wait * RELIEF_NS / 2;
            match queued.get_mut(index) {
                Some(queued) if !*queued => {
                    *queued = true;
                    order.enqueue(tasks.get(index), REASONS[reason], now_ns);
                }
                _ => match order.pick(now_ns) {
                    Some(task) => prop_assert!(core::mem::take(&mut queued[tasks.index(task)])),
                    None => prop_assert!(!queued.contains(&true)),
                },
            }
            prop_assert_eq!(order.len(), queued.iter().filter(|queued| **queued).count());
        }
        let mut left = tasks.drain(&mut order, now_ns);
        left.sort_unstable();
        let expected: Vec<_> = (0..all.len()).filter(|index| queued[*index]).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn it_is_known_whether_all_that_wait_compute(
        steps in vec((0..6usize, 0..4usize, 0..40usize), 1..400),
    ) {
        let (tasks, mut order) = (Tasks::new(5), order_of(Kind::Fair));
        let (mut kind, mut queued) = (Kind::Fair, [None; 5]);
        for (index, reason, other) in steps {
            if let Some(other) = BUILT_IN.get(other) {
                if *other != kind {
                    queued = queued.map(|made_room| made_room.map(|_| false));
                }
                kind = *other;
                order.choose(kind, 0);
            }
            match queued.get_mut(index) {
                Some(queued) if queued.is_none() => {
                    let made_room = REASONS[reason] == Reason::Preempted && kind != Kind::Fifo;
                    *queued = Some(made_room);
                    order.enqueue(tasks.get(index), REASONS[reason], 0);
                }
                _ => {
                    if let Some(task) = order.pick(0) {
                        queued[tasks.index(task)] = None;
                    }
                }
            }
            let mut waiting = queued.iter().flatten().peekable();
            let all_compute = waiting.peek().is_some() && waiting.all(|made_room| *made_room);
            prop_assert_eq!(order.all_compute(), all_compute);
        }
    }

    #[test]
    fn priorities_run_by_lane_and_in_turn(all in vec(attributes(), 1..60)) {
        let (tasks, mut order) = (Tasks::new(all.len()), order_of(Kind::Priority));
        for (index, (class, priority, nice, ..)) in all.iter().enumerate() {
            tasks.set(index, Class(*class), *priority, *nice, 0);
            order.enqueue(tasks.get(index), Reason::Woken, 0);
        }
        let mut expected: Vec<_> = (0..all.len()).collect();
        expected.sort_by_key(|index| lane(&tasks.0[*index].policy.terms));
        prop_assert_eq!(tasks.drain(&mut order, 0), expected);
    }

    #[test]
    fn deadlines_run_in_their_order_and_the_rest_in_turn(
        all in vec((0..20u64, 0..20u64), 1..60),
    ) {
        let (tasks, mut order) = (Tasks::new(all.len()), order_of(Kind::Deadline));
        let mut due = Vec::new();
        for (index, (now_ns, deadline_ns)) in all.iter().enumerate() {
            tasks.set(index, Class::DEADLINE, 0, 0, *deadline_ns);
            order.enqueue(tasks.get(index), Reason::Woken, *now_ns);
            due.push((if *deadline_ns == 0 { u64::MAX } else { now_ns + deadline_ns }, index));
        }
        due.sort_unstable();
        let expected: Vec<_> = due.into_iter().map(|(_, index)| index).collect();
        prop_assert_eq!(tasks.drain(&mut order, 20), expected);
    }
}

const QUANTUM_NS: u64 = 2_000_000;

/// Lets `carriers` imaginary carriers run all tasks, which compute all the time, for `rounds`
/// quanta each; returns what each task used.
fn compute(tasks: &Tasks, order: &mut Order, carriers: usize, rounds: u64) -> Vec<u64> {
    let mut used_ns = vec![0u64; tasks.0.len()];
    (0..tasks.0.len()).for_each(|index| order.enqueue(tasks.get(index), Reason::New, 0));
    let mut running: Vec<_> = (0..carriers).filter_map(|_| order.pick(0)).collect();
    for round in 0..rounds {
        // Quanta end one after the other, not all at once.
        for place in running.iter_mut() {
            let index = tasks.index(*place);
            used_ns[index] += QUANTUM_NS;
            tasks.0[index].policy.terms.set_ran_ns(used_ns[index]);
            let now_ns = round * QUANTUM_NS;
            order.enqueue(*place, Reason::Preempted, now_ns);
            *place = order.pick(now_ns).expect("one was queued just now");
        }
    }
    used_ns
}

fn assert_near(used_ns: &[u64], parts: &[f64], what: &str) {
    let (sum, whole): (u64, f64) = (used_ns.iter().sum(), parts.iter().sum());
    for (used_ns, part) in used_ns.iter().zip(parts) {
        let (got, wanted) = (*used_ns as f64 / sum as f64, part / whole);
        assert!(
            (got / wanted - 1.0).abs() < 0.05,
            "{what}: {got} instead of {wanted}"
        );
    }
}

#[test]
fn fair_time_is_in_proportion_to_weights_on_any_number_of_carriers() {
    for carriers in [1, 2, 3, 8, 16] {
        let (tasks, mut order) = (Tasks::new(96), order_of(Kind::Fair));
        let nice = |index: usize| [0, 1, 5, -3][index % 4];
        (0..96).for_each(|index| tasks.set(index, Class::OTHER, 0, nice(index), 0));
        let used_ns = compute(&tasks, &mut order, carriers, 200_000 / carriers as u64);
        let parts: Vec<_> = (0..96).map(|index| 0.8f64.powi(nice(index))).collect();
        assert_near(&used_ns, &parts, &format!("{carriers} carriers"));
    }
}

#[test]
fn shares_hold_however_many_tasks_a_group_has() {
    for (carriers, in_first) in [(1, 1), (1, 30), (2, 4), (8, 20)] {
        let (tasks, mut order) = (Tasks::new(60), order_of(Kind::Fair));
        let mut shares = [0; GROUPS];
        (shares[0], shares[1]) = (75, 25);
        order.set_shares(&shares);
        (0..in_first).for_each(|index| tasks.0[index].policy.terms.set_group(1));
        let used_ns = compute(&tasks, &mut order, carriers, 100_000 / carriers as u64);
        let first: u64 = used_ns[..in_first].iter().sum();
        let both = [first, used_ns.iter().sum::<u64>() - first];
        assert_near(
            &both,
            &[25.0, 75.0],
            &format!("{carriers} carriers, {in_first} tasks"),
        );
    }
}

/// Creators wait for the end of the task that they have made, and make another one.
#[test]
fn a_task_has_its_part_beside_others_that_make_short_ones() {
    const SHORT_NS: u64 = 100_000;
    for creators in [1, 4, 16] {
        let (tasks, mut order) = (Tasks::new(creators + 1), order_of(Kind::Fair));
        let mut used_ns = vec![0; creators + 1];
        for (index, task) in tasks.0.iter().enumerate() {
            task.policy.reset(1);
            order.enqueue(tasks.get(index), Reason::New, 0);
        }
        let mut all_ns = 0;
        while all_ns < 1000 * QUANTUM_NS {
            let task = order.pick(0).expect("all are queued");
            let index = tasks.index(task);
            let ran_ns = if index == 0 { QUANTUM_NS } else { SHORT_NS };
            (used_ns[index], all_ns) = (used_ns[index] + ran_ns, all_ns + ran_ns);
            if index == 0 {
                task.get().policy.terms.set_ran_ns(used_ns[0]);
                order.enqueue(task, Reason::Preempted, 0);
            } else {
                task.get().policy.terms.set_ran_ns(ran_ns);
                order.ended(task);
                task.get().policy.reset(1);
                order.enqueue(task, Reason::New, 0);
            }
        }
        let part = used_ns[0] as f64 / all_ns as f64 * (creators + 1) as f64;
        assert!((0.8..1.5).contains(&part), "{part} beside {creators}");
    }
}

#[test]
fn who_slept_does_not_come_back_with_a_claim_on_all_that_time() {
    let (tasks, mut order) = (Tasks::new(2), order_of(Kind::Fair));
    order.enqueue(tasks.get(0), Reason::New, 0);
    order.enqueue(tasks.get(1), Reason::New, 0);
    assert_eq!(order.pick(0).map(|task| tasks.index(task)), Some(0));
    assert_eq!(order.pick(0).map(|task| tasks.index(task)), Some(1)); // it sleeps from here on
    let mut ran_ns = 0;
    for _ in 0..1000 {
        ran_ns += QUANTUM_NS;
        tasks.0[0].policy.terms.set_ran_ns(ran_ns);
        order.enqueue(tasks.get(0), Reason::Preempted, 0);
        order.pick(0).expect("it was queued just now");
    }
    tasks.0[0].policy.terms.set_ran_ns(ran_ns);
    order.enqueue(tasks.get(0), Reason::Preempted, 0);
    order.enqueue(tasks.get(1), Reason::Woken, 0);
    let (mut woken_ns, mut turns) = (0, 0);
    while order.pick(0).map(|task| tasks.index(task)) == Some(1) {
        turns += 1;
        woken_ns += QUANTUM_NS;
        tasks.0[1].policy.terms.set_ran_ns(woken_ns);
        order.enqueue(tasks.get(1), Reason::Preempted, 0);
    }
    assert!((1..=4).contains(&turns), "{turns} turns in a row");
}

#[test]
fn less_important_tasks_run_now_and_then() {
    for kind in [Kind::Priority, Kind::Deadline] {
        let (tasks, mut order) = (Tasks::new(2), order_of(kind));
        tasks.set(0, Class::DEADLINE, 0, 0, 1000);
        order.enqueue(tasks.get(0), Reason::New, 0);
        order.enqueue(tasks.get(1), Reason::New, 0);
        let mut turns = 0;
        for round in 0..1000 {
            let now_ns = round * QUANTUM_NS;
            let task = order.pick(now_ns).expect("two are there");
            turns += tasks.index(task);
            order.enqueue(task, Reason::Preempted, now_ns);
        }
        let most = 1000 * QUANTUM_NS / RELIEF_NS;
        assert!(
            (most / 2..=most).contains(&(turns as u64)),
            "{kind:?}: {turns}"
        );
    }
}

#[test]
fn a_more_important_task_outranks_who_runs() {
    let (tasks, mut order) = (Tasks::new(3), order_of(Kind::Priority));
    tasks.set(1, Class::FIFO, 10, 0, 0);
    tasks.set(2, Class::IDLE, 0, 0, 0);
    order.enqueue(tasks.get(0), Reason::Woken, 0);
    assert!(order.outranks(tasks.get(2)) && !order.outranks(tasks.get(1)));
    assert_eq!(lane(&tasks.0[2].policy.terms), LANES - 1);
}

/// A plug-in that keeps its tasks in an array; the test decides which one it picks.
struct Stack {
    views: Vec<*mut View>,
    picks: usize,
    lies: fn(&mut Stack) -> Option<*mut View>,
}

extern "C" fn stack_enqueue(state: *mut c_void, view: *mut View, _: u32, _: u64) {
    // SAFETY: what `create` returned.
    unsafe { &mut *state.cast::<Stack>() }.views.push(view);
}

extern "C" fn stack_pick(state: *mut c_void, _: u64) -> *mut View {
    // SAFETY: what `create` returned.
    let stack = unsafe { &mut *state.cast::<Stack>() };
    stack.picks += 1;
    if stack.picks > 5 {
        (stack.lies)(stack).unwrap_or(null_mut())
    } else {
        stack.views.pop().unwrap_or(null_mut())
    }
}

extern "C" fn stack_destroy(state: *mut c_void) {
    // SAFETY: what `create` returned, for the last time.
    drop(unsafe { Box::from_raw(state.cast::<Stack>()) });
}

fn new_stack(lies: fn(&mut Stack) -> Option<*mut View>) -> *mut c_void {
    let stack = Stack {
        views: Vec::new(),
        picks: 0,
        lies,
    };
    Box::into_raw(Box::new(stack)).cast()
}

static NOTHING: Table = table(nothing);
static GARBAGE: Table = table(garbage);
static TWICE: Table = table(twice);

extern "C" fn nothing() -> *mut c_void {
    new_stack(|_| None)
}

extern "C" fn garbage() -> *mut c_void {
    new_stack(|stack| stack.views.last().map(|view| view.wrapping_byte_add(8)))
}

/// Picks the first task again and again.
extern "C" fn twice() -> *mut c_void {
    new_stack(|stack| stack.views.first().copied())
}

const fn table(create: extern "C" fn() -> *mut c_void) -> Table {
    Table {
        version: VERSION,
        size: size_of::<Table>() as u32,
        create: Some(create),
        enqueue: Some(stack_enqueue),
        pick: Some(stack_pick),
        quantum: None,
        destroy: Some(stack_destroy),
    }
}

thread_local! {
    static PLACES: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

const HOST: Host = Host {
    now_ns: || 0,
    find: |address| {
        let known = PLACES.with_borrow(|places| places.contains(&address));
        let task = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the address of one of the test's tasks.
        known.then(|| unsafe { TaskRef::from_ptr(task) }).flatten()
    },
    call: |call| Some(call.make()),
};

#[test]
fn a_plug_in_that_lies_is_left_and_nobody_is_lost() {
    let cases = [
        (&NOTHING, Fault::Nothing),
        (&GARBAGE, Fault::Garbage),
        (&TWICE, Fault::Garbage),
    ];
    for (table, fault) in cases {
        let tasks = Tasks::new(12);
        let places = tasks
            .0
            .iter()
            .map(|task| (&raw const *task).expose_provenance());
        PLACES.set(places.collect());
        let mut order = Order::new();
        order.choose_foreign(table, HOST);
        (0..12).for_each(|index| order.enqueue(tasks.get(index), Reason::New, 0));
        let mut picked = tasks.drain(&mut order, 0);
        let honest = picked.clone();
        assert!(honest.starts_with(&[11, 10, 9, 8, 7]), "{honest:?}");
        assert_eq!(order.take_fault(), Some(fault));
        assert_eq!((order.kind(), order.take_fault()), (Kind::Fifo, None));
        let rest = tasks.drain(&mut order, 0);
        assert!(rest.is_sorted(), "fifo: {rest:?}");
        picked.extend(rest);
        picked.sort_unstable();
        assert!(picked.into_iter().eq(0..12), "after {honest:?}");
    }
}

#[test]
fn a_slow_plug_in_is_left_and_an_interrupted_one_is_not() {
    use std::cell::Cell;
    thread_local! {
        static NOW_NS: Cell<u64> = const { Cell::new(0) };
        static TAKES_NS: Cell<u64> = const { Cell::new(0) };
    }
    let host = Host {
        now_ns: || NOW_NS.get(),
        call: |call| {
            let result = call.make();
            NOW_NS.set(NOW_NS.get() + TAKES_NS.get());
            Some(result)
        },
        ..HOST
    };
    // Each call's time, and the time between calls.
    for (takes_ns, between_ns, fails) in [
        (50_000, 0, false),
        (200_000, 200_000, true),
        (400_000_000, 100_000_000, false),
        (120_000, 2_000_000, false),
    ] {
        let tasks = Tasks::new(1);
        PLACES.set(vec![(&raw const tasks.0[0]).expose_provenance()]);
        TAKES_NS.set(takes_ns);
        let mut order = Order::new();
        static HONEST: Table = table(honest);
        order.choose_foreign(&HONEST, host);
        let mut failed = false;
        for _ in 0..1000 {
            NOW_NS.set(NOW_NS.get() + between_ns);
            order.enqueue(tasks.get(0), Reason::Woken, 0);
            failed |= order.take_fault() == Some(Fault::Slow);
            assert!(order.pick(0).is_some());
            failed |= order.take_fault() == Some(Fault::Slow);
        }
        assert_eq!(
            failed, fails,
            "{takes_ns} ns a call, {between_ns} ns between"
        );
    }
}

#[test]
fn a_plug_in_whose_call_was_abandoned_is_never_called_again() {
    use std::cell::Cell;
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    const LAST: u32 = 9; // create, six of enqueue, and two of pick
    let host = Host {
        call: |call| {
            CALLS.set(CALLS.get() + 1);
            assert!(CALLS.get() <= LAST, "it is called again");
            let result = call.make();
            (CALLS.get() != LAST).then_some(result)
        },
        ..HOST
    };
    let tasks = Tasks::new(6);
    let places = tasks
        .0
        .iter()
        .map(|task| (&raw const *task).expose_provenance());
    PLACES.set(places.collect());
    let mut order = Order::new();
    static HONEST: Table = table(honest);
    order.choose_foreign(&HONEST, host);
    (0..6).for_each(|index| order.enqueue(tasks.get(index), Reason::New, 0));
    assert!(order.pick(0).is_some());
    assert_eq!(order.pick(0), None);
    assert_eq!(order.take_fault(), Some(Fault::Stuck));
    assert_eq!(tasks.drain(&mut order, 0), [0, 1, 2, 3, 4]);
    order.enqueue(tasks.get(5), Reason::Woken, 0);
    assert_eq!(tasks.drain(&mut order, 0), [5]);
}

extern "C" fn honest() -> *mut c_void {
    new_stack(|stack| stack.views.pop())
}
