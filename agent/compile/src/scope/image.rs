//! Sets as the lines of the map that programs read (`agent_ebpf::tracking`).

use std::collections::BTreeSet;

use agent_ebpf::tracking::{
    AUTOMATON_LINES, AUTOMATON_MAX, EXCEPT, LEVELS_MAX, LINE_WORDS, NO_VALUE, SETS, asked, bucket, place,
};

use super::{Scope, Values, names};
use kernel::cgroup::Cgroup;

/// Why programs cannot ask for sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// A name that is longer than the kernel's.
    #[error("names of threads have 15 bytes at most, so no thread is called {0}")]
    LongName(String),
    /// All names together.
    #[error("the names are too many or too long: there is room for {0} with 15 characters")]
    Names(u32),
    /// Control groups.
    #[error("the control groups are at more than {LEVELS_MAX} different depths of the hierarchy")]
    Levels,
    /// All values together.
    #[error("there are too many values: they take {lines} of {room} lines of 64 bytes")]
    Room {
        /// Lines that they take.
        lines: usize,
        /// Lines that there are.
        room: usize,
    },
}

/// Names of 15 characters that an automaton has room for.
const LONG_NAMES: u32 = AUTOMATON_MAX * (agent_ebpf::tracking::STATES / agent_ebpf::COMM_LEN as u32);

/// Number of the first line of a half.
const FIRST: u32 = 1;
/// Lines of a half, at least, where sets change: room for the values of more than 10 000 processes.
const CHANGING_LINES: u32 = 4096;
/// How often a table is made larger. Values that are numbered one after the other need one or two.
const DOUBLINGS: usize = 8;

type Line = [u64; LINE_WORDS];

/// The sets of a scope, for one half of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The lines of the half.
    pub lines: Vec<Line>,
    /// What the map's first word is while this half is in use.
    pub asked: u64,
}

impl Image {
    /// The sets of `scope` in a half that begins at line `first`.
    ///
    /// # Errors
    /// A program cannot ask for one of them.
    pub fn of(scope: &Scope, first: u32) -> Result<Self, ScopeError> {
        let mut building = Building { lines: vec![[0; LINE_WORDS]; SETS as usize / LINE_WORDS], first };
        let mut asked = u64::from(first) << asked::HALF_SHIFT;
        for (sets, shift) in [(&scope.only, 0), (&scope.except, EXCEPT)] {
            for (attribute, set) in &sets.0 {
                let number = super::number(*attribute) + shift;
                let word = building.set(&set.values)?;
                let at = building.lines.get_mut(number as usize / LINE_WORDS);
                if let Some(at) = at.and_then(|line| line.get_mut(number as usize % LINE_WORDS)) {
                    *at = word;
                }
                asked |= 1 << number;
            }
        }
        Ok(Self { lines: building.lines, asked })
    }
}

/// The halves of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// Lines of each.
    lines: u32,
    /// Two where sets change, or one.
    count: u32,
}

impl Halves {
    /// What it takes for the sets of a scope, and where they change for others.
    ///
    /// # Errors
    /// A program cannot ask for one of the sets.
    pub fn of(scope: &Scope) -> Result<Self, ScopeError> {
        let lines = Image::of(scope, FIRST)?.lines.len() as u32;
        Ok(if scope.changes {
            Self { lines: lines.max(CHANGING_LINES), count: 2 }
        } else {
            Self { lines, count: 1 }
        })
    }

    /// Lines of the map.
    pub fn all_lines(self) -> u32 {
        FIRST + self.lines * self.count
    }

    /// The sets of a scope, for the half with this number.
    ///
    /// # Errors
    /// A program cannot ask for one of them, or there is not so much room.
    pub fn image(self, half: u32, scope: &Scope) -> Result<Image, ScopeError> {
        let image = Image::of(scope, FIRST + half % self.count * self.lines)?;
        if image.lines.len() > self.lines as usize {
            return Err(ScopeError::Room { lines: image.lines.len(), room: self.lines as usize });
        }
        Ok(image)
    }
}

struct Building {
    lines: Vec<Line>,
    first: u32,
}

impl Building {
    /// The number of the line that comes next.
    fn next(&self) -> u32 {
        self.first + self.lines.len() as u32
    }

    fn set(&mut self, values: &Values) -> Result<u64, ScopeError> {
        match values {
            Values::Ids(ids) => self.table(ids.iter().map(|&id| id.into())),
            Values::Groups(groups) => self.groups(groups),
            Values::Names(patterns) => self.names(patterns),
        }
    }

    /// A table. It has as many buckets as it takes for none to overflow.
    fn table(&mut self, values: impl Iterator<Item = u64>) -> Result<u64, ScopeError> {
        let values: BTreeSet<u64> = values.collect();
        let least = values.len().div_ceil(LINE_WORDS).next_power_of_two();
        let mut sizes = std::iter::successors(Some(least), |buckets| Some(buckets * 2)).take(DOUBLINGS);
        let lines = sizes.find_map(|buckets| fill(&values, buckets as u32));
        let lines = lines.ok_or(ScopeError::Room { lines: least << DOUBLINGS, room: least })?;
        let place = place(self.next(), lines.len() as u32 - 1);
        self.lines.extend(lines);
        Ok(place)
    }

    fn groups(&mut self, groups: &[Cgroup]) -> Result<u64, ScopeError> {
        let levels: BTreeSet<u32> = groups.iter().map(|group| group.level).collect();
        if levels.len() > LEVELS_MAX {
            return Err(ScopeError::Levels);
        }
        let table = self.table(groups.iter().map(|group| group.id))?;
        let mut line = [0; LINE_WORDS];
        line[0] = table;
        for (word, level) in line.iter_mut().skip(1).zip(levels) {
            *word = u64::from(level) + 1;
        }
        let at = self.next();
        self.lines.push(line);
        Ok(at.into())
    }

    fn names(&mut self, patterns: &[String]) -> Result<u64, ScopeError> {
        let parts = names::automaton(patterns)?;
        let count = parts.len() as u32;
        if count > AUTOMATON_MAX {
            return Err(ScopeError::Names(LONG_NAMES));
        }
        let place = place(self.next(), count);
        for part in parts {
            let mut head = [0; LINE_WORDS];
            head[..3].copy_from_slice(&[part.begin, part.stay, part.end]);
            self.lines.push(head);
            let (lines, _) = part.go_on.as_chunks::<LINE_WORDS>();
            self.lines.extend_from_slice(lines);
            debug_assert_eq!(lines.len() + 1, AUTOMATON_LINES as usize);
        }
        Ok(place)
    }
}

/// The lines of a table with so many buckets; `None` if one of them has no room.
fn fill(values: &BTreeSet<u64>, buckets: u32) -> Option<Vec<Line>> {
    let mut lines = vec![[NO_VALUE; LINE_WORDS]; buckets as usize];
    for &value in values {
        let line = lines.get_mut(bucket(value, buckets - 1) as usize)?;
        let free = line.iter_mut().find(|word| **word == NO_VALUE)?;
        *free = value;
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Attribute, Set},
        *,
    };

    /// As `in_table` of the programs; lines are numbered from `first` on.
    fn in_table(image: &Image, first: u32, table: u64, value: u64) -> bool {
        let line = table as u32 + bucket(value, (table >> 32) as u32);
        image.lines[(line - first) as usize].contains(&value)
    }

    fn scope(attribute: Attribute, values: Values) -> Scope {
        let mut scope = Scope::default();
        scope.only.put(attribute, Some(Set { texts: Vec::new(), values }));
        scope
    }

    #[test]
    fn nothing_is_asked_of_a_scope_without_sets() {
        let image = Image::of(&Scope::default(), 1).unwrap();
        assert_eq!((image.asked, image.lines.len()), (1 << 16, 2));
    }

    #[test]
    fn tables_hold_their_values_and_no_others() {
        for (count, step) in [(0_u32, 1), (1, 1), (8, 1), (9, 1), (1000, 1), (20_000, 1), (65_536, 65_536)] {
            let ids: BTreeSet<u32> = (0..count).map(|id| id.wrapping_mul(step)).collect();
            let image = Image::of(&scope(Attribute::Uid, Values::Ids(ids.clone())), 7).unwrap();
            assert_eq!(image.asked, 7 << 16 | 1 << 2);
            let table = image.lines[0][2];
            for id in (0..count + 100).map(|id| id.wrapping_mul(step)) {
                assert_eq!(in_table(&image, 7, table, id.into()), ids.contains(&id), "{count} {id}");
            }
            assert!(image.lines.len() <= 4 + 2 * count as usize, "{count}: {}", image.lines.len());
        }
    }

    #[test]
    fn sets_of_what_is_left_out_are_beside_the_others() {
        let ids = |id: u32| Values::Ids(BTreeSet::from([id]));
        let mut scope = scope(Attribute::Gid, ids(5));
        scope.except.put(Attribute::Gid, Some(Set { texts: Vec::new(), values: ids(6) }));
        let image = Image::of(&scope, 0).unwrap();
        assert_eq!(image.asked, 1 << 4 | 1 << 12);
        assert!(in_table(&image, 0, image.lines[0][4], 5) && !in_table(&image, 0, image.lines[0][4], 6));
        assert!(in_table(&image, 0, image.lines[1][4], 6) && !in_table(&image, 0, image.lines[1][4], 5));
        assert_eq!(scope.bits(), 1 << 4 | 1 << 12);
    }

    #[test]
    fn too_many_names_are_an_error() {
        let names = |count: u32| (0..count).map(|name| format!("fifteen-let{name:04}")).collect();
        assert!(Image::of(&scope(Attribute::Comm, Values::Names(names(LONG_NAMES))), 0).is_ok());
        let too_many = Image::of(&scope(Attribute::Comm, Values::Names(names(LONG_NAMES + 1))), 0);
        assert_eq!(too_many, Err(ScopeError::Names(LONG_NAMES)));
    }
}
