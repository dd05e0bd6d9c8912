//! `raddle core`: a core file with every green thread, of a process or of a core that the kernel
//! has written.
//!
//! Memory is written first, then each thread's registers are read and its stack is written again,
//! so that both are of one moment (`raddle_stacks::read_registers`).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use raddle_inspect::{Header, Layout, Snapshot, ThreadFlags};
use raddle_stacks::corefile::{
    CoreWriter, Identity, NoteWriter, PresentPages, Region, ThreadNote, complete, regions,
};
use raddle_stacks::{
    Modules, ProcessMemory, Refusal, StoppedProcess, StoppedThreads, Target, ThreadRegisters,
    parked, read_registers,
};

use crate::cli::CoreArguments;
use crate::dump::filter::rebuild;
use crate::dump::from_core::{Opened, truncated};
use crate::dump::locate::Location;
use crate::dump::understand;
use crate::failure::{Failure, more_rights, say};
use crate::output::Output;
use crate::stdout::print;

/// Set in the number of a kernel thread if a green thread has the same one.
const APART: u32 = 1 << 30;

pub(crate) fn run(arguments: &CoreArguments) -> Result<ExitCode> {
    match (&arguments.from, arguments.pid) {
        (Some(core), _) => from_core(arguments, core),
        (None, pid) => of_process(arguments, pid.unwrap_or_default()),
    }
}

/// What is known before memory is read.
struct Source<'a> {
    pid: u32,
    layout: Layout,
    snapshot: Snapshot<'a>,
    memory: ProcessMemory,
    regions: Vec<Region>,
    modules: Modules,
    stopped: Option<StoppedProcess>,
}

fn of_process(arguments: &CoreArguments, pid: u32) -> Result<ExitCode> {
    let Location {
        answer,
        connection,
        silence,
    } = Location::of(pid)?;
    let snapshot = understand(pid, &answer)?;
    let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
    let layout = answer
        .get(behind..)
        .and_then(Layout::parse)
        .ok_or_else(|| {
            Failure::input(
                format!("process {pid} runs under another version of raddle"),
                "use that one's core",
            )
        })?;
    let memory = ProcessMemory::of(pid);
    memory
        .probe(layout.used)
        .map_err(|refusal| unreadable(pid, refusal))?;
    let output = Output::create(&arguments.output, arguments.force)?;
    let cannot_stop = |error| {
        Failure::input(
            format!("process {pid} can't be stopped ({error})"),
            "see whether a debugger has it, or leave --stop out",
        )
    };
    let stopped = if arguments.stop {
        Some(StoppedProcess::stop(pid).map_err(cannot_stop)?)
    } else {
        None
    };
    let mappings = |error| {
        Failure::input(
            format!("the mappings of process {pid} can't be read ({error})"),
            "see whether it has ended",
        )
    };
    let source = Source {
        pid,
        layout,
        snapshot,
        memory,
        regions: regions(pid).map_err(mappings)?,
        modules: Modules::of(pid).map_err(mappings)?,
        stopped,
    };
    let how = if arguments.stop {
        "read from outside while it was stopped"
    } else {
        "read from outside while it went on"
    };
    let outcome = write_process(&source, &output)?;
    source
        .memory
        .probe(source.layout.used)
        .map_err(|refusal| unreadable(pid, refusal))?;
    drop(source);
    drop(connection);
    output.keep()?;
    if let Some(silence) = silence {
        say(&silence);
    }
    let shown = arguments.output.display();
    print(&format!(
        "process {pid}: {} threads in {shown}, {} of memory, {how}\n",
        outcome.threads,
        megabytes(outcome.bytes)
    ))?;
    if outcome.without != 0 {
        let left = outcome.without;
        say(&format!(
            "{left} of {} threads executed code and have no registers in {shown}: \
             raddle core --stop has them",
            outcome.threads
        ));
    }
    Ok(ExitCode::from(u8::from(outcome.without != 0)))
}

/// What a core of a process has.
struct Outcome {
    threads: usize,
    /// Threads without registers.
    without: usize,
    bytes: u64,
}

fn write_process(source: &Source<'_>, output: &Output) -> Result<Outcome, Failure> {
    let written = |error| output.failed(&error);
    let stopped = source.stopped.as_ref().map(StoppedProcess::registers);
    let present = PresentPages::of(source.pid);
    let threads = source.snapshot.header().live_threads;
    let mut writer = CoreWriter::new(output.file(), &source.memory, &source.regions, threads);
    let carriers: Vec<_> = source.snapshot.carriers().collect();
    let target = Target {
        pid: source.pid,
        memory: &source.memory,
        layout: &source.layout,
        carriers: &carriers,
        modules: &source.modules,
        started_ns: source.snapshot.header().started_ns,
        stopped: stopped.as_ref(),
    };
    let before = parked(&target);
    writer
        .copy_all(&mut |range| present.of_range(range))
        .map_err(written)?;
    let threads = read_registers(&target, &mut |range, bytes| writer.copy_again(range, bytes))
        .map_err(written)?
        .ok_or_else(|| {
            let what = format!(
                "what process {} says of its tables makes no sense",
                source.pid
            );
            Failure::input(what, "use the raddle that started it")
        })?;
    let is_unmoved = |it: &ThreadRegisters| {
        stopped.is_some() || before.get(&it.record.tid) == Some(&it.record.switches)
    };
    let threads = marked(threads, is_unmoved);
    let bytes = writer.copied.bytes;
    let notes = process_notes(source, &threads, stopped.as_ref());
    writer.finish(&notes).map_err(written)?;
    Ok(Outcome {
        threads: threads.len(),
        without: threads.iter().filter(|it| it.registers.is_none()).count(),
        bytes,
    })
}

/// Marks the threads of which memory and registers are of one moment.
fn marked(
    mut threads: Vec<ThreadRegisters>,
    is_unmoved: impl Fn(&ThreadRegisters) -> bool,
) -> Vec<ThreadRegisters> {
    for thread in &mut threads {
        if is_unmoved(thread) {
            thread.record.flags = thread.record.flags.union(ThreadFlags::UNMOVED);
        }
    }
    threads
}

fn process_notes(
    source: &Source<'_>,
    threads: &[ThreadRegisters],
    stopped: Option<&StoppedThreads>,
) -> NoteWriter {
    let pid = source.pid;
    let identity = identity(pid, source.snapshot.header());
    let mut notes = NoteWriter::default();
    notes.identity(&identity);
    notes.auxiliary(&fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default());
    let with_files = source.regions.iter().filter(|it| !it.path.is_empty());
    notes.files(with_files.map(|it| (it.range.clone(), it.offset, &*it.path)));
    for thread in main_first(threads, identity.pid) {
        add_thread(&mut notes, &identity, thread);
        if let (Some(process), Some(tid)) = (&source.stopped, thread.kernel_tid) {
            let (legacy, extended) = process.floats(tid);
            notes.floats(&legacy, &extended);
        }
    }
    if let Some(stopped) = stopped {
        let used: HashSet<u32> = threads.iter().filter_map(|it| it.kernel_tid).collect();
        let tids: HashSet<u32> = threads.iter().map(|it| it.record.tid).collect();
        let mut others: Vec<_> = stopped.registers.iter().collect();
        others.sort();
        for (&tid, registers) in others.into_iter().filter(|(tid, _)| !used.contains(tid)) {
            let note = ThreadNote {
                tid: apart(tid, &tids),
                registers: *registers,
                control: None,
            };
            notes.thread(&identity, &note);
        }
    }
    let records = threads.iter().map(|it| it.record);
    notes.snapshot(&rebuild(&source.snapshot, records));
    notes
}

/// The main thread first: debuggers begin with the first one.
fn main_first(threads: &[ThreadRegisters], pid: u32) -> impl Iterator<Item = &ThreadRegisters> {
    let is_main = move |it: &&ThreadRegisters| it.record.tid == pid;
    let others = threads.iter().filter(move |it| !is_main(it));
    threads.iter().filter(is_main).chain(others)
}

fn add_thread(notes: &mut NoteWriter, identity: &Identity, thread: &ThreadRegisters) {
    if let Some(registers) = thread.registers {
        let note = ThreadNote {
            tid: thread.record.tid,
            registers,
            control: thread.control,
        };
        notes.thread(identity, &note);
    }
}

/// Returns a number that no green thread has.
fn apart(kernel_tid: u32, green: &HashSet<u32>) -> u32 {
    if green.contains(&kernel_tid) {
        kernel_tid | APART
    } else {
        kernel_tid
    }
}

fn identity(pid: u32, header: &Header) -> Identity {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = read("status");
    let status = String::from_utf8_lossy(&status);
    let number = |name: &str| -> u32 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|it| it.split_whitespace().next());
        word.and_then(|it| it.parse().ok()).unwrap_or(0)
    };
    let stat = String::from_utf8_lossy(&read("stat")).into_owned();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let field = |at: usize| fields.get(at).and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut arguments = read("cmdline");
    arguments.iter_mut().for_each(|byte| {
        if *byte == 0 {
            *byte = b' ';
        }
    });
    Identity {
        pid: header.pid,
        parent: number("PPid:"),
        group: field(3),
        session: field(4),
        user: number("Uid:"),
        user_group: number("Gid:"),
        state: fields
            .get(1)
            .and_then(|it| it.bytes().next())
            .unwrap_or(b'S'),
        name: read("comm").trim_ascii_end().to_vec(),
        arguments: arguments.trim_ascii_end().to_vec(),
        signal: 0,
    }
}

fn unreadable(pid: u32, refusal: Refusal) -> Failure {
    let cure = match refusal {
        Refusal::Forbidden => more_rights(),
        Refusal::Gone => "look for the process with pidof or ps",
        Refusal::Missing => "run this outside of the container or filter",
        Refusal::Unmapped => "use the raddle that started it",
    };
    Failure::input(format!("no core of process {pid}: {refusal}"), cure)
}

/// Adds the green threads to a core that the kernel has written.
fn from_core(arguments: &CoreArguments, path: &Path) -> Result<ExitCode> {
    let opened = Opened::open(path)?;
    let (core, shown) = (&opened.core, arguments.output.display());
    if core.snapshot().is_some() {
        let what = format!("{} has all green threads already", path.display());
        return Err(Failure::input(what, "give it to the debugger as it is").into());
    }
    let stopped = core.stopped();
    let made = opened.tables.snapshot();
    let snapshot = understand(core.pid(), &made)?;
    let target = Target {
        pid: core.pid(),
        memory: core,
        layout: &opened.tables.layout,
        carriers: &opened.tables.carriers,
        modules: &opened.modules,
        started_ns: snapshot.header().started_ns,
        stopped: Some(&stopped),
    };
    let threads = read_registers(&target, &mut |_, _| Ok(()))?.ok_or_else(|| {
        let what = format!("no green threads in {}", path.display());
        Failure::input(what, "its tables make no sense")
    })?;
    let threads = marked(threads, |_| true);
    let notes = completed_notes(core.pid(), &opened, &threads, &snapshot);
    let output = Output::create(&arguments.output, arguments.force)?;
    let bytes = complete(core, output.file(), &notes).map_err(|error| output.failed(&error))?;
    output.keep()?;
    let without = threads.iter().filter(|it| it.registers.is_none()).count();
    print(&format!(
        "core of process {}: {} threads in {shown}, {}\n",
        core.pid(),
        threads.len(),
        megabytes(bytes)
    ))?;
    if without != 0 {
        say(&format!(
            "{without} threads have no registers in {shown}: their stacks are missing"
        ));
    }
    let missing = truncated(core);
    if let Some(missing) = &missing {
        say(&format!(
            "{} is too short, {missing} are missing: what it has is in {shown}",
            path.display()
        ));
    }
    Ok(ExitCode::from(u8::from(missing.is_some() || without != 0)))
}

/// The notes of the kernel, in which a kernel thread has the number of the green thread that it
/// runs, and one more for each green thread that is on none.
fn completed_notes(
    pid: u32,
    opened: &Opened,
    threads: &[ThreadRegisters],
    snapshot: &Snapshot<'_>,
) -> NoteWriter {
    let green: HashSet<u32> = threads.iter().map(|it| it.record.tid).collect();
    let has_own: HashSet<u32> = opened.core.threads().collect();
    let runs =
        |thread: &&ThreadRegisters| thread.kernel_tid.is_some_and(|tid| has_own.contains(&tid));
    let running = threads.iter().filter(runs).rev();
    let running: HashMap<_, _> = running.map(|it| (it.kernel_tid, it)).collect();
    let change = |kernel_tid: u32| match running.get(&Some(kernel_tid)) {
        Some(thread) => (thread.record.tid, thread.registers),
        None => (apart(kernel_tid, &green), None),
    };
    let mut notes = opened.core.renumbered(&change);
    let identity = Identity {
        pid,
        signal: opened.core.signal(),
        ..Identity::default()
    };
    for thread in threads.iter().filter(|thread| !runs(thread)) {
        add_thread(&mut notes, &identity, thread);
    }
    notes.snapshot(&rebuild(snapshot, threads.iter().map(|it| it.record)));
    notes
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
