//! Where a thread is in its life.

/// Where a thread is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Life {
    Free = 0,
    Live = 1,
    Exiting = 2,
}
