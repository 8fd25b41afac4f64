//! Borders between the archives of a recording: the end of a page of each CPU, and what was counted there.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use agent_ebpf::{CpuBorder, EventLedger, border, switched};

use super::switch;
use crate::ring::{CpuCounts, CpuRing, SharedArray};
use ftrace_event::Endian;
use tracedat::page;

/// Finds borders in the rings that one set of programs fills.
#[derive(Debug)]
pub struct Borders {
    marker: Mutex<Marker>,
    events: Arc<EventCounts>,
}

/// The counts of each event, which programs change.
#[derive(Debug)]
pub(super) struct EventCounts {
    /// `LEDGER`: by row and slot.
    rows: SharedArray<EventLedger>,
    /// The event's id of each slot, plus 1; 0 for those without an event.
    ids: Vec<AtomicU32>,
}

impl EventCounts {
    /// The counts of events with these ids, of which there can be `slots`.
    pub(super) fn new(
        rows: SharedArray<EventLedger>,
        ids: impl IntoIterator<Item = u16>,
        slots: usize,
    ) -> Self {
        let known = ids.into_iter().map(|id| u32::from(id) + 1).chain(std::iter::repeat(0));
        Self { rows, ids: known.take(slots).map(AtomicU32::new).collect() }
    }

    /// Says which event has a slot from now on.
    pub(super) fn set_id(&self, slot: usize, id: u16) {
        if let Some(of) = self.ids.get(slot) {
            of.store(u32::from(id) + 1, Ordering::Relaxed);
        }
    }

    /// Says that no event has a slot.
    pub(super) fn clear_id(&self, slot: usize) {
        if let Some(of) = self.ids.get(slot) {
            of.store(0, Ordering::Relaxed);
        }
    }

    /// The last slot that an event of this id has.
    fn slot_of(&self, id: u16) -> Option<usize> {
        self.ids.iter().rposition(|of| of.load(Ordering::Relaxed) == u32::from(id) + 1)
    }

    /// How many records of an event there are in the ring with this row.
    pub(super) fn recorded(&self, row: u32, slot: usize) -> u64 {
        self.of(row, slot).map_or(0, |row| row.recorded)
    }

    /// What was counted of an event in the ring with this row.
    pub(super) fn of(&self, row: u32, slot: usize) -> Option<EventLedger> {
        self.rows.read(row as usize * self.ids.len() + slot).filter(|_| slot < self.ids.len())
    }

    /// Those of the ring with this row, by slot.
    pub(super) fn of_row(&self, row: u32) -> Vec<EventLedger> {
        let first = row as usize * self.ids.len();
        (first..first + self.ids.len()).filter_map(|row| self.rows.read(row)).collect()
    }
}

/// The program, and where it notes what it finds: of one CPU at a time.
#[derive(Debug)]
struct Marker {
    program: OwnedFd,
    counts: SharedArray<CpuBorder>,
    rows: SharedArray<EventLedger>,
}

/// What came of asking for a border.
#[derive(Debug)]
pub enum Border {
    /// It is at the end of the page that was open, or of the one before.
    Marked(CpuCounts),
    /// A program is writing to the page; it is worth another try in a moment.
    Busy,
    /// The CPU is offline, and nothing changes there.
    Offline,
}

impl Borders {
    pub(super) fn new(
        program: OwnedFd,
        counts: SharedArray<CpuBorder>,
        rows: SharedArray<EventLedger>,
        events: Arc<EventCounts>,
    ) -> Self {
        Self { marker: Mutex::new(Marker { program, counts, rows }), events }
    }

    /// Closes the open page of a ring, if it has events, and tells what was counted of it there: nothing is
    /// recorded in between. Interrupts its CPU, for as long as copying the counts of all events takes.
    ///
    /// # Errors
    /// The kernel does not run the program, or the CPU's gate is closed.
    pub fn mark(&self, ring: &CpuRing<'_>) -> io::Result<Border> {
        let marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        marker.counts.write(0, CpuBorder::default());
        match switch::run_on(marker.program.as_fd(), ring.id())? {
            None => Ok(Border::Offline),
            Some(border::CLOSED) => Err(io::Error::other("the CPU's gate is closed")),
            Some(switched::BUSY | switched::MORE) => Ok(Border::Busy),
            Some(_) => Ok(marker.read(ring.row()).map_or(Border::Busy, Border::Marked)),
        }
    }

    /// The border of a CPU that is offline: the end of its last complete page. What is in the page that it
    /// has left open is counted after the border. `None` if it came online meanwhile.
    pub fn of_offline(&self, ring: &CpuRing<'_>) -> Option<CpuCounts> {
        let before = ring.control().quiescent();
        let mut counts = CpuCounts::of_control(&before, self.events.of_row(ring.row()));
        let mut page = Vec::new();
        let open = ring.take_partial(&mut page);
        let after = ring.control().quiescent();
        if after.busy != 0 || (after.events, after.offset) != (before.events, before.offset) {
            return None;
        }
        if let Some(open) = open {
            counts.events = before.page_start_events;
            counts.unmarked = counts.unmarked.saturating_add(open.lost);
            page::each_record(&page, Endian::Little, |record| {
                let id = record.first_chunk().map(|id| u16::from_le_bytes(*id));
                let slot = id.and_then(|id| self.events.slot_of(id));
                if let Some(row) = slot.and_then(|slot| counts.rows.get_mut(slot)) {
                    row.recorded = row.recorded.saturating_sub(1);
                }
            });
        }
        Some(counts)
    }
}

impl Marker {
    /// What the program has noted of the ring with this row. A few runs in a thousand come back as done and
    /// have not been: then it is nothing.
    fn read(&self, row: u32) -> Option<CpuCounts> {
        let counts = self.counts.read(0).filter(|counts| counts.noted == u64::from(row) + 1)?;
        let rows = (0..self.rows.len()).filter_map(|slot| self.rows.read(slot)).collect();
        Some(CpuCounts::of_border(&counts, rows))
    }
}
