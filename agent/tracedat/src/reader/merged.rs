//! Records of several CPUs, buffers or files, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::error::ReadError;
use super::records::{CpuRecords, Found, Origin, Record};

/// Bytes of pages that are in memory at one time, of all streams together.
const MEMORY: u64 = 64 << 20;

/// Records of several CPUs in the order of time. Of records with one time that of the stream given first
/// comes first.
///
/// Times that go backwards within a CPU, as a damaged file or a clock that was set has them, come as they
/// are.
///
/// Turning round is possible at any position, and costs a look at every CPU.
#[derive(Debug)]
pub struct Records<'r> {
    streams: Vec<CpuRecords<'r>>,
    /// The next record of each stream in the direction of reading.
    heads: Vec<Option<Found>>,
    /// The times of the heads, but for the pending one's when reading forwards.
    forwards: BinaryHeap<Reverse<(u64, usize)>>,
    backwards: BinaryHeap<(u64, usize)>,
    direction: Direction,
    /// The stream whose record was given last: its next one is not known yet.
    pending: Option<usize>,
    /// Streams that have yet to be looked at, highest first.
    unread: Vec<usize>,
    /// Streams that were looked at for the last record.
    moved: Vec<usize>,
}

/// A gap in the records of one CPU: events were lost, or pages cannot be read. It ends with the next record
/// of that CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// As in [`Record::reader`].
    pub reader: usize,
    /// As in [`Record::buffer`].
    pub buffer: usize,
    /// The CPU.
    pub cpu: u32,
}

/// The end of the records of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// As in [`Record::reader`].
    pub reader: usize,
    /// As in [`Record::buffer`].
    pub buffer: usize,
    /// The CPU.
    pub cpu: u32,
    /// Events lost behind its last record: 0 = not known how many.
    pub missed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Nothing was read since the positions were set.
    Unset,
    Forwards,
    Backwards,
}

impl<'r> Records<'r> {
    /// Merges these streams, from where each of them is. However many there are, and however large the chunks
    /// of the file, their pages have no more than 64 MiB of memory; of very many, one page each.
    pub fn merge(mut streams: Vec<CpuRecords<'r>>) -> Self {
        let share = MEMORY / (streams.len() as u64).max(1);
        for stream in &mut streams {
            stream.pages().keep(share);
        }
        let heads = vec![None; streams.len()];
        Self {
            streams,
            heads,
            forwards: BinaryHeap::new(),
            backwards: BinaryHeap::new(),
            direction: Direction::Unset,
            pending: None,
            unread: Vec::new(),
            moved: Vec::new(),
        }
    }

    /// The streams, given back where the last record was read.
    pub fn into_streams(mut self) -> Vec<CpuRecords<'r>> {
        self.settle();
        self.streams
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// A damaged page or chunk of one CPU. The next call continues after it.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.direction != Direction::Forwards {
            self.turn(Direction::Forwards);
        }
        self.moved.clear();
        self.moved.extend(self.pending);
        let mut next = None;
        if let Some(stream) = self.pending.take() {
            let head = &mut self.heads[stream];
            if let Err(error) = self.streams[stream].advance_to(head) {
                self.unread.push(stream);
                return Err(error);
            }
            next = head.as_ref().map(|head| (head.timestamp, stream));
        }
        if !self.unread.is_empty() {
            self.forwards.extend(next.take().map(Reverse));
            self.read_unread()?;
        }
        // Of a CPU there are mostly several records before one of another.
        let next = match (next, self.forwards.peek_mut()) {
            (Some(next), Some(mut top)) if top.0 < next => Some(std::mem::replace(&mut top.0, next)),
            (None, Some(top)) => Some(PeekMut::pop(top).0),
            (next, _) => next,
        };
        let Some((_, stream)) = next else { return Ok(None) };
        self.pending = Some(stream);
        Ok(self.heads[stream].as_ref().map(|found| self.streams[stream].view(found)))
    }

    /// Looks at the streams that have yet to be looked at.
    #[cold]
    fn read_unread(&mut self) -> Result<(), ReadError> {
        while let Some(stream) = self.unread.pop() {
            self.moved.push(stream);
            match self.streams[stream].advance() {
                Ok(found) => {
                    self.heads[stream] = found;
                    self.forwards.extend(found.map(|found| Reverse((found.timestamp, stream))));
                }
                Err(error) => {
                    self.unread.push(stream);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gaps that are known since [`next_record`](Self::next_record) was called last: they are before the
    /// record or behind the error that it gave, and go on until the next record of their CPU.
    #[inline]
    pub(super) fn gaps(&self) -> impl Iterator<Item = Gap> {
        let is_gap = |stream: &&usize| match self.heads.get(**stream) {
            Some(Some(found)) => found.missed.is_some(),
            _ => self.unread.contains(stream),
        };
        self.moved.iter().filter(is_gap).map(|stream| {
            let Origin { reader, buffer, cpu } = self.streams[*stream].origin();
            Gap { reader, buffer, cpu }
        })
    }

    /// CPUs whose last record was given before [`next_record`](Self::next_record) was called last: the record
    /// that it gave is behind their ends.
    #[inline]
    pub fn ends(&self) -> impl Iterator<Item = End> {
        let is_end =
            |stream: &&usize| matches!(self.heads.get(**stream), Some(None)) && !self.unread.contains(stream);
        self.moved.iter().filter(is_end).map(|stream| {
            let Origin { reader, buffer, cpu } = self.streams[*stream].origin();
            End { reader, buffer, cpu, missed: self.streams[*stream].lost_behind() }
        })
    }

    /// CPUs that have lost events behind their last records. Known when the end was reached.
    pub fn lost_behind(&self) -> impl Iterator<Item = End> {
        self.streams.iter().filter_map(|stream| {
            let Origin { reader, buffer, cpu } = stream.origin();
            let missed = stream.lost_behind();
            missed.is_some().then_some(End { reader, buffer, cpu, missed })
        })
    }

    /// The record before; `None` at the start.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub fn prev_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.direction != Direction::Backwards {
            self.turn(Direction::Backwards);
        }
        if let Some(stream) = self.pending.take() {
            self.backwards.pop();
            self.heads[stream] = None;
            self.unread.push(stream);
        }
        while let Some(stream) = self.unread.pop() {
            match self.streams[stream].retreat() {
                Ok(found) => {
                    self.heads[stream] = found;
                    self.backwards.extend(found.map(|found| (found.timestamp, stream)));
                }
                Err(error) => {
                    self.unread.push(stream);
                    return Err(error);
                }
            }
        }
        let Some(&(_, stream)) = self.backwards.peek() else { return Ok(None) };
        self.pending = Some(stream);
        Ok(self.heads[stream].as_ref().map(|found| self.streams[stream].view(found)))
    }

    /// Goes before the first record that is not before `timestamp`. Looks at O(log n) pages of each CPU.
    ///
    /// Pages that cannot be read are passed over; reading on from here reports them.
    pub fn seek(&mut self, timestamp: u64) {
        self.forget();
        self.streams.iter_mut().for_each(|stream| stream.seek(timestamp));
    }

    /// Goes before the first record.
    pub fn rewind(&mut self) {
        self.forget();
        self.streams.iter_mut().for_each(CpuRecords::rewind);
    }

    /// Goes past the last record.
    pub fn fast_forward(&mut self) {
        self.forget();
        self.streams.iter_mut().for_each(CpuRecords::fast_forward);
    }

    fn forget(&mut self) {
        self.forwards.clear();
        self.backwards.clear();
        self.heads.fill(None);
        self.pending = None;
        self.unread.clear();
        self.moved.clear();
        self.direction = Direction::Unset;
    }

    /// Puts every stream where the merged records are: a record that was taken out of a stream and not given
    /// yet goes back.
    fn settle(&mut self) {
        for stream in 0..self.streams.len() {
            if self.heads[stream].is_some() && self.pending != Some(stream) {
                // It was just read, so that it can be read again.
                let records = &mut self.streams[stream];
                let _ = match self.direction {
                    Direction::Forwards => records.retreat(),
                    Direction::Backwards => records.advance(),
                    Direction::Unset => Ok(None),
                };
            }
        }
        self.forget();
    }

    #[cold]
    fn turn(&mut self, direction: Direction) {
        self.settle();
        self.direction = direction;
        self.unread = (0..self.streams.len()).rev().collect();
    }
}
