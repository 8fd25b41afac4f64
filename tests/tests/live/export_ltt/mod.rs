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
    harness::{Tmpfs, agent, files, run},
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
fn exported(file: &TraceFile, format: &dyn Format) -> (tempfile::TempDir, PathBuf, Exported) {
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
fn the_state_that_a_recording_began_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.dat");
    run(agent(dir.path(), ["record", "-e", "sched", "-o"]).arg(&path).args(["sleep", "0.1"])).expect(0);
    let file = Reader::open(Box::new(File::open(&path).unwrap()) as Box<dyn Source>).unwrap();
    let state = file.initial_state().unwrap().expect("our recordings have a state");
    let (me, parent) = (i128::from(std::process::id()), i128::from(std::os::unix::process::parent_id()));
    let name = fs::read_to_string("/proc/self/comm").unwrap().trim_end().as_bytes().to_vec();
    let loopback = i128::from(u32::from(std::net::Ipv4Addr::LOCALHOST));

    for endian in [Endian::Little, Endian::Big] {
        let options = ltt2008::Options { endian: Some(endian), ..ltt2008::Options::default() };
        let (_dir, out, _) = exported(&file, &Lttng2008::new(options).unwrap());
        let trace = ltt2008_reader::read(&out, false);
        let told = |file: &str, name: &str| {
            let events = &trace.files[&format!("control/{file}_0")].events;
            events.iter().filter(|event| event.name == name).collect::<Vec<_>>()
        };
        let processes = told("processes", "list_process_state");
        assert_eq!(processes.len(), state.threads.len());
        let mine = processes.iter().find(|event| event.number("pid") == me).expect("the test itself");
        assert_eq!((mine.number("parent_pid"), mine.number("tgid")), (parent, me));
        assert_eq!(mine.field("name"), Some(&Field::Text(name.clone())));
        assert_eq!(told("processes", "list_statedump_end").len(), 1);
        assert_eq!(told("interrupts", "list_interrupt").len(), state.interrupts.len());
        assert_eq!(told("modules", "list_module").len(), state.modules.len());
        let addresses = told("network", "list_network_ipv4_interface");
        assert!(addresses.iter().any(|event| {
            event.field("name") == Some(&Field::Text(b"lo".to_vec())) && event.number("address") == loopback
        }));

        let options = eventdefs::Options { endian: Some(endian), ..eventdefs::Options::default() };
        let (_dir, out, _) = exported(&file, &EventDefs::new(options).unwrap());
        let trace = eventdefs_reader::read(&out, false);
        let told = |file: &str, name: &str| {
            let events = &trace.files[&format!("control/{file}")];
            events.iter().filter(|event| event.name == name).collect::<Vec<_>>()
        };
        let processes = told("processes", "state.process");
        assert_eq!(processes.len(), state.threads.len());
        let mine = processes.iter().find(|event| event.data.number("pid") == me).expect("the test itself");
        assert_eq!(
            (mine.data.number("ppid"), mine.data.get("name")),
            (parent, Some(&Item::Text(name.clone())))
        );
        assert_eq!(told("interrupts", "state.interrupt").len(), state.interrupts.len());
        assert_eq!(told("interrupts", "state.module").len(), state.modules.len());
        let addresses = told("interrupts", "state.interface");
        assert!(addresses.iter().any(|event| {
            event.data.get("name") == Some(&Item::Text(b"lo".to_vec()))
                && event.data.number("ipv4") == loopback
        }));
    }
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

#[test]
fn the_command_on_bad_places_and_bad_files() {
    let dir = tempfile::tempdir().unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let lost = traces.join("k6.12-lost.dat");
    let disk = Tmpfs::mount("size=1m");
    let mut bytes = fs::read(&lost).unwrap();
    let data = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0];
    let at = (data.offset + data.size / 2) as usize;
    bytes[at..at + 64].fill(0x55);
    fs::write(dir.path().join("damaged.dat"), bytes).unwrap();
    for format in ["lttng-2008", "ltt-eventdefs"] {
        let export = |file: &Path, out: &Path, args: &[&str]| {
            let mut command = agent(dir.path(), ["export", "--format", format]);
            run(command.args(args).arg(file).arg(out))
        };
        // The place is full before the end.
        let ended = export(&lost, &disk.path().join("out"), &[]);
        ended.expect(113).says(&["No space left on device"]);
        assert_eq!(files(disk.path()), [""; 0], "{format}");
        let out = dir.path().join("out");
        export(&dir.path().join("damaged.dat"), &out, &[]).says(&["damaged", "--keep-going"]);
        assert!(!out.exists());
        export(&dir.path().join("damaged.dat"), &out, &["--keep-going"])
            .expect(0)
            .says(&["not carried over"]);
        export(&lost, &out, &[]).says(&["--force"]);
        export(&lost, &out, &["--force", "--block-size", "64K", "--endian", "big"]).expect(0);
        let told = run(&mut agent(dir.path(), ["info", "--json", "out"])).expect(0).out;
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["damage"].as_array().map(Vec::len), Some(0), "{told}");
        let blocks = told["files"].as_array().unwrap();
        assert!(blocks.iter().any(|file| file["name"].as_str().unwrap().contains("cpu")), "{told}");
        for file in blocks {
            let len = fs::metadata(out.join(file["name"].as_str().unwrap())).unwrap().len();
            let (count, size) = (file["blocks"].as_u64().unwrap(), file["block_size"].as_u64().unwrap());
            assert_eq!(count * size, len, "{file}");
            assert!(file["begin"].as_u64() <= file["end"].as_u64(), "{file}");
        }
        let told = run(&mut agent(dir.path(), ["info", "out"])).expect(0).out;
        assert!(told.contains("FILES") && told.contains("cpu"), "{told}");
        export(&lost, &out, &["--force", "--block-size", "5"]).says(&["4096"]);
        fs::remove_dir_all(out).unwrap();
    }
}
