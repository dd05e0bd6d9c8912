//! Vectors of `readv(2)` and its family, as the program passes them.

use crate::user;
use raddle_sys::abi::IoVec;

/// The most pieces that the kernel takes.
const MOST: usize = 1024;

/// True if the vector has bytes, as far as its first piece that isn't empty tells. Where it has
/// none, or can't be, the kernel answers at once.
#[inline(always)]
pub fn begins_well(vector: usize, count: usize) -> bool {
    let len = |index| piece(vector, index).map_or(usize::MAX, |piece| piece.len);
    let has_first = || (0..count).map(len).find(|&len| len != 0);
    count <= MOST && has_first().is_some_and(|len| len as isize > 0)
}

/// How many bytes the vector has; `None` if it has none or the kernel refuses it.
pub fn whole_len(vector: usize, count: usize) -> Option<usize> {
    if count > MOST {
        return None;
    }
    let add = |sum: usize, index| {
        let len = piece(vector, index).ok()?.len;
        sum.checked_add(len).filter(|_| len as isize >= 0)
    };
    let sum = (0..count).try_fold(0, add);
    sum.filter(|&sum| sum as isize > 0)
}

fn piece(vector: usize, index: usize) -> Result<IoVec, isize> {
    user::read(vector.wrapping_add(index * size_of::<IoVec>()))
}
