//! Test programs in C: each of their cases is one test here.

use crate::support::{
    Linked, MODES, Mode, compile, everywhere, folder, has, in_mode, prefix, run, succeeds,
};
use std::path::Path;
use std::process::Command;

macro_rules! cases {
    ($module:ident, $source:literal: $($name:ident),+ $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    let name = stringify!($name);
                    crate::support::everywhere($source, &[name], &format!("ok {name}\n"));
                }
            )+

            #[test]
            fn every_case_of_the_program_is_listed() {
                let listed = [$(stringify!($name)),+];
                super::check_list($source, &listed);
            }
        }
    };
}

cases! { threads, "tests/programs/threads.c":
    the_runtime_is_there,
    kinds_know_themselves,
    niceness_is_each_threads_own,
    kernel_threads,
    many_green_threads,
    many_light_threads,
    joining_oneself_is_refused,
    threads_may_detach_themselves,
    handles_end_with_join_and_detach,
    bad_arguments_are_refused,
    the_smallest_stack_is_enough_for_some,
    names_are_the_kernels,
    join_waits_for_destructors,
    kinds_share_locks,
    light_threads_sleep_together,
    pipes_park_green_threads,
}

cases! { values, "tests/programs/values.c":
    a_completion_is_set_once,
    all_waiters_are_told,
    listeners_are_called_once,
    what_is_run_completes,
    completions_refuse_bad_arguments,
    completions_hand_over_between_kinds,
    handles_keep_values,
    weak_handles_expire,
    tables_refuse_bad_arguments,
}

cases! { pools, "tests/programs/pools.c":
    pools_run_what_is_queued,
    tasks_are_cancelled_and_dropped,
    pools_refuse_bad_arguments,
    work_has_priorities_and_pools_count,
    pools_work_by_time_and_readiness,
    ranges_are_covered_once,
    two_functions_are_joined,
    hooks_see_workers_and_work,
}

cases! { work, "tests/programs/work.c":
    one_request_cancels_many_tasks,
    requests_are_waited_for_and_heard_of,
    tasks_tell_of_their_ends,
    who_hears_of_a_task_hears_of_its_pools_end,
    work_that_its_queuer_runs_may_ask_for_its_task,
    workers_know_their_pool,
    a_pool_may_be_disposed_of_by_its_own_work,
    structs_may_be_of_other_versions,
    work_options_are_checked,
}

cases! { parking, "tests/programs/parking.c":
    a_permission_is_kept_until_it_is_used,
    a_park_ends_by_word_or_by_time,
    kinds_wake_each_other,
    who_has_no_handle_does_not_park,
    who_is_joined_can_be_unparked,
}

cases! { misuse, "tests/programs/misuse.c":
    work_waits_for_a_thread,
    a_task_does_not_wait_for_itself,
    threads_of_others_may_use_all_that_is_for_any_thread,
    stacks_too_small_are_refused,
}

cases! { ums, "tests/programs/ums.c":
    schedulers_hear_of_startup_yields_and_ends,
    contexts_tell_and_keep,
    items_come_in_the_order_they_were_listed,
    the_event_is_one_for_poll,
    reads_of_pipes_block,
    mutexes_block,
    calls_that_nobody_knows_block,
    page_faults_block,
    several_schedulers_share_workers,
    workers_may_exit_anywhere,
    kernel_threads_may_schedule,
    null_pointers_are_refused,
    the_wrong_threads_are_refused,
    the_wrong_contexts_are_refused,
}

cases! { ums_in_place, "tests/programs/ums_in_place.c":
    workers_that_yield_decide,
    light_workers_yield_and_block,
    contexts_tell_of_their_threads,
    misuse_is_refused,
}

cases! { fibers, "tests/programs/fibers.c":
    fibers_take_turns,
    words_are_each_fibers_own,
    keys_are_bounded,
    no_later_thread_has_the_fibers_of_one_that_ended,
    fibers_may_be_deleted_by_destructors_of_thread_locals,
    wrong_use_is_refused,
}

cases! { engines, "tests/programs/engines.c":
    engines_run_their_threads,
    threads_of_engines_wait_for_each_other,
    terms_reach_the_policies,
    engines_are_shut_down_and_waited_for,
    kernel_threads_may_use_engines,
    dead_handles_are_refused,
    bad_engines_are_refused,
    bad_terms_are_refused,
    states_end_with_their_engines,
    shares_are_kept,
    pools_and_runs_go_to_engines,
    the_first_engines_policy_can_be_changed,
}

cases! { policy_failures, "tests/programs/policy_failures.c":
    garbage_ends_a_policy,
    copies_of_threads_end_a_policy,
    picking_nothing_ends_a_policy,
    computing_for_ever_ends_a_policy,
    blocking_ends_a_policy,
    a_failure_is_seen_after_its_report,
}

/// A stack through the first frame of a scheduler's procedure, at its first call and at the next.
#[test]
fn debuggers_see_where_a_scheduler_comes_from() {
    if !has("gdb") {
        return;
    }
    let program = compile("tests/programs/ums.c", Linked::Shared);
    let raddle = prefix().join("bin/raddle");
    let raddle = raddle.to_str().expect("a path in UTF-8");
    // Programs that load the runtime themselves, and others.
    for before in [&[][..], &[raddle, "run", "-n", "1", "--"]] {
        let mut gdb = Command::new("timeout");
        gdb.args(["--foreground", "-k", "2", "100", "gdb", "-nx", "-batch"]);
        for command in [
            "set debuginfod enabled off",
            "set breakpoint pending on",
            "handle SIG32 SIG33 SIG34 nostop noprint pass",
            "break raddle_ums_dequeue",
            "run",
            "backtrace",
            "continue",
            "backtrace",
            "kill",
        ] {
            gdb.args(["-ex", command]);
        }
        gdb.arg("--args").args(before).arg(&program);
        gdb.arg("schedulers_hear_of_startup_yields_and_ends");
        let output = run(gdb.stdin(std::process::Stdio::null()));
        let text = String::from_utf8_lossy(&output.stdout);
        for name in [" raddle_ums_enter ", " schedule ", " start_thread "] {
            assert_eq!(text.matches(name).count(), 2, "{name}: {text}");
        }
        for name in ["x86_64::calls::call_restartable", "x86_64::calls::restart"] {
            assert_eq!(text.matches(name).count(), 1, "{name}: {text}");
        }
    }
}

fn check_list(source: &str, listed: &[&str]) {
    let text = std::fs::read_to_string(folder().join(source)).expect("a program can be read");
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{\""));
    let cases: Vec<_> = lines.filter_map(|line| line.split('"').next()).collect();
    assert_eq!(cases, listed);
}

#[test]
fn a_process_that_has_threads_gets_kernel_threads_and_is_told() {
    const GREEN: &str = "1";
    const LOADED_LATE: &str = "2";
    let program = compile("tests/programs/late.c", Linked::Shared);
    let library = prefix().join("lib/libraddle.so.0");
    for mode in MODES {
        let path = library.to_str().expect("a path in UTF-8");
        succeeds(in_mode(mode, &program).args([path, GREEN]));
        let with_threads = match mode {
            Mode::Explicit(_) => LOADED_LATE,
            Mode::Raddle(_) => GREEN, // the runtime was there before
        };
        succeeds(in_mode(mode, &program).args([path, with_threads, "threads"]));
    }
}

#[test]
fn a_library_may_start_threads_and_wait_for_them_in_its_constructor() {
    let source = folder().join("tests/programs/plugin.c");
    let loader = compile("tests/programs/loader.c", Linked::Static);
    let plugin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libplugin.so");
    let lib = prefix().join("lib");
    let mut compiler = crate::support::compiler(&source);
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&plugin)
        .arg(&source);
    compiler.arg("-L").arg(&lib).arg("-lraddle");
    succeeds(compiler.arg(format!("-Wl,-rpath,{}", lib.display())));
    for mode in MODES {
        assert_eq!(
            succeeds(in_mode(mode, &loader).arg(&plugin)),
            "ok plugin 1\n"
        );
    }
}

#[test]
fn an_exception_that_leaves_a_callback_ends_the_process() {
    for linked in crate::support::LINKAGES {
        let program = compile("tests/programs/throws.cc", linked);
        for mode in [Mode::Explicit(2), Mode::Raddle(2)] {
            let output = run(&mut in_mode(mode, &program));
            assert!(!output.status.success(), "{linked:?}, {mode:?}");
            assert!(output.stdout.is_empty(), "{linked:?}, {mode:?}");
        }
    }
}

#[test]
fn every_case_has_its_own_process() {
    let program = compile("tests/programs/values.c", Linked::Shared);
    assert_eq!(
        run(Command::new(&program).arg("no such case"))
            .status
            .code(),
        Some(2)
    );
    everywhere(
        "tests/programs/threads.c",
        &["the_runtime_is_there"],
        "there\n",
    );
}
