//! Sleep and wake-up: one protocol for everything that sleeps until work is posted.
//!
//! A *sleeper* has nothing to do. A *poster* makes *work* that a sleeper should take. A sleeper
//! *announces* itself where posters look for sleepers ([`Announce`]): in a set, a count, a word. It
//! waits in the kernel on a [`Word`].
//!
//! To sleep ([`sleep`]; or [`prepare`], the wait, and a withdrawal):
//!
//! 1. Take a *ticket*: every wake-up from here on changes the word from the ticket's value.
//! 2. *Announce* itself (SeqCst).
//! 3. *Look again* at everything that posters publish (SeqCst).
//! 4. *Wait* while the word has the ticket's value, unless step 3 found work.
//! 5. *Withdraw* the announcement, unless a poster has taken it, and look at everything.
//!
//! To post:
//!
//! 1. *Publish* the work (SeqCst).
//! 2. *Look for a sleeper* (SeqCst). Without one nothing is left to do.
//! 3. *Take* the announcement, where it names the sleeper: one poster wakes each sleeper then.
//! 4. *Change* the sleeper's word, and call the kernel if a sleeper may wait on it.
//!
//! # No wake-up is lost
//!
//! 1. *Work or announcement is seen.* The sleeper announces and reads the work; the poster writes
//!    the work and looks for an announcement. All four are in the single order of SeqCst accesses.
//!    If the announcement comes before the poster's look, the poster finds a sleeper. Otherwise the
//!    publication comes before the sleeper's look, and the sleeper doesn't wait.
//! 2. *A sleeper that is found is awake or wakes.* The announcement releases, and the poster's look
//!    acquires: so the ticket happens before the change of the word. The kernel compares the word
//!    with the ticket under the lock of its queue: it refuses the wait, or the wake-up finds the
//!    sleeper in the queue.
//! 3. *A sleeper that is found may have been awake already*, and not have withdrawn. Its next
//!    announcement comes after its withdrawal, which comes after the poster's look, and so after
//!    the publication: the look that follows the announcement finds the work at the latest.
//! 4. *A late wake-up does no harm.* A poster may change the word long after its sleeper has gone
//!    on. A later sleep ends early then, and its sleeper looks once more.
//!
//! The protocol promises that one sleeper looks after a post. Whether a sleeper that finds more
//! work than it takes wakes another one is its user's rule.
//!
//! # Announcements and words
//!
//! | user | announcement | word |
//! |---|---|---|
//! | an engine's carriers, its spare carriers | an entry in an [`IdleSet`] | [`WakeWord`] |
//! | hosts of light threads | counted in an [`ActiveCount`] | [`SharedWakeWord`] |
//! | a pool's workers | a list under the pool's lock, which shows a [`Sign`] | [`WakeWord`] |
//! | the poller, sysmon on guard | an [`Announcement`]: there is one sleeper | an eventfd |
//! | sysmon that needn't look | a [`SysmonSleep`], with fences | an eventfd |
//! | the carrier of a bound thread | none: posters know the sleeper | [`WakeWord`] |
//!
//! Without an announcement, the word alone decides: the sleeper clears the word and then looks, the
//! poster publishes and then sets the word, each by a read-modify-write. The later of the two sees
//! what came before the earlier one.
//!
//! # Rejected
//!
//! - *One type with an announcement and a word in it*: hosts share one word, the poller waits in
//!   epoll, and a pool keeps its sleepers under a lock that it holds anyway.
//! - *An event count for all* (a counter that sleepers read and posters raise): a poster raises it
//!   at every post, and wakes any sleeper, not the one with the lowest id.
//! - *Fences instead of SeqCst accesses*: on x86-64 a fence costs as much as another locked
//!   operation, and the announcement and the publication are locked operations already.

mod active_count;
mod announcement;
pub mod idle;
mod searchers;
mod sign;
mod sysmon_sleep;
mod word;

pub use active_count::ActiveCount;
pub use announcement::Announcement;
pub use idle::IdleSet;
pub use searchers::Searchers;
pub use sign::Sign;
pub use sysmon_sleep::SysmonSleep;
pub use word::{SharedWakeWord, WakeWord};

/// How a sleeper announces itself where posters look for sleepers: see the module.
pub trait Announce {
    /// Announces the sleeper (SeqCst). Returns false if the caller must not sleep; then it has
    /// announced nothing.
    #[must_use]
    fn announce(&mut self) -> bool;

    /// Takes the announcement back, unless a poster has taken it.
    fn withdraw(&mut self);
}

/// The announcement of a sleeper that posters know: none.
pub struct Known;

impl Announce for Known {
    #[inline(always)]
    fn announce(&mut self) -> bool {
        true
    }

    #[inline(always)]
    fn withdraw(&mut self) {}
}

/// The word that a sleeper waits on: see the module.
pub trait Word {
    /// Returns the value that the sleeper waits with: every later wake-up changes the word from it.
    #[must_use]
    fn ticket(&self) -> u32;
}

/// Steps 1 to 3 of a sleeper. Returns the ticket to wait with, after which the caller withdraws;
/// `None` if the caller must not wait: then it has withdrawn. `finds_work` looks at everything that
/// posters publish.
#[inline(always)]
#[must_use]
pub fn prepare(
    word: &impl Word,
    sleeper: &mut impl Announce,
    finds_work: impl FnOnce() -> bool,
) -> Option<u32> {
    let ticket = word.ticket();
    if !sleeper.announce() {
        return None;
    }
    if finds_work() {
        sleeper.withdraw();
        return None;
    }
    Some(ticket)
}

/// All steps of a sleeper; `wait` waits in the kernel while the word has this value.
#[inline(always)]
pub fn sleep(
    word: &impl Word,
    sleeper: &mut impl Announce,
    finds_work: impl FnOnce() -> bool,
    wait: impl FnOnce(u32),
) {
    if let Some(ticket) = prepare(word, sleeper, finds_work) {
        wait(ticket);
        sleeper.withdraw();
    }
}
