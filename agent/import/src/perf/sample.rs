//! A sample (`PERF_RECORD_SAMPLE`), and what records of other kinds end with (`struct sample_id`).

use super::attr::Attr;
use super::bytes::Bytes;
use ftrace_event::Endian;

/// Bits of `enum perf_event_sample_format`.
pub(super) mod has {
    pub(in super::super) const IP: u64 = 1;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of `enum perf_event_read_format`.
mod count_has {
    pub(super) const TIME_ENABLED: u64 = 1;
    pub(super) const TIME_RUNNING: u64 = 1 << 1;
    pub(super) const ID: u64 = 1 << 2;
    pub(super) const GROUP: u64 = 1 << 3;
    pub(super) const LOST: u64 = 1 << 4;
}

/// What is needed of a sample, or of the end of another record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    /// Which event on which CPU it is of.
    pub(super) id: Option<u64>,
    /// The process and the thread that ran.
    pub(super) thread: Option<(u32, u32)>,
    pub(super) time: Option<u64>,
    pub(super) cpu: Option<u32>,
    /// Addresses of a call chain, u64 each, with marks of whose they are between them.
    pub(super) chain: &'a [u8],
    /// What ftrace would have recorded.
    pub(super) raw: Option<&'a [u8]>,
}

impl<'a> Sample<'a> {
    /// Reads a sample. `None` if it is shorter than it should be.
    pub(super) fn read(attr: &Attr, body: &'a [u8], endian: Endian) -> Option<Self> {
        let mut bytes = Bytes::new(body, endian);
        let mut sample = Self::default();
        let is = |bit: u64| attr.sample_type & bit != 0;
        if is(has::IDENTIFIER) {
            sample.id = Some(bytes.u64()?);
        }
        if is(has::IP) {
            bytes.skip_u64(1)?;
        }
        if is(has::TID) {
            sample.thread = Some((bytes.u32()?, bytes.u32()?));
        }
        if is(has::TIME) {
            sample.time = Some(bytes.u64()?);
        }
        if is(has::ADDR) {
            bytes.skip_u64(1)?;
        }
        if is(has::ID) {
            sample.id = Some(bytes.u64()?);
        }
        if is(has::STREAM_ID) {
            bytes.skip_u64(1)?;
        }
        if is(has::CPU) {
            sample.cpu = Some(bytes.u32()?);
            bytes.u32()?;
        }
        if is(has::PERIOD) {
            bytes.skip_u64(1)?;
        }
        if is(has::READ) {
            skip_counts(attr.read_format, &mut bytes)?;
        }
        if is(has::CALLCHAIN) {
            let count = bytes.u64()?;
            sample.chain = bytes.take(usize::try_from(count.checked_mul(8)?).ok()?)?;
        }
        if is(has::RAW) {
            let len = bytes.u32()?;
            sample.raw = Some(bytes.take(len as usize)?);
        }
        Some(sample)
    }

    /// Reads the end of a record that is no sample. Nothing is known if records have none.
    pub(super) fn at_end_of(attr: &Attr, body: &'a [u8], endian: Endian) -> Self {
        let is = |bit: u64| attr.sample_type & bit != 0;
        let parts = [has::TID, has::TIME, has::ID, has::STREAM_ID, has::CPU, has::IDENTIFIER];
        let len = parts.iter().filter(|part| is(**part)).count() * 8;
        let start = body.len().checked_sub(len).filter(|_| attr.sample_id_all);
        let Some(end) = start.and_then(|start| body.get(start..)) else { return Self::default() };
        let mut bytes = Bytes::new(end, endian);
        let mut sample = Self::default();
        if is(has::TID) {
            sample.thread = bytes.u32().zip(bytes.u32());
        }
        if is(has::TIME) {
            sample.time = bytes.u64();
        }
        if is(has::ID) {
            sample.id = bytes.u64();
        }
        if is(has::STREAM_ID) {
            bytes.u64();
        }
        if is(has::CPU) {
            sample.cpu = bytes.u32();
            bytes.u32();
        }
        if is(has::IDENTIFIER) {
            sample.id = bytes.u64();
        }
        sample
    }
}

/// Where a sample has its id, which says what else it has: it is at the same place in all samples of a
/// recording. `None` if samples have none.
pub(super) fn id_of_sample(attr: &Attr, body: &[u8], endian: Endian) -> Option<u64> {
    let mut bytes = Bytes::new(body, endian);
    if attr.sample_type & has::IDENTIFIER != 0 {
        return bytes.u64();
    }
    if attr.sample_type & has::ID == 0 {
        return None;
    }
    let before = [has::IP, has::TID, has::TIME, has::ADDR];
    bytes.skip_u64(before.iter().filter(|part| attr.sample_type & **part != 0).count() as u64)?;
    bytes.u64()
}

/// Skips `struct read_format`.
fn skip_counts(format: u64, bytes: &mut Bytes<'_>) -> Option<()> {
    let ones = |bits: u64| u64::from((format & bits).count_ones());
    let times = ones(count_has::TIME_ENABLED | count_has::TIME_RUNNING);
    let each = 1 + ones(count_has::ID | count_has::LOST);
    if format & count_has::GROUP == 0 {
        return bytes.skip_u64(times + each);
    }
    let count = bytes.u64()?;
    bytes.skip_u64(count.checked_mul(each)?.checked_add(times)?)
}
