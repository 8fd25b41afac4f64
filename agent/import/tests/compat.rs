//! What exports, imports and analyses make of system calls of 32-bit programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use analysis::answers::{Calls, CallsAnswer, Covered, Scope, Topic, answer};
use ctf_writer::Ctf;
use export::perfetto::Perfetto;
use ftrace_event::syscalls::COMPAT;
use import::{Options, Target, import, open};
use recording::{Format, Job};
use tracedat::ledger::{Ledger, LedgerEvent};
use tracedat::page::{PageBuilder, Push};
use tracedat::{
    Buffer, Compression, Endian, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout,
};

const ENTER: u16 = 20;
const EXIT: u16 = 21;
/// The calls that a thread makes, by their numbers and names.
const MADE: [(i64, &str); 6] = [
    (39, "getpid"),
    (COMPAT + 24, "compat_getuid"),
    (COMPAT + 199, "compat_getuid32"),
    (COMPAT + 82, "compat_select"),
    (COMPAT + 142, "compat__newselect"),
    (COMPAT + 240, "compat_futex"),
];

fn format(name: &str, id: u16, value: &str) -> String {
    format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:{value}\n\nprint fmt: \"\"\n"
    )
}

fn row(event: &str) -> LedgerEvent {
    LedgerEvent { event: format!("raw_syscalls:{event}"), recorded: 1, ..LedgerEvent::default() }
}

/// That of a recording of all calls.
fn ledger(marks_compat: Option<bool>) -> Ledger {
    let events = Some(vec![row("sys_enter"), row("sys_exit")]);
    Ledger { clock: Some("mono".to_owned()), events, marks_compat, ..Ledger::default() }
}

/// A recording on x86-64 of the calls, each with its entry and its exit; before the record with the index
/// `lost_before`, events were lost.
fn recorded(dir: &Path, ledgers: &[Ledger], lost_before: Option<usize>) -> PathBuf {
    let path = dir.join("original.dat");
    let endian = Endian::Little;
    let setup = Setup { endian, compression: Compression::None, page_size: 4096 };
    let mut writer = Writer::create(File::create(&path).unwrap(), setup).unwrap();
    writer.section(Section::header_info(endian, &layout::header_page_text(4096), "").unwrap()).unwrap();
    let enter = format("sys_enter", ENTER, "unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;");
    let exit = format("sys_exit", EXIT, "long ret;\toffset:16;\tsize:8;\tsigned:1;");
    let systems = [EventSystem { name: "raw_syscalls", formats: &[&enter, &exit] }];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.option(&FileOption::Uname("Linux host 6.12 x86_64".into())).unwrap();
    writer.option(&FileOption::TraceClock("local [mono]".into())).unwrap();
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    let mut out = buffer.begin_cpu(0).unwrap();
    let mut pages = PageBuilder::new(4096, endian).unwrap();
    let halves = MADE.iter().flat_map(|(number, _)| [(ENTER, *number, 48), (EXIT, *number, 8)]);
    for (index, (id, number, rest)) in halves.enumerate() {
        if lost_before == Some(index) {
            if let Some(page) = pages.finish() {
                out.push_page(page).unwrap();
            }
            pages.missed(1);
        }
        let mut record = id.to_le_bytes().to_vec();
        record.extend([0, 0]);
        record.extend(7_u32.to_le_bytes());
        record.extend(number.to_le_bytes());
        record.resize(16 + rest, 0);
        assert_ne!(pages.push(1000 + 10 * index as u64, &record).unwrap(), Push::Full);
    }
    if let Some(page) = pages.finish() {
        out.push_page(page).unwrap();
    }
    out.finish().unwrap();
    buffer.finish().unwrap();
    for ledger in ledgers {
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() }).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn answered(path: &Path) -> (CallsAnswer, Covered) {
    let file = report::TraceFile::open("file", fs::read(path).unwrap()).unwrap();
    let calls = Calls::new(Scope::default(), file.call_names());
    answer(&file, Topic::Syscalls, &Scope::default(), calls, &mut |_| {}).unwrap()
}

fn exported(path: &Path, format: &dyn Format, dir: &Path) -> PathBuf {
    let target = recording::Target { path: dir.join(format.name()), ..recording::Target::default() };
    let file = recording::TraceFile::open(Box::new(File::open(path).unwrap())).unwrap();
    recording::export(&file, format, &target, &Job::new(&|_| {})).unwrap().path
}

#[test]
fn an_answer_says_whether_calls_are_told_apart() {
    let temp = tempfile::tempdir().unwrap();
    for (ledgers, are_unmarked) in [
        (vec![ledger(Some(true))], Some(false)),
        (vec![ledger(Some(false))], Some(true)),
        // Of an older recorder, and of another one.
        (vec![ledger(None)], None),
        (vec![], None),
        (vec![ledger(Some(true)), ledger(None)], None),
        (vec![ledger(Some(true)), ledger(Some(false))], Some(true)),
    ] {
        let (answer, covered) = answered(&recorded(temp.path(), &ledgers, None));
        assert_eq!(covered.compat_unmarked, are_unmarked, "{ledgers:?}");
        assert_eq!(covered.compat_calls, (!ledgers.is_empty()).then_some(0), "{ledgers:?}");
        assert_eq!(answer.calls.len(), MADE.len());
    }
}

#[test]
fn a_trace_of_ours_comes_back_with_its_numbers() {
    let temp = tempfile::tempdir().unwrap();
    let original = recorded(temp.path(), &[ledger(Some(true))], None);
    let back = temp.path().join("back.dat");
    let mut source =
        open::open(&exported(&original, &Ctf::Lttng, temp.path()), open::Hints::default()).unwrap();
    let target = Target { path: back.clone(), force: false };
    import(&mut *source, &target, Options::default(), &mut |_| true).unwrap();
    for path in [original, back] {
        let (answer, _) = answered(&path);
        let mut found: Vec<_> =
            answer.calls.iter().map(|call| (call.number.unwrap(), call.name.as_deref().unwrap())).collect();
        found.sort_unstable();
        let mut made = MADE;
        made.sort_unstable();
        assert_eq!(found, made, "{}", path.display());
    }
}

#[test]
fn perfetto_has_no_durations_that_are_not_known() {
    let filtered = |event, filter: &str| LedgerEvent { filter: Some(filter.to_owned()), ..row(event) };
    let (few_enters, few_exits) = (filtered("sys_enter", "id == 5"), filtered("sys_exit", "ret == 0"));
    let with = |events| Ledger { events: Some(events), ..ledger(Some(true)) };
    let some_cpus = Ledger { only: vec!["CPUs 0".to_owned()], ..ledger(Some(true)) };
    // Slices begin, end, and instants.
    for (ledgers, lost_before, counts) in [
        (vec![ledger(Some(true))], None, [5, 5, 0]),
        // An exit behind a loss, which may be another call's.
        (vec![ledger(Some(true))], Some(3), [4, 4, 1]),
        // Each exit is of the last entry.
        (vec![with(vec![row("sys_enter"), few_exits.clone()])], None, [5, 5, 0]),
        (vec![with(vec![row("sys_enter")])], None, [5, 5, 0]),
        // An exit may be of an entry that the filter left out, as of a killed thread's successor.
        (vec![with(vec![few_enters.clone(), row("sys_exit")])], None, [0, 0, 5]),
        (vec![with(vec![few_enters, few_exits])], None, [0, 0, 5]),
        (vec![some_cpus], None, [0, 0, 5]),
        // It says nothing of filters.
        (vec![], None, [5, 5, 0]),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let original = recorded(temp.path(), &ledgers, lost_before);
        let bytes = fs::read(exported(&original, &Perfetto, temp.path())).unwrap();
        let count =
            |text: &str| bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
        assert_eq!(["B|0|compat_", "E|0", "I|0|compat_"].map(count), counts, "{ledgers:?}");
    }
}
