//! What a request to a block device does.

use serde::Serialize;

/// What a request to a block device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// The device's own cache is to be written.
    Flush,
    /// Sectors are not used any more.
    Discard,
    /// Anything else: zones, and commands to the driver.
    Other,
}

impl Operation {
    /// By the kernel's letters (`blk_fill_rwbs`, kernel/trace/blktrace.c). An `F` before the letter of
    /// another operation says that the cache is written first.
    pub(super) fn of(rwbs: &[u8]) -> Self {
        let letters = match rwbs {
            [b'F', rest @ ..] if matches!(rest.first(), Some(b'R' | b'W' | b'D' | b'N' | b'Z')) => rest,
            all => all,
        };
        match letters.first() {
            Some(b'R') => Self::Read,
            Some(b'W') => Self::Write,
            Some(b'F') => Self::Flush,
            Some(b'D') => Self::Discard,
            _ => Self::Other,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_kernel() {
        let letters =
            ["R", "RA", "RSM", "WS", "WFS", "FWS", "FWFS", "FF", "F", "FFS", "D", "DE", "FN", "ZR", "N", ""];
        let found: String =
            letters.map(|text| Operation::of(text.as_bytes()).name()[..1].to_owned()).concat();
        assert_eq!(found, "rrrwwwwfffddoooo");
    }
}
