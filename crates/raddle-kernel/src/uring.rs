//! `io_uring_enter(2)` by programs that wait for completions there.
//!
//! A ring's descriptor is readable when completions are ready, so a wait for one is a wait in the
//! pump. A wait for several at once blocks on a helper.

use crate::boundary::{Frame, Outcome};
use crate::poll::ask_about;
use crate::signal::{self, Delivered};
use crate::time::relative_deadline;
use crate::user;
use crate::{helped, is_multiplexed};
use raddle_engine::pump::IN;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::{err, errno, is_err, syscall6};

const GETEVENTS: usize = 1;
const EXT_ARG: usize = 8;
/// The ring is named by an index that only its own thread has.
const REGISTERED_RING: usize = 16;

/// `io_uring_enter(2)`.
pub extern "C" fn io_uring_enter(frame: &Frame) -> Outcome {
    let [ring, _, minimum, flags, ..] = frame.args();
    if !is_multiplexed() || flags & GETEVENTS == 0 || minimum == 0 {
        return Outcome::PASS;
    }
    if flags & REGISTERED_RING != 0 {
        return Outcome::PASS;
    }
    if minimum > 1 {
        return helped::on_helper(frame);
    }
    let deadline_ns = match deadline(frame) {
        Ok(deadline_ns) => deadline_ns,
        Err(errno) => return Outcome::of(errno),
    };
    let mut args = frame.args();
    args[2] = 0;
    let mut submitted = None;
    loop {
        let Some(entry) = ENGINE.pump.entry(ring as u32) else {
            return Outcome::PASS;
        };
        let sequence = entry.sequence();
        // SAFETY: the program's own call, without the wait.
        let result = unsafe { syscall6(frame.rax as u32, args) };
        if is_err(result) && submitted.is_none() {
            return Outcome::of(result);
        }
        let total = *submitted.get_or_insert(result);
        args[1] = 0; // what was submitted isn't submitted again
        if ask_about(ring, IN as i16) != 0 {
            return Outcome::of(total);
        }
        let thread = Carrier::current().thread();
        thread.waits_for(
            WaitKind::Read,
            ring,
            if deadline_ns == NEVER { 0 } else { deadline_ns },
        );
        match ENGINE.pump.wait_one(ring as u32, IN, sequence, deadline_ns) {
            Ok(Wake::TimedOut) => return Outcome::of(err(errno::ETIME)),
            Ok(Wake::Signalled) if signal::deliver() != Delivered::Nothing => {
                return Outcome::of(if total > 0 { total } else { err(errno::EINTR) });
            }
            Ok(_) => {}
            Err(_) => return Outcome::PASS,
        }
    }
}

/// The timeout in `struct io_uring_getevents_arg`, if there is one.
fn deadline(frame: &Frame) -> Result<u64, isize> {
    if frame.arg(3) & EXT_ARG == 0 || frame.arg(4) == 0 {
        return Ok(NEVER);
    }
    let [_mask, _size, timeout] = user::read::<[u64; 3]>(frame.arg(4))?;
    relative_deadline(timeout as usize)
}
