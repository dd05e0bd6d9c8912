use super::*;
use raddle_inspect::{ThreadOffsets, Wire};
use std::time::Duration;

const SLOT: usize = 96;
const CHUNKS: u64 = 0x1000;
const USED: u64 = 0x2000;
const TABLE: u64 = 0x10_0000;

/// A process's memory: one chunk of slots.
struct Table {
    used: u64,
    slots: Vec<u8>,
}

impl Memory for Table {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let word = |value: u64, to: &mut [u8]| {
            to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
            to.len()
        };
        match address {
            CHUNKS => word(TABLE, to),
            USED => word(self.used, to),
            at if at >= TABLE => {
                let rest = self.slots.get((at - TABLE) as usize..).unwrap_or_default();
                let length = rest.len().min(to.len());
                to[..length].copy_from_slice(&rest[..length]);
                length
            }
            _ => 0,
        }
    }
}

impl Table {
    fn new(slots: usize) -> Table {
        Table {
            used: slots as u64,
            slots: vec![0; slots * SLOT],
        }
    }

    /// A thread that waits, with as many turns as its id.
    fn set(&mut self, slot: usize, tid: u32, name: &str) {
        let bytes = &mut self.slots[slot * SLOT..][..SLOT];
        bytes.fill(0);
        if tid != 0 {
            bytes[0..4].copy_from_slice(&tid.to_le_bytes());
            bytes[4] = 1; // it lives
            bytes[12] = 1; // it waits
            bytes[24..32].copy_from_slice(&u64::from(tid).to_le_bytes());
            bytes[64..64 + name.len()].copy_from_slice(name.as_bytes());
        }
    }

    fn set_turns(&mut self, slot: usize, turns: u64) {
        self.slots[slot * SLOT + 24..][..8].copy_from_slice(&turns.to_le_bytes());
    }
}

fn layout(slots: usize) -> Layout {
    let mut layout = Layout::from_prefix(&[0; size_of::<Layout>()]).unwrap();
    layout.chunks = CHUNKS;
    layout.chunk_count = 1;
    layout.slots_per_chunk = slots as u64;
    layout.slot_bytes = SLOT as u64;
    layout.used = USED;
    layout.thread = ThreadOffsets {
        tid: 0,
        life: 4,
        on_cpu: 8,
        claim: 12,
        switches: 24,
        steal: 32,
        preempt: 40,
        park: 48,
        name: 64,
        ..ThreadOffsets::default()
    };
    layout
}

fn look(groups: &mut Groups, table: &Table) -> Vec<GroupRow> {
    let layout = layout(table.slots.len() / SLOT);
    let until = Instant::now() + Duration::from_secs(60);
    groups.look(table, &layout, until).unwrap().rows
}

/// Threads of a group that wait, and its turns.
fn of(rows: &[GroupRow], name: &str) -> Option<(u64, u64)> {
    let mut found = rows.iter().filter(|row| row.name == name);
    let row = found.next()?;
    assert!(found.next().is_none(), "{name} is there twice");
    assert_eq!(row.threads, [0, 0, row.threads[2], 0]);
    Some((row.threads[2], row.counts.switches))
}

/// Another name without digits for each number.
fn letters(number: usize) -> String {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    [number / 676, number / 26, number]
        .map(letter)
        .iter()
        .collect()
}

#[test]
fn digits_of_names_are_no_difference() {
    let mut table = Table::new(5);
    for (slot, name) in ["io-1", "io-22", "pool-1-task-2", "", "other"]
        .iter()
        .enumerate()
    {
        table.set(slot, slot as u32 + 1, name);
    }
    let rows = look(&mut Groups::default(), &table);
    assert_eq!(of(&rows, "io-*"), Some((2, 3)));
    assert_eq!(of(&rows, "pool-*-task-*"), Some((1, 3)));
    assert_eq!(of(&rows, UNNAMED), Some((1, 4)));
    assert_eq!(of(&rows, REST), Some((1, 5)));
    assert_eq!(rows.len(), 4);
}

#[test]
fn counters_outlive_their_threads_and_never_shrink() {
    let mut table = Table::new(2);
    table.set(0, 10, "a");
    let mut groups = Groups::default();
    assert_eq!(of(&look(&mut groups, &table), "a"), Some((1, 10)));
    assert_eq!(of(&look(&mut groups, &table), "a"), Some((1, 10)));
    table.set(0, 0, "");
    assert_eq!(of(&look(&mut groups, &table), "a"), Some((0, 10)));
    table.set(0, 7, "a"); // another thread, with fewer turns
    table.set(1, 20, "b");
    let rows = look(&mut groups, &table);
    assert_eq!(
        (of(&rows, "a"), of(&rows, "b")),
        (Some((1, 17)), Some((1, 20)))
    );
    table.set(1, 20, "a"); // gets another name
    let rows = look(&mut groups, &table);
    assert_eq!(
        (of(&rows, "a"), of(&rows, "b")),
        (Some((2, 17)), Some((0, 20)))
    );
}

#[test]
fn the_largest_groups_have_names_and_there_are_not_many() {
    let mut table = Table::new(300);
    for slot in 0..200 {
        table.set(slot, 1, &letters(slot));
    }
    for slot in 200..300 {
        table.set(slot, 1, "many");
    }
    let mut groups = Groups::default();
    let rows = look(&mut groups, &table);
    assert_eq!(rows.len(), GROUPS_MAX + 1);
    assert_eq!(of(&rows, "many"), Some((100, 100)));
    assert_eq!(of(&rows, REST), Some((151, 151)));
    // A group without threads keeps its row, and a new name has none.
    for slot in 200..300 {
        table.set(slot, 2, "new");
    }
    let rows = look(&mut groups, &table);
    assert_eq!(
        (of(&rows, "many"), of(&rows, "new")),
        (Some((0, 100)), None)
    );
    assert_eq!(of(&rows, REST), Some((251, 351)));
    for slot in 200..300 {
        table.set(slot, 3, "many");
    }
    let rows = look(&mut groups, &table);
    assert_eq!(of(&rows, "many"), Some((100, 400)));
    assert_eq!(of(&rows, REST), Some((151, 351)));
}

/// Looks at the table, and checks that no row is gone and no counter is less than before.
fn look_and_compare(groups: &mut Groups, table: &Table, before: &mut Vec<GroupRow>) {
    let rows = look(groups, table);
    assert!(rows.len() <= GROUPS_MAX + 1, "{} rows", rows.len());
    for old in before.iter() {
        let now = rows.iter().find(|row| row.name == old.name);
        let now = now.unwrap_or_else(|| panic!("{} is gone", old.name)).counts;
        assert!(
            now.switches >= old.counts.switches,
            "{}: {now:?}, before {:?}",
            old.name,
            old.counts
        );
    }
    *before = rows;
}

fn turns(rows: &[GroupRow]) -> u64 {
    rows.iter().map(|row| row.counts.switches).sum()
}

#[test]
fn threads_that_change_their_names_lose_no_counts() {
    const THREADS: usize = 80;
    let mut table = Table::new(THREADS);
    let (mut groups, mut rows) = (Groups::default(), Vec::new());
    for step in 0..200 {
        for slot in 0..THREADS {
            let name = (slot * 7 + step * 13) % 90;
            table.set(slot, slot as u32 + 1, &letters(name));
            table.set_turns(slot, step as u64 * 10);
        }
        look_and_compare(&mut groups, &table, &mut rows);
        assert_eq!(turns(&rows), (THREADS * step * 10) as u64);
    }
}

#[test]
fn groups_that_come_and_go_lose_no_counts() {
    const NAMES: usize = 60;
    let mut table = Table::new(NAMES);
    let (mut groups, mut rows) = (Groups::default(), Vec::new());
    let mut counted = 0;
    for step in 0..200 {
        for slot in 0..NAMES {
            let lives = (slot + step) % 3 == 0;
            let tid = u32::from(lives) * (step * NAMES + slot + 1) as u32;
            table.set(slot, tid, &letters(slot));
            table.set_turns(slot, 5);
            counted += u64::from(lives) * 5;
        }
        look_and_compare(&mut groups, &table, &mut rows);
        assert_eq!(turns(&rows), counted);
    }
}

#[test]
fn names_without_a_group_are_not_remembered() {
    let mut table = Table::new(1);
    let (mut groups, mut rows) = (Groups::default(), Vec::new());
    for step in 0..1000_u32 {
        table.set(0, step + 1, &letters(step as usize));
        look_and_compare(&mut groups, &table, &mut rows);
    }
    assert_eq!(groups.groups.len(), GROUPS_MAX + 1);
    assert_eq!(groups.numbers.len(), GROUPS_MAX + 1);
    assert_eq!(turns(&rows), (1..=1000).sum::<u64>());
}

#[test]
fn what_cannot_be_read_for_a_moment_is_not_counted_again() {
    let mut table = Table::new(3);
    for slot in 0..3 {
        table.set(slot, 10, "a");
    }
    let mut groups = Groups::default();
    assert_eq!(of(&look(&mut groups, &table), "a"), Some((3, 30)));
    let layout = layout(3);
    let last = table.slots.split_off(2 * SLOT);
    let until = Instant::now() + Duration::from_secs(60);
    let rows = groups.look(&table, &layout, until).unwrap().rows;
    assert_eq!(of(&rows, "a"), Some((3, 30)));
    table.slots.extend(last);
    assert_eq!(of(&look(&mut groups, &table), "a"), Some((3, 30)));
}

#[test]
fn a_huge_table_is_read_in_turns_after_the_first_look() {
    const LOOKS: usize = 4;
    let slots = LOOKS * SEGMENTS_PER_LOOK * SEGMENT as usize;
    let mut table = Table::new(slots);
    for slot in 0..slots {
        table.set(slot, 1, "a");
    }
    let mut groups = Groups::default();
    assert_eq!(
        of(&look(&mut groups, &table), "a"),
        Some((slots as u64, slots as u64))
    );
    for slot in 0..slots {
        table.set(slot, 1, "b");
    }
    for number in 1..=LOOKS as u64 {
        let rows = look(&mut groups, &table);
        let seen = number * slots as u64 / LOOKS as u64;
        assert_eq!(of(&rows, "b").map(|(threads, _)| threads), Some(seen));
        assert_eq!(
            of(&rows, "a").map(|(threads, _)| threads),
            Some(slots as u64 - seen)
        );
    }
}

#[test]
fn a_table_that_lies_costs_no_more_than_the_time_that_is_left() {
    let table = Table {
        used: u64::MAX,
        slots: Vec::new(),
    };
    let mut layout = layout(1 << 21);
    layout.chunk_count = 2;
    let began = Instant::now();
    let until = began + Duration::from_millis(50);
    let found = Groups::default().look(&table, &layout, until).unwrap();
    assert!(found.rows.is_empty() && began.elapsed() < Duration::from_secs(5));
    layout.slot_bytes = 8;
    assert!(Groups::default().look(&table, &layout, until).is_none());
}
