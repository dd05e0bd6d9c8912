//! Processes that lie: stacks of random words, broken unwind tables, impossible layouts. All are
//! read to an end, in bounded time, and without a crash. Failures are repeated by their seeds.

use std::time::{Duration, Instant};

use raddle_inspect::{
    CarrierOffsets, CodePlaces, EngineOffsets, LAYOUT_MAGIC, LAYOUT_VERSION, Layout, NO_CARRIER,
    ThreadOffsets, ThreadRecord,
};
use raddle_stacks::locks::{Waits, Watch, confirmed, deadlocks, edges, wakers};
use raddle_stacks::{
    FRAMES_MAX, Kind, Memory, Modules, ProcessMemory, Stacks, Symbols, Target, Threads, capture,
    carriers, read_registers,
};

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// This process's memory, parts of which are replaced.
struct Replaced {
    parts: Vec<(u64, Vec<u8>)>,
    rest: ProcessMemory,
}

impl Memory for Replaced {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let inside = |(start, bytes): &&(u64, Vec<u8>)| {
            (*start..*start + bytes.len() as u64).contains(&address)
        };
        let Some((start, bytes)) = self.parts.iter().find(inside) else {
            return self.rest.read(address, to);
        };
        let bytes = &bytes[(address - start) as usize..];
        let length = bytes.len().min(to.len());
        to[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

const TABLE: u64 = 0x10_0000;
const STACKS: u64 = 0x20_0000;
const STACK_BYTES: usize = 1 << 16;
const SLOTS: u64 = 8;
const SLOT_BYTES: u64 = 256;
const SAVE_AREA_BYTES: u64 = 4096;

fn layout(code: CodePlaces) -> Layout {
    let [tid, life, on_cpu, claim] = [0, 4, 8, 12];
    Layout {
        magic: LAYOUT_MAGIC,
        version: LAYOUT_VERSION,
        size: size_of::<Layout>() as u32,
        chunks: TABLE,
        chunk_count: 1,
        slots_per_chunk: SLOTS,
        slot_bytes: SLOT_BYTES,
        used: TABLE + 8,
        main: 0,
        carrier_id: 0,
        carrier_kernel_tid: 4,
        ready_flags: 3,
        save_area_bytes: SAVE_AREA_BYTES,
        started: 0,
        carriers: 0,
        carrier_count: 0,
        thread_fs: 144,
        common_events: 0,
        lost_events: 0,
        event_moments: 0,
        host_group: 0,
        group_lights: 0,
        blocked: 0,
        carrier_samples: 0,
        carrier_wakes: 0,
        carrier: CarrierOffsets::default(),
        engine: EngineOffsets::default(),
        code,
        thread: ThreadOffsets {
            tid,
            life,
            on_cpu,
            claim,
            wait_kind: 16,
            wait_arg: 24,
            wait_lock: 232,
            host: 240,
            since_ns: 32,
            deadline_ns: 40,
            ready_ns: 48,
            context: 56,
            switches: 64,
            steal: 72,
            preempt: 80,
            park: 88,
            carrier: 96,
            bound: 104,
            save_area: 112,
            engine: 120,
            group: 124,
            name: 128,
            charged_ns: 176,
        },
    }
}

/// A table of live threads that are off their carriers, at these contexts.
fn table(contexts: &[u64]) -> Vec<u8> {
    let slots = TABLE + 16;
    let mut bytes = slots.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(contexts.len() as u64).to_le_bytes());
    for (number, context) in contexts.iter().enumerate() {
        let mut slot = [0; SLOT_BYTES as usize];
        slot[0..4].copy_from_slice(&(number as u32 + 1).to_le_bytes());
        slot[4] = 1;
        slot[56..64].copy_from_slice(&context.to_le_bytes());
        bytes.extend_from_slice(&slot);
    }
    bytes
}

fn run(memory: &dyn Memory, layout: &Layout, modules: &Modules) -> Option<Stacks> {
    let target = Target {
        pid: std::process::id(),
        memory,
        layout,
        carriers: &[],
        modules,
        started_ns: 0,
        stopped: None,
    };
    let copied = read_registers(&target, &mut |_, _| Ok(()));
    let stacks = capture(&target, &|_: &ThreadRecord| true);
    assert_eq!(copied.unwrap().is_some(), stacks.is_some());
    stacks
}

/// Words that lead somewhere: into code, into the stacks, nowhere.
fn stacks(random: &mut Random, code: &[u64]) -> Vec<u8> {
    let word = |random: &mut Random| match random.below(8) {
        0 => random.next(),
        1 => 0,
        2 => random.below(256),
        3 | 4 => STACKS + random.below(STACK_BYTES as u64),
        _ => code[random.below(code.len() as u64) as usize].wrapping_add(random.below(64)),
    };
    let words = (0..STACK_BYTES / 8).map(|_| word(random));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Addresses in this program's code and in libc's.
fn code() -> Vec<u64> {
    vec![
        run as *const () as u64,
        stacks as *const () as u64,
        libc::read as *const () as u64,
        libc::pthread_create as *const () as u64,
        libc::printf as *const () as u64,
        libc::qsort as *const () as u64,
    ]
}

fn check(stacks: &Stacks) {
    for stack in &stacks.stacks {
        assert!((1..=FRAMES_MAX).contains(&stack.frames.len()));
    }
}

/// Names frames, which are anywhere in code.
fn name(stacks: &Stacks, memory: &dyn Memory, modules: &Modules) {
    let mut symbols = Symbols::new(memory, modules);
    let frames = stacks.stacks.iter().flat_map(|stack| stack.frames.iter());
    for frame in frames.take(100) {
        symbols.name(frame);
    }
}

#[test]
fn stacks_of_random_words_have_an_end() {
    let modules = Modules::of(std::process::id()).unwrap();
    let started = Instant::now();
    for seed in 1..=200 {
        let mut random = Random(seed);
        let contexts: Vec<u64> = (0..SLOTS)
            .map(|number| match number {
                0 => random.next(),
                1 => u64::MAX - random.below(64),
                _ => STACKS + random.below(STACK_BYTES as u64),
            })
            .collect();
        let memory = Replaced {
            parts: vec![
                (TABLE, table(&contexts)),
                (STACKS, stacks(&mut random, &code())),
            ],
            rest: ProcessMemory::of(std::process::id()),
        };
        let places = CodePlaces {
            child_start: code()[0] + random.below(64),
            ..CodePlaces::default()
        };
        let stacks = run(&memory, &layout(places), &modules).unwrap();
        assert_eq!(stacks.threads.len(), SLOTS as usize, "seed {seed}");
        check(&stacks);
        if seed == 1 {
            name(&stacks, &memory, &modules);
        }
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// The segment of this program, or of libc, that has the unwind tables: address and content.
fn tables_of(address: u64) -> (u64, Vec<u8>) {
    let memory = ProcessMemory::of(std::process::id());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = |line: &str| line.split_whitespace().nth(5).map(ToOwned::to_owned);
    let range = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let parse = |word| u64::from_str_radix(word, 16).ok();
        Some(parse(from)?..parse(to)?)
    };
    let is_here = |line: &&str| range(line).is_some_and(|range| range.contains(&address));
    let file = path(maps.lines().find(is_here).unwrap()).unwrap();
    // The last read-only segment of a library, or the first of the program, has the tables.
    let is_table = |line: &&str| path(line).as_ref() == Some(&file) && line.contains(" r--p ");
    let segments: Vec<_> = maps.lines().filter(is_table).filter_map(range).collect();
    let largest = segments
        .iter()
        .max_by_key(|range| range.end - range.start)
        .unwrap();
    let mut bytes = vec![0; (largest.end - largest.start) as usize];
    memory.read_all(largest.start, &mut bytes).unwrap();
    (largest.start, bytes)
}

#[test]
fn broken_unwind_tables_are_read_to_an_end() {
    let started = Instant::now();
    let whole = [tables_of(code()[0]), tables_of(code()[2])];
    for seed in 1..=60 {
        let mut random = Random(seed);
        let modules = Modules::of(std::process::id()).unwrap();
        let mut parts = whole.to_vec();
        for (_, bytes) in &mut parts {
            // From a few bytes to one in fifty.
            let count = 1 << random.below(14);
            for _ in 0..count {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        let contexts: Vec<u64> = (0..SLOTS)
            .map(|_| STACKS + random.below(STACK_BYTES as u64 / 8) * 8)
            .collect();
        parts.push((TABLE, table(&contexts)));
        parts.push((STACKS, stacks(&mut random, &code())));
        let memory = Replaced {
            parts,
            rest: ProcessMemory::of(std::process::id()),
        };
        let stacks = run(&memory, &layout(CodePlaces::default()), &modules).unwrap();
        assert_eq!(stacks.threads.len(), SLOTS as usize, "seed {seed}");
        check(&stacks);
    }
    assert!(started.elapsed() < Duration::from_secs(120));
}

#[test]
fn impossible_layouts_are_refused_or_bounded() {
    let modules = Modules::parse(&b""[..], "").unwrap();
    let good = layout(CodePlaces::default());
    let memory = Replaced {
        parts: vec![(TABLE, table(&[STACKS; SLOTS as usize]))],
        rest: ProcessMemory::of(std::process::id()),
    };
    let count = |layout: &Layout| run(&memory, layout, &modules).map(|it| it.threads.len());
    assert_eq!(count(&good), Some(SLOTS as usize));
    for change in [
        |it: &mut Layout| it.slot_bytes = u64::MAX,
        |it: &mut Layout| it.slot_bytes = 0,
        |it: &mut Layout| it.chunk_count = u64::MAX,
        |it: &mut Layout| it.slots_per_chunk = 0,
        |it: &mut Layout| it.thread.name = u32::MAX,
        |it: &mut Layout| it.thread.context = SLOT_BYTES as u32 - 8,
    ] {
        let mut layout = good;
        change(&mut layout);
        assert_eq!(count(&layout), None);
    }
    let nowhere = [
        |it: &mut Layout| it.chunks = 0,
        |it: &mut Layout| it.chunks = u64::MAX,
        |it: &mut Layout| it.used = 8,
    ];
    for change in nowhere {
        let mut layout = good;
        change(&mut layout);
        assert_eq!(count(&layout), Some(0));
    }
}

#[test]
fn a_context_that_leads_nowhere_is_no_stack() {
    let modules = Modules::of(std::process::id()).unwrap();
    let memory = Replaced {
        parts: vec![(TABLE, table(&[8, 0, u64::MAX]))],
        rest: ProcessMemory::of(std::process::id()),
    };
    let stacks = run(&memory, &layout(CodePlaces::default()), &modules).unwrap();
    for thread in &stacks.threads {
        assert_eq!((thread.kind, thread.stack), (Kind::Unreadable, None));
        assert_eq!(thread.record.carrier, NO_CARRIER);
    }
}

/// Lets each thread wait for something at such an address.
fn let_wait(table: &mut [u8], random: &mut Random) {
    const KINDS: [u32; 7] = [1, 2, 3, 4, 6, 7, 12];
    for slot in table[16..].chunks_exact_mut(SLOT_BYTES as usize) {
        let address = match random.below(8) {
            0 => random.next(),
            1 => u64::MAX - random.below(64),
            2 => STACKS + STACK_BYTES as u64 - random.below(64),
            _ => STACKS + random.below(STACK_BYTES as u64 / 4) * 4,
        };
        slot[12] = 1;
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        slot[16..20].copy_from_slice(&kind.to_le_bytes());
        slot[24..32].copy_from_slice(&address.to_le_bytes());
        slot[232..240].copy_from_slice(&address.wrapping_add(40).to_le_bytes());
    }
}

/// Words that are owners, and parts of locks.
fn locks(random: &mut Random) -> Vec<u8> {
    let word = |random: &mut Random| match random.below(6) {
        0 => random.next() as u32,
        1 => 1 << 31 | (random.below(SLOTS) as u32 + 1),
        2 => 2,
        3 => 0,
        _ => random.below(SLOTS) as u32 + 1,
    };
    let words = (0..STACK_BYTES / 4).map(|_| word(random));
    words.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn locks_of_random_words_are_read_to_an_end() {
    let modules = Modules::of(std::process::id()).unwrap();
    let started = Instant::now();
    let mut found = 0;
    for seed in 1..=500 {
        let mut random = Random(seed);
        let mut table = table(&[STACKS; SLOTS as usize]);
        let_wait(&mut table, &mut random);
        let places = CodePlaces {
            actions: random.next() >> random.below(64),
            ..CodePlaces::default()
        };
        let layout = layout(places);
        let memory = Replaced {
            parts: vec![(TABLE, table), (STACKS, locks(&mut random))],
            rest: ProcessMemory::of(std::process::id()),
        };
        let target = Target {
            pid: std::process::id(),
            memory: &memory,
            layout: &layout,
            carriers: &[],
            modules: &modules,
            started_ns: 0,
            stopped: None,
        };
        let stacks = capture(&target, &|_: &ThreadRecord| true).unwrap();
        let mut symbols = Symbols::new(&memory, &modules);
        let waits = Waits {
            edges: edges(&target, &stacks, &mut symbols),
            switches: stacks.threads.iter().map(|it| (it.record.tid, 0)).collect(),
            is_asleep: wakers(&target, &stacks, &[]).leave_asleep(&[]),
        };
        assert!(!waits.is_asleep, "this process runs, seed {seed}");
        found += deadlocks(&waits).len();
        assert_eq!(confirmed(&waits, &waits).len(), deadlocks(&waits).len());
        let mut watch = Watch::default();
        for _ in 0..3 {
            watch.look(&target);
        }
    }
    assert!(found > 0, "the words are too wild to be locks");
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// Carriers and threads of layouts with random words, read again and again.
#[test]
fn carriers_that_make_no_sense_are_read_to_an_end() {
    let begun = Instant::now();
    let modules = Modules::of(std::process::id()).unwrap();
    for seed in 1..200 {
        let mut random = Random(seed);
        let mut layout = layout(CodePlaces::default());
        let mut bytes = vec![0u8; 1 << 16];
        for word in bytes.chunks_exact_mut(8) {
            let value = match random.below(4) {
                0 => random.next(),
                1 => u64::MAX - random.below(64),
                _ => TABLE + random.below(1 << 16),
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        layout.carriers = TABLE + random.below(1 << 15);
        layout.carrier_count = TABLE + random.below(1 << 15);
        layout.blocked = random.next();
        layout.carrier_id = random.next() >> random.below(64);
        layout.carrier.engine = random.below(1 << 12) as u32;
        layout.carrier.queue_tail = random.next() as u32 >> random.below(32);
        layout.carrier.wake_ups = random.next() as u32 >> random.below(32);
        layout.engine.spares = random.next() as u32 >> random.below(32);
        layout.thread.charged_ns = random.below(SLOT_BYTES) as u32;
        let memory = Replaced {
            parts: vec![(TABLE, bytes)],
            rest: ProcessMemory::of(std::process::id()),
        };
        let more: Vec<u64> = (0..100).map(|_| TABLE + random.below(1 << 17)).collect();
        let found = carriers(&memory, &layout, &more);
        assert!(found.carriers.len() <= 1 << 12, "seed {seed}");
        let target = Target {
            pid: std::process::id(),
            memory: &memory,
            layout: &layout,
            carriers: &[],
            modules: &modules,
            started_ns: 0,
            stopped: None,
        };
        if let Some(mut threads) = Threads::of(&target) {
            let mut count = 0;
            threads.for_each(|_| count += 1);
            assert!(count <= SLOTS, "seed {seed}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
}
