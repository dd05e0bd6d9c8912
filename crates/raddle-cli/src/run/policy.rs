//! The policy of a run, and the shares of its threads.

use std::fmt;
use std::path::{Path, PathBuf};

use raddle_inspect::policy::Kind;
use raddle_inspect::settings::{ENGINE_CARRIERS_MAX, QUOTA_MAX_PERCENT};

use crate::cli::EXCLUDE_SEPARATOR;
use crate::run::elf;

/// A built-in policy's name, or a plug-in's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Named(&'static str),
    File(PathBuf),
}

impl Policy {
    pub(crate) fn parse(text: &str) -> Result<Policy, String> {
        if let Some(kind) = Kind::from_name(text.as_bytes()) {
            return Ok(Policy::Named(kind.name()));
        }
        let looks_like_a_file = text.contains('/') || text.ends_with(".so");
        if !looks_like_a_file {
            let names = Kind::BUILT_IN.map(Kind::name).join(", ");
            return Err(format!("name one of {names}, or the file of a plug-in"));
        }
        let path = Path::new(text).canonicalize();
        let path = path.map_err(|_| "there is no such file; name one that exists")?;
        if !path.is_file() {
            return Err("this is no regular file; name that of a plug-in".into());
        }
        if !elf::is_shared_object(&path) {
            return Err("this is no shared object; build the plug-in with -shared -fPIC".into());
        }
        // A path with a separator of LD_PRELOAD can't be an entry of it.
        if path.to_str().is_some_and(|path| !path.contains([' ', ':'])) {
            Ok(Policy::File(path))
        } else {
            Err(
                "ld.so can't preload a file with a space or a colon in its path; \
                      move it"
                    .into(),
            )
        }
    }

    /// The plug-in's file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Policy::Named(_) => None,
            Policy::File(path) => Some(path),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Named(name) => out.write_str(name),
            Policy::File(path) => write!(out, "{}", path.display()),
        }
    }
}

/// `name:GLOB=PART` or `lib:GLOB=PART`, checked; the runtime in the program matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    text: String,
    part: Part,
}

/// The part of the matching threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A part of the carriers' time while others want it, in hundredths.
    Weight(u32),
    /// An engine of their own: percent of one CPU, and carriers; 0 for unset.
    Engine { quota: u32, carriers: u32 },
}

impl Part {
    /// The largest quota, and the most carriers, that the runtime accepts.
    const MOST: [u32; 2] = [QUOTA_MAX_PERCENT, ENGINE_CARRIERS_MAX];

    /// `25`, `30%`, `carriers=2` or `30%,carriers=2`.
    pub(crate) fn parse(text: &str) -> Option<Part> {
        if let Some(percent) = text
            .parse()
            .ok()
            .filter(|percent| (1..=99).contains(percent))
        {
            return Some(Part::Weight(percent));
        }
        let mut found = [0; 2];
        for word in text.split(',') {
            let (index, digits) = match word.strip_suffix('%') {
                Some(digits) => (0, digits),
                None => (1, word.strip_prefix("carriers=")?),
            };
            let value: u32 = digits.parse().ok()?;
            let is_fit = found[index] == 0 && (1..=Self::MOST[index]).contains(&value);
            found[index] = is_fit.then_some(value)?;
        }
        let [quota, carriers] = found;
        Some(Part::Engine { quota, carriers })
    }
}

/// Rules that the runtime has room for.
const MAX_SHARES: usize = 15;

impl Share {
    pub(crate) fn parse(text: &str) -> Result<Share, String> {
        let parts = || {
            let (kind, rest) = text.split_once(':')?;
            let mut ends = rest.match_indices('=');
            let (glob, part) =
                ends.find_map(|(at, _)| Some((&rest[..at], Part::parse(&rest[at + 1..])?)))?;
            // A glob with the beginning of a part at its end is a mistake in the part.
            let is_mistake = glob.ends_with("=carriers") || glob.ends_with(",carriers");
            let well_formed = matches!(kind, "name" | "lib")
                && !glob.is_empty()
                && !is_mistake
                && !glob.contains([EXCLUDE_SEPARATOR, '\0', '\n']);
            well_formed.then_some(part)
        };
        match parts() {
            Some(part) => Ok(Share {
                text: text.into(),
                part,
            }),
            None => Err(format!(
                "write name:GLOB= or lib:GLOB=, and behind it a share from 1 to 99, or a quota \
                 like 30% (at most {QUOTA_MAX_PERCENT}%), carriers=N (at most \
                 {ENGINE_CARRIERS_MAX}), or both with a comma between"
            )),
        }
    }

    /// Returns the fault of all shares together under this policy.
    pub(crate) fn check(shares: &[Share], policy: Option<&Policy>) -> Result<(), &'static str> {
        let weights = shares.iter().filter_map(|share| match share.part {
            Part::Weight(percent) => Some(percent),
            Part::Engine { .. } => None,
        });
        let sum: u32 = weights.sum();
        let fair = [None, Some(&Policy::Named("fair"))].contains(&policy);
        match () {
            () if shares.len() > MAX_SHARES => Err("more than 15 shares"),
            () if sum > 100 => Err("shares of more than 100 percent together"),
            () if sum != 0 && !fair => Err("shares under another policy than fair"),
            () => Ok(()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_are_policies() {
        assert_eq!(Policy::parse("fair"), Ok(Policy::Named("fair")));
        let file = std::env::current_exe().expect("this test's path");
        let parsed = Policy::parse(&file.to_string_lossy()).expect("a file that exists");
        assert_eq!(
            parsed.file(),
            Some(&*file.canonicalize().expect("it exists"))
        );
        for text in ["", "Fair", "fastest", "./none.so", "/"] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_patterns_with_percentages() {
        for text in [
            "name:a*=1",
            "lib:libx.so*=99",
            "name:a=b=5",
            "name:a=30%",
            "lib:x=carriers=2",
            "name:a=b=250%,carriers=3",
        ] {
            assert_eq!(
                Share::parse(text).map(|share| share.to_string()),
                Ok(text.into())
            );
        }
        for text in [
            "",
            "name:a",
            "name:=5",
            "start:f=5",
            "name:a=0",
            "name:a=100",
            "a=5",
            "name:a=0%",
            "name:a=carriers=65",
            "name:a=5,carriers=2",
            "name:a=5%,5%",
        ] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_fit_together_and_need_the_fair_policy() {
        let share = |percent| Share {
            text: String::new(),
            part: Part::Weight(percent),
        };
        assert_eq!(Share::check(&[share(60), share(40)], None), Ok(()));
        assert!(Share::check(&[share(60), share(41)], None).is_err());
        assert!(Share::check(&vec![share(1); 16], None).is_err());
        assert!(Share::check(&[share(60)], Some(&Policy::Named("fifo"))).is_err());
        let quota = Share::parse("name:a=200%").expect("a quota");
        assert_eq!(Share::check(&[quota], Some(&Policy::Named("fifo"))), Ok(()));
        assert_eq!(Share::check(&[], Some(&Policy::Named("fifo"))), Ok(()));
    }
}
