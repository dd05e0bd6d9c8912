//! The switch, calls on other stacks, system calls, reads and writes.

use raddle_arch::{
    Context, call_keeping_stack, call_on, call_restartable, call_unless, prepare, restart,
    switch_keep_fs, syscall6, user_copy, user_exchange, user_load, user_store,
};
use std::cell::Cell;
use std::ptr::null_mut;

const GETPID: u32 = 39;
const EINTR: isize = -4;

#[repr(align(16))]
struct Stack([u8; 32 * 1024]);

impl Stack {
    fn new() -> Box<Self> {
        Box::new(Self([0; _]))
    }

    fn top(&mut self) -> *mut u8 {
        self.0.as_mut_ptr_range().end
    }
}

thread_local! {
    static HERE: Cell<Context> = const { Cell::new(null_mut()) };
    static THERE: Cell<Context> = const { Cell::new(null_mut()) };
    static ON_CPU: Cell<u32> = const { Cell::new(1) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static ANCHOR: Cell<usize> = const { Cell::new(0) };
}

raddle_arch::first_instruction! {
    first => counts
}

extern "C" fn counts() -> ! {
    loop {
        COUNT.set(COUNT.get() + 1);
        let (save, on_cpu) = (THERE.with(Cell::as_ptr), ON_CPU.with(Cell::as_ptr));
        // SAFETY: the other side is parked, on the same thread.
        unsafe { switch_keep_fs(save, HERE.get(), on_cpu) };
    }
}

#[test]
fn a_switch_reaches_the_other_stack_and_comes_back() {
    let mut stack = Stack::new();
    // SAFETY: the upper end of the stack; the first function uses the lower part.
    let context = unsafe { prepare(stack.top().wrapping_sub(64), first as *const () as usize) };
    THERE.set(context);
    for round in 1..=3 {
        ON_CPU.set(1);
        let (save, on_cpu) = (HERE.with(Cell::as_ptr), ON_CPU.with(Cell::as_ptr));
        // SAFETY: prepared above, or parked by its own switch.
        unsafe { switch_keep_fs(save, THERE.get(), on_cpu) };
        assert_eq!((COUNT.get(), ON_CPU.get()), (round, 0));
    }
}

#[test]
fn a_call_on_another_stack_has_its_locals_there() {
    extern "C" fn look(argument: usize) {
        let local = argument;
        COUNT.set((&raw const local).addr());
    }
    let mut stack = Stack::new();
    // SAFETY: the stack is the function's alone.
    unsafe { call_on(stack.top(), look, 7) };
    assert!(stack.0.as_ptr_range().contains(&(COUNT.get() as *const u8)));
}

#[test]
fn a_call_begins_again_in_its_own_place() {
    extern "C" fn again(argument: usize) {
        COUNT.set(COUNT.get() + argument);
    }
    extern "C" fn abandons(argument: usize) {
        COUNT.set(argument);
        // SAFETY: the call that stored the anchor is this one.
        unsafe { restart(ANCHOR.get(), again, 10) }
    }
    // SAFETY: `abandons` has nothing to drop.
    unsafe { call_restartable(ANCHOR.with(Cell::as_ptr), abandons, 1) };
    assert_eq!(COUNT.get(), 11);
}

#[test]
fn three_ways_to_a_system_call_have_one_result() {
    let args = [0; 6];
    let pid = std::process::id() as isize;
    let mut copy = [0u8; 4096];
    let here = 0u64;
    let top = (&raw const here).addr() + 8;
    // SAFETY: the call has no arguments; between the stack pointer and `top` are few frames.
    unsafe {
        assert_eq!(syscall6(GETPID, args), pid);
        assert_eq!(call_unless(GETPID, &args, &0), pid);
        assert_eq!(call_unless(GETPID, &args, &1), EINTR);
        let kept = call_keeping_stack(GETPID.into(), &args, copy.as_mut_ptr(), top);
        assert_eq!(kept, pid);
    }
}

#[test]
fn memory_that_is_there_is_read_and_written() {
    let mut word = 5u64;
    let at = (&raw mut word).expose_provenance();
    let mut copy = [0u8; 7];
    let to = copy.as_mut_ptr().expose_provenance();
    // SAFETY: locals, of at least the sizes that are read and written.
    unsafe {
        assert_eq!(user_load(at), 5);
        assert_eq!(user_exchange(at, 4, 6), 5);
        assert_eq!(user_load(at), 5);
        assert_eq!(user_exchange(at, 5, 6), 5);
        assert_eq!(user_load(at), 6);
        assert_eq!(user_store(at, 0x0706_0504_0302_0100), 0);
        assert_eq!(user_copy(to, at, copy.len()), 0);
    }
    assert_eq!(copy, [0, 1, 2, 3, 4, 5, 6]);
}
