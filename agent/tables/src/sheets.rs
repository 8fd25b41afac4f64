//! The tables beside those of events.

use std::borrow::Cow;
use std::collections::HashMap;

use super::about::About;
use super::columns::{TIME, put_times};
use super::encoding::{Encoding, Kind};
use super::out::Sheets;
use super::value::{Cell, Column, Element, Type};
use super::write::EventTable;
use recording::snapshot::Snapshot;
use recording::{ExportError, Job, Recording, full_name};

const fn column(name: &'static str, ty: Type) -> Column {
    (Cow::Borrowed(name), ty)
}

/// The names of the tables here.
pub(super) const NAMES: [&str; 6] = ["gaps", "events", "losses", "threads", "hosts", "sessions"];

/// Where events are missing: before a record, or, if it has no time, behind the last one. `missed` is unknown
/// where the recorder did not count, `since_timestamp` (the CPU's record before) where there is none.
pub(super) const GAPS: [Column; 7] = [
    column(TIME, Type::Time),
    column("common_wall_ns", Type::Wall),
    column("common_time", Type::Moment),
    column("common_buffer", Type::Name),
    column("common_cpu", Type::Unsigned(4)),
    column("missed", Type::Unsigned(8)),
    column("since_timestamp", Type::Time),
];
const EVENTS: [Column; 5] = [
    column("system", Type::Name),
    column("event", Type::Text),
    column("id", Type::Unsigned(2)),
    column("file", Type::Text),
    column("records", Type::Unsigned(8)),
];
const LOSSES: [Column; 6] = [
    column("common_buffer", Type::Name),
    column("common_cpu", Type::Unsigned(4)),
    column("recorded", Type::Unsigned(8)),
    column("lost", Type::Unsigned(8)),
    column("lost_is_exact", Type::Bool),
    column("pages", Type::Unsigned(8)),
];
const THREADS: [Column; 8] = [
    column("tid", Type::Unsigned(4)),
    column("tgid", Type::Unsigned(4)),
    column("ppid", Type::Unsigned(4)),
    column("comm", Type::Name),
    column("kernel", Type::Bool),
    column("uid", Type::Unsigned(4)),
    column("gid", Type::Unsigned(4)),
    column("start_ns", Type::Unsigned(8)),
];
const HOSTS: [Column; 13] = [
    column("hostname", Type::Name),
    column("release", Type::Name),
    column("version", Type::Name),
    column("machine", Type::Name),
    column("boot_id", Type::Name),
    column("cpus", Type::Unsigned(4)),
    column("clock", Type::Name),
    column("wall_offset_ns", Type::Signed(8)),
    column("first_timestamp", Type::Time),
    column("last_timestamp", Type::Time),
    column("first_wall_ns", Type::Wall),
    column("last_wall_ns", Type::Wall),
    column("overwritten", Type::Bool),
];
const SESSIONS: [Column; 15] = [
    column("recording", Type::Name),
    column("file", Type::Text),
    column("recorder", Type::Name),
    column("hostname", Type::Name),
    column("begin_timestamp", Type::Time),
    column("begin_wall_ns", Type::Wall),
    column("begin_time", Type::Moment),
    column("end_timestamp", Type::Time),
    column("end_wall_ns", Type::Wall),
    column("end_time", Type::Moment),
    column("events", Type::Unsigned(8)),
    column("lost", Type::Unsigned(8)),
    column("lost_is_exact", Type::Bool),
    column("overwritten", Type::Bool),
    column("buffers", Type::List(Element::Text)),
];

/// Lists the tables of events.
pub(super) fn write_events<E: Encoding>(
    recording: &Recording<'_>,
    events: &HashMap<u16, EventTable<'_>>,
    sheets: &mut Sheets<'_, E>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("events", Kind::Beside, EVENTS)?;
    let mut printers: Vec<_> = recording.events().iter().collect();
    printers.sort_unstable_by_key(|printer| full_name(printer));
    for printer in printers {
        let id = printer.format().id;
        let Some((table, sheet_of)) = events.get(&id).and_then(|table| Some((table, table.sheet?))) else {
            continue;
        };
        let file = sheets.file_of(sheet_of).to_owned();
        let mut row = sheets.row(sheet);
        row.put(printer.system());
        row.put(printer.name());
        row.put(u32::from(id));
        row.put(&*file);
        row.put(table.rows);
        sheets.end(sheet)?;
    }
    Ok(())
}

/// What each CPU recorded and lost. Without a ledger, marks between records tell of losses, and some only
/// that there were any.
pub(super) fn write_losses<E: Encoding>(
    recording: &Recording<'_>,
    sheets: &mut Sheets<'_, E>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("losses", Kind::Beside, LOSSES)?;
    for stream in recording.cpu_streams() {
        let mut row = sheets.row(sheet);
        row.put(&*stream.channel);
        row.put(stream.cpu);
        row.put(stream.counts.events);
        row.put(stream.lost());
        row.put(stream.lost_is_exact);
        row.put(stream.counts.pages);
        sheets.end(sheet)?;
    }
    Ok(())
}

/// The threads that there were at the start, or the names that the file has.
pub(super) fn write_threads<E: Encoding>(
    recording: &Recording<'_>,
    sheets: &mut Sheets<'_, E>,
    job: &Job<'_>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("threads", Kind::Beside, THREADS)?;
    if let Some(snapshot) = Snapshot::of(recording, job) {
        for thread in &snapshot.state.threads {
            let mut row = sheets.row(sheet);
            row.put(thread.tid);
            row.put(thread.tgid);
            row.put(thread.ppid);
            row.put(&*thread.comm);
            row.put(thread.kernel);
            row.put(thread.uid);
            row.put(thread.gid);
            row.put(thread.start_ns);
            sheets.end(sheet)?;
        }
        return Ok(());
    }
    for (tid, comm) in recording.file().metadata().cmdlines.iter() {
        let mut row = sheets.row(sheet);
        row.put(tid);
        row.put(Cell::Unknown);
        row.put(Cell::Unknown);
        row.put(comm);
        (0..4).for_each(|_| row.put(Cell::Unknown));
        sheets.end(sheet)?;
    }
    Ok(())
}

/// The machine, the clock and the time that is covered.
pub(super) fn write_hosts<E: Encoding>(
    recording: &Recording<'_>,
    about: &About,
    sheets: &mut Sheets<'_, E>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("hosts", Kind::Beside, HOSTS)?;
    let span = recording.span();
    let wall = |time| super::columns::wall(time, recording);
    let mut row = sheets.row(sheet);
    for text in [&about.hostname, &about.release, &about.version, &about.machine, &about.boot_id] {
        row.put(text.as_deref());
    }
    row.put(recording.file().cpu_count());
    row.put(&*about.clock);
    row.put(recording.wall_offset());
    row.put(span.map(|(first, _)| first));
    row.put(span.map(|(_, last)| last));
    row.put(span.and_then(|(first, _)| wall(first)));
    row.put(span.and_then(|(_, last)| wall(last)));
    row.put(recording.overwritten());
    sheets.end(sheet)
}

/// The recording.
pub(super) fn write_sessions<E: Encoding>(
    recording: &Recording<'_>,
    about: &About,
    sheets: &mut Sheets<'_, E>,
) -> Result<(), ExportError> {
    let sheet = sheets.add("sessions", Kind::Beside, SESSIONS)?;
    let span = recording.span();
    let mut buffers: Vec<&str> = recording.file().buffers().iter().map(|buffer| &*buffer.name).collect();
    buffers.dedup();
    let mut row = sheets.row(sheet);
    row.put(&*about.id);
    row.put(about.file.as_deref());
    row.put(about.recorder.as_deref());
    row.put(about.hostname.as_deref());
    put_times(span.map(|(first, _)| first), recording, &mut row);
    put_times(span.map(|(_, last)| last), recording, &mut row);
    row.put(recording.cpu_streams().iter().map(|stream| stream.counts.events).sum::<u64>());
    row.put(recording.cpu_streams().iter().fold(0_u64, |sum, stream| sum.saturating_add(stream.lost())));
    row.put(about.lost_is_exact);
    row.put(recording.overwritten());
    row.put(Cell::List(&buffers));
    sheets.end(sheet)
}
