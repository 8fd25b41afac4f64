//! The table of gaps: where events are missing.

use super::columns::put_times;
use super::encoding::{Encoding, Kind};
use super::out::{Sheet, Sheets};
use super::sheets::GAPS;
use recording::{ExportError, Recording};
use tracedat::reader::Record;

/// Notes gaps while the records go by.
pub(super) struct Gaps {
    sheet: Sheet,
    /// The CPUs of buffers, sorted, and when each recorded last.
    last: Vec<((usize, u32), Option<u64>)>,
}

impl Gaps {
    /// Begins the table.
    pub(super) fn new<E: Encoding>(
        recording: &Recording<'_>,
        sheets: &mut Sheets<'_, E>,
    ) -> Result<Self, ExportError> {
        let streams = recording.cpu_streams().iter();
        let cpus = streams.flat_map(|stream| stream.parts().iter().map(|buffer| (*buffer, stream.cpu)));
        let mut last: Vec<_> = cpus.map(|cpu| (cpu, None)).collect();
        last.sort_unstable();
        Ok(Self { sheet: sheets.add("gaps", Kind::Beside, GAPS)?, last })
    }

    /// Looks at the next record of all. If events are missing before it, that is a row.
    pub(super) fn note<E: Encoding>(
        &mut self,
        record: &Record<'_>,
        recording: &Recording<'_>,
        sheets: &mut Sheets<'_, E>,
    ) -> Result<(), ExportError> {
        let place = self.last.binary_search_by_key(&(record.buffer, record.cpu), |(cpu, _)| *cpu);
        let last = place.ok().and_then(|place| self.last.get_mut(place));
        let since = last.and_then(|(_, last)| last.replace(record.timestamp));
        if record.missed.is_none() {
            return Ok(());
        }
        let mut row = sheets.row(self.sheet);
        put_times(record.timestamp, recording, &mut row);
        row.put(recording.file().buffers().get(record.buffer).map_or("", |buffer| &buffer.name));
        row.put(record.cpu);
        row.put(record.missed.filter(|missed| *missed != 0));
        row.put(since);
        sheets.end(self.sheet)
    }

    /// Tells what is missing behind the last records.
    pub(super) fn finish<E: Encoding>(
        &self,
        recording: &Recording<'_>,
        sheets: &mut Sheets<'_, E>,
    ) -> Result<(), ExportError> {
        for stream in recording.cpu_streams() {
            let Some(missed) = stream.lost_at_end() else { continue };
            let mut row = sheets.row(self.sheet);
            put_times(None, recording, &mut row);
            row.put(&*stream.channel);
            row.put(stream.cpu);
            row.put(Some(missed).filter(|missed| *missed != 0));
            row.put(stream.counts.last);
            sheets.end(self.sheet)?;
        }
        Ok(())
    }
}
