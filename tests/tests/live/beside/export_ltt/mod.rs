//! Exports to the two historic layouts hold every event of the recording, as readers that were written from
//! the documents see them.

mod ltt_eventdefs;
mod lttng_2008;
mod made_up;

use made_up::{build, count_long, synthetic};

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Cursor,
    path::{Path, PathBuf},
};

use export::eventdefs;
use export::eventdefs::EventDefs;
use export::ltt2008;
use export::ltt2008::{Alignment, Lttng2008};
use ftrace_event::Endian;
use ftrace_event::{EventTable, Machine, NoNames, Printer, Value};
use integration_tests::{
    eventdefs_reader::{self, Item},
    harness::files,
    ltt2008_reader::{self, Field},
};
use recording::{ExportError, Exported, Format, Job, Recording, Target, TraceFile, export};
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::{Reader, Record, Source};
use tracedat::{Buffer, Compression, EventSystem, FileOption, Section, Setup, Writer, layout};

/// Block sizes from one page to 1 MiB.
const BLOCKS: [u32; 3] = [4096, 64 << 10, 1 << 20];
/// Records that are longer may not fit into a block; all others of these tests do.
const LONG: usize = 2000;

/// The recordings of stock trace-cmd, by name.
fn recordings() -> Vec<(String, TraceFile)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let source: Box<dyn Source> = if name.split('.').skip(2).eq(["dat"]) {
            Box::new(File::open(&path).unwrap())
        } else if name.split('.').skip(2).eq(["dat", "gz"]) {
            let out = std::process::Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
            assert!(out.status.success());
            Box::new(out.stdout)
        } else {
            continue;
        };
        found.push((name, Reader::open(source).unwrap()));
    }
    assert!(found.len() >= 9, "{}", found.len());
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn events_of(file: &TraceFile) -> EventTable {
    let machine = Machine { endian: file.header().endian, long_size: file.layout().long_size };
    let mut table = EventTable::new(machine);
    for event in file.metadata().events() {
        table.add(event.system, event.format, &NoNames).unwrap();
    }
    table
}

/// Exports into a new directory.
pub(crate) fn exported(file: &TraceFile, format: &dyn Format) -> (tempfile::TempDir, PathBuf, Exported) {
    let dir = tempfile::tempdir().unwrap();
    let target = Target { path: dir.path().join("out"), ..Target::default() };
    let done = export(file, format, &target, &Job::new(&|_| {})).unwrap();
    (dir, target.path, done)
}

/// How many records did not fit into a block, by what the export says.
fn too_long(done: &Exported) -> u64 {
    done.not_carried
        .iter()
        .filter(|(what, _)| what.contains("longer than a block"))
        .map(|(_, count)| count)
        .sum()
}

fn number(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Signed(value) => Some((*value).into()),
        Value::Unsigned(value) | Value::Pointer(value) => Some((*value).into()),
        _ => None,
    }
}

fn stack(printer: &Printer, record: &[u8]) -> Vec<u64> {
    printer.stack(record).collect()
}

/// The fields of a record that an export has: all but the number of the event.
fn fields<'a>(printer: &'a Printer, record: &'a [u8]) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    let all = printer.common_fields(record).chain(printer.fields(record));
    all.filter(|(field, _)| field.name != "common_type")
        .map(|(field, value)| (field.name.as_str(), value.unwrap()))
}

#[test]
fn block_sizes_that_cannot_be_are_refused() {
    for block_size in [0, 100, 4097, 65 << 20] {
        assert!(Lttng2008::new(ltt2008::Options { block_size, ..ltt2008::Options::default() }).is_err());
        assert!(EventDefs::new(eventdefs::Options { block_size, ..eventdefs::Options::default() }).is_err());
    }
}

#[test]
fn an_event_without_a_format_that_can_be_understood() {
    let file = build(&[0], &[], Endian::Little, |_, builder| {
        assert_eq!(builder.push(1, &[77, 0, 0, 0]).unwrap(), Push::Stored);
        builder.finish().unwrap().to_vec()
    });
    for format in [&Lttng2008::default() as &dyn Format, &EventDefs::default()] {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("out"), ..Target::default() };
        let error = export(&file, format, &target, &Job::new(&|_| {})).unwrap_err();
        assert!(matches!(error, ExportError::UnknownEvent { id: 77, records: 1 }), "{error}");
        assert_eq!(files(dir.path()), [""; 0]);
        let done = export(&file, format, &target, &Job::new(&|_| {}).keep_going(true)).unwrap();
        assert_eq!(done.not_carried.iter().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
