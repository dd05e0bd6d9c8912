//! The group of hosts: which work, which sleep, and when more are made.
//!
//! A host is *active* unless it sleeps or has *left*: its light thread blocked in libc, and the
//! runtime counted the host out and woke another. As many hosts may be active as there are
//! carriers; a host that comes back and finds its place taken hands its light thread over and
//! sleeps. A host that is about to run a light thread while no other sleeps makes a new one first,
//! so that there is always one to take a place.
//!
//! Hosts sleep and are woken by the protocol of [`raddle_sched::wake`]. A host announces itself in
//! its inbox ([`super::inbox`]) and in the count of the group; its word is the group's. What it
//! looks at again is whether there is work and a place for it.
//!
//! A waker of a light thread that only one host may run finds that host by its inbox: each host
//! waits with one bit, which it shares with few others, and those look and sleep again. Such a host
//! works whether there is a place for it or not.
//!
//! Light threads in a ring behind others are not posted in this sense: their host is awake. It
//! wakes another one for them if it sees a sleeper, and the watch does so otherwise.

use super::host::Host;
use super::timers::{self, now_ns};
use crate::futex;
use crate::runtime;
use crate::thread::Builder;
use raddle_interface::GroupControl;
use raddle_sched::timers::NEVER;
use raddle_sched::wake::{self, Announce};
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The most hosts of a process.
const MOST: usize = 1 << 14;
/// A host's stack in bytes; light threads don't run on it.
const HOST_STACK: usize = 64 << 10;
/// Period of the watch's looks at the hosts while any works.
const WATCH_NS: u64 = 5_000_000;

/// The state of the group: see the module.
pub(super) struct Group {
    /// The part that the runtime sees.
    pub(super) control: GroupControl,
    hosts: [AtomicPtr<Host>; MOST],
    count: AtomicU32,
    /// Hosts that may be active beyond the number of carriers.
    extra: AtomicU32,
    /// 1 while a host is being made.
    breeding: AtomicU32,
    /// A host without a thread, since none could be made; it has its place among the hosts. Null
    /// if there is none. Stored and taken while `breeding` is 1.
    spare: AtomicPtr<Host>,
    /// 1 once there is a watch.
    is_watched: AtomicU32,
    /// The number of forks between the first process and this one. Stored in the child of a fork;
    /// read by makers of light threads and by tools.
    pub(super) epoch: AtomicU64,
}

/// The process's hosts.
pub(super) static GROUP: Group = Group {
    control: GroupControl::new(),
    hosts: [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST],
    count: AtomicU32::new(0),
    extra: AtomicU32::new(0),
    breeding: AtomicU32::new(0),
    spare: AtomicPtr::new(std::ptr::null_mut()),
    is_watched: AtomicU32::new(0),
    epoch: AtomicU64::new(0),
};

/// Makes the first host, once.
#[inline(always)]
pub(super) fn start() -> io::Result<()> {
    let is_watched = GROUP.is_watched.load(Ordering::Relaxed) != 0;
    if is_watched && GROUP.count.load(Ordering::Acquire) != 0 {
        Ok(())
    } else {
        start_first()
    }
}

#[cold]
fn start_first() -> io::Result<()> {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        super::fork::watch();
        super::places::publish();
    });
    ensure_watch()?;
    if GROUP.count.load(Ordering::Acquire) == 0 {
        GROUP.ensure_spare_host()?;
    }
    Ok(())
}

/// Makes the watch, once.
pub(super) fn ensure_watch() -> io::Result<()> {
    if GROUP.is_watched.load(Ordering::Relaxed) != 0
        || GROUP.is_watched.swap(1, Ordering::AcqRel) != 0
    {
        return Ok(());
    }
    let made = Builder::new().name("raddle-watch").spawn(watch);
    if made.is_err() {
        GROUP.is_watched.store(0, Ordering::Release);
    }
    made.map(drop)
}

/// Makes a host. It sleeps, or works if there is work.
fn add_host() -> io::Result<()> {
    let host = GROUP.new_host()?;
    GROUP.control.count.enter();
    // Without a name: a named thread is std's, and its first step waits for a `dlopen` under way.
    let made = Builder::new().stack_size(HOST_STACK).spawn(move || {
        // SAFETY: the calling thread, and a string of less than 16 bytes.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), c"raddle-host".as_ptr()) };
        host.work();
    });
    if made.is_err() {
        GROUP.control.count.leave();
        let at = std::ptr::from_ref(host).cast_mut();
        GROUP.spare.store(at, Ordering::Release); // others may look at it, so it stays
    }
    made.map(|_| ())
}

impl Group {
    /// Returns a host without a thread.
    fn new_host(&self) -> io::Result<&'static Host> {
        let spare = self.spare.swap(std::ptr::null_mut(), Ordering::Acquire);
        // SAFETY: null or a host, which lives for ever; it has no thread.
        if let Some(host) = unsafe { spare.as_ref() } {
            return Ok(host);
        }
        let index = self.count.fetch_add(1, Ordering::AcqRel) as usize;
        if index >= MOST {
            self.count.store(MOST as u32, Ordering::Release);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let host: &'static Host = Box::leak(Box::new(Host::new(index)));
        let at = std::ptr::from_ref(host).cast_mut();
        self.hosts[index].store(at, Ordering::Release); // before it can have anything to steal
        Ok(host)
    }

    /// Returns how many hosts may be active.
    fn limit(&self) -> u32 {
        let places = match runtime::carriers() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            carriers => carriers,
        };
        places as u32 + self.extra.load(Ordering::Relaxed)
    }

    /// Returns true if too many hosts are active.
    pub(super) fn has_surplus(&self) -> bool {
        self.control.count.active() > self.limit()
    }

    /// Returns all hosts.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &'static Host> {
        let count = (self.count.load(Ordering::Acquire) as usize).min(MOST);
        self.hosts[..count].iter().filter_map(|host| {
            // SAFETY: null or a host, which lives for ever.
            unsafe { host.load(Ordering::Acquire).as_ref() }
        })
    }

    /// Returns true if a light thread waits for a host.
    fn has_work(&self) -> bool {
        !self.control.injector.is_empty() || self.hosts().any(|host| !host.queue().is_empty())
    }

    /// Wakes a sleeping host if there is a place for it.
    pub(super) fn wake_one(&self) {
        if self.control.count.wants_one(|| self.limit()) {
            self.control.word.change();
            futex::wake(self.control.word.futex().as_ptr().expose_provenance());
        }
    }

    /// Wakes a host that has announced its sleep, for work that only it may run.
    #[cold]
    pub(super) fn wake_host(&self, host: &Host) {
        self.control.word.change();
        let word = self.control.word.futex().as_ptr().expose_provenance();
        futex::wake_bits(word, host.bit());
    }

    /// Sleeps on the host's thread until there may be work.
    pub(super) fn sleep(&self, host: &Host) {
        let word = &self.control.word;
        let mut sleeper = Sleeper { group: self, host };
        let finds_work = || self.control.count.active() < self.limit() && self.has_work();
        wake::sleep(word, &mut sleeper, finds_work, |ticket| {
            futex::wait_bits(word.futex(), ticket, host.bit());
        });
        timers::host_works();
    }

    /// Gives the queues of hosts that have left to all others.
    pub(super) fn rescue(&self) {
        if self.control.stranded.load(Ordering::Relaxed) == 0
            || self.control.stranded.swap(0, Ordering::SeqCst) == 0
        {
            return;
        }
        let left = self.hosts().filter(|host| host.has_left());
        left.for_each(Host::shed);
    }

    /// Makes `own` the only host, or leaves none.
    ///
    /// # Safety
    /// Must be called in the child of a fork, before it has a second thread.
    pub(super) unsafe fn forget_others(&self, own: Option<&'static Host>) {
        let Self {
            control,
            hosts,
            count: hosts_count,
            extra,
            breeding,
            spare,
            is_watched,
            epoch,
        } = self;
        epoch.fetch_add(1, Ordering::Relaxed);
        spare.store(std::ptr::null_mut(), Ordering::Relaxed); // its place is another's
        // SAFETY: the caller's promise.
        unsafe { control.injector.reset() };
        for counter in [&control.stranded, extra, breeding, is_watched] {
            counter.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { timers::forget() };
        let count = u32::from(own.is_some());
        control.count.reset(count);
        hosts_count.store(count, Ordering::Relaxed);
        if let Some(own) = own {
            own.forget_others();
            own.light().inspect(|light| light.belong_here());
            hosts[0].store(std::ptr::from_ref(own).cast_mut(), Ordering::Relaxed);
        }
    }

    /// Notes that a new host looks for its first light thread.
    pub(super) fn is_born(&self) {
        self.breeding.store(0, Ordering::SeqCst);
    }

    /// Makes a host if none sleeps and none is being made: there must be one to take the place of a
    /// host that blocks.
    pub(super) fn ensure_spare_host(&self) -> io::Result<()> {
        if self.control.count.has_sleepers() || self.breeding.swap(1, Ordering::SeqCst) != 0 {
            return Ok(());
        }
        add_host().inspect_err(|_| self.is_born())
    }
}

/// A host that announces its sleep to wakers of light threads that only it may run, and to those of
/// all others.
struct Sleeper<'a> {
    group: &'a Group,
    host: &'a Host,
}

impl Announce for Sleeper<'_> {
    fn announce(&mut self) -> bool {
        self.host.own().announce_sleep() && (&self.group.control.count).announce()
    }

    fn withdraw(&mut self) {
        (&self.group.control.count).withdraw();
        self.host.own().withdraw_sleep();
    }
}

/// Looks at the hosts. Returns true if one of them has looked for work since the last time. A host
/// that has not, since its light thread computes or blocks where no runtime sees it, gives its
/// queue to all others.
fn look() -> bool {
    let mut any = false;
    for host in GROUP.hosts() {
        if host.has_picked() {
            any = true
        } else {
            host.shed()
        }
    }
    any
}

/// The watch's thread. Looks at the hosts while any works: light threads that wait while a place is
/// free get a host; if no host has looked for work during a whole period although some waits, there
/// is one place more. Also expires deadlines.
fn watch() {
    let is_idle = || GROUP.control.count.active() == 0;
    look();
    let mut look_ns = now_ns() + WATCH_NS;
    loop {
        timers::nap(look_ns, is_idle);
        timers::expire();
        if look_ns == NEVER && !is_idle() {
            look();
            look_ns = now_ns() + WATCH_NS;
        }
        if now_ns() < look_ns {
            continue;
        }
        let have_looked = look();
        let has_work = GROUP.has_work();
        if has_work && !have_looked {
            GROUP.extra.fetch_add(1, Ordering::SeqCst);
        } else {
            GROUP.extra.store(0, Ordering::SeqCst);
        }
        if has_work {
            GROUP.wake_one();
        }
        look_ns = if has_work || !is_idle() {
            now_ns() + WATCH_NS
        } else {
            NEVER
        };
    }
}
