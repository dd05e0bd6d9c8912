//! Light threads in core files and in gdb: a child of this process has them, and the tool writes
//! its core, completes the kernel's, and starts gdb.
//!
//! The tool is the one that `RADDLE_BIN` names, or that of the same target folder; without it or
//! gdb nothing is tested. Where the kernel puts cores elsewhere, its core is not.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use raddle::completion;
use raddle::light;
use raddle::runtime::{Status, status};

const LONG: Duration = Duration::from_secs(10_000);
/// How many light threads wait in each way.
const EACH: usize = 7;
/// How many threads block their hosts.
const BLOCKED: usize = 2;
/// Makes a process the program, which waits, or crashes.
const PROGRAM: &str = "RADDLE_TEST_LIGHT_CORES";
const WAYS: [&str; 3] = ["parks_for_ever", "sleeps_for_ever", "waits_for_promise"];

static BEGUN: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn parks_for_ever() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    loop {
        light::park();
    }
}

#[inline(never)]
fn sleeps_for_ever() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    light::sleep(LONG);
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn waits_for_promise() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let (promise, completion) = completion::pair::<()>();
    let _ = completion.wait();
    drop(promise);
}

#[inline(never)]
fn blocks_its_host() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(LONG);
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn crashes() -> ! {
    std::process::abort()
}

/// The child; in the process of the tests it does nothing.
#[test]
fn the_program() {
    let Some(how) = std::env::var_os(PROGRAM) else {
        return;
    };
    for _ in 0..EACH {
        drop(light::spawn(parks_for_ever));
        drop(light::spawn(sleeps_for_ever));
        drop(light::spawn(waits_for_promise));
    }
    for _ in 0..BLOCKED {
        drop(light::spawn(blocks_its_host));
    }
    while BEGUN.load(Ordering::Relaxed) < WAYS.len() * EACH + BLOCKED {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100)); // all are on their way into their waits
    println!("ready");
    if how == "crash" {
        crashes();
    }
    std::thread::sleep(LONG);
}

/// The program, and a folder for its cores; both end with this value.
struct Program {
    child: Child,
    folder: PathBuf,
}

impl Program {
    fn start(name: &str, how: &str) -> Program {
        let folder = format!("raddle-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_program", "--nocapture"]);
        command.env(PROGRAM, how).current_dir(&folder);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let allow_core = || {
            let all = libc::rlimit {
                rlim_cur: libc::RLIM_INFINITY,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: the kernel reads a live structure.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const all) };
            Ok(())
        };
        // SAFETY: the closure makes a system call only.
        unsafe { command.pre_exec(allow_core) };
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(
            lines.any(|line| line.ends_with("ready")),
            "the program ended"
        );
        Program { child, folder }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(tool().unwrap());
        command.args(arguments).current_dir(&self.folder);
        command.output().unwrap()
    }

    fn run_well(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What gdb says of a core, without a script.
    fn gdb(&self, core: &str, command: &str) -> String {
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off"]);
        gdb.args(["-ex", command]).current_dir(&self.folder);
        let gdb = gdb.arg(std::env::current_exe().unwrap()).arg(core);
        String::from_utf8_lossy(&gdb.output().unwrap().stdout).into_owned()
    }

    /// The ids of the light threads that a dump shows, with this function on their stacks.
    fn tids(&self, which: &[&str], function: &str) -> Vec<u64> {
        let text = self.run_well(&[&["dump", "--json", "--stacks"], which].concat());
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let threads = document["threads"].as_array().unwrap().iter();
        let has_it = |thread: &&serde_json::Value| {
            let stack = thread["stack"].as_u64();
            let stack = stack.map(|number| document["stacks"][number as usize].to_string());
            thread["light"] == true && stack.is_some_and(|stack| stack.contains(function))
        };
        let found = threads.filter(has_it);
        found
            .map(|thread| thread["tid"].as_u64().unwrap())
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn tool() -> Option<PathBuf> {
    let named = std::env::var_os("RADDLE_BIN").map(PathBuf::from);
    let beside = || {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.parent()?.join("raddle"))
    };
    named.or_else(beside).filter(|path| path.is_file())
}

/// Returns true if the test can't run here, and says why.
fn is_skipped() -> bool {
    let has_gdb = Command::new("gdb").arg("--version").output().is_ok();
    let missing = [
        (tool().is_none(), "no raddle beside this program"),
        (!has_gdb, "no gdb"),
        (status() != Status::Green, "no green threads"),
    ];
    let missing = missing.iter().find(|(is_so, _)| *is_so);
    if let Some((_, what)) = missing {
        println!("skipped: {what}");
    }
    missing.is_some()
}

/// How many frames of gdb's are of this function.
fn frames(text: &str, function: &str) -> usize {
    let is_it = |line: &&str| line.starts_with('#') && line.contains(&format!(" {function} ("));
    text.lines().filter(is_it).count()
}

/// Checks that each light thread is on one stack that gdb shows.
fn check_stacks(text: &str) {
    for way in WAYS {
        assert_eq!(frames(text, way), EACH, "{way} in {text}");
    }
    assert_eq!(frames(text, "blocks_its_host"), BLOCKED, "{text}");
}

fn check_completed(program: &Program, core: &str) {
    let text = program.gdb(core, "thread apply all bt");
    check_stacks(&text);
    for way in WAYS {
        let tids = program.tids(&["--from", core], way);
        assert_eq!(tids.len(), EACH, "{way}");
        // gdb has each under its own number.
        for tid in tids {
            assert!(text.contains(&format!("(LWP {tid})")), "{tid} in {text}");
        }
    }
}

#[test]
fn a_core_shows_light_threads_in_stock_gdb() {
    if is_skipped() {
        return;
    }
    let program = Program::start("light-core", "wait");
    program.run_well(&["core", &program.pid(), "-o", "full"]);
    check_completed(&program, "full");
    let stopped = ["core", &program.pid(), "--stop", "-o", "stopped"];
    program.run_well(&stopped);
    check_completed(&program, "stopped");
}

/// The core that the kernel has written, if it puts cores into the folder of the program.
fn kernel_core(folder: &Path) -> Option<String> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut names = files.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|name| name.starts_with("core"))
}

#[test]
fn a_core_of_the_kernel_shows_light_threads_in_stock_gdb() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if is_skipped() {
        return;
    }
    if pattern.starts_with('|') || pattern.contains('/') {
        println!("skipped: cores are elsewhere");
        return;
    }
    let mut program = Program::start("light-crash", "crash");
    program.child.wait().unwrap();
    let core = kernel_core(&program.folder).expect("a core file");
    let before = program.gdb(&core, "thread apply all bt");
    assert_eq!(frames(&before, "parks_for_ever"), 0, "{before}");
    program.run_well(&["core", "--from", &core, "-o", "full"]);
    check_completed(&program, "full");
    let text = program.gdb("full", "bt");
    assert!(text.contains("crashes"), "{text}");
}

/// Runs commands of the tool's gdb: of a process, or of a core and its program.
fn commands(program: &Program, lines: &[&str], target: &[&str]) -> String {
    let mut arguments = vec!["gdb", "--batch"];
    for line in lines {
        arguments.extend(["--ex", line]);
    }
    arguments.extend(target);
    program.run_well(&arguments)
}

fn check_commands(program: &Program, which: &[&str], target: &[&str]) {
    let one = program.tids(which, "waits_for_promise")[3].to_string();
    let lines = [
        "raddle threads light",
        "echo @@selected\\n",
        &format!("raddle thread {one}"),
        "bt",
        "echo @@framed\\n",
        "raddle frame waits_for_promise",
        "up",
        "echo @@all\\n",
        "raddle apply light bt",
    ];
    let lines: Vec<&str> = lines.iter().map(|it| &**it).collect();
    let text = commands(program, &lines, target);
    let [listed, selected, framed, all] = text
        .splitn(4, "@@")
        .map(|part| part.split_once('\n').map_or(part, |it| it.1))
        .collect::<Vec<_>>()[..]
    else {
        panic!("{text}");
    };
    let is_light = |line: &&str| line.contains("\"light\" ");
    let waiting = listed.lines().filter(is_light);
    let count = WAYS.len() * EACH + BLOCKED;
    assert_eq!(waiting.count(), count, "{text}");
    assert!(
        selected.contains(&format!("#{one} \"light\" waiting")),
        "{text}"
    );
    assert_eq!(frames(selected, "waits_for_promise"), 1, "{text}");
    assert!(framed.contains("waits_for_promise"), "{text}");
    check_stacks(all);
}

#[test]
fn light_threads_are_listed_and_selected_in_gdb() {
    if is_skipped() {
        return;
    }
    let program = Program::start("light-gdb", "wait");
    let pid = program.pid();
    check_commands(&program, &[&pid], &[&pid]);
    // Nothing has changed in the process.
    assert_eq!(program.tids(&[&pid], "parks_for_ever").len(), EACH);
    program.run_well(&["core", &pid, "-o", "full"]);
    let file = std::env::current_exe().unwrap();
    let file = file.to_str().unwrap();
    check_commands(&program, &["--from", "full"], &["--core", "full", file]);
}
