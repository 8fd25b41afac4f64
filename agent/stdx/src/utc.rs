//! Moments as texts for names, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in seconds since 1970.
pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// ISO 8601's basic format, as LTTng has it in names: `20260302T101500+0000`. `ns` are nanoseconds since
/// 1970.
pub fn compact(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}+0000")
}

/// As LTTng has it in names of sessions, in UTC: `20260302-101500`. `seconds` are those since 1970.
pub fn date_and_time(seconds: u64) -> String {
    let text = compact(seconds.saturating_mul(1_000_000_000));
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date}-{}", time.trim_end_matches("+0000"))
}

/// A moment in names of archives, to the millisecond: `20260302T101500.250Z`. `ns` are nanoseconds since
/// 1970.
pub fn moment(ns: u64) -> String {
    let text = compact(ns);
    format!("{}.{:03}Z", text.trim_end_matches("+0000"), ns / 1_000_000 % 1000)
}

/// The day of a moment: `2026-03-02`. `ns` are nanoseconds since 1970.
pub fn day(ns: u64) -> String {
    let (year, month, day) = civil(ns / 86_400_000_000_000);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Nanoseconds since 1970 of a moment in UTC, as [`moment`] writes it, or as ISO 8601 has it otherwise:
/// `2026-03-02`, `2026-03-02T10:15:00Z`, `20260302T101500.250Z`.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let digits = |text: &str, count: usize| {
        let plain: String = text.chars().filter(|char| !matches!(char, '-' | ':')).collect();
        (plain.len() == count && plain.bytes().all(|byte| byte.is_ascii_digit())).then_some(plain)
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let date = digits(date, 8)?;
    let (year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let days = days_since_1970(year, month, day).filter(|days| civil(*days) == (year, month, day))?;
    let (clock, part) = time.split_once('.').unwrap_or((time, ""));
    let clock = if clock.is_empty() { "000000".to_owned() } else { digits(clock, 6)? };
    let (hour, minute, second) = (number(&clock[..2])?, number(&clock[2..4])?, number(&clock[4..])?);
    if hour > 23 || minute > 59 || second > 60 || part.len() > 9 || !part.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let ns = if part.is_empty() { 0 } else { number(&format!("{part:0<9}"))? };
    let seconds = days.checked_mul(86_400)?.checked_add(hour * 3600 + minute * 60 + second)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// The reverse of [`civil`], for years from 1970 to 2500; nanoseconds of what is later do not fit anyway.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..2500).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
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
    fn moments_are_read_as_they_are_written() {
        for ns in [0, 1_772_446_500_250_000_000, 951_782_400_000_000_000, 4_107_542_399_999_000_000] {
            assert_eq!(parse(&moment(ns)), Some(ns), "{}", moment(ns));
        }
        assert_eq!(parse("2026-03-02T10:15:00Z"), Some(1_772_446_500_000_000_000));
        assert_eq!(parse("2026-03-02"), Some(1_772_409_600_000_000_000));
        assert_eq!(day(1_772_446_500_250_000_000), "2026-03-02");
        for wrong in
            ["", "2026", "2026-02-30", "2026-03-02T25:00:00", "2026-03-02T10:15", "20260302T101500.x"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn moments_have_the_time_of_day() {
        assert_eq!(compact(1_772_446_500_999_999_999), "20260302T101500+0000");
        assert_eq!(compact(0), "19700101T000000+0000");
    }
}
