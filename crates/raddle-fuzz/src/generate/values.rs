//! Single values: descriptors, numbers, ids, addresses.

use super::{HANDLED, Maker, structures};
use crate::calls::{Names, SIGNALS};
use crate::case::{FILES, FIRST_CHILD, Kind, PATHS, Page, Place, Resource, Value, name_place};

/// AT_FDCWD.
const CURRENT_FOLDER: u64 = -100_i64 as u64;

const BAD_DESCRIPTORS: [u64; 8] = [
    u64::MAX,
    63,
    1023,
    1024,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    CURRENT_FOLDER,
];

/// Addresses outside the case's memory: null, small, beyond user space, in the kernel, wrapping.
const BAD_ADDRESSES: [u64; 7] = [
    0,
    8,
    0x7fff_ffff_f000,
    0x8000_0000_0000,
    0xffff_8000_0000_0000,
    0xffff_ffff_ffff_f000,
    u64::MAX - 7,
];

const BAD_NUMBERS: [u64; 10] = [
    0,
    1,
    u64::MAX,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 60,
    i64::MAX as u64,
    1 << 63,
];

impl Maker {
    fn is_bad(&mut self) -> bool {
        !self.calm && self.random.chance(self.hostility)
    }

    /// A descriptor of a resource, an earlier result, or none.
    pub(crate) fn descriptor(&mut self) -> Value {
        if self.is_bad() {
            return Value::Int(*self.random.pick(&BAD_DESCRIPTORS));
        }
        let results = self.case.steps.len() as u64;
        if results > 0 && self.random.chance(6) {
            return Value::Result(self.random.below(results) as u8);
        }
        let fits = self.random.chance(80);
        let on = self.on;
        let fitting = |resource: &&Resource| fits && on.contains(&resource.kind);
        let any_fits = self
            .case
            .resources
            .iter()
            .any(|resource| fitting(&resource));
        let numbers: Vec<u8> = self
            .case
            .resources
            .iter()
            .filter(|resource| !any_fits || fitting(resource))
            .flat_map(|resource| resource.numbers)
            .filter(|&number| number != 0)
            .collect();
        match numbers[..] {
            [] => Value::Int(0),
            _ => Value::Int((*self.random.pick(&numbers)).into()),
        }
    }

    /// A descriptor of a resource of one of these kinds, else any.
    pub(crate) fn descriptor_of(&mut self, kinds: &[Kind]) -> Value {
        let fitting = |resource: &&Resource| kinds.contains(&resource.kind);
        let fitting = self.case.resources.iter().filter(fitting);
        let numbers: Vec<u8> = fitting.map(|resource| resource.numbers[0]).collect();
        match numbers[..] {
            [] => self.descriptor(),
            _ => Value::Int((*self.random.pick(&numbers)).into()),
        }
    }

    pub(crate) fn folder(&mut self) -> Value {
        match self.random.below(3) {
            0 => self.descriptor(),
            _ => Value::Int(CURRENT_FOLDER),
        }
    }

    pub(crate) fn number(&mut self, plausible: &[i64]) -> u64 {
        if self.is_bad() {
            *self.random.pick(&BAD_NUMBERS)
        } else {
            self.plausible(plausible) as u64
        }
    }

    /// One of these numbers; the first ones are the most plausible.
    pub(crate) fn plausible(&mut self, numbers: &[i64]) -> i64 {
        let draws = [(); 2].map(|()| self.random.below(numbers.len() as u64));
        numbers[draws[0].min(draws[1]) as usize]
    }

    pub(crate) fn flags(&mut self, names: &Names) -> Value {
        if self.is_bad() {
            let any = self.random.next() & 0xffff_ffff;
            return Value::Int(*self.random.pick(&[any, 0xffff_ffff, 1 << 31, 1 << 13]));
        }
        let mut flags = 0;
        for _ in 0..*self.random.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            flags |= self.random.pick(names).1;
        }
        Value::Int(flags)
    }

    pub(crate) fn one_of(&mut self, names: &Names) -> Value {
        if self.is_bad() {
            return Value::Int(*self.random.pick(&BAD_NUMBERS));
        }
        Value::Int(self.random.pick(names).1)
    }

    pub(crate) fn signal(&mut self) -> Value {
        match self.random.below(10) {
            0..8 => Value::Int((*self.random.pick(&HANDLED)).into()),
            8 if self.random.chance(50) => {
                Value::Int(*self.random.pick(&[0, 65, 64, 32, 33, u64::MAX, 128]))
            }
            9 if self.random.chance(70) => {
                // A stop would only be one more way to wait.
                let signal = self.random.pick(SIGNALS).1;
                Value::Int(if (19..=22).contains(&signal) {
                    18
                } else {
                    signal
                })
            }
            _ => Value::Int(HANDLED[0].into()),
        }
    }

    /// A process that the case may harm: itself, its group, a child, or none.
    pub(crate) fn process(&mut self) -> Value {
        if self.is_bad() {
            let none = [i32::MAX as u64, -i64::from(i32::MAX) as u64, 1 << 31];
            return Value::Int(*self.random.pick(&none));
        }
        if self.agent >= FIRST_CHILD && self.random.chance(50) {
            return Value::Parent;
        }
        let children = self.children;
        match self.random.below(8) {
            0 => Value::Int(0),
            1 => Value::Tid(self.random.below(u64::from(self.case.threads) + 1) as u8),
            2..5 if children > 0 => Value::Child(self.random.below(children.into()) as u8),
            _ => Value::Pid,
        }
    }

    /// A thread that the case may harm.
    pub(crate) fn thread(&mut self) -> Value {
        if self.is_bad() {
            return Value::Int(*self.random.pick(&[i32::MAX as u64, u64::MAX, 1 << 31]));
        }
        match self.random.below(8) {
            0 => Value::Int(0),
            1 if self.children > 0 => Value::Child(self.random.below(self.children.into()) as u8),
            _ => Value::Tid(self.random.below(u64::from(self.case.threads) + 1) as u8),
        }
    }

    /// An address that is no good for most purposes.
    pub(crate) fn bad_address(&mut self) -> Value {
        let places = [
            Place::new(Page::READ_ONLY, 0x10),
            Place::new(Page::NO_ACCESS, 0),
            Place::new(Page::HOLE, 0x20),
            Place::new(Page::BEHIND_FILE, 0),
            Place::new(Page::LAST, 0xffc),
            Place::new(Page::LAST, 0xfff),
            Place::new(Page::BUFFERS, 1),
        ];
        match self.random.below(3) {
            0 => Value::Int(*self.random.pick(&BAD_ADDRESSES)),
            _ => Value::Place(*self.random.pick(&places)),
        }
    }

    /// Room that a call stores to.
    pub(crate) fn out(&mut self, bytes: u16) -> Value {
        match self.random.below(12) {
            0 if !self.calm => Value::Int(0),
            1 if !self.calm => Value::Place(Place::new(Page::CHANGING, 0x40)),
            2 => Value::Place(Place::new(Page::LAST, 4096 - i32::from(bytes))),
            _ => Value::Place(self.room(bytes.into())),
        }
    }

    /// A buffer for data.
    pub(crate) fn buffer(&mut self) -> Value {
        if self.case.threads > 0 && self.random.chance(3) {
            return structures::stack_place(self);
        }
        Value::Place(match self.random.below(10) {
            0 => Place::new(Page::LAST, 0xff0),
            1 => Place::new(Page::CHANGING, 0x100),
            2 => Place::new(Page::SHARED, 0),
            3 => Place::new(Page::OF_FILE, 0x80),
            _ => Place::new(Page::BUFFERS, *self.random.pick(&[0, 0x100, 0x801])),
        })
    }

    pub(crate) fn length(&mut self) -> Value {
        if self.is_bad() {
            return Value::Int(*self.random.pick(&BAD_NUMBERS));
        }
        Value::Int(*self.random.pick(&[0, 1, 3, 8, 16, 64, 100, 4096]))
    }

    pub(crate) fn path(&mut self) -> Value {
        let files = FILES.len() as u64;
        let index = match self.random.below(10) {
            0..8 => self.random.below(files),
            _ => files + self.random.below(PATHS.len() as u64),
        };
        Value::Place(name_place(index as usize))
    }

    /// A path to a file with the same content in every process.
    pub(crate) fn steady_path(&mut self) -> Value {
        Value::Place(name_place(self.random.below(FILES.len() as u64) as usize))
    }
}
