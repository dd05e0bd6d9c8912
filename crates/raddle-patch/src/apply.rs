//! Execution of a plan.
//!
//! Protocol:
//!
//! 1. Everything is computed before any memory is touched: there are enough slots, and all
//!    distances fit. If they don't, and the caller says that the image stays for ever, islands near
//!    the image bridge the distance.
//! 2. A scratch page goes through the same changes of access as the text will. A security policy
//!    that forbids them refuses here.
//! 3. The pages of the slots become writable, are filled, and become executable again; islands
//!    likewise.
//! 4. The same for the pages of the text that have sites. The stubs hold the replaced instructions,
//!    so a failed step is undone.
//!
//! This code doesn't run in the pages that it changes: it calls no text of the image, and the stubs
//! have pages of their own.

use core::ffi::CStr;
use core::ops::Range;
use core::ptr;

use crate::image::{Image, Span};
use crate::memory::{Memory, PAGE_SIZE, Protection};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::site::{EntryKind, INSTRUCTION_LEN, Number, Site, State};
use crate::stub::Stubs;
use crate::stub::fill::{self, Entry, Filling, ISLAND_LEN, Reach, Slots, displacement};
use crate::window::JUMP_LEN;

/// The addresses that stubs call. All keep every register but rax, rcx and r11.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// Handles the call with the number in rax, and may destroy vector registers.
    pub plain: usize,
    /// The same, but keeps xmm0 to xmm15.
    pub narrow: usize,
    /// The same, but keeps all vector registers.
    pub vector: usize,
    /// Decides about a clone-like call or any number. r11 = 1: rax is the result. r11 = 0: the stub
    /// must execute the system call, and rax is unchanged. Keeps vector registers.
    pub clone_before: usize,
    /// The same, but keeps only xmm0 to xmm15 if it handles any number but a clone's.
    pub narrow_clone_before: usize,
    /// The same, but may destroy vector registers if it handles any number but a clone's.
    pub plain_clone_before: usize,
    /// Runs after a system call that the stub executed, in the child too. Keeps rax, the result,
    /// and vector registers.
    pub clone_after: usize,
}

/// What `apply` has done to an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// System call instructions in the text.
    pub sites: usize,
    /// Sites that lead to a stub now.
    pub patched: usize,
    /// Sites with a number that the caller doesn't want.
    pub untouched: usize,
    /// Patched sites with a number that is only known when they are reached.
    pub run_time_number: usize,
    /// Patched sites with a stub that saves vector registers, because their function uses some.
    pub vector_sites: usize,
    /// Sites that can't be patched: they go to the kernel as before.
    pub refused: usize,
    /// The addresses of the first refused sites; zero where there are fewer.
    pub refused_at: [usize; 8],
    /// The stubs of the patched sites.
    pub stubs: Stubs,
}

impl Report {
    fn of(plan: &Plan<'_>) -> Self {
        let mut report = Self::default();
        plan.sites().iter().for_each(|site| report.count(site));
        report
    }

    fn count(&mut self, site: &Site) {
        match site.state {
            State::NotCode | State::Found => return,
            State::Untouched => self.untouched += 1,
            State::Planned(kind) => {
                self.patched += 1;
                self.run_time_number += usize::from(site.number == Number::AtRunTime);
                self.vector_sites +=
                    usize::from(matches!(kind, EntryKind::Narrow | EntryKind::Vector));
            }
            State::Refused(_) => {
                if let Some(slot) = self.refused_at.get_mut(self.refused) {
                    *slot = site.address;
                }
                self.refused += 1;
            }
        }
        self.sites += 1;
    }
}

/// Patches the sites that `plan`, made from the same `image`, has planned.
///
/// `probe` is the file of the image, if its path is known: security policies may treat text that is
/// mapped from a file differently from other memory.
///
/// # Errors
/// A [`Refusal`]; the process is as it was before the call, except after [`Refusal::TextLost`].
///
/// # Safety
/// - The process has one thread, or no thread executes text of the image.
/// - No other call of this function runs at the same time.
/// - The plan was made from this image, which hasn't been changed since.
/// - The targets are the addresses of code that keeps the promises of [`Targets`].
///
/// # Blocking
/// The calling kernel thread, for about a millisecond with glibc.
pub unsafe fn apply(
    image: &Image,
    plan: &Plan<'_>,
    targets: &Targets,
    memory: &impl Memory,
    probe: Option<&CStr>,
) -> Result<Report, Refusal> {
    let mut report = Report::of(plan);
    if report.patched == 0 {
        return Ok(report);
    }
    let mut job = Job {
        image,
        plan,
        targets,
        memory,
        reach: Reach::Near,
    };
    let is_far = match job.check() {
        Err(Refusal::TooFar) if image.stays() => true,
        checked => checked.map(|()| false)?,
    };
    prove_permission(memory, probe)?;
    if is_far {
        job.make_islands()?;
    }
    // SAFETY: the slots are unused, so no thread executes them; the rest is the caller's promise.
    let patched = unsafe { job.fill_slots().and_then(|()| job.patch_texts()) };
    if let Err(refusal) = patched {
        job.drop_islands();
        return Err(refusal);
    }
    report.stubs = job.slots(|_, _, _| Ok(()))?.keep();
    Ok(report)
}

/// Makes each text of a patched image one mapping again: the kernel remembers of memory that it was
/// writable once, and a fork takes longer with each mapping.
///
/// # Errors
/// [`Refusal::TextLost`].
///
/// # Safety
/// As for [`apply`].
pub unsafe fn join_texts(image: &Image, memory: &impl Memory) -> Result<(), Refusal> {
    for text in image.texts() {
        let start = text.start & !(PAGE_SIZE - 1);
        let end = text.end.next_multiple_of(PAGE_SIZE);
        // SAFETY: no thread executes the text, which is readable and executable in the end.
        unsafe {
            let _ = memory.protect(start, end, Protection::ReadWrite);
            memory
                .protect(start, end, Protection::ReadExecute)
                .or_else(|_| memory.protect(start, end, Protection::ReadExecute))
                .map_err(|errno| Refusal::TextLost { errno })?;
        }
    }
    Ok(())
}

/// Step 2: proves that text may be made writable, changed, and made executable again.
pub(crate) fn prove_permission(memory: &impl Memory, probe: Option<&CStr>) -> Result<(), Refusal> {
    let forbidden = |errno| Refusal::Forbidden { errno };
    let page = memory.map_scratch(probe).map_err(forbidden)?;
    let end = page + PAGE_SIZE;
    // SAFETY: only this function knows the page, and no thread executes it.
    let outcome = unsafe {
        memory
            .protect(page, end, Protection::ReadWrite)
            .and_then(|()| {
                ptr::write_volatile(page as *mut u8, 0xcc);
                memory.protect(page, end, Protection::ReadExecute)
            })
    };
    // SAFETY: no other code knows the page.
    unsafe { memory.unmap(page, PAGE_SIZE) };
    outcome.map_err(forbidden)
}

struct Job<'a, M> {
    image: &'a Image,
    plan: &'a Plan<'a>,
    targets: &'a Targets,
    memory: &'a M,
    reach: Reach,
}

/// Where a planned site leads.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    /// The target of the site's jump: in the slot, or an island.
    entrance: usize,
}

impl<M: Memory> Job<'_, M> {
    /// Visits the planned sites with their slots: the same slots each time, until they are kept.
    fn slots(
        &self,
        mut visit: impl FnMut(&Site, EntryKind, Place) -> Result<(), Refusal>,
    ) -> Result<Slots, Refusal> {
        let all = self.plan.planned().count();
        let clones = self.plan.planned().filter(|site| site.1.is_pair()).count();
        let mut slots = Slots::unused(self.reach, all - clones, clones)?;
        for (index, (site, kind)) in self.plan.planned().enumerate() {
            let slot = slots.take(kind)?;
            let entrance = match self.reach {
                Reach::Near => first_instruction(site, slot),
                Reach::Islands(start) => start + index * ISLAND_LEN,
            };
            visit(site, kind, Place { slot, entrance })?;
        }
        Ok(slots)
    }

    /// Step 1: checks that every slot and every jump can be computed.
    fn check(&self) -> Result<(), Refusal> {
        self.slots(|site, kind, place| {
            self.code(site, kind, place.slot)?;
            jump(site, place.entrance).map(|_| ())
        })
        .map(|_| ())
    }

    /// Makes the islands, and checks again.
    fn make_islands(&mut self) -> Result<(), Refusal> {
        let (from, _) = self.image.text_range();
        let len = self.islands_len();
        let forbidden = |errno| Refusal::Forbidden { errno };
        let start = self.memory.map_below(from, len).map_err(forbidden)?;
        self.reach = Reach::Islands(start);
        let filled = self.slots(|site, _, place| {
            jump(site, place.entrance)?;
            let island = fill::island(first_instruction(site, place.slot));
            // SAFETY: the memory is fresh and writable, and no other code knows it.
            unsafe { write(place.entrance, &island) };
            Ok(())
        });
        // SAFETY: no other code knows the memory.
        let done = unsafe {
            self.memory
                .protect(start, start + len, Protection::ReadExecute)
        };
        let outcome = filled.map(|_| ()).and(done.map_err(forbidden));
        if outcome.is_err() {
            self.drop_islands();
        }
        outcome
    }

    fn islands_len(&self) -> usize {
        (self.plan.planned().count() * ISLAND_LEN).next_multiple_of(PAGE_SIZE)
    }

    /// Unmaps the islands, if there are any: no jump leads there.
    fn drop_islands(&self) {
        if let Reach::Islands(start) = self.reach {
            // SAFETY: no other code knows the memory, and no jump leads there.
            unsafe { self.memory.unmap(start, self.islands_len()) };
        }
    }

    fn code(&self, site: &Site, kind: EntryKind, slot: usize) -> Result<fill::Code, Refusal> {
        let bytes = |start, end| {
            self.image
                .bytes(Span { start, end })
                .ok_or(Refusal::BadHeaders)
        };
        let filling = Filling {
            site,
            prefix: bytes(site.window_start(), site.address)?,
            suffix: bytes(site.address + INSTRUCTION_LEN, site.window_end())?,
            entry: match kind {
                EntryKind::Plain => Entry::One(self.targets.plain),
                EntryKind::Narrow => Entry::One(self.targets.narrow),
                EntryKind::Vector => Entry::One(self.targets.vector),
                EntryKind::Clone => Entry::Clone {
                    before: self.targets.clone_before,
                    after: self.targets.clone_after,
                },
                EntryKind::NarrowClone => Entry::Clone {
                    before: self.targets.narrow_clone_before,
                    after: self.targets.clone_after,
                },
                EntryKind::PlainClone => Entry::Clone {
                    before: self.targets.plain_clone_before,
                    after: self.targets.clone_after,
                },
            },
            is_far: self.reach.is_far(),
        };
        fill::code(slot, &filling).ok_or(Refusal::TooFar)
    }

    /// Step 3.
    ///
    /// # Safety
    /// No thread executes the slots, and the image's text is as planned.
    unsafe fn fill_slots(&self) -> Result<(), Refusal> {
        let pages = self.slots(|_, _, _| Ok(()))?.pages();
        let mut outcome = self.protect_all(&pages, Protection::ReadWrite);
        if outcome.is_ok() {
            outcome = self
                .slots(|site, kind, place| {
                    let code = self.code(site, kind, place.slot)?;
                    // SAFETY: the slot's page is writable now, and no thread executes it.
                    unsafe { write(place.slot, code.bytes()) };
                    Ok(())
                })
                .map(|_| ());
        }
        let back = self.protect_all(&pages, Protection::ReadExecute);
        outcome.and(back)
    }

    /// Changes the access of all ranges that aren't empty, even after a failure; returns the first
    /// one.
    fn protect_all(&self, ranges: &[Range<usize>], to: Protection) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            // SAFETY: these are pages of unused slots, or of text that no thread executes.
            let step = unsafe { self.memory.protect(range.start, range.end, to) };
            outcome = outcome.and(step.map_err(|errno| Refusal::Protect { errno }));
        }
        outcome
    }

    /// Step 4.
    ///
    /// # Safety
    /// No thread executes the image's text, and the slots are filled.
    unsafe fn patch_texts(&self) -> Result<(), Refusal> {
        for (done, text) in self.image.texts().enumerate() {
            // SAFETY: the caller's promise.
            if let Err(refusal) = unsafe { self.rewrite(text, Way::Patch) } {
                for earlier in self.image.texts().take(done) {
                    // SAFETY: as above.
                    unsafe { self.rewrite(earlier, Way::Restore) }.map_err(lost)?;
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Writes all windows of one text: jumps, or the bytes that were there before.
    ///
    /// # Safety
    /// As for `patch_texts`.
    unsafe fn rewrite(&self, text: Span, way: Way) -> Result<(), Refusal> {
        let Some(pages) = self.pages_with_sites(text) else {
            return Ok(());
        };
        let pages = [pages];
        if let Err(refusal) = self.protect_all(&pages, Protection::ReadWrite) {
            // A part of the range may have changed.
            self.protect_all(&pages, Protection::ReadExecute)
                .map_err(lost)?;
            return Err(refusal);
        }
        // SAFETY: the pages are writable now; the rest is the caller's promise.
        unsafe { self.write_windows(text, way) }?;
        let Err(refusal) = self.protect_all(&pages, Protection::ReadExecute) else {
            return Ok(());
        };
        // The first call to change a part of the range may have succeeded, so make all of it
        // writable once more before the old bytes are put back.
        if self.protect_all(&pages, Protection::ReadWrite).is_ok() {
            // SAFETY: as above.
            unsafe { self.write_windows(text, Way::Restore) }?;
        }
        self.protect_all(&pages, Protection::ReadExecute)
            .map_err(lost)?;
        Err(refusal)
    }

    fn is_short(&self, kind: EntryKind) -> bool {
        !kind.is_pair() && !self.reach.is_far()
    }

    fn pages_with_sites(&self, text: Span) -> Option<Range<usize>> {
        let planned = || {
            self.plan
                .planned()
                .filter(|(site, _)| text.contains(site.address))
        };
        let start = planned().map(|(site, _)| site.window_start()).min()?;
        let end = planned().map(|(site, _)| site.window_end()).max()?;
        Some(start & !(PAGE_SIZE - 1)..end.next_multiple_of(PAGE_SIZE))
    }

    /// # Safety
    /// The pages of the windows in `text` are writable and no thread executes them.
    unsafe fn write_windows(&self, text: Span, way: Way) -> Result<(), Refusal> {
        self.slots(|site, kind, place| {
            if !text.contains(site.address) {
                return Ok(());
            }
            match way {
                // SAFETY: the caller's promise.
                Way::Patch => unsafe {
                    write(site.window_start(), jump(site, place.entrance)?.bytes());
                },
                // SAFETY: as above; the slot is filled.
                Way::Restore => unsafe { restore(site, self.is_short(kind), place.slot) },
            }
            Ok(())
        })
        .map(|_| ())
    }
}

#[derive(Clone, Copy)]
enum Way {
    Patch,
    Restore,
}

fn lost(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Protect { errno } => Refusal::TextLost { errno },
        other => other,
    }
}

/// The bytes that replace a window.
struct Jump {
    bytes: [u8; MAX_WINDOW_LEN],
    len: usize,
}

const MAX_WINDOW_LEN: usize = crate::stub::PREFIX_MAX + INSTRUCTION_LEN + crate::stub::SUFFIX_MAX;

impl Jump {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns where a slot holds the first instruction of its site's window.
fn first_instruction(site: &Site, slot: usize) -> usize {
    slot + crate::stub::PREFIX_MAX - usize::from(site.before)
}

/// Returns the jump from a site's window to `to`, with padding.
fn jump(site: &Site, to: usize) -> Result<Jump, Refusal> {
    let from = site.window_start();
    let displacement = displacement(from + JUMP_LEN, to).ok_or(Refusal::TooFar)?;
    let mut jump = Jump {
        bytes: [0; MAX_WINDOW_LEN],
        len: site.window_end() - from,
    };
    jump.bytes[0] = 0xe9;
    jump.bytes[1..JUMP_LEN].copy_from_slice(&displacement.to_le_bytes());
    pad(&mut jump.bytes[JUMP_LEN..jump.len]);
    Ok(jump)
}

/// Fills with the `nop`s that the processor manuals recommend. They are never executed, but keep
/// disassemblers in step.
fn pad(mut bytes: &mut [u8]) {
    const LONGEST: usize = 9;
    const NOPS: [&[u8]; LONGEST] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
        &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
    ];
    while !bytes.is_empty() {
        let (now, later) = bytes.split_at_mut(bytes.len().min(LONGEST));
        now.copy_from_slice(NOPS[now.len() - 1]);
        bytes = later;
    }
}

/// Writes code.
///
/// # Safety
/// The bytes at `at` are writable, and no thread executes or reads them meanwhile.
pub(crate) unsafe fn write(at: usize, bytes: &[u8]) {
    // SAFETY: the caller's promise; the source is a slice of our own.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

/// Restores a window from the copies in its slot.
///
/// # Safety
/// The window is writable, no thread executes it, and the slot is filled.
unsafe fn restore(site: &Site, is_short: bool, slot: usize) {
    let [prefix, suffix] = fill::copies(slot, site, is_short);
    let parts = [
        (site.window_start(), prefix),
        (site.address + INSTRUCTION_LEN, suffix),
    ];
    for (to, from) in parts {
        // SAFETY: both lie in the window and the slot, which don't overlap.
        unsafe { ptr::copy_nonoverlapping(from.start as *const u8, to as *mut u8, from.len()) };
    }
    // SAFETY: the site lies in the window.
    unsafe { write(site.address, &[0x0f, 0x05]) };
}
