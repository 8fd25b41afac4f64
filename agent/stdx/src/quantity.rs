//! Amounts as people write them: sizes (`64M`), times (`10s`).

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time in nanoseconds: `10`, `1.5`, `500ms`, `2s`, `3m`, `1h`, `7d`; bare numbers are seconds.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: u128 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        "w" => 604_800_000_000_000,
        _ => return Err(format!("unknown unit {unit:?}; use us, ms, s, m, h, d or w")),
    };
    let wrong = || "not a number followed by us, ms, s, m, h, d or w".to_owned();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 18 {
        return Err(wrong());
    }
    let parse = |text: &str| if text.is_empty() { Some(0_u128) } else { text.parse().ok() };
    let digits = 10_u128.pow(part.len() as u32);
    let (whole, part) = parse(whole).zip(parse(part)).ok_or_else(wrong)?;
    if !(part * scale).is_multiple_of(digits) {
        return Err("the resolution is one nanosecond".to_owned());
    }
    let sum = whole.checked_mul(scale).and_then(|whole| whole.checked_add(part * scale / digits));
    sum.and_then(|sum| u64::try_from(sum).ok()).ok_or_else(|| "it is longer than 584 years".to_owned())
}

/// Bytes: `500K`, `10M`, `2G`, with units of 1024; bare numbers are in units of `bare` bytes.
pub fn size(text: &str, bare: u64) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" => Some(bare),
        "B" => Some(1),
        "K" | "KB" | "KIB" => Some(1 << 10),
        "M" | "MB" | "MIB" => Some(1 << 20),
        "G" | "GB" | "GIB" => Some(1 << 30),
        "T" | "TB" | "TIB" => Some(1 << 40),
        _ => None,
    };
    let size = digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    size.ok_or_else(|| format!("{text:?} is not a size: write it like 500K, 10M or 2G"))
}

/// A number of bytes, in texts with a unit of 1024 (`64M`), or as a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A length of time, in texts with a unit (`10s`, `7d`), or as a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// A share of one CPU: in texts with a percent sign (`2%`, `0.5%`), or as a number of percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Millionths.
    pub millionths: u32,
}

impl Share {
    /// As a ratio: 1 is a whole CPU.
    pub fn ratio(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Digits after the point.
        const PLACES: usize = 4;
        let wrong = || format!("{text:?} is not a share: write it like 2% or 0.5%");
        let number = text.trim().strip_suffix('%').unwrap_or(text.trim()).trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > PLACES {
            return Err(wrong());
        }
        let places: u32 = format!("{part:0<PLACES$}").parse().map_err(|_| wrong())?;
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let millionths = whole.checked_mul(10_000).and_then(|whole| whole.checked_add(places));
        millionths.map(|millionths| Self { millionths }).ok_or_else(wrong)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.millionths / 10_000, self.millionths % 10_000);
        let part = format!(".{part:04}");
        write!(f, "{whole}{}%", part.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfText {
            expected: "a share of a CPU: percent, or a text as \"2%\"",
            by_number: |percent| Self::from_str(&percent.to_string()),
            by_text: Self::from_str,
        })
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        size(text.trim(), 1).map(Self)
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        nanoseconds(text.trim()).map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}

impl Period {
    /// So many nanoseconds; those of 584 years at most.
    pub fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
        let fits = |(unit, _): &&(u64, &str)| self.0 != 0 && self.0.is_multiple_of(*unit);
        match UNITS.iter().find(fits) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u128, &str); 6] = [
            (86_400_000_000_000, "d"),
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        let nanos = self.0.as_nanos();
        let fits = |(unit, _): &&(u128, &str)| nanos != 0 && nanos.is_multiple_of(*unit);
        match UNITS.iter().find(fits) {
            Some((unit, name)) => write!(f, "{}{name}", nanos / unit),
            None if nanos == 0 => f.write_str("0s"),
            None => write!(f, "{nanos}ns"),
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfText {
            expected: "a size: bytes, or a text as \"64M\"",
            by_number: |number| Ok(Self(number)),
            by_text: Self::from_str,
        })
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfText {
            expected: "a time: seconds, or a text as \"10s\"",
            by_number: |number| Ok(Self(Duration::from_secs(number))),
            by_text: Self::from_str,
        })
    }
}

/// What is a number or a text.
struct OfText<T> {
    expected: &'static str,
    by_number: fn(u64) -> Result<T, String>,
    by_text: fn(&str) -> Result<T, String>,
}

impl<T> de::Visitor<'_> for OfText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.by_number)(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number).map_err(|_| E::custom("it is less than zero"))?;
        self.visit_u64(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.by_text)(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units() {
        assert_eq!(nanoseconds("12.5"), Ok(12_500_000_000));
        assert_eq!(nanoseconds("0.000000001"), Ok(1));
        assert_eq!(nanoseconds("7"), Ok(7_000_000_000));
        let all = ["10s", "1.5ms", "2us", "3m", "1h", ".5"].map(|text| nanoseconds(text).unwrap());
        assert_eq!(all, [10_000_000_000, 1_500_000, 2_000, 180_000_000_000, 3_600_000_000_000, 500_000_000]);
        assert_eq!(nanoseconds("2d"), Ok(172_800_000_000_000));
        for wrong in [
            "",
            ".",
            "x",
            "1.x",
            "1.0000000001",
            "-1",
            "99999999999999999999",
            "1y",
            "1e3",
            "0.5ns",
            "nan",
            "inf",
            "10 fortnights",
        ] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_with_units() {
        assert_eq!(["10", "3k", "2MB", "4B"].map(|text| size(text, 1)), [10, 3072, 2 << 20, 4].map(Ok));
        for wrong in ["", "M", "1.5M", "1P", "99999999999G"] {
            assert!(size(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_read_as_they_are_written() {
        for text in ["0", "1", "1025", "3K", "64M", "2G", "2048G"] {
            let bytes: Bytes = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(bytes).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Bytes>("4096").unwrap(), Bytes(4096));
        for text in ["0s", "7d", "36h", "90s", "1500ms", "3us", "7ns", "5m"] {
            let period: Period = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(period).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Period>("90").unwrap(), Period(Duration::from_secs(90)));
        for wrong in ["-1", "\"1x\"", "true", "1.5"] {
            assert!(serde_json::from_str::<Bytes>(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_str::<Period>(wrong).is_err(), "{wrong}");
        }
    }
}
