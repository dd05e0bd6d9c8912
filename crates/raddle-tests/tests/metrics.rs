//! `raddle metrics`: the figures are those of the program, a parser of others reads them, and
//! neither a process nor a client can stop the exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{
    Mode, Program, Running, find_tool, in_every_mode, or_skip, prometheus_client, raddle,
};
use rustix::process::{Signal, geteuid};
use serde_json::Value;

mod exporter;
use exporter::{Exporter, counters, ensure_no_fall, sum, value};

/// Threads of the program beside the main one.
const THREADS: usize = 100;
/// What a scrape may take if a process doesn't answer, with some time for a busy machine.
const SCRAPE_MAX: Duration = Duration::from_secs(4);

fn start(mode: Mode) -> Result<Running> {
    let program = Program::build("many_waiting.c")?;
    let mut line = program.variants[0].command.clone();
    line.push(THREADS.to_string().into());
    let running = Running::start(mode, mode.command(&line)?, None)?;
    running.wait_until_it_says("waiting\n")?;
    Ok(running)
}

/// Calls `test` with the program, at each number of carriers.
fn with_program(name: &str, mut test: impl FnMut(Mode, Running) -> Result<()>) {
    in_every_mode(&format!("metrics::{name}"), |mode| match mode {
        Mode::Native => Ok(()),
        Mode::Raddle { .. } => test(mode, start(mode)?),
    });
}

fn run(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    Ok(command.arg("metrics").args(arguments).output()?)
}

fn page_of(running: &Running) -> Result<String> {
    let output = run(&[&running.pid().to_string()])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The metrics with rows.
fn metrics(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter(|row| !row.starts_with('#'));
    rows.filter_map(|row| row.split('{').next()).collect()
}

#[test]
fn figures_are_those_of_the_program() {
    with_program("figures_are_those_of_the_program", |mode, running| {
        let page = page_of(&running)?;
        let all = (THREADS + 1) as f64;
        ensure!(value(&page, "raddle_up{")? == 1.0, "{page}");
        ensure!(sum(&page, "raddle_threads", "") == all, "{page}");
        ensure!(sum(&page, "raddle_threads", "\"waiting\"") == all, "{page}");
        ensure!(value(&page, "raddle_threads_created_total{")? == all);
        ensure!(value(&page, "raddle_threads_ended_total{")? == 0.0);
        let parks = sum(&page, "raddle_parks_total", "kind=\"condvar\"");
        ensure!(parks >= THREADS as f64, "{parks} waits: {page}");
        let groups = sum(&page, "raddle_group_threads", "group=\"program\"");
        ensure!(groups == all, "{groups} threads in the group");
        let switches = sum(&page, "raddle_switches_total", "");
        let of_group = sum(&page, "raddle_group_switches_total", "");
        ensure!(
            of_group >= THREADS as f64 && of_group <= switches,
            "{of_group}, {switches}"
        );
        let Mode::Raddle { carriers } = mode else {
            bail!("under raddle");
        };
        let wanted = value(&page, "raddle_engine_wanted_carriers{")?;
        ensure!(wanted == f64::from(carriers), "{wanted} carriers");
        running.terminate()
    });
}

/// A counter that goes down looks like a new process, and its rate is wrong.
#[test]
fn counters_never_go_down() {
    with_program("counters_never_go_down", |_, running| {
        let mut before = counters(&page_of(&running)?);
        for _ in 0..5 {
            let now = counters(&page_of(&running)?);
            ensure_no_fall(&before, &now)?;
            before = now;
        }
        running.terminate()
    });
}

#[test]
fn the_parser_of_prometheus_reads_every_row() {
    const PROGRAM: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
json.dump({f.name: [f.type, f.documentation, f.unit, len(f.samples)] for f in families}, sys.stdout)
";
    with_program("the_parser_of_prometheus_reads_every_row", |_, running| {
        let page = page_of(&running)?;
        let mut python = Command::new(find_tool("python3")?)
            .args(["-c", PROGRAM])
            .env("PYTHONPATH", prometheus_client()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        python
            .stdin
            .take()
            .context("a pipe")?
            .write_all(page.as_bytes())?;
        let output = python.wait_with_output()?;
        ensure!(output.status.success(), "{page}");
        let families: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout)?;
        ensure!(families.len() > 30, "{} families", families.len());
        let mut rows = 0;
        for (name, family) in &families {
            let help = family[1].as_str().unwrap_or_default();
            ensure!(
                !help.is_empty() && family[0] != "unknown",
                "{name}: {family}"
            );
            ensure!(
                name.ends_with("_seconds") == (family[2] == "seconds"),
                "{name}"
            );
            rows += family[3].as_u64().context("a number")?;
        }
        let written = page.lines().filter(|row| !row.starts_with('#')).count();
        ensure!(rows == written as u64, "{rows} rows of {written}");
        running.terminate()
    });
}

fn document(path: &str) -> Result<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(fs::read_to_string(folder.join("../../docs").join(path))?)
}

/// Words that begin with `raddle_`.
fn named_metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("raddle_")).collect()
}

#[test]
fn the_dashboard_and_the_documentation_name_metrics_that_are_there() {
    let name = "the_dashboard_and_the_documentation_name_metrics_that_are_there";
    with_program(name, |mode, running| {
        running.terminate()?;
        // With a share and a quota, so that their metrics are there.
        let program = Program::build("many_waiting.c")?;
        let mut line: Vec<OsString> = vec![raddle()?.into(), "run".into()];
        line.extend(["--share=name:none*=20", "--share=name:no*=50%", "--"].map(Into::into));
        line.extend(program.variants[0].command.clone());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        let running = Running::start(mode, command, None)?;
        running.wait_until_it_says("waiting\n")?;
        let page = page_of(&running)?;
        let there = metrics(&page);
        let text = document("observability.md")?;
        let (_, section) = text.split_once("\n## Metrics\n").context("a section")?;
        let (section, _) = section.split_once("\n## ").context("its end")?;
        let documented = named_metrics(section);
        let histogram = ["_sum", "_count", "_bucket"];
        let base = |name: &&str| {
            let found = histogram.iter().find_map(|end| name.strip_suffix(end));
            let is_histogram = |base: &&str| documented.contains(base);
            found.filter(is_histogram).unwrap_or(name).to_owned()
        };
        for metric in &there {
            ensure!(
                documented.contains(base(metric).as_str()),
                "{metric} isn't documented"
            );
        }
        let known: BTreeSet<String> = there.iter().map(base).collect();
        for metric in &documented {
            ensure!(known.contains(&base(metric)), "{metric} isn't there");
        }
        let dashboard: Value = serde_json::from_str(&document("grafana/raddle.json")?)?;
        let panels = dashboard["panels"].as_array().context("panels")?;
        let targets = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array());
        let mut expressions = 0;
        for target in targets.flatten() {
            let expression = target["expr"].as_str().context("an expression")?;
            let named = named_metrics(expression);
            ensure!(!named.is_empty(), "{expression}");
            for metric in named {
                ensure!(there.contains(metric), "{metric} of the dashboard");
            }
            expressions += 1;
        }
        ensure!(expressions > 20, "{expressions} expressions");
        running.terminate()
    });
}

/// Returns a page that took no longer than it may.
fn prompt_page(exporter: &Exporter) -> Result<String> {
    let began = Instant::now();
    let page = exporter.page()?;
    ensure!(began.elapsed() < SCRAPE_MAX, "{:?}", began.elapsed());
    Ok(page)
}

fn is_up(page: &str, running: &Running) -> Result<bool> {
    let row = format!("raddle_up{{pid=\"{}\"", running.pid());
    Ok(value(page, &row)? == 1.0)
}

/// The kernel stops a process some time after its signal.
fn wait_until_stopped(running: &Running) -> Result<()> {
    let began = Instant::now();
    let path = format!("/proc/{}/status", running.pid());
    while !fs::read_to_string(&path)?.contains("State:\tT") {
        ensure!(began.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn a_process_that_stops_or_ends_is_down_and_delays_no_other() {
    let name = "a_process_that_stops_or_ends_is_down_and_delays_no_other";
    with_program(name, |mode, stopped| {
        let others = [start(mode)?, start(mode)?];
        let pids = [&stopped, &others[0], &others[1]].map(|it| it.pid().to_string());
        let exporter = Exporter::start(&pids.each_ref().map(String::as_str))?;
        let page = prompt_page(&exporter)?;
        ensure!(
            is_up(&page, &stopped)? && is_up(&page, &others[0])?,
            "{page}"
        );
        stopped.signal(Signal::STOP)?;
        wait_until_stopped(&stopped)?;
        let page = prompt_page(&exporter)?;
        ensure!(
            !is_up(&page, &stopped)? && is_up(&page, &others[1])?,
            "{page}"
        );
        stopped.signal(Signal::CONT)?;
        ensure!(is_up(&prompt_page(&exporter)?, &stopped)?);
        let pid = others[0].pid();
        let [ends, stays] = others;
        ends.terminate()?;
        let page = prompt_page(&exporter)?;
        let row = format!("raddle_up{{pid=\"{pid}\",command=\"program\"}}");
        ensure!(value(&page, &row)? == 0.0, "{page}");
        ensure!(is_up(&page, &stays)?);
        let failed = run(&pids.each_ref().map(String::as_str))?;
        ensure!(
            failed.status.code() == Some(2),
            "one isn't there: {failed:?}"
        );
        stays.terminate()?;
        stopped.terminate()
    });
}

#[test]
fn all_processes_are_found_anew_at_each_scrape() {
    let name = "all_processes_are_found_anew_at_each_scrape";
    with_program(name, |mode, first| {
        let exporters = [Exporter::start(&["--all"])?, Exporter::start(&["--all"])?];
        for exporter in &exporters {
            ensure!(is_up(&prompt_page(exporter)?, &first)?);
        }
        let second = start(mode)?;
        let pages: Result<Vec<String>> = std::thread::scope(|scope| {
            let scrapes = exporters
                .each_ref()
                .map(|it| scope.spawn(|| prompt_page(it)));
            let join = |scrape: std::thread::ScopedJoinHandle<'_, _>| scrape.join();
            scrapes
                .map(join)
                .into_iter()
                .map(|it| it.expect("no panic"))
                .collect()
        });
        for page in pages? {
            ensure!(is_up(&page, &first)? && is_up(&page, &second)?, "{page}");
        }
        let pid = first.pid();
        first.terminate()?;
        let page = prompt_page(&exporters[0])?;
        ensure!(!page.contains(&format!("pid=\"{pid}\"")), "{page}");
        second.terminate()
    });
}

#[test]
fn hostile_clients_stop_nothing() {
    with_program("hostile_clients_stop_nothing", |_, running| {
        let exporter = Exporter::start(&[&running.pid().to_string()])?;
        let mut stalled = Vec::new();
        for text in ["", "GET /met", "GET /metrics HTTP/1.1\r\nHost: here\r\n"] {
            let mut stream = exporter.connect()?;
            stream.write_all(text.as_bytes())?;
            stalled.push(stream);
        }
        // These ask, and never read.
        for _ in 0..5 {
            let mut stream = exporter.connect()?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
            stalled.push(stream);
        }
        ensure!(is_up(&prompt_page(&exporter)?, &running)?);
        for path in ["/", "/metric", "/metrics/x", "/../metrics"] {
            let (head, _) = exporter.get(path)?;
            ensure!(
                head.starts_with("HTTP/1.1 404 Not Found\r\n"),
                "{path}: {head}"
            );
        }
        let form = "GET http://here:1/metrics HTTP/1.1\r\nHost: here\r\n\r\n";
        let (head, page) = exporter.ask(form)?;
        ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{form}: {head}");
        ensure!(is_up(&page, &running)?, "{page}");
        let body = "x".repeat(20_000);
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let head = format!("{method} /metrics HTTP/1.1\r\nContent-Length: 20000\r\n\r\n");
            let (head, _) = exporter.ask(&format!("{head}{body}"))?;
            ensure!(head.starts_with("HTTP/1.1 405 "), "{method}: {head}");
            ensure!(head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
        }
        for garbage in [
            &b"\0\0\0\0\r\n\r\n"[..],
            &[b'x'; 20_000],
            b"GET /metrics\r\n\r\n",
        ] {
            let mut stream = exporter.connect()?;
            let _ = stream.write_all(garbage); // it is closed before its end
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            ensure!(!answer.starts_with(b"HTTP/1.1 200"), "{garbage:?}");
        }
        ensure!(is_up(&prompt_page(&exporter)?, &running)?);
        // More than are served at a time: those without a request give their places away.
        let mut many = Vec::new();
        for text in ["", "GET /metrics HTTP/1.1\r\n"] {
            for _ in 0..50 {
                let mut stream = exporter.connect()?;
                stream.write_all(text.as_bytes())?;
                many.push(stream);
            }
            ensure!(is_up(&prompt_page(&exporter)?, &running)?, "{text:?}");
        }
        let mut silent = exporter.connect()?;
        silent.set_read_timeout(Some(Duration::from_secs(15)))?;
        let ended = silent.read_to_end(&mut Vec::new());
        ensure!(ended.is_ok(), "a client that says nothing stays");
        drop((many, stalled));
        running.terminate()
    });
}

/// Says one sentence, nothing else, and exits with 2.
fn refuses(output: &Output, part: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_sentence = said.starts_with("raddle: ") && said.lines().count() == 1;
    ensure!(
        output.status.code() == Some(2) && output.stdout.is_empty(),
        "{output:?}"
    );
    ensure!(is_sentence && said.contains(part), "{said}");
    Ok(())
}

#[test]
fn what_can_have_no_metrics_is_refused() {
    with_program("what_can_have_no_metrics_is_refused", |_, running| {
        let pid = running.pid().to_string();
        let own = std::process::id().to_string();
        refuses(&run(&["0"])?, "give the number of a process")?;
        refuses(&run(&[&pid, "me"])?, "give the number of a process")?;
        refuses(
            &run(&[&pid, "2147483647"])?,
            "there is no process 2147483647",
        )?;
        refuses(&run(&[&own])?, "does not run under raddle")?;
        refuses(&run(&[])?, "is missing")?;
        refuses(&run(&["--all", &pid])?, "--all")?;
        let exporter = Exporter::start(&[&pid])?;
        let taken = exporter.address.to_string();
        refuses(&run(&["--listen", &taken, &pid])?, "can't be listened on")?;
        refuses(
            &run(&["--listen", "203.0.113.1:9", &pid])?,
            "can't be listened on",
        )?;
        refuses(&run(&["--listen", "here", &pid])?, "give a port")?;
        let arguments = vec![pid.as_str(); 2000];
        ensure!(run(&arguments)?.status.success(), "2000 times the same");
        running.terminate()
    });
}

#[test]
fn processes_of_others_are_refused() {
    with_program("processes_of_others_are_refused", |_, running| {
        if !geteuid().is_root() {
            return running.terminate();
        }
        let other = |arguments: &[&str]| -> Result<Output> {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
            command.arg(raddle()?).arg("metrics").args(arguments);
            Ok(command.output()?)
        };
        refuses(&other(&[&running.pid().to_string()])?, "belongs to user 0")?;
        let all = other(&["--all"])?;
        let page = String::from_utf8(all.stdout)?;
        ensure!(
            !page.contains(&format!("pid=\"{}\"", running.pid())),
            "{page}"
        );
        running.terminate()
    });
}

/// A program that executes another one is a new process with an old number.
#[test]
fn an_execution_begins_the_counters_anew() {
    let test = "metrics::an_execution_begins_the_counters_anew";
    let outcome = (|| {
        let program = Program::build("many_waiting.c")?;
        let target = program.variants[0].command[0].clone();
        let script = "import os, sys, threading
stays = threading.Event()
for _ in range(20):
    threading.Thread(target=stays.wait, daemon=True).start()
print('python', flush=True)
sys.stdin.readline()
os.execv(sys.argv[1], sys.argv[1:] + ['7'])
";
        let mut child = Command::new(raddle()?)
            .args(["run", "-n", "2", "--"])
            .arg(find_tool("python3")?)
            .args(["-c", script])
            .arg(target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        lines.next().context("python begins")??;
        let exporter = Exporter::start(&[&child.id().to_string()])?;
        let page = prompt_page(&exporter)?;
        ensure!(
            value(&page, "raddle_threads_created_total{")? == 21.0,
            "{page}"
        );
        child.stdin.take().context("a pipe")?.write_all(b"\n")?;
        lines.next().context("the other program begins")??;
        let page = prompt_page(&exporter)?;
        ensure!(
            value(&page, "raddle_threads_created_total{")? == 8.0,
            "{page}"
        );
        ensure!(value(&page, "raddle_up{")? == 1.0 && page.contains("command=\"program\""));
        ensure!(sum(&page, "raddle_group_threads", "") == 8.0, "{page}");
        child.kill()?;
        child.wait()?;
        Ok(())
    })();
    or_skip(test, outcome);
}
