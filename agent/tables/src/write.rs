//! A recording's tables, whatever they are written as.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use super::about::About;
use super::columns::{self, Columns};
use super::encoding::{Destination, Encoding, Kind, Rows, Table};
use super::gaps::Gaps;
use super::out::{self, Decoder, Filling, Sheet, Sheets};
use super::{day_of, sheets};
use ftrace_event::{Printer, SymbolTable};
use recording::{ExportError, Job, NotCarried, Recording, full_name};
use stdx::parallel::Ended;
use tracedat::reader::Batch;

/// Columns of fields that would be named as what the directories of a data set say, or the recording.
const RESERVED: &[&str] = &["recording", "event", "date", "host"];

/// Names that columns of events cannot have.
fn reserved(is_part: bool) -> &'static [&'static str] {
    if is_part { RESERVED } else { &[] }
}

/// What is written.
pub(super) struct Export<'e, 'r> {
    pub(super) recording: &'e Recording<'r>,
    pub(super) about: About,
    chosen: Chosen,
    job: &'e Job<'e>,
}

impl<'e, 'r> Export<'e, 'r> {
    /// These tables of a recording, all if none is named.
    pub(super) fn of(
        recording: &'e Recording<'r>,
        only: &[String],
        file_name: Option<&str>,
        job: &'e Job<'e>,
    ) -> Result<Self, ExportError> {
        let chosen = Chosen::of(only, recording)?;
        Ok(Self { recording, about: About::of(recording, file_name), chosen, job })
    }

    /// How many tables are named.
    pub(super) fn named(&self) -> usize {
        self.chosen.names.as_ref().map_or(0, BTreeSet::len)
    }

    /// Writes the tables, and gives them.
    pub(super) fn encode<E: Encoding + Sync>(
        &self,
        encoding: &E,
        out: &dyn Destination,
    ) -> Result<Vec<Table>, ExportError> {
        let Self { recording, about, chosen, job } = self;
        let mut not_carried = NotCarried::default();
        let mut back = 0;
        let is_part = out.recording().is_some();
        let reserved = reserved(is_part);
        let symbols = SymbolTable::parse(recording.file().kallsyms().unwrap_or_default());
        let decoder = || EventDecoder { recording, reserved, symbols: &symbols, columns: HashMap::new() };
        let tables = out::write(encoding, out, &decoder, job.thread_count(), &mut not_carried, |sheets| {
            let gaps = chosen.has("gaps").then(|| Gaps::new(recording, sheets)).transpose()?;
            let events = write_events(recording, (chosen, is_part), sheets, gaps, job)?;
            back = events.values().map(|table| table.back).sum();
            // Directories say what a data set has.
            if chosen.has("events") && !is_part {
                sheets::write_events(recording, &events, sheets)?;
            }
            if chosen.has("losses") {
                sheets::write_losses(recording, sheets)?;
            }
            if chosen.has("threads") {
                sheets::write_threads(recording, sheets, job)?;
            }
            if chosen.has("hosts") {
                sheets::write_hosts(recording, about, sheets)?;
            }
            if chosen.has("sessions") || is_part {
                sheets::write_sessions(recording, about, sheets)?;
            }
            Ok(sheets.tables().cloned().collect())
        })?;
        not_carried
            .add("records whose times go back over midnight, which are among those of the next day", back);
        job.merge_not_carried(not_carried);
        Ok(tables)
    }
}

/// Which tables are written.
struct Chosen {
    /// Names of tables, and of events with their systems; `None` for all.
    names: Option<BTreeSet<String>>,
}

impl Chosen {
    fn of(only: &[String], recording: &Recording<'_>) -> Result<Self, ExportError> {
        if only.is_empty() {
            return Ok(Self { names: None });
        }
        let mut names = BTreeSet::new();
        for wanted in only {
            let is_it = |printer: &&Printer| printer.name() == wanted || full_name(printer) == *wanted;
            let found: Vec<String> = recording.events().iter().filter(is_it).map(full_name).collect();
            if sheets::NAMES.contains(&&**wanted) {
                names.insert(wanted.clone());
            } else if found.is_empty() {
                return Err(ExportError::NoTable { name: wanted.clone() });
            }
            names.extend(found);
        }
        Ok(Self { names: Some(names) })
    }

    fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// An event's table.
pub(super) struct EventTable<'a> {
    printer: &'a Printer,
    /// None without records.
    pub(super) sheet: Option<Sheet>,
    /// Which day it is of, where there are tables of days.
    day: Option<i64>,
    pub(super) rows: u64,
    /// Records of days before the table's.
    back: u64,
}

impl EventTable<'_> {
    /// The table of a day. Times come in their order: what is earlier stays with what is there.
    fn sheet_of<E: Encoding>(
        &mut self,
        day: Option<i64>,
        (recording, reserved): (&Recording<'_>, &[&str]),
        sheets: &mut Sheets<'_, E>,
    ) -> Result<Sheet, ExportError> {
        let sheet = match self.sheet {
            Some(sheet) if day == self.day => return Ok(sheet),
            Some(sheet) if day < self.day => {
                self.back += 1;
                return Ok(sheet);
            }
            Some(sheet) => sheets.add_next(sheet, Kind::Event { day })?,
            None => {
                let name = full_name(self.printer).replace(':', ".");
                let columns = Columns::of(self.printer, recording, reserved);
                sheets.add(&name, Kind::Event { day }, columns.names_and_types())?
            }
        };
        (self.sheet, self.day) = (Some(sheet), day);
        Ok(sheet)
    }
}

/// Makes rows of the events of a recording.
struct EventDecoder<'d, 'r> {
    recording: &'d Recording<'r>,
    reserved: &'d [&'d str],
    symbols: &'d SymbolTable,
    /// The columns of the events that came, by their numbers.
    columns: HashMap<u16, Columns<'d>>,
}

impl Decoder for EventDecoder<'_, '_> {
    fn decode<R: Rows>(&mut self, records: &Batch<()>, rows: &mut Filling<'_, R>) -> Result<u64, Ended> {
        let Self { recording, reserved, symbols, columns } = self;
        let id = records.iter().next().and_then(|(record, ())| record.event_id());
        let Some((id, printer)) = id.and_then(|id| Some((id, recording.events().get(id)?))) else {
            return Ok(0);
        };
        let columns = match columns.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Columns::of(printer, recording, reserved)),
        };
        let mut broken = 0;
        for (record, ()) in records.iter() {
            broken += columns.write(&record, recording, *symbols, &mut rows.row());
            rows.end()?;
        }
        Ok(broken)
    }
}

/// Writes the records by time. Gives the tables of the events, by their numbers. Where the recording is part
/// of a data set, an event has a table for each day.
fn write_events<'a, E: Encoding>(
    recording: &'a Recording<'_>,
    (chosen, is_part): (&Chosen, bool),
    sheets: &mut Sheets<'_, E>,
    mut gaps: Option<Gaps>,
    job: &Job<'_>,
) -> Result<HashMap<u16, EventTable<'a>>, ExportError> {
    let reserved = reserved(is_part);
    let mut tables = HashMap::new();
    for printer in recording.events().iter().filter(|printer| chosen.has(&full_name(printer))) {
        tables.insert(printer.format().id, EventTable { printer, sheet: None, day: None, rows: 0, back: 0 });
    }
    if tables.is_empty() && gaps.is_none() {
        return Ok(tables);
    }
    recording.each_record(job, |record| {
        if let Some(gaps) = &mut gaps {
            gaps.note(record, recording, sheets)?;
        }
        // Others were found by the survey.
        let Some(table) = record.event_id().and_then(|id| tables.get_mut(&id)) else { return Ok(()) };
        let day = if is_part { day_of(columns::wall(record.timestamp, recording)) } else { None };
        let sheet = table.sheet_of(day, (recording, reserved), sheets)?;
        table.rows += 1;
        sheets.record(sheet, record)
    })?;
    if let Some(gaps) = gaps {
        gaps.finish(recording, sheets)?;
    }
    Ok(tables)
}
