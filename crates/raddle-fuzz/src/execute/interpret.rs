//! Performing a case: the main thread goes from step to step, and posts the other threads' parts to
//! them.
//!
//! 1. The main thread stores what the step wants stored, and notes the time.
//! 2. If other threads take part, it writes the step's index to the *board* and wakes them. Each
//!    makes its calls, events when their time has come, and counts itself as done.
//! 3. The main thread makes its own calls, waits until all are done, and writes what changed in
//!    memory.
//!
//! A forked child makes the steps that are its own, and exits.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::board::{BOARD, clock, names, now_ns, resolve, sleep, wait_while, wake};
use super::calling::{Of, perform};
use super::delays::{self, Point};
use super::prepare::{self, become_agent, is_child, slot};
use super::shared::{Line, Slot};
use super::watch::{Unsteady, Watch};
use super::{sites, state, system};
use crate::calls::Answer;
use crate::case::{CHILDREN, Case, Data, FIRST_CHILD, Idle, MAIN, Page, Put, Step, page_of};

/// The index that stands for the description of the state at the end.
const END: u32 = 255;
/// How long a child waits before its first call, so that its parent's next call has begun.
const CHILD_DELAY_NS: i64 = 10_000_000;

static CASE: OnceLock<Case> = OnceLock::new();

/// Performs a case in this process, which ends with it. `patched` says that the runtime is here.
pub(super) fn run(case: Case, slot: &'static Slot, patched: bool) -> ! {
    let case = CASE.get_or_init(|| case);
    BOARD
        .pid
        .store(system(libc::SYS_getpid, [0; 6]) as i32, Relaxed);
    prepare::prepare(case, slot);
    introduce(MAIN);
    for agent in 1..=case.threads {
        start_thread(agent);
    }
    if patched && case.threads > 0 && !sites::are_patched() {
        Line::new().text("sites are not patched").write(slot, MAIN);
    }
    perform_steps(case, slot);
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Writes the calling agent's ids and stack to the board.
fn introduce(agent: u8) {
    become_agent(agent);
    let index = usize::from(agent);
    let here = 0_u8;
    let page = (&raw const here).addr() & !4095;
    BOARD.tids[index].store(system(libc::SYS_gettid, [0; 6]) as i32, Relaxed);
    // SAFETY: a plain call.
    BOARD.threads[index].store(unsafe { libc::pthread_self() } as usize, Relaxed);
    BOARD.stacks[index].store(page, Relaxed);
}

fn start_thread(agent: u8) {
    BOARD.done.store(0, SeqCst);
    let mut thread = 0;
    let argument = std::ptr::without_provenance_mut::<c_void>(agent.into());
    // SAFETY: the function takes the agent's number as its argument.
    let result =
        unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), thread_main, argument) };
    assert!(result == 0, "a thread can't be made: {result}");
    wait_for_done(1);
}

extern "C" fn thread_main(agent: *mut c_void) -> *mut c_void {
    let agent = agent.addr() as u8;
    let case = CASE.get().expect("the case is known");
    introduce(agent);
    if agent > 1 {
        prepare::block_signals();
    }
    let mut seen = BOARD.post.load(SeqCst);
    count_as_done();
    loop {
        let post = next_post(case.idle, seen);
        seen = post;
        take_part(case, agent, post & 255);
    }
}

fn next_post(idle: Idle, seen: u32) -> u32 {
    loop {
        let post = BOARD.post.load(SeqCst);
        if post != seen {
            return post;
        }
        match idle {
            Idle::Futex => wait_while(&BOARD.post, seen),
            Idle::Sleep => sleep(1_000_000),
            Idle::Spin => std::hint::spin_loop(),
        }
    }
}

/// An agent's part of a step.
fn take_part(case: &Case, agent: u8, index: u32) {
    if index == END {
        delays::at(Point::BeforeEnd, agent, 0);
        state::of_thread(slot(), agent);
        count_as_done();
        return;
    }
    let step = &case.steps[index as usize];
    if takes_part(step, agent) {
        make_calls(step, agent, index as usize);
        count_as_done();
    }
}

fn takes_part(step: &Step, agent: u8) -> bool {
    step.call.agent == agent || step.events.iter().any(|event| event.call.agent == agent)
}

/// The agent's own call of a step, then its events.
fn make_calls(step: &Step, agent: u8, index: usize) {
    if step.call.agent == agent {
        let result = perform(&step.call, index, Of::Step);
        BOARD.results[index].store(result, Relaxed);
    }
    for event in step.events.iter().filter(|event| event.call.agent == agent) {
        let when = called_ns() + u64::from(event.after_ms) * 1_000_000;
        let left = when.saturating_sub(now_ns());
        if left > 0 {
            sleep(left as i64);
        }
        perform(&event.call, index, Of::Event);
    }
}

/// Returns the time when the step's call began; waits until it has.
fn called_ns() -> u64 {
    const PAUSE_NS: i64 = 200_000;
    /// The agent may be gone, or stuck behind what came before.
    const PATIENCE_NS: u64 = 100_000_000;
    let since = now_ns();
    loop {
        match BOARD.called_ns.load(SeqCst) {
            0 if now_ns() - since < PATIENCE_NS => sleep(PAUSE_NS),
            0 => return since,
            called => return called,
        }
    }
}

fn perform_steps(case: &Case, slot: &'static Slot) {
    let stacks = (1..=usize::from(case.threads)).map(|agent| BOARD.stacks[agent].load(Relaxed));
    let mut watch = Watch::start(&stacks.collect::<Vec<_>>());
    for (index, step) in case.steps.iter().enumerate() {
        if is_child(step.call.agent) {
            continue;
        }
        let is_gone = |agent: u8| BOARD.gone[usize::from(agent)].load(SeqCst);
        if is_gone(step.call.agent) {
            continue;
        }
        store(&step.puts, &mut watch);
        slot.events_ms.store(step.events_ms() as u32, Relaxed);
        slot.busy_since.store(now_ns(), SeqCst);
        let others = (1..=case.threads).filter(|&agent| takes_part(step, agent) && !is_gone(agent));
        let others = others.count() as u32;
        BOARD.called_ns.store(0, SeqCst);
        if others > 0 {
            post(index as u32);
        }
        make_calls(step, MAIN, index);
        wait_for_done(if others > 0 { others } else { 0 });
        delays::at(Point::BeforeLook, MAIN, index);
        watch.compare(slot, index, &unsteady(step), &names());
    }
    finish(case, slot);
}

fn finish(case: &Case, slot: &'static Slot) {
    slot.events_ms.store(0, Relaxed);
    slot.busy_since.store(now_ns(), SeqCst);
    slot.calling[0].store(END, Relaxed);
    delays::at(Point::BeforeEnd, MAIN, 0);
    for (child, pid) in slot.pids.iter().enumerate() {
        let pid = pid.load(Relaxed);
        if pid > 0 {
            wait_for_child(child, pid, slot);
        }
    }
    let gone = (1..=case.threads).filter(|&agent| BOARD.gone[usize::from(agent)].load(SeqCst));
    let others = u32::from(case.threads) - gone.count() as u32;
    post(END);
    wait_for_done(others);
    state::of_thread(slot, MAIN);
    state::of_process(slot, case);
    state::of_objects(slot);
    Line::new().text("end").write(slot, MAIN);
    slot.busy_since.store(0, SeqCst);
}

/// Waits for a child's end and leaves it to be waited for.
fn wait_for_child(child: usize, pid: i32, slot: &Slot) {
    const P_PID: usize = 1;
    let flags = (libc::WEXITED | libc::WNOWAIT | libc::__WALL) as usize;
    let mut information = [0_i32; 32];
    let to = information.as_mut_ptr().expose_provenance();
    let mut result;
    loop {
        result = system(libc::SYS_waitid, [P_PID, pid as usize, to, flags, 0, 0]);
        if result != -(libc::EINTR as isize) {
            break;
        }
    }
    // If nothing is left to wait for, the child's calls are over at least.
    let line = Line::new().text("end child ").number(child as i64);
    let line = line
        .text(" ")
        .number(result as i64)
        .text(" code ")
        .number(information[2].into());
    line.text(" status ")
        .number(information[6].into())
        .write(slot, MAIN);
}

fn post(index: u32) {
    BOARD.done.store(0, SeqCst);
    let number = (BOARD.post.load(SeqCst) >> 8) + 1;
    BOARD.post.store(number << 8 | index, SeqCst);
    wake(&BOARD.post);
}

pub(super) fn count_as_done() {
    BOARD.done.fetch_add(1, SeqCst);
    wake(&BOARD.done);
}

fn wait_for_done(count: u32) {
    loop {
        let done = BOARD.done.load(SeqCst);
        if done >= count {
            return;
        }
        wait_while(&BOARD.done, done);
    }
}

/// Makes a step's stores; pages that were taken away stay so.
fn store(puts: &[Put], watch: &mut Watch) {
    for put in puts {
        let bytes = match &put.data {
            Data::Bytes(bytes) => bytes.clone(),
            Data::Number(bytes, value) => {
                resolve(*value).to_ne_bytes()[..usize::from(*bytes)].to_vec()
            }
            Data::Deadline(clock_id, ms) => deadline(*clock_id, *ms),
        };
        let local = [bytes.as_ptr().expose_provenance(), bytes.len()];
        let remote = [put.at.address() as usize, bytes.len()];
        let addresses =
            [&raw const local, &raw const remote].map(|pointer| pointer.expose_provenance());
        let pid = std::process::id() as usize;
        let [from, to] = addresses;
        let done = if put.at.page < Page::NAMES {
            // SAFETY: no step takes these pages away.
            unsafe {
                let to = prepare::pointer(put.at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
            true
        } else {
            system(libc::SYS_process_vm_writev, [pid, from, 1, to, 1, 0]) > 0
        };
        if done {
            watch.note(put.at, &bytes);
        }
    }
}

fn deadline(clock_id: u8, ms: i16) -> Vec<u8> {
    let now = clock(clock_id.into());
    let ns = now.tv_nsec + i64::from(ms) * 1_000_000;
    let seconds = now.tv_sec + ns.div_euclid(1_000_000_000);
    let rest = ns.rem_euclid(1_000_000_000);
    [seconds.to_ne_bytes(), rest.to_ne_bytes()].concat()
}

/// Ranges that a step's calls fill with bytes that differ from run to run.
fn unsteady(step: &Step) -> Vec<Unsteady> {
    let events = step.events.iter().map(|event| &event.call);
    let calls = std::iter::once(&step.call).chain(events);
    let ranges = calls.flat_map(|call| {
        call.arguments
            .iter()
            .zip(call.spec.arguments)
            .filter_map(|(&value, argument)| {
                let bytes = u64::from(argument.unsteady_bytes());
                let from = resolve(value);
                (bytes > 0 && page_of(from).is_some()).then_some((from, from + bytes))
            })
    });
    ranges.collect()
}

/// The number of the child that a step makes: forks are counted as they stand in the case.
pub(super) fn child_index(index: usize) -> u8 {
    let case = CASE.get().expect("the case is known");
    let before = case.steps[..index].iter();
    let forks = before.filter(|step| step.call.spec.answer == Answer::Fork);
    (forks.count() as u8).min(CHILDREN - 1)
}

/// The life of a child.
pub(super) fn child(index: usize) -> ! {
    let child = child_index(index);
    let me = FIRST_CHILD + child;
    become_agent(me);
    let slot = slot();
    slot.pids[usize::from(child)].store(system(libc::SYS_getpid, [0; 6]) as i32, SeqCst);
    sleep(CHILD_DELAY_NS);
    let case = CASE.get().expect("the case is known");
    for (index, step) in case.steps.iter().enumerate() {
        if step.call.agent == me {
            store(&step.puts, &mut Watch::none());
            perform(&step.call, index, Of::Child);
        }
    }
    delays::at(Point::BeforeEnd, me, 0);
    slot.ended[usize::from(child)].store(1, SeqCst);
    // SAFETY: ends the child.
    unsafe { libc::_exit(40 + i32::from(child)) }
}
