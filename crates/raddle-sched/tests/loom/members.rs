//! The members of the process: a change of all kernel threads, beside one that is made and one that
//! ends; and the end of the process beside a maker.
//!
//! The kernel is a list of threads, each with a value, which a new one inherits. A signal is a
//! handler in a thread of the model: it begins after the signal was sent, and the giver of the
//! order waits for its end.

use super::explore;

use Flaw::{
    ChecksEarly, EndsFirst, EntersLate, Forgets, IsQuietWithoutLock, LeavesWithoutLock, LetsGo,
    LooksFirst, MakesFirst, None, SharesPlace,
};
use loom::sync::Mutex;
use loom::thread;
use raddle_sched::members::{Held, Members};
use raddle_sched::orders::Orders;
use raddle_sched::sync::{AtomicU32, Ordering};
use std::sync::Arc;

const PLACES: usize = 4;
/// The ids of the giver of the order, of the thread beside it, and of the first that is made.
const GIVER: u32 = 10;
const OTHER: u32 = 11;
const MADE: u32 = 12;

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A maker makes the kernel thread, and then takes the lock.
    MakesFirst,
    /// A maker frees the lock before it enters what it has made.
    EntersLate,
    /// A maker takes no lock.
    SharesPlace,
    /// One that leaves takes no lock.
    LeavesWithoutLock,
    /// One that leaves has ended before.
    EndsFirst,
    /// One that ends stays a member.
    Forgets,
    /// The giver frees the lock before the order is executed.
    LetsGo,
    /// The maker looks before it takes the lock whether the members are closed.
    ChecksEarly,
    /// The process looks whether the members are quiet, and closes them afterwards.
    LooksFirst,
    /// The process closes the members and doesn't look at the lock.
    IsQuietWithoutLock,
}

/// A kernel thread: its id and its value.
type KernelThread = (u32, u32);

struct World {
    members: Members<PLACES>,
    /// For twins: ids without the lock.
    bare: [AtomicU32; PLACES],
    orders: Orders<PLACES>,
    kernel: Mutex<Vec<KernelThread>>,
    /// 1 once the process thinks that no kernel thread is made any more.
    over: AtomicU32,
    flaw: Flaw,
}

impl World {
    fn new(flaw: Flaw) -> Arc<Self> {
        let world = Self {
            members: Members::new(),
            bare: core::array::from_fn(|_| AtomicU32::new(0)),
            orders: Orders::new(),
            kernel: Mutex::new(vec![(GIVER, 0), (OTHER, 0)]),
            over: AtomicU32::new(0),
            flaw,
        };
        // SAFETY: no other thread uses the world yet.
        unsafe { world.members.begin(GIVER) };
        assert_eq!(world.members.enter(|| Ok::<_, ()>(OTHER)), Some(Ok(OTHER)));
        for (bare, id) in world.bare.iter().zip([GIVER, OTHER]) {
            bare.store(id, Ordering::Relaxed);
        }
        Arc::new(world)
    }

    /// As `clone`, by the thread `maker`.
    fn clone_thread(&self, maker: u32) -> u32 {
        let mut kernel = self.kernel.lock().unwrap();
        let value = kernel.iter().find(|it| it.0 == maker).unwrap().1;
        let id = kernel.iter().map(|it| it.0).max().unwrap() + 1;
        kernel.push((id, value));
        id
    }

    /// As `exit`.
    fn exit(&self, id: u32) {
        self.kernel.lock().unwrap().retain(|it| it.0 != id);
    }

    fn change(&self, id: u32) {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.iter_mut().find(|it| it.0 == id).unwrap().1 = 1;
    }

    /// A kernel thread makes another one.
    fn make(&self, maker: u32) {
        let make = || {
            let over = self.over.load(Ordering::Acquire);
            assert_eq!(over, 0, "a kernel thread is made at the end");
            self.clone_thread(maker)
        };
        match self.flaw {
            MakesFirst => {
                let id = make();
                _ = self.members.enter(|| Ok::<_, ()>(id));
            }
            EntersLate => {
                let held = self.members.hold();
                let id = make();
                drop(held);
                _ = self.members.enter(|| Ok::<_, ()>(id));
            }
            SharesPlace => {
                let mut ids = self.bare.iter();
                let free = ids.find(|id| id.load(Ordering::Relaxed) == 0);
                if let Some(place) = free {
                    place.store(make(), Ordering::Relaxed);
                }
            }
            ChecksEarly => {
                if !self.members.is_closed() {
                    let held = self.members.hold();
                    make();
                    drop(held);
                }
            }
            _ => _ = self.members.enter(|| Ok::<_, ()>(make())),
        }
    }

    /// A kernel thread ends.
    fn end(&self, id: u32) {
        match self.flaw {
            Forgets => self.exit(id),
            EndsFirst => {
                self.exit(id);
                self.members.leave(id);
            }
            LeavesWithoutLock => {
                let at = self
                    .bare
                    .iter()
                    .position(|it| it.load(Ordering::Relaxed) == id);
                self.bare[at.unwrap()].store(0, Ordering::Relaxed);
                self.exit(id);
            }
            _ => {
                self.members.leave(id);
                self.exit(id);
            }
        }
    }

    /// The members as the giver of an order finds them.
    fn found(&self, held: &Held<'_, PLACES>) -> Vec<(usize, u32)> {
        match self.flaw {
            SharesPlace | LeavesWithoutLock => {
                let ids = self.bare.iter().map(|id| id.load(Ordering::Relaxed));
                ids.enumerate().filter(|it| it.1 != 0).collect()
            }
            _ => held.each().collect(),
        }
    }

    /// The handler of a member.
    fn answer(&self, id: u32) {
        if let Some(place) = self.members.place_of(id)
            && self.orders.take(place)
        {
            self.change(id);
            self.orders.done();
        }
    }

    /// A change of all.
    fn everywhere(self: &Arc<Self>) {
        let held = self.members.hold();
        self.change(GIVER);
        let found = self.found(&held);
        let mut held = Some(held).filter(|_| self.flaw != LetsGo);
        let others = found.iter().filter(|it| it.1 != GIVER);
        self.orders.give(others.clone().map(|it| it.0));
        for &(_, id) in others {
            let there = self.clone();
            let handler = thread::spawn(move || {
                let is_alive = there.kernel.lock().unwrap().iter().any(|it| it.0 == id);
                if is_alive {
                    there.answer(id);
                }
            });
            handler.join().unwrap();
        }
        assert_eq!(self.orders.missing(), 0, "waits for one that has ended");
        self.orders.end();
        held.take();
    }

    fn judge(&self) {
        let kernel = self.kernel.lock().unwrap();
        assert!(
            kernel.iter().all(|it| it.1 == 1),
            "one keeps the old value: {kernel:?}"
        );
    }
}

/// All are changed while another kernel thread does something.
fn change_beside(flaw: Flaw, act: fn(&World)) {
    explore(3, move || {
        let world = World::new(flaw);
        let there = world.clone();
        let other = thread::spawn(move || act(&there));
        world.everywhere();
        other.join().unwrap();
        world.judge();
    });
}

fn makes(world: &World) {
    world.make(OTHER);
}

fn ends(world: &World) {
    world.end(OTHER);
}

/// The maker ends after it has made another, which has its place from then on if it is left.
fn makes_and_ends(world: &World) {
    world.make(OTHER);
    world.end(OTHER);
    world.make(MADE);
}

#[test]
fn a_change_reaches_each_kernel_thread_that_lives() {
    change_beside(None, makes);
    change_beside(None, ends);
    change_beside(None, makes_and_ends);
}

#[test]
#[should_panic(expected = "one keeps the old value")]
fn a_maker_that_makes_first_is_caught() {
    change_beside(MakesFirst, makes);
}

#[test]
#[should_panic(expected = "one keeps the old value")]
fn a_maker_that_enters_late_is_caught() {
    change_beside(EntersLate, makes);
}

/// Two make kernel threads at once.
fn two_make(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw);
        let there = world.clone();
        let other = thread::spawn(move || there.make(OTHER));
        world.make(GIVER);
        other.join().unwrap();
        let found = world.found(&world.members.hold());
        assert_eq!(found.len(), PLACES, "one is no member");
    });
}

#[test]
fn each_that_is_made_is_a_member() {
    two_make(None);
}

#[test]
#[should_panic(expected = "one is no member")]
fn two_makers_that_choose_one_place_are_caught() {
    two_make(SharesPlace);
}

#[test]
#[should_panic(expected = "waits for one that has ended")]
fn one_that_leaves_without_the_lock_is_caught() {
    change_beside(LeavesWithoutLock, ends);
}

#[test]
#[should_panic(expected = "waits for one that has ended")]
fn one_that_ends_before_it_leaves_is_caught() {
    change_beside(EndsFirst, ends);
}

#[test]
#[should_panic(expected = "waits for one that has ended")]
fn one_that_ends_and_stays_a_member_is_caught() {
    change_beside(Forgets, ends);
}

#[test]
#[should_panic(expected = "waits for one that has ended")]
fn a_giver_that_frees_the_lock_early_is_caught() {
    change_beside(LetsGo, ends);
}

/// The process ends while a kernel thread makes another one.
fn end_beside_a_maker(flaw: Flaw) {
    explore(4, move || {
        let world = World::new(flaw);
        let there = world.clone();
        let maker = thread::spawn(move || there.make(OTHER));
        let is_over = if flaw == LooksFirst {
            let is_quiet = world.members.is_quiet();
            world.members.close();
            is_quiet
        } else {
            world.members.close();
            flaw == IsQuietWithoutLock || world.members.is_quiet()
        };
        if is_over {
            world.over.store(1, Ordering::Release);
        }
        maker.join().unwrap();
    });
}

#[test]
fn no_kernel_thread_is_made_once_the_closed_members_are_quiet() {
    end_beside_a_maker(None);
}

#[test]
#[should_panic(expected = "a kernel thread is made at the end")]
fn a_maker_that_checks_early_is_caught() {
    end_beside_a_maker(ChecksEarly);
}

#[test]
#[should_panic(expected = "a kernel thread is made at the end")]
fn an_end_that_looks_first_is_caught() {
    end_beside_a_maker(LooksFirst);
}

#[test]
#[should_panic(expected = "a kernel thread is made at the end")]
fn an_end_that_ignores_the_lock_is_caught() {
    end_beside_a_maker(IsQuietWithoutLock);
}
