//! Text that no jump from near the stubs reaches: a copy of libc, patched by islands.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use raddle_patch::stub::find_site;
use raddle_patch::{Image, Linux, Plan, Refusal, Report, Site, State, apply, plan};

use super::failures::Failing;
use super::{entries, targets};
use crate::common::{LIBC, module};

/// An address far from everything, as a program's own text is.
const PLACE: usize = 0x10_0000_0000;
/// Numbers below 128: there are more sites in libc than far slots.
const WANTED: [u64; 8] = [u64::MAX, u64::MAX, 0, 0, 0, 0, 0, 0];

/// Maps libc's pages at another address, each with its own access.
fn copy_of_libc() -> usize {
    let base = module(LIBC).base;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    for line in maps.lines().filter(|line| line.ends_with("libc.so.6")) {
        let mut fields = line.split([' ', '-']);
        let mut address = || usize::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let (start, end) = (address(), address());
        let access = fields.next().unwrap();
        let bit = |letter, bit| if access.contains(letter) { bit } else { 0 };
        let all = bit('r', libc::PROT_READ) | bit('x', libc::PROT_EXEC);
        let to = (PLACE + start - base) as *mut c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let write = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping replaces none, and readable pages may be copied there.
        unsafe {
            assert_eq!(libc::mmap(to, end - start, write, flags, -1, 0), to);
            if all != 0 {
                to.copy_from_nonoverlapping(start as *const c_void, end - start);
            }
            assert_eq!(libc::mprotect(to, end - start, all), 0);
        }
    }
    PLACE
}

fn patch(plan: &Plan<'_>, image: &Image, left: usize) -> Result<Report, Refusal> {
    // SAFETY: no thread executes the copy yet; the entries keep the promises of `Targets`.
    unsafe { apply(image, plan, &targets(), &Failing::at(left), None) }
}

pub(crate) fn islands() {
    let copy = copy_of_libc();
    // SAFETY: the copy is mapped as libc is.
    let image = unsafe { Image::at(copy, Image::ANY_SIZE) }.unwrap();
    let image = image.that_keeps_the_abi();
    let mut scratch = vec![Site::EMPTY; 1024];
    let planned = plan(&image, &WANTED, &mut scratch).unwrap();
    // SAFETY: no thread executes the copy.
    let refused = unsafe { apply(&image, &planned, &targets(), &Linux, None) };
    assert_eq!(refused, Err(Refusal::TooFar));
    let image = image.that_stays();
    let mut failures = 0;
    while patch(&planned, &image, failures).is_err() {
        failures += 1;
    }
    assert!(failures > 4, "only {failures}");
    check_sites(&planned);
    let own = libc::getppid as *const () as usize - module(LIBC).base + copy;
    // SAFETY: the function needs nothing but its own text.
    let parent = unsafe { std::mem::transmute::<usize, extern "C" fn() -> i32>(own) };
    let before = entries::PLAIN_CALLS.load(Ordering::SeqCst);
    assert_eq!(parent() as u32, std::os::unix::process::parent_id());
    assert_eq!(entries::PLAIN_CALLS.load(Ordering::SeqCst), before + 1);
}

/// Checks that each site's jump leads to an island, and the island to a slot that knows the site.
fn check_sites(planned: &Plan<'_>) {
    let mut checked = 0;
    for site in planned.sites() {
        if !matches!(site.state, State::Planned(_)) {
            continue;
        }
        let jump = site.window_start() as *const u8;
        // SAFETY: the copy's text is readable, and so are islands.
        let slot = unsafe {
            assert_eq!(jump.read(), 0xe9);
            let by = jump.add(1).cast::<i32>().read_unaligned();
            let island = jump.wrapping_add(5).wrapping_offset(by as isize);
            assert_eq!(island.cast::<u16>().read_unaligned(), 0x25ff);
            island.add(8).cast::<usize>().read_unaligned()
        };
        let found = find_site(slot).expect("the slot is in use");
        assert_eq!(found.site, site.address);
        assert_eq!(found.window_start, site.window_start());
        assert_eq!(found.window_end, site.window_end());
        checked += 1;
    }
    assert!(checked > 100, "only {checked}");
}
