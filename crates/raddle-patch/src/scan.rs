//! The two passes over all text: for the bytes of `syscall`, and for possible jumps into the
//! neighbourhood of a site.
//!
//! Both look for byte patterns sixteen bytes at a time, without decoding; decoding checks the finds
//! afterwards. The second pass makes windows safe against jumps from other functions, which
//! compilers make when they move unlikely code elsewhere.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
};

use crate::site::{NEAR_AFTER, NEAR_BEFORE};

const LANES: usize = 16;

/// Calls `found` with the offset of each `0f 05` in `text`, in rising order; stops if it returns
/// false.
pub(crate) fn system_calls(text: &[u8], mut found: impl FnMut(usize) -> bool) {
    let mut at = 0;
    while let Some(pair) = text.get(at..at + LANES + 1) {
        let mut hits = eq(load(pair, 0), 0x0f) & eq(load(pair, 1), 0x05);
        while hits != 0 {
            if !found(at + hits.trailing_zeros() as usize) {
                return;
            }
            hits &= hits - 1;
        }
        at += LANES;
    }
    for (offset, pair) in text.get(at..).unwrap_or(&[]).windows(2).enumerate() {
        if pair == [0x0f, 0x05] && !found(at + offset) {
            return;
        }
    }
}

/// Calls `found` with the target, as an offset, of each possible jump or call with a 32-bit
/// displacement. The target may lie outside of `text`.
///
/// The last byte of the opcode decides: e8 or e9, or 80 to 8f behind 0f.
pub(crate) fn long_jumps(text: &[u8], mut found: impl FnMut(i64)) {
    // Each block begins one byte before the bytes that it looks at; no byte precedes the first one.
    if let Some(target) = text.first_chunk::<5>().and_then(first_jump) {
        found(target);
    }
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        match rest.first_chunk() {
            Some(block) => long_jumps_in(block, BLOCK, |target| found(start as i64 + target)),
            None => {
                let mut block = [0; BLOCK];
                block[..rest.len()].copy_from_slice(rest);
                long_jumps_in(&block, rest.len(), |target| found(start as i64 + target));
            }
        }
        start += LOOKED_AT;
    }
}

fn first_jump(&[opcode, a, b, c, d]: &[u8; 5]) -> Option<i64> {
    let target = 5 + i64::from(i32::from_le_bytes([a, b, c, d]));
    matches!(opcode, 0xe8 | 0xe9).then_some(target)
}

const LOOKED_AT: usize = 64;
/// One byte before the bytes looked at, and an operand behind them.
const BLOCK: usize = 1 + LOOKED_AT + 4;

/// Looks at the bytes behind the first one; only the first `len` bytes exist.
#[inline(always)]
fn long_jumps_in(block: &[u8; BLOCK], len: usize, mut found: impl FnMut(i64)) {
    let mut hits = 0u64;
    for at in (0..LOOKED_AT).step_by(LANES) {
        hits |= u64::from(jump_bytes(load(block, at + 1), load(block, at))) << at;
    }
    while hits != 0 {
        let opcode_at = hits.trailing_zeros() as usize + 1;
        let operand = &block[opcode_at + 1..opcode_at + 5];
        let displacement = i32::from_le_bytes([operand[0], operand[1], operand[2], operand[3]]);
        if opcode_at + 5 <= len {
            found(opcode_at as i64 + 5 + i64::from(displacement));
        }
        hits &= hits - 1;
    }
}

/// Returns whether `text` may have a jump with an 8-bit displacement that leads into the offsets
/// `[first, last]`, which may lie outside of `text`.
pub(crate) fn may_jump_nearby(text: &[u8], first: i64, last: i64) -> bool {
    text.windows(2).enumerate().any(|(at, pair)| {
        let target = at as i64 + 2 + i64::from(pair[1] as i8);
        (first..=last).contains(&target) && matches!(pair[0], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb)
    })
}

/// Returns sixteen bytes at `offset` of a slice that has them.
#[inline(always)]
fn load(bytes: &[u8], offset: usize) -> __m128i {
    assert!(bytes.len() >= offset + LANES);
    // SAFETY: just checked; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(offset).cast()) }
}

/// Returns one bit for each byte that equals `byte`.
#[inline(always)]
fn eq(block: __m128i, byte: u8) -> u32 {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(byte as i8))) as u32 }
}

/// Returns one bit for each byte that is e8 or e9, or that is 80 to 8f behind 0f.
#[inline(always)]
fn jump_bytes(block: __m128i, previous: __m128i) -> u32 {
    // SAFETY: SSE2 is part of x86-64.
    let masked = |mask: u8| unsafe { _mm_and_si128(block, _mm_set1_epi8(mask as i8)) };
    eq(masked(0xfe), 0xe8) | (eq(previous, 0x0f) & eq(masked(0xf0), 0x80))
}

/// The granules of 64 bytes that are near a site: an approximate set, which may report a granule
/// that is not near but never misses one.
pub(crate) struct Neighbourhoods {
    bits: [u64; WORDS],
}

const WORDS: usize = 512;
const GRANULE_SHIFT: u32 = 6;

impl Neighbourhoods {
    pub(crate) fn new() -> Self {
        Self { bits: [0; WORDS] }
    }

    /// Notes the neighbourhood of a site.
    pub(crate) fn add(&mut self, site: usize) {
        for address in [
            site.saturating_sub(NEAR_BEFORE),
            site.saturating_add(NEAR_AFTER),
        ] {
            let (word, bit) = Self::bit(address);
            self.bits[word] |= bit;
        }
    }

    /// Returns false only if `address` is near no site.
    #[inline]
    pub(crate) fn may_contain(&self, address: usize) -> bool {
        let (word, bit) = Self::bit(address);
        self.bits[word] & bit != 0
    }

    #[inline]
    fn bit(address: usize) -> (usize, u64) {
        let granule = address >> GRANULE_SHIFT;
        ((granule / 64) % WORDS, 1 << (granule % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn system_call_offsets(text: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        system_calls(text, |at| {
            found.push(at);
            true
        });
        found
    }

    #[test]
    fn system_calls_are_found_at_every_offset_of_texts_of_every_length() {
        for len in 2..70 {
            for at in 0..len - 1 {
                let mut text = std::vec![0x90u8; len];
                text[at..at + 2].copy_from_slice(&[0x0f, 0x05]);
                assert_eq!(system_call_offsets(&text), [at], "length {len}");
            }
        }
    }

    #[test]
    fn half_a_system_call_is_none() {
        assert!(system_call_offsets(&[0x0f]).is_empty());
        assert!(system_call_offsets(&[0x05, 0x0f, 0x0f]).is_empty());
    }

    #[test]
    fn a_search_ends_when_told() {
        let text = [0x0f, 0x05].repeat(40);
        let mut seen = 0;
        system_calls(&text, |_| {
            seen += 1;
            seen < 3
        });
        assert_eq!(seen, 3);
    }

    #[test]
    fn long_jumps_lead_where_their_displacement_says() {
        for (opcode, opcode_len) in [(&[0xe8u8][..], 1), (&[0xe9], 1), (&[0x0f, 0x85], 2)] {
            for at in 0..=150 - 4 - opcode_len {
                let mut text = std::vec![0x90u8; 150];
                text[at..at + opcode_len].copy_from_slice(opcode);
                let operand = at + opcode_len;
                text[operand..operand + 4].copy_from_slice(&(-7i32).to_le_bytes());
                let mut found = Vec::new();
                long_jumps(&text, |target| found.push(target));
                assert_eq!(found, [operand as i64 + 4 - 7]);
            }
        }
    }

    #[test]
    fn a_jump_without_its_whole_displacement_is_none() {
        let mut found = Vec::new();
        long_jumps(&[0x90, 0xe9, 0, 0, 0], |target| found.push(target));
        long_jumps(&[0x90, 0x0f, 0x80, 0, 0, 0], |target| found.push(target));
        long_jumps(&[], |target| found.push(target));
        assert!(found.is_empty());
    }

    #[test]
    fn short_jumps_are_suspected_where_they_lead_and_nowhere_else() {
        let text = [0x90, 0xeb, 0x10, 0x90];
        assert!(may_jump_nearby(&text, 19, 19));
        assert!(!may_jump_nearby(&text, 20, 30));
        assert!(!may_jump_nearby(&text, 0, 18));
        assert!(may_jump_nearby(&[0x75, 0xf0], -14, -14));
    }

    #[test]
    fn a_neighbourhood_contains_all_its_addresses() {
        let mut set = Neighbourhoods::new();
        let site = 0x7f00_1234_5678;
        set.add(site);
        for address in site - NEAR_BEFORE..=site + NEAR_AFTER {
            assert!(set.may_contain(address));
        }
        assert!(!set.may_contain(site + 4096));
    }
}
