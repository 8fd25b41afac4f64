//! A recording's stacks are the same in every export, and after an import of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use analysis::histogram;
use analysis::stack_tree::{Question, StackCounts};
use ctf_writer::{CallStacks, ChannelContexts, Chunk, Ctf, Shapes, Taken, TraceWriter};
use export::{eventdefs::EventDefs, ltt2008::Lttng2008, perf_script::PerfScript, perfetto::Perfetto};
use import::{Options, Target, import, open};
use recording::{Format, Job, TraceFile};
use report::crafted::{self, Entry, ev, stack, user_stack};
use stdx::output::Directory;
use tables::{TableFormat, Tables};
use tracedat::reader::Record;

const SYMBOLS: &str = "1000 t f1\n2000 t f2\n3000 t __traceiter_ev\n4000 t end\n";
const FILL: u64 = u64::MAX;

fn entries() -> Vec<Entry> {
    let longest: Vec<u64> = (0..64).map(|index| 0x1000 + index * 8).collect();
    vec![
        ev(1, 0, 7, 1),
        stack(1, 0, &[0x3000, 0x1010, 0x2020, FILL, FILL, FILL, FILL, FILL]),
        user_stack(1, 0, 77, &[0x0040_1000, 0x0040_1100]),
        ev(2, 0, 7, 2),
        stack(2, 0, &[0x2000, 0, 0, 0, 0, 0, 0, 0x1234]),
        ev(3, 0, 7, 3),
        stack(3, 0, &longest),
        ev(4, 0, 7, 4),
        user_stack(4, 0, 77, &[1, 2, 3, 4, 5, 6, 7, 8]),
        user_stack(4, 0, 77, &[9]),
        ev(5, 0, 7, 5),
    ]
}

fn original() -> TraceFile {
    let bytes = crafted::bytes(&entries(), SYMBOLS, "1 one\n", "[local]");
    TraceFile::open(Box::new(bytes)).unwrap()
}

fn exported(format: &dyn Format, dir: &Path) -> PathBuf {
    let target = recording::Target { path: dir.join(format.name()), ..recording::Target::default() };
    recording::export(&original(), format, &target, &Job::new(&|_| {})).unwrap().path
}

fn imported(source: &Path, dir: &Path) -> PathBuf {
    let path = dir.join(format!("{}.dat", source.file_name().unwrap().display()));
    let mut source = open::open(source, open::Hints::default()).unwrap();
    import(&mut *source, &Target { path: path.clone(), force: false }, Options::default(), &mut |_| true)
        .unwrap();
    path
}

/// The frames of each stack of a file: whether it is the kernel's, and all that a record has.
fn frames(bytes: Vec<u8>) -> Vec<(bool, Vec<u64>)> {
    let file = report::TraceFile::open("file", bytes).unwrap();
    let mut found = Vec::new();
    let mut records = file.reader().records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let printer = file.events().get(record.event_id().unwrap()).unwrap();
        if let Some(frames) = printer.frames(record.data) {
            found.push((printer.is_kernel_stack(), frames.collect()));
        }
    }
    found
}

fn counted(bytes: Vec<u8>) -> Vec<(Vec<String>, u128)> {
    let file = report::TraceFile::open("file", bytes).unwrap();
    let question = Question {
        events: histogram::events("ev").unwrap(),
        keys: Vec::new(),
        value: None,
        most_stacks: 100,
    };
    let counts = StackCounts::of(&file, &question, &mut |_| {}).unwrap();
    let mut stacks = counts.stacks;
    stacks.sort();
    stacks
}

#[test]
fn imports_have_the_stacks_that_were_exported() {
    let dir = tempfile::tempdir().unwrap();
    let original = crafted::bytes(&entries(), SYMBOLS, "1 one\n", "[local]");
    let expected = frames(original.clone());
    assert_eq!(expected.len(), 6);
    assert_eq!(expected[0], (true, vec![0x3000, 0x1010, 0x2020]));
    assert_eq!(expected[1], (false, vec![0x0040_1000, 0x0040_1100]));
    assert_eq!(expected[2], (true, vec![0x2000]));
    assert_eq!(expected[3].1.len(), 64);
    let formats: [&dyn Format; 4] = [&Ctf::Kernel, &Ctf::Kernel2, &Ctf::Lttng, &PerfScript];
    for format in formats {
        let path = imported(&exported(format, dir.path()), dir.path());
        let bytes = fs::read(path).unwrap();
        let format = format.name();
        assert_eq!(frames(bytes.clone()), expected, "{format}");
        // What stock readers go by: the kernel's own layout.
        let file = report::TraceFile::open("file", bytes.clone()).unwrap();
        for name in ["kernel_stack", "user_stack"] {
            let stack = file.events().iter().find(|event| event.name() == name).unwrap();
            let field = stack.format().field("caller").unwrap();
            assert_eq!((stack.system(), field.offset, field.size), ("ftrace", 16, 64), "{name}");
            assert_eq!(field.type_text, "unsigned long");
        }
        let without_names: Vec<u128> = counted(bytes).into_iter().map(|(_, count)| count).collect();
        assert_eq!(without_names.iter().sum::<u128>(), 4, "{format}");
    }
    let names: Vec<_> = counted(original).into_iter().map(|(names, _)| names.join(";")).collect();
    assert!(names.contains(&"[unknown];[unknown];f2;f1".to_owned()), "{names:?}");
}

#[test]
fn traces_that_are_written_meanwhile_have_the_stacks_of_exports() {
    let dir = tempfile::tempdir().unwrap();
    let head = original();
    let out = Directory::open(dir.path()).unwrap().create_dir("kernel").unwrap();
    let chunk = Chunk { dir: &out, before: 0, published: None, session: None };
    let stacks = CallStacks { kernel: true, user: true };
    let contexts = |_: &str| Some(ChannelContexts { fields: "", stacks });
    let form = (Ctf::Lttng, Shapes::default());
    let mut writer = TraceWriter::create(form, (&head, 0), chunk, &contexts).unwrap();
    let mut records = head.records().unwrap();
    let mut time = 0;
    while let Some(record) = records.next_record().unwrap() {
        // Stacks have the times of their events.
        if record.event_id() == Some(crafted::EVENT) {
            time = record.timestamp;
        }
        // Others may read at any time.
        writer.flush(time).unwrap();
        assert_eq!(writer.record(&Record { timestamp: time, ..record }).unwrap(), Taken::Written);
        writer.flush(time).unwrap();
    }
    writer.flush(time + 1).unwrap();
    assert_eq!(writer.events(), 5);
    let not_carried: Vec<_> =
        writer.take_not_carried().iter().map(|(what, count)| (what.to_owned(), count)).collect();
    assert_eq!(not_carried, []);
    let bytes = fs::read(imported(&dir.path().join("kernel"), dir.path())).unwrap();
    assert_eq!(frames(bytes), frames(crafted::bytes(&entries(), SYMBOLS, "1 one\n", "[local]")));
}

#[test]
fn no_export_has_what_fills_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let formats: [&dyn Format; 10] = [
        &Ctf::Kernel,
        &Ctf::Kernel2,
        &Ctf::Lttng,
        &PerfScript,
        &Perfetto,
        &Lttng2008::default(),
        &EventDefs::default(),
        &Tables::new(TableFormat::Csv),
        &Tables::new(TableFormat::JsonLines),
        &views::chrome::Chrome,
    ];
    for format in formats {
        let path = exported(format, dir.path());
        for file in files(&path) {
            let bytes = fs::read(&file).unwrap();
            let has = |part: &[u8]| bytes.windows(part.len()).any(|bytes| bytes == part);
            let of_64_bits = [0xff; 8];
            assert!(!has(b"18446744073709551615"), "{}", file.display());
            assert!(!has(b"ffffffffffffffff"), "{}", file.display());
            let is_binary = !matches!(format.name(), "csv" | "jsonl" | "perf-script" | "chrome");
            assert!(!(is_binary && has(&of_64_bits) && format.name() != "ltt2008"), "{}", file.display());
        }
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| files(&path)).collect()
}

#[test]
fn tables_have_addresses_and_symbols_of_both_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = exported(&Tables::new(TableFormat::JsonLines), dir.path());
    let rows = |name: &str| -> Vec<serde_json::Value> {
        let file = files(&path).into_iter().find(|file| file.to_str().unwrap().contains(name)).unwrap();
        let text = std::io::read_to_string(File::open(file).unwrap()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let kernel = &rows("kernel_stack")[0];
    assert_eq!(kernel["caller"], serde_json::json!(["0x3000", "0x1010", "0x2020"]));
    assert_eq!(kernel["caller_symbol"], serde_json::json!(["__traceiter_ev", "f1+0x10", "f2+0x20"]));
    let user = &rows("user_stack")[0];
    assert_eq!(user["caller"], serde_json::json!(["0x401000", "0x401100"]));
}

#[test]
fn frames_are_named_by_their_process() {
    let place = |process| ftrace_event::stacks::place_of_process(process, 0x0040_1000).unwrap();
    let symbols = format!(
        "401000 t a+0x9|b+0x2\n401001 t [unknown]\n{:x} t a+0x9\n{:x} t [unknown]\n{:x} t b+0x2\n{:x} t [unknown]\n",
        place(77),
        place(77) + 1,
        place(78),
        place(78) + 1
    );
    let entries: Vec<_> = [77, 78, 79]
        .into_iter()
        .flat_map(|process| [ev(1, 0, 7, 1), user_stack(1, 0, process, &[0x0040_1000])])
        .collect();
    let bytes = crafted::bytes(&entries, &symbols, "1 one\n", "[local]");
    let expected = ["a", "a|b", "b"].map(|name| (vec![name.to_owned()], 1));
    assert_eq!(counted(bytes.clone()), expected);

    let dir = tempfile::tempdir().unwrap();
    let file = TraceFile::open(Box::new(bytes)).unwrap();
    let export = |format: &dyn Format| {
        let target =
            recording::Target { path: dir.path().join(format.name()), ..recording::Target::default() };
        recording::export(&file, format, &target, &Job::new(&|_| {})).unwrap().path
    };
    let names = ["a+0x9", "b+0x2", "a+0x9|b+0x2"];
    let table = export(&Tables::new(TableFormat::JsonLines));
    let table = files(&table).into_iter().find(|file| file.to_str().unwrap().contains("user_stack")).unwrap();
    let rows = fs::read_to_string(table).unwrap();
    let rows: Vec<serde_json::Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<_> = rows.iter().map(|row| row["caller_symbol"][0].as_str().unwrap()).collect();
    assert_eq!(found, names);
    assert!(rows.iter().all(|row| row["caller"][0] == "0x401000"));
    let text = fs::read_to_string(export(&PerfScript)).unwrap();
    let found: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix('\t')?.split(' ').rfind(|word| word.contains("+0x")))
        .collect();
    assert_eq!(found, names);
}
