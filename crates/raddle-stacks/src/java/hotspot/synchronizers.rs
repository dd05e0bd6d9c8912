//! The owned synchronizer of `java.util.concurrent` for which a thread is parked, and its owner,
//! from HotSpot's heap.
//!
//! A thread that is parked notes for what in its object, and an owned synchronizer notes the object
//! of its owner: `java.lang.Thread.parkBlocker` and
//! `AbstractOwnableSynchronizer.exclusiveOwnerThread`. Where objects have these fields is in their
//! classes. An object is read between two looks at the number of collections, so that it has not
//! moved; collectors that move objects while threads execute are left out.

use std::collections::HashMap;

use super::compressed::Numbers;
use super::methods::symbol;
use super::monitors::Reader;
use super::structs::Structs;

const THREAD: &str = "java/lang/Thread";
const SYNCHRONIZER: &str = "java/util/concurrent/locks/AbstractOwnableSynchronizer";
/// The most classes of which it is known whether they are synchronizers, and the most above one.
const CLASSES_MAX: usize = 1 << 12;
const DEPTH_MAX: usize = 64;
/// The most fields of a class, and bytes that describe them.
const FIELDS_MAX: u32 = 1 << 10;
const DESCRIPTION_MAX: u32 = 1 << 14;
/// An array of HotSpot's has its length first, and then what is in it.
const ARRAY_START: u64 = 4;

/// Where the objects are noted, and what is known of their classes.
pub(super) struct Synchronizers {
    /// The handle of a thread's object, and of the virtual thread that it runs.
    threads: Vec<u64>,
    /// Static fields, by which a number is an object's address; `None` if objects have addresses of
    /// each other.
    numbers: Option<[u64; 2]>,
    description: Description,
    constants: u64,
    constants_bytes: u64,
    class_name: u64,
    parent: u64,
    blocker: Option<u64>,
    owner: Option<u64>,
    /// Whether a class is that of an owned synchronizer, by the class's number.
    classes: HashMap<u32, bool>,
}

/// How a class describes the fields of its objects.
enum Description {
    /// Six short numbers for each field (up to JDK 20).
    Shorts(u64),
    /// A stream of compressed numbers.
    Stream(u64),
}

impl Synchronizers {
    /// `None` for versions that are not understood. `has_numbers`: objects have numbers of each
    /// other instead of addresses.
    pub(super) fn of(structs: &Structs, has_numbers: bool) -> Option<Synchronizers> {
        let handle = |name: &str| structs.offset(&format!("JavaThread.{name}"));
        let part = |name: &str| {
            let names = [format!("_narrow_oop._{name}"), format!("_{name}")];
            let mut names = names.iter().map(|it| format!("CompressedOops.{it}"));
            names.find_map(|name| structs.address(&name))
        };
        let shorts = || {
            let shorts = structs.offset("InstanceKlass._fields");
            shorts.map(Description::Shorts)
        };
        let stream = structs.offset("InstanceKlass._fieldinfo_stream");
        let threads = [Some(handle("_threadObj")?), handle("_vthread")];
        Some(Synchronizers {
            threads: threads.into_iter().rev().flatten().collect(),
            numbers: if has_numbers {
                Some([part("base")?, part("shift")?])
            } else {
                None
            },
            description: stream.map(Description::Stream).or_else(shorts)?,
            constants: structs.offset("InstanceKlass._constants")?,
            constants_bytes: structs.size("ConstantPool")?,
            class_name: structs.offset("Klass._name")?,
            parent: structs.offset("Klass._super")?,
            blocker: None,
            owner: None,
            classes: HashMap::new(),
        })
    }

    /// Returns the synchronizer for which a thread is parked, with `None` for another object or
    /// none. The outer `None` is that of memory that can't be understood now.
    pub(super) fn parked_for(&mut self, reader: &Reader<'_>, thread: u64) -> Option<Option<u64>> {
        self.unmoved(reader, |this| {
            let object = this.thread_object(reader, thread)?;
            let blocker = match this.blocker {
                Some(blocker) => blocker,
                None => {
                    let class = this.class_above(reader, object, THREAD)??;
                    *this
                        .blocker
                        .insert(this.field(reader, class, "parkBlocker")?)
                }
            };
            let blocker = this.reference(reader, object, blocker)?;
            let is_one = blocker != 0 && this.is_synchronizer(reader, blocker)?;
            Some(is_one.then_some(blocker))
        })
    }

    /// Returns which one of some threads owns the synchronizer for which a thread is parked.
    pub(super) fn owner(
        &mut self,
        reader: &Reader<'_>,
        thread: u64,
        among: &HashMap<u32, u64>,
    ) -> Option<u32> {
        self.unmoved(reader, |this| {
            let object = this.thread_object(reader, thread)?;
            let blocker = this.reference(reader, object, this.blocker?)?;
            if blocker == 0 || !this.is_synchronizer(reader, blocker)? {
                return None;
            }
            let owner = this.reference(reader, blocker, this.owner?)?;
            let is_owner = |&(_, &thread): &(&u32, &u64)| {
                owner != 0 && this.thread_object(reader, thread) == Some(owner)
            };
            among.iter().find(is_owner).map(|(&tid, _)| tid)
        })
    }

    /// Calls `act`, and drops what it returns if objects may have moved meanwhile.
    fn unmoved<T>(
        &mut self,
        reader: &Reader<'_>,
        act: impl FnOnce(&mut Synchronizers) -> Option<T>,
    ) -> Option<T> {
        let before = reader.collections()?;
        let known = (self.blocker, self.owner);
        let found = act(self);
        if reader.collections() == Some(before) {
            return found;
        }
        (self.blocker, self.owner) = known;
        self.classes.clear();
        None
    }

    /// Returns the object of the thread that Java takes for the current one.
    fn thread_object(&self, reader: &Reader<'_>, thread: u64) -> Option<u64> {
        let object = |&handle: &u64| reader.memory.word(reader.field(thread, handle)?);
        let mut objects = self.threads.iter().filter_map(object);
        objects.find(|&object| object != 0)
    }

    /// Returns the address that a field of an object has, or 0.
    fn reference(&self, reader: &Reader<'_>, object: u64, field: u64) -> Option<u64> {
        let Some([base, shift]) = self.numbers else {
            return reader.field(object, field);
        };
        let number = reader.memory.half(object.checked_add(field)?)?;
        if number == 0 {
            return Some(0);
        }
        let from_base = u64::from(number).checked_shl(reader.memory.half(shift)?)?;
        reader.memory.word(base)?.checked_add(from_base)
    }

    fn is_synchronizer(&mut self, reader: &Reader<'_>, object: u64) -> Option<bool> {
        let number = reader.class_number(object)?;
        if let Some(&is_one) = self.classes.get(&number) {
            return Some(is_one);
        }
        let class = self.class_above(reader, object, SYNCHRONIZER)?;
        if let (None, Some(class)) = (self.owner, class) {
            self.owner = Some(self.field(reader, class, "exclusiveOwnerThread")?);
        }
        if self.classes.len() >= CLASSES_MAX {
            self.classes.clear();
        }
        self.classes.insert(number, class.is_some());
        Some(class.is_some())
    }

    /// Returns an object's class, or one above it, with this name, if there is one.
    fn class_above(&self, reader: &Reader<'_>, object: u64, name: &str) -> Option<Option<u64>> {
        let mut class = reader.class_address(object)?;
        for _ in 0..DEPTH_MAX {
            let symbol_at = reader.field(class, self.class_name)?;
            if symbol(reader.memory, reader.offsets, symbol_at)? == name {
                return Some(Some(class));
            }
            class = reader.field(class, self.parent)?;
            if class == 0 {
                return Some(None);
            }
        }
        None
    }

    /// Returns where objects of a class have a field that the class itself declares.
    fn field(&self, reader: &Reader<'_>, class: u64, name: &str) -> Option<u64> {
        let constants = reader.field(class, self.constants)?;
        let is_it = |number: u32| {
            let slot = constants
                .checked_add(self.constants_bytes)?
                .checked_add(u64::from(number) * 8)?;
            let name_at = reader.memory.word(slot)?;
            Some(symbol(reader.memory, reader.offsets, name_at)? == name)
        };
        let (at, bytes_each) = match self.description {
            Description::Shorts(at) => (at, 2),
            Description::Stream(at) => (at, 1),
        };
        let array = reader.field(class, at)?;
        let length = reader.memory.half(array)?.min(DESCRIPTION_MAX);
        let mut bytes = vec![0; length as usize * bytes_each];
        let start = array.checked_add(ARRAY_START)?;
        reader.memory.read_all(start, &mut bytes)?;
        let place = match self.description {
            Description::Shorts(_) => in_shorts(&bytes, is_it),
            Description::Stream(_) => in_stream(&bytes, is_it),
        };
        place.map(u64::from)
    }
}

/// Finds a field among descriptions of six short numbers: its name is the second, and where it is
/// in the last two, above two bits of marks.
fn in_shorts(bytes: &[u8], is_it: impl Fn(u32) -> Option<bool>) -> Option<u32> {
    const BYTES: usize = 12;
    const MARK_BITS: u32 = 2;
    let short = |field: &[u8], number: usize| {
        let bytes = [field[number * 2], field[number * 2 + 1]];
        u32::from(u16::from_le_bytes(bytes))
    };
    let mut fields = bytes.chunks_exact(BYTES);
    let field = fields.find(|field| is_it(short(field, 1)) == Some(true))?;
    Some((short(field, 5) << 16 | short(field, 4)) >> MARK_BITS)
}

/// Finds a field in a stream: how many fields are declared, and how many the virtual machine has
/// added; of each its name, its type, its place and two kinds of marks; and three numbers more that
/// the marks tell of.
fn in_stream(bytes: &[u8], is_it: impl Fn(u32) -> Option<bool>) -> Option<u32> {
    const HAS_MORE: [u32; 3] = [1 << 0, 1 << 2, 1 << 4];
    let mut numbers = Numbers::new(bytes, true);
    let count = numbers.next()?;
    numbers.next()?;
    for _ in 0..count.min(FIELDS_MAX) {
        let [name, _, place, _, marks] = [(); 5].map(|()| numbers.next());
        for _ in HAS_MORE
            .iter()
            .filter(|&&mark| marks.unwrap_or(0) & mark != 0)
        {
            numbers.next()?;
        }
        if is_it(name?) == Some(true) {
            return place;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_both_descriptions() {
        let is_it = |number: u32| Some(number == 9);
        let shorts: [u16; 12] = [2, 8, 1, 0, 48 << 2 | 1, 0, 2, 9, 1, 0, 52 << 2 | 1, 1];
        let bytes: Vec<u8> = shorts.iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(in_shorts(&bytes, is_it), Some(52 + (1 << 14)));
        assert_eq!(in_shorts(&bytes[..12], is_it), None);
        // Each byte is one more than its number. The first field has two numbers more.
        let stream = [3, 1, 9, 2, 13, 1, 6, 77, 78, 10, 2, 17, 1, 1];
        assert_eq!(in_stream(&stream, is_it), Some(16));
        for end in 0..stream.len() - 3 {
            assert_eq!(in_stream(&stream[..end], is_it), None, "{end}");
        }
    }
}
