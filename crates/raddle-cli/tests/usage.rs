//! Bad usage: one sentence with the cure, and the exit status.

mod common;

use common::{Folder, RADDLE, preload, raddle, refuses, succeeds, text};
use std::fs::File;
use std::process::{Command, Stdio};

const COMMANDS: &str = "name one of run, doctor, dump, top, core, gdb, record, report, \
      locks, trace, metrics, ctl, bench, completions, man";

#[test]
fn no_command_and_an_unknown_one_are_refused() {
    refuses(
        &mut raddle(&[]),
        2,
        &format!("no command given: {COMMANDS}"),
    );
    refuses(
        &mut raddle(&["walk"]),
        2,
        &format!("there is no command walk: {COMMANDS}"),
    );
}

#[test]
fn a_run_without_a_program_is_refused() {
    let sentence = "no program given: write it behind --, as in raddle run -- ./server";
    refuses(&mut raddle(&["run"]), 2, sentence);
    refuses(&mut raddle(&["run", "-n", "2", "--"]), 2, sentence);
}

#[test]
fn an_unknown_flag_is_refused_and_not_taken_for_a_program() {
    refuses(
        &mut raddle(&["run", "--carrier-count", "2", "true"]),
        2,
        "there is no flag or argument --carrier-count here: see raddle COMMAND --help; a \
         program's own flags follow its name",
    );
}

#[test]
fn absurd_carrier_counts_are_refused_from_flag_and_environment() {
    let cure = "give -n or RADDLE_CARRIERS a number from 1 to 1024";
    for count in ["0", "1025", "-1", "many", "18446744073709551617"] {
        let flag = format!("-n{count}");
        let sentence = format!("--carriers {count}: {cure}");
        refuses(&mut raddle(&["run", &flag, "true"]), 2, &sentence);
        refuses(
            raddle(&["run", "true"]).env("RADDLE_CARRIERS", count),
            2,
            &sentence,
        );
    }
}

#[test]
fn absurd_quanta_are_refused_from_flag_and_environment() {
    let cure = "give --quantum or RADDLE_QUANTUM_US 0 or a number from 50 to 1000000";
    for quantum in ["1", "49", "1000001", "2ms"] {
        let sentence = format!("--quantum {quantum}: {cure}");
        let flag = format!("--quantum={quantum}");
        refuses(&mut raddle(&["run", &flag, "true"]), 2, &sentence);
        refuses(
            raddle(&["run", "true"]).env("RADDLE_QUANTUM_US", quantum),
            2,
            &sentence,
        );
    }
}

#[test]
fn absurd_numbers_of_extra_carriers_are_refused() {
    for most in ["-1", "1025", "some"] {
        let cure = "give --extra-carriers or RADDLE_EXTRA_CARRIERS a number from 0 to 1024";
        let sentence = format!("--extra-carriers {most}: {cure}");
        let flag = format!("--extra-carriers={most}");
        refuses(&mut raddle(&["run", &flag, "true"]), 2, &sentence);
        refuses(
            raddle(&["run", "true"]).env("RADDLE_EXTRA_CARRIERS", most),
            2,
            &sentence,
        );
    }
}

#[test]
fn absurd_thread_limits_are_refused() {
    for limit in ["0", "1048577", "some"] {
        for (flag, variable) in [
            ("--max-threads", "RADDLE_MAX_THREADS"),
            ("--max-runnable", "RADDLE_MAX_RUNNABLE"),
        ] {
            refuses(
                &mut raddle(&["run", flag, limit, "true"]),
                2,
                &format!("{flag} {limit}: give {flag} or {variable} a number from 1 to 1048576"),
            );
        }
    }
}

#[test]
fn folders_that_do_not_exist_are_refused_for_the_flight_recorder() {
    let cure = "give --flight-recorder or RADDLE_FLIGHT_RECORDER an existing folder, or 0 or 1";
    let sentence = format!("--flight-recorder /no/folder: {cure}");
    refuses(
        &mut raddle(&["run", "--flight-recorder=/no/folder", "true"]),
        2,
        &sentence,
    );
    refuses(
        raddle(&["run", "true"]).env("RADDLE_FLIGHT_RECORDER", "/no/folder"),
        2,
        &sentence,
    );
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    for (change, sentence) in [
        (
            ["carriers", "0"],
            "CARRIERS 0: give auto or a number from 1 to 1024",
        ),
        (
            ["quantum", "3"],
            "US 3: give --quantum or RADDLE_QUANTUM_US 0 or a number from 50 to 1000000",
        ),
    ] {
        refuses(
            &mut raddle(&["ctl", "1", change[0], change[1]]),
            2,
            sentence,
        );
    }
}

#[test]
fn policies_that_do_not_exist_are_refused_from_flag_and_environment() {
    let names = "name one of fifo, lifo, priority, fair, deadline, or the file of a plug-in";
    let file = "there is no such file; name one that exists";
    let other = "this is no shared object; build the plug-in with -shared -fPIC";
    let folder = "this is no regular file; name that of a plug-in";
    for (policy, cure) in [
        ("fastest", names),
        ("Fair", names),
        ("./none.so", file),
        ("/tmp", folder),
        ("/etc/passwd", other),
    ] {
        let sentence = format!("--policy {policy}: {cure}");
        refuses(
            &mut raddle(&["run", "--policy", policy, "true"]),
            2,
            &sentence,
        );
        refuses(
            raddle(&["run", "true"]).env("RADDLE_POLICY", policy),
            2,
            &sentence,
        );
    }
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    let cure = "write name:GLOB= or lib:GLOB=, and behind it a share from 1 to 99, or a quota like \
                30% (at most 102400%), carriers=N (at most 64), or both with a comma between";
    for share in [
        "name:a",
        "start:main=5",
        "name:a=0",
        "name:a=100",
        "name:a=carriers=65",
        "name:a=102401%",
    ] {
        let sentence = format!("--share {share}: {cure}");
        refuses(
            &mut raddle(&["run", "--share", share, "true"]),
            2,
            &sentence,
        );
    }
    let cure = "give at most 15 --share of 100 percent together, with --policy fair or without one";
    let mut command = raddle(&[
        "run",
        "--share",
        "name:a=60",
        "--share",
        "name:b=41",
        "true",
    ]);
    let sentence = format!("shares of more than 100 percent together: {cure}");
    refuses(&mut command, 2, &sentence);
    let mut command = raddle(&["run", "--policy", "lifo", "--share", "name:a=6", "true"]);
    let sentence = format!("shares under another policy than fair: {cure}");
    refuses(&mut command, 2, &sentence);
}

#[test]
fn malformed_patterns_are_refused_from_flag_and_environment() {
    let cure = "write name:GLOB, lib:GLOB or start:SYMBOL";
    for pattern in ["GC*", "thread:x", "name:", "start:a b"] {
        let sentence = format!("--exclude {pattern}: {cure}");
        refuses(
            &mut raddle(&["run", "--exclude", pattern, "true"]),
            2,
            &sentence,
        );
        let list = format!("name:ok;{pattern}");
        refuses(
            raddle(&["run", "true"]).env("RADDLE_EXCLUDE", list),
            2,
            &sentence,
        );
    }
}

#[test]
fn variables_set_to_nothing_count_as_not_set() {
    let mut command = raddle(&["run", "true"]);
    command
        .env("RADDLE_CARRIERS", "")
        .env("RADDLE_VERBOSE", "")
        .env("RADDLE_EXCLUDE", "");
    assert_eq!(text(&succeeds(&mut command).stderr), "");
}

#[test]
fn other_commands_check_their_arguments() {
    refuses(
        &mut raddle(&["dump"]),
        2,
        "PID is missing: see raddle COMMAND --help",
    );
    let cure = "give the number of a process, as pidof or ps print it";
    for pid in ["0", "server", "4294967295", "1.5"] {
        refuses(
            &mut raddle(&["dump", pid]),
            2,
            &format!("PID {pid}: {cure}"),
        );
    }
    refuses(
        &mut raddle(&["bench", "speed"]),
        2,
        "GROUP speed: name one of pingpong, yield, create, fork, wakeup, disk, \
         fairness, handoff, latency, handles, ums, http, overhead, api, pool, all, servers, \
         insight",
    );
    refuses(
        &mut raddle(&["bench", "yield", "--rounds", "0"]),
        2,
        "--rounds 0: give a number from 1 to 10000",
    );
    refuses(
        &mut raddle(&["bench", "yield", "--fraction", "2"]),
        2,
        "--fraction 2: give a number above 0 and up to 1",
    );
    refuses(
        &mut raddle(&["completions", "ksh"]),
        2,
        "SHELL ksh: name one of bash, elvish, fish, powershell, zsh",
    );
}

#[test]
fn absurd_numbers_are_one_sentence_with_the_range() {
    let seconds = "give a number of seconds from 0.01 to 3600";
    let frequency = "give a whole number from 1 to 10000";
    for (line, argument, cure) in [
        (vec!["record", "1", "-d", "-1"], "--duration -1", seconds),
        (vec!["record", "1", "-d", "nan"], "--duration nan", seconds),
        (vec!["locks", "1", "-d", "-1"], "--duration -1", seconds),
        (
            vec!["trace", "1", "-o", "x", "-d", "-1"],
            "--duration -1",
            seconds,
        ),
        (
            vec!["top", "1", "--once", "-d", "-1"],
            "--interval -1",
            seconds,
        ),
        (
            vec!["record", "1", "-F", "nan"],
            "--frequency nan",
            frequency,
        ),
        (vec!["record", "1", "-F", "-1"], "--frequency -1", frequency),
        (vec!["record", "1", "-F", "0"], "--frequency 0", frequency),
        (
            vec!["top", "1", "--batch", "-n", "0"],
            "--count 0",
            "give a whole number from 1 on",
        ),
        (
            vec!["top", "1", "--once", "--rows", "-1"],
            "--rows -1",
            "give a whole number, 0 or more",
        ),
    ] {
        refuses(&mut raddle(&line), 2, &format!("{argument}: {cure}"));
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = text(&succeeds(&mut raddle(&["--help"])).stdout);
    for word in [
        "run",
        "doctor",
        "dump",
        "bench",
        "Examples:",
        "raddle run -- ./server",
    ] {
        assert!(help.contains(word), "{word}");
    }
    let run_help = text(&succeeds(&mut raddle(&["run", "--help"])).stdout);
    for word in ["RADDLE_CARRIERS", "RADDLE_EXCLUDE", "name:GLOB", "127"] {
        assert!(run_help.contains(word), "{word}");
    }
    let version = text(&succeeds(&mut raddle(&["--version"])).stdout);
    assert_eq!(version, format!("raddle {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_standard_output_is_told_by_the_status_alone() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = raddle(&["completions", "bash"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_output_that_can_not_be_written_is_one_sentence() {
    let lines: [&[&str]; 7] = [
        &["--help"],
        &["--version"],
        &["doctor"],
        &["completions", "bash"],
        &["metrics", "--all"],
        &["top", "--help"],
        &["bench", "yield"],
    ];
    for line in lines {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let sentence = "standard output can't be written (No space left on device (os error 28)): \
                        write it to a place with room";
        refuses(raddle(line).stdout(full), 2, sentence);
        let mut closed = Command::new("sh");
        closed
            .args(["-c", "exec \"$0\" \"$@\" >&-", RADDLE])
            .args(line);
        closed.env("RADDLE_PRELOAD", preload());
        let sentence = "standard output is closed: open it, or give >/dev/null";
        refuses(&mut closed, 2, sentence);
    }
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&succeeds(&mut raddle(&["completions", shell])).stdout);
        for word in ["doctor", "exclude", "carriers"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn manual_pages_are_written_into_a_new_folder() {
    let folder = Folder::new();
    let pages = folder.0.join("man1");
    succeeds(&mut raddle(&["man", pages.to_str().unwrap()]));
    for page in [
        "raddle.1",
        "raddle-run.1",
        "raddle-doctor.1",
        "raddle-dump.1",
        "raddle-bench.1",
    ] {
        let content = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(content.contains(".TH") && content.contains("Examples") || page.contains("doctor"));
    }
    let file = folder.file("file", "", 0o644);
    let output = raddle(&["man", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).ends_with(": name a folder that you can write to\n"));
}

#[test]
fn doctor_judges_every_line_and_fails_only_when_something_is_broken() {
    let report = succeeds(&mut raddle(&["doctor", "--json"])).stdout;
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() >= 15);
    for finding in findings {
        let fine = finding["state"] == "ok";
        assert_eq!(finding["cure"].is_null(), fine, "{finding}");
        assert_eq!(finding["consequence"].is_null(), fine, "{finding}");
    }
    let lines = text(&succeeds(&mut raddle(&["doctor"])).stdout);
    assert_eq!(lines.lines().count(), findings.len() + 1);

    let broken = raddle(&["doctor"])
        .env("RADDLE_PRELOAD", "/nowhere.so")
        .output()
        .unwrap();
    assert_eq!(broken.status.code(), Some(1));
    assert!(
        text(&broken.stdout).contains("\nbroken    preload ") || {
            text(&broken.stdout).contains("\nbroken  preload ")
        }
    );
}
