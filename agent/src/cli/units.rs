//! Numbers as people read and write them.

/// A count with its thousands apart: `1 234 567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A size: `512 B`, `3.4 MB`. Units of 1024, as trace-cmd counts.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A time in nanoseconds: `10`, `1.5`, `500ms`, `2s`, `3m`, `1h`; bare numbers are seconds.
pub(super) fn nanoseconds(text: &str) -> Result<u64, String> {
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

/// Nobody looks at intervals that are longer.
#[cfg(feature = "top")]
pub(super) const LONGEST_INTERVAL: std::time::Duration = std::time::Duration::from_mins(10);

/// A time that is not nothing, in nanoseconds.
pub(super) fn period(text: &str) -> Result<u64, String> {
    match nanoseconds(text)? {
        0 => Err("it must be greater than zero".to_owned()),
        nanos => Ok(nanos),
    }
}

/// The same, and 0 for `off`.
pub(super) fn period_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { period(text) }
}

/// Bytes: `500K`, `10M`, `2G`, with units of 1024; bare numbers are in units of `bare` bytes.
pub(super) fn size(text: &str, bare: u64) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.to_ascii_uppercase().as_str() {
        "" => Some(bare),
        "B" => Some(1),
        "K" | "KB" => Some(1 << 10),
        "M" | "MB" => Some(1 << 20),
        "G" | "GB" => Some(1 << 30),
        _ => None,
    };
    let size = digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    size.ok_or_else(|| format!("{text:?} is not a size: write it like 500K, 10M or 2G"))
}

/// A size in KB, which bare numbers are in.
pub(super) fn kilobytes(text: &str) -> Result<u64, String> {
    Ok(size(text, 1 << 10)?.div_ceil(1 << 10))
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
        for wrong in [
            "",
            ".",
            "x",
            "1.x",
            "1.0000000001",
            "-1",
            "99999999999999999999",
            "1d",
            "1e3",
            "0.5ns",
            "nan",
            "inf",
            "10 fortnights",
        ] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
        assert!(period("0").is_err());
    }

    #[test]
    fn sizes_with_units() {
        assert_eq!(["10", "3k", "2MB", "4B"].map(|text| size(text, 1)), [10, 3072, 2 << 20, 4].map(Ok));
        assert_eq!(["8", "8K", "8M", "1B"].map(kilobytes), [8, 8, 8192, 1].map(Ok));
        for wrong in ["", "M", "1.5M", "1T", "99999999999G"] {
            assert!(size(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 1023, 1024, 3_565_158].map(bytes), ["0 B", "1023 B", "1.0 KB", "3.4 MB"]);
    }
}
