//! `select` and `pselect6`: sets of descriptors, by the waits of [`super`].

use super::{TemporaryMask, Waits, answer, limit_of, parks_with_mask, sleep_as_poll};
use super::{until_answered, wait_loop};
use crate::fd::{descriptors, helped};
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::user::User;
use raddle_engine::clock::now_ns;
use raddle_engine::thread::WaitKind;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno, nr, syscall6};

/// Words of a descriptor set that fit on the stack: 1024 descriptors.
const SET_WORDS: usize = 16;
type Set = [u64; SET_WORDS];

/// Returns the nanoseconds of a timeval: microseconds beyond a second count, too. `None` if the
/// kernel would answer EINVAL.
fn nanoseconds([sec, usec]: [u64; 2]) -> Option<u64> {
    const MILLION: i64 = 1_000_000;
    let (sec, usec) = (sec as i64, usec as i64);
    let time = Timespec {
        sec: sec.wrapping_add(usec / MILLION),
        nsec: usec % MILLION * 1000,
    };
    time.to_ns()
}

/// `select(2)`: the timeout is a timeval, updated to what is left.
pub extern "C" fn select(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let timeout = frame.user::<[u64; 2]>(4);
    if timeout.is_null() {
        return answer(select_until(frame, NEVER, &TemporaryMask::NONE));
    }
    let left_ns = match timeout.read() {
        Ok(parts) => nanoseconds(parts),
        Err(errno) => return Outcome::of(errno),
    };
    let deadline_ns = match left_ns {
        None => return Outcome::of(err(errno::EINVAL)),
        Some(0) => {
            let mut args = frame.args();
            args[0] = clamped(frame.word(0) as i32) as usize;
            // SAFETY: the program's own call.
            let ask = || unsafe { syscall6(frame.number(), args) };
            return Outcome::of(until_answered(ask));
        }
        Some(left_ns) => now_ns().saturating_add(left_ns).min(NEVER - 1),
    };
    let outcome = answer(select_until(frame, deadline_ns, &TemporaryMask::NONE));
    if !outcome.is_pass() {
        let left = deadline_ns.saturating_sub(now_ns());
        let _ = timeout.write(&[left / 1_000_000_000, left % 1_000_000_000 / 1000]);
    }
    outcome
}

/// `pselect6(2)`: its sixth argument points at the mask's address and size.
pub extern "C" fn pselect6(frame: &Frame) -> Outcome {
    let argument = frame.user::<[usize; 2]>(5);
    let mask = if argument.is_null() {
        Ok([0; 2])
    } else {
        argument.read()
    };
    if !parks_with_mask(mask.map_or(0, |[mask, _]| mask)) {
        return Outcome::PASS;
    }
    answer(mask.and_then(|[mask, bytes]| {
        let limit = limit_of(frame.user(4))?;
        let mask = TemporaryMask::set(User::at(mask), bytes)?;
        let outcome = answer(select_until(frame, limit.deadline_ns, &mask));
        Ok(limit.write_remaining(outcome))
    }))
}

fn select_until(frame: &Frame, deadline_ns: u64, mask: &TemporaryMask) -> Result<Outcome, isize> {
    let count = clamped(frame.word(0) as i32);
    if count < 0 {
        return Err(err(errno::EINVAL));
    }
    let words = (count as usize).div_ceil(64);
    if words > SET_WORDS {
        let mut args = frame.args();
        args[0] = count as usize;
        return Ok(helped::call_on_helper(frame, args));
    }
    let sets: [User<u64>; 3] = core::array::from_fn(|index| frame.user(1 + index));
    if count == 0 || sets.iter().all(|set| set.is_null()) {
        return Ok(sleep_as_poll(deadline_ns, mask));
    }
    let mut wanted = [[0u64; SET_WORDS]; 3];
    let mut total = 0;
    for (set, wanted) in sets.iter().zip(&mut wanted) {
        if !set.is_null() {
            set.read_all(&mut wanted[..words])?;
            total += wanted
                .iter()
                .map(|word| word.count_ones() as usize)
                .sum::<usize>();
        }
    }
    let Some(mut waits) = Waits::new(total) else {
        return Err(err(errno::ENOMEM));
    };
    for (set, events) in wanted.iter().zip([1u32, 4, 2]) {
        for fd in (0..count as u32).filter(|fd| set[*fd as usize / 64] >> (fd % 64) & 1 != 0) {
            waits.push(fd, events);
        }
    }
    let mut found = wanted;
    let ask = || {
        found = wanted;
        ask_sets(count, sets.map(|set| set.is_null()), &mut found)
    };
    let outcome = wait_loop(&mut waits, WaitKind::POLL, deadline_ns, mask, ask, |_| None);
    if outcome.value().is_some_and(|value| value >= 0) {
        for (set, found) in sets.iter().zip(&found).filter(|(set, _)| !set.is_null()) {
            set.write_all(&found[..words])?;
        }
    }
    Ok(outcome)
}

/// Returns how many descriptors `select` looks at if the program says `count`: at most the room of
/// the process's table, as it would be without the runtime's own descriptors. Programs that pass
/// the limit of descriptors have smaller sets.
fn clamped(count: i32) -> i32 {
    if (count as usize).div_ceil(64) > SET_WORDS && count > 0 {
        count.min(table_room().unwrap_or(i32::MAX))
    } else {
        count
    }
}

/// Returns the room of the program's table of descriptors: 64, or the power of two from 128 on that
/// its highest number needs (`alloc_fdtable` in `fs/file.c`). `None` without `/proc`.
#[cold]
fn table_room() -> Option<i32> {
    const LEAST: i32 = 64;
    const UNIT: u32 = 128;
    let highest = descriptors::highest()?;
    Some(if highest < LEAST as u32 {
        LEAST
    } else {
        ((highest / UNIT + 1).next_power_of_two() * UNIT) as i32
    })
}

/// Returns `select`'s answer about these sets now.
fn ask_sets(count: i32, absent: [bool; 3], sets: &mut [Set; 3]) -> isize {
    let now = [0u64; 2];
    let mut at = |index: usize| {
        if absent[index] {
            0
        } else {
            (&raw mut sets[index]).expose_provenance()
        }
    };
    let (r, w, e) = (at(0), at(1), at(2));
    let limit = (&raw const now).expose_provenance();
    // SAFETY: live sets, which the kernel reads and fills, and a live timeout.
    unsafe { syscall6(nr::__NR_pselect6, [count as usize, r, w, e, limit, 0]) }
}
