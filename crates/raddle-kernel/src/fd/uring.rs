//! `io_uring_enter(2)` by programs that wait for completions there.
//!
//! A ring's descriptor is readable when completions are ready, so a wait for one is a wait in the
//! pump. A wait for several at once blocks on a helper.

use crate::fd::helped;
use crate::fd::poll::{TemporaryMask, ask_about};
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::user::User;
use raddle_engine::clock::now_ns;
use raddle_engine::pump::IN;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::{EventsArg, Timespec};
use raddle_sys::{err, errno, is_err, syscall6};

const GETEVENTS: u32 = 1;
const SQ_WAKEUP: u32 = 2;
const SQ_WAIT: u32 = 4;
const EXT_ARG: u32 = 8;
/// The flags that are handled here. Others name a ring by an index that only its own thread has
/// (IORING_ENTER_REGISTERED_RING), or make time limits absolute or arguments registered.
const KNOWN: u32 = GETEVENTS | SQ_WAKEUP | SQ_WAIT | EXT_ARG;

/// `io_uring_enter(2)`.
pub extern "C" fn io_uring_enter(frame: &Frame) -> Outcome {
    let (ring, least, flags) = (frame.arg(0), frame.word(2), frame.word(3));
    if !is_multiplexed() || flags & GETEVENTS == 0 || least == 0 || flags & !KNOWN != 0 {
        return Outcome::PASS;
    }
    if least > 1 {
        return helped::on_helper(frame);
    }
    let mut args = frame.args();
    args[2] = 0;
    let (mut submitted, mut limits) = (None, None);
    loop {
        let Some(entry) = PROCESS.pump.entry(ring as u32) else {
            return Outcome::PASS;
        };
        let sequence = entry.sequence();
        // SAFETY: the program's own call, without the wait.
        let result = unsafe { syscall6(frame.number(), args) };
        if is_err(result) && submitted.is_none() {
            return Outcome::of(result);
        }
        let total = *submitted.get_or_insert(result);
        args[1] = 0; // what was submitted isn't submitted again
        let ended = |errno| Outcome::of(if total > 0 { total } else { errno });
        if ask_about(ring, IN as i16) != 0 {
            return Outcome::of(total);
        }
        if limits.is_none() {
            match limits_of(frame) {
                Ok(both) => limits = Some(both),
                Err(errno) => return ended(errno),
            }
        }
        let Some((deadline_ns, mask)) = &limits else {
            continue;
        };
        if mask.lets_through() {
            return ended(err(errno::EINTR));
        }
        let thread = Carrier::current().thread();
        let shown = if *deadline_ns == NEVER {
            0
        } else {
            *deadline_ns
        };
        thread.waits_for(WaitKind::FD_READ, ring, shown);
        match PROCESS
            .pump
            .wait_one(ring as u32, IN, sequence, *deadline_ns)
        {
            Ok(Wake::TimedOut) => return ended(err(errno::ETIME)),
            Ok(Wake::Signalled) if mask.deliver() => {
                return ended(err(errno::EINTR));
            }
            Ok(_) => {}
            Err(_) => return Outcome::PASS,
        }
    }
}

/// Returns the call's deadline and its mask, read in the kernel's order.
fn limits_of(frame: &Frame) -> Result<(u64, TemporaryMask), isize> {
    let (mut deadline_ns, mut mask, mut bytes) = (NEVER, frame.arg(4), frame.arg(5));
    if frame.word(3) & EXT_ARG != 0 {
        if bytes != size_of::<EventsArg>() {
            return Err(err(errno::EINVAL));
        }
        let extended = frame.user::<EventsArg>(4).read()?;
        (mask, bytes) = (extended.mask as usize, extended.mask_len as usize);
        if extended.time != 0 {
            let time = User::<Timespec>::at(extended.time as usize).read()?;
            // An invalid time has passed, as the kernel's timers take it.
            let left_ns = time.to_ns().unwrap_or(0);
            deadline_ns = now_ns().saturating_add(left_ns).min(NEVER - 1);
        }
    }
    Ok((deadline_ns, TemporaryMask::set(User::at(mask), bytes)?))
}
