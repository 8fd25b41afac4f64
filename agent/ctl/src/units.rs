//! Sizes and times as LTTng's options have them.

/// Bytes: `4096`, `64K`, `1M`, `2G`; units of 1024 (lttng-enable-channel(1), `--subbuf-size`).
pub(crate) fn bytes(text: &str) -> Option<u64> {
    scaled(text, |unit| match unit {
        "" => Some(1),
        "k" | "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    })
}

/// Microseconds: `1000`, `5ms`, `1s`, `2m`, `1h` (lttng-enable-channel(1), `--switch-timer`).
pub(crate) fn microseconds(text: &str) -> Option<u64> {
    scaled(text, |unit| match unit {
        "" | "us" => Some(1),
        "ms" => Some(1_000),
        "s" => Some(1_000_000),
        "m" => Some(60_000_000),
        "h" => Some(3_600_000_000),
        _ => None,
    })
}

/// A number of 64 bits, in decimal or behind `0x` in hexadecimal digits.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x");
    digits.map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

fn scaled(text: &str, scale: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    number.parse::<u64>().ok()?.checked_mul(scale(unit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(["7", "64K", "1M", "2G"].map(bytes), [7, 65_536, 1 << 20, 2 << 30].map(Some));
        for wrong in ["", "K", "-1", "1T", "1.5M", "99999999999999G"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(
            ["7", "7us", "5ms", "1s", "2m", "1h"].map(microseconds),
            [7, 7, 5_000, 1_000_000, 120_000_000, 3_600_000_000].map(Some)
        );
        assert_eq!(microseconds("1d"), None);
    }
}
