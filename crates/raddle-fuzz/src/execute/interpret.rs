//! Performing a case: the main thread goes from step to step, and posts to the other threads what
//! is theirs.
//!
//! 1. The main thread stores what the step wants stored, and notes the time.
//! 2. If other threads take part, it writes the step's index to the *board* and wakes them. Each
//!    makes its calls, events when their time has come, and counts itself as done.
//! 3. The main thread makes its own calls, waits until all are done, and writes what changed in
//!    memory.
//!
//! A forked child makes the steps that are its own, and exits.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::prepare::{self, agent, become_agent, is_child, slot};
use super::shared::{Line, Slot};
use super::watch::{Unsteady, Watch};
use super::{sites, starts, state, system};
use crate::calls::{self, Answer, Width};
use crate::case::{
    CHILDREN, Call, Case, Data, FIRST_CHILD, Idle, LAST_THREAD, MAIN, Page, Put, Site, Step, Value,
    error_name, page_of,
};

const THREADS: usize = LAST_THREAD as usize + 1;
/// The index that stands for the description of the state at the end.
const END: u32 = 255;
/// How long a child waits before its first call, so that its parent's next call has begun.
const CHILD_DELAY_NS: i64 = 10_000_000;

/// How long a step that makes a thread lasts at least, so that the thread has reached its wait.
const NEW_THREAD_NS: i64 = 3_000_000;

/// What the threads of a case know together. Written by the main thread, but for `done`, `gone`
/// and an agent's own ids and results.
struct Board {
    /// The number of the post << 8 | the step's index; a futex.
    post: AtomicU32,
    /// Agents that have done what was posted; a futex.
    done: AtomicU32,
    began_ns: AtomicU64,
    pid: AtomicI32,
    tids: [AtomicI32; THREADS],
    threads: [AtomicUsize; THREADS],
    stacks: [AtomicUsize; THREADS],
    gone: [AtomicBool; THREADS],
    results: [AtomicI64; 32],
    /// Ids of threads that the case itself has made, and how many there are.
    extra: [AtomicI32; 8],
    extras: AtomicUsize,
}

static BOARD: Board = Board {
    post: AtomicU32::new(0),
    done: AtomicU32::new(0),
    began_ns: AtomicU64::new(0),
    pid: AtomicI32::new(0),
    tids: [const { AtomicI32::new(0) }; THREADS],
    threads: [const { AtomicUsize::new(0) }; THREADS],
    stacks: [const { AtomicUsize::new(0) }; THREADS],
    gone: [const { AtomicBool::new(false) }; THREADS],
    results: [const { AtomicI64::new(-1) }; 32],
    extra: [const { AtomicI32::new(0) }; 8],
    extras: AtomicUsize::new(0),
};

/// Notes the id of a thread that the case itself has made: the calling one.
pub fn note_extra_thread() {
    let index = BOARD.extras.fetch_add(1, SeqCst);
    if let Some(word) = BOARD.extra.get(index) {
        word.store(system(libc::SYS_gettid, [0; 6]) as i32, SeqCst);
    }
}

static CASE: OnceLock<Case> = OnceLock::new();

/// Names of numbers that differ from run to run.
pub struct Names;

pub const fn names() -> Names {
    Names
}

impl Names {
    /// The name of a process or thread id.
    pub fn of_id(&self, id: u32) -> Option<&'static str> {
        const THREAD_NAMES: [&str; THREADS] = ["pid", "tid:a1", "tid:a2", "tid:a3"];
        const CHILD_NAMES: [&str; CHILDREN as usize] = ["child:0", "child:1", "child:2", "child:3"];
        let id = id.cast_signed();
        if id == 0 {
            return None;
        }
        let is = |word: &AtomicI32| word.load(Relaxed) == id;
        if let Some(index) = slot().pids.iter().position(is) {
            return Some(CHILD_NAMES[index]);
        }
        if BOARD.extra.iter().any(is) {
            return Some("tid:x");
        }
        BOARD
            .tids
            .iter()
            .position(is)
            .map(|index| THREAD_NAMES[index])
    }

    pub fn of_address(&self, address: u64) -> Option<&'static str> {
        if address == prepare::handler_address() as u64 {
            Some("handler")
        } else if address == sites::restorer() as u64 {
            Some("restorer")
        } else {
            None
        }
    }
}

/// libc's functions that calls go through, by the index of their row.
static FUNCTIONS: OnceLock<Vec<(&'static str, usize)>> = OnceLock::new();

/// Finds libc's functions; before any case.
pub fn find_functions() {
    let find = |name: &'static str| {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: a live string.
        (
            name,
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) }.addr(),
        )
    };
    let wrapped = calls::all().filter(|spec| spec.wrapper.is_some());
    FUNCTIONS.get_or_init(|| wrapped.map(|spec| find(spec.name)).collect());
}

fn function(name: &str) -> usize {
    let functions = FUNCTIONS.get().expect("functions are looked up first");
    let found = functions.iter().find(|(function, _)| *function == name);
    found.map_or(0, |(_, address)| *address)
}

/// Performs a case in this process, which ends with it. `patched` says that the runtime is here.
pub fn run(case: Case, slot: &'static Slot, patched: bool) -> ! {
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

/// Says who and where the calling agent is.
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
        let result = perform(&step.call, index);
        BOARD.results[index].store(result, Relaxed);
    }
    for event in step.events.iter().filter(|event| event.call.agent == agent) {
        let when = BOARD.began_ns.load(Relaxed) + u64::from(event.after_ms) * 1_000_000;
        let left = when.saturating_sub(now_ns());
        if left > 0 {
            sleep(left as i64);
        }
        perform(&event.call, index);
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
        BOARD.began_ns.store(now_ns(), Relaxed);
        if others > 0 {
            post(index as u32);
        }
        make_calls(step, MAIN, index);
        wait_for_done(if others > 0 { others } else { 0 });
        watch.compare(slot, index, &unsteady(step), &names());
    }
    finish(case, slot);
}

fn finish(case: &Case, slot: &'static Slot) {
    slot.events_ms.store(0, Relaxed);
    slot.busy_since.store(now_ns(), SeqCst);
    slot.calling[0].store(END, Relaxed);
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
    // Where nothing is left to wait for, its calls are over at least.
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

fn count_as_done() {
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

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

fn wait_while(word: &AtomicU32, value: u32) {
    let address = word.as_ptr().expose_provenance();
    system(
        libc::SYS_futex,
        [address, FUTEX_WAIT_PRIVATE, value as usize, 0, 0, 0],
    );
}

fn wake(word: &AtomicU32) {
    let address = word.as_ptr().expose_provenance();
    system(
        libc::SYS_futex,
        [address, FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0],
    );
}

/// Sleeps so long; handlers that run meanwhile don't shorten it.
fn sleep(ns: i64) {
    let mut time = [ns / 1_000_000_000, ns % 1_000_000_000];
    let address = time.as_mut_ptr().expose_provenance();
    while system(libc::SYS_nanosleep, [address, address, 0, 0, 0, 0]) == -(libc::EINTR as isize) {}
}

pub fn now_ns() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn clock(clock: i32) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for a time.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}

/// Stores what a step wants stored; pages that were taken away stay so.
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

/// The number that a value is now.
fn resolve(value: Value) -> u64 {
    let id = |word: &AtomicI32| i64::from(word.load(Relaxed)).cast_unsigned();
    match value {
        Value::Int(number) => number,
        Value::Place(place) => place.address(),
        // SAFETY: the pages for data and words are always there.
        Value::Load(place) => unsafe {
            i64::from(prepare::pointer(place).cast::<i32>().read_unaligned()).cast_unsigned()
        },
        // SAFETY: as above.
        Value::LoadLong(place) => unsafe { prepare::pointer(place).cast::<u64>().read_unaligned() },
        Value::Start(index) => starts::function(index) as u64,
        Value::Result(step) => BOARD.results[usize::from(step) % 32]
            .load(Relaxed)
            .cast_unsigned(),
        Value::Pid | Value::Parent => id(&BOARD.pid),
        Value::Tid(agent) => id(&BOARD.tids[usize::from(agent) % THREADS]),
        Value::Child(child) => match id(&slot().pids[usize::from(child)]) {
            0 => 0x7fff_fff0, // it was not made
            pid => pid,
        },
        Value::Stack(agent, offset) => {
            let page = BOARD.stacks[usize::from(agent) % THREADS].load(Relaxed);
            page.wrapping_add_signed(offset as isize) as u64
        }
        Value::Pthread(agent) => BOARD.threads[usize::from(agent) % THREADS].load(Relaxed) as u64,
        Value::Handler => prepare::handler_address() as u64,
        Value::Restorer => sites::restorer() as u64,
        Value::Queue => i64::from(slot().queue.load(Relaxed) - 1).cast_unsigned(),
        Value::Semaphores => i64::from(slot().semaphores.load(Relaxed) - 1).cast_unsigned(),
    }
}

/// Ranges that a step's calls fill with what differs from run to run.
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

/// Makes a call and writes what came of it.
fn perform(call: &Call, index: usize) -> i64 {
    let (slot, me) = (slot(), agent());
    let mut arguments = [0; 6];
    for (to, &value) in arguments.iter_mut().zip(&call.arguments) {
        *to = resolve(value);
    }
    if call.spec.answer == Answer::Never {
        leave(call, me);
    }
    let calling = &slot.calling[usize::from(me)];
    calling.store(index as u32 + 1, SeqCst);
    let began = now_ns();
    let made = make(call, &arguments);
    let elapsed_ms = (now_ns() - began) / 1_000_000;
    calling.store(0, SeqCst);
    if call.spec.name == "pthread_create" {
        sleep(NEW_THREAD_NS);
    }
    if call.spec.answer == Answer::Fork && made.result == 0 {
        child(call, index);
    }
    if call.spec.answer == Answer::Fork && made.result > 0 {
        let child = usize::from(child_index(index));
        slot.pids[child].store(made.result as i32, SeqCst);
    }
    write_result(call, index, made.result);
    if let Some(registers) = made.registers {
        for name in registers.changed(&arguments, call.site == Site::Vector) {
            Line::new()
                .number(index as i64)
                .text(" changed ")
                .text(name)
                .write(slot, me);
        }
    }
    if elapsed_ms > 2 {
        let line = Line::new().text("~").number(index as i64).text(" ");
        line.number(elapsed_ms as i64).write(slot, me);
    }
    made.result
}

fn write_result(call: &Call, index: usize, result: i64) {
    let (slot, me) = (slot(), agent());
    let line = Line::new()
        .number(index as i64)
        .text(" ")
        .text(call.spec.name)
        .text(" = ");
    let error = i32::try_from(-result)
        .ok()
        .filter(|error| (1..4096).contains(error));
    let line = match (call.spec.answer, error) {
        (_, Some(error)) if call.spec.wrapper != Some(Width::Code) || call.site != Site::Libc => {
            match error_name(error) {
                Some(name) => line.text(name),
                None => line.number(result),
            }
        }
        (Answer::Any, _) => line.text("any"),
        (Answer::Fork, _) => line.text("child"),
        (Answer::Address, _) => match page_of(result as u64) {
            Some(place) => line
                .text("P")
                .number(place.page.into())
                .text("+")
                .hex(place.offset as u64),
            None => line.text("address"),
        },
        _ => match u32::try_from(result).ok().and_then(|id| names().of_id(id)) {
            Some(name) => line.text(name),
            None => line.number(result),
        },
    };
    line.write(slot, me);
}

/// What a call gave; registers where a site of the executor's made it.
struct Made {
    result: i64,
    registers: Option<sites::Registers>,
}

type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> i64;

fn make(call: &Call, arguments: &[u64; 6]) -> Made {
    let [a, b, c, d, e, f] = *arguments;
    let number = call.spec.number.unwrap_or(0);
    let by_site = |site| {
        // SAFETY: the generator keeps a case's calls to the case's own memory and processes.
        let registers = unsafe { sites::call(site, number, arguments) };
        Made {
            result: registers.result as i64,
            registers: Some(registers),
        }
    };
    let [inline, vector] = sites::constant_sites(number).unwrap_or([sites::register_site(); 2]);
    match call.site {
        Site::Register if call.spec.answer == Answer::Fork => by_site(fork_site(call, arguments)),
        Site::Register => by_site(sites::register_site()),
        Site::Inline => by_site(inline),
        Site::Vector => by_site(vector),
        Site::Syscall => {
            // SAFETY: as above.
            let result = unsafe { libc::syscall(number.into(), a, b, c, d, e, f) };
            with_errno(result, Width::Long)
        }
        Site::Libc => {
            let function = function(call.spec.name);
            // SAFETY: a function of libc's that takes six integers at most, and ignores the rest.
            let result =
                unsafe { std::mem::transmute::<usize, Function>(function)(a, b, c, d, e, f) };
            with_errno(result, call.spec.wrapper.unwrap_or(Width::Long))
        }
    }
}

fn with_errno(result: i64, width: Width) -> Made {
    let result = match width {
        Width::Long => result,
        Width::Int | Width::Code => i64::from(result as i32),
    };
    let error = || i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    let result = if result == -1 && width != Width::Code {
        -error()
    } else {
        result
    };
    Made {
        result,
        registers: None,
    }
}

/// The site of a fork: where the child shares memory, it ends at once.
fn fork_site(call: &Call, arguments: &[u64; 6]) -> usize {
    const VM: u64 = 0x100;
    let shares = match call.spec.name {
        "vfork" => true,
        "clone" => arguments[0] & VM != 0,
        "clone3" => page_of(arguments[0]).is_some_and(|place| {
            // What can't be read is refused.
            // SAFETY: pages before those of names are always there.
            place.page < Page::NAMES
                && unsafe { prepare::pointer(place).cast::<u64>().read_unaligned() } & VM != 0
        }),
        _ => false,
    };
    if shares {
        sites::clone_site()
    } else {
        sites::register_site()
    }
}

/// The number of the child that a step makes: forks are counted as they stand in the case.
fn child_index(index: usize) -> u8 {
    let case = CASE.get().expect("the case is known");
    let before = case.steps[..index].iter();
    let forks = before.filter(|step| step.call.spec.answer == Answer::Fork);
    (forks.count() as u8).min(CHILDREN - 1)
}

/// The life of a child.
fn child(call: &Call, index: usize) -> ! {
    let _ = call;
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
            perform(&step.call, index);
        }
    }
    slot.ended[usize::from(child)].store(1, SeqCst);
    // SAFETY: ends the child.
    unsafe { libc::_exit(40 + i32::from(child)) }
}

/// Before a call that doesn't return.
fn leave(call: &Call, me: u8) {
    Line::new()
        .text("leaves by ")
        .text(call.spec.name)
        .write(slot(), me);
    if (1..=LAST_THREAD).contains(&me) {
        BOARD.gone[usize::from(me)].store(true, SeqCst);
        count_as_done();
    }
}
