//! The examples that people copy, as they test themselves.

#[allow(dead_code)] // what is for those who start it
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
#[path = "../examples/ums_scheduler.rs"]
mod ums_scheduler;

#[test]
fn an_echo_server_echoes() {
    echo_server::test_itself().unwrap();
}

#[test]
fn http_says_hello() {
    http_hello::test_itself().unwrap();
}

#[test]
fn a_crawler_finds_every_page() {
    crawler::test_itself().unwrap();
}

#[test]
fn a_pipeline_holds_back_its_source() {
    pipeline::main();
}

#[test]
fn a_user_mode_scheduler_runs_its_workers() {
    ums_scheduler::main().unwrap();
}

#[test]
fn a_policy_of_ones_own_orders_its_jobs() {
    custom_policy::main();
}
