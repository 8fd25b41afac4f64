//! `struct perf_event_attr`: what samples of an event have.

use super::bytes::Bytes;
use ftrace_event::Endian;

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// Offsets in `struct perf_event_attr`, whose length is what it says of itself.
mod at {
    pub(super) const SIZE: usize = 4;
    pub(super) const CONFIG: usize = 8;
    pub(super) const SAMPLE_TYPE: usize = 24;
    pub(super) const READ_FORMAT: usize = 32;
    pub(super) const FLAGS: usize = 40;
    pub(super) const CLOCKID: usize = 92;
}

/// Numbers of bits among the flags.
const SAMPLE_ID_ALL: u32 = 18;
const USE_CLOCKID: u32 = 25;

/// The length of the first version (`PERF_ATTR_SIZE_VER0`), which is meant by a length of 0.
const FIRST_LEN: usize = 64;

/// What is recorded of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    /// The number of its tracepoint, if it is one.
    pub(super) tracepoint: Option<u64>,
    /// What samples have, bits of `enum perf_event_sample_format`.
    pub(super) sample_type: u64,
    /// What counts in samples have, bits of `enum perf_event_read_format`.
    pub(super) read_format: u64,
    /// Whether records that are no samples end with what samples begin with.
    pub(super) sample_id_all: bool,
    /// The clock, by its number for `clock_gettime`, unless it is that of the scheduler.
    pub(super) clock: Option<i32>,
}

impl Attr {
    /// Reads it from the beginning of some bytes. Returns also its length.
    pub(super) fn read(bytes: &[u8], endian: Endian) -> Option<(Self, usize)> {
        let u32_at = |at: usize| Bytes::new(bytes.get(at..)?, endian).u32();
        let u64_at = |at: usize| Bytes::new(bytes.get(at..)?, endian).u64();
        let len = match u32_at(at::SIZE)? as usize {
            0 => FIRST_LEN,
            len => len,
        };
        if len < FIRST_LEN || len > bytes.len() {
            return None;
        }
        let flags = u64_at(at::FLAGS)?;
        // Bit fields are laid out from the other end where the byte order is the other one.
        let flag = |bit: u32| {
            let bit = if endian == Endian::Little { bit } else { 63 - bit };
            flags >> bit & 1 == 1
        };
        let has_clock = flag(USE_CLOCKID) && len >= at::CLOCKID + 4;
        let attr = Self {
            tracepoint: (u32_at(0)? == TRACEPOINT).then_some(u64_at(at::CONFIG)?),
            sample_type: u64_at(at::SAMPLE_TYPE)?,
            read_format: u64_at(at::READ_FORMAT)?,
            sample_id_all: flag(SAMPLE_ID_ALL),
            clock: if has_clock { u32_at(at::CLOCKID).map(u32::cast_signed) } else { None },
        };
        Some((attr, len))
    }
}
