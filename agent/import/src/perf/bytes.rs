//! Numbers and texts of either byte order, out of slices.

use ftrace_event::Endian;

/// What is left of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    pub(super) rest: &'a [u8],
    pub(super) endian: Endian,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(rest: &'a [u8], endian: Endian) -> Self {
        Self { rest, endian }
    }

    /// So many bytes; `None` if there are less.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.first_chunk()?;
        Some(self.endian.read_u32(*bytes))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.first_chunk()?;
        Some(self.endian.read_u64(*bytes))
    }

    /// Skips so many u64.
    pub(super) fn skip_u64(&mut self, count: u64) -> Option<()> {
        let len = usize::try_from(count.checked_mul(8)?).ok()?;
        self.take(len).map(drop)
    }

    /// Bytes up to a NUL, which is skipped.
    pub(super) fn c_string(&mut self) -> Option<&'a [u8]> {
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        let text = self.take(len)?;
        self.take(1)?;
        Some(text)
    }
}

/// Bytes up to the first NUL.
pub(super) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
