//! Exports to the two historic layouts hold every event of the recording, as readers that were written from
//! the documents see them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Cursor,
    path::{Path, PathBuf},
};

use integration_tests::{
    eventdefs_reader::{self, Item},
    harness::{Tmpfs, agent, files, run},
    ltt2008_reader::{self, Field},
};
use tracer_agent::event::{EventTable, Machine, NoNames, Printer, Value};
use tracer_agent::export::eventdefs::{self, EventDefs};
use tracer_agent::export::ltt2008::{self, Alignment, Lttng2008};
use tracer_agent::export::{ExportError, Exported, Format, Job, Recording, Target, TraceFile, export};
use tracer_agent::tracedat::page::{PageBuilder, Push};
use tracer_agent::tracedat::reader::{Reader, Record, Source};
use tracer_agent::tracedat::{
    Buffer, Compression, Endian, EventSystem, FileOption, Section, Setup, Writer, layout,
};

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
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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

mod lttng_2008 {
    use super::*;

    const STATE: [&str; 15] = [
        "kernel_sched_schedule",
        "kernel_arch_syscall_entry",
        "kernel_arch_syscall_exit",
        "kernel_arch_trap_entry",
        "kernel_arch_trap_exit",
        "kernel_irq_entry",
        "kernel_irq_exit",
        "kernel_softirq_raise",
        "kernel_softirq_entry",
        "kernel_softirq_exit",
        "kernel_process_fork",
        "kernel_arch_kthread_create",
        "kernel_process_exit",
        "kernel_process_free",
        "fs_exec",
    ];

    fn same(event: &ltt2008_reader::Event, record: &Record<'_>, printer: &Printer) {
        assert_eq!(event.name, format!("{}_{}", printer.system(), printer.name()));
        let mut seen = 0;
        let mut is = |name: &str, expected: Field| {
            assert_eq!(event.field(name), Some(&expected), "{name} of {}", event.name);
            seen += 1;
        };
        for (name, value) in fields(printer, record.data) {
            match value {
                _ if printer.is_kernel_stack() && name == "caller" => {
                    let addresses: Vec<_> =
                        stack(printer, record.data).iter().map(|address| format!("0x{address:x}")).collect();
                    is(name, Field::Text(format!("{{{}}}", addresses.join(",")).into_bytes()));
                }
                Value::Text(text) => is(name, Field::Text(text.to_vec())),
                Value::Array(numbers) if event.field(&format!("{name}_0")).is_some() => {
                    for (place, value) in numbers.iter().enumerate() {
                        is(&format!("{name}_{place}"), Field::Number(number(&value).unwrap()));
                    }
                }
                Value::Texts(texts) => {
                    for (place, text) in texts.iter().enumerate() {
                        is(&format!("{name}_{place}"), Field::Text(text.unwrap().to_vec()));
                    }
                }
                value => is(
                    name,
                    number(&value).map_or_else(|| Field::Text(value.to_string().into_bytes()), Field::Number),
                ),
            }
        }
        assert_eq!(seen, event.fields.len(), "fields of {}", event.name);
    }

    /// Compares a trace with the recording; returns how many records are not in it.
    fn compare(trace: &ltt2008_reader::Trace, file: &TraceFile) -> u64 {
        let table = events_of(file);
        let prefix = if trace.header.flight_recorder { "flight-" } else { "" };
        let (mut skipped, mut cpus) = (0, 0);
        let mut state = BTreeMap::<&str, u64>::new();
        let mut recorded = BTreeMap::<String, u64>::new();
        for (buffer, info) in file.buffers().iter().enumerate() {
            let channel = if info.name.is_empty() { "cpu" } else { &info.name };
            for cpu in &info.cpus {
                let name = format!("{prefix}{channel}_{}", cpu.cpu);
                let mut records = file.cpu_records(buffer, cpu.cpu).unwrap();
                let Some(written) = trace.files.get(&name) else {
                    assert!(records.next_record().unwrap().is_none(), "no file {name}");
                    continue;
                };
                cpus += 1;
                let mut events = written.events.iter().peekable();
                while let Some(record) = records.next_record().unwrap() {
                    while let Some(event) = events.next_if(|event| {
                        STATE.contains(&event.name.as_str()) || event.name == "core_heartbeat_32"
                    }) {
                        *state.entry(&event.name).or_default() += 1;
                    }
                    if let Some(missed) = record.missed {
                        let event = events.next().unwrap();
                        assert_eq!(
                            (event.name.as_str(), event.cycles),
                            ("trace_events_lost", record.timestamp)
                        );
                        assert_eq!(event.number("count"), i128::from(missed));
                    }
                    while events.next_if(|event| event.name == "core_heartbeat_32").is_some() {}
                    let printer = table.of_record(record.data).unwrap();
                    let full = format!("{}:{}", printer.system(), printer.name());
                    if record.data.len() > LONG
                        && events.peek().is_none_or(|event| event.cycles != record.timestamp)
                    {
                        skipped += 1;
                        continue;
                    }
                    *recorded.entry(full).or_default() += 1;
                    let event = events.next().unwrap();
                    assert_eq!(event.cycles, record.timestamp, "{name}");
                    same(event, &record, printer);
                }
                for event in events {
                    assert!(STATE.contains(&event.name.as_str()), "{}", event.name);
                    *state.entry(&event.name).or_default() += 1;
                }
            }
        }
        let files = trace.files.keys().filter(|name| !name.starts_with("control/")).count();
        assert_eq!(files, cpus, "files without a CPU");
        let of = |name: &str| recorded.get(name).copied().unwrap_or(0);
        let told = |name: &str| state.get(name).copied().unwrap_or(0);
        assert_eq!(told("kernel_sched_schedule"), of("sched:sched_switch"));
        assert_eq!(told("kernel_softirq_entry"), of("irq:softirq_entry"));
        assert_eq!(told("kernel_process_fork"), of("sched:sched_process_fork"));
        assert_eq!(told("fs_exec"), of("sched:sched_process_exec"));
        skipped
    }

    fn check(file: &TraceFile, options: ltt2008::Options) -> (ltt2008_reader::Trace, u64) {
        let (_dir, path, done) = exported(file, &Lttng2008::new(options).unwrap());
        let trace = ltt2008_reader::read(&path, options.literal);
        let summary = ltt2008::summary::read(&path).unwrap();
        assert_eq!((summary.damage.len(), summary.files.len()), (0, trace.files.len()), "{summary:?}");
        for file in &summary.files {
            assert_eq!(file.blocks, trace.files[&file.name].blocks as u64, "{}", file.name);
        }
        let bytes = &summary.facts.iter().find(|(name, _)| name == "header").unwrap().1;
        assert_eq!(bytes.starts_with("61"), options.literal);
        let header = &trace.header;
        let endian = options.endian.unwrap_or(file.header().endian);
        assert_eq!(header.big, endian == Endian::Big);
        assert_eq!((header.heartbeat, header.alignment), (options.heartbeat, options.alignment.bytes()));
        assert_eq!(header.arch_size, file.layout().long_size);
        let blocks = trace.files.iter().filter(|(name, _)| !name.starts_with("control/"));
        assert!(blocks.into_iter().all(|(_, file)| file.block_size == options.block_size as usize));
        let skipped = compare(&trace, file);
        assert_eq!(skipped, too_long(&done));
        (trace, skipped)
    }

    fn every_option() -> Vec<ltt2008::Options> {
        let mut all = Vec::new();
        for literal in [false, true] {
            for heartbeat in [false, true] {
                for alignment in [Alignment::Packed, Alignment::Four, Alignment::Eight] {
                    for endian in [Endian::Little, Endian::Big] {
                        let endian = Some(endian);
                        all.push(ltt2008::Options { literal, heartbeat, alignment, block_size: 0, endian });
                    }
                }
            }
        }
        all
    }

    #[test]
    fn every_event_of_every_recording_in_every_shape() {
        for (place, (name, file)) in recordings().into_iter().enumerate() {
            for (number, options) in every_option().into_iter().enumerate() {
                // The long one is there for what it lost, the others for what they have.
                let sizes = match name.as_str() {
                    "k6.12-sched-irq-timer-zstd.dat" => &BLOCKS[..],
                    "k6.12-lost.dat" if number % 12 != 5 => &[],
                    _ => {
                        let size = (number + place) % BLOCKS.len();
                        &BLOCKS[size..=size]
                    }
                };
                for block_size in sizes {
                    check(&file, ltt2008::Options { block_size: *block_size, ..options });
                }
            }
        }
    }

    #[test]
    fn whatever_a_recording_may_hold() {
        for seed in 0..4 {
            let recorded = synthetic(seed);
            let shapes = every_option();
            for number in 0..3 {
                let options = shapes[(seed as usize * 7 + number * 5) % shapes.len()];
                for block_size in BLOCKS {
                    let (trace, skipped) = check(&recorded, ltt2008::Options { block_size, ..options });
                    let long = count_long(&recorded);
                    assert!(block_size > 4096 || skipped == long, "{skipped} of {long}");
                    assert!(block_size < 1 << 20 || skipped == 0, "{skipped}");
                    // Every CPU number up to the highest has its facilities.
                    assert!(
                        (0..=20).all(|cpu| trace.files.contains_key(&format!("control/facilities_{cpu}")))
                    );
                }
            }
        }
    }

    #[test]
    fn overwritten_recordings_are_marked() {
        let stat = "CPU: 0\nentries: 0\noverrun: 12\n";
        let file = build(&[], &[FileOption::CpuStat(stat.into())], Endian::Little, |_, _| Vec::new());
        assert!(check(&file, ltt2008::Options::default()).0.header.flight_recorder);
    }
}

mod ltt_eventdefs {
    use super::*;

    fn same(event: &eventdefs_reader::Event, record: &Record<'_>, printer: &Printer) {
        assert_eq!(event.name, format!("{}.{}", printer.system(), printer.name()));
        let common = printer.format().common.iter().map(|field| &field.name).collect::<Vec<_>>();
        let mut seen = 0;
        for (name, value) in fields(printer, record.data) {
            let expected = match value {
                _ if printer.is_kernel_stack() && name == "caller" => Item::List(
                    stack(printer, record.data).iter().map(|n| Item::Number((*n).into())).collect(),
                ),
                Value::Text(text) => Item::Text(text.to_vec()),
                Value::Texts(texts) => {
                    Item::List(texts.iter().map(|text| Item::Text(text.unwrap().to_vec())).collect())
                }
                Value::Array(numbers) => {
                    Item::List(numbers.iter().map(|value| Item::Number(number(&value).unwrap())).collect())
                }
                Value::Bytes(bytes) => {
                    Item::List(bytes.iter().map(|byte| Item::Number((*byte).into())).collect())
                }
                Value::Bitmask(bits) => {
                    let mut words = vec![0_i128; bits.capacity().div_ceil(32)];
                    bits.iter().for_each(|bit| words[bit / 32] |= 1 << (bit % 32));
                    Item::List(words.into_iter().map(Item::Number).collect())
                }
                value => Item::Number(number(&value).unwrap()),
            };
            let is_common = common.iter().any(|common| *common == name);
            let place = if is_common { event.data.get("common").unwrap() } else { &event.data };
            assert_eq!(place.get(name), Some(&expected), "{name} of {}", event.name);
            seen += u64::from(!is_common);
        }
        let Item::Struct(fields) = &event.data else { panic!("{:?}", event.data) };
        assert_eq!(seen + 1, fields.len() as u64);
    }

    fn compare(trace: &eventdefs_reader::Trace, file: &TraceFile) -> u64 {
        let table = events_of(file);
        let job = Job::new(&|_| {});
        let offset = Recording::survey(file, &job).unwrap().wall_offset().unwrap_or(0);
        let (mut skipped, mut switches, mut schedules) = (0, 0, 0);
        let mut by_cpu: BTreeMap<u32, Vec<&eventdefs_reader::Event>> = BTreeMap::new();
        for (name, events) in trace.files.iter().filter(|(name, _)| name.starts_with("cpu/")) {
            schedules += events.iter().filter(|event| event.name == "core.schedchange").count();
            let recorded = events.iter().filter(|event| !event.name.starts_with("core."));
            by_cpu.insert(name["cpu/".len()..].parse().unwrap(), recorded.collect());
        }
        let mut next: BTreeMap<u32, usize> = BTreeMap::new();
        let mut records = file.records().unwrap();
        while let Some(record) = records.next_record().unwrap() {
            let at = next.entry(record.cpu).or_default();
            let time = record.timestamp.wrapping_add_signed(offset);
            let events = &by_cpu[&record.cpu];
            if let Some(missed) = record.missed {
                assert_eq!((events[*at].name.as_str(), events[*at].time), ("state.events_lost", time));
                assert_eq!(events[*at].data.number("count"), i128::from(missed));
                *at += 1;
            }
            let printer = table.of_record(record.data).unwrap();
            let there = events.get(*at).is_some_and(|event| event.time == time);
            if record.data.len() > LONG && !there {
                skipped += 1;
                continue;
            }
            assert_eq!(events[*at].time, time);
            same(events[*at], &record, printer);
            switches += usize::from(printer.name() == "sched_switch");
            *at += 1;
        }
        for (cpu, events) in &by_cpu {
            assert_eq!(next.get(cpu), Some(&events.len()), "CPU {cpu}");
        }
        assert_eq!(schedules, switches);
        skipped
    }

    fn check(file: &TraceFile, options: eventdefs::Options) -> (eventdefs_reader::Trace, u64) {
        let (_dir, path, done) = exported(file, &EventDefs::new(options).unwrap());
        let trace = eventdefs_reader::read(&path, options.literal);
        let summary = eventdefs::summary::read(&path).unwrap();
        assert_eq!((summary.damage.len(), summary.files.len()), (0, trace.files.len()), "{summary:?}");
        assert_eq!(summary.files.iter().map(|file| file.blocks).sum::<u64>(), trace.blocks as u64);
        assert_eq!(trace.system["ltt_block_size"], options.block_size.to_string());
        assert_eq!(trace.system["arch_size"], "LP64");
        let skipped = compare(&trace, file);
        assert_eq!(skipped, too_long(&done));
        (trace, skipped)
    }

    fn every_option() -> Vec<eventdefs::Options> {
        let mut all = Vec::new();
        for literal in [false, true] {
            for endian in [Endian::Little, Endian::Big] {
                for block_size in BLOCKS {
                    all.push(eventdefs::Options { literal, block_size, endian: Some(endian) });
                }
            }
        }
        all
    }

    #[test]
    fn every_event_of_every_recording_in_every_shape() {
        for (name, file) in recordings() {
            for options in every_option() {
                if name == "k6.12-lost.dat" && options.block_size < 1 << 20 {
                    continue;
                }
                let (trace, _) = check(&file, options);
                let marks = |name: &str| {
                    trace.bookmarks.iter().filter(|(attributes, _)| attributes["name"] == name).count()
                };
                assert_eq!((marks("session_start"), marks("session_stop")), (1, 1));
                if name == "k6.12-lost.dat" {
                    assert_eq!(marks("lost"), 6);
                }
            }
        }
    }

    #[test]
    fn whatever_a_recording_may_hold() {
        for seed in 0..4 {
            let recorded = synthetic(seed);
            for options in every_option() {
                let (trace, skipped) = check(&recorded, options);
                let long = count_long(&recorded);
                assert!(options.block_size > 4096 || skipped == long, "{skipped} of {long}");
                assert!(options.block_size < 1 << 20 || skipped == 0, "{skipped}");
                assert!(trace.heartbeats > 0);
            }
        }
    }
}

/// A small generator (xorshift64*): tests that fail must fail again.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// An event of everything that fields can be.
fn format() -> String {
    let mut text = String::from("name: mixed\nID: 9\nformat:\n");
    for (declaration, offset, size, signed) in [
        ("unsigned short common_type", 0, 2, 0),
        ("int common_pid", 4, 4, 1),
        ("", 0, 0, 0),
        ("u8 small", 8, 1, 0),
        ("short half", 10, 2, 1),
        ("int whole", 12, 4, 1),
        ("void * at", 16, 8, 0),
        ("char name[8]", 24, 8, 0),
        ("u16 pair[2]", 32, 4, 0),
        ("u8 many[20]", 36, 20, 0),
        ("struct pair blob", 56, 3, 0),
        ("__data_loc char[] text", 60, 4, 0),
        ("__data_loc u16[] list", 64, 4, 0),
        ("__data_loc cpumask_t cpus", 68, 4, 0),
        ("__data_loc char[][2] two", 72, 8, 0),
    ] {
        if declaration.is_empty() {
            text.push('\n');
        } else {
            let _ =
                writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};");
        }
    }
    text + "\nprint fmt: \"%s\", __print_symbolic(REC->small, { 0, \"NONE\" }, { 1, \"ONE\" })\n"
}

fn mixed(chance: &mut Chance, endian: Endian) -> Vec<u8> {
    let mut record = endian.u16(9).to_vec();
    record.extend((0..58).map(|_| chance.next() as u8));
    let list = match chance.below(30) {
        0 => 30_000,
        1 => 0,
        n => n * 2,
    };
    let text = chance.below(3) * 5;
    let mut at = 80;
    let mut tail = Vec::new();
    for len in [text, list * 2, chance.below(3) * 8, chance.below(5), 1] {
        record.extend_from_slice(&endian.u32(at as u32 | (len as u32) << 16));
        tail.extend((0..len).map(|_| chance.below(255) as u8 + 1));
        at += len;
    }
    record.extend_from_slice(&tail);
    record
}

/// A recording of these CPUs. `pages` makes a CPU's pages.
fn build(
    cpus: &[u32],
    options: &[FileOption],
    endian: Endian,
    mut pages: impl FnMut(u32, &mut PageBuilder) -> Vec<u8>,
) -> TraceFile {
    let page_size = 64 << 10;
    let setup = Setup { endian, page_size, compression: Compression::None };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    writer.section(Section::header_info(endian, &layout::header_page_text(page_size), "").unwrap()).unwrap();
    let format = format();
    let systems = [EventSystem { name: "demo", formats: &[format.as_str()] }];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    for option in options {
        writer.option(option).unwrap();
    }
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    for cpu in cpus {
        let mut builder = PageBuilder::new(page_size as usize, endian).unwrap();
        top.write_cpu(*cpu, pages(*cpu, &mut builder).as_slice()).unwrap();
    }
    top.finish().unwrap();
    Reader::open(Box::new(writer.finish().unwrap().into_inner()) as Box<dyn Source>).unwrap()
}

/// A recording of sparse CPUs, one without a record, with long gaps, lost events and records of 60 KB.
fn synthetic(seed: u64) -> TraceFile {
    let endian = if seed.is_multiple_of(2) { Endian::Little } else { Endian::Big };
    let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    build(&[0, 3, 9, 20], &[], endian, |cpu, builder| {
        let mut pages = Vec::new();
        let mut time = chance.below(1 << 40);
        // What may be missing is told by its time.
        let mut apart = 0;
        for number in 0..(if cpu == 9 { 0 } else { 150 }) {
            time += apart;
            time += match chance.below(40) {
                0 => 300_000_000_000,
                1 => 90_000_000_000_000,
                2 => (1 << 32) - chance.below(3),
                3 => 0,
                _ => chance.below(5000),
            };
            // One at the start, and some in the middle.
            if number == 0 || chance.below(50) == 0 {
                builder.missed(chance.below(3));
            }
            let record = if number == 70 { long(chance, endian) } else { mixed(chance, endian) };
            apart = u64::from(record.len() > LONG);
            while builder.push(time, &record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
            }
        }
        pages.extend_from_slice(builder.finish().unwrap_or_default());
        pages
    })
}

/// A record of 60 KB at least.
fn long(chance: &mut Chance, endian: Endian) -> Vec<u8> {
    std::iter::repeat_with(|| mixed(chance, endian)).find(|record| record.len() > 60_000).unwrap()
}

fn count_long(file: &TraceFile) -> u64 {
    let mut records = file.records().unwrap();
    let mut count = 0;
    while let Some(record) = records.next_record().unwrap() {
        count += u64::from(record.data.len() > 60_000);
    }
    count
}

#[test]
fn the_state_that_a_recording_began_with() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
