//! The details of pending signals: records of one pool, in lists.
//!
//! A [`Pool`] and its lists stand behind locks of their users. A list belongs to the pool that its
//! records come from.

/// The most signals that can be queued in the process, as `RLIMIT_SIGPENDING` is for a kernel. A
/// model has few signals, and makes a pool for each of its runs; so do tests.
pub const RECORDS: usize = match (cfg!(raddle_loom), cfg!(test)) {
    (true, _) => 4,
    (_, true) => 2048,
    _ => 65_000,
};

/// What the details of a signal are. A type without a value: the details may be another crate's.
pub trait Details {
    /// The details of one signal.
    type Info: Copy;

    /// The details that a record has before its first use.
    const UNUSED: Self::Info;

    /// Returns the signal's number.
    fn signal(info: &Self::Info) -> u32;

    /// Returns how the details are kept.
    fn form(info: &Self::Info) -> Form;

    /// Counts an expiry in the details `last`, if both are of one timer. Returns false if they
    /// aren't.
    fn add_expiry(last: &mut Self::Info, info: &Self::Info) -> bool;

    /// Returns the details of a signal if there was no room for its own.
    fn without_record(signal: u32) -> Self::Info;
}

/// How a signal's details are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The details of the first, while it is pending.
    Once,
    /// The details of each.
    Each,
    /// The details of each, except that further expiries of one timer are counted in the record of
    /// the first.
    Expiry,
}

/// A FIFO of records, which the lock of its user guards together with the bits of the signals.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct List {
    /// Index + 1 of the first record; 0 if empty.
    head: u16,
    /// That of the last record.
    tail: u16,
}

impl List {
    /// Without a record.
    pub const EMPTY: Self = Self { head: 0, tail: 0 };

    /// Returns true if the list has no record.
    pub const fn is_empty(&self) -> bool {
        self.head == 0
    }
}

/// What a signal was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// The thread that has it.
    Thread,
    /// The process: another thread may take it.
    Process,
}

struct Record<I> {
    next: u16,
    to: Addressee,
    info: I,
}

/// Room for the records of all lists: [`RECORDS`].
pub struct Pool<D: Details> {
    /// The free records that were used before.
    free: u16,
    /// Records that were ever used.
    used: u16,
    /// Records in lists.
    count: u16,
    records: [Record<D::Info>; RECORDS],
}

impl<D: Details> Pool<D> {
    /// Returns a pool without a used record.
    pub const fn new() -> Self {
        Self {
            free: 0,
            used: 0,
            count: 0,
            records: [const {
                Record {
                    next: 0,
                    to: Addressee::Thread,
                    info: D::UNUSED,
                }
            }; RECORDS],
        }
    }

    /// Returns the number of records in lists.
    pub fn count(&self) -> usize {
        self.count.into()
    }

    fn record(&mut self, index: u16) -> &mut Record<D::Info> {
        &mut self.records[index as usize - 1]
    }

    /// Appends a record to the list, unless `form` says that nothing is to be appended: `already`
    /// says that the signal pends for this addressee. Returns false if there is no room.
    pub fn add(
        &mut self,
        list: &mut List,
        info: &D::Info,
        form: Form,
        to: Addressee,
        already: bool,
    ) -> bool {
        match form {
            Form::Once if already => return true,
            Form::Expiry if self.add_expiry(*list, info) => return true,
            _ => {}
        }
        let Some(index) = self.take_free() else {
            return false;
        };
        *self.record(index) = Record {
            next: 0,
            to,
            info: *info,
        };
        match list.tail {
            0 => list.head = index,
            last => self.record(last).next = index,
        }
        list.tail = index;
        true
    }

    /// Adds an expiry of a timer to the record of that timer's last one, if it is queued.
    fn add_expiry(&mut self, list: List, info: &D::Info) -> bool {
        let mut at = list.head;
        while at != 0 {
            let record = self.record(at);
            if D::add_expiry(&mut record.info, info) {
                return true;
            }
            at = record.next;
        }
        false
    }

    /// Drops the records of `signal` that fit.
    pub fn discard(&mut self, list: &mut List, signal: u32, fits: impl Fn(&D::Info) -> bool) {
        while self.remove(list, signal, |info, _| fits(info)).is_some() {}
    }

    /// Drops all records of a list.
    pub fn drop_all(&mut self, list: &mut List) {
        let mut at = core::mem::take(list).head;
        while at != 0 {
            let next = self.record(at).next;
            self.free_again(at);
            at = next;
        }
    }

    /// Moves the records of `signal` that came for the process from one list to the front of
    /// another, where `already` says that it pends.
    pub fn shift(&mut self, from: &mut List, to: &mut List, signal: u32, already: bool) {
        let rest = core::mem::take(to);
        let is_shared = |_: &D::Info, to| to == Addressee::Process;
        while let Some((info, _)) = self.remove(from, signal, is_shared) {
            let form = D::form(&info);
            if form != Form::Expiry || !self.add_expiry(rest, &info) {
                let already = already || !to.is_empty();
                self.add(to, &info, form, Addressee::Process, already);
            }
        }
        if to.is_empty() {
            *to = rest;
        } else if !rest.is_empty() {
            self.record(to.tail).next = rest.head;
            to.tail = rest.tail;
        }
    }

    /// Returns the oldest record of `signal`.
    pub fn find(&self, list: List, signal: u32) -> Option<D::Info> {
        let mut at = list.head;
        while at != 0 {
            let record = &self.records[at as usize - 1];
            if D::signal(&record.info) == signal {
                return Some(record.info);
            }
            at = record.next;
        }
        None
    }

    /// Takes the oldest record of `signal` that fits.
    pub fn remove(
        &mut self,
        list: &mut List,
        signal: u32,
        fits: impl Fn(&D::Info, Addressee) -> bool,
    ) -> Option<(D::Info, Addressee)> {
        let (mut before, mut at) = (0u16, list.head);
        while at != 0 {
            let record = self.record(at);
            let (next, info, to) = (record.next, record.info, record.to);
            if D::signal(&info) == signal && fits(&info, to) {
                match before {
                    0 => list.head = next,
                    _ => self.record(before).next = next,
                }
                if list.tail == at {
                    list.tail = before;
                }
                self.free_again(at);
                return Some((info, to));
            }
            before = at;
            at = next;
        }
        None
    }

    /// Returns true if the list has a record of `signal` for this addressee.
    pub fn has(&self, list: List, signal: u32, to: Addressee) -> bool {
        let mut at = list.head;
        while at != 0 {
            let record = &self.records[at as usize - 1];
            if record.to == to && D::signal(&record.info) == signal {
                return true;
            }
            at = record.next;
        }
        false
    }

    fn take_free(&mut self) -> Option<u16> {
        let index = if self.free != 0 {
            let index = self.free;
            self.free = self.record(index).next;
            index
        } else if (self.used as usize) < RECORDS {
            self.used += 1;
            self.used
        } else {
            return None;
        };
        self.count += 1;
        Some(index)
    }

    fn free_again(&mut self, index: u16) {
        self.record(index).next = self.free;
        self.free = index;
        self.count -= 1;
    }
}

impl<D: Details> Default for Pool<D> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use Addressee::{Process, Thread};

    /// Signals 40 and above are timers', with expiries in the place of a value.
    struct Values;

    impl Details for Values {
        type Info = (u32, u32);

        const UNUSED: (u32, u32) = (0, 0);

        fn signal(info: &(u32, u32)) -> u32 {
            info.0
        }

        fn form(info: &(u32, u32)) -> Form {
            match info.0 {
                ..32 => Form::Once,
                32..40 => Form::Each,
                _ => Form::Expiry,
            }
        }

        fn add_expiry(last: &mut (u32, u32), info: &(u32, u32)) -> bool {
            let is_same = last.0 == info.0;
            last.1 += u32::from(is_same) * info.1;
            is_same
        }

        fn without_record(signal: u32) -> (u32, u32) {
            (signal, 0)
        }
    }

    fn pool() -> Box<Pool<Values>> {
        Box::default()
    }

    fn add(pool: &mut Pool<Values>, list: &mut List, info: (u32, u32), already: bool) -> bool {
        pool.add(list, &info, Values::form(&info), Process, already)
    }

    fn all(pool: &mut Pool<Values>, list: &mut List, signal: u32) -> Vec<u32> {
        core::iter::from_fn(|| pool.remove(list, signal, |_, _| true))
            .map(|(info, _)| info.1)
            .collect()
    }

    #[test]
    fn a_signal_keeps_as_many_details_as_its_form_says() {
        let (mut pool, mut list) = (pool(), List::EMPTY);
        for signal in [10, 34, 40] {
            assert!(add(&mut pool, &mut list, (signal, 1), false));
            assert!(add(&mut pool, &mut list, (signal, 2), true));
        }
        assert_eq!(all(&mut pool, &mut list, 10), [1]);
        assert_eq!(all(&mut pool, &mut list, 34), [1, 2]);
        assert_eq!(all(&mut pool, &mut list, 40), [3]);
        assert!(list.is_empty());
    }

    #[test]
    fn what_came_for_the_process_goes_before_what_pends_there() {
        let (mut pool, mut from, mut to) = (pool(), List::EMPTY, List::EMPTY);
        pool.add(&mut from, &(34, 1), Form::Each, Thread, false);
        for value in [2, 3] {
            pool.add(&mut from, &(34, value), Form::Each, Process, true);
        }
        pool.add(&mut to, &(34, 4), Form::Each, Process, false);
        pool.shift(&mut from, &mut to, 34, true);
        assert!(pool.has(from, 34, Thread) && !pool.has(from, 34, Process));
        assert!(add(&mut pool, &mut to, (34, 5), true));
        assert_eq!(all(&mut pool, &mut to, 34), [2, 3, 4, 5]);
        assert_eq!(all(&mut pool, &mut from, 34), [1]);
    }

    #[test]
    fn records_that_were_taken_are_used_again() {
        let (mut pool, mut list) = (pool(), List::EMPTY);
        for _ in 0..RECORDS {
            assert!(add(&mut pool, &mut list, (34, 1), true));
        }
        assert!(
            !add(&mut pool, &mut list, (34, 2), true),
            "there is no room"
        );
        assert!(pool.remove(&mut list, 34, |_, _| true).is_some());
        assert!(add(&mut pool, &mut list, (35, 3), false));
        pool.discard(&mut list, 34, |info| info.1 == 1);
        assert_eq!(pool.find(list, 35), Some((35, 3)));
        pool.drop_all(&mut list);
        assert!(list.is_empty() && list == List::EMPTY);
        assert_eq!((pool.used as usize, pool.count()), (RECORDS, 0));
        assert!(add(&mut pool, &mut list, (34, 4), false));
    }
}
