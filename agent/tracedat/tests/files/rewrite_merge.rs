//! Several files as one: parts become the whole again, recordings of different machines stay apart in it.

use std::fs::{self, File};
use std::io::Cursor;

use crate::common::{Scratch, report, squeezed, str, trace_cmd};
use crate::reader_files::{Chance, forwards};
use crate::rewrite_files::{Contents, KEEP, V6, contents, facts, random_file, same_head, stock_traces};
use ftrace_event::{Cmdlines, Endian};
use tracedat::option::{Guest, GuestCpu, TimeShift, TimeShiftSample};
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::{Reader, Source};
use tracedat::rewrite::{
    Every, Join, MergeInput, MergeOptions, RewriteError, Rewritten, Selection, Split, Splitter, Target, merge,
};
use tracedat::{Buffer, Compression, EventSystem, FileOption, Section, Setup, Writer, layout};

fn merged<S: Source>(
    files: &[(&str, &Reader<S>)],
    target: Target,
    options: MergeOptions,
) -> Result<(Vec<u8>, Rewritten), RewriteError> {
    let input = |(name, reader): &(&str, _)| MergeInput { name: (*name).to_owned(), reader: *reader };
    let inputs: Vec<_> = files.iter().map(input).collect();
    let (out, written) = merge(&inputs, &target, options, Cursor::new(Vec::new()), &mut |_| true)?;
    Ok((out.into_inner(), written))
}

fn parts<S: Source>(reader: &Reader<S>, split: Split) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(reader, KEEP, &Selection::default(), split).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = splitter.next_part().unwrap() {
        parts.push(splitter.write(&part, Cursor::new(Vec::new()), &mut |_| true).unwrap().0.into_inner());
    }
    parts
}

/// Without the CPUs that have no records, and clocks, which nothing tells of an empty buffer.
fn filled(contents: Contents) -> Contents {
    let keep = |(name, clock, mut cpus): (_, _, Vec<(u32, Vec<_>)>)| {
        cpus.retain(|(_, records)| !records.is_empty());
        (name, clock, cpus)
    };
    contents.into_iter().map(keep).filter(|(_, _, cpus)| !cpus.is_empty()).collect()
}

#[test]
fn parts_become_the_whole_again() {
    for seed in [1, 2, 3, 4, 6, 7] {
        let bytes = random_file(&mut Chance::new(seed), Compression::default());
        let reader = Reader::open(bytes.as_slice()).unwrap();
        if reader.buffers().iter().filter(|buffer| buffer.name == "one").count() > 1 {
            continue;
        }
        let expected = filled(contents(&mut Reader::open(bytes.as_slice()).unwrap()));
        for every in [Every::Events(111), Every::Nanos(1 << 35), Every::Pages(2)] {
            let mut files = parts(&reader, Split { every: Some(every), ..Split::default() });
            // Their order does not matter.
            files.reverse();
            let readers: Vec<_> = files.iter().map(|file| Reader::open(file.as_slice()).unwrap()).collect();
            let named: Vec<_> = readers.iter().map(|reader| ("part", reader)).collect();
            if named.is_empty() {
                continue;
            }
            let (file, written) = merged(&named, KEEP, MergeOptions::default()).unwrap();
            let mut whole = Reader::open(file.as_slice()).unwrap();
            same_head(&reader, &whole);
            assert!(filled(contents(&mut whole)) == expected, "seed {seed}, {every:?}");
            assert!(written.notes.is_empty(), "{:?}", written.notes);
        }
    }
}

#[test]
fn records_between_each_others_are_merged_by_time() {
    let file = |times: &[u64], missed: Option<u64>| {
        let mut writer = host(&[("demo", &[&event("x", 9)])], &[(1, "init")], None, 0);
        let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
        if let Some(missed) = missed {
            builder.missed(missed);
        }
        for time in times {
            assert_eq!(builder.push(*time, &[9, 0, 0, 0, *time as u8, 0, 0, 0]), Ok(Push::Stored));
        }
        one_cpu(&mut writer, builder.finish().unwrap());
        Reader::open(writer.finish().unwrap().into_inner()).unwrap()
    };
    let (a, b) = (file(&[10, 30, 50], None), file(&[20, 40, 60], Some(5)));
    let options = MergeOptions { join: Join::All, ..MergeOptions::default() };
    let (file, _) = merged(&[("a", &a), ("b", &b)], KEEP, options).unwrap();
    let found = contents(&mut Reader::open(file).unwrap());
    let times: Vec<_> = found[0].2[0].1.iter().map(|record| (record.timestamp, record.missed)).collect();
    assert_eq!(times, [(10, None), (20, Some(5)), (30, None), (40, None), (50, None), (60, None)]);
}

fn event(name: &str, id: u16) -> String {
    format!(
        "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         \tfield:u32 value;\toffset:8;\tsize:4;\tsigned:0;\n\nprint fmt: \"{name}=%u\", REC->value\n"
    )
}

/// A file of one machine, without data.
fn host(
    systems: &[(&str, &[&str])],
    tasks: &[(u32, &str)],
    offset: Option<i64>,
    kallsyms: u64,
) -> Writer<Cursor<Vec<u8>>> {
    let setup = Setup::default();
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    let header_page = layout::header_page_text(setup.page_size);
    writer.section(Section::header_info(setup.endian, &header_page, "").unwrap()).unwrap();
    let systems: Vec<_> = systems.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(setup.endian, &systems).unwrap()).unwrap();
    if kallsyms != 0 {
        let text = format!("{kallsyms:x} T first\n{:x} T last\n", kallsyms + 0x1000);
        writer.section(Section::kallsyms(setup.endian, text.as_bytes()).unwrap()).unwrap();
    }
    let tasks: Cmdlines = tasks.iter().copied().collect();
    writer.section(Section::cmdlines(setup.endian, &tasks)).unwrap();
    writer.option(&FileOption::TraceClock("[mono]".to_owned())).unwrap();
    writer.option(&FileOption::Uname(format!("Linux {kallsyms:x}"))).unwrap();
    writer.option(&FileOption::CpuStat("CPU: 0\nentries: 1\n".to_owned())).unwrap();
    if let Some(nanos) = offset {
        writer.option(&FileOption::Offset { nanos }).unwrap();
    }
    writer
}

fn one_cpu(writer: &mut Writer<Cursor<Vec<u8>>>, pages: &[u8]) {
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, pages).unwrap();
    top.finish().unwrap();
}

/// A record of an event by number, of a task.
fn record(id: u16, pid: u32, value: u32) -> Vec<u8> {
    let mut record = u32::from(id).to_le_bytes().to_vec();
    record.extend_from_slice(&pid.to_le_bytes());
    record.extend_from_slice(&value.to_le_bytes());
    record
}

fn with(writer: Writer<Cursor<Vec<u8>>>, records: &[(u64, Vec<u8>)]) -> Reader<Vec<u8>> {
    Reader::open(finished(writer, records)).unwrap()
}

fn finished(mut writer: Writer<Cursor<Vec<u8>>>, records: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    for (time, record) in records {
        assert_eq!(builder.push(*time, record), Ok(Push::Stored));
    }
    one_cpu(&mut writer, builder.finish().unwrap());
    writer.finish().unwrap().into_inner()
}

#[test]
fn two_hosts_keep_their_events_names_and_times() {
    let (x, y, other) = (event("x", 300), event("y", 301), event("other", 300));
    // In the second kernel, number 300 is another event, and x has 302.
    let moved = event("x", 302);
    let web = with(
        host(&[("demo", &[&x, &y])], &[(1, "init"), (7, "nginx")], Some(1000), 0xffff_ffff_8100_0000),
        &[(5_000_000_000, record(300, 7, 1)), (5_000_002_000, record(301, 1, 2))],
    );
    let db = with(
        host(
            &[("demo", &[&moved]), ("more", &[&other])],
            &[(1, "init"), (7, "postgres")],
            Some(2000),
            0xffff_ffff_a000_0000,
        ),
        &[
            (5_000_000_500, record(302, 7, 3)),
            (5_000_000_600, record(300, 1, 4)),
            (5_000_000_700, record(9999, 1, 5)),
        ],
    );
    let (file, written) = merged(&[("web", &web), ("db", &db)], KEEP, MergeOptions::default()).unwrap();
    assert!(
        written.notes.iter().any(|note| note.starts_with("1 events got new numbers")),
        "{:?}",
        written.notes
    );
    assert!(written.notes.iter().any(|note| note.starts_with("1 pids have")), "{:?}", written.notes);
    let scratch = Scratch::new();
    let path = scratch.path("m.dat");
    fs::write(&path, &file).unwrap();
    let lines = squeezed(&path, &["-t"]);
    let lines: Vec<_> = lines.iter().filter(|line| !line.contains("is empty")).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let expected = [
        "web: nginx|postgres-7 [000] 5.000001000: x: x=1",
        "db: nginx|postgres-7 [000] 5.000002500: x: x=3",
        "db: init-1 [000] 5.000002600: other: other=4",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(*line, expected);
    }
    assert_eq!(lines[4], "web: init-1 [000] 5.000003000: y: y=2");
    let reader = Reader::open(file.as_slice()).unwrap();
    let symbols = reader.kallsyms().unwrap();
    assert_eq!(symbols.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 4);
    // What no format describes is not taken for something that is.
    let unknown = forwards(&mut reader.records().unwrap())[3].data.clone();
    let id = u16::from_le_bytes([unknown[0], unknown[1]]);
    assert!(reader.metadata().event(id).is_none());
    assert!(trace_cmd(&["report", "-i", str(&path), "--stat"]).contains("Buffer: web"));
    // The same in the form of old.
    let (old, _) = merged(&[("web", &web), ("db", &db)], V6, MergeOptions::default()).unwrap();
    fs::write(&path, &old).unwrap();
    assert_eq!(squeezed(&path, &["-t"]).iter().filter(|line| line.contains("-7 [000]")).count(), 2);
}

/// A guest's clock becomes its host's by samples (TIME_SHIFT), and the ticks of both become nanoseconds
/// (TSC2NSEC), the host's by other numbers than the guest's.
#[test]
fn a_guest_and_its_host_are_on_one_line_of_time() {
    const SCALE: u64 = 1 << 20;
    let x = event("x", 300);
    let machine = |id: u64, facts: &[FileOption], ticks: &[u64]| {
        let mut writer = host(&[("demo", &[&x])], &[], None, 0);
        writer.option(&FileOption::TraceClock("local [x86-tsc]".to_owned())).unwrap();
        writer.option(&FileOption::TraceId(id)).unwrap();
        for fact in facts {
            writer.option(fact).unwrap();
        }
        let records: Vec<_> =
            ticks.iter().map(|ticks| (*ticks, record(300, 1, *ticks as u32 % 1000))).collect();
        finished(writer, &records)
    };
    let sample = |time, offset| TimeShiftSample { time, offset, scaling: SCALE, fraction: 20 };
    let samples = vec![sample(1_000_000, 7_000_000), sample(9_000_000, 7_000_400)];
    let peer = Guest { name: "guest".into(), trace_id: 22, cpus: vec![GuestCpu { cpu: 0, pid: 4242 }] };
    let hosts = machine(
        11,
        &[FileOption::Guest(peer), FileOption::Tsc2Nsec { mult: 3 << 10, shift: 11, offset: 0 }],
        &[8_000_000, 12_000_100, 17_000_000],
    );
    let guests = machine(
        22,
        &[
            FileOption::TimeShift(TimeShift { peer: 11, flags: 1, cpus: vec![samples] }),
            FileOption::Tsc2Nsec { mult: 3 << 10, shift: 11, offset: 0 },
        ],
        &[1_500_000, 5_000_000, 9_500_000],
    );
    let scratch = Scratch::new();
    let (host_path, guest_path, path) = (scratch.path("h.dat"), scratch.path("g.dat"), scratch.path("m.dat"));
    fs::write(&host_path, &hosts).unwrap();
    fs::write(&guest_path, &guests).unwrap();
    let (hosts, guests) = (Reader::open(hosts).unwrap(), Reader::open(guests).unwrap());
    let (file, written) = merged(&[("h", &hosts), ("g", &guests)], KEEP, MergeOptions::default()).unwrap();
    assert!(written.notes.iter().any(|note| note.starts_with("times are stored corrected")), "{written:?}");
    fs::write(&path, &file).unwrap();
    // Stock trace-cmd corrects the times of a guest if it has its host's file beside it.
    let times = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(" x: "));
        lines
            .map(|line| {
                line.split_whitespace()
                    .find(|word| word.ends_with(':') && word.starts_with(|c: char| c.is_ascii_digit()))
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let beside = trace_cmd(&["report", "-t", "-i", str(&host_path), "-i", str(&guest_path)]);
    let found = times(&trace_cmd(&["report", "-t", "-i", str(&path)]));
    assert_eq!((found.len(), &found), (6, &times(&beside)), "{beside}");
    let host_time = |ticks: u64| ticks * 3 / 2;
    let all = forwards(&mut Reader::open(file).unwrap().records().unwrap());
    let all: Vec<_> = all.iter().map(|record| record.timestamp).collect();
    let guest_times = [(1_500_000, 25), (5_000_000, 200), (9_500_000, 425)];
    let guest_times = guest_times.map(|(ticks, drift)| host_time(ticks + 7_000_000 + drift));
    let mut expected = [8_000_000, 12_000_100, 17_000_000].map(host_time).to_vec();
    expected.extend(guest_times);
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn what_cannot_be_one() {
    let x = event("x", 300);
    let plain = || with(host(&[("demo", &[&x])], &[], None, 0), &[(5, record(300, 7, 1))]);
    let strange = x.replace("common_preempt_count;\toffset:3", "common_other;\toffset:3");
    let strange = with(host(&[("demo", &[&strange])], &[], None, 0), &[(5, record(300, 7, 1))]);
    let error = |files: &[(&str, &Reader<Vec<u8>>)]| {
        merged(files, KEEP, MergeOptions::default()).map(drop).unwrap_err().to_string()
    };
    assert!(error(&[("a", &plain()), ("b", &strange)]).contains("same fields"));
    assert!(matches!(merged::<Vec<u8>>(&[], KEEP, MergeOptions::default()), Err(RewriteError::Nothing(_))));
    let bytes = crate::reader_files::version_6(Endian::Big, 8, &[], &[]);
    assert!(error(&[("a", &plain()), ("b", &Reader::open(bytes).unwrap())]).contains("byte order"));
    let mut writer = host(&[("demo", &[&x])], &[], None, 0);
    writer.option(&FileOption::TraceClock("[local]".to_owned())).unwrap();
    // Two symbols tables at the same place are none; another clock is refused, unless it is wanted.
    let local = {
        let text = "global [local]".to_owned();
        let mut writer = Writer::create(Cursor::new(Vec::new()), Setup::default()).unwrap();
        let header_page = layout::header_page_text(4096);
        writer.section(Section::header_info(Endian::Little, &header_page, "").unwrap()).unwrap();
        writer.section(Section::kallsyms(Endian::Little, b"ffffffff81000010 T here\n").unwrap()).unwrap();
        writer.option(&FileOption::TraceClock(text)).unwrap();
        Reader::open(writer.finish().unwrap().into_inner()).unwrap()
    };
    let other = with(host(&[("demo", &[&x])], &[], None, 0xffff_ffff_8100_0000), &[(5, record(300, 7, 1))]);
    let refused = error(&[("a", &other), ("b", &local)]);
    assert!(
        refused.contains("clock mono, b of clock local") && refused.contains("--mixed-clocks"),
        "{refused}"
    );
    let options = MergeOptions { mixed_clocks: true, ..MergeOptions::default() };
    let (file, written) = merged(&[("a", &other), ("b", &local)], KEEP, options).unwrap();
    assert!(written.notes.iter().any(|note| note.starts_with("no kernel symbols")), "{:?}", written.notes);
    assert!(Reader::open(file).unwrap().kallsyms().unwrap().is_empty());
}

#[test]
fn stock_recordings_side_by_side() {
    let scratch = Scratch::new();
    let traces = stock_traces(&scratch.path(""));
    // Of the same kernel, but in different boots, with one clock; the largest is left out for its time.
    let chosen: Vec<_> = traces
        .iter()
        .filter(|path| {
            !str(path).contains("lost") && !str(path).contains("mono") && !str(path).contains("v6")
        })
        .collect();
    let readers: Vec<_> =
        chosen.iter().map(|path| Reader::open(File::open(path).unwrap()).unwrap()).collect();
    let names: Vec<_> =
        chosen.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let named: Vec<_> = names.iter().map(String::as_str).zip(&readers).collect();
    let (file, written) = merged(&named, KEEP, MergeOptions::default()).unwrap();
    let path = scratch.path("merged.dat");
    fs::write(&path, &file).unwrap();
    let lines = |path: &std::path::Path| {
        let all = report(path, &["-t", "-R", "-N"]);
        all.into_iter().filter(|line| !line.ends_with("is empty")).collect::<Vec<_>>()
    };
    let all = lines(&path);
    let expected: usize = chosen.iter().map(|path| lines(path).len()).sum();
    assert_eq!((all.len(), written.events()), (expected, expected as u64));
    let merged = Reader::open(file).unwrap();
    assert_eq!(
        merged.buffers().len(),
        readers.iter().map(|reader| reader.buffers().len()).sum::<usize>() + 1
    );
    assert!(facts(&merged).iter().any(|fact| matches!(fact, FileOption::Uname(_))));
    // Every event is what it was, in its own buffer.
    for ((name, _), path) in named.iter().zip(&chosen) {
        let mine = all.iter().filter(|line| {
            let buffer = line.trim_start().split(':').next().unwrap_or_default();
            buffer == *name || buffer.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
        });
        assert_eq!(mine.count(), lines(path).len(), "{name}");
    }
}
