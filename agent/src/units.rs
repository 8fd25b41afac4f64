//! Sizes and times as people write them in configurations and options.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes, written `512`, `64K`, `10MiB` or `2G`. All units are of 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time, written `500ms`, `5s`, `10m`, `1h`, `7d` or `2w`; bare numbers are seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Bytes: `500K`, `10MiB`, `2G`, with units of 1024; bare numbers are in units of `bare` bytes.
///
/// # Errors
/// What is wrong with the text.
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

/// A time in nanoseconds: `10`, `1.5`, `500ms`, `2s`, `3m`, `1h`; bare numbers are seconds.
///
/// # Errors
/// What is wrong with the text.
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
        _ => return Err(format!("unknown unit {unit:?}; use us, ms, s, m or h")),
    };
    let wrong = || "not a number followed by us, ms, s, m or h".to_owned();
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

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        size(text.trim(), 1).map(Self)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || format!("{text:?} is not a time: write it like 500ms, 5s, 10m, 1h or 7d");
        let days = |number: &str, days: u64| {
            let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(days * 86_400));
            number.map(Duration::from_secs).ok_or_else(wrong)
        };
        if let Some(number) = text.strip_suffix('d') {
            return days(number, 1).map(Self);
        }
        if let Some(number) = text.strip_suffix('w') {
            return days(number, 7).map(Self);
        }
        nanoseconds(text).map(|ns| Self(Duration::from_nanos(ns))).map_err(|_| wrong())
    }
}

/// The largest unit that leaves a whole number.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match self.0 {
            bytes if unit(40) => write!(f, "{}TiB", bytes >> 40),
            bytes if unit(30) => write!(f, "{}GiB", bytes >> 30),
            bytes if unit(20) => write!(f, "{}MiB", bytes >> 20),
            bytes if unit(10) => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}B"),
        }
    }
}

/// The largest unit that leaves a whole number.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ns) = (self.0.as_secs(), self.0.subsec_nanos());
        let whole = |unit: u64| seconds != 0 && seconds.is_multiple_of(unit);
        match ns {
            0 if whole(86_400) => write!(f, "{}d", seconds / 86_400),
            0 if whole(3600) => write!(f, "{}h", seconds / 3600),
            0 if whole(60) => write!(f, "{}m", seconds / 60),
            0 => write!(f, "{seconds}s"),
            ns if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", self.0.as_millis()),
            _ => write!(f, "{}ns", self.0.as_nanos()),
        }
    }
}

/// A text, or a number without unit.
struct TextOrNumber<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> de::Visitor<'_> for TextOrNumber<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number with a unit, such as \"10MiB\" or \"5s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(TextOrNumber(std::marker::PhantomData))
            }
        }
    )*};
}

as_text!(Size, Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_they_are_written() {
        for text in ["0B", "512B", "64KiB", "10MiB", "3GiB", "2TiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("10M".parse::<Size>(), Ok(Size(10 << 20)));
        for text in ["0s", "5s", "500ms", "3ns", "10m", "1h", "7d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("2w".parse::<Span>(), Ok(Span(Duration::from_secs(14 * 86_400))));
        for wrong in ["", "d", "1y", "-5s", "99999999999999999999d"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_without_unit_are_bytes_and_seconds() {
        let size: Size = serde_json::from_str("4096").unwrap();
        let span: Span = serde_json::from_str("30").unwrap();
        assert_eq!((size, span), (Size(4096), Span(Duration::from_secs(30))));
        assert!(serde_json::from_str::<Size>("-1").is_err());
        assert_eq!(serde_json::to_string(&Size(1 << 20)).unwrap(), "\"1MiB\"");
    }
}
