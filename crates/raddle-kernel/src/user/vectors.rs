//! Vectors of `readv(2)` and its family, as the program passes them.

use super::{USUAL_END, User};
use crate::user;
use core::mem::MaybeUninit;
use raddle_sys::abi::IoVec;
use raddle_sys::mem;

/// Pieces that the kernel takes at once (`UIO_MAXIOV`).
pub(crate) const MOST_PIECES: usize = 1024;

/// Returns true if the vector has bytes, as far as its first piece that isn't empty tells. The
/// kernel answers at once for a vector without bytes or with an impossible length.
#[inline(always)]
pub fn begins_well(vector: User<IoVec>, count: usize) -> bool {
    let len = |index| {
        let piece = vector.index(index).read();
        piece.map_or(usize::MAX, |piece: IoVec| piece.len)
    };
    count <= MOST_PIECES && starts_with_bytes((0..count).map(len))
}

#[inline(always)]
fn starts_with_bytes(mut lens: impl Iterator<Item = usize>) -> bool {
    let first = lens.find(|&len| len != 0);
    first.is_some_and(|len| len as isize > 0)
}

/// Returns how many bytes the vector has; `None` if it has none or the kernel refuses it.
pub fn whole_len(vector: User<IoVec>, count: usize) -> Option<usize> {
    if count > MOST_PIECES {
        return None;
    }
    sum_of((0..count).map(|index| vector.index(index).read().ok()))
}

fn sum_of(mut pieces: impl Iterator<Item = Option<IoVec>>) -> Option<usize> {
    let add = |sum: usize, piece: Option<IoVec>| {
        let piece = piece?;
        let is_fit = piece.len as isize >= 0 && is_programs(piece);
        sum.checked_add(piece.len).filter(|_| is_fit)
    };
    let sum = pieces.try_fold(0, add);
    sum.filter(|&sum| sum as isize > 0)
}

/// Returns true unless the kernel refuses the address of a piece, whatever is there.
fn is_programs(piece: IoVec) -> bool {
    if piece.len == 0 {
        return true;
    }
    let last = piece.base.wrapping_add(piece.len - 1);
    last >= piece.base && (last < USUAL_END || user::kernel_accepts(last))
}

/// A copy of a vector from the beginning of the call: the kernel and the rest of a transfer use it.
pub(crate) struct Vector {
    few: [MaybeUninit<IoVec>; FEW],
    /// Mapped, if there are more.
    many: *mut IoVec,
    count: usize,
}

/// Pieces that fit on the stack.
const FEW: usize = 64;

impl Vector {
    /// An empty vector, in its final place: it is too large to be moved.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            few: [const { MaybeUninit::uninit() }; FEW],
            many: core::ptr::null_mut(),
            count: 0,
        }
    }

    /// Copies `count` pieces, once. `None` if one of them isn't there, or there is no memory.
    #[inline(always)]
    pub(crate) fn copy(&mut self, from: User<IoVec>, count: usize) -> Option<()> {
        if count > FEW {
            self.many = mem::map(count * size_of::<IoVec>()).ok()?.cast();
        }
        self.count = count;
        let to = if self.many.is_null() {
            self.few.as_mut_ptr().cast()
        } else {
            self.many
        };
        // SAFETY: there is room for `count` pieces, and any bytes are a piece.
        let to = unsafe { core::slice::from_raw_parts_mut(to, count) };
        from.read_all(to).ok()
    }

    pub(crate) fn pieces(&self) -> &[IoVec] {
        let at = if self.many.is_null() {
            self.few.as_ptr().cast()
        } else {
            self.many.cast_const()
        };
        // SAFETY: `copy` has put `count` pieces there; callers go on only if it succeeded.
        unsafe { core::slice::from_raw_parts(at, self.count) }
    }

    /// Returns true if it has bytes, as far as its first piece that isn't empty tells.
    #[inline(always)]
    pub(crate) fn begins_well(&self) -> bool {
        starts_with_bytes(self.pieces().iter().map(|piece| piece.len))
    }

    /// How many bytes it has; `None` if it has none or the kernel refuses it.
    pub(crate) fn whole_len(&self) -> Option<usize> {
        sum_of(self.pieces().iter().copied().map(Some))
    }

    pub(crate) fn address(&self) -> usize {
        self.pieces().as_ptr().expose_provenance()
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        if !self.many.is_null() {
            // SAFETY: mapped by `copy`, and the kernel has read it.
            unsafe { mem::unmap(self.many.cast(), self.count * size_of::<IoVec>()) };
        }
    }
}
