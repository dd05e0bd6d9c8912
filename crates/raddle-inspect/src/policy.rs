//! The policies, their numbers and their names.

use core::ffi::CStr;

/// The policies of Raddle; a plug-in has one number for all.
///
/// # Examples
/// ```
/// use raddle_inspect::policy::Kind;
/// assert_eq!(Kind::from_name(b"fair"), Some(Kind::Fair));
/// assert_eq!(Kind::Fair.name(), "fair");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Per-carrier queues; in one queue for all, first in, first out.
    #[default]
    Fifo = 0,
    /// The thread that became runnable last.
    Lifo = 1,
    /// By class, priority and niceness.
    Priority = 2,
    /// By CPU time and weight.
    Fair = 3,
    /// The earliest deadline.
    Deadline = 4,
    /// The order of a plug-in.
    Plugin = 5,
}

impl Kind {
    /// The policies that have no file.
    pub const BUILT_IN: [Kind; 5] = [
        Kind::Fifo,
        Kind::Lifo,
        Kind::Priority,
        Kind::Fair,
        Kind::Deadline,
    ];

    /// Returns the name.
    pub const fn c_name(self) -> &'static CStr {
        match self {
            Kind::Fifo => c"fifo",
            Kind::Lifo => c"lifo",
            Kind::Priority => c"priority",
            Kind::Fair => c"fair",
            Kind::Deadline => c"deadline",
            Kind::Plugin => c"plug-in",
        }
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self.c_name().to_str() {
            Ok(name) => name,
            Err(_) => "",
        }
    }

    /// Returns the built-in policy of this name.
    pub fn from_name(name: &[u8]) -> Option<Kind> {
        let is_named = |kind: &Kind| kind.name().as_bytes() == name;
        Kind::BUILT_IN.into_iter().find(is_named)
    }

    /// Returns the policy of this number.
    pub const fn of_code(code: u32) -> Option<Kind> {
        match code {
            5 => Some(Kind::Plugin),
            0..5 => Some(Kind::BUILT_IN[code as usize]),
            _ => None,
        }
    }

    /// Returns the policy of this number; fifo for an unknown one.
    pub const fn from_code(code: u32) -> Kind {
        match Kind::of_code(code) {
            Some(kind) => kind,
            None => Kind::Fifo,
        }
    }

    /// Returns true if the policy uses real-time classes and deadlines.
    pub const fn has_classes(self) -> bool {
        matches!(self, Kind::Priority | Kind::Deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for kind in Kind::BUILT_IN {
            assert_eq!(Kind::of_code(kind as u32), Some(kind));
            assert_eq!(Kind::from_name(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(Kind::of_code(Kind::Plugin as u32), Some(Kind::Plugin));
        assert_eq!((Kind::of_code(6), Kind::from_code(6)), (None, Kind::Fifo));
        assert_eq!(Kind::from_name(b"plug-in"), None);
    }
}
