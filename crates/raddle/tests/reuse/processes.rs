//! Kept threads at a process's end, in its children and under its limits. Each case is a process of
//! its own: this program again, with a variable that names the case.

use raddle::runtime::{Status, status};
use std::ffi::c_void;
use std::process::{Command, Output};
use std::ptr::{null, null_mut};

/// The variable that names the case.
const CASE: &str = "REUSE_CASE";

/// Runs the test of that name in a process of its own, `None` in that process.
fn apart(name: &str) -> Option<Output> {
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "60"]).arg(program);
    let path = format!("processes::{name}");
    let command = command.args(["--exact", &path, "--nocapture", "--test-threads=1"]);
    Some(command.env(CASE, name).output().unwrap())
}

fn keep_some(count: usize) {
    for _ in 0..3 {
        let threads: Vec<_> = (0..count).map(|_| raddle::spawn(|| ())).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

extern "C" fn at_exit() {
    println!("exit handlers ran");
}

fn ends_by_libc(name: &str, end: impl FnOnce()) {
    let Some(output) = apart(name) else {
        keep_some(20);
        // SAFETY: a function that may be called at the end.
        unsafe { libc::atexit(at_exit) };
        end();
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(text.matches("exit handlers ran").count(), 2, "{text}"); // and in the child
}

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const c_void,
        start: Start,
        argument: *mut c_void,
    ) -> i32;
    fn pthread_exit(value: *mut c_void) -> !;
}

/// Forks on a thread of libc's with frames that all let `pthread_exit` through. The child does
/// `end`, and its thread ends; the process ends well if the child did.
fn in_child(end: fn()) {
    let mut thread = 0;
    // SAFETY: `fork` gets a function's address as its argument.
    unsafe {
        let argument = (&raw const end).cast_mut().cast();
        assert_eq!(pthread_create(&raw mut thread, null(), fork, argument), 0);
        libc::pthread_join(thread, null_mut());
    }
}

extern "C-unwind" fn fork(end: *mut c_void) -> *mut c_void {
    // SAFETY: what `in_child` gave; the child makes threads of its own, which libc allows.
    unsafe {
        let end = end.cast::<fn()>().read();
        match libc::fork() {
            0 => {
                end();
                pthread_exit(null_mut())
            }
            child => wait_for(child),
        }
    }
    null_mut()
}

fn wait_for(child: libc::pid_t) {
    let mut state = 0;
    // SAFETY: waits for the child, and ends the process if that was unwell.
    unsafe {
        assert_eq!(libc::waitpid(child, &raw mut state, 0), child);
        if !libc::WIFEXITED(state) || libc::WEXITSTATUS(state) != 0 {
            eprintln!("the child's state is {state:x}");
            libc::_exit(9);
        }
    }
}

#[test]
fn kept_threads_do_not_keep_a_process() {
    // The thread that forks is its child's only one.
    ends_by_libc("kept_threads_do_not_keep_a_process", || {
        in_child(|| {
            keep_some(20);
        });
    });
}

#[test]
fn the_last_thread_of_the_crate_ends_the_process() {
    ends_by_libc("the_last_thread_of_the_crate_ends_the_process", || {
        in_child(|| {
            keep_some(20);
            let last = raddle::spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
            });
            drop(last);
        });
    });
}

#[test]
fn children_have_no_kept_threads_and_keep_their_own() {
    ends_by_libc("children_have_no_kept_threads_and_keep_their_own", || {
        in_child(|| {
            keep_some(30);
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().count();
            // SAFETY: ends the process, with its handlers.
            unsafe { libc::exit(i32::from(status() == Status::Green && tasks != 1)) };
        });
    });
}

#[test]
fn a_thread_of_the_crate_may_fork_and_end_in_the_child() {
    let name = "a_thread_of_the_crate_may_fork_and_end_in_the_child";
    ends_by_libc(name, || {
        raddle::spawn(|| {
            // SAFETY: the child returns from its thread's function.
            let child = unsafe { libc::fork() };
            if child != 0 {
                wait_for(child);
            }
        })
        .join()
        .unwrap();
    });
}
