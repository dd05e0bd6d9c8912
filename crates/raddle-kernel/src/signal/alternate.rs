//! Alternate signal stacks of green threads; the kernel's belong to carriers.

use crate::frame::{Frame, Outcome};
use crate::mode::is_virtual;
use crate::user::User;
use raddle_engine::signals::ThreadSignals;
use raddle_engine::{Carrier, Thread};
use raddle_sys::abi::StackT;
use raddle_sys::{err, errno, nr, sys};

const SS_ONSTACK: i32 = nr::SS_ONSTACK as i32;
const SS_DISABLE: i32 = nr::SS_DISABLE as i32;
/// SS_AUTODISARM: no alternate stack while a handler runs.
const SS_AUTODISARM: i32 = nr::SS_AUTODISARM as i32;
/// `MINSIGSTKSZ`.
const SMALLEST: usize = 2048;

/// Returns true if the stack pointer `sp` is on `stack`, so that another handler goes on there. A
/// handler enters a stack that disarms itself at its top each time.
pub fn is_on(stack: &StackT, sp: usize) -> bool {
    stack.flags & SS_AUTODISARM == 0 && sp > stack.sp && sp - stack.sp <= stack.size
}

/// Returns the top of the alternate stack if a handler with SA_ONSTACK starts there, from `sp`;
/// `None` if it goes on at `sp`.
pub fn top_for(thread: &Thread, sp: usize) -> Option<usize> {
    let stack = thread.signals.alternate.get();
    let is_free = stack.size != 0 && !is_on(&stack, sp);
    is_free.then(|| stack.sp.wrapping_add(stack.size))
}

/// Returns true unless `stack` is the top of `alternate`, or an address on it, and `at` is beyond
/// its end.
pub fn holds(alternate: &StackT, stack: usize, at: usize) -> bool {
    let is_there =
        |address: usize| address > alternate.sp && address - alternate.sp <= alternate.size;
    !is_there(stack) || is_there(at)
}

/// Enters a handler. Returns the alternate stack for its context.
pub fn enter(signals: &ThreadSignals) -> StackT {
    let stack = signals.alternate.get();
    if stack.flags & SS_AUTODISARM != 0 {
        signals.alternate.set(StackT::DISABLED);
    }
    stack
}

/// Restores the alternate stack from the context of a handler that has returned to the stack
/// pointer `sp`. As in the kernel, a stack that can't be changed stays as it is.
pub fn leave(signals: &ThreadSignals, stack: &StackT, sp: usize) {
    let _ = change(signals, stack, sp);
}

fn change(signals: &ThreadSignals, new: &StackT, sp: usize) -> Result<(), isize> {
    if is_on(&signals.alternate.get(), sp) {
        return Err(err(errno::EPERM));
    }
    match new.flags & !SS_AUTODISARM {
        SS_DISABLE => {
            signals.alternate.set(StackT {
                flags: new.flags,
                ..StackT::DISABLED
            });
        }
        0 | SS_ONSTACK if new.size < SMALLEST => return Err(err(errno::ENOMEM)),
        0 | SS_ONSTACK => signals.alternate.set(*new),
        _ => return Err(err(errno::EINVAL)),
    }
    Ok(())
}

/// Takes over the kernel's alternate stack of the only thread.
pub fn adopt(signals: &ThreadSignals) {
    let mut stack = StackT::DISABLED;
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_sigaltstack, 0usize, &raw mut stack) };
    stack.flags &= !SS_ONSTACK;
    signals.alternate.set(stack);
}

/// `sigaltstack(2)`.
pub extern "C" fn sigaltstack(frame: &Frame) -> Outcome {
    if !is_virtual() {
        return Outcome::PASS;
    }
    let (new, to) = (frame.user::<StackT>(0), frame.user::<StackT>(1));
    let signals = &Carrier::current().thread().signals;
    let (before, sp) = (signals.alternate.get(), frame.program_stack().addr());
    let changed = if new.is_null() {
        Ok(())
    } else {
        new.read().and_then(|new| change(signals, &new, sp))
    };
    let told = changed.and_then(|()| tell(to, &before, sp));
    Outcome::of(told.err().unwrap_or(0))
}

fn tell(to: User<StackT>, stack: &StackT, sp: usize) -> Result<(), isize> {
    if to.is_null() {
        return Ok(());
    }
    let now = match stack.size {
        0 => SS_DISABLE,
        _ if is_on(stack, sp) => SS_ONSTACK,
        _ => 0,
    };
    to.write(&StackT {
        flags: now | stack.flags & SS_AUTODISARM,
        pad: 0,
        ..*stack
    })
}

#[cfg(test)]
mod tests {
    use super::{SS_AUTODISARM, holds, is_on};
    use raddle_sys::abi::StackT;

    #[test]
    fn the_end_of_a_stack_is_on_it_and_its_beginning_is_not() {
        let stack = StackT {
            sp: 4096,
            flags: 0,
            pad: 0,
            size: 4096,
        };
        assert!(is_on(&stack, 8192) && is_on(&stack, 4097));
        assert!(!is_on(&stack, 4096) && !is_on(&stack, 8193));
        let disarmed = StackT {
            flags: SS_AUTODISARM,
            ..stack
        };
        assert!(!is_on(&disarmed, 8192));
        assert!(!is_on(&StackT::DISABLED, 64));
    }

    #[test]
    fn a_frame_that_leaves_its_alternate_stack_has_no_room() {
        let alternate = StackT {
            sp: 4096,
            flags: 0,
            pad: 0,
            size: 4096,
        };
        assert!(holds(&alternate, 8192, 4100) && !holds(&alternate, 8192, 4096));
        assert!(holds(&alternate, 65536, 60000) && holds(&alternate, 8300, 4000));
    }

    #[test]
    fn a_stack_that_wraps_holds_nothing_behind_the_end() {
        let stack = StackT {
            sp: usize::MAX - 100,
            flags: 0,
            pad: 0,
            size: 4096,
        };
        assert!(is_on(&stack, usize::MAX) && !is_on(&stack, 200));
    }
}
