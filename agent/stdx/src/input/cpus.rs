//! Sets of CPUs, and what a user's list or mask of CPUs means.

use std::fmt;
use std::io;

/// More CPUs than any kernel supports (`NR_CPUS` goes to 8192). Bounds the memory that a list such as
/// `0-4000000000` can ask for.
const MOST_CPUS: u32 = 1 << 16;

/// Why a text does not describe CPUs of this machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The text is neither a CPU list nor a mask.
    #[error("{text:?} is no list of CPUs such as 0-3,7 and no hexadecimal mask such as ff,00000000: {why}")]
    Malformed {
        /// The text, cut to a length that can be printed.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The text names no CPU at all.
    #[error("{text:?} has no CPU in it")]
    Empty {
        /// The text, cut to a length that can be printed.
        text: String,
    },
    /// A CPU that this machine does not have and cannot get.
    #[error("there is no CPU {cpu}: the highest CPU of this machine is {highest}")]
    NoSuchCpu {
        /// The lowest one that was asked for and does not exist.
        cpu: u32,
        /// The highest that can ever be there.
        highest: u32,
    },
    /// The kernel's own list could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A set of CPU numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Without zero words at the end, so that equal sets compare equal.
    words: Vec<u64>,
}

impl CpuSet {
    /// A set without any CPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Whether a CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word & 1 << (cpu % 64) != 0)
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The highest CPU of the set.
    pub fn highest(&self) -> Option<u32> {
        let last = self.words.last()?;
        Some(self.words.len() as u32 * 64 - 1 - last.leading_zeros())
    }

    /// The lowest CPU of the set.
    pub fn lowest(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// The set as 64-bit words, CPU 0 in the lowest bit of the first; nothing after the highest CPU's word.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Reads a list such as `0-3,8,10-11`, the form of `/sys/devices/system/cpu/online` (`bitmap_list_string`
    /// in `lib/vsprintf.c`). An empty text is an empty set there.
    pub fn parse_list(text: &str) -> Result<Self, CpuError> {
        let bad = |why| CpuError::Malformed { text: cut(text), why };
        let mut set = Self::new();
        let list = text.trim();
        if list.is_empty() {
            return Ok(set);
        }
        for part in list.split(',') {
            let number = |digits: &str| -> Result<u32, CpuError> {
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(bad("a CPU is a decimal number"));
                }
                match digits.parse() {
                    Ok(cpu) if cpu < MOST_CPUS => Ok(cpu),
                    _ => Err(bad("the number is higher than any kernel supports")),
                }
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first.trim())?, number(last.trim())?);
            if first > last {
                return Err(bad("a range goes from the lower to the higher CPU"));
            }
            for cpu in first..=last {
                set.insert(cpu);
            }
        }
        Ok(set)
    }

    /// Reads a hexadecimal mask such as `f`, `0x3` or `ff,00000000`, in which every comma stands before 32
    /// more bits (`bitmap_parse` in `lib/bitmap-str.c`).
    pub fn parse_hex(text: &str) -> Result<Self, CpuError> {
        let bad = |why| CpuError::Malformed { text: cut(text), why };
        let digits = text.trim();
        let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
        let mut set = Self::new();
        let groups: Vec<&str> = digits.split(',').collect();
        if let [whole] = groups[..] {
            // Without commas there is no limit to the length.
            set.insert_hex(whole, 0).map_err(bad)?;
            return Ok(set);
        }
        for (index, group) in groups.iter().rev().enumerate() {
            if group.len() > 8 {
                return Err(bad("between commas there are at most eight hexadecimal digits"));
            }
            set.insert_hex(group, index as u32 * 32).map_err(bad)?;
        }
        Ok(set)
    }

    fn insert_hex(&mut self, digits: &str, base: u32) -> Result<(), &'static str> {
        if digits.is_empty() {
            return Err("a group of the mask has no digits");
        }
        for (index, digit) in digits.chars().rev().enumerate() {
            let value = digit.to_digit(16).ok_or("a mask has hexadecimal digits only")?;
            for bit in (0..4).filter(|bit| value & 1 << bit != 0) {
                let cpu =
                    u32::try_from(index).ok().and_then(|index| index.checked_mul(4)?.checked_add(base + bit));
                match cpu {
                    Some(cpu) if cpu < MOST_CPUS => self.insert(cpu),
                    _ => return Err("the mask is longer than any kernel supports"),
                }
            }
        }
        Ok(())
    }

    /// Reads the argument of trace-cmd's `-M`, which is a hexadecimal mask, or a CPU list where the text
    /// cannot be a mask: when it has a dash, or commas whose groups are not the eight digits that stand
    /// between commas in a mask. `-1` and `all` mean every possible CPU.
    ///
    /// So `3` is a mask with CPUs 0 and 1, `0-3` a list, `0,2` a list and `1,00000000` CPU 32.
    pub fn parse_argument(text: &str, possible: &Self) -> Result<Self, CpuError> {
        let trimmed = text.trim();
        if trimmed == "-1" || trimmed == "all" {
            return Ok(possible.clone());
        }
        let eight_digits = trimmed.split(',').skip(1).all(|group| group.len() == 8);
        let set = if trimmed.contains('-') || !eight_digits {
            Self::parse_list(trimmed)?
        } else {
            Self::parse_hex(trimmed)?
        };
        if set.is_empty() {
            return Err(CpuError::Empty { text: cut(text) });
        }
        if let Some(cpu) = set.iter().find(|&cpu| !possible.contains(cpu)) {
            return Err(CpuError::NoSuchCpu { cpu, highest: possible.highest().unwrap_or(0) });
        }
        Ok(set)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl std::str::FromStr for CpuSet {
    type Err = CpuError;

    /// As [`CpuSet::parse_list`], which is what it is written as.
    fn from_str(text: &str) -> Result<Self, CpuError> {
        Self::parse_list(text)
    }
}

/// Prints the set as a list such as `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// A text as far as an error message should repeat it.
fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<u32> {
        CpuSet::parse_list(text).unwrap().iter().collect()
    }

    fn hex(text: &str) -> Vec<u32> {
        CpuSet::parse_hex(text).unwrap().iter().collect()
    }

    #[test]
    fn lists_are_read_and_printed() {
        assert_eq!(list("0-3,5\n"), [0, 1, 2, 3, 5]);
        assert_eq!(list("7"), [7]);
        assert_eq!(list(""), Vec::<u32>::new());
        assert_eq!(list("\n"), Vec::<u32>::new());
        assert_eq!(list("3,1-2,2"), [1, 2, 3]);
        for text in ["0", "0-3,5", "63-64", "1,3,5,127-129", ""] {
            assert_eq!(CpuSet::parse_list(text).unwrap().to_string(), text);
        }
        for text in ["a", "1-", "-1", "3-1", "1,,2", "1-2-3", "0-4000000000", "99999999999", "+1", "1;2"] {
            assert!(CpuSet::parse_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn masks_are_read() {
        assert_eq!(hex("f"), [0, 1, 2, 3]);
        assert_eq!(hex("0x5\n"), [0, 2]);
        assert_eq!(hex("ff,00000000"), (32..40).collect::<Vec<_>>());
        assert_eq!(hex("1,00000000,00000001"), [0, 64]);
        assert_eq!(hex("00000000"), Vec::<u32>::new());
        for text in ["", "g", "ff,", ",ff", "1,000000000", "0x", "-1"] {
            assert!(CpuSet::parse_hex(text).is_err(), "{text}");
        }
    }

    #[test]
    fn masks_of_ten_thousand_cpus_are_nothing_special() {
        let all: CpuSet = (0..10_000).collect();
        assert_eq!(all.len(), 10_000);
        assert_eq!(all.highest(), Some(9_999));
        let mask = "f".repeat(2_500);
        assert_eq!(CpuSet::parse_hex(&mask).unwrap(), all);
        let mut grouped = "ffff".to_owned();
        for _ in 0..312 {
            grouped += ",ffffffff";
        }
        assert_eq!(CpuSet::parse_argument(&grouped, &all).unwrap(), all);
        assert_eq!(all.to_string(), "0-9999");
        assert!(CpuSet::parse_hex(&"f".repeat(1_000_000)).is_err());
        let error = CpuSet::parse_argument(&mask, &(0..8).collect()).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }

    #[test]
    fn an_argument_is_a_mask_unless_it_cannot_be_one() {
        let possible: CpuSet = (0..40).collect();
        let cpus =
            |text: &str| -> Vec<u32> { CpuSet::parse_argument(text, &possible).unwrap().iter().collect() };
        assert_eq!(cpus("3"), [0, 1]);
        assert_eq!(cpus("10"), [4]);
        assert_eq!(cpus("0-2"), [0, 1, 2]);
        assert_eq!(cpus("0,2"), [0, 2]);
        assert_eq!(cpus("0-1,7"), [0, 1, 7]);
        assert_eq!(cpus("1,00000000"), [32]);
        assert_eq!(cpus("-1").len(), 40);
        assert_eq!(cpus("all").len(), 40);
    }

    #[test]
    fn cpus_that_are_not_there_are_named_with_the_highest_that_is() {
        let possible: CpuSet = (0..4).collect();
        let error = CpuSet::parse_argument("1f", &possible).unwrap_err();
        assert!(matches!(error, CpuError::NoSuchCpu { cpu: 4, highest: 3 }));
        assert_eq!(error.to_string(), "there is no CPU 4: the highest CPU of this machine is 3");
        assert!(matches!(CpuSet::parse_argument("0", &possible), Err(CpuError::Empty { .. })));
        assert!(matches!(CpuSet::parse_argument("", &possible), Err(CpuError::Malformed { .. })));
        assert!(matches!(CpuSet::parse_argument("zz", &possible), Err(CpuError::Malformed { .. })));
    }

    #[test]
    fn sets_with_the_same_cpus_are_equal() {
        let set = CpuSet::parse_hex("0000000000000000000000000000000001").unwrap();
        assert_eq!(set, [0].into_iter().collect());
        assert_eq!(set.words(), [1]);
        assert_eq!(set.lowest(), Some(0));
        assert!(CpuSet::new().is_empty() && CpuSet::new().highest().is_none());
        assert!(!set.contains(u32::MAX));
    }
}
