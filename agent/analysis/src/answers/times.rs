//! Durations of one kind: how many, how long, and when the longest was.

use serde::Serialize;

use super::super::buckets::{bucket, upper};
use super::tally::{Room, Tally};

/// Counts durations in nanoseconds. Percentiles are less than 1 % too high.
///
/// Its memory does not grow with their number, but with that of their sizes: up to 150 KB. Where there can be
/// thousands of these, they share a [`Room`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// `None` as long as there is no duration.
    of: Option<Box<Counted>>,
}

/// Durations of which there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    count: u64,
    sum: u64,
    least: u64,
    most: u64,
    most_at: u64,
    /// By bucket.
    sizes: Tally,
}

impl Times {
    /// Counts a duration that ended `at` this time. For what there are few of.
    pub fn add(&mut self, duration: u64, at: u64) {
        self.add_within(duration, at, &mut Room::of_one());
    }

    /// Counts a duration that ended `at` this time. Where there is no room for its size, percentiles are not
    /// known.
    #[inline]
    pub fn add_within(&mut self, duration: u64, at: u64, room: &mut Room) {
        let of = self.of.get_or_insert_with(|| Box::new(Counted::first(duration, at)));
        of.least = of.least.min(duration);
        if duration > of.most {
            (of.most, of.most_at) = (duration, at);
        }
        of.count += 1;
        of.sum = of.sum.saturating_add(duration);
        of.sizes.add(bucket(duration) as u16, 1, room);
    }

    /// Counts those of another one as well. It has no more sizes afterwards than both had.
    pub fn merge(&mut self, other: &Self) {
        self.merge_within(other, &mut Room::of_one());
    }

    /// The same within some room.
    pub fn merge_within(&mut self, other: &Self, room: &mut Room) {
        let Some(more) = &other.of else { return };
        let of = self.of.get_or_insert_with(|| Box::new(Counted::first(more.least, more.most_at)));
        of.least = of.least.min(more.least);
        if more.most > of.most {
            (of.most, of.most_at) = (more.most, more.most_at);
        }
        of.count += more.count;
        of.sum = of.sum.saturating_add(more.sum);
        of.sizes.merge_within(&more.sizes, room);
    }

    /// Gives back the room that it took.
    pub(super) fn give_back(&self, room: &mut Room) {
        if let Some(of) = &self.of {
            room.give_back(&of.sizes);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.of.as_ref().map_or(0, |of| of.count)
    }

    /// Their sum in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.of.as_ref().map_or(0, |of| of.sum)
    }

    /// What is told of them.
    pub fn told(&self) -> TimesTold {
        self.of.as_ref().map_or_else(TimesTold::default, |of| of.told())
    }
}

impl Counted {
    /// Nothing yet, but what the first one that will be counted says.
    fn first(duration: u64, at: u64) -> Self {
        let (least, most, most_at) = (duration, duration, at);
        Self { count: 0, sum: 0, least, most, most_at, sizes: Tally::default() }
    }

    fn told(&self) -> TimesTold {
        let [p50_ns, p95_ns, p99_ns] = [50, 95, 99].map(|percent| self.percentile(percent));
        TimesTold {
            count: self.count,
            total_ns: self.sum,
            least_ns: self.least,
            average_ns: self.sum.checked_div(self.count).unwrap_or(0),
            p50_ns,
            p95_ns,
            p99_ns,
            most_ns: self.most,
            most_at_ns: Some(self.most_at),
        }
    }

    /// So many percent are not longer.
    fn percentile(&self, percent: u128) -> Option<u64> {
        if self.sizes.left_out() != 0 {
            return None;
        }
        let rank = (u128::from(self.count) * percent).div_ceil(100) as u64;
        let mut before = 0;
        let (size, _) = self.sizes.iter().find(|(_, count)| {
            before += count;
            before >= rank
        })?;
        Some(upper(usize::from(size)).clamp(self.least, self.most))
    }
}

/// Durations in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimesTold {
    /// How many.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The shortest; 0 if there is none.
    pub least_ns: u64,
    /// The mean, rounded down; 0 if there is none.
    pub average_ns: u64,
    /// Half of them are not longer; as those below, less than 1 % too high, 0 if there is none, and `None` if
    /// there was no room for all their sizes.
    pub p50_ns: Option<u64>,
    /// 95 % are not longer.
    pub p95_ns: Option<u64>,
    /// 99 % are not longer.
    pub p99_ns: Option<u64>,
    /// The longest; 0 if there is none.
    pub most_ns: u64,
    /// When the longest ended, by the clock of the recording.
    pub most_at_ns: Option<u64>,
}

impl Default for TimesTold {
    /// No durations.
    fn default() -> Self {
        Self {
            count: 0,
            total_ns: 0,
            least_ns: 0,
            average_ns: 0,
            p50_ns: Some(0),
            p95_ns: Some(0),
            p99_ns: Some(0),
            most_ns: 0,
            most_at_ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told() {
        let (mut one, mut other) = (Times::default(), Times::default());
        for duration in 1..=900 {
            one.add(duration, duration + 10);
        }
        for duration in 901..=1000 {
            other.add(duration, duration + 20);
        }
        one.merge(&other);
        one.merge(&Times::default());
        let mut all = Times::default();
        all.merge(&one);
        assert_eq!(all, one);
        let told = one.told();
        assert_eq!((told.count, told.total_ns, told.average_ns), (1000, 500_500, 500));
        assert_eq!((told.least_ns, told.most_ns, told.most_at_ns), (1, 1000, Some(1020)));
        for (found, exact) in [(told.p50_ns, 500), (told.p95_ns, 950), (told.p99_ns, 990)] {
            assert!(found.is_some_and(|found| found >= exact && found <= exact + exact / 100), "{found:?}");
        }
        assert_eq!(Times::default().told(), TimesTold::default());
    }

    #[test]
    fn percentiles_are_unknown_where_there_is_no_room_for_a_size() {
        let (mut one, mut other, mut room) = (Times::default(), Times::default(), Room::of(2));
        one.add_within(10, 1, &mut room);
        one.add_within(20, 2, &mut room);
        one.add_within(10, 3, &mut room);
        other.add_within(30, 4, &mut room);
        assert_eq!(one.told().p50_ns, Some(10));
        assert_eq!((other.told().p50_ns, other.told().most_ns), (None, 30));
        one.merge(&other);
        let told = one.told();
        assert_eq!((told.count, told.total_ns, told.p50_ns, told.most_ns), (4, 70, None, 30));
    }
}
