//! HotSpot's compressed numbers: one byte up to 191, else up to five bytes of six bits.

/// A reader of such numbers.
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    /// What is added to each byte.
    excess: u8,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(bytes: &'a [u8], excludes_zero: bool) -> Numbers<'a> {
        Numbers {
            bytes,
            excess: u8::from(excludes_zero),
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        const BYTES_MAX: u32 = 5;
        const BITS: u32 = 6;
        /// From here on another byte follows.
        const GOES_ON: u32 = 192;
        let mut sum = 0u32;
        for number in 0..BYTES_MAX {
            let byte = u32::from(self.byte()?.checked_sub(self.excess)?);
            sum = sum.wrapping_add(byte << (number * BITS));
            if byte < GOES_ON - u32::from(self.excess) {
                break;
            }
        }
        Some(sum)
    }

    /// Returns the next number with a sign, which is the lowest bit.
    pub(super) fn next_signed(&mut self) -> Option<i32> {
        let number = self.next()?;
        Some((number >> 1) as i32 ^ -((number & 1) as i32))
    }
}

/// Returns the line of a byte of code. The table has pairs: the distances from the pair before, in
/// one byte if they are small, and a zero behind the last pair.
pub(super) fn line(table: &[u8], excludes_zero: bool, byte: u32) -> Option<u32> {
    const LONG: u8 = 0xff;
    let mut numbers = Numbers::new(table, excludes_zero);
    let (mut at, mut line) = (0i32, 0i32);
    let mut nearest: Option<(i32, i32)> = None;
    let wanted = i32::try_from(byte).ok()?;
    while let Some(pair) = numbers.byte().filter(|&pair| pair != 0) {
        let (bytes, lines) = match pair {
            LONG => (numbers.next_signed()?, numbers.next_signed()?),
            pair => (i32::from(pair >> 3), i32::from(pair & 7)),
        };
        (at, line) = (at.wrapping_add(bytes), line.wrapping_add(lines));
        if at <= wanted && nearest.is_none_or(|(before, _)| before <= at) {
            nearest = Some((at, line));
        }
    }
    nearest
        .and_then(|(_, line)| u32::try_from(line).ok())
        .filter(|&line| line != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_forms_are_read() {
        let read = |bytes: &[u8], excludes_zero| Numbers::new(bytes, excludes_zero).next();
        assert_eq!(read(&[0], false), Some(0));
        assert_eq!(read(&[191], false), Some(191));
        assert_eq!(read(&[192, 0], false), Some(192));
        assert_eq!(read(&[255, 3], false), Some(255 + (3 << 6)));
        assert_eq!(
            read(&[255; 5], false),
            Some(255u32.wrapping_mul(0x0104_1041))
        );
        assert_eq!(read(&[1], true), Some(0));
        assert_eq!(read(&[191], true), Some(190));
        assert_eq!(read(&[192, 1], true), Some(191));
        for bad in [&[][..], &[192], &[0]] {
            assert_eq!(read(bad, true), None);
        }
        let signed = |byte: u8| Numbers::new(&[byte], false).next_signed();
        assert_eq!(
            [signed(0), signed(1), signed(2)],
            [Some(0), Some(-1), Some(1)]
        );
    }

    #[test]
    fn a_line_is_that_of_the_last_byte_before() {
        // Byte 0: line 7; byte 3: line 9; then a long pair: byte 40, line 4.
        let table = [7, 3 << 3 | 2, 0xff, 74, 9, 0, 0xff];
        let at = |byte| line(&table, false, byte);
        assert_eq!(
            [at(0), at(2), at(3), at(39), at(40)].map(Option::unwrap),
            [7, 7, 9, 9, 4]
        );
        assert_eq!(line(&[], false, 3), None);
        assert_eq!(line(&[0xff], false, 3), None);
    }
}
