//! Each memory call fails once: the refusal must be typed, and the process unchanged.

use std::cell::Cell;
use std::ffi::CStr;

use raddle_patch::{Linux, Memory, Protection, Refusal};

use super::patch;
use crate::common::LIBC;

/// Lets one call of `protect` fail.
pub(crate) struct Failing {
    /// Calls before the one that fails.
    left: Cell<usize>,
    fails_map: bool,
}

const ERRNO: i32 = libc::EACCES;

impl Failing {
    /// Lets this call fail.
    pub(crate) fn at(left: usize) -> Self {
        Self {
            left: Cell::new(left),
            fails_map: false,
        }
    }
}

impl Memory for Failing {
    fn map_scratch(&self, path: Option<&CStr>) -> Result<usize, i32> {
        if self.fails_map {
            Err(ERRNO)
        } else {
            Linux.map_scratch(path)
        }
    }

    unsafe fn protect(&self, start: usize, end: usize, to: Protection) -> Result<(), i32> {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        if left == 0 {
            return Err(ERRNO);
        }
        // SAFETY: the caller's promise.
        unsafe { Linux.protect(start, end, to) }
    }

    fn map_below(&self, address: usize, len: usize) -> Result<usize, i32> {
        Linux.map_below(address, len)
    }

    unsafe fn unmap(&self, start: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { Linux.unmap(start, len) };
    }
}

pub(crate) fn all() {
    let text = text_of_libc();
    let untouched = copy(text);
    let maps = access_of(text.0);
    let fails_map = Failing {
        left: Cell::new(usize::MAX),
        fails_map: true,
    };
    let refusal = patch(LIBC, &fails_map).expect_err("there is no scratch page");
    assert_eq!(refusal, Refusal::Forbidden { errno: ERRNO });
    let mut refusals = 0;
    for left in 0.. {
        match patch(
            LIBC,
            &Failing {
                left: Cell::new(left),
                fails_map: false,
            },
        ) {
            Ok(report) => {
                assert!(report.patched > 400);
                break;
            }
            Err(refusal) => {
                let expected = if left < 2 {
                    Refusal::Forbidden { errno: ERRNO }
                } else {
                    Refusal::Protect { errno: ERRNO }
                };
                assert_eq!(refusal, expected, "call {left}");
                assert!(copy(text) == untouched, "call {left} left traces");
                assert_eq!(access_of(text.0), maps, "call {left} left other access");
                println!("call {left}: {refusal}");
                refusals += 1;
            }
        }
    }
    // Two for the proof, two for each array of stubs, two for the text.
    assert_eq!(refusals, 8);
    assert!(copy(text) != untouched);
    // SAFETY: it always succeeds.
    assert!(unsafe { libc::getppid() } > 0);
}

/// libc's text as the kernel shows it: the pages around `getppid`.
fn text_of_libc() -> (usize, usize) {
    let inside = libc::getppid as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps
        .lines()
        .filter_map(range_of)
        .find(|r| r.contains(&inside));
    let range = range.expect("getppid is mapped");
    (range.start, range.end)
}

fn range_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

fn copy((start, end): (usize, usize)) -> Vec<u8> {
    // SAFETY: libc's text is mapped readable.
    unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }.to_vec()
}

/// The access of the mapping that contains `address`.
fn access_of(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| range_of(line).is_some_and(|r| r.contains(&address)));
    line.and_then(|line| line.split(' ').nth(1))
        .expect("it is mapped")
        .to_owned()
}
