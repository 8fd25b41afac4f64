//! The conditions that a recording was made under survive its export and an import of that.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use analysis::answers::{Analysis, Calls, Io, Sched, Scope, Topic, answer};
use ctf_writer::{ChannelContexts, Chunk, Ctf, Shapes, Taken, TraceWriter};
use export::perf_script::PerfScript;
use import::{Imported, Options, Target, import, open};
use recording::{Format, Job, NotCarried, Recording};
use stdx::output::Directory;
use tracedat::initial_state::{BlockDevice, Host, InitialState, Thread};
use tracedat::ledger::{
    Covered, EventChoice, Ledger, LedgerCpu, LedgerEvent, LedgerSilent, Losses, Pause, UNKNOWN_CHOICE,
    VERSION,
};
use tracedat::page::{PageBuilder, Push};
use tracedat::{
    Buffer, Cmdlines, Compression, Endian, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout,
};

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/// A format of fields: declaration, size, sign.
fn format(name: &str, id: u16, fields: &[(&str, u32, u8)], print_fmt: &str) -> String {
    let mut text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}");
    let mut at: u32 = 8;
    for (field, size, signed) in fields {
        let align = if field.contains('[') { 1 } else { *size };
        at = at.next_multiple_of(align);
        text += &format!("\tfield:{field};\toffset:{at};\tsize:{size};\tsigned:{signed};\n");
        at += size;
    }
    format!("{text}\nprint fmt: {print_fmt}\n")
}

const SWITCH: u16 = 314;
const ENTER: u16 = 700;
const EXIT: u16 = 701;
const ISSUE: u16 = 800;
const COMPLETE: u16 = 801;

fn switch_format() -> String {
    let states = "{ 0x0001, \"S\" }, { 0x0002, \"D\" }, { 0x0004, \"T\" }, { 0x0008, \"t\" }, { 0x0010, \"X\" }, \
                  { 0x0020, \"Z\" }, { 0x0040, \"P\" }, { 0x0080, \"I\" }";
    let print_fmt = format!(
        "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", \
         REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & 0xff) ? \
         __print_flags(REC->prev_state & 0xff, \"|\", {states}) : \"R\", REC->prev_state & 0x100 ? \"+\" : \"\", \
         REC->next_comm, REC->next_pid, REC->next_prio"
    );
    let fields = [
        ("char prev_comm[16]", 16, 0),
        ("pid_t prev_pid", 4, 1),
        ("int prev_prio", 4, 1),
        ("long prev_state", 8, 1),
        ("char next_comm[16]", 16, 0),
        ("pid_t next_pid", 4, 1),
        ("int next_prio", 4, 1),
    ];
    format("sched_switch", SWITCH, &fields, &print_fmt)
}

fn request(name: &str, id: u16, has_error: bool) -> String {
    let mut fields = vec![("dev_t dev", 4, 0), ("sector_t sector", 8, 0), ("unsigned int nr_sector", 4, 0)];
    fields.push(if has_error { ("int error", 4, 1) } else { ("unsigned int bytes", 4, 0) });
    fields.push(("char rwbs[8]", 8, 0));
    format(name, id, &fields, "\"%d\", REC->nr_sector")
}

fn record(id: u16, thread: u32, fields: &[&[u8]]) -> Vec<u8> {
    let mut record = id.to_le_bytes().to_vec();
    record.extend([0, 0]);
    record.extend(thread.to_le_bytes());
    record.extend(fields.concat());
    record
}

fn switch(prev: u32, state: u64, next: u32) -> Vec<u8> {
    let comm = |tid: u32| {
        let mut name = format!("t{tid}").into_bytes();
        name.resize(16, 0);
        name
    };
    let prio = &120_u32.to_le_bytes();
    let fields: [&[u8]; 7] = [
        &comm(prev),
        &prev.to_le_bytes(),
        prio,
        &state.to_le_bytes(),
        &comm(next),
        &next.to_le_bytes(),
        prio,
    ];
    record(SWITCH, prev, &fields)
}

fn of_request(id: u16, thread: u32, sector: u64) -> Vec<u8> {
    let of_device = 0x0080_0010_u32.to_le_bytes();
    record(
        id,
        thread,
        &[&of_device, &[0; 4], &sector.to_le_bytes(), &8_u32.to_le_bytes(), &[0; 4], b"R\0\0\0\0\0\0\0"],
    )
}

fn enter(thread: u32) -> Vec<u8> {
    record(ENTER, thread, &[&0_u32.to_le_bytes(), &[0; 4], &3_u64.to_le_bytes()])
}

fn exit(thread: u32) -> Vec<u8> {
    record(EXIT, thread, &[&0_u32.to_le_bytes(), &[0; 4], &5_i64.to_le_bytes()])
}

/// A buffer: its name, and the records of each CPU with their times and what was lost before them.
type Records = (&'static str, Vec<Vec<(u64, u64, Vec<u8>)>>);

/// The name of the second buffer.
const OTHER: &str = "a/b \u{e9}";

fn buffers() -> Vec<Records> {
    let first = vec![
        (1000, 0, switch(10, 1, 11)),
        (1500, 0, enter(11)),
        (1700, 0, exit(11)),
        (1800, 0, enter(11)),
        (1900, 0, of_request(ISSUE, 11, 8)),
        (2000, 0, switch(11, 2, 10)),
        (2100, 4, of_request(COMPLETE, 10, 8)),
        (2200, 0, switch(10, 0, 11)),
        (2500, 0, exit(11)),
        (3000, 0, switch(11, 1, 0)),
    ];
    let second = vec![(1200, 0, switch(0, 0, 12)), (2800, 0, switch(12, 1, 0))];
    let other = vec![(1100, 0, enter(11)), (1300, 2, exit(11))];
    vec![("", vec![first, second]), (OTHER, vec![other])]
}

fn ledger(offset: Option<i64>) -> Ledger {
    let row = |event: &str, recorded| LedgerEvent {
        event: event.into(),
        lane: "fast".into(),
        recorded,
        ..LedgerEvent::default()
    };
    let other = |event: &str| LedgerEvent { channel: OTHER.into(), ..row(event, 1) };
    let lost = |events| Losses(if events == 0 { vec![] } else { vec![("ring_full".into(), events)] });
    let cpu = |channel: &str, cpu, stored, events| LedgerCpu {
        channel: channel.into(),
        cpu,
        recorded: Some(stored),
        stored: Some(stored),
        pages: Some(1),
        filtered: Some(u64::from(cpu) + 17),
        own_threads: Some(3),
        lost: lost(events),
        ..LedgerCpu::default()
    };
    Ledger {
        version: VERSION,
        clock: Some("mono".into()),
        realtime_offset_ns: offset,
        realtime_uncertainty_ns: offset.map(|_| 40),
        duration_ns: Some(5000),
        covered: Some(Covered { from_ns: 900, to_ns: 3100 }),
        pauses: vec![Pause { from_ns: 3050, to_ns: Some(3060) }],
        not_attached: vec!["a:b".into()],
        only: vec!["the command".into(), "CPUs 0-1".into()],
        recursion_misses: Some(2),
        skips_uncounted: true,
        cpus: vec![cpu("", 0, 10, 4), cpu("", 1, 2, 0), cpu(OTHER, 0, 2, 2), cpu("", 2, 0, 0)],
        events: Some(vec![
            row("sched:sched_switch", 6),
            LedgerEvent {
                filter: Some("nr_sector > 4 && \"\u{e9}\"".into()),
                filtered: 9,
                ..row("block:block_rq_issue", 1)
            },
            LedgerEvent { every_thread: true, ..row("block:block_rq_complete", 1) },
            LedgerEvent { sampled_out: 5, since_ns: Some(1400), ..row("syscalls:sys_enter_read", 2) },
            row("syscalls:sys_exit_read", 2),
            other("syscalls:sys_enter_read"),
            other("syscalls:sys_exit_read"),
        ]),
        silent: Some(vec![LedgerSilent {
            channel: String::new(),
            events: vec!["irq:irq_handler_entry".into()],
        }]),
        ..Ledger::default()
    }
}

fn state() -> InitialState {
    let thread = |tid, tgid| Thread { tid, tgid, ..Thread::default() };
    InitialState {
        version: InitialState::VERSION,
        began_ns: 1000,
        ended_ns: 1000,
        host: Host {
            hostname: "host\u{7f}".into(),
            sysname: "Linux".into(),
            release: "6.12".into(),
            version: "#1 SMP".into(),
            machine: "x86_64".into(),
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
            product_uuid: "p".into(),
            ..Host::default()
        },
        threads: vec![thread(10, 10), thread(11, 10), thread(12, 12), thread(99, 98)],
        block_devices: vec![BlockDevice::default()],
        ..InitialState::default()
    }
}

/// A recording of some threads, with filters and sampling, in two buffers.
fn original(dir: &Path, ledgers: &[Ledger]) -> PathBuf {
    let path = dir.join("original.dat");
    let endian = Endian::Little;
    let setup = Setup { endian, compression: Compression::None, page_size: 4096 };
    let mut writer = Writer::create(File::create(&path).unwrap(), setup).unwrap();
    writer.section(Section::header_info(endian, &layout::header_page_text(4096), "").unwrap()).unwrap();
    let none: [&str; 0] = [];
    writer.section(Section::ftrace_events(endian, &none).unwrap()).unwrap();
    let call = ("int __syscall_nr", 4, 1);
    let enter = format("sys_enter_read", ENTER, &[call, ("char * buf", 8, 0)], "\"buf: 0x%08lx\", REC->buf");
    let exit = format("sys_exit_read", EXIT, &[call, ("long ret", 8, 1)], "\"0x%lx\", REC->ret");
    let (issue, complete) =
        (request("block_rq_issue", ISSUE, false), request("block_rq_complete", COMPLETE, true));
    let systems = [
        EventSystem { name: "block", formats: &[&issue, &complete] },
        EventSystem { name: "sched", formats: &[&switch_format()] },
        EventSystem { name: "syscalls", formats: &[&enter, &exit] },
    ];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.section(Section::kallsyms(endian, b"1000 t one\n2000 t two\n").unwrap()).unwrap();
    let mut tasks = Cmdlines::new();
    for (tid, name) in
        [(10, &b"t10"[..]), (11, b"t11 [x"), (12, b"t12"), (99, b"never seen"), (98, b"\xff\\x41")]
    {
        tasks.insert(tid, name);
    }
    writer.section(Section::cmdlines(endian, &tasks)).unwrap();
    writer.option(&FileOption::Version("recorder 7".into())).unwrap();
    writer.option(&FileOption::Uname("Linux host 6.12 x86_64".into())).unwrap();
    writer.option(&FileOption::TraceClock("local [mono]".into())).unwrap();
    writer.option(&FileOption::CpuCount(6)).unwrap();
    writer.option(&FileOption::TraceId(0x1234_5678_9abc)).unwrap();
    for (name, cpus) in buffers() {
        let mut buffer = writer.begin_buffer(Buffer { name, clock: "mono", page_size: 4096 }).unwrap();
        for (cpu, records) in cpus.iter().enumerate() {
            let mut out = buffer.begin_cpu(cpu as u32).unwrap();
            let mut pages = PageBuilder::new(4096, endian).unwrap();
            for (time, missed, record) in records {
                if *missed != 0 {
                    pages.missed(*missed);
                }
                while pages.push(*time, record).unwrap() == Push::Full {
                    if let Some(page) = pages.finish() {
                        out.push_page(page).unwrap();
                    }
                }
            }
            if let Some(page) = pages.finish() {
                out.push_page(page).unwrap();
            }
            out.finish().unwrap();
        }
        buffer.finish().unwrap();
    }
    for ledger in ledgers {
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() }).unwrap();
    }
    let bytes = state().encode().unwrap();
    writer.option(&FileOption::Unknown { id: InitialState::OPTION, bytes }).unwrap();
    writer.finish().unwrap();
    path
}

fn opened(path: &Path) -> recording::TraceFile {
    recording::TraceFile::open(Box::new(File::open(path).unwrap())).unwrap()
}

fn exported(path: &Path, format: &dyn Format, dir: &Path) -> (PathBuf, NotCarried) {
    let name = format!("{}-{}", path.file_name().unwrap().display(), format.name());
    let target = recording::Target { path: dir.join(name), ..recording::Target::default() };
    let exported = recording::export(&opened(path), format, &target, &Job::new(&|_| {})).unwrap();
    (exported.path, exported.not_carried)
}

fn imported(source: &Path, dir: &Path) -> (PathBuf, Imported) {
    let path = dir.join(format!("{}.dat", source.file_name().unwrap().display()));
    let mut source = open::open(source, open::Hints::default()).unwrap();
    let target = Target { path: path.clone(), force: false };
    let imported = import(&mut *source, &target, Options::default(), &mut |_| true).unwrap();
    (path, imported)
}

fn again(path: &Path, format: &dyn Format, dir: &Path) -> PathBuf {
    imported(&exported(path, format, dir).0, dir).0
}

/// What an analysis answers, and what it says of what it does not know.
fn answers<A: Analysis>(
    path: &Path,
    topic: Topic,
    analysis: impl Fn(&report::TraceFile<Vec<u8>>) -> A,
) -> String
where
    A::Answer: std::fmt::Debug,
{
    let file = report::TraceFile::open("file", fs::read(path).unwrap()).unwrap();
    format!("{:#?}", answer(&file, topic, &Scope::default(), analysis(&file), &mut |_| {}).unwrap())
}

fn sched(path: &Path) -> String {
    answers(path, Topic::Sched, |_| Sched::new(Scope::default()))
}

fn calls(path: &Path) -> String {
    answers(path, Topic::Syscalls, |file| Calls::new(Scope::default(), file.call_names()))
}

fn io(path: &Path) -> String {
    answers(path, Topic::Io, |file| Io::new(Scope::default(), file.call_names()))
}

/// The formats that an import reads.
const FORMATS: [&dyn Format; 4] = [&Ctf::Kernel, &Ctf::Kernel2, &Ctf::Lttng, &PerfScript];

#[test]
fn what_was_chosen_and_counted_is_in_every_import() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let events = Some(vec![]);
        let second = Ledger { only: vec!["CPUs 1".into()], cpus: vec![], events, ..ledger(Some(0)) };
        let path = original(dir.path(), &[ledger(Some(0)), second.clone()]);
        let back = again(&path, format, dir.path());
        let found: Vec<Ledger> = Ledger::all_of(&opened(&back)).collect();
        let of_import = |ledger: Ledger| Ledger { imported: found[0].imported.clone(), ..ledger };
        // Lines have no flags.
        let lacks_contexts = format.name() == "perf-script";
        let of_import = |ledger| Ledger { lacks_contexts, ..of_import(ledger) };
        let mut expected = of_import(ledger(Some(0)));
        for cpu in &mut expected.cpus {
            // An import does not count them.
            cpu.pages = None;
        }
        let mut own = found[0].clone();
        for cpu in &mut own.cpus {
            cpu.pages = None;
        }
        if format.name() == "lttng" {
            // The state dump is among its events.
            own.cpus[0].recorded = expected.cpus[0].recorded;
            own.cpus[0].stored = expected.cpus[0].stored;
        }
        own.cpus.sort_by_key(|row| (row.channel.clone(), row.cpu));
        expected.cpus.sort_by_key(|row| (row.channel.clone(), row.cpu));
        assert_eq!(own, expected, "{}", format.name());
        assert_eq!(found[1..], [of_import(second)], "{}", format.name());
    }
}

/// What somebody may leave of an export: a text without one of its lines, a trace without one of its files.
fn cut(source: &Path, format: &dyn Format) {
    if format.name() == "perf-script" {
        let text = fs::read_to_string(source).unwrap();
        let mut is_first = true;
        let is_left = |line: &&str| !(line.contains("[001]") && std::mem::take(&mut is_first));
        fs::write(source, text.split_inclusive('\n').filter(is_left).collect::<String>()).unwrap();
        return;
    }
    let kernel = source.join("kernel");
    let streams = fs::read_dir(&kernel).unwrap().map(|entry| entry.unwrap().path());
    let is_second = |path: &PathBuf| path.to_str().unwrap().ends_with("0_1");
    let found: Vec<PathBuf> = streams.filter(is_second).collect();
    assert_eq!(found.len(), 1, "{:?}", fs::read_dir(&kernel).unwrap().collect::<Vec<_>>());
    fs::remove_file(&found[0]).unwrap();
}

#[test]
fn an_export_that_was_cut_has_no_counts_of_the_whole() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = original(dir.path(), &[ledger(Some(0))]);
        let source = exported(&path, format, dir.path()).0;
        cut(&source, format);
        let found = Ledger::of(&opened(&imported(&source, dir.path()).0)).unwrap();
        let name = format.name();
        assert_eq!((found.covered, found.duration_ns, &found.events), (None, None, &None), "{name}");
        assert_eq!((found.recursion_misses, found.pauses.len(), found.only.len()), (None, 1, 2), "{name}");
        let chosen = found.event_choices().into_iter().map(|choice| choice.event);
        // What was recorded is known, without how often.
        let (issue, complete) = ("block:block_rq_issue", "block:block_rq_complete");
        let [enter, exit] = ["syscalls:sys_enter_read", "syscalls:sys_exit_read"];
        let expected = ["sched:sched_switch", issue, complete, enter, exit, enter, exit];
        assert_eq!(chosen.collect::<Vec<_>>(), expected, "{name}");
        assert_eq!(found.silent.map(|of| of.len()), Some(1), "{name}");
        let of_cpu = |cpu: u32| {
            let rows = found.cpus.iter().filter(|row| (&*row.channel, row.cpu) == ("", cpu));
            rows.map(|row| (row.own_threads, row.lost.total())).collect::<Vec<_>>()
        };
        assert_eq!(of_cpu(0), [(Some(3), 4)], "{name}");
        assert!(of_cpu(1).is_empty() || of_cpu(1) == [(None, 0)], "{name}: {:?}", of_cpu(1));
    }
}

#[test]
fn an_event_that_was_renamed_since_has_no_counts_of_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let path = original(dir.path(), &[ledger(Some(0))]);
    let source = exported(&path, &PerfScript, dir.path()).0;
    let of = |source: &Path| Ledger::of(&opened(&imported(source, dir.path()).0)).unwrap();
    assert_eq!(of(&source).events.map(|rows| rows.len()), Some(7));
    // As many on each CPU, and of a buffer one more of this event and one less of that one.
    let text = fs::read_to_string(&source).unwrap();
    let copy = dir.path().join("renamed");
    let (before, after) = text.rsplit_once("syscalls:sys_exit_read: ").unwrap();
    fs::write(&copy, [before, "block:block_rq_issue: ", after].concat()).unwrap();
    let found = of(&copy);
    assert_eq!((&found.events, found.covered), (&None, None));
    assert_eq!(found.event_choices().len(), 7);
}

#[test]
fn the_machine_the_names_and_the_buffers_are_in_every_import() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = original(dir.path(), &[ledger(Some(77))]);
        let back = opened(&again(&path, format, dir.path()));
        let name = format.name();
        let job = Job::new(&|_| {});
        let recording = Recording::survey(&back, &job).unwrap();
        let state = back.initial_state().unwrap().unwrap();
        let provenance = recording.provenance(Some(&state));
        let file = opened(&path);
        let expected = Recording::survey(&file, &job).unwrap().provenance(Some(&self::state()));
        assert_eq!(provenance.clock, expected.clock, "{name}");
        assert_eq!(provenance.machine, expected.machine, "{name}");
        assert_eq!(provenance.recorder, expected.recorder, "{name}");
        assert_eq!(provenance.buffers, expected.buffers, "{name}");
        let named = |threads: &[(u32, u32, String)]| -> Vec<_> {
            threads.iter().filter(|(tid, ..)| ![0, 98].contains(tid)).cloned().collect()
        };
        assert_eq!(named(&provenance.threads.list), named(&expected.threads.list), "{name}");
        let names = &back.metadata().cmdlines;
        assert_eq!((names.get(98), names.get(11)), (Some(&b"\xff\\x41"[..]), Some(&b"t11 [x"[..])), "{name}");
        for (buffer, (name, _)) in back.buffers().iter().zip(buffers()) {
            assert_eq!(buffer.name, name);
        }
    }
}

#[test]
fn an_unknown_time_of_day_stays_unknown_and_0_is_known() {
    for format in FORMATS {
        for offset in [None, Some(0), Some(1_700_000_000_000_000_000), Some(-500)] {
            let dir = tempfile::tempdir().unwrap();
            let path = original(dir.path(), &[ledger(offset)]);
            let back = opened(&again(&path, format, dir.path()));
            let recording = Recording::survey(&back, &Job::new(&|_| {})).unwrap();
            let name = format.name();
            assert_eq!((recording.wall_offset(), &*recording.clock_name()), (offset, "mono"), "{name}");
            let (first, last) = recording.span().unwrap();
            // A state dump of LTTng has events, too.
            assert_eq!((first, last), (1000, 3000), "{name} {offset:?}");
        }
    }
}

#[test]
fn analyses_of_an_import_know_what_they_did_not() {
    for format in [Ctf::Kernel, Ctf::Kernel2, Ctf::Lttng] {
        for only in [vec![], vec!["the command".to_owned()], vec!["CPUs 0".to_owned()]] {
            let dir = tempfile::tempdir().unwrap();
            let path = original(dir.path(), &[Ledger { only: only.clone(), ..ledger(Some(0)) }]);
            let back = again(&path, &format, dir.path());
            let why = format!("{format:?} {only:?}");
            let without_dump = |text: String| text.replace("events: 19,", "events: N,");
            let (was, is) = (sched(&path), sched(&back));
            assert_eq!(without_dump(is), without_dump(was), "{why}");
            assert_eq!(calls(&back), calls(&path), "{why}");
            assert_eq!(io(&back), io(&path), "{why}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = original(dir.path(), &[ledger(Some(0))]);
    // A text has system calls as texts, which are counted otherwise.
    let answer = |path: &Path| sched(path).split_once("    Covered {").unwrap().0.to_owned();
    assert_eq!(answer(&again(&path, &PerfScript, dir.path())), answer(&path));
}

/// All that a file says: options, descriptions, names and records.
fn content(path: &Path) -> Vec<String> {
    let file = opened(path);
    let mut content: Vec<String> = file
        .facts()
        .map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == OptionId::LEDGER => {
                format!("{:?}", Ledger::parse(bytes))
            }
            FileOption::Unknown { id, .. } if *id == InitialState::OPTION => {
                format!("{:?}", file.initial_state().unwrap())
            }
            fact => format!("{fact:?}"),
        })
        .collect();
    // Numbers of events are in the order in which they come for the first time, and have no meaning.
    let mut formats = Vec::new();
    for system in &file.metadata().systems {
        let without_number = |text: &String| {
            let lines = text.lines().filter(|line| !line.starts_with("ID: "));
            format!("{} {}", system.name, lines.collect::<Vec<_>>().join("\n"))
        };
        formats.extend(system.formats.iter().map(without_number));
    }
    formats.sort();
    content.extend(formats);
    content.push(format!("{:?}", file.metadata().cmdlines));
    content.extend(file.buffers().iter().map(|buffer| buffer.name.clone()));
    let mut records = file.records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let event = file.metadata().event(record.event_id().unwrap()).unwrap();
        let (name, _) = event.format.split_once('\n').unwrap();
        let of = (record.buffer, record.cpu, record.timestamp, record.missed);
        content.push(format!("{of:?} {} {name} {:?}", event.system, record.data.get(2..)));
    }
    content
}

#[test]
fn a_second_export_and_import_change_nothing() {
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = original(dir.path(), &[ledger(Some(-500))]);
        let first = again(&path, format, dir.path());
        let second = again(&first, format, dir.path());
        let (first, second) = (content(&first), content(&second));
        for (one, other) in first.iter().zip(&second) {
            assert_eq!(one, other, "{}", format.name());
        }
        assert_eq!(first.len(), second.len(), "{}", format.name());
    }
}

#[test]
fn both_versions_of_ctf_are_the_same_recording() {
    for offset in [None, Some(0), Some(-500), Some(i64::MAX >> 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = original(dir.path(), &[ledger(offset)]);
        let [one, two] =
            [Ctf::Kernel, Ctf::Kernel2].map(|format| content(&again(&path, &format, dir.path())));
        assert_eq!(two, one, "{offset:?}");
    }
}

#[test]
fn a_trace_that_was_recorded_has_what_its_head_says() {
    for (naming, names) in [(Ctf::Kernel, "ctf"), (Ctf::Kernel2, "ctf2"), (Ctf::Lttng, "lttng")] {
        let dir = tempfile::tempdir().unwrap();
        let choice =
            EventChoice { event: "block:block_rq_issue".into(), is_sampled: true, ..EventChoice::default() };
        let of_head = Ledger {
            events: Some(vec![]),
            choices: vec![choice.clone()],
            cpus: vec![],
            realtime_offset_ns: Some(0),
            ..ledger(Some(0))
        };
        let head = opened(&original(dir.path(), &[of_head]));
        let out = Directory::open(dir.path()).unwrap().create_dir("kernel").unwrap();
        let chunk = Chunk { dir: &out, before: 0, published: None, session: None };
        let mut writer = TraceWriter::create((naming, Shapes::default()), (&head, 1000), chunk, &|_| {
            Some(ChannelContexts::default())
        })
        .unwrap();
        let mut records = head.records().unwrap();
        while let Some(record) = records.next_record().unwrap() {
            assert_eq!(writer.record(&record).unwrap(), Taken::Written);
        }
        writer.end_chunk(3000, &Ledger::default()).unwrap();
        let back = opened(&imported(&dir.path().join("kernel"), dir.path()).0);
        let found = Ledger::of(&back).unwrap();
        assert_eq!((found.only.len(), found.event_choices()), (2, vec![choice]), "{names}");
        assert_eq!((found.realtime_offset_ns, found.events, found.silent), (Some(0), None, None), "{names}");
        let of_buffers: Vec<&str> = back.buffers().iter().map(|buffer| &*buffer.name).collect();
        assert_eq!(of_buffers, ["", "a/b \u{e9}"], "{names}");
        let uname = tracedat::Uname::of(back.facts()).unwrap();
        assert_eq!((&*uname.node, &*uname.machine), ("host\u{7f}", "x86_64"), "{names}");
    }
}

#[test]
fn what_a_format_does_not_keep_is_counted_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = original(dir.path(), &[ledger(None)]);
    let counts = |format: &dyn Format| {
        let not_carried = exported(&path, format, dir.path()).1;
        let count = |word: &str| {
            let of = not_carried.iter().filter(|(what, _)| what.contains(word));
            of.map(|(_, count)| count).sum::<u64>()
        };
        [
            "choices",
            "names of buffers",
            "values have names",
            "addresses:",
            "symbols",
            "disks",
            "files cannot have",
        ]
        .map(count)
    };
    // 2 lines of the scope, and 2 events of which not each firing was recorded.
    assert_eq!(counts(&Ctf::Kernel), [0, 0, 1, 1, 2, 1, 1]);
    assert_eq!(counts(&Ctf::Kernel2), [0, 0, 1, 1, 2, 1, 1]);
    assert_eq!(counts(&Ctf::Lttng), [0, 0, 1, 1, 2, 0, 1]);
    assert_eq!(counts(&PerfScript), [0, 0, 0, 1, 2, 1, 0]);
    assert_eq!(counts(&export::perfetto::Perfetto), [4, 1, 1, 1, 2, 1, 0]);
    assert_eq!(counts(&views::chrome::Chrome), [4, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn texts_of_others_and_damaged_ones_change_nothing_but_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let path = original(dir.path(), &[ledger(Some(5))]);
    let script = exported(&path, &PerfScript, dir.path()).0;
    let text = fs::read_to_string(&script).unwrap();
    let damaged = text
        .replace("recording_ledgers_0 [{", "recording_ledgers_0 [}")
        .replace("recording_buffers_0", "recording_buffers_7");
    let copy = dir.path().join("damaged");
    fs::write(&copy, damaged).unwrap();
    let (back, imported) = imported(&copy, dir.path());
    let named = imported.not_carried.iter().filter(|(what, _)| what.contains("damaged"));
    assert_eq!(named.map(|(_, count)| count).sum::<u64>(), 2);
    let file = opened(&back);
    let found = Ledger::of(&file).unwrap();
    assert_eq!(
        (&*found.only, found.events, found.realtime_offset_ns),
        (&UNKNOWN_CHOICE.map(str::to_owned)[..], None, Some(5))
    );
    // The same lines in a text that is not ours are comments.
    let foreign = dir.path().join("foreign");
    let first = text.find('\n').unwrap();
    fs::write(&foreign, &text[first + 1..]).unwrap();
    let source = self::imported(&foreign, dir.path()).0;
    let found = Ledger::of(&opened(&source)).unwrap();
    assert_eq!((found.only.len(), found.realtime_offset_ns), (0, None));
    assert_eq!(found.event_choices(), Vec::<EventChoice>::new());
}
