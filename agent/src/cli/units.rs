//! Numbers as people read and write them.

pub(super) use crate::units::{nanoseconds, size};

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
        for wrong in ["", "M", "1.5M", "1P", "99999999999G"] {
            assert!(size(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 1023, 1024, 3_565_158].map(bytes), ["0 B", "1023 B", "1.0 KB", "3.4 MB"]);
    }
}
