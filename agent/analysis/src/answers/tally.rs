//! Counts by small numbers, and the room that many of them share.

/// Most different numbers in all tallies of an analysis: each of them takes 10 bytes, or twice that where a
/// tally has just grown, so that all have 40 MiB at most.
const MOST: usize = 1 << 21;

/// Room for the numbers of tallies that there can be very many of.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: MOST }
    }
}

impl Room {
    /// Room for as much as one tally can hold.
    pub(super) const fn of_one() -> Self {
        Self { left: MOST }
    }

    /// Room for so many numbers.
    #[cfg(test)]
    pub(super) const fn of(left: usize) -> Self {
        Self { left }
    }

    fn take(&mut self) -> bool {
        let has_room = self.left > 0;
        self.left -= usize::from(has_room);
        has_room
    }

    /// There is room again for what a tally had that is no more.
    pub(super) fn give_back(&mut self, tally: &Tally) {
        self.left += tally.numbers.len();
    }
}

/// How often there was each of some numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Those that there were, in their order.
    numbers: Vec<u16>,
    counts: Vec<u64>,
    left_out: u64,
}

impl Tally {
    /// Counts a number, so many times.
    #[inline]
    pub(super) fn add(&mut self, number: u16, times: u64, room: &mut Room) {
        match self.numbers.binary_search(&number) {
            Ok(index) => self.counts[index] += times,
            Err(index) => self.insert(index, number, times, room),
        }
    }

    #[cold]
    fn insert(&mut self, index: usize, number: u16, times: u64, room: &mut Room) {
        if room.take() {
            self.numbers.insert(index, number);
            self.counts.insert(index, times);
        } else {
            self.left_out += times;
        }
    }

    /// Counts all that another one has. It has no more numbers afterwards than both had.
    pub(super) fn merge(&mut self, other: &Self) {
        self.merge_within(other, &mut Room::of_one());
    }

    /// The same within some room.
    pub(super) fn merge_within(&mut self, other: &Self, room: &mut Room) {
        for (number, times) in other.iter() {
            self.add(number, times, room);
        }
        self.left_out += other.left_out;
    }

    /// The numbers that there were, in their order, and how often.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        self.numbers.iter().copied().zip(self.counts.iter().copied())
    }

    /// How often there was a number that had no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How often there was any number.
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_in_their_order_while_there_is_room() {
        let (mut one, mut other, mut room) = (Tally::default(), Tally::default(), Room::of(3));
        for number in [7, 3, 7, 9] {
            one.add(number, 1, &mut room);
        }
        other.add(5, 2, &mut room);
        other.add(9, 4, &mut Room::of_one());
        one.add(3, 1, &mut room);
        one.merge(&other);
        assert_eq!(one.iter().collect::<Vec<_>>(), [(3, 2), (7, 2), (9, 5)]);
        assert_eq!((one.left_out(), one.total()), (2, 11));
        room.give_back(&one);
        assert_eq!(room.left, 3);
    }
}
