//! Hosts run light threads: the switch from one to the next, and the loop in between.
//!
//! A light thread that has begun on a host stays there to its end: references into the host's
//! thread-locals, guards that belong to a thread, and other values that aren't `Send` may lie on
//! its stack. It waits for its turn among the host's [`Own`]. Light threads that have not begun,
//! and those that *migrate*, since their maker has promised to hold nothing of that kind, wait in a
//! queue from which other hosts steal.
//!
//! A light thread that gives up its host picks its successor and switches to it directly. It goes
//! through the host's own stack only if there is none, or if the successor migrates and is still on
//! another host (to wait for it on a light stack could deadlock two hosts).
//!
//! Code here runs before and after switches, so nothing that depends on the host may be kept across
//! one: after a switch a light thread reads its own `host` field, set by the host that continued
//! it. For the same reason [`Host::current`] is never inlined: compilers keep the addresses of
//! thread-locals.

mod life;
mod turns;

pub(super) use turns::{expired, start, yield_now};
pub(crate) use turns::{hand_over, park, unpark};
use turns::{leave, leave_for_loop, switch_to};

use super::follower::{Follower, Turn};
use super::group::GROUP;
use super::own::Own;
use super::token::Token;
use super::{stack, timers};
use raddle_arch::{Context, prepare, switch_keep_fs};
use raddle_interface::HostControl;
use raddle_sched::{Link, RunQueue, Task, TaskRef, Wake};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most free shells that a host keeps.
const KEEP: u32 = 256;
/// One pick in so many looks at the injector before the host's own queue.
const FAIRNESS: u32 = 61;

/// A light thread; lies at the top of its stack.
#[repr(C, align(64))]
pub(crate) struct Light {
    /// First, since a `TaskRef` is cast back to its light thread.
    pub(crate) task: Task,
    context: Cell<Context>,
    /// The host that it runs or last ran on; null before. Set by the host that continues it.
    host: Cell<*const Host>,
    /// True if any host may run it. Set by its maker.
    migrates: Cell<bool>,
    /// Its link in its host's inbox.
    letter: Link,
    /// Its closure's function, and the memory of the closure.
    run: Cell<Option<unsafe fn(*mut u8)>>,
    captured: Cell<*mut u8>,
    /// One word for the user: [`super::local`].
    pub(super) local: Cell<usize>,
    /// The permission to go on that [`super::park`] waits for.
    pub(super) token: Token,
    /// Counts the begins and ends of the stack's light threads: odd while it has one.
    life: AtomicU64,
    /// The group's epoch when it was made; tools read it.
    epoch: Cell<u64>,
    /// The next free shell.
    link: Cell<Option<&'static Light>>,
    /// Bytes from the stack's low end, guard included, to the end of this struct.
    size: usize,
}

// SAFETY: the cells belong to the light thread, or to the holder of its task or its shell.
unsafe impl Sync for Light {}

impl Light {
    /// Makes a shell of fresh memory.
    ///
    /// # Safety
    /// `low` must begin `size` zeroed bytes that are never used otherwise.
    pub(super) unsafe fn at_top_of(low: *mut u8, size: usize) -> &'static Self {
        // SAFETY: the caller's promise; stacks are aligned to pages.
        unsafe {
            let at = low.add(size - size_of::<Self>()).cast::<Self>();
            at.write(Self {
                task: Task::new(),
                context: Cell::new(null_mut()),
                host: Cell::new(null()),
                migrates: Cell::new(false),
                letter: Link::new(),
                run: Cell::new(None),
                captured: Cell::new(null_mut()),
                local: Cell::new(0),
                token: Token::new(),
                life: AtomicU64::new(0),
                epoch: Cell::new(0),
                link: Cell::new(None),
                size,
            });
            &*at
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the stack's low end.
    pub(super) fn low(&self) -> *mut u8 {
        let end = std::ptr::from_ref(self).wrapping_add(1).cast_mut();
        end.cast::<u8>().wrapping_sub(self.size)
    }

    /// Prepares the shell to run `f`, which is moved to the stack, or to the heap if it is large.
    ///
    /// # Safety
    /// The caller must own the shell; the borrows of `f` must live until it has run. If it
    /// `migrates`, `f` must hold nothing of its thread over a wait.
    pub(super) unsafe fn set_up<F: FnOnce() + Send>(&self, migrates: bool, f: F) {
        self.host.set(null());
        self.migrates.set(migrates);
        if size_of::<F>() > self.size / 8 || align_of::<F>() > 64 {
            // SAFETY: the caller's promise.
            unsafe { self.place(Box::new(f)) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.place(f) };
        }
    }

    /// As [`Light::set_up`], for a closure that fits.
    ///
    /// # Safety
    /// As there.
    unsafe fn place<F: FnOnce() + Send>(&self, f: F) {
        let top = std::ptr::from_ref(self).cast_mut().cast::<u8>();
        let captured = top.wrapping_sub(size_of::<F>().next_multiple_of(64));
        let me = captured.wrapping_sub(64).cast::<*const Self>();
        // SAFETY: the memory lies at the top of an unused stack.
        unsafe {
            captured.cast::<F>().write(f);
            me.write(self);
            self.context
                .set(prepare(me.cast(), first_instruction as *const () as usize));
        }
        self.captured.set(captured);
        self.local.set(0);
        self.token.reset();
        self.belong_here();
        self.count_life();
        self.run.set(Some(run::<F>));
    }

    pub(crate) fn task_ref(&self) -> TaskRef {
        // SAFETY: shells live for ever; the task is the first field.
        unsafe { TaskRef::new(NonNull::from(self).cast()) }
    }

    /// Undoes the preparation of a park. If a waker has claimed the task, waits for the push that
    /// follows.
    pub(crate) fn stay(&'static self) {
        if !self.task.claim(Wake::Retry) {
            park(self);
        }
    }

    /// Returns the light thread of a task.
    fn of(task: TaskRef) -> &'static Self {
        // SAFETY: every task in the queues of hosts is the first field of a Light.
        unsafe { &*task.as_ptr().cast::<Self>() }
    }

    /// Returns the light thread of a link.
    pub(super) fn of_letter(letter: NonNull<Link>) -> &'static Self {
        // SAFETY: every link in an inbox is that field of a Light.
        unsafe { &*letter.as_ptr().byte_sub(offset_of!(Self, letter)).cast() }
    }

    /// Returns its link, with the provenance of the whole.
    pub(super) fn letter(&'static self) -> NonNull<Link> {
        let at = std::ptr::from_ref(self).cast_mut();
        // SAFETY: a field of `self`, so not null.
        unsafe { NonNull::new_unchecked(&raw mut (*at).letter) }
    }

    /// Returns the host that it must run on; `None` if it may run on any. Called by the claimer of
    /// the task, so that the light thread has begun and waits.
    #[inline(always)]
    fn home(&self) -> Option<&'static Host> {
        if self.migrates.get() {
            None
        } else {
            Some(self.host())
        }
    }

    /// Returns its host; called on the light thread itself, or by the claimer of its task.
    #[inline(always)]
    fn host(&self) -> &'static Host {
        // SAFETY: set before it runs; hosts live for ever.
        unsafe { &*self.host.get() }
    }
}

/// Calls and consumes the closure in `captured`.
///
/// # Safety
/// `captured` must hold an `F` that nothing else reads.
unsafe fn run<F: FnOnce()>(captured: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { captured.cast::<F>().read()() }
}

raddle_arch::first_instruction_with_argument! {
    /// The first instruction of a light thread: its address is at the stack pointer.
    first_instruction => main
}

extern "C" fn main(light: &'static Light) -> ! {
    if let Some(run) = light.run.take() {
        // SAFETY: `set_up` wrote both.
        unsafe { run(light.captured.get()) };
    }
    light.count_life();
    let host = light.host();
    if host.put_free(light) {
        // Only this host takes from its free list, after the switch.
        match host.take_follower() {
            Some(next) => switch_to(light, host, next),
            None => leave(light),
        }
    } else {
        if let Turn::Now(follower) | Turn::Queued(follower) = host.follower.take(false) {
            host.wake_next(follower);
        }
        host.dead.set(Some(light));
        leave_for_loop(light, host);
    }
    unreachable!("a light thread came back after its end")
}

/// A green thread that runs light threads.
#[repr(C)]
pub(super) struct Host {
    /// The part that the runtime sees. Its queue has the light threads that have not begun, and
    /// those that migrate.
    control: HostControl,
    /// Runnable light threads that have begun here.
    own: Own,
    /// The bit of a `futex(2)` that it sleeps with; other hosts may have the same.
    bit: u32,
    light: Cell<Option<&'static Light>>,
    /// The loop's context while a light thread runs.
    context: Cell<Context>,
    /// Written by the switch from the loop; not read.
    loop_on_cpu: Cell<u32>,
    /// The light thread that the loop must run next.
    next: Cell<Option<&'static Light>>,
    /// A light thread that has ended, with a shell that the host doesn't keep.
    dead: Cell<Option<&'static Light>>,
    /// The light thread that an ending one has woken, for this host only.
    follower: Follower,
    free: Cell<Option<&'static Light>>,
    free_count: Cell<u32>,
    /// Looks for a light thread to run, counted. Stored by the host, read by the watch.
    picks: AtomicU32,
    /// The value of `picks` that the watch has read last; the watch's own.
    seen_picks: AtomicU32,
}

// SAFETY: cells are the host thread's own; the rest is made to be shared.
unsafe impl Sync for Host {}

thread_local! {
    static HOST: Cell<Option<&'static Host>> = const { Cell::new(None) };
}

impl Host {
    pub(super) fn new(index: usize) -> Self {
        Self {
            control: HostControl::new(&GROUP.control),
            own: Own::new(),
            bit: 1 << (index % 32),
            light: Cell::new(None),
            context: Cell::new(null_mut()),
            loop_on_cpu: Cell::new(0),
            next: Cell::new(None),
            dead: Cell::new(None),
            follower: Follower::new(),
            free: Cell::new(None),
            free_count: Cell::new(0),
            picks: AtomicU32::new(0),
            seen_picks: AtomicU32::new(0),
        }
    }

    /// Returns the calling thread's host; `None` on other threads.
    #[inline(never)]
    pub(super) fn current() -> Option<&'static Self> {
        HOST.with(Cell::get)
    }

    /// Returns the queue of light threads that any host may run.
    #[inline(always)]
    pub(super) fn queue(&self) -> &RunQueue {
        &self.control.queue
    }

    /// Returns the light threads that only this host may run.
    pub(super) fn own(&self) -> &Own {
        &self.own
    }

    /// Returns the host's futex bit.
    pub(super) fn bit(&self) -> u32 {
        self.bit
    }

    /// Returns the light thread that runs on it.
    #[inline(always)]
    pub(super) fn light(&self) -> Option<&'static Light> {
        self.light.get()
    }

    /// Drops the waiting light threads, which don't exist in the child of a fork.
    pub(super) fn forget_others(&self) {
        #[rustfmt::skip]
        let Self {
            control, own,
            // What this host runs, and what it has for itself:
            bit: _, light: _, context: _, loop_on_cpu: _, next: _, dead: _, follower: _, free: _,
            free_count: _, picks: _, seen_picks: _,
        } = self;
        while self.queue().take_lifo().is_some() || self.queue().pop_ring().is_some() {}
        own.clear();
        control.left.store(0, Ordering::Relaxed);
    }

    /// Returns true if the runtime has counted the host out.
    pub(super) fn has_left(&self) -> bool {
        self.control.left.load(Ordering::Relaxed) != 0
    }

    /// Returns true if it has looked for a light thread to run since the last call. Called by the
    /// watch.
    pub(super) fn has_picked(&self) -> bool {
        let picks = self.picks.load(Ordering::Relaxed);
        self.seen_picks.swap(picks, Ordering::Relaxed) != picks
    }

    /// Gives the light threads that any host may run to all hosts. May be called on any thread.
    pub(super) fn shed(&self) {
        while let Some(task) = self.queue().take_lifo().or_else(|| self.queue().pop_ring()) {
            GROUP.control.injector.push(task);
        }
    }

    /// Counts one more look. Returns the new count.
    #[inline(always)]
    fn count_pick(&self) -> u32 {
        let picks = self.picks.load(Ordering::Relaxed).wrapping_add(1);
        self.picks.store(picks, Ordering::Relaxed);
        picks
    }

    /// Takes a shell of the usual size from this host's free list.
    pub(super) fn take_free(&self) -> Option<&'static Light> {
        let light = self.free.take()?;
        self.free.set(light.link.take());
        self.free_count.set(self.free_count.get() - 1);
        Some(light)
    }

    /// Keeps the shell of a light thread that ends. Returns false if there is no room.
    fn put_free(&self, light: &'static Light) -> bool {
        if light.size != super::STACK_SIZE || self.free_count.get() == KEEP {
            return false;
        }
        light.link.set(self.free.take());
        self.free.set(Some(light));
        self.free_count.set(self.free_count.get() + 1);
        true
    }

    /// Gives the shell of an ended light thread, and half of this host's free list, to all hosts.
    fn recycle(&self, dead: &'static Light) {
        let surplus = self.free_count.get().saturating_sub(KEEP / 2);
        let own = std::iter::from_fn(|| self.take_free()).take(surplus as usize);
        stack::give_back(std::iter::once(dead).chain(own));
    }

    /// Queues a light thread that any host may run behind all others here. Called on the host's
    /// thread.
    fn push(&self, task: TaskRef) {
        if let Some(overflow) = self.control.queue.push(task) {
            GROUP.control.injector.push_all(overflow);
        }
        if self.control.queue.ring_len() > 1 {
            GROUP.wake_one();
        }
    }

    /// Makes a claimed light thread runnable; next, if this host may run it. Called on the host's
    /// thread.
    #[inline(always)]
    fn wake_next(&self, task: TaskRef) {
        match Light::of(task).home() {
            Some(home) if std::ptr::eq(home, self) => self.own.push_next(task),
            Some(home) => home.deliver(task),
            None => {
                if let Some(displaced) = self.control.queue.push_lifo(task) {
                    self.push(displaced);
                }
            }
        }
    }

    /// Makes a claimed light thread of this host runnable. Called on another thread.
    fn deliver(&self, task: TaskRef) {
        if self.own.put(Light::of(task)) {
            GROUP.wake_host(self);
        }
    }

    /// Takes a light thread to run.
    #[inline(always)]
    fn pick(&self) -> Option<&'static Light> {
        let picks = self.count_pick();
        if picks.is_multiple_of(FAIRNESS) {
            return self.pick_fairly();
        }
        if let Some(task) = self.own.take_next() {
            return Some(Light::of(task));
        }
        // Light threads that have begun here and those that have not take turns.
        let any = || self.control.queue.take_lifo();
        let any = || any().or_else(|| self.control.queue.pop_ring());
        let task = match picks & 1 {
            0 => self.own.pop().or_else(any),
            _ => any().or_else(|| self.own.pop()),
        };
        task.or_else(|| self.take_injected()).map(Light::of)
    }

    /// As [`Host::pick`], for light threads that only this host may run.
    fn pick_own(&self) -> Option<&'static Light> {
        self.count_pick();
        let task = self.own.take_next().or_else(|| self.own.pop());
        task.map(Light::of)
    }

    /// Takes the follower of the ending light thread, to run it now. Returns `None` if others have
    /// waited for long, or if the follower is still on another host: then it is the next one here.
    #[inline(always)]
    fn take_follower(&self) -> Option<&'static Light> {
        let picks = self.picks.load(Ordering::Relaxed).wrapping_add(1);
        match self.follower.take(!picks.is_multiple_of(FAIRNESS)) {
            Turn::Nobody => None,
            Turn::Now(task) => {
                self.picks.store(picks, Ordering::Relaxed);
                Some(Light::of(task))
            }
            Turn::Queued(task) => {
                self.wake_next(task);
                None
            }
        }
    }

    /// As [`Host::pick`], but light threads that have waited long come first.
    #[cold]
    fn pick_fairly(&self) -> Option<&'static Light> {
        GROUP.rescue();
        if timers::has_any() {
            timers::expire();
        }
        let injected = || GROUP.control.injector.pop();
        let queued = || self.control.queue.pop_ring();
        let own = || self.own.pop();
        let task = match self.picks.load(Ordering::Relaxed) / FAIRNESS % 2 {
            0 => injected().or_else(queued).or_else(own),
            _ => own().or_else(queued).or_else(injected),
        };
        let last = || self.control.queue.take_lifo();
        task.or_else(last)
            .or_else(|| self.own.take_next())
            .map(Light::of)
    }

    fn take_injected(&self) -> Option<TaskRef> {
        const SHARE: usize = 32;
        if GROUP.control.injector.is_empty() {
            return None;
        }
        let taken = GROUP.control.injector.pop_some(SHARE);
        let first = taken.pop();
        while let Some(task) = taken.pop() {
            self.push(task);
        }
        first
    }

    /// Notes in host and light thread that `next` is about to run here.
    #[inline(always)]
    fn enter(&self, next: &'static Light) {
        next.task.on_cpu.store(1, Ordering::Relaxed);
        next.host.set(self);
        self.light.set(Some(next));
    }

    /// The host's thread: finds and runs light threads, for ever.
    pub(super) fn work(&'static self) -> ! {
        HOST.with(|host| host.set(Some(self)));
        crate::runtime::set_host(&self.control);
        GROUP.is_born();
        timers::host_works();
        loop {
            let next = self.next.take().unwrap_or_else(|| self.find());
            let mut looks = 0;
            while next.task.on_cpu.load(Ordering::Acquire) != 0 {
                looks += 1;
                if looks % 100 == 0 {
                    std::thread::yield_now(); // its host may not be running
                }
                std::hint::spin_loop();
            }
            let _ = GROUP.ensure_spare_host(); // else a host blocked in libc keeps its place
            self.control.lends.store(1, Ordering::Relaxed);
            self.enter(next);
            let on_cpu = self.loop_on_cpu.as_ptr();
            // SAFETY: `next` was popped and is off its stack; the loop continues when a light
            // thread leaves without a successor.
            unsafe { switch_keep_fs(self.context.as_ptr(), next.context.get(), on_cpu) };
            if let Some(dead) = self.dead.take() {
                self.recycle(dead);
            }
        }
    }

    /// Waits until there is a light thread to run.
    fn find(&'static self) -> &'static Light {
        loop {
            self.come_back();
            if GROUP.has_surplus() {
                if let Some(light) = self.pick_own() {
                    return light; // no other host may run it
                }
                self.shed();
            } else if let Some(light) = self.pick().or_else(|| self.steal()) {
                return light;
            }
            if !timers::has_any() || !timers::expire() {
                GROUP.sleep(self);
            }
        }
    }

    fn steal(&'static self) -> Option<&'static Light> {
        GROUP.hosts().find_map(|other| {
            let is_other = !std::ptr::eq(other, self);
            let task = is_other.then(|| {
                self.control
                    .queue
                    .steal(&other.control.queue)
                    .or_else(|| other.control.queue.take_lifo())
            });
            task.flatten().map(Light::of)
        })
    }

    /// Counts this host in again if the runtime has counted it out. Returns true if so.
    #[inline(always)]
    fn come_back(&self) -> bool {
        self.control.left.load(Ordering::Relaxed) != 0 && self.count_again()
    }

    #[cold]
    fn count_again(&self) -> bool {
        self.control.left.store(0, Ordering::Relaxed);
        GROUP.control.count.enter();
        timers::host_works();
        true
    }
}
