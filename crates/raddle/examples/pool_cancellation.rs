//! A search that many workers share. It ends as soon as one has found something, when the time is
//! over, or when the program as a whole is to end.
//!
//! Shows a linked cancellation source, a deadline, tasks that look at their token, a callback that
//! interrupts, and a disposal with a deadline.

use raddle::pool::{CancelSource, CancelToken, Cancelled, Options, Pending, Pool};
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How many numbers are tried between two looks at the token: often enough to stop soon, seldom
/// enough to cost nothing.
const STRIDE: usize = 1024;

/// The smallest divisor of `number` in `range`, unless the work is cancelled first.
fn divisor(number: u64, range: Range<u64>, token: &CancelToken) -> Result<Option<u64>, Cancelled> {
    let candidates: Vec<u64> = range.collect();
    for chunk in candidates.chunks(STRIDE) {
        token.check()?;
        if let Some(found) = chunk.iter().find(|&&small| number.is_multiple_of(small)) {
            return Ok(Some(*found));
        }
    }
    Ok(None)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    const NUMBER: u64 = 999_983 * 1_000_003;
    const PART: u64 = 50_000;

    let pool = Pool::builder().name("search").build()?;
    // Two sources, either of which ends the search: the program's, and the search's own.
    let program = CancelSource::new();
    let search = Arc::new(CancelSource::linked(&[&program.token()]));
    let deadline = pool.cancel_after(Duration::from_secs(10), &search)?;

    // A callback for work that can't look at a token: here it only says so.
    let _said = search.token().on_cancel(|| println!("the search is over"));

    let mut parts = Vec::new();
    for start in (2..1_000_000).step_by(PART as usize) {
        let (token, winner) = (search.token(), search.clone());
        // With the token in the options, parts that have not started never do.
        let part = pool.task_with(Options::new().token(&search.token()), move || {
            let found = divisor(NUMBER, start..start + PART, &token)?;
            if found.is_some() {
                winner.cancel();
            }
            Ok::<_, Cancelled>(found)
        });
        // The search can be over before all parts are queued.
        let Ok(part) = part else { break };
        parts.push(part);
    }

    let (mut found, mut stopped) = (None, 0);
    for part in parts {
        match part.wait() {
            Ok(Ok(divisor)) => found = found.or(divisor),
            Ok(Err(Cancelled)) | Err(_) => stopped += 1,
        }
    }
    deadline.cancel();
    println!("{NUMBER} is divisible by {found:?}; {stopped} parts were stopped or never began");

    let report = pool.dispose(Pending::Drop, Some(Duration::from_secs(1)));
    println!("workers still running: {}", report.still_running);
    Ok(())
}
