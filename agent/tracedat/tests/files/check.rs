//! `check` finds nothing wrong with whole files, whoever wrote them, and finds damage where it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{COMPRESSIONS, Scratch, pages, run, setup, str, switch, text, tick, trace_cmd};
use crate::reader_files::{page, version_6};
use ftrace_event::Endian;
use tracedat::check::{At, Report, Rule, Severity, check};
use tracedat::reader::{OptionValue, Reader};
use tracedat::{Compression, FileOption, OptionId, SectionId};

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces")
}

/// Two CPUs with records of every kind that the synthetic formats have, on several pages.
fn cpus() -> Vec<(u32, Vec<u8>)> {
    let records = |cpu: u32| {
        (0..400u32).map(move |n| {
            let time = 1_000_000_000 + u64::from(n * 3 + cpu) * 190_000 + u64::from(n / 100) * 300_000_000;
            let record = match n % 3 {
                0 => tick(42, n, 16),
                1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                _ => switch(("worker", 42), ("idle task", 0)),
            };
            (time, record)
        })
    };
    (0..2).map(|cpu| (cpu, pages(4096, records(cpu)))).collect()
}

fn file(compression: Compression) -> Vec<u8> {
    let scratch = Scratch::new();
    fs::read(scratch.file("t.dat", setup(compression), &cpus())).unwrap()
}

fn checked(bytes: &[u8]) -> Report {
    check(&bytes, None)
}

/// The rules that are broken, with notes left out, and where.
fn faults(bytes: &[u8]) -> Vec<(Rule, At)> {
    let report = checked(bytes);
    let is_told = |rule: Rule| rule == Rule::LossBehind || rule.severity() > Severity::Note;
    let faults = report.faults.iter().filter(|fault| is_told(fault.rule));
    faults.map(|fault| (fault.rule, fault.at)).collect()
}

fn plain(offset: u64) -> At {
    At { offset, inside: None }
}

/// Asserts that damage is found as this, and there.
#[track_caller]
fn finds(bytes: &[u8], rule: Rule, at: At) {
    let report = checked(bytes);
    assert!(!report.is_clean());
    assert!(report.faults.iter().any(|fault| fault.rule == rule && fault.at == at), "{:#?}", report.faults);
}

/// The stock recordings of the tests.
fn stock_recordings() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(traces()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_str().unwrap();
        let bytes = match path.extension().and_then(|extension| extension.to_str()) {
            Some("dat") => fs::read(&path).unwrap(),
            Some("gz") if name.contains(".dat.") => {
                let output = std::process::Command::new("gzip").args(["-dc", name]).output().unwrap();
                assert!(output.status.success());
                output.stdout
            }
            _ => continue,
        };
        found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), bytes));
    }
    assert_eq!(found.len(), 9);
    found
}

#[test]
fn stock_recordings_are_clean() {
    for (name, bytes) in stock_recordings() {
        let report = checked(&bytes);
        assert!(report.is_clean(), "{name}: {:#?}", report.faults);
        assert!(report.checked.events > 80 && report.checked.pages > 1, "{name}: {:?}", report.checked);
        // What trace-cmd 3.1 does to compressed data is noted.
        let old = report.totals.iter().find(|(rule, _)| *rule == Rule::ExtentOld);
        let compressed = !name.contains("none") && !name.contains("v6");
        assert_eq!(old.is_some(), compressed, "{name}: {:?}", report.totals);
    }
}

/// How many events stock trace-cmd shows, if it reads the whole file without a complaint.
fn stock_events(path: &Path) -> u64 {
    let text = trace_cmd(&["report", "-R", "-t", "-i", str(path)]);
    // `task-pid [cpu] time: name: fields`
    let is_event = |line: &&str| {
        let rest = line.split_once("] ").and_then(|(_, rest)| rest.split_once(": "));
        rest.is_some_and(|(time, _)| time.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    text.lines().filter(is_event).count() as u64
}

/// Whatever stock trace-cmd writes, and reads whole.
#[test]
fn files_that_stock_converts_and_splits_are_clean() {
    let mut files = 0;
    for (name, bytes) in stock_recordings() {
        let scratch = Scratch::new();
        let path = scratch.path("t.dat");
        fs::write(&path, &bytes).unwrap();
        // It crashes where it splits files with several buffers.
        let mut made = Vec::new();
        for (number, options) in [
            &["--file-version", "6"][..],
            &["--file-version", "7", "--compression", "none"],
            &["--file-version", "7", "--compression", "zstd"],
        ]
        .into_iter()
        .enumerate()
        {
            let target = scratch.path(&format!("{number}.dat"));
            let output = run(&[&["convert", "-i", str(&path), "-o", str(&target)], options].concat());
            if output.status.success() {
                made.push(target);
            }
        }
        if run(&["split", "-i", str(&path), "-o", str(&scratch.path("part.dat")), "-e", "50"])
            .status
            .success()
        {
            made.extend(
                (1..=3).map(|part| scratch.path(&format!("part.dat.{part}"))).filter(|part| part.exists()),
            );
        }
        for path in made {
            let report = checked(&fs::read(&path).unwrap());
            let faults: Vec<_> =
                report.faults.iter().filter(|fault| fault.rule.severity() > Severity::Note).collect();
            assert!(faults.is_empty(), "{name} {}: {faults:#?}", path.display());
            assert_eq!(report.checked.events, stock_events(&path), "{name} {}", path.display());
            files += 1;
        }
    }
    assert!(files > 30, "{files}");
}

/// Recorders before trace-cmd 2.6, and kernels of their time.
#[test]
fn options_and_formats_of_old_recorders_are_clean() {
    let scratch = Scratch::new();
    let path = scratch.path("t.dat");
    let setup = setup(Compression::None);
    let mut writer = tracedat::Writer::create(fs::File::create_new(&path).unwrap(), setup).unwrap();
    let header_page = tracedat::layout::header_page_text(setup.page_size);
    writer.section(tracedat::Section::header_info(setup.endian, &header_page, "").unwrap()).unwrap();
    // Linux 3.10.
    let branch = format!(
        "name: branch\nID: 9\nformat:\n{}\n\tfield:unsigned int line;\toffset:8;\tsize:4;\tsigned:0;
\tfield:char func[30+1];\toffset:12;\tsize:31;\tsigned:1;\n\tfield:char file[20+1];\toffset:43;\tsize:21;\tsigned:1;
\tfield:char correct;\toffset:64;\tsize:1;\tsigned:1;\n\nprint fmt: \"%u:%s:%s (%u)\", REC->line, REC->func, REC->file, REC->correct\n",
        crate::common::COMMON
    );
    writer.section(tracedat::Section::ftrace_events(setup.endian, &[&branch]).unwrap()).unwrap();
    let tick_text = crate::common::tick_format();
    let systems = [tracedat::EventSystem { name: "demo", formats: &[&tick_text] }];
    writer.section(tracedat::Section::event_formats(setup.endian, &systems).unwrap()).unwrap();
    for (id, bytes) in [
        (OptionId::TRACECLOCK, &b""[..]),
        // The byte behind the text is any.
        (OptionId::CPUSTAT, b"CPU: 0\nentries: 1\nread events: 2\nx"),
        (OptionId::CPUSTAT, b"\0"),
    ] {
        writer.option(&FileOption::Unknown { id, bytes: bytes.to_vec() }).unwrap();
    }
    let top = tracedat::Buffer { name: "", clock: "local", page_size: 4096 };
    let mut top = writer.begin_buffer(top).unwrap();
    let mut record = vec![0; 68];
    (record[0], record[8], record[64]) = (9, 7, 1);
    record[12..16].copy_from_slice(b"main");
    record[43..46].copy_from_slice(b"a.c");
    let records = [(1000, record), (2000, tick(42, 1, 16)), (3000, tick(42, 2, 16))];
    top.write_cpu(0, pages(4096, records).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();
    let old = scratch.path("6.dat");
    trace_cmd(&["convert", "-i", str(&path), "-o", str(&old), "--file-version", "6"]);
    for path in [path, old] {
        let report = checked(&fs::read(&path).unwrap());
        // No symbols and no names were written, and stock copies the checksums.
        let is_known = |rule: &Rule| rule.severity() == Severity::Note || *rule == Rule::SectionMissing;
        assert!(report.totals.iter().all(|(rule, _)| is_known(rule)), "{:#?}", report.faults);
        assert_eq!((report.count(Severity::Error), report.checked.events), (0, 3));
        assert_eq!(stock_events(&path), 3);
    }
}

#[test]
fn our_own_files_are_clean() {
    for compression in COMPRESSIONS {
        let report = checked(&file(compression));
        assert_eq!(report.totals, [], "{:#?}", report.faults);
        assert_eq!((report.checked.events, report.checked.cpus, report.checked.version), (800, 2, 7));
    }
    let endian = Endian::Big;
    let tick = crate::common::tick_format();
    let value = u32::from(crate::common::TICK) << 16;
    let long: Vec<_> = (0..4).map(|_| page(endian, 4, 100, None, &[])).collect();
    let bytes = version_6(endian, 4, &[("demo", &[&tick])], &long);
    assert_eq!(faults(&bytes), []);
    // Records of 4 bytes are too short for their fields, which only the big-endian number of the event tells.
    let short = version_6(endian, 4, &[("demo", &[&tick])], &[page(endian, 4, 100, None, &[(0, value)])]);
    let data = Reader::open(short.as_slice()).unwrap().buffers()[0].cpus[0].offset;
    assert_eq!(faults(&short), [(Rule::RecordShort, plain(data + 12 + 4))]);
}

/// A whole file and where its parts are.
struct Parts {
    bytes: Vec<u8>,
    reader: Reader<Vec<u8>>,
}

impl Parts {
    fn new(compression: Compression) -> Self {
        let bytes = file(compression);
        let reader = Reader::open(bytes.clone()).unwrap();
        Self { bytes, reader }
    }

    fn section(&self, id: SectionId) -> usize {
        self.reader.sections().iter().find(|section| section.id == id).unwrap().offset as usize
    }

    fn option(&self, id: OptionId) -> usize {
        self.reader.options().iter().find(|option| option.id == id).unwrap().offset as usize
    }

    fn data(&self, cpu: u32) -> usize {
        self.reader.buffers()[0].cpu(cpu).unwrap().offset as usize
    }

    /// The file with these bytes at that place.
    fn with(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut changed = self.bytes.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    }
}

#[test]
fn damaged_structure() {
    for compression in COMPRESSIONS {
        let parts = Parts::new(compression);
        let bytes = &parts.bytes;
        for at in [0, 9, 10] {
            finds(&parts.with(at, b"x"), Rule::Header, plain(0));
        }
        finds(&parts.with(12, b"\x02"), Rule::Header, plain(12));
        finds(&parts.with(14, &5000u32.to_le_bytes()), Rule::PageSize, plain(14));
        // The link to the first options stands before the first section.
        let link = parts.section(SectionId::HEADER_INFO) - 8;
        for target in [0, 5, bytes.len() as u64 + 7, parts.section(SectionId::KALLSYMS) as u64] {
            finds(&parts.with(link, &target.to_le_bytes()), Rule::Link, plain(link as u64));
        }
        let kallsyms = parts.section(SectionId::KALLSYMS);
        let option = parts.option(OptionId(19));
        finds(&parts.with(option, &7u64.to_le_bytes()), Rule::SectionHeader, plain(option as u64));
        finds(&parts.with(option - 6, &[99]), Rule::SectionMissing, plain(0));
        finds(&parts.with(kallsyms + 2, &[4]), Rule::SectionHeader, plain(kallsyms as u64));
        finds(&parts.with(kallsyms + 4, &[1]), Rule::Description, plain(kallsyms as u64 + 4));
        finds(&parts.with(kallsyms + 8, &[0xff; 7]), Rule::SectionEnd, plain(kallsyms as u64));
        // Ends in the next section.
        let size = bytes[kallsyms + 8] + 20;
        finds(&parts.with(kallsyms + 8, &[size]), Rule::SectionOverlap, plain(kallsyms as u64));
        let end = kallsyms as u64 + 16 + u64::from(size) - 30;
        finds(&parts.with(kallsyms + 8, &[size - 30]), Rule::SectionGap, plain(end));
        let longer = [bytes.as_slice(), &[0xee; 30]].concat();
        finds(&longer, Rule::SectionGap, plain(bytes.len() as u64));
        let strings = parts.section(SectionId::STRINGS) as u64;
        finds(&bytes[..bytes.len() - 1], Rule::SectionEnd, plain(strings));
    }
}

#[test]
fn damaged_options() {
    let parts = Parts::new(Compression::None);
    let uname = parts.option(OptionId::UNAME);
    let len = "Linux test 6.18.0 x86_64".len();
    finds(&parts.with(uname + len, b"!"), Rule::OptionText, plain(uname as u64));
    finds(&parts.with(uname + 3, b"\0"), Rule::OptionText, plain(uname as u64));
    finds(&parts.with(uname - 4, &[0xff; 4]), Rule::OptionEnd, plain(uname as u64));
    let count = parts.option(OptionId::CPUCOUNT);
    finds(&parts.with(count, &[1]), Rule::CpuCount, plain(count as u64));
    finds(&parts.with(count - 6, &[200]), Rule::CpuCount, plain(0));
    finds(&parts.with(count - 6, &[11, 0]), Rule::OptionValue, plain(count as u64));
    let buffer = parts.option(OptionId::BUFFER);
    finds(&parts.with(buffer, &[1]), Rule::BufferOption, plain(buffer as u64));
    finds(&parts.with(buffer + 8, b"n\0"), Rule::TopBuffer, plain(0));
    // Offset, name, clock, page size, count; then CPU, offset, size of each.
    let first = buffer + 8 + 1 + 5 + 4 + 4;
    assert_eq!(parts.bytes[first..first + 4], [0; 4]);
    finds(&parts.with(first, &[1]), Rule::CpuTwice, plain(buffer as u64));
    let data = parts.data(0) as u64;
    finds(&parts.with(first + 4, &(data + 8).to_le_bytes()), Rule::Alignment, plain(buffer as u64));
    for offset in [data - 4096, data + 4096, 1 << 40] {
        finds(&parts.with(first + 4, &offset.to_le_bytes()), Rule::Extent, plain(buffer as u64));
    }
    finds(&parts.with(buffer + 14, &8192u32.to_le_bytes()), Rule::PageSize, plain(buffer as u64));
    let stat = parts.option(OptionId::CPUSTAT);
    let entries = parts.bytes[stat..].windows(2).position(|pair| pair == b"77").unwrap();
    // Statistics without `read events` say nothing; the ones of the writer's test have none. The checksums
    // tell.
    let options = parts.reader.sections().iter().filter(|section| section.id == SectionId::OPTIONS);
    let first = options.map(|section| section.offset).min().unwrap();
    assert_eq!(faults(&parts.with(stat + entries, b"78")), [(Rule::Checksum, plain(first))]);
    let checksums = parts.option(OptionId::CHECKSUMS);
    finds(&parts.with(checksums + 4, b"x"), Rule::ChecksumOption, plain(checksums as u64));
}

#[test]
fn counts_that_contradict_the_data() {
    let scratch = Scratch::new();
    let count = |stored: u64, read: u64| {
        let name = format!("{stored}-{read}");
        let mut writer = scratch.writer(&name, setup(Compression::default()));
        let ledger = format!("{{\"cpus\":[{{\"cpu\":1,\"stored\":{stored}}}]}}\0").into_bytes();
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger }).unwrap();
        let stat = format!("CPU: 0\nentries: 1\nread events: {read}\n");
        writer.option(&FileOption::CpuStat(stat)).unwrap();
        let top = tracedat::Buffer { name: "", clock: "mono", page_size: 4096 };
        let mut top = writer.begin_buffer(top).unwrap();
        for (cpu, pages) in cpus() {
            top.write_cpu(cpu, pages.as_slice()).unwrap();
        }
        top.finish().unwrap();
        writer.finish().unwrap();
        let report = checked(&fs::read(scratch.path(&name)).unwrap());
        report.totals.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>()
    };
    assert_eq!(count(400, 399), []);
    assert_eq!(count(401, 399), [Rule::LedgerCount]);
    assert_eq!(count(400, 400), [Rule::CpuStatCount]);
}

#[test]
fn damaged_metadata() {
    let parts = Parts::new(Compression::None);
    let bytes = &parts.bytes;
    let find = |text: &str| bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    let info = parts.section(SectionId::HEADER_INFO) as u64 + 16;
    finds(&parts.with(find("timestamp"), b"T"), Rule::HeaderPage, plain(info));
    finds(&parts.with(info as usize, b"H"), Rule::SectionContent, plain(info));
    let formats = parts.section(SectionId::EVENT_FORMATS) + 16;
    finds(&parts.with(formats, &[9]), Rule::SectionContent, {
        // Two systems are there, behind which the rest is looked for.
        plain(parts.section(SectionId::KALLSYMS) as u64)
    });
    finds(&parts.with(formats, &[1]), Rule::SectionContent, plain(find("demo\0") as u64));
    let tick = find("name: tick");
    finds(&parts.with(tick, b"nome"), Rule::Format, plain(tick as u64));
    let id = find("ID: 20000");
    finds(&parts.with(id, b"ID: 90000"), Rule::EventId, plain(tick as u64));
    finds(&parts.with(id, b"ID: 00372"), Rule::EventId, plain(tick as u64));
    let own = tick + bytes[tick..].windows(11).position(|window| window == b"common_pid;").unwrap();
    finds(&parts.with(own + 7, b"PID"), Rule::CommonFields, plain(tick as u64));
    let names = find("42 worker\n");
    finds(&parts.with(names, b"x"), Rule::Names, plain(names as u64));
    finds(&parts.with(names, b"43"), Rule::Names, plain(names as u64 + 10));
    let symbol = find("ffffffff81000100 T");
    finds(&parts.with(symbol, b"g"), Rule::Names, plain(symbol as u64));

    let parts = Parts::new(Compression::default());
    let kallsyms = parts.section(SectionId::KALLSYMS);
    finds(&parts.with(kallsyms + 16, &[1]), Rule::Block, plain(kallsyms as u64 + 16));
    finds(&parts.with(kallsyms + 20, &[1]), Rule::Decompress, plain(kallsyms as u64 + 24));
    finds(&parts.with(kallsyms + 24, &[0]), Rule::Decompress, plain(kallsyms as u64 + 24));
}

#[test]
fn damaged_pages() {
    let parts = Parts::new(Compression::None);
    let data = parts.data(1);
    let second = data + 4096;
    finds(&parts.with(second + 8, &5000u32.to_le_bytes()), Rule::PageCommit, plain(second as u64 + 8));
    finds(
        &parts.with(second + 8, &[parts.bytes[second + 8] + 1]),
        Rule::PageCommit,
        plain(second as u64 + 8),
    );
    finds(&parts.with(second + 11, &[0x40]), Rule::PageFlags, plain(second as u64 + 8));
    finds(&parts.with(second + 15, &[1]), Rule::PageFlags, plain(second as u64 + 8));
    finds(&parts.with(second, &[0; 8]), Rule::Time, plain(second as u64 + 16));
    // An event that is longer than the page, one that is empty, one that nobody knows.
    let header = u32::from_le_bytes(parts.bytes[second + 16..][..4].try_into().unwrap());
    let lengthy = [(header & !0x1f).to_le_bytes(), 5000u32.to_le_bytes()].concat();
    finds(&parts.with(second + 16, &lengthy), Rule::EventLength, plain(second as u64 + 16));
    finds(&parts.with(second + 20, &7u16.to_le_bytes()), Rule::UnknownEvent, plain(second as u64 + 20));
    let first = |id: u16| {
        data + parts.bytes[data..]
            .windows(8)
            .position(|it| it[..4] == u32::from(id).to_le_bytes() && it[5..] == [0; 3])
            .unwrap()
    };
    // A record that is short for the event that it is said to be of now.
    let tick = first(crate::common::TICK);
    finds(&parts.with(tick, &crate::common::SWITCH.to_le_bytes()), Rule::RecordShort, plain(tick as u64));
    // A word of offset and length.
    let word = first(crate::common::TEXT) + 16;
    finds(&parts.with(word + 2, &[0xff, 1]), Rule::Dynamic, plain(word as u64));

    let parts = Parts::new(Compression::default());
    let data = parts.data(1);
    finds(&parts.with(data, &[200]), Rule::Chunk, {
        let packed = u32::from_le_bytes(parts.bytes[data + 4..][..4].try_into().unwrap());
        plain((data + 12) as u64 + u64::from(packed))
    });
    finds(&parts.with(data + 4, &[parts.bytes[data + 4] - 1]), Rule::Chunk, plain(data as u64));
    finds(&parts.with(data + 8, &[1]), Rule::Chunk, plain(data as u64 + 4));
    finds(&parts.with(data + 12, &[0; 8]), Rule::Decompress, plain(data as u64 + 12));
    // Places on compressed pages count from the start of their chunk.
    let scratch = Scratch::new();
    let mut damaged = cpus();
    damaged[0].1[4096 + 20..][..2].copy_from_slice(&[7, 0]);
    let bytes = fs::read(scratch.file("t", setup(Compression::default()), &damaged)).unwrap();
    let data = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0].offset;
    assert_eq!(faults(&bytes), [(Rule::UnknownEvent, At { offset: data + 12, inside: Some(4096 + 20) })]);
}

#[test]
fn losses_that_readers_do_not_see() {
    let tick = crate::common::tick_format();
    let empty = page(Endian::Little, 8, 100, Some(3), &[]);
    let full = page(Endian::Little, 8, 200, None, &[(0, 1)]);
    let found = |pages: &[&Vec<u8>]| {
        let pages = pages.iter().copied().cloned().collect::<Vec<_>>().concat();
        let bytes = version_6(Endian::Little, 8, &[("demo", &[&tick])], &[pages]);
        let data = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0].offset;
        let found = faults(&bytes).into_iter().filter(|(rule, _)| *rule != Rule::UnknownEvent);
        let found = found.map(|(rule, at)| (rule, (at.offset - data) / 4096));
        found.collect::<Vec<_>>()
    };
    // Behind the last event of the CPU there is no other place.
    assert_eq!(found(&[&empty]), [(Rule::LossBehind, 0)]);
    assert_eq!(found(&[&full, &empty]), [(Rule::LossBehind, 1)]);
    assert_eq!(found(&[&empty, &full]), [(Rule::MissedMark, 0)]);
    assert_eq!(
        found(&[&empty, &empty, &full, &empty]),
        [0, 1]
            .map(|page| (Rule::MissedMark, page))
            .into_iter()
            .chain([(Rule::LossBehind, 3)])
            .collect::<Vec<_>>()
    );
}

#[test]
fn faults_are_counted_beyond_those_that_are_told() {
    let scratch = Scratch::new();
    let records = (0..500u64).map(|n| (n, vec![7, 0, 0, 0, 0, 0, 0, 0]));
    let bytes =
        fs::read(scratch.file("t", setup(Compression::default()), &[(0, pages(4096, records))])).unwrap();
    let report = checked(&bytes);
    assert_eq!(report.totals, [(Rule::UnknownEvent, 500)]);
    assert_eq!(report.faults.len() as u64, tracedat::check::KEPT_PER_RULE);
    assert_eq!(report.count(Severity::Error), 500);
}

#[test]
fn an_option_that_is_there_twice() {
    let scratch = Scratch::new();
    let mut writer = scratch.writer("t", setup(Compression::None));
    // The same as before, which contradicts nothing.
    writer.option(&FileOption::TraceId(0x1234_5678_9abc_def0)).unwrap();
    writer.option(&FileOption::TraceId(5)).unwrap();
    writer.finish().unwrap();
    let bytes = fs::read(scratch.path("t")).unwrap();
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let five = OptionValue::Fact(FileOption::TraceId(5));
    let at = reader.options().iter().find(|option| option.value == five).unwrap().offset;
    assert_eq!(faults(&bytes), [(Rule::OptionTwice, plain(at))]);
}
