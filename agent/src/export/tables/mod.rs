//! Formats `csv` and `jsonl`: a table of each event, for DuckDB, pandas, Spark and whatever reads such files.
//!
//! | file | rows |
//! |---|---|
//! | `SYSTEM.EVENT.csv` | the records of an event, by time (`columns.rs`) |
//! | `events.csv` | the tables: event, file, how many rows |
//! | `losses.csv` | what each CPU of each buffer recorded and lost |
//! | `gaps.csv` | where events are missing: the record that comes after each gap |
//! | `threads.csv` | threads at the start, in recordings of this recorder; of others, names by thread |
//! | `host.csv` | one row: the machine, the clock, the time that is covered |
//! | `tables.sql` | views of all of them for DuckDB, with the exact types |
//!
//! CSV is that of RFC 4180 with a header; a value that is unknown is empty, and a text is in quotation marks
//! always, so that an empty one is something else. JSON lines have `null`.

mod columns;
mod out;
mod sheets;
mod sql;

use std::collections::HashMap;

use self::columns::Columns;
use self::out::{Encoding, Sheet, Sheets};
use super::{ExportError, Format, Job, NotCarried, Recording, full_name};
use crate::event::SymbolTable;
use crate::output::Directory;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Comma-separated values.
    Csv,
    /// A JSON object a line.
    JsonLines,
}

impl Tables {
    fn encoding(self) -> Encoding {
        match self {
            Self::Csv => Encoding::Csv,
            Self::JsonLines => Encoding::JsonLines,
        }
    }
}

impl Format for Tables {
    fn name(&self) -> &'static str {
        self.encoding().ending()
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let mut sheets = Sheets::new(dir, self.encoding());
        let gaps = sheets.add("gaps", sheets::GAPS)?;
        let events = write_events(recording, &mut sheets, gaps, job)?;
        sheets::write_events(recording, &events, &mut sheets)?;
        sheets::write_losses(recording, &mut sheets)?;
        sheets::write_threads(recording, &mut sheets, job)?;
        sheets::write_host(recording, &mut sheets)?;
        sheets.finish()?;
        sql::write(&sheets)
    }
}

/// An event's table.
struct EventTable<'a> {
    columns: Columns<'a>,
    sheet: Sheet,
    rows: u64,
}

/// Writes the records by time. Gives the tables of the events, by their numbers.
fn write_events<'a>(
    recording: &'a Recording<'_>,
    sheets: &mut Sheets<'_>,
    gaps: Sheet,
    job: &Job<'_>,
) -> Result<HashMap<u16, EventTable<'a>>, ExportError> {
    let symbols = SymbolTable::parse(recording.file().kallsyms().unwrap_or_default());
    let mut tables = HashMap::new();
    for printer in recording.events().iter() {
        let columns = Columns::of(printer, recording);
        let sheet = sheets.add(&full_name(printer).replace(':', "."), columns.names_and_types())?;
        tables.insert(printer.format().id, EventTable { columns, sheet, rows: 0 });
    }
    let mut not_carried = NotCarried::default();
    let (mut replaced, mut broken) = (0, 0);
    recording.each_record(job, |record| {
        if record.missed.is_some() {
            sheets::write_gap(record, recording, sheets, gaps)?;
        }
        // Others were found by the survey.
        let Some(table) = record.event_id().and_then(|id| tables.get_mut(&id)) else { return Ok(()) };
        let mut row = sheets.row(table.sheet);
        table.columns.write(record, recording, &symbols, &mut row);
        let ended = row.end()?;
        (replaced, broken) = (replaced + ended.replaced, broken + ended.unknown_fields);
        table.rows += 1;
        Ok(())
    })?;
    not_carried.add("texts that are not UTF-8, whose wrong bytes are replaced", replaced);
    not_carried.add("values of fields that are not in their records", broken);
    job.merge_not_carried(not_carried);
    Ok(tables)
}
