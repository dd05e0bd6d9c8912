//! The monitor that a Java thread wants, and the thread that owns it, from HotSpot's memory.
//!
//! A thread notes the monitor that it wants to enter, or in which it waits for a notification. Such
//! a monitor is a structure of its own: it stays where it is while threads wait. It notes its owner
//! in one of these ways:
//!
//! - by the owner's record, or by an address on the owner's stack where the lock was before others
//!   wanted it (up to JDK 23);
//! - by the owner's number in Java (from JDK 24 on). While a virtual thread is on a carrier, the
//!   carrier's record has the virtual thread's number;
//! - not at all, if the owner has the object in its list of locks (from JDK 21 on). Then the thread
//!   with the object in its list is the owner.
//!
//! An owner without a record among the threads is not named: a virtual thread in the heap.

use std::collections::HashMap;
use std::rc::Rc;

use super::methods::{external, symbol};
use super::objects::Observed;
use super::offsets::Offsets;
use super::structs::Structs;
use crate::elf::u64_at;
use crate::memory::Memory;

/// The most threads that are looked at.
const THREADS_MAX: u32 = 1 << 18;
/// How often the list of threads is read for one that isn't in it, until the limits begin anew.
const LISTINGS_MAX: u32 = 4;
/// The most classes and monitors of which the names are kept.
const NAMES_MAX: usize = 1 << 14;
/// The most objects of a thread's list of locks.
const LOCKS_MAX: u32 = 8;
/// The last bits of an object's first word if the rest is its monitor.
const MARK_BITS: u64 = 3;
const IS_MONITOR: u64 = 2;

/// The monitor that a thread wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedMonitor {
    pub address: u64,
    /// The thread waits for a notification, or has had it and wants to enter again.
    pub is_noticed: bool,
}

/// A monitor of Java that threads wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The class of its object.
    pub class: Option<Rc<str>>,
    /// The thread that has entered it.
    pub owner: Option<u32>,
}

/// Where the structures have what is read here.
pub(super) struct Fields {
    list: List,
    os_thread: u64,
    id: u64,
    /// The monitor that a thread wants to enter, and the one in which it waits.
    wanted: u64,
    waited_in: u64,
    stack_base: u64,
    stack_bytes: u64,
    /// A thread's number in Java.
    number: Option<u64>,
    /// The list of a thread's locks, and in it the end and the first object.
    locks: Option<[u64; 3]>,
    object: u64,
    /// The object is behind two more references.
    is_handle: bool,
    owner: u64,
    /// Where an object has the number of its class, and what makes an address of it.
    class: Option<Class>,
    /// Where collections are counted, of a collector that moves objects only then.
    heap: Option<Heap>,
    /// Objects are followed by their monitors.
    follows_objects: bool,
}

/// Where the number of collections that have begun is.
struct Heap {
    /// A static reference to the record that has the other fields.
    heap: u64,
    collections: u64,
    /// A byte that says whether all threads are stopped for one.
    is_active: u64,
}

/// How the list of threads is kept.
enum List {
    /// A static reference to an array: its length, and the array.
    Array { list: u64, length: u64, data: u64 },
    /// A static reference to the first, and the next in each.
    Chain { first: u64, next: u64 },
}

struct Class {
    number: u64,
    /// Static fields.
    base: u64,
    shift: u64,
}

impl Fields {
    /// `None` for versions that are not understood. `major` is the version's number.
    /// `is_moved_at_stops`: objects move only while all threads are stopped.
    pub(super) fn of(structs: &Structs, major: u32, is_moved_at_stops: bool) -> Option<Fields> {
        let thread = |field: &str| {
            let of = |kind: &str| structs.offset(&format!("{kind}.{field}"));
            of("JavaThread").or_else(|| of("Thread"))
        };
        let array = || {
            Some(List::Array {
                list: structs.address("ThreadsSMRSupport._java_thread_list")?,
                length: structs.offset("ThreadsList._length")?,
                data: structs.offset("ThreadsList._threads")?,
            })
        };
        let chain = || {
            Some(List::Chain {
                first: structs.address("Threads._thread_list")?,
                next: structs.offset("JavaThread._next")?,
            })
        };
        let locks = || {
            let list = thread("_lock_stack")?;
            let end = list + structs.offset("LockStack._top")?;
            Some([list, end, list + structs.offset("LockStack._base[0]")?])
        };
        Some(Fields {
            list: array().or_else(chain)?,
            os_thread: thread("_osthread")?,
            id: structs.offset("OSThread._thread_id")?,
            wanted: thread("_current_pending_monitor")?,
            waited_in: thread("_current_waiting_monitor")?,
            stack_base: thread("_stack_base")?,
            stack_bytes: thread("_stack_size")?,
            number: thread("_monitor_owner_id"),
            locks: locks(),
            object: structs.offset("ObjectMonitor._object")?,
            is_handle: major >= 16,
            owner: structs.offset("ObjectMonitor._owner")?,
            class: Class::of(structs),
            heap: Heap::of(structs).filter(|_| is_moved_at_stops),
            // Before, each stop of all threads gives idle monitors up.
            follows_objects: major >= 17,
        })
    }
}

impl Heap {
    fn of(structs: &Structs) -> Option<Heap> {
        let is_active = |name: &str| structs.offset(&format!("CollectedHeap.{name}"));
        Some(Heap {
            heap: structs.address("Universe._collectedHeap")?,
            collections: structs.offset("CollectedHeap._total_collections")?,
            is_active: is_active("_is_gc_active").or_else(|| is_active("_is_stw_gc_active"))?,
        })
    }
}

impl Class {
    fn of(structs: &Structs) -> Option<Class> {
        let starts = [
            "CompressedKlassPointers._",
            "CompressedKlassPointers._narrow_klass._",
            "Universe._narrow_klass._",
        ];
        let part = |name: &str| {
            let mut all = starts.iter().map(|start| format!("{start}{name}"));
            all.find_map(|field| structs.address(&field))
        };
        Some(Class {
            number: structs.offset("oopDesc._metadata._compressed_klass")?,
            base: part("base")?,
            shift: part("shift")?,
        })
    }
}

/// What is known of a process's Java threads and their monitors.
#[derive(Default)]
pub(super) struct Monitors {
    /// The records of threads, by their ids.
    threads: HashMap<u32, u64>,
    listings: u32,
    /// The classes of monitors' objects.
    classes: HashMap<u64, Option<Rc<str>>>,
}

/// What they are read with.
pub(super) struct Reader<'a> {
    pub memory: &'a dyn Memory,
    pub fields: &'a Fields,
    pub offsets: &'a Offsets,
}

impl Monitors {
    /// Has the limits of one reading begin anew. A monitor's place may be another's by now.
    pub(super) fn renew(&mut self) {
        self.listings = 0;
        self.classes.clear();
    }

    /// Returns the monitor that a thread wants to enter, or in which it waits.
    pub(super) fn wanted(&mut self, reader: &Reader<'_>, tid: u32) -> Option<WantedMonitor> {
        let thread = self.thread(reader, tid)?;
        let field = |field: u64| reader.field(thread, field).filter(|&it| it != 0);
        let wanted = field(reader.fields.wanted);
        Some(WantedMonitor {
            address: wanted.or_else(|| field(reader.fields.waited_in))?,
            is_noticed: wanted.is_none(),
        })
    }

    /// Returns what is known of a monitor.
    pub(super) fn monitor(&mut self, reader: &Reader<'_>, monitor: u64) -> Monitor {
        let owner = reader.owner(monitor, self.listed(reader));
        if self.classes.len() >= NAMES_MAX {
            self.classes.clear();
        }
        let class = self.classes.entry(monitor);
        let class = class.or_insert_with(|| reader.class(monitor).map(Rc::from));
        Monitor {
            class: class.clone(),
            owner,
        }
    }

    /// Returns the thread that has entered a monitor.
    pub(super) fn owner(&mut self, reader: &Reader<'_>, monitor: u64) -> Option<u32> {
        reader.owner(monitor, self.listed(reader))
    }

    /// Returns the name of the class of a monitor's object.
    pub(super) fn class(&mut self, reader: &Reader<'_>, monitor: u64) -> Option<Rc<str>> {
        reader.class(monitor).map(Rc::from)
    }

    fn thread(&mut self, reader: &Reader<'_>, tid: u32) -> Option<u64> {
        // A record may be another thread's by now.
        let known = self.threads.get(&tid).copied();
        if let Some(thread) = known.filter(|&thread| reader.id(thread) == Some(tid)) {
            return Some(thread);
        }
        if known.is_none() && self.listings >= LISTINGS_MAX {
            return None;
        }
        self.list(reader);
        self.threads.get(&tid).copied()
    }

    pub(super) fn list(&mut self, reader: &Reader<'_>) {
        self.listings += 1;
        self.threads = reader.threads().into_iter().collect();
    }

    /// Returns the record of a thread that is in the list which was read last.
    pub(super) fn record(&self, tid: u32) -> Option<u64> {
        self.threads.get(&tid).copied()
    }

    fn listed(&mut self, reader: &Reader<'_>) -> &HashMap<u32, u64> {
        if self.threads.is_empty() {
            self.list(reader);
        }
        &self.threads
    }
}

impl Reader<'_> {
    pub(super) fn field(&self, of: u64, field: u64) -> Option<u64> {
        self.memory.word(of.checked_add(field)?)
    }

    /// Returns the id of a thread.
    pub(super) fn id(&self, thread: u64) -> Option<u32> {
        let os_thread = self.field(thread, self.fields.os_thread)?;
        let id = self.memory.half(os_thread.checked_add(self.fields.id)?)?;
        (id != 0).then_some(id)
    }

    /// Returns the ids and the records of all threads.
    fn threads(&self) -> Vec<(u32, u64)> {
        const ID_BYTES: usize = 4;
        let records = self.records().unwrap_or_default();
        let places = records.iter();
        let places: Vec<u64> = places
            .map(|it| it.wrapping_add(self.fields.os_thread))
            .collect();
        let mut bytes = vec![0; places.len() * 8];
        self.memory.read_pieces(&places, 8, &mut bytes);
        // What can't be read stays 0, and nothing is there.
        let at = |bytes: &[u8]| u64_at(bytes, 0).unwrap_or(0);
        let places = bytes.chunks_exact(8).map(at);
        let places: Vec<u64> = places.map(|it| it.wrapping_add(self.fields.id)).collect();
        let mut bytes = vec![0; places.len() * ID_BYTES];
        self.memory.read_pieces(&places, ID_BYTES, &mut bytes);
        let ids = bytes.chunks_exact(ID_BYTES);
        let ids = ids.map(|it| it.first_chunk().map_or(0, |id| u32::from_le_bytes(*id)));
        ids.zip(records).filter(|&(id, _)| id != 0).collect()
    }

    /// Returns the records of all threads.
    fn records(&self) -> Option<Vec<u64>> {
        let mut records = Vec::new();
        match self.fields.list {
            List::Array { list, length, data } => {
                let list = self.memory.word(list)?;
                let length = self.memory.half(list.checked_add(length)?)?;
                let mut bytes = vec![0; length.min(THREADS_MAX) as usize * 8];
                let got = self.memory.read(self.field(list, data)?, &mut bytes);
                let words = bytes[..got].chunks_exact(8);
                records.extend(words.filter_map(|word| u64_at(word, 0)));
            }
            List::Chain { first, next } => {
                let mut at = self.memory.word(first)?;
                while at != 0 && records.len() < THREADS_MAX as usize {
                    records.push(at);
                    at = self.field(at, next)?;
                }
            }
        }
        Some(records)
    }

    /// Returns the thread that has entered a monitor.
    pub(super) fn owner(&self, monitor: u64, threads: &HashMap<u32, u64>) -> Option<u32> {
        /// The owner of a monitor that another thread has made for it.
        const NOT_NOTED: u64 = 1;
        let owner = self.field(monitor, self.fields.owner)?;
        let find = |is_it: &dyn Fn(u64) -> Option<bool>| {
            let mut found = threads.iter();
            let found = found.find(|&(_, &thread)| is_it(thread) == Some(true));
            found.map(|(&tid, _)| tid)
        };
        match (owner, self.fields.number) {
            (0, _) => None,
            (NOT_NOTED, _) => {
                let object = self.object(monitor)?;
                find(&|thread| self.has_locked(thread, object))
            }
            (_, Some(number)) => find(&|thread| Some(self.field(thread, number)? == owner)),
            _ => find(&|thread| {
                let base = self.field(thread, self.fields.stack_base)?;
                let bytes = self.field(thread, self.fields.stack_bytes)?;
                Some(thread == owner || (base.saturating_sub(bytes)..base).contains(&owner))
            }),
        }
    }

    /// Returns true if a thread has an object in its list of locks.
    fn has_locked(&self, thread: u64, object: u64) -> Option<bool> {
        let [_, end, first] = self.fields.locks?;
        // The end counts from the thread's record on.
        let end = self.memory.half(thread.checked_add(end)?)?;
        let count = u64::from(end).checked_sub(first)? / 8;
        let mut places = (0..count.min(LOCKS_MAX.into())).map(|number| first + number * 8);
        Some(places.any(|place| self.field(thread, place) == Some(object)))
    }

    /// Returns the object of a monitor, if it says that this is its monitor.
    fn object(&self, monitor: u64) -> Option<u64> {
        let mut object = self.field(monitor, self.fields.object)?;
        if self.fields.is_handle {
            object = self.memory.word(object)?;
        }
        let mark = self.memory.word(object)?;
        (mark == monitor & !MARK_BITS | IS_MONITOR).then_some(object)
    }

    /// Returns how many collections have begun; `None` while one runs, or if that is not known.
    pub(super) fn collections(&self) -> Option<u32> {
        let fields = self.fields.heap.as_ref()?;
        let heap = self.memory.word(fields.heap)?;
        let mut is_active = [0];
        let at = heap.checked_add(fields.is_active)?;
        self.memory.read_all(at, &mut is_active)?;
        let count = self.memory.half(heap.checked_add(fields.collections)?)?;
        (is_active == [0]).then_some(count)
    }

    /// Returns what is seen of a monitor now; `None` if objects aren't followed by their monitors.
    /// What may be in part of before and in part of after a collection has no number of
    /// collections.
    pub(super) fn observed(&self, monitor: u64) -> Option<Observed> {
        if !self.fields.follows_objects {
            return None;
        }
        let before = self.collections();
        let handle = self.field(monitor, self.fields.object)?;
        let object = self.object(monitor);
        let class = |object: u64| self.class_number(object);
        Some(Observed {
            monitor,
            handle,
            object: object.and_then(|object| Some((object, class(object)?))),
            collections: before.filter(|_| before == self.collections()),
        })
    }

    pub(super) fn class_number(&self, object: u64) -> Option<u32> {
        let class = self.fields.class.as_ref()?;
        self.memory.half(object.checked_add(class.number)?)
    }

    /// Returns the address of an object's class.
    pub(super) fn class_address(&self, object: u64) -> Option<u64> {
        let class = self.fields.class.as_ref()?;
        let number = self.class_number(object)?;
        let shift = self.memory.half(class.shift)?;
        let from_base = u64::from(number).checked_shl(shift)?;
        self.memory.word(class.base)?.checked_add(from_base)
    }

    /// Returns the name of the class of a monitor's object.
    fn class(&self, monitor: u64) -> Option<String> {
        let address = self.class_address(self.object(monitor)?)?;
        let name = self.field(address, self.offsets.method.class_name)?;
        let name = external(&symbol(self.memory, self.offsets, name)?);
        let is_name = name.chars().all(|it| !it.is_control() && it != '\u{fffd}');
        is_name.then_some(name)
    }
}
