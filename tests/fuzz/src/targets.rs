//! What is done with the bytes.

use std::io::Cursor;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

use ftrace_event::Endian;
use ftrace_event::format::name_and_id;
use ftrace_event::{EventTable, Format, Machine, NoNames, NoSymbols, Printer, RecordReader};
use tracedat::check::check;
use tracedat::initial_state::InitialState;
use tracedat::ledger::Ledger;
use tracedat::page::{EventCursor, PageLayout};
use tracedat::reader::Reader;
use tracedat::rewrite::{RewriteError, repair as write_repaired};
use tracedat::{Compression, FileOption, OptionId, layout};

/// A target: what is done with some bytes.
pub(crate) type Target = fn(&[u8]);

/// All targets by name.
pub(crate) const ALL: &[(&str, Target)] = &[
    ("file", file),
    ("repair", repair),
    ("sections", sections),
    ("options", options),
    ("page", page),
    ("format", format),
    ("print", print),
    ("filter", filter),
    ("ledger", ledger),
    ("ctf", crate::ctf::target),
    ("ctf2", crate::ctf::target),
    ("perf", perf),
    ("text", text),
    ("latency", latency),
    ("systrace", systrace),
    ("spool", spool),
    ("piped", crate::piped::target),
    ("recorder", recorder),
    ("control", control),
    ("saved", saved),
    ("live", live),
    ("relayed", relayed),
];

/// Between the parts of an input that has several.
pub(crate) const SEPARATOR: &[u8] = b"\n%%\n";

/// The parts of an input; those that are missing are empty.
pub(crate) fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data;
    std::array::from_fn(|place| {
        let at = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        match at.filter(|_| place + 1 < N) {
            Some(at) => {
                let part = &rest[..at];
                rest = &rest[at + SEPARATOR.len()..];
                part
            }
            None => std::mem::take(&mut rest),
        }
    })
}

/// What a recorder says to a listener of trace-cmd: however it comes, it means the same.
fn recorder(data: &[u8]) {
    use tracecmd::receive::{Dialogue, Said};

    const LIMIT: u64 = 4096;
    let talk = |step: usize| {
        let (mut dialogue, _) = Dialogue::begin(LIMIT, data.first().is_some_and(|first| first % 2 == 0));
        let (mut said, mut metadata) = (Vec::new(), Vec::new());
        for mut piece in data.chunks(step) {
            loop {
                match dialogue.take(&mut piece) {
                    Err(error) => {
                        said.push(format!("{error:?}"));
                        return (said, metadata);
                    }
                    Ok(None) => break,
                    Ok(Some(Said::Metadata(bytes))) => metadata.extend(bytes),
                    Ok(Some(Said::Begin { cpus, page_size, carrier })) => {
                        assert!((1..=1024).contains(&cpus) && page_size >= 4096);
                        let ports: Vec<u32> = (1500..).take(cpus as usize).collect();
                        said.push(format!("{cpus} {page_size} {carrier:?}"));
                        assert!(dialogue.ports(&ports).len() <= 8192);
                    }
                    Ok(Some(other)) => said.push(format!("{other:?}")),
                }
                assert!(metadata.len() as u64 <= LIMIT);
            }
            assert!(piece.is_empty());
        }
        (said, metadata)
    };
    let (whole, one_by_one) = (talk(data.len().max(1)), talk(1));
    assert_eq!(whole.0, one_by_one.0);
    // Of a file that is too long, as much as came in one piece may be missing.
    assert!(one_by_one.1.starts_with(&whole.1));
}

/// Opens a file, asks for everything that can be asked for, and checks it.
fn file(data: &[u8]) {
    let report = check(&data, NonZeroUsize::new(1));
    let Ok(reader) = Reader::open(data) else {
        assert!(!report.is_clean(), "a file that cannot be opened is clean");
        return;
    };
    let _ = reader.kallsyms();
    let _ = reader.buffer_text("");
    for section in reader.sections() {
        let _ = reader.section_bytes(section);
    }
    let mut events = 0;
    for buffer in 0..reader.buffers().len() {
        events += reader.count(buffer).events();
    }
    let Ok(mut records) = reader.records() else { return };
    let (mut found, mut errors, mut middle) = (0, 0, 0);
    loop {
        match records.next_record() {
            Ok(Some(record)) => {
                found += 1;
                if found == events / 2 {
                    middle = record.timestamp;
                }
            }
            Ok(None) => break,
            Err(_) => errors += 1,
        }
    }
    assert_eq!(found, events);
    assert!(errors == 0 || !report.is_clean(), "a file that cannot be read is clean");
    let mut back = 0;
    loop {
        match records.prev_record() {
            Ok(Some(_)) => back += 1,
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert_eq!(back, events);
    records.seek(middle);
    let _ = records.next_record();
}

/// Saves what is intact of a file. What is written can be opened, and holds the events that were counted.
/// What sections, records and statistics say is that of the input, and may be damaged.
fn repair(data: &[u8]) {
    let Ok((reader, notes)) = Reader::open_damaged(data) else {
        assert!(Reader::open(data).is_err(), "a file that can be opened cannot be repaired");
        return;
    };
    let compression = (reader.header().version >= 7).then_some(Compression::None);
    let out = Cursor::new(Vec::new());
    let (saved, written) = match write_repaired(&reader, notes, compression, out, &mut |_| true) {
        Ok(written) => written,
        Err(RewriteError::Nothing(_)) => return,
        Err(error) => panic!("the file cannot be repaired: {error}"),
    };
    let saved = saved.into_inner();
    let reader = Reader::open(saved.as_slice()).expect("what was saved can be opened");
    let events: u64 = (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events()).sum();
    assert_eq!(events, written.events());
}

/// A file whose structure is right, and whose sections and options hold the input: formats, symbols, printk
/// formats, task names and options.
fn sections(data: &[u8]) {
    let parts: [&[u8]; 6] = parts(data);
    let endian = Endian::Little;
    let mut file = layout::MAGIC.to_vec();
    file.extend_from_slice(b"7\0\0\x08\0\x10\0\0none\0\0");
    let link = file.len();
    file.extend_from_slice(&[0; 8]);
    let section = |file: &mut Vec<u8>, id: u16, body: &[u8]| {
        let at = file.len() as u64;
        let size = body.len() as u64;
        let header = layout::SectionHeader { id: layout::SectionId(id), flags: 0, description: 0, size };
        file.extend_from_slice(&header.encode(endian));
        file.extend_from_slice(body);
        at
    };
    let text = layout::header_page_text(4096);
    let mut info = b"header_page\0".to_vec();
    info.extend_from_slice(&(text.len() as u64).to_le_bytes());
    info.extend_from_slice(text.as_bytes());
    info.extend_from_slice(b"header_event\0\0\0\0\0\0\0\0\0");
    let mut options = Vec::new();
    let mut add = |id: u16, at: u64| {
        options.extend_from_slice(&id.to_le_bytes());
        options.extend_from_slice(&8u32.to_le_bytes());
        options.extend_from_slice(&at.to_le_bytes());
    };
    add(16, section(&mut file, 16, &info));
    for (id, part) in (17..).zip(&parts[..5]) {
        add(id, section(&mut file, id, part));
    }
    options.extend_from_slice(parts[5]);
    options.extend_from_slice(&[0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let at = section(&mut file, 0, &options);
    file[link..link + 8].copy_from_slice(&at.to_le_bytes());
    self::file(&file);
}

/// An option by its number: what is taken apart and put together again is the same.
fn options(data: &[u8]) {
    let Some((id, bytes)) = data.split_first_chunk::<2>() else { return };
    let id = OptionId(u16::from_le_bytes(*id));
    for endian in [Endian::Little, Endian::Big] {
        for option in FileOption::decode(id, bytes, endian) {
            let Ok(encoded) = option.encode(endian) else { continue };
            let again = FileOption::decode(option.id(), &encoded, endian);
            if !matches!(option, FileOption::ProcMaps(_)) {
                assert_eq!(again.first(), Some(&option));
            }
        }
    }
}

/// A page of either byte order and size of long.
fn page(data: &[u8]) {
    let Some((kind, page)) = data.split_first() else { return };
    let endian = if kind & 1 == 0 { Endian::Little } else { Endian::Big };
    let long_size = if kind & 2 == 0 { 8 } else { 4 };
    let page_size = page.len().clamp(64, 1 << 16) as u32;
    let layout = PageLayout { endian, page_size, long_size, commit_at: 8, data_at: 8 + u32::from(long_size) };
    let Ok(header) = layout.header(page) else { return };
    let events = &page[layout.data_at as usize..][..header.data_len];
    let mut cursor = EventCursor::new(header.timestamp);
    let mut end = 0;
    while let Ok(Some(event)) = cursor.next(events, endian) {
        assert!(event.start >= end + 4 && event.start + event.len <= events.len());
        end = event.start + event.len;
        assert_eq!(cursor.at, end);
    }
    if endian == Endian::Little && long_size == 8 {
        let _ = tracedat::page::PageSummary::read(page, endian);
    }
}

/// A format text, and a record of the event.
fn format(data: &[u8]) {
    let [text, record] = parts(data);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _ = name_and_id(text);
    let Ok(format) = Format::parse(text) else { return };
    let _ = format.prints_symbols();
    let layout = format.record_layout();
    assert!(layout.align.is_power_of_two() && layout.size >= layout.fields_end);
    for long_size in [4, 8] {
        let machine = Machine { endian: Endian::Little, long_size };
        let reader = RecordReader::new(&format, machine);
        for index in 0..reader.len() {
            if let Some(Ok(value)) = reader.value(index, record) {
                let _ = value.to_string();
            }
        }
    }
}

/// A `print fmt`, and a record that it prints. The fields are fixed, so that fuzzing finds names that mean
/// something.
fn print(data: &[u8]) {
    let [print_fmt, record] = parts(data);
    let Ok(print_fmt) = std::str::from_utf8(print_fmt) else { return };
    let text = format!("{FIELDS}\nprint fmt: {print_fmt}\n");
    let Ok(format) = Format::parse(&text) else { return };
    for machine in [Machine::default(), Machine { endian: Endian::Big, long_size: 4 }] {
        let printer = Printer::new("fuzz", format.clone(), machine, &NoNames);
        let mut text = String::new();
        printer.print(record, &NoSymbols, &mut text);
    }
}

/// A filter in its first line, in both grammars, and a record that it is asked about.
fn filter(data: &[u8]) {
    static EVENTS: OnceLock<EventTable> = OnceLock::new();
    let events = EVENTS.get_or_init(|| {
        let text = format!(
            "{FIELDS}\nprint fmt: \"%s\", __print_symbolic(REC->a, {{ 1, \"ONE\" }}, {{ 2, \"TWO\" }})\n"
        );
        let mut events = EventTable::new(Machine::default());
        events.add("fuzz", &text, &NoNames).expect("the format is right");
        events
    });
    ftrace_event::filter::fuzz(data, events);
}

/// An event with fields of all kinds.
const FIELDS: &str = "name: all\nID: 300\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:u32 a;\toffset:24;\tsize:4;\tsigned:0;
\tfield:int b;\toffset:28;\tsize:4;\tsigned:1;
\tfield:unsigned long c;\toffset:32;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__rel_loc u8[] bytes;\toffset:44;\tsize:4;\tsigned:0;
\tfield:__data_loc cpumask_t cpus;\toffset:48;\tsize:4;\tsigned:0;
\tfield:u8 addr[16];\toffset:52;\tsize:16;\tsigned:0;
\tfield:u64 longs[2];\toffset:72;\tsize:16;\tsigned:0;
";

/// The JSON texts that files of ours bring along.
fn ledger(data: &[u8]) {
    let _ = Ledger::parse(data);
    let _ = InitialState::decode(data);
}

/// The files of a spool, in the order of the parts of an input.
const SPOOL: [&str; 10] = [
    "manifest",
    "names",
    "state",
    "cpu0.0",
    "channel1-cpu1.0",
    "mappings",
    "kallsyms",
    "moved",
    "trace.dat",
    "cpu0.1",
];

/// The spool of a recording that was killed, with all of its journals. Whatever becomes of it: a file that
/// was made is whole and has the events that the ledger counts, and a recovery that was refused has cost no
/// data.
fn spool(data: &[u8]) {
    use std::fs;
    use std::path::Path;

    use capture::{LostManifest, Spool, recover};
    use stdx::output::Output;

    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let Ok(dir) = dir else { return };
    let spool = dir.path().join("t.dat.spool");
    let parts: [&[u8]; SPOOL.len()] = parts(data);
    if fs::create_dir(&spool).is_err() {
        return;
    }
    for (name, bytes) in SPOOL.iter().zip(parts) {
        if !bytes.is_empty() && fs::write(spool.join(name), bytes).is_err() {
            return;
        }
    }
    let output = dir.path().join("t.dat");
    let (Ok(opened), Ok(place)) = (Spool::open(&spool), Output::at(&output)) else { return };
    let Ok(finished) = recover(opened, Some(place), LostManifest::Refuse, &|| false) else {
        let is_segment = |name: &str| name.starts_with("cpu") || name.starts_with("channel");
        for (name, bytes) in SPOOL.iter().zip(parts).filter(|(name, _)| is_segment(name)) {
            let left = fs::read(spool.join(name)).unwrap_or_default();
            // What a journal says is in the draft comes back from there.
            assert!(!parts[7].is_empty() || left == bytes, "{name} has changed");
            assert_eq!(left.len(), bytes.len(), "{name} is not as long as it was");
        }
        return;
    };
    let bytes = fs::read(&output).unwrap_or_default();
    let reader = Reader::open(bytes.as_slice()).expect("what was recovered can be opened");
    let events: u64 = (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events()).sum();
    let counted: u64 = finished.stats.cpus.iter().map(|cpu| cpu.stored.events).sum();
    assert_eq!(events, counted, "the ledger counts what is in the file");
}

/// Requests to the session daemon, a line each; those of a user other than root behind the line `user`. What
/// they make can be saved.
fn control(data: &[u8]) {
    let (data, uid) = data.strip_prefix(b"user\n").map_or((data, 0), |data| (data, 1000));
    if let Some(session) = daemon::fuzz(data, uid) {
        ctl::fuzz_session(&session);
    }
}

/// A file of saved sessions.
fn saved(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        ctl::fuzz_saved(text);
    }
}

/// What a viewer sends. Answers are as long as what is asked for allows.
fn live(data: &[u8]) {
    let answered = lttng_live::fuzz(data);
    assert!(answered <= data.len() * 400, "{answered} bytes of answers");
}

/// What a relay daemon answers to who sends it a session. No more of it is kept than a few paths.
fn relayed(data: &[u8]) {
    let kept = lttng_relay::fuzz(data);
    assert!(kept <= data.len() + (1 << 14), "{kept} bytes of answers are kept");
}

/// Imports a recording of perf.
fn perf(data: &[u8]) {
    use import::perf::PerfData;
    if let Ok(mut source) = PerfData::open(Box::new(data.to_vec())) {
        imported(&mut source);
    }
    if let Ok(mut source) = PerfData::stream(&[], Box::new(Cursor::new(data.to_vec()))) {
        imported(&mut source);
    }
}

/// Imports the text of a trace.
fn text(data: &[u8]) {
    imported(&mut import::text::TextTrace::open(Box::new(data.to_vec())));
}

/// Imports the text of a latency tracer, with lines of its header and lines of events.
fn latency(data: &[u8]) {
    let [columns, lines] = parts(data);
    let text = [b"# tracer: irqsoff\n#\n", columns, b"\n#                |||| /     delay\n", lines].concat();
    imported(&mut import::text::TextTrace::open(Box::new(text)));
}

/// Imports a page of systrace: what is before the trace, and the trace, in both of its forms.
fn systrace(data: &[u8]) {
    let [page, trace] = parts(data);
    let tag: &[u8] = b"\n<script class=\"trace-data\" type=\"application/text\">\n";
    let new = [b"<!DOCTYPE html>\n", page, tag, trace, b"\n</script>\n</html>\n"].concat();
    imported(&mut import::text::TextTrace::open(Box::new(new)));
    let var: &[u8] = b"\n  var linuxPerfData = \"\\\n";
    let old = [b"<html>\n", page, var, trace, b"\\n\";\n</script>\n</html>\n"].concat();
    imported(&mut import::text::TextTrace::open(Box::new(old)));
}

/// What a source gives is a clean file with as many events as are told, or there is an error with a text.
fn imported(source: &mut dyn import::Source) {
    use import::{Options, import_to};
    use stdx::output::Directory;

    static DIR: OnceLock<Directory> = OnceLock::new();
    let dir =
        DIR.get_or_init(|| Directory::open(&std::env::temp_dir()).expect("a directory for temporary files"));
    let options = Options { keep_going: true, date: true };
    match import_to(source, Cursor::new(Vec::new()), dir, options, &mut |_| true) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((out, imported)) => {
            let file = out.into_inner();
            let reader = Reader::open(file.as_slice()).expect("what was written is a file");
            let counts = (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events());
            assert_eq!(counts.sum::<u64>(), imported.events);
        }
    }
}
