//! `--policy` and `--share`: the order of runs, and how much CPU time each thread gets.
//!
//! Seen by programs that print in what order their threads ran and what they used. The other tests
//! check what is right under every policy: `RADDLE_TEST_POLICY=fair cargo test --test locks`.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, Running, or_skip, raddle, shared_object};

/// Runs `policies.c` with these words under these flags.
fn run(flags: &[&str], carriers: u16, words: &[&str]) -> Result<Output> {
    run_program("policies.c", flags, carriers, words)
}

fn run_program(source: &str, flags: &[&str], carriers: u16, words: &[&str]) -> Result<Output> {
    let program = Program::build(source)?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", "60"]).arg(raddle()?);
    command
        .args(["run", "-n", &carriers.to_string()])
        .args(flags);
    command
        .arg("--")
        .args(&program.variants[0].command)
        .args(words);
    let output = command.output()?;
    ensure!(output.status.success(), "{flags:?} {words:?}: {output:?}");
    Ok(output)
}

/// The numbers that `policies.c` prints.
fn numbers(flags: &[&str], carriers: u16, words: &[&str]) -> Result<Vec<f64>> {
    let text = String::from_utf8(run(flags, carriers, words)?.stdout)?;
    let numbers = text.split_whitespace().map(str::parse);
    numbers.collect::<Result<_, _>>().context(text.clone())
}

/// Checks the order on one carrier of threads that became runnable at one moment.
fn order(policy: &str, words: &[&str], expected: &[f64]) {
    let flags = ["--policy", policy];
    if let Some(order) = or_skip(policy, numbers(&flags, 1, words)) {
        assert_eq!(order, expected, "{policy} {words:?}");
    }
}

/// Compares CPU times of threads that compute with these parts of the whole.
///
/// A thread on a carrier that the machine keeps from running falls behind, and catches up later. If
/// the end comes before that, there is another try; one carrier can't fall behind others.
fn check_parts(flags: &[&str], carriers: u16, burners: &[&str], parts: &[f64]) {
    const TRIES: usize = 3;
    let tries = if carriers == 1 { 1 } else { TRIES };
    let words: Vec<_> = ["burn"]
        .into_iter()
        .chain(burners.iter().copied())
        .collect();
    let whole: f64 = parts.iter().sum();
    let mut all_used = Vec::new();
    for _ in 0..tries {
        let Some(used) = or_skip("burn", numbers(flags, carriers, &words)) else {
            return;
        };
        let sum: f64 = used.iter().sum();
        let fits = |(used_ms, part): (&f64, &f64)| {
            let (got, wanted) = (used_ms / sum, part / whole);
            (got / wanted - 1.0).abs() < 0.1
        };
        if used.iter().zip(parts).all(fits) {
            return;
        }
        all_used.push(used);
    }
    panic!("{flags:?} {burners:?} on {carriers}: {all_used:?}, parts {parts:?}");
}

#[test]
fn lifo_runs_the_newest_first() {
    order("lifo", &["order", "1", "2", "3"], &[3.0, 2.0, 1.0]);
}

#[test]
fn priority_goes_by_niceness() {
    order("priority", &["order", "15", "5", "10"], &[5.0, 10.0, 15.0]);
}

#[test]
fn equal_priorities_run_in_turn() {
    order("priority", &["order", "7", "7", "3"], &[3.0, 7.0, 7.0]);
}

#[test]
fn the_earliest_deadline_comes_first_and_none_comes_last() {
    let words = ["deadlines", "0", "3000", "1000", "2000"];
    order("deadline", &words, &[1000.0, 2000.0, 3000.0, 0.0]);
}

#[test]
fn who_is_more_important_runs_before_the_waking_call_returns() {
    for (policy, expected) in [("priority", "before"), ("fifo", "after")] {
        let expected = format!("it ran {expected} the call ended\n");
        let mut text = String::new();
        // A call that lasts long, because the machine is busy, is interrupted under `fifo`, too.
        for _ in 0..3 {
            let output = or_skip(policy, run(&["--policy", policy], 1, &["overtake"]));
            let Some(output) = output else { return };
            text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text == expected {
                break;
            }
        }
        assert_eq!(text, expected, "{policy}");
    }
}

/// Weights of niceness 0 and 5, one a quarter more than the next.
const NICE_0: f64 = 1024.0;
const NICE_5: f64 = 1024.0 * 0.8 * 0.8 * 0.8 * 0.8 * 0.8;

#[test]
fn fair_divides_time_by_niceness() {
    let fair = ["--policy", "fair"];
    check_parts(&fair, 1, &["a:0", "b:0", "c:5"], &[NICE_0, NICE_0, NICE_5]);
    // Small parts, which must not depend on the carrier that the kernel favours.
    let burners = ["a:0", "b:0", "c:0", "d:5", "e:5", "f:5"];
    let parts = [NICE_0, NICE_0, NICE_0, NICE_5, NICE_5, NICE_5];
    check_parts(&fair, 2, &burners, &parts);
}

#[test]
fn threads_that_wait_for_descriptors_in_short_turns_get_their_time() {
    for flags in [["--policy", "fair"], ["--share", "lib:program=carriers=1"]] {
        let Some(used) = or_skip("pair", numbers(&flags, 1, &["pair"])) else {
            return;
        };
        // One of the two runs at a time: they get half of the time or more, less on a busy machine,
        // and nothing like a short turn each quantum.
        assert!(used[1] > used[0] / 4.0, "{flags:?}: {used:?}");
    }
}

#[test]
fn a_share_is_a_part_of_the_time_however_many_threads_have_it() {
    let share = ["--share", "name:batch*=25"];
    let burners = ["batch-1:0", "batch-2:0", "batch-3:0", "other:0"];
    let third = 25.0 / 3.0;
    check_parts(&share, 1, &burners, &[third, third, third, 75.0]);
    let burners = [
        "batch-1:0",
        "batch-2:0",
        "other-1:0",
        "other-2:0",
        "other-3:0",
    ];
    check_parts(&share, 2, &burners, &[12.5, 12.5, 25.0, 25.0, 25.0]);
}

#[test]
fn several_shares_leave_the_rest_to_the_others() {
    let shares = ["--share", "name:a=50", "--share", "name:b=30"];
    check_parts(&shares, 1, &["a:0", "b:0", "c:0"], &[50.0, 30.0, 20.0]);
}

#[test]
fn a_share_by_library_holds_for_its_threads() {
    let share = ["--share", "lib:program=60"];
    check_parts(&share, 1, &["a:0", "b:0"], &[50.0, 50.0]);
}

/// The milliseconds that burners have used in `ms`.
fn used_in(ms: u32, flags: &[&str], carriers: u16, burners: &[&str]) -> Option<Vec<f64>> {
    let ms = ms.to_string();
    let words: Vec<_> = ["during", &ms]
        .into_iter()
        .chain(burners.iter().copied())
        .collect();
    or_skip("burn", numbers(flags, carriers, &words))
}

#[test]
fn a_quota_is_kept_though_the_machine_is_free() {
    for carriers in [1, 2] {
        let share = ["--share", "name:a*=30%"];
        let burners = ["a-1:0", "a-2:0", "a-3:0"];
        let Some(used) = used_in(3000, &share, carriers, &burners) else {
            return;
        };
        let sum: f64 = used.iter().sum();
        // A busy machine may give less.
        assert!((90.0..1020.0).contains(&sum), "of 3000 ms: {used:?}");
    }
}

#[test]
fn who_has_no_quota_is_not_hurt_by_one() {
    let share = ["--share", "name:a=20%,carriers=2"];
    let burners = ["a:0", "a:0", "b:0"];
    if let Some(used) = used_in(3000, &share, 1, &burners) {
        assert!(used[0] + used[1] < 690.0, "{used:?}");
        // On a free machine the thread gets all the time, on a busy one as much as any.
        assert!(used[2] > 0.7 * used[0].max(used[1]), "{used:?}");
    }
}

#[test]
fn threads_of_engines_wait_for_each_other() {
    let rules = [
        ["name:a=carriers=1", "name:b=carriers=2"],
        ["name:a=80%", "name:b=carriers=1"],
        ["name:b=90%", "name:c=10"],
    ];
    for [one, other] in rules {
        let flags = ["--share", one, "--share", other];
        for carriers in [1, 2, 3] {
            let output = or_skip("across", run(&flags, carriers, &["across"]));
            let Some(output) = output else { return };
            assert_eq!(output.stdout, b"done\n", "{flags:?}");
        }
    }
}

#[test]
fn a_thread_that_sits_in_the_kernel_leaves_its_engines_carrier_to_others() {
    let flags = ["--share", "name:a=carriers=1"];
    if let Some(output) = or_skip("stuck", run(&flags, 1, &["stuck"])) {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("meanwhile "), "{text}");
    }
}

fn plug_in(source: &str) -> Result<String> {
    Ok(shared_object(source)?.to_string_lossy().into_owned())
}

#[test]
fn a_plug_in_decides_who_runs_next() {
    if let Some(file) = or_skip("cc", plug_in("policy_newest.c")) {
        order(&file, &["order", "1", "2", "3"], &[3.0, 2.0, 1.0]);
        check_parts(
            &["--policy", &file],
            2,
            &["a:0", "b:0", "c:0", "d:0"],
            &[1.0; 4],
        );
    }
}

#[test]
fn a_plug_in_that_misbehaves_is_left_with_one_line() {
    let sources = [
        "policy_garbage.c",
        "policy_nothing.c",
        "policy_slow.c",
        "policy_stuck.c",
        "policy_asleep.c",
    ];
    for source in sources {
        let Some(file) = or_skip("cc", plug_in(source)) else {
            return;
        };
        for carriers in [1, 2] {
            let words = ["burn", "a:0", "b:0", "c:0"];
            let output = run(&["--policy", &file], carriers, &words);
            let Some(output) = or_skip(source, output) else {
                return;
            };
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                said.starts_with("raddle: the policy ")
                    && said.ends_with("; fifo from now on\n")
                    && said.lines().count() == 1,
                "{source} on {carriers}: {said}"
            );
        }
    }
}

#[test]
fn a_policy_that_is_stuck_beside_a_single_thread_is_left() {
    let Some(file) = or_skip("cc", plug_in("policy_stuck.c")) else {
        return;
    };
    for carriers in [1, 2] {
        let Some(output) = or_skip("alone", run(&["--policy", &file], carriers, &["alone"])) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.ends_with("; fifo from now on\n"), "{carriers}: {said}");
    }
}

#[test]
fn a_file_without_a_policy_is_left_with_one_line() {
    let Some(file) = or_skip("cc", plug_in("library.c")) else {
        return;
    };
    let output = run(&["--policy", &file], 1, &["order", "1"]);
    if let Some(output) = or_skip("cc", output) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = "raddle: the policy file has no raddle_policy of this version; fifo instead\n";
        assert_eq!(said, line);
    }
}

/// The answers of `raddle` about the waiting program under these flags to these questions, in turn;
/// the second word is the process's number.
fn ask_all(flags: &[&str], asked: &[&[&str]]) -> Result<Vec<Output>> {
    let program = Program::build("policies.c")?;
    let mut command = Mode::Raddle { carriers: 1 }.command(&program.variants[0].command)?;
    command.arg("wait");
    for pair in flags.chunks_exact(2) {
        command.env(pair[0], pair[1]);
    }
    let running = Running::start(Mode::Raddle { carriers: 1 }, command, None)?;
    running.wait_until_it_says("waiting\n")?;
    let pid = running.pid().to_string();
    let answers = asked.iter().map(|asked| {
        let mut words = asked.to_vec();
        words.insert(1, &pid);
        let mut output = Command::new(raddle()?).args(words).output()?;
        let text = String::from_utf8(output.stdout)?.replace(&pid, "PID");
        output.stdout = text.into_bytes();
        Ok(output)
    });
    let answers = answers.collect::<Result<_>>()?;
    running.terminate()?;
    Ok(answers)
}

/// As [`ask_all`], for one question that has an answer.
fn ask(flags: &[&str], asked: &[&str]) -> Result<String> {
    let output = ask_all(flags, &[asked])?.remove(0);
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The thread that computes waited for half a second and more when a new thread had less virtual
/// time than all others, and its own was forgotten at its end.
#[test]
fn threads_that_begin_and_end_starve_no_other_under_fair() {
    for carriers in [1, 2] {
        let flags = ["--policy", "fair"];
        let output = or_skip(
            "fair",
            run_program("starving.c", &flags, carriers, &["create"]),
        );
        let Some(output) = output else { return };
        let text = String::from_utf8(output.stdout).expect("text");
        let longest_ms: f64 = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number");
        assert!(longest_ms < 100.0, "{carriers} carriers: {text}");
    }
}

#[test]
fn ctl_changes_the_policy_and_the_shares() {
    let flags = ["RADDLE_SHARE", "name:a-*=30%;name:b-*=5"];
    let asked: [&[&str]; 9] = [
        &["ctl", "policy"],
        &["ctl", "policy", "lifo"],
        &["ctl", "policy", "fair"],
        &["ctl", "share", "2", "40"],
        &["ctl", "share", "1", "150%"],
        &["ctl", "share", "1", "none"],
        &["ctl", "share", "3", "10%"],
        &["ctl", "share", "1", "10"],
        &["dump"],
    ];
    let Some(answers) = or_skip("ctl", ask_all(&flags, &asked)) else {
        return;
    };
    let expected = [
        ("policy fair, shares: rest 95%, group 2 5%", 0),
        ("policy lifo, shares: rest 95%, group 2 5%", 0),
        ("policy fair, shares: rest 95%, group 2 5%", 0),
        ("policy fair, shares: rest 60%, group 2 40%", 0),
        ("engine 1: quota 150%", 0),
        ("engine 1: no quota", 0),
        ("there is no engine 3", 1),
        ("policy fair, shares: rest 60%, group 2 40%", 1),
    ];
    for ((text, code), output) in expected.into_iter().zip(&answers) {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code));
        if code == 0 {
            assert_eq!(said, format!("process PID: {text}\n"));
        } else {
            assert!(
                said.is_empty() && failed.ends_with(&format!(": {text}\n")),
                "{failed}"
            );
        }
    }
    let dump = String::from_utf8_lossy(&answers[8].stdout).into_owned();
    assert!(
        dump.lines().any(|line| line.ends_with("engine=1")),
        "{dump}"
    );
}

#[test]
fn every_policy_can_be_changed_into_every_other_while_threads_run() {
    let program = Program::build("policies.c");
    let Some(program) = or_skip("cc", program) else {
        return;
    };
    for carriers in [1, 2] {
        let check = || -> Result<()> {
            let mode = Mode::Raddle { carriers };
            let mut command = mode.command(&program.variants[0].command)?;
            command.args(["during", "6000", "a:0", "b:5", "c:0", "d:0"]);
            let running = Running::start(mode, command, None)?;
            let pid = running.pid().to_string();
            std::thread::sleep(std::time::Duration::from_millis(500));
            for name in "lifo fifo fair priority fifo deadline lifo fair fifo".split(' ') {
                let said = Command::new(raddle()?)
                    .args(["ctl", &pid, "policy", name])
                    .output()?;
                ensure!(said.status.success(), "{name}: {said:?}");
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let ended = running.wait(std::time::Duration::from_secs(60))?;
            ensure!(ended.status.success(), "{}", ended.status);
            let used = ended.stdout.split_whitespace().map(str::parse::<f64>);
            let used: Vec<_> = used.collect::<Result<_, _>>()?;
            // No thread was forgotten on the way.
            ensure!(
                used.len() == 4 && used.iter().all(|ms| *ms > 20.0),
                "{used:?}"
            );
            Ok(())
        };
        if or_skip("ctl", check()).is_none() {
            return;
        }
    }
}

#[test]
fn dump_and_ctl_show_the_policy_and_the_shares() {
    let flags = ["RADDLE_POLICY", "priority"];
    if let Some(text) = or_skip("ctl", ask(&flags, &["ctl", "policy"])) {
        assert_eq!(text, "process PID: policy priority\n");
    }
    let flags = ["RADDLE_SHARE", "name:a-*=25;name:b-*=5"];
    if let Some(text) = or_skip("dump", ask(&flags, &["dump"])) {
        let line = "policy fair, shares: rest 70%, group 1 25%, group 2 5%";
        assert!(text.contains(line), "{text}");
        let in_group = |name: &str, group: &str| {
            text.lines()
                .any(|line| line.contains(name) && line.ends_with(group))
        };
        assert!(
            in_group("a-1", "group=1") && in_group("b-1", "group=2"),
            "{text}"
        );
    }
}
