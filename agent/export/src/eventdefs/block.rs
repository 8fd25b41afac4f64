//! Tracefiles: events packed into blocks of one size.
//!
//! ```text
//! block   event block_start at 0, events, event block_end, bytes that are not used, u32 in the last 4 bytes
//! event   u16 code, u32 cycles, data
//! block_start, block_end   u32 seconds, u32 nanoseconds, u64 cycles, u32 number of the block
//! time_heartbeat           u32 seconds, u32 nanoseconds, u64 cycles
//! ```
//!
//! Everything is packed, in the byte order of the trace. The document has the cycles of an event count from
//! the last block_start or time_heartbeat, and the last 4 bytes of a block hold where its block_end is. The
//! reader of its time takes the cycles as the low 32 bits of the counter, and the last 4 bytes as the number
//! of bytes that are not used (getEventTime and readBlock of ltt/tracefile.c of LTTV 0.4).
//!
//! That reader adds what the cycles of an event have more than those of block_start to the time of
//! block_start. When it enters a block it takes the low 32 bits of the cycles of block_start, but all 64 when
//! it goes back to the begin of the block that it is in, which it also does with the first one
//! (updateTracefile). Both are the same if the cycles of each block begin below 2^32, so that is what it
//! gets: each block's are less by a multiple of 2^32.

use std::io::{self, Write};

use super::builtin::Numbers;
use ftrace_event::Endian;

/// Bytes of an event's header.
const EVENT_HEADER: usize = 6;
/// Bytes of block_start and block_end.
pub(super) const BLOCK_EVENT: usize = EVENT_HEADER + 20;
/// Bytes of a heartbeat.
const HEARTBEAT: usize = EVENT_HEADER + 16;
/// Bytes after the events.
const TRAILER: usize = BLOCK_EVENT + 4;
/// Most heartbeats that bridge a gap between two events, 5 minutes being 70 of them. A longer gap ends the
/// block.
const MAX_HEARTBEATS: u64 = 4096;
/// Longest distance that the cycles of an event can have from those before it.
const REACH: u64 = u32::MAX as u64;
/// The bits of the cycles that an event has.
const LOW: u64 = u32::MAX as u64;

/// How the tracefiles of a trace are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) endian: Endian,
    /// The document to the letter.
    pub(super) literal: bool,
    pub(super) numbers: Numbers,
    pub(super) block_size: usize,
    /// Nanoseconds since 1970 at cycle 0; of a clock that nobody knows it of, 0.
    pub(super) wall_offset: i64,
}

impl Layout {
    /// Seconds and nanoseconds of a time in cycles.
    pub(super) fn wall(&self, cycles: u64) -> (u64, u32) {
        let wall = cycles.wrapping_add_signed(self.wall_offset);
        (wall / 1_000_000_000, (wall % 1_000_000_000) as u32)
    }
}

/// A tracefile that is written.
#[derive(Debug)]
pub(super) struct Tracefile<W> {
    layout: Layout,
    out: W,
    block: Vec<u8>,
    number: u32,
    /// Cycles of the block's start; `None` while it is empty.
    start: Option<u64>,
    /// What the cycles that are written in the block are less than those of the clock.
    less: u64,
    /// Cycles of its last event.
    last: u64,
    /// Cycles that those of literal events count from.
    base: u64,
}

impl<W: Write> Tracefile<W> {
    /// A file without events yet.
    pub(super) fn new(layout: Layout, out: W) -> Self {
        let block = Vec::with_capacity(layout.block_size);
        Self { layout, out, block, number: 0, start: None, less: 0, last: 0, base: 0 }
    }

    /// Adds an event. `false` if it is too long for a block.
    pub(super) fn event(&mut self, cycles: u64, code: u16, data: &[u8]) -> io::Result<bool> {
        let event = EVENT_HEADER + data.len();
        if BLOCK_EVENT + event + TRAILER > self.layout.block_size {
            return Ok(false);
        }
        self.bridge(cycles)?;
        if !self.has_room(event) {
            self.flush()?;
        }
        if self.start.is_none() {
            self.begin(cycles);
        }
        self.push(cycles, code, data);
        Ok(true)
    }

    /// Writes the last block. A file without events has one block without events, at these cycles.
    pub(super) fn finish(mut self, cycles: u64) -> io::Result<W> {
        if self.number == 0 && self.start.is_none() {
            self.begin(cycles);
        }
        self.flush()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn has_room(&self, event: usize) -> bool {
        self.block.len() + event + TRAILER <= self.layout.block_size
    }

    /// Makes sure that 32 bits are enough to know the time of an event that comes next.
    fn bridge(&mut self, cycles: u64) -> io::Result<()> {
        if self.start.is_none() {
            return Ok(());
        }
        let before = if self.layout.literal { self.base } else { self.last };
        let gap = cycles.checked_sub(self.last).and_then(|_| cycles.checked_sub(before));
        match gap {
            Some(gap) if gap <= REACH => Ok(()),
            Some(gap) if gap / REACH <= MAX_HEARTBEATS => {
                let mut beat = before + REACH;
                while beat < cycles && self.has_room(HEARTBEAT) {
                    let (seconds, nanos) = self.layout.wall(beat);
                    let mut data = Vec::with_capacity(16);
                    self.put_time(&mut data, beat, seconds, nanos);
                    self.push(beat, self.layout.numbers.heartbeat, &data);
                    self.base = beat;
                    beat = beat.saturating_add(REACH);
                }
                if beat < cycles { self.flush() } else { Ok(()) }
            }
            // So does a time before that of the last event.
            _ => self.flush(),
        }
    }

    fn begin(&mut self, cycles: u64) {
        self.start = Some(cycles);
        self.less = if self.layout.literal { 0 } else { cycles & !LOW };
        self.base = cycles;
        self.block_event(cycles, self.layout.numbers.block_start);
    }

    fn block_event(&mut self, cycles: u64, code: u16) {
        let (seconds, nanos) = self.layout.wall(cycles);
        let mut data = Vec::with_capacity(20);
        self.put_time(&mut data, cycles, seconds, nanos);
        data.extend_from_slice(&self.layout.endian.u32(self.number));
        self.push(cycles, code, &data);
    }

    fn put_time(&self, data: &mut Vec<u8>, cycles: u64, seconds: u64, nanos: u32) {
        let endian = self.layout.endian;
        data.extend_from_slice(&endian.u32(seconds as u32));
        data.extend_from_slice(&endian.u32(nanos));
        data.extend_from_slice(&endian.u64(cycles - self.less));
    }

    fn push(&mut self, cycles: u64, code: u16, data: &[u8]) {
        let endian = self.layout.endian;
        let stamp = if self.layout.literal { cycles.wrapping_sub(self.base) } else { cycles };
        self.block.extend_from_slice(&endian.u16(code));
        self.block.extend_from_slice(&endian.u32(stamp as u32));
        self.block.extend_from_slice(data);
        self.last = cycles;
    }

    /// Writes the block, if there is anything in it.
    fn flush(&mut self) -> io::Result<()> {
        let Some(start) = self.start.take() else { return Ok(()) };
        let end_at = self.block.len();
        // The reader divides by the length of the block in cycles.
        let end = self.last.max(start.saturating_add(1));
        self.block_event(end, self.layout.numbers.block_end);
        let lost = self.layout.block_size - self.block.len() - 4;
        let trailer = if self.layout.literal { end_at } else { lost };
        self.block.resize(self.layout.block_size - 4, 0);
        self.block.extend_from_slice(&self.layout.endian.u32(trailer as u32));
        self.number = self.number.wrapping_add(1);
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}
