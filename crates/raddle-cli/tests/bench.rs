//! `raddle bench` on a thousandth of the work: every way runs, and the results can be read.

mod common;

use common::{Folder, has, raddle, refuses, succeeds, text};

#[test]
fn every_way_gives_a_figure_and_a_json_line() {
    let folder = Folder::new();
    let file = folder.0.join("results.jsonl");
    let arguments = [
        "bench",
        "yield",
        "--rounds",
        "2",
        "--fraction",
        "0.001",
        "--json",
    ];
    for _ in 0..2 {
        let output = succeeds(raddle(&arguments).arg(&file));
        let table = text(&output.stdout);
        let row = table
            .lines()
            .find(|line| line.starts_with("sched_yield: yield"))
            .unwrap();
        assert!(
            row.matches('x').count() >= 4 && !row.contains(" - "),
            "{table}"
        );
    }
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 2, "a second run appends");
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    for way in [
        "native_all_cpus",
        "native_one_cpu",
        "raddle_one_carrier",
        "raddle_default",
    ] {
        assert_eq!(
            line["samples"][way].as_array().map(Vec::len),
            Some(2),
            "{way}"
        );
        assert!(line["medians"][way].as_f64().unwrap() > 0.0);
    }
    assert_eq!(line["unit"], "ns");
    assert_eq!(line["better"], "less");
    assert!(line["machine"]["kernel"].is_string() && line["date"].is_string());
}

#[test]
fn start_up_and_calls_are_measured_without_compiling_twice() {
    let output = succeeds(&mut raddle(&[
        "bench",
        "overhead",
        "--rounds",
        "1",
        "--fraction",
        "0.01",
    ]));
    let table = text(&output.stdout);
    for row in [
        "system calls: write-alone",
        "system calls: gettid-threaded",
        "start-up: true",
    ] {
        assert!(
            table.lines().any(|line| line.starts_with(row)),
            "{row}\n{table}"
        );
    }
}

#[test]
fn the_server_is_loaded_and_then_idle() {
    if !has("wrk") {
        return;
    }
    let output = succeeds(&mut raddle(&[
        "bench",
        "http",
        "--rounds",
        "1",
        "--fraction",
        "0.01",
    ]));
    let table = text(&output.stdout);
    for row in [
        "50 connections: rate",
        "500 connections: latency-p99",
        "50 connections: idle-cpu",
    ] {
        assert!(
            table.lines().any(|line| line.starts_with(row)),
            "{row}\n{table}"
        );
    }
}

#[test]
fn tables_of_handles_are_measured_if_their_program_is_built() {
    let output = raddle(&["bench", "handles", "--rounds", "1", "--fraction", "0.001"]).output();
    let table = text(&output.unwrap().stdout);
    let measured = ["weak-raddle", "weak-arc-mutex-slab", "monitor-mutex-bitmap"]
        .iter()
        .all(|name| table.contains(&format!("handles: {name}")));
    let skipped = "handles is skipped: its program is not there; cargo build --release \
                   --package raddle --example handles makes it";
    assert!(
        measured || table.lines().any(|line| line == skipped),
        "{table}"
    );
}

#[test]
fn what_is_not_installed_is_skipped_aloud() {
    let folder = Folder::new();
    let said = |group: &str| {
        let mut command = raddle(&["bench", group, "--rounds", "1", "--fraction", "0.001"]);
        text(&command.env("PATH", &folder.0).output().unwrap().stdout)
    };
    let pingpong: &[&str] = &[
        "pingpong in C is skipped: cc is not installed",
        "pingpong in Python is skipped: python3 is not installed",
        "pingpong in C# is skipped: mono is not installed",
        "pingpong in Go is skipped: go is not installed",
    ];
    for (group, lines) in [
        ("pingpong", pingpong),
        ("http", &["http is skipped: wrk is not installed"]),
        (
            "overhead",
            &["start-up is skipped: there is no program called true"],
        ),
    ] {
        let said = said(group);
        for line in lines {
            assert!(said.lines().any(|other| other == *line), "{line}\n{said}");
        }
    }
    let mut command = raddle(&["bench", "yield"]);
    let output = command.env("PATH", &folder.0).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "raddle: nothing could be measured: see the lines above\n"
    );
}

#[test]
fn a_program_that_fails_under_raddle_is_reported_and_the_rest_is_measured() {
    // Ends every program that it is preloaded into.
    const ENDS: &str = r#"
__attribute__((constructor)) static void end(void) {
  __asm__ volatile("syscall" : : "a"(231), "D"(3) : "rcx", "r11", "memory");
}
"#;
    let folder = Folder::new();
    let flags = ["-shared", "-fPIC", "-nostdlib"];
    let library = folder.compile("cc", "ends", ENDS, &flags);
    let mut command = raddle(&["bench", "yield", "--rounds", "2", "--fraction", "0.001"]);
    let output = succeeds(command.env("RADDLE_PRELOAD", library));
    let said = text(&output.stdout);
    for line in [
        "sched_yield: raddle_one_carrier failed: exit status: 3: it said nothing",
        "sched_yield: raddle_default failed: exit status: 3: it said nothing",
    ] {
        assert_eq!(
            said.lines().filter(|other| *other == line).count(),
            1,
            "{said}"
        );
    }
    let row = said
        .lines()
        .find(|line| line.starts_with("sched_yield: yield"))
        .unwrap();
    assert_eq!(
        row.split_whitespace().filter(|cell| *cell == "-").count(),
        6,
        "{said}"
    );
}

#[test]
fn results_that_can_not_be_written_are_noticed_before_the_work() {
    refuses(
        &mut raddle(&["bench", "all", "--json", "/nowhere/results.jsonl"]),
        2,
        "/nowhere/results.jsonl: No such file or directory (os error 2): name a file that you \
         can write to",
    );
}
