//! Addresses, lengths and numbers that no call should be given: the kernel's answers, and no
//! process dies.

use std::collections::BTreeSet;
use std::time::Duration;

use raddle_tests::{Case, Mode, Program, Running, or_skip};

mod bad_pointers {
    raddle_tests::cases! { "bad_pointers.c":
        futex_words_and_times,
        sleeps,
        signal_sets_and_actions,
        names_lists_and_clones,
        sets_of_descriptors,
        a_fault_of_the_programs_own_still_kills,
        a_fault_of_the_programs_own_reaches_its_handler,
        addresses_are_bad_while_faults_are_blocked,
        addresses_are_bad_while_a_descriptor_reads_faults,
        addresses_are_bad_while_faults_are_ignored,
        handlers_of_faults_hear_nothing_of_bad_addresses,
        addresses_are_bad_in_a_handler,
        addresses_are_bad_on_a_kernel_thread_of_its_own,
        ignored_faults_are_handed_down,
        a_bad_list_does_not_change_what_kills,
    }
}

/// Runs `hostile.c`, which prints the result of each of its calls.
fn same(test: &str, mode: &str, arguments: &[&str]) {
    let case = Case::new(module_path!(), "hostile.c", mode)
        .tested_by(test)
        .without_last_line()
        .timeout(Duration::from_secs(300));
    let case = arguments
        .iter()
        .fold(case, |case, argument| case.argument(argument));
    case.check();
}

#[test]
fn every_call_is_what_it_is_natively_on_the_main_thread() {
    same("hostile::on_main", "table", &["main"]);
}

#[test]
fn every_call_is_what_it_is_natively_on_another_thread() {
    same("hostile::on_another", "table", &["other"]);
}

#[test]
fn some_of_several_at_once_are_what_they_are_natively() {
    same("hostile::several", "random", &["1", "8000"]);
}

#[test]
fn nothing_kills_while_another_thread_takes_the_memory_away() {
    same("hostile::flip", "flip", &["1", "4"]);
}

/// Names after `nr::__NR_` in the table of handled calls.
fn handled() -> BTreeSet<String> {
    let table = include_str!("../../raddle-kernel/src/table.rs");
    let rows = table.split("pub static TABLE").next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = rows.split("nr::__NR_").skip(1);
    names
        .map(|text| {
            text.split(|c| !is_name(c))
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

#[test]
fn every_handled_call_is_in_the_table() {
    let Some(program) = or_skip("hostile::calls", Program::build("hostile.c")) else {
        return;
    };
    let mut line = program.variants[0].command.clone();
    line.push("calls".into());
    let run = || {
        let running = Running::start(Mode::Native, Mode::Native.command(&line)?, None)?;
        Ok::<_, anyhow::Error>(running.wait(Duration::from_secs(60))?.stdout)
    };
    let text = run().expect("the program lists its calls");
    let listed: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    let handled = handled();
    assert!(handled.len() > 100, "{handled:?}");
    let missing: Vec<_> = handled.difference(&listed).collect();
    assert!(missing.is_empty(), "without hostile arguments: {missing:?}");
}
