//! The examples, and what they print. Each runs in a process of its own, which is this program
//! again.

use std::process::Command;

#[allow(dead_code)] // the parts for the command line
#[path = "../examples/crawler.rs"]
mod crawler;
#[path = "../examples/custom_policy.rs"]
mod custom_policy;
#[allow(dead_code)]
#[path = "../examples/echo_server.rs"]
mod echo_server;
#[allow(dead_code)]
#[path = "../examples/http_hello.rs"]
mod http_hello;
#[path = "../examples/pipeline.rs"]
mod pipeline;
#[path = "../examples/pool_cancellation.rs"]
mod pool_cancellation;
#[path = "../examples/ums_scheduler.rs"]
mod ums_scheduler;

/// Returns an example's own lines. `test` is the test that calls this.
fn lines_of(test: &str, example: fn()) -> Vec<String> {
    const RUNS: &str = "EXAMPLE_TEST";
    const BEGIN: &str = "the example begins";
    if std::env::var(RUNS).is_ok_and(|runs| runs == test) {
        println!("\n{BEGIN}");
        example();
        std::process::exit(0); // before the harness adds its own
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "60"]).arg(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = command.env(RUNS, test).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}{errors}", output.status);
    assert_eq!(errors, "");
    let lines = text.lines().skip_while(|line| *line != BEGIN).skip(1);
    lines.map(str::to_owned).collect()
}

#[test]
fn an_echo_server_echoes() {
    let run = || echo_server::test_itself().unwrap();
    let lines = lines_of("an_echo_server_echoes", run);
    assert_eq!(lines, ["200 clients were echoed"]);
}

#[test]
fn http_says_hello() {
    let lines = lines_of("http_says_hello", || http_hello::test_itself().unwrap());
    assert_eq!(lines, ["500 requests were answered"]);
}

#[test]
fn a_crawler_finds_every_page() {
    let run = || crawler::test_itself().unwrap();
    let lines = lines_of("a_crawler_finds_every_page", run);
    assert_eq!(lines, ["364 pages were fetched"]);
}

#[test]
fn a_pipeline_holds_back_its_source() {
    let lines = lines_of("a_pipeline_holds_back_its_source", pipeline::main);
    assert_eq!(lines, ["10000 items went through"]);
}

#[test]
fn a_user_mode_scheduler_runs_its_workers() {
    use raddle::runtime::{Status, status};
    if status() != Status::Green {
        return;
    }
    let run = || ums_scheduler::main().unwrap();
    let lines = lines_of("a_user_mode_scheduler_runs_its_workers", run);
    let [line] = &*lines else { panic!("{lines:?}") };
    let order = line.strip_prefix("they ended in this order: [");
    let order = order.and_then(|order| order.strip_suffix("]")).unwrap();
    let mut workers: Vec<usize> = order.split(", ").map(|it| it.parse().unwrap()).collect();
    workers.sort_unstable();
    assert_eq!(workers, (0..workers.len()).collect::<Vec<_>>());
}

#[test]
fn a_policy_of_ones_own_orders_its_jobs() {
    use raddle::runtime::{Status, status};
    if status() != Status::Green {
        return;
    }
    let lines = lines_of("a_policy_of_ones_own_orders_its_jobs", custom_policy::main);
    let [line] = &*lines else { panic!("{lines:?}") };
    let order = line.strip_prefix("they ran in this order: [");
    let order = order.and_then(|order| order.strip_suffix("]")).unwrap();
    // A job that has waited for long comes first, so a slow machine may show another order.
    let mut sizes: Vec<u32> = order
        .split(", ")
        .map(|size| size.parse().unwrap())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [10, 20, 30, 40, 50]);
}

#[test]
fn a_search_ends_when_it_has_found() {
    let run = || pool_cancellation::main().unwrap();
    let lines = lines_of("a_search_ends_when_it_has_found", run);
    let [over, found, running] = &*lines else {
        panic!("{lines:?}")
    };
    assert_eq!(over, "the search is over");
    let found = found
        .strip_prefix("999985999949 is divisible by Some(999983); ")
        .unwrap();
    assert!(
        found.ends_with(" parts were stopped or never began"),
        "{found}"
    );
    let running = running.strip_prefix("workers still running: ").unwrap();
    assert!(running.parse::<usize>().is_ok(), "{running}");
}
