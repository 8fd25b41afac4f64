//! Tracefiles: events packed into blocks of one size.

use std::io::{self, Write};

use super::layout::Layout;

/// Most heartbeats that bridge a gap between two events, 5 minutes being 70 of them. A longer gap ends the
/// block, for the begin of the next has a full stamp.
const MAX_HEARTBEATS: u64 = 4096;
/// Longest distance that a stamp of 32 bits can have from the one before it.
const REACH: u64 = u32::MAX as u64;

/// A tracefile that is written.
#[derive(Debug)]
pub(super) struct Tracefile<'l, W> {
    layout: &'l Layout,
    out: W,
    block: Vec<u8>,
    /// Where the next event begins, if it need not be aligned.
    at: usize,
    /// Cycles of the block's first event and of the last.
    cycles: Option<(u64, u64)>,
    heartbeat_id: [u8; 2],
}

impl<'l, W: Write> Tracefile<'l, W> {
    /// A file of blocks of `block_size` bytes. `heartbeat_id` is what heartbeats are called in event headers.
    pub(super) fn new(layout: &'l Layout, out: W, block_size: usize, heartbeat_id: [u8; 2]) -> Self {
        Self { layout, out, block: vec![0; block_size], at: layout.headers(), cycles: None, heartbeat_id }
    }

    /// Bytes of a block that has nothing but an event with such a payload.
    pub(super) fn block_of(layout: &Layout, payload: usize) -> usize {
        layout.offsets(layout.headers()).1 + payload
    }

    /// Adds an event. `false` if it is too long for a block.
    pub(super) fn event(&mut self, cycles: u64, id: [u8; 2], payload: &[u8]) -> io::Result<bool> {
        if Self::block_of(self.layout, payload.len()) > self.block.len() {
            return Ok(false);
        }
        if self.layout.heartbeat {
            self.bridge(cycles)?;
        }
        if !self.push(cycles, id, payload) {
            self.flush()?;
            self.push(cycles, id, payload);
        }
        Ok(true)
    }

    /// Writes the last block.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Makes sure that 32 bits of `cycles` are enough to know all of it.
    fn bridge(&mut self, cycles: u64) -> io::Result<()> {
        let Some((_, last)) = self.cycles else { return Ok(()) };
        match cycles.checked_sub(last) {
            Some(gap) if gap <= REACH => Ok(()),
            Some(gap) if gap / REACH <= MAX_HEARTBEATS => {
                let mut beat = last + REACH;
                while beat < cycles && self.push(beat, self.heartbeat_id, &[]) {
                    beat = beat.saturating_add(REACH);
                }
                // Without room for a heartbeat there is none for the event, and a new block needs no
                // heartbeat.
                if beat < cycles { self.flush() } else { Ok(()) }
            }
            // So does a time before that of the last event.
            _ => self.flush(),
        }
    }

    /// Adds an event if the block has room for it.
    fn push(&mut self, cycles: u64, id: [u8; 2], payload: &[u8]) -> bool {
        let (header, data) = self.layout.offsets(self.at);
        let end = data + payload.len();
        let Some(room) = self.block.get_mut(self.at..end) else { return false };
        // Padding may hold what the block before had there.
        room[..header - self.at].fill(0);
        let room = &mut room[header - self.at..];
        let (head, body) = room.split_at_mut(data - header);
        head.fill(0);
        self.layout.put_event_header(head, cycles, id, payload.len());
        body.copy_from_slice(payload);
        self.at = end;
        self.cycles = Some((self.cycles.map_or(cycles, |(first, _)| first), cycles));
        true
    }

    /// Writes the block, if there is anything in it.
    fn flush(&mut self) -> io::Result<()> {
        let Some(cycles) = self.cycles.take() else { return Ok(()) };
        self.block[self.at..].fill(0);
        self.layout.put_headers(&mut self.block, cycles, self.at);
        self.at = self.layout.headers();
        self.out.write_all(&self.block)
    }
}
