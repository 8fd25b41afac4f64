//! The kind of program that records an event, and the length of the strings in its record.

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

/// Bytes of the longest copy of a string in a record, without its end: `agent_ebpf::STRING_MAX`.
pub const STRING_MAX: usize = 165;

/// Which lane events take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneChoice {
    /// The fast one where it can be.
    #[default]
    Auto,
    /// The generic one, always.
    Generic,
    /// The fast one; an event that cannot take it is not recorded.
    Fast,
}

impl LaneChoice {
    /// Every one, with its name.
    pub const NAMES: [(&str, Self); 3] =
        [("auto", Self::Auto), ("fast", Self::Fast), ("generic", Self::Generic)];
}

impl fmt::Display for LaneChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, lane)| lane == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for LaneChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, lane)| *lane).ok_or_else(|| "expected auto, fast or generic".to_owned())
    }
}

/// How long copies are where nothing else is said: as the kernel's (`CONFIG_TRACE_SYSCALL_BUF_SIZE_DEFAULT`).
const DEFAULT_LIMIT: u8 = 63;

/// How much of a string is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringLimit(Option<NonZeroU8>);

impl StringLimit {
    /// Nothing.
    pub const OFF: Self = Self(None);
    /// As much as a record has room for.
    pub const LONGEST: Self = Self(NonZeroU8::new(STRING_MAX as u8));

    /// The bytes of the longest copy without its end; 0 for none.
    pub fn bytes(self) -> u32 {
        self.0.map_or(0, |limit| limit.get().into())
    }

    /// Whether there are none.
    pub fn is_off(self) -> bool {
        self.0.is_none()
    }
}

impl Default for StringLimit {
    fn default() -> Self {
        Self(NonZeroU8::new(DEFAULT_LIMIT))
    }
}

impl fmt::Display for StringLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => limit.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl FromStr for StringLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::OFF);
        }
        let limit =
            text.parse().ok().and_then(NonZeroU8::new).filter(|limit| usize::from(limit.get()) <= STRING_MAX);
        limit
            .map(|limit| Self(Some(limit)))
            .ok_or_else(|| format!("give a length from 1 to {STRING_MAX}, or off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let bytes = |text: &str| text.parse::<StringLimit>().map(StringLimit::bytes);
        assert_eq!((bytes("off"), bytes("1"), bytes("165")), (Ok(0), Ok(1), Ok(165)));
        assert_eq!(StringLimit::default().bytes(), 63);
        for wrong in ["0", "166", "300", "on", ""] {
            assert!(bytes(wrong).unwrap_err().contains("1 to 165"), "{wrong}");
        }
    }
}
