//! Numbers counted by size, and percentiles of them.

/// Numbers that are kept one by one unless told otherwise, so that percentiles are exact.
pub(super) const EXACT: usize = 1 << 20;
/// Buckets between a power of two and the next, for more numbers: each is less than 1 % wide.
const PER_POWER: u32 = 128;

/// Counts numbers. Up to a million of them percentiles are exact; of more they are less than 1 % too high.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// How many numbers are kept one by one.
    most_exact: usize,
    exact: Vec<u64>,
    /// Counts by bucket, once there are too many numbers.
    counts: Vec<u64>,
    powers: Vec<u64>,
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Default for Buckets {
    fn default() -> Self {
        Self::with_exact(EXACT)
    }
}

impl Buckets {
    /// Buckets whose percentiles are exact for so many numbers, each of which takes 8 bytes.
    pub fn with_exact(most_exact: usize) -> Self {
        let (exact, counts, powers) = (Vec::new(), Vec::new(), Vec::new());
        Self { most_exact, exact, counts, powers, count: 0, sum: 0, least: 0, most: 0 }
    }

    /// Counts a number.
    pub fn add(&mut self, number: u64) {
        self.least = if self.count == 0 { number } else { self.least.min(number) };
        self.most = self.most.max(number);
        self.count += 1;
        self.sum += u128::from(number);
        if self.powers.is_empty() {
            self.powers = vec![0; 65];
        }
        self.powers[power(number)] += 1;
        if !self.counts.is_empty() {
            self.counts[bucket(number)] += 1;
        } else if self.exact.len() < self.most_exact {
            self.exact.push(number);
        } else {
            self.counts = vec![0; bucket(u64::MAX) + 1];
            for number in std::mem::take(&mut self.exact).into_iter().chain([number]) {
                self.counts[bucket(number)] += 1;
            }
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The smallest; 0 if there are none.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The largest; 0 if there are none.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The mean, rounded down; 0 if there are none.
    pub fn average(&self) -> u64 {
        (self.sum / u128::from(self.count.max(1))) as u64
    }

    /// For each of these percentages, in ascending order of number, the smallest number that so many percent
    /// of the numbers do not exceed.
    pub fn percentiles<const N: usize>(&self, percent: [u64; N]) -> [u64; N] {
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        percent.map(|percent| {
            let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1) as u64;
            if self.counts.is_empty() {
                return sorted.get(rank as usize - 1).copied().unwrap_or(0);
            }
            let mut before = 0;
            let found = self.counts.iter().position(|count| {
                before += count;
                before >= rank
            });
            found.map_or(self.most, upper).min(self.most)
        })
    }

    /// How many numbers there are by power of two: the first number of each range, and the count. Ranges
    /// between the smallest and the largest are all there; 0 has its own.
    pub fn powers(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = if self.count == 0 { 0..0 } else { power(self.least)..power(self.most) + 1 };
        used.map(|power| (if power == 0 { 0 } else { 1 << (power - 1) }, self.powers[power]))
    }
}

/// 0 for 0, else one more than the power of two.
fn power(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// The bucket of a number.
pub(super) fn bucket(number: u64) -> usize {
    let Some(power) = number.checked_ilog2() else { return 0 };
    if power < PER_POWER.ilog2() {
        return number as usize;
    }
    let shift = power - PER_POWER.ilog2();
    ((shift + 1) * PER_POWER) as usize + ((number >> shift) as u32 - PER_POWER) as usize
}

/// The largest number of a bucket.
pub(super) fn upper(bucket: usize) -> u64 {
    let (row, column) = (bucket as u64 / u64::from(PER_POWER), bucket as u64 % u64::from(PER_POWER));
    if row == 0 { column } else { ((column + u64::from(PER_POWER)) << (row - 1)) + ((1 << (row - 1)) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for number in [0, 1, 5, 127, 128, 129, 255, 256, 1000, 123_456_789, u64::MAX / 3, u64::MAX] {
            let upper = upper(bucket(number));
            assert!(upper >= number && upper - number <= number / 100, "{number} {upper}");
            assert!(number == 0 || bucket(number - 1) <= bucket(number));
        }
    }

    #[test]
    fn percentiles_exact_and_by_bucket() {
        let mut buckets = Buckets::default();
        (1..=1000).rev().for_each(|number| buckets.add(number));
        assert_eq!(buckets.percentiles([50, 90, 99, 100]), [500, 900, 990, 1000]);
        assert_eq!(
            (buckets.least(), buckets.most(), buckets.average(), buckets.count()),
            (1, 1000, 500, 1000)
        );
        assert_eq!(buckets.powers().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(buckets.powers().nth(2), Some((4, 4)));
        for number in 0..EXACT as u64 * 2 {
            buckets.add(number);
        }
        let [half, most] = buckets.percentiles([50, 100]);
        assert!(half.abs_diff(EXACT as u64) <= EXACT as u64 / 100, "{half}");
        assert_eq!(most, EXACT as u64 * 2 - 1);
        assert_eq!(Buckets::default().percentiles([50]), [0]);
    }
}
