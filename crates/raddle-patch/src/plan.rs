//! The decisions about every site of an image. Planning changes only the caller's array.

use crate::decode::Vectors;
use crate::flow::{self, Listing};
use crate::holders;
use crate::image::{Image, Span};
use crate::refusal::Refusal;
use crate::scan::{self, Neighbourhoods};
use crate::site::{
    CLONES, Cause, EntryKind, NEAR_AFTER, NEAR_BEFORE, Number, SIGRETURN, Site, State,
};
use crate::unwind::{Function, Functions};
use crate::window::Surroundings;

/// The decisions about the sites of an image.
#[derive(Debug)]
pub struct Plan<'s> {
    sites: &'s [Site],
}

impl Plan<'_> {
    /// Returns all sites by rising address, and the places that turned out to be no code.
    pub fn sites(&self) -> &[Site] {
        self.sites
    }

    /// Returns the sites that will be patched, and the entries that their stubs will call.
    pub fn planned(&self) -> impl Iterator<Item = (&Site, EntryKind)> {
        self.sites.iter().filter_map(|site| match site.state {
            State::Planned(kind) => Some((site, kind)),
            _ => None,
        })
    }
}

/// Decides what to do with each site of `image`.
///
/// `wanted` is a set of system call numbers, one bit each. A site with a constant number outside
/// the set is left untouched, and so is `rt_sigreturn`; a site with a number that is only known at
/// run time is always planned. The entry of a site saves the vector registers that its function may
/// hold if the image [keeps the ABI](Image::that_keeps_the_abi), else those that any function of
/// the image may hold. `scratch` receives the sites, and must have room for all of them: glibc has
/// about 600.
///
/// # Errors
/// A [`Refusal`] if the image has no text, no unwind table or too many sites. A single site that
/// can't be patched is no error: its [`State`] says so.
///
/// # Examples
/// ```
/// use raddle_patch::{Image, Site, plan};
/// # // SAFETY: the vDSO is a loaded image, if there is one.
/// # let header = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
/// # if header == 0 { return }
/// // SAFETY: the kernel mapped the vDSO, one or two pages, and no code changes it.
/// let image = unsafe { Image::at(header, 4096) };
/// let mut scratch = [Site::EMPTY; 64];
/// if let Ok(image) = image {
///     let plan = plan(&image, &[u64::MAX; 8], &mut scratch);
///     assert!(plan.is_ok_and(|plan| plan.sites().len() < 64));
/// }
/// ```
pub fn plan<'s>(
    image: &Image,
    wanted: &[u64; 8],
    scratch: &'s mut [Site],
) -> Result<Plan<'s>, Refusal> {
    let count = find_sites(image, scratch)?;
    if count == 0 {
        return Ok(Plan { sites: &[] });
    }
    let functions = Functions::of(image)?;
    let sites = &mut scratch[..count];
    sites.sort_unstable_by_key(|site| site.address);
    let mut judge = Judge {
        image,
        functions: &functions,
        wanted,
        listing: Listing::new(),
        vectors: None,
        held: None,
    };
    // Large libraries may hold the bytes of the instruction only by chance, never as an
    // instruction. Then no jump matters, and the pass over all text that looks for jumps would take
    // long.
    if sites.iter().any(|site| judge.is_code(site.address)) {
        for text in image.texts() {
            note_long_jumps(image, text, sites);
        }
    }
    judge.decide_all(sites);
    Ok(Plan { sites })
}

fn find_sites(image: &Image, scratch: &mut [Site]) -> Result<usize, Refusal> {
    let mut count = 0;
    let mut fits = true;
    for text in image.texts() {
        scan::system_calls(image.bytes(text).unwrap_or(&[]), |offset| {
            match scratch.get_mut(count) {
                Some(slot) => {
                    *slot = Site::at(text.start + offset);
                    count += 1;
                }
                None => fits = false,
            }
            fits
        });
    }
    if fits {
        Ok(count)
    } else {
        Err(Refusal::TooManySites)
    }
}

/// Notes at each site the jumps and calls in `text` that lead to its neighbourhood.
///
/// Bytes that look like a jump but are none count as one: among half a million instructions of
/// glibc there are two, and each costs at most a window or a number.
fn note_long_jumps(image: &Image, text: Span, sites: &mut [Site]) {
    let mut neighbourhoods = Neighbourhoods::new();
    sites
        .iter()
        .for_each(|site| neighbourhoods.add(site.address));
    scan::long_jumps(image.bytes(text).unwrap_or(&[]), |target| {
        let target = text.start.wrapping_add_signed(target as isize);
        if neighbourhoods.may_contain(target) {
            note_long_jump(target, sites);
        }
    });
}

fn note_long_jump(target: usize, sites: &mut [Site]) {
    let first = sites.partition_point(|site| site.address.saturating_add(NEAR_AFTER) < target);
    sites[first..]
        .iter_mut()
        .take_while(|site| site.address.saturating_sub(NEAR_BEFORE) <= target)
        .for_each(|site| site.note_jump(target));
}

/// Decides about sites, by rising address.
struct Judge<'a> {
    image: &'a Image,
    functions: &'a Functions<'a>,
    wanted: &'a [u64; 8],
    /// The function of the last site.
    listing: Listing,
    /// Which vector registers that function touches, if computed.
    vectors: Option<Vectors>,
    /// Which vector registers the image's functions may hold over calls, if computed.
    held: Option<Vectors>,
}

impl Judge<'_> {
    fn decide_all(&mut self, sites: &mut [Site]) {
        let mut floor = 0;
        for site in sites {
            self.decide(site, floor);
            if matches!(site.state, State::Planned(_)) {
                floor = site.window_end();
            }
        }
    }

    /// Returns whether an instruction of a known function starts at `address`. For other addresses
    /// `decide` needs no jumps.
    fn is_code(&mut self, address: usize) -> bool {
        let function = self.functions.at(address);
        function.is_some_and(|function| {
            function.whole.len() <= flow::MAX_LEN && {
                self.list(function);
                self.listing.starts_at(address)
            }
        })
    }

    /// Makes `listing` that of `function`.
    fn list(&mut self, function: Function) {
        if !self.listing.is_of(function) {
            self.listing.decode(self.image, function);
            self.vectors = None;
        }
    }

    /// Decides about `site`; its window may not begin before `floor`.
    fn decide(&mut self, site: &mut Site, floor: usize) {
        let Some(function) = self.functions.at(site.address) else {
            site.state = State::Refused(Cause::NoFunction);
            return;
        };
        if function.whole.len() > flow::MAX_LEN {
            site.state = State::Refused(Cause::LongFunction);
            return;
        }
        self.list(function);
        let first_used = self.decide_within_function(site, floor);
        let (first, last) = (first_used + 1, site.window_end() - 1);
        let planned = matches!(site.state, State::Planned(_));
        if planned
            && self
                .listing
                .note_neighbours(self.image, self.functions, first, last)
        {
            self.decide_within_function(site, floor);
        }
        if let State::Planned(kind) = site.state
            && kind.with_vectors(Vectors::None, site.number) != kind
            && function.covered.contains(site.address)
        {
            site.state = State::Planned(kind.with_vectors(self.vectors(), site.number));
        }
    }

    /// Decides as far as the function alone allows, and returns the first address that the decision
    /// relies on.
    fn decide_within_function(&self, site: &mut Site, floor: usize) -> usize {
        let address = site.address;
        let listing = &self.listing;
        if !listing.starts_at(address) {
            let known = listing.end() > address;
            site.state = if known {
                State::NotCode
            } else {
                State::Refused(Cause::Undecodable)
            };
            return address;
        }
        let around = Surroundings {
            image: self.image,
            listing,
            site,
            floor,
        };
        let (number, loaded_at) = around.number();
        let kind = kind_for(number, self.wanted);
        let window = kind.and_then(|_| around.window());
        site.number = number;
        (site.before, site.after) = window.unwrap_or((0, 0));
        site.state = match (kind, window) {
            (None, _) => State::Untouched,
            (Some(_), None) => State::Refused(Cause::NoWindow),
            (Some(kind), Some(_)) => State::Planned(kind),
        };
        loaded_at.min(site.window_start())
    }

    /// Returns which vector registers may hold values at the function's calls.
    fn vectors(&mut self) -> Vectors {
        if self.image.keeps_abi() {
            let compute = || self.listing.vectors(self.image, self.functions);
            *self.vectors.get_or_insert_with(compute)
        } else {
            let compute = || holders::vectors(self.image, self.functions);
            *self.held.get_or_insert_with(compute)
        }
    }
}

/// Returns the entry for a number, where in doubt the one that saves vector registers; `None` if
/// the number isn't wanted.
fn kind_for(number: Number, wanted: &[u64; 8]) -> Option<EntryKind> {
    let Number::Constant(constant) = number else {
        return Some(EntryKind::Clone);
    };
    let word = wanted.get(constant as usize / 64)?;
    let is_wanted = word & (1 << (constant % 64)) != 0 && constant != SIGRETURN;
    let kind = if CLONES.contains(&constant) {
        EntryKind::Clone
    } else {
        EntryKind::Vector
    };
    is_wanted.then_some(kind)
}
