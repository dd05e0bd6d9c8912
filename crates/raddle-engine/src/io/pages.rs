//! The wait for a page of a file, by the ring of the thread's carrier: see
//! [`crate::scheduling::page_rings`].

use crate::scheduling::chaos::{self, Point};
use crate::scheduling::switch;
use crate::state::carrier::Carrier;
use crate::state::parts::pages::Pages;
use crate::state::process::PROCESS;
use raddle_sched::Wake;
use raddle_sched::requests::{End, Wait};

impl Pages {
    /// Waits until the byte at `offset` of a file is likely to be in memory; the running thread
    /// parks meanwhile, through signals. Returns true if the page should be there, false if it is
    /// to be waited for again; `None` if that can't be done here.
    pub fn wait(&self, fd: u32, offset: u64) -> Option<bool> {
        let carrier = Carrier::current();
        let own = self.own(carrier)?;
        let entry = PROCESS.pump.entry(fd)?;
        let thread = carrier.thread();
        let wait = Wait::new(thread.task_ref());
        thread.task.prepare();
        PROCESS.pump.hold(entry, fd);
        if !own.submit(fd, offset, &wait) {
            if !thread.task.claim(Wake::Retry) {
                let _ = switch::park(); // a signal or a close has pushed it
            }
            PROCESS.pump.let_go(entry);
            return None;
        }
        chaos::stop(Point::Helper);
        let mut outcome = switch::park();
        while outcome != Wake::Woken && !own.pages.is_over_or_prepares(&wait) {
            outcome = switch::park_through_signals();
        }
        PROCESS.pump.let_go(entry);
        own.pages.withdraw(&wait);
        match wait.outcome() {
            End::Done => Some(true),
            End::Adopted => Some(false),
            _ => None,
        }
    }
}
