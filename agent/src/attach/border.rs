//! Borders between the archives of a recording: the end of a page of each CPU, and what was counted there.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use agent_ebpf::{CpuBorder, EventLedger, border, switched};

use crate::{
    bpf::sys,
    ring::{CpuCounts, CpuRing, SharedArray},
    tracedat::{
        Endian,
        page::{EventCursor, HEADER_LEN, PageHeader},
    },
};

/// The most runs that move what is in a side queue: its size in the shortest entries.
const RUNS_MAX: usize = 1 << 16;

/// Finds borders in the rings that one set of programs fills.
#[derive(Debug)]
pub struct Borders {
    marker: Mutex<Marker>,
    /// The counts that programs change, by CPU and slot.
    ledger: Arc<SharedArray<EventLedger>>,
    /// The event's id of each slot.
    ids: Vec<u16>,
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
        ledger: Arc<SharedArray<EventLedger>>,
        ids: Vec<u16>,
    ) -> Self {
        Self { marker: Mutex::new(Marker { program, counts, rows }), ledger, ids }
    }

    /// Closes the open page of a CPU, if it has events, and tells what the CPU has counted there: nothing is
    /// recorded in between. Interrupts the CPU, for as long as copying the counts of all events takes.
    ///
    /// # Errors
    /// The kernel does not run the program, or the CPU's gate is closed.
    pub fn mark(&self, cpu: u32) -> io::Result<Border> {
        let marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..RUNS_MAX {
            marker.counts.write(0, CpuBorder::default());
            match sys::run_on(marker.program.as_fd(), cpu) {
                Ok(switched::MORE) => {}
                Ok(switched::BUSY) => return Ok(Border::Busy),
                Ok(border::CLOSED) => return Err(io::Error::other("the CPU's gate is closed")),
                Ok(_) => return Ok(marker.read(cpu).map_or(Border::Busy, Border::Marked)),
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(Border::Offline),
                Err(error) => return Err(error),
            }
        }
        Ok(Border::Busy)
    }

    /// The border of a CPU that is offline: the end of its last complete page. What is in the page that it
    /// has left open is counted after the border. `None` if it came online meanwhile.
    pub fn of_offline(&self, ring: &CpuRing<'_>) -> Option<CpuCounts> {
        let first = ring.cpu() as usize * self.ids.len();
        let before = ring.control().quiescent();
        let mut rows: Vec<EventLedger> =
            (first..first + self.ids.len()).filter_map(|row| self.ledger.read(row)).collect();
        let mut page = Vec::new();
        let open = ring.take_partial(&mut page);
        let after = ring.control().quiescent();
        if after.busy != 0 || (after.events, after.offset) != (before.events, before.offset) {
            return None;
        }
        let mut border = CpuBorder {
            head: before.head,
            events: before.events,
            lost: before.lost,
            marked_lost: before.marked_lost,
            overwritten: before.overwritten,
            names_lost: before.names_lost,
            noted: 0,
        };
        if let Some(open) = open {
            border.events = before.page_start_events;
            border.marked_lost = before.marked_lost.saturating_sub(open.lost);
            for id in ids_of(&page) {
                if let Some(slot) = self.ids.iter().position(|of| *of == id)
                    && let Some(row) = rows.get_mut(slot)
                {
                    row.recorded = row.recorded.saturating_sub(1);
                }
            }
        }
        Some(CpuCounts::of_border(&border, rows))
    }
}

/// The ids of a page's events.
fn ids_of(page: &[u8]) -> Vec<u16> {
    let mut ids = Vec::new();
    let Ok(header) = PageHeader::read(page, Endian::Little) else { return ids };
    let Some(data) = page.get(HEADER_LEN..HEADER_LEN + header.data_len) else { return ids };
    let mut cursor = EventCursor::new(header.timestamp);
    while let Ok(Some(event)) = cursor.next(data, Endian::Little) {
        if let Some(id) = data.get(event.start..).and_then(|record| record.first_chunk()) {
            ids.push(u16::from_le_bytes(*id));
        }
    }
    ids
}

impl Marker {
    /// What the program has noted of a CPU. A few runs in a thousand come back as done and have not been:
    /// then it is nothing.
    fn read(&self, cpu: u32) -> Option<CpuCounts> {
        let counts = self.counts.read(0).filter(|counts| counts.noted == u64::from(cpu) + 1)?;
        let rows = (0..self.rows.len()).filter_map(|slot| self.rows.read(slot)).collect();
        Some(CpuCounts::of_border(&counts, rows))
    }
}
