//! Numbers by lot, for samples: what is drawn has no period that a program could share.

/// Draws numbers (xorshift; Marsaglia, 2003).
pub struct Lots(u64);

impl Lots {
    /// Equal seeds draw equal numbers.
    pub const fn new(seed: u64) -> Lots {
        Lots(seed | 1)
    }

    /// Has what follows depend on `more`, too.
    pub fn stir(&mut self, more: u64) {
        self.0 = (self.0 ^ more) | 1;
    }

    /// Returns the next number; it is not 0.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a time between a half and one and a half of `period_ns`.
    pub fn around_ns(&mut self, period_ns: u64) -> u64 {
        period_ns / 2 + self.draw() % period_ns.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lots_are_fair() {
        let mut lots = Lots::new(7);
        let sum: u64 = (0..10_000).map(|_| lots.around_ns(1000)).sum();
        assert!((9_800_000..10_200_000).contains(&sum), "{sum}");
        assert!((0..1000).all(|_| (500..1500).contains(&lots.around_ns(1000))));
        assert_eq!(lots.around_ns(0), 0);
    }

    #[test]
    fn a_lot_depends_on_what_was_stirred_in() {
        let mut lots = [Lots::new(7), Lots::new(7)];
        lots[1].stir(100);
        let [one, other] = lots.each_mut().map(Lots::draw);
        assert!(one != other && one != 0);
    }
}
