//! The functions of threads that a case makes by `pthread_create`.
//!
//! They may be cancelled, so they call libc's functions, and unwinding passes through them.

use std::ffi::c_void;

use super::board::note_extra_thread;
use super::prepare::{become_agent, block_signals, pointer};
use crate::case::{EXTRA, Page, Place, STARTS};
use crate::generate::objects;

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

const FUNCTIONS: [Start; STARTS as usize] = [
    return_at_once,
    wait_for_semaphore,
    wait_for_signal,
    sleep,
    wait_for_condition,
    leave,
];

unsafe extern "C-unwind" {
    fn sem_wait(semaphore: *mut libc::sem_t) -> i32;
    fn pause() -> i32;
    fn usleep(us: u32) -> i32;
    fn pthread_exit(value: *mut c_void) -> !;
    fn pthread_cond_wait(
        condition: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
    ) -> i32;
    fn pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> i32;
    fn pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> i32;
}

/// The address of a function.
pub(super) fn function(index: u8) -> usize {
    (FUNCTIONS[usize::from(index)] as *const ()).addr()
}

/// Begins such a thread: signals are for the case's agents, so it blocks them.
fn begin() {
    block_signals();
    become_agent(EXTRA);
    note_extra_thread();
}

fn object(offset: i32) -> *mut u8 {
    pointer(Place::new(Page::WORDS, offset))
}

unsafe extern "C-unwind" fn return_at_once(argument: *mut c_void) -> *mut c_void {
    begin();
    argument
}

unsafe extern "C-unwind" fn wait_for_semaphore(argument: *mut c_void) -> *mut c_void {
    begin();
    // SAFETY: a semaphore of the case's.
    unsafe { sem_wait(object(objects::SEMAPHORES[0]).cast()) };
    argument
}

unsafe extern "C-unwind" fn wait_for_signal(argument: *mut c_void) -> *mut c_void {
    begin();
    // SAFETY: a plain call.
    unsafe { pause() };
    argument
}

unsafe extern "C-unwind" fn sleep(argument: *mut c_void) -> *mut c_void {
    begin();
    // SAFETY: a plain call.
    unsafe { usleep(5000) };
    argument
}

unsafe extern "C-unwind" fn wait_for_condition(argument: *mut c_void) -> *mut c_void {
    begin();
    let mutex = object(objects::MUTEXES[0]).cast();
    // SAFETY: a mutex and a condition variable of the case's.
    unsafe {
        pthread_mutex_lock(mutex);
        pthread_cond_wait(object(objects::CONDITIONS[0]).cast(), mutex);
        pthread_mutex_unlock(mutex);
    }
    argument
}

unsafe extern "C-unwind" fn leave(argument: *mut c_void) -> *mut c_void {
    begin();
    // SAFETY: a thread of libc's.
    unsafe { pthread_exit(argument) }
}
