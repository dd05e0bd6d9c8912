//! Where the light threads of a process are. The explicit API is part of the program, not of the
//! runtime, so its tables have a structure of their own, to which each host of light threads leads:
//! the host's slot, its control ([`ThreadOffsets::host`](crate::ThreadOffsets::host)), the group of
//! hosts ([`Layout::host_group`](crate::Layout::host_group)), and from there
//! [`Layout::group_lights`](crate::Layout::group_lights).
//!
//! A light thread is a structure at the top of its stack. Stacks are cut from *regions*, which are
//! never unmapped: the tool walks the regions, and finds in each stack whether it has a light
//! thread. Nothing is noted for that when light threads pass their hosts to each other.

use crate::records::Wire;

/// The first eight bytes of [`LightPlaces`].
pub const LIGHT_MAGIC: [u8; 8] = *b"RADLGT\0\x01";

/// Bits of the id that a tool gives to a light thread: above each id of a green thread. The rest is
/// the number of its stack.
pub const LIGHT_TID_BASE: u32 = 3 << 29;

/// The most stacks of light threads that have an id.
pub const LIGHTS_MAX: u32 = 1 << 29;

/// Places of the light threads: addresses, and offsets in a light thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LightPlaces {
    /// [`LIGHT_MAGIC`].
    pub magic: [u8; 8],
    /// Bytes of this structure as the writer knows it.
    pub size: u64,
    /// A word with the address of the newest region, or null.
    pub regions: u64,
    /// A word that a fork increments in the child: light threads of another value are the parent's.
    pub epoch: u64,
    /// Bytes of a light thread, which ends where its stack ends.
    pub light_bytes: u64,
    /// Offsets in a light thread.
    pub light: LightOffsets,
}

/// Offsets of fields in a light thread, in bytes. Fields have eight bytes unless noted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LightOffsets {
    /// Four bytes: not 0 while a host is on the light thread's stack.
    pub on_cpu: u32,
    /// Four bytes: as [`ThreadOffsets::claim`](crate::ThreadOffsets::claim).
    pub claim: u32,
    /// The address of a switch frame.
    pub context: u32,
    /// The address of its host's control, or null before it has begun.
    pub host: u32,
    /// Odd while the stack has a light thread. Each begin and each end counts.
    pub life: u32,
    /// The value of [`LightPlaces::epoch`] when the light thread was made.
    pub epoch: u32,
    /// The deadline of its wait.
    pub deadline_ns: u32,
    /// One byte: not 0 while the deadline is one.
    pub has_deadline: u32,
}

/// Stacks of one size that lie side by side.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LightRegion {
    /// The address of the next older region, or null.
    pub next: u64,
    /// The lowest address.
    pub low: u64,
    /// Bytes of each stack.
    pub stack_bytes: u64,
    /// The number of stacks that were ever used, from the lowest.
    pub used: u64,
    /// The number of the first stack among those of all regions.
    pub first: u64,
}

impl LightPlaces {
    /// Reads the places at the start of `bytes`; `None` if these are none that the reader knows.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(raddle_inspect::LightPlaces::parse(&[0; 4096]), None);
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<LightPlaces> {
        let places = LightPlaces::from_prefix(bytes)?;
        let is_known =
            places.magic == LIGHT_MAGIC && places.size as usize == size_of::<LightPlaces>();
        is_known.then_some(places)
    }
}

// SAFETY: integers and structures of them; `_LAYOUT` checks that no byte is padding.
unsafe impl Wire for LightPlaces {}
// SAFETY: as above.
unsafe impl Wire for LightRegion {}

const _LAYOUT: () = {
    assert!(size_of::<LightOffsets>() == 8 * 4);
    assert!(size_of::<LightPlaces>() == 5 * 8 + 8 * 4);
    assert!(size_of::<LightRegion>() == 5 * 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_places_are_not_read() {
        let places = LightPlaces {
            magic: LIGHT_MAGIC,
            size: size_of::<LightPlaces>() as u64,
            regions: 1,
            epoch: 2,
            light_bytes: 3,
            light: LightOffsets::default(),
        };
        assert_eq!(LightPlaces::parse(places.as_bytes()), Some(places));
        let longer = LightPlaces { size: 1, ..places };
        assert_eq!(LightPlaces::parse(longer.as_bytes()), None);
        assert_eq!(LightPlaces::parse(&places.as_bytes()[1..]), None);
    }
}
