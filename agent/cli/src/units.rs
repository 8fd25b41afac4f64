//! Numbers as people read and write them.

pub(super) use stdx::quantity::{nanoseconds, size};

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
    fn nothing_is_no_period() {
        assert!(period("0").is_err());
        assert_eq!(["8", "8K", "8M", "1B"].map(kilobytes), [8, 8, 8192, 1].map(Ok));
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 1023, 1024, 3_565_158].map(bytes), ["0 B", "1023 B", "1.0 KB", "3.4 MB"]);
    }
}
