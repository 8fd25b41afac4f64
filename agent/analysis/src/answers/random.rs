//! Numbers for tests that are the same in every run.

/// Numbers by shifts (Marsaglia's xorshift), from a seed that is not 0.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next one below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
