//! A distribution for each value of a key.
//!
//! The numbers are read twice: first to find out which keys have the largest totals, then to count their
//! distributions. So memory is that of the rows that are shown, and of one total for each key.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::buckets::{Buckets, EXACT};
use super::{AnalysisError, Room, values};

/// How much is told apart.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys that have a row of their own: those with the largest totals.
    pub top: usize,
    /// Keys whose totals are told apart.
    pub most_keys: usize,
}

/// The numbers of one key.
#[derive(Clone, Debug)]
pub struct Group {
    /// The values of the key's fields.
    pub key: Vec<String>,
    /// Their numbers.
    pub numbers: Buckets,
}

/// The distributions.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The keys with the largest totals, in descending order.
    pub rows: Vec<Group>,
    /// The numbers of all other keys together.
    pub others: Buckets,
    /// How many keys there are, and whether there are more: their totals were not told apart.
    pub keys: (u64, bool),
}

/// What all numbers of a key come to.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: u128,
    count: u64,
}

impl Groups {
    /// Counts what `each` passes to the function that it is given, twice: keys, with their fields' values
    /// between separators, and numbers.
    pub(super) fn of<R>(
        limits: Limits,
        mut each: impl FnMut(&mut dyn FnMut(&[u8], u64)) -> Result<R, AnalysisError>,
    ) -> Result<(Self, R), AnalysisError> {
        let mut totals: HashMap<Box<[u8]>, Total> = HashMap::new();
        let (mut room, mut is_full) = (Room::new(limits.most_keys), false);
        each(&mut |key, number| {
            let total = if let Some(total) = totals.get_mut(key) {
                total
            } else if room.take(key.len()) {
                totals.entry(key.into()).or_default()
            } else {
                is_full = true;
                return;
            };
            total.sum += u128::from(number);
            total.count += 1;
        })?;
        let keys = (totals.len() as u64, is_full);
        let mut order: Vec<_> = totals.into_iter().collect();
        order.sort_unstable_by(|(a, x), (b, y)| {
            (Reverse(x.sum), Reverse(x.count), a).cmp(&(Reverse(y.sum), Reverse(y.count), b))
        });
        order.truncate(limits.top);
        let exact = EXACT / (order.len() + 1);
        let mut numbers: Vec<_> = order.iter().map(|_| Buckets::with_exact(exact)).collect();
        let mut others = Buckets::with_exact(exact);
        let indices: HashMap<&[u8], usize> =
            order.iter().enumerate().map(|(index, (key, _))| (&**key, index)).collect();
        let result = each(&mut |key, number| {
            let row = indices.get(key).and_then(|index| numbers.get_mut(*index));
            row.unwrap_or(&mut others).add(number);
        })?;
        let rows = order.iter().zip(numbers).map(|((text, _), numbers)| Group { key: values(text), numbers });
        Ok((Self { rows: rows.collect(), others, keys }, result))
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.rows.iter().map(|row| row.numbers.count()).sum::<u64>() + self.others.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_totals_have_rows_and_the_rest_is_summed() {
        let samples: [(&[u8], u64); 8] = [
            (b"a", 5),
            (b"b\x1fc", 100),
            (b"a", 7),
            (b"d", 1),
            (b"e", 2),
            (b"d", 1),
            (b"d", 1),
            (b"f", 1000),
        ];
        let groups = |top, most_keys| {
            let mut runs = 0;
            let (groups, ()) = Groups::of(Limits { top, most_keys }, |sample| {
                runs += 1;
                for (key, number) in samples {
                    sample(key, number);
                }
                Ok(())
            })
            .unwrap();
            assert_eq!((runs, groups.count()), (2, 8));
            groups
        };
        let found = groups(2, 100);
        let rows: Vec<_> = found.rows.iter().map(|row| (row.key.join("/"), row.numbers.sum())).collect();
        assert_eq!(rows, [("f".to_owned(), 1000), ("b/c".to_owned(), 100)]);
        assert_eq!((found.others.count(), found.others.sum(), found.keys), (6, 17, (5, false)));
        // Keys that find no room are among the others, and it is known that there were some.
        let found = groups(10, 2);
        assert_eq!((found.rows.len(), found.others.count(), found.keys), (2, 5, (2, true)));
        let found = groups(10, 100);
        assert_eq!((found.rows.len(), found.others.count()), (5, 0));
    }
}
