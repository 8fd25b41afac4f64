//! Moments as texts for names, in UTC.

#[cfg(feature = "service")]
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in seconds since 1970.
#[cfg(feature = "service")]
pub(crate) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// ISO 8601's basic format, as LTTng has it in names: `20260302T101500+0000`. `ns` are nanoseconds since
/// 1970.
pub(crate) fn compact(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}+0000")
}

/// As LTTng has it in names of sessions, in UTC: `20260302-101500`. `seconds` are those since 1970.
#[cfg(feature = "service")]
pub(crate) fn date_and_time(seconds: u64) -> String {
    let text = compact(seconds.saturating_mul(1_000_000_000));
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date}-{}", time.trim_end_matches("+0000"))
}

/// Year, month and day so many days after 1970-01-01, in the Gregorian calendar: years begin in March, and
/// 400 of them have 146 097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_514), (2026, 3, 2));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }

    #[test]
    fn moments_have_the_time_of_day() {
        assert_eq!(compact(1_772_446_500_999_999_999), "20260302T101500+0000");
        assert_eq!(compact(0), "19700101T000000+0000");
    }
}
