//! Memory of threads: calls on stacks, and limits on address space.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use raddle_tests::{Mode, Program, Running, assert_same, in_every_mode};

mod advice {
    raddle_tests::cases! { "stack_advice.c":
        memory_below_a_stack_is_emptied,
        the_own_stack_is_emptied_below_its_frame,
        a_program_that_does_as_libc_does_is_answered_by_the_kernel,
        a_destructor_that_jumps_to_the_call_is_no_libc,
        pages_right_below_the_stack_pointer_are_emptied,
        children_empty_their_stacks_whatever_other_threads_were_doing,
        bad_advice_is_refused_as_the_kernel_does,
    }
}

mod stacks {
    raddle_tests::cases! { "stack_memory.c":
        access_that_is_given_again_takes_none_away,
        access_changes_and_content_stays,
        the_low_end_is_guarded_and_opened,
        the_low_end_is_mapped_anew,
        pages_are_mapped_over,
        pages_are_unmapped,
        pages_are_moved,
        what_a_program_maps_as_a_stack_is_as_it_asked,
        pages_are_locked_and_kept_from_children,
        a_neighbour_changes_a_stack,
        stacks_are_fresh_after_all_that,
        a_guard_is_opened_and_closed,
        a_child_changes_the_stacks_that_it_inherits,
        stacks_are_changed_by_four_threads_at_once,
    }
}

mod limits {
    raddle_tests::cases! { "address_space.c":
        a_limit_is_set_before_the_first_thread,
        a_limit_is_set_while_threads_run,
        a_limit_is_set_after_many_threads,
        a_limit_on_data_is_set,
        a_limit_is_inherited,
        a_limit_is_set_by_another_process,
        a_limit_that_is_too_small_can_be_raised,
        a_thread_takes_its_stack_of_address_space,
        memory_is_locked,
    }
}

#[test]
fn random_calls_leave_what_they_leave_natively() {
    const SEEDS: u32 = 24;
    for seed in 1..=SEEDS {
        assert_same(
            "memory::random_calls_leave_what_they_leave_natively",
            "memory_sequences.c",
            &[&seed.to_string(), "6"],
        );
    }
}

/// Three times as many threads as Linux can have at its default limits, with the stacks of 8 MiB
/// that programs without a request get.
#[test]
fn a_hundred_thousand_threads_have_default_stacks() {
    const TIMEOUT: Duration = Duration::from_secs(120);
    in_every_mode(
        "memory::a_hundred_thousand_threads_have_default_stacks",
        |mode| {
            if mode == Mode::Native {
                return Ok(());
            }
            let mut line = Program::build("default_stacks.c")?.variants[0]
                .command
                .clone();
            line.push("100000".into());
            let outcome = Running::start(mode, mode.command(&line)?, None)?.wait(TIMEOUT)?;
            ensure!(
                outcome.stdout == "100000 threads, few mappings\n",
                "{}{}",
                outcome.stdout,
                outcome.stderr
            );
            Ok(())
        },
    );
}

/// The command, the runtime and the program start with a main stack of a few pages. With fewer than
/// six the kernel's random offset decides whether ld.so can preload any library.
#[test]
fn a_main_stack_of_a_few_pages_is_enough() {
    const TIMEOUT: Duration = Duration::from_secs(30);
    in_every_mode("memory::a_main_stack_of_a_few_pages_is_enough", |mode| {
        let mut line = Program::build("default_stacks.c")?.variants[0]
            .command
            .clone();
        line.push("20".into());
        let command = mode.command(&line)?;
        for kib in [24, 32, 64, 100] {
            let limited = limited(&command, kib);
            let outcome = Running::start(mode, limited, None)?.wait(TIMEOUT)?;
            let is_right = outcome.stdout.starts_with("20 threads, ");
            ensure!(is_right, "{kib} KiB: {}{}", outcome.stdout, outcome.stderr);
        }
        Ok(())
    });
}

/// The command, started by a shell that limits stacks to `kib` KiB, without an environment, which
/// would also be on the stack.
fn limited(command: &Command, kib: u32) -> Command {
    let mut limited = Command::new("/bin/sh");
    limited.env_clear().arg("-c");
    limited.arg(format!("ulimit -s {kib} && exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args());
    limited
}
