//! The tables beside those of events.

use std::borrow::Cow;
use std::collections::HashMap;

use super::super::recording::lost_by_cpu;
use super::super::{ExportError, Job, Recording, full_name, snapshot::Snapshot};
use super::EventTable;
use super::columns::wall;
use super::out::{Column, Sheet, Sheets, Type};
use crate::tracedat::Uname;
use crate::tracedat::ledger::Ledger;
use crate::tracedat::reader::Record;

const fn column(name: &'static str, ty: Type) -> Column {
    (Cow::Borrowed(name), ty)
}

/// Where events are missing. `missed` is unknown where the recorder did not count.
pub(super) const GAPS: [Column; 5] = [
    column("common_timestamp", Type::Unsigned),
    column("common_wall_ns", Type::Signed),
    column("common_buffer", Type::Text),
    column("common_cpu", Type::Unsigned),
    column("missed", Type::Unsigned),
];
const EVENTS: [Column; 5] = [
    column("system", Type::Text),
    column("event", Type::Text),
    column("id", Type::Unsigned),
    column("file", Type::Text),
    column("records", Type::Unsigned),
];
const LOSSES: [Column; 6] = [
    column("common_buffer", Type::Text),
    column("common_cpu", Type::Unsigned),
    column("recorded", Type::Unsigned),
    column("lost", Type::Unsigned),
    column("lost_is_exact", Type::Bool),
    column("pages", Type::Unsigned),
];
const THREADS: [Column; 8] = [
    column("tid", Type::Unsigned),
    column("tgid", Type::Unsigned),
    column("ppid", Type::Unsigned),
    column("comm", Type::Text),
    column("kernel", Type::Bool),
    column("uid", Type::Unsigned),
    column("gid", Type::Unsigned),
    column("start_ns", Type::Unsigned),
];
const HOST: [Column; 13] = [
    column("hostname", Type::Text),
    column("release", Type::Text),
    column("version", Type::Text),
    column("machine", Type::Text),
    column("boot_id", Type::Text),
    column("cpus", Type::Unsigned),
    column("clock", Type::Text),
    column("wall_offset_ns", Type::Signed),
    column("first_timestamp", Type::Unsigned),
    column("last_timestamp", Type::Unsigned),
    column("first_wall_ns", Type::Signed),
    column("last_wall_ns", Type::Signed),
    column("overwritten", Type::Bool),
];

/// Notes that events are missing before a record.
pub(super) fn write_gap(
    record: &Record<'_>,
    recording: &Recording<'_>,
    sheets: &mut Sheets<'_>,
    sheet: Sheet,
) -> Result<(), ExportError> {
    let mut row = sheets.row(sheet);
    row.unsigned(record.timestamp);
    row.signed(wall(record.timestamp, recording));
    row.text(recording.file().buffers().get(record.buffer).map_or("", |buffer| &buffer.name).as_bytes());
    row.unsigned(u64::from(record.cpu));
    row.unsigned(record.missed.filter(|missed| *missed != 0));
    row.end().map(drop)
}

/// Lists the tables of events.
pub(super) fn write_events(
    recording: &Recording<'_>,
    events: &HashMap<u16, EventTable<'_>>,
    sheets: &mut Sheets<'_>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("events", EVENTS)?;
    let mut printers: Vec<_> = recording.events().iter().collect();
    printers.sort_unstable_by_key(|printer| full_name(printer));
    for printer in printers {
        let id = printer.format().id;
        let Some(table) = events.get(&id) else { continue };
        let file = sheets.file_of(table.sheet).to_owned();
        let mut row = sheets.row(sheet);
        row.text(printer.system().as_bytes());
        row.text(printer.name().as_bytes());
        row.unsigned(u64::from(id));
        row.text(file.as_bytes());
        row.unsigned(table.rows);
        row.end()?;
    }
    Ok(())
}

/// What each CPU recorded and lost. Without a ledger, marks between records tell of losses, and some only
/// that there were any.
pub(super) fn write_losses(recording: &Recording<'_>, sheets: &mut Sheets<'_>) -> Result<(), ExportError> {
    let sheet = sheets.add("losses", LOSSES)?;
    let ledger = Ledger::of(recording.file());
    let lost = ledger.as_ref().map(lost_by_cpu).unwrap_or_default();
    for stream in recording.cpu_streams() {
        let is_told = lost.contains_key(&(&*stream.channel, stream.cpu));
        let mut row = sheets.row(sheet);
        row.text(stream.channel.as_bytes());
        row.unsigned(u64::from(stream.cpu));
        row.unsigned(stream.counts.events);
        row.unsigned(stream.lost());
        row.bool(is_told && !stream.cut_short && stream.counts.missed_unknown == 0);
        row.unsigned(stream.counts.pages);
        row.end()?;
    }
    Ok(())
}

/// The threads that there were at the start, or the names that the file has.
pub(super) fn write_threads(
    recording: &Recording<'_>,
    sheets: &mut Sheets<'_>,
    job: &Job<'_>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("threads", THREADS)?;
    if let Some(snapshot) = Snapshot::of(recording, job) {
        for thread in &snapshot.state.threads {
            let mut row = sheets.row(sheet);
            row.unsigned(u64::from(thread.tid));
            row.unsigned(u64::from(thread.tgid));
            row.unsigned(u64::from(thread.ppid));
            row.text(thread.comm.as_bytes());
            row.bool(thread.kernel);
            row.unsigned(u64::from(thread.uid));
            row.unsigned(u64::from(thread.gid));
            row.unsigned(thread.start_ns);
            row.end()?;
        }
        return Ok(());
    }
    for (tid, comm) in recording.file().metadata().cmdlines.iter() {
        let mut row = sheets.row(sheet);
        row.unsigned(u64::from(tid));
        row.unknown();
        row.unknown();
        row.text(comm);
        (0..4).for_each(|_| row.unknown());
        row.end()?;
    }
    Ok(())
}

/// The machine, the clock and the time that is covered.
pub(super) fn write_host(recording: &Recording<'_>, sheets: &mut Sheets<'_>) -> Result<(), ExportError> {
    let sheet = sheets.add("host", HOST)?;
    let file = recording.file();
    // A damaged one was counted where the threads were written.
    let host = file.initial_state().ok().flatten().map(|state| state.host);
    let Uname { system: _, node, release, version, machine } = Uname::of(file.facts()).unwrap_or_default();
    let known = |of_state: fn(&crate::tracedat::initial_state::Host) -> &String, of_file: String| {
        let told = host.as_ref().map(of_state).cloned();
        told.into_iter().chain([of_file]).find(|text| !text.is_empty())
    };
    let texts = [
        known(|host| &host.hostname, node),
        known(|host| &host.release, release),
        known(|host| &host.version, version),
        known(|host| &host.machine, machine),
        known(|host| &host.boot_id, String::new()),
    ];
    let span = recording.span();
    let mut row = sheets.row(sheet);
    for text in texts {
        match text {
            Some(text) => row.text(text.as_bytes()),
            None => row.unknown(),
        }
    }
    row.unsigned(u64::from(file.cpu_count()));
    row.text(recording.clock_name().as_bytes());
    row.signed(recording.wall_offset());
    row.unsigned(span.map(|(first, _)| first));
    row.unsigned(span.map(|(_, last)| last));
    row.signed(span.and_then(|(first, _)| wall(first, recording)));
    row.signed(span.and_then(|(_, last)| wall(last, recording)));
    row.bool(recording.overwritten());
    row.end().map(drop)
}
