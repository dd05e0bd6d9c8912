//! `raddle dump` against a server in this process that speaks `raddle-inspect`, and against
//! processes without an inspection socket.

mod common;

use std::ffi::CString;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{RADDLE, copy, is_root, raddle, refuses, text};
use raddle_inspect::{
    CarrierRecord, CarrierState, Delay, Header, NO_CARRIER, PROOF_BYTES, PROOF_NAME, PROOF_WANTED,
    Request, RequestKind, SocketName, ThreadFlags, ThreadRecord, ThreadState, WaitKind, Wire,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Tests share this process and its one socket name.
static NAME: Mutex<()> = Mutex::new(());

const SECOND_NS: u64 = 1_000_000_000;

const SECRET: &[u8; PROOF_BYTES] = b"0123456789abcdef0123456789abcdef";

/// A page with a name that the kernel shows.
struct Page(*mut libc::c_void);

const PAGE_BYTES: usize = 4096;

impl Page {
    fn named(secret: &[u8]) -> Self {
        let name = CString::new([PROOF_NAME, secret].concat()).unwrap();
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a name, and a mapping wherever there is room, which is not read.
        unsafe {
            let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, file, 0);
            assert_ne!(page, libc::MAP_FAILED);
            libc::close(file);
            Self(page)
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, without references to it.
        unsafe { libc::munmap(self.0, PAGE_BYTES) };
    }
}

/// Answers one connection on the socket of process `pid` with `bytes`.
fn serve(pid: u32, bytes: Vec<u8>) -> (MutexGuard<'static, ()>, JoinHandle<()>) {
    let guard = NAME.lock().unwrap_or_else(PoisonError::into_inner);
    let address = SocketAddr::from_abstract_name(SocketName::of(pid).as_bytes()).unwrap();
    let listener = bind(&address);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let page = Page::named(SECRET);
        let _ = stream.write_all(&PROOF_WANTED);
        let (mut proof, mut request) = ([0; PROOF_BYTES], [0; size_of::<Request>()]);
        // A tool that mistrusts this server hangs up without a request.
        if stream.read_exact(&mut proof).is_ok() && stream.read_exact(&mut request).is_ok() {
            assert_eq!(&proof, SECRET);
            assert_eq!(request, Request::new(RequestKind::SNAPSHOT, 0).as_bytes());
        }
        drop(page);
        // The tool may hang up early, when it refuses the bytes.
        let _ = stream.write_all(&bytes);
    });
    (guard, server)
}

/// Binds the socket. Retries while a child of another test, which hasn't executed yet, has it open.
fn bind(address: &SocketAddr) -> UnixListener {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixListener::bind_addr(address) {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn dump_this_process(bytes: Vec<u8>, flags: &[&str]) -> Output {
    let pid = std::process::id();
    let (_guard, server) = serve(pid, bytes);
    let output = raddle(&["dump", &pid.to_string(), "--no-stacks"])
        .args(flags)
        .output()
        .unwrap();
    server.join().unwrap();
    output
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

fn longest_delay() -> Delay {
    Delay {
        ns: 125_000_000,
        at_ns: 98_000_000_000,
        tid: 1_073_741_825,
        name: name("connection 1"),
    }
}

/// The snapshot's threads.
fn threads() -> [ThreadRecord; 5] {
    [
        ThreadRecord {
            tid: 500,
            state: ThreadState::WAITING,
            wait_kind: WaitKind::JOIN,
            wait_arg: 0x7f00_0000_1000,
            since_ns: 98 * SECOND_NS + SECOND_NS / 2,
            switches: 5,
            park: 4,
            name: name("server"),
            flags: ThreadFlags::MAIN,
            ..ThreadRecord::default()
        },
        ThreadRecord {
            tid: 1_073_741_825,
            carrier: 1,
            state: ThreadState::WAITING,
            wait_kind: WaitKind::FD_READ,
            wait_arg: 12,
            since_ns: 99 * SECOND_NS,
            deadline_ns: 130 * SECOND_NS,
            name: name("connection 1"),
            ..ThreadRecord::default()
        },
        ThreadRecord {
            tid: 1_073_741_826,
            state: ThreadState::RUNNING,
            since_ns: 100 * SECOND_NS,
            flags: ThreadFlags::BOUND,
            ..ThreadRecord::default()
        },
        ThreadRecord {
            tid: 1_073_741_827,
            carrier: NO_CARRIER,
            state: ThreadState(77),
            ..ThreadRecord::default()
        },
        ThreadRecord {
            tid: 1_073_741_828,
            state: ThreadState::RUNNABLE,
            since_ns: 99 * SECOND_NS,
            name: name("starved"),
            ..ThreadRecord::default()
        },
    ]
}

/// Two carriers; a main thread, a waiting one with a deadline, a bound one, a new one.
fn snapshot() -> Vec<u8> {
    let header = Header {
        pid: std::process::id(),
        carriers: 2,
        threads: 5,
        live_threads: 5,
        now_ns: 100 * SECOND_NS,
        started_ns: 40 * SECOND_NS,
        longest_delay: longest_delay(),
        ..Header::new()
    };
    let carriers = [
        CarrierRecord {
            kernel_tid: 501,
            state: CarrierState::RUNNING,
            current_tid: 1_073_741_826,
            switches: 70,
            steal: 1,
            steal_fail: 2,
            preempt: 3,
            park: 60,
            wakeups: 9,
            queue_len: 1,
            ..CarrierRecord::default()
        },
        CarrierRecord {
            id: 1,
            kernel_tid: 502,
            state: CarrierState::POLLING,
            ..CarrierRecord::default()
        },
    ];
    let threads = threads();
    let mut bytes = header.as_bytes().to_vec();
    carriers
        .iter()
        .for_each(|record| bytes.extend_from_slice(record.as_bytes()));
    threads
        .iter()
        .for_each(|record| bytes.extend_from_slice(record.as_bytes()));
    bytes
}

/// Lines with single spaces, so that widths don't matter.
fn squeezed(output: &Output) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text(&output.stdout).lines().map(words).collect()
}

#[test]
fn carriers_and_threads_are_a_line_each() {
    let output = dump_this_process(snapshot(), &[]);
    assert_eq!(text(&output.stderr), "");
    let process = format!(
        "process {}: 5 green threads, 2 carriers, up 60.000s",
        std::process::id()
    );
    assert_eq!(
        squeezed(&output),
        [
            &*process,
            "the longest wait of a runnable thread: 0.125s, #1073741825 \"connection 1\", 2.000s \
             ago",
            "#1073741828 \"starved\" has been runnable for 1.000s without a turn",
            "",
            "carrier 0 kernel tid 501 running runs #1073741826 queue=1 wakeups=9 active=70 \
             steal=1 steal_fail=2 preempt=3 park=60",
            "carrier 1 kernel tid 502 polling runs nothing queue=0 wakeups=0 active=0 steal=0 \
             steal_fail=0 preempt=0 park=0",
            "",
            "#500 \"server\" main waiting join 0x7f0000001000 since 1.500s carrier 0 active=5 \
             steal=0 steal_fail=0 preempt=0 park=4",
            "#1073741825 \"connection 1\" waiting fd_read 12, 30.000s left since 1.000s \
             carrier 1 active=0 steal=0 steal_fail=0 preempt=0 park=0",
            "#1073741826 \"\" running - since 0.000s bound to 0 active=0 steal=0 steal_fail=0 \
             preempt=0 park=0",
            "#1073741827 \"\" unknown - - no carrier active=0 steal=0 steal_fail=0 \
             preempt=0 park=0",
            "#1073741828 \"starved\" runnable - since 1.000s carrier 0 active=0 steal=0 \
             steal_fail=0 preempt=0 park=0",
        ]
    );
}

#[test]
fn json_has_the_same_facts_by_name() {
    let output = dump_this_process(snapshot(), &["--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["live_threads"], 5);
    assert_eq!(document["carriers"][0]["current_tid"], 1_073_741_826);
    assert_eq!(
        document["carriers"][1]["current_tid"],
        serde_json::Value::Null
    );
    let thread = &document["threads"][1];
    assert_eq!(thread["name"], "connection 1");
    assert_eq!(thread["wait"]["kind"], "fd_read");
    assert_eq!(thread["wait"]["arg"], 12);
    assert_eq!(thread["in_state_ns"], 1_000_000_000);
    assert_eq!(document["longest_delay"]["ns"], 125_000_000);
    assert_eq!(document["longest_delay"]["name"], "connection 1");
    assert_eq!(
        document["threads"][3]["in_state_ns"],
        serde_json::Value::Null
    );
    assert_eq!(document["threads"][0]["active"], 5);
    assert_eq!(document["threads"][0]["main"], true);
    assert_eq!(document["threads"][2]["bound"], true);
    assert_eq!(document["threads"][3]["carrier"], serde_json::Value::Null);
}

#[test]
fn an_answer_that_stops_or_makes_no_sense_is_refused() {
    let pid = std::process::id();
    let refused = |bytes: Vec<u8>, sentence: &str| {
        let output = dump_this_process(bytes, &[]);
        assert_eq!(text(&output.stderr), format!("raddle: {sentence}\n"));
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(2), String::new())
        );
    };
    let incomplete = format!(
        "process {pid} closed the connection before its answer was complete: try again, or see \
         whether it is ending"
    );
    let whole = snapshot();
    for length in [0, 1, 127, 128, whole.len() - 1] {
        refused(whole[..length].to_vec(), &incomplete);
    }
    refused(
        vec![b'x'; 4096],
        &format!(
            "the answer of process {pid} can't be read (it does not start like a snapshot): use \
             the raddle that started it"
        ),
    );
    let boundless = Header {
        threads: u64::MAX,
        ..Header::new()
    };
    refused(
        boundless.as_bytes().to_vec(),
        &format!(
            "the answer of process {pid} can't be read (it announces an impossible length): use \
             the raddle that started it"
        ),
    );
}

/// Answers with `bytes` and then keeps the connection, or with a byte at a time for ever.
fn serve_slowly(bytes: Vec<u8>, drips: bool) -> Duration {
    let pid = std::process::id();
    let _guard = NAME.lock().unwrap_or_else(PoisonError::into_inner);
    let address = SocketAddr::from_abstract_name(SocketName::of(pid).as_bytes()).unwrap();
    let listener = bind(&address);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _page = Page::named(SECRET);
        let _ = stream.write_all(&bytes);
        while drips && stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let started = Instant::now();
    refuses(
        &mut raddle(&["dump", &pid.to_string(), "--no-stacks"]),
        2,
        &format!(
            "process {pid} did not answer in time: try again, or see what its kernel threads do"
        ),
    );
    let took = started.elapsed();
    server.join().unwrap();
    took
}

#[test]
fn a_process_that_never_answers_has_a_time_limit() {
    let announced = Header {
        threads: 1 << 20,
        ..Header::new()
    };
    let announced = [&PROOF_WANTED[..], announced.as_bytes()].concat();
    // Two seconds until an answer begins, and ten until it ends; a shared machine gets more.
    let (begins, ends) = (Duration::from_secs(8), Duration::from_secs(18));
    for (bytes, drips, limit) in [
        (Vec::new(), false, begins),
        (PROOF_WANTED.to_vec(), false, begins),
        (announced, true, ends),
    ] {
        let took = serve_slowly(bytes, drips);
        assert!(took < limit, "{took:?} of {limit:?}");
    }
}

/// A child that is killed at the end.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &mut Command) -> Sleeper {
        Sleeper(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plain_process_has_nothing_to_show() {
    let sleeper = Sleeper::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid();
    refuses(
        &mut raddle(&["dump", &pid]),
        2,
        &format!("process {pid} does not run under raddle: start it with raddle run -- PROGRAM"),
    );
}

#[test]
fn a_process_under_raddle_without_threads_has_nothing_to_show_yet() {
    let sleeper = Sleeper::start(&mut raddle(&["run", "sleep", "60"]));
    let pid = sleeper.pid();
    let maps = format!("/proc/{pid}/maps");
    wait_until("the preload", || {
        std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("libraddle_preload.so"))
    });
    refuses(
        &mut raddle(&["dump", &pid]),
        2,
        &format!(
            "process {pid} has started no thread yet, so there is nothing to show: wait for its \
             second thread; raddle run -v says if it can't have any"
        ),
    );
}

#[test]
fn whoever_poses_as_another_process_is_not_believed() {
    let sleeper = Sleeper::start(Command::new("sleep").arg("60"));
    let (pid, own) = (sleeper.pid(), std::process::id());
    // SAFETY: it has no argument and can't fail.
    let user = unsafe { libc::geteuid() };
    let (_guard, server) = serve(sleeper.0.id(), snapshot());
    refuses(
        &mut raddle(&["dump", &pid]),
        2,
        &format!(
            "the socket of process {pid} belongs to process {own} of user {user}: trust nothing \
             it says, and find out why it poses as another"
        ),
    );
    server.join().unwrap();
}

#[test]
fn dead_processes_and_threads_are_told_apart() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    let sentence = format!("there is no process {pid}: look for it with pidof or ps");
    let stat = format!("/proc/{pid}/stat");
    wait_until("the end", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z"))
    });
    refuses(&mut raddle(&["dump", &pid.to_string()]), 2, &sentence);
    child.wait().unwrap();
    refuses(&mut raddle(&["dump", &pid.to_string()]), 2, &sentence);

    let own = std::process::id();
    let tid = std::thread::spawn(move || {
        // SAFETY: it has no argument and can't fail.
        let tid = unsafe { libc::gettid() };
        refuses(
            &mut raddle(&["dump", &tid.to_string()]),
            2,
            &format!("{tid} is a thread of process {own}: give the number of the process, {own}"),
        );
        tid
    });
    assert_ne!(tid.join().unwrap().unsigned_abs(), own);
}

#[test]
fn a_process_of_another_user_is_refused() {
    const NOBODY: u32 = 65_534;
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let sleeper = Sleeper::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid();
    // The command's own folder may be closed to others; the temporary folder is not.
    let command = Copy::of_the_command();
    let mut dump = Command::new(&command.0);
    dump.args(["dump", &pid]).uid(NOBODY).gid(NOBODY);
    refuses(
        &mut dump,
        2,
        &format!("process {pid} belongs to user 0: run this as that user or as root"),
    );
}

/// A file that is removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn of_the_command() -> Copy {
        let path = std::env::temp_dir().join(format!("raddle-dump-{}", std::process::id()));
        copy(Path::new(RADDLE), &path, 0o755);
        Copy(path)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_reader_of_a_pipe_may_leave() {
    let pid = std::process::id();
    let (_guard, server) = serve(pid, snapshot());
    // The output is small: it may be written before the reader has gone.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = raddle(&["dump", "--no-stacks", &pid.to_string()])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    server.join().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(1));
}
