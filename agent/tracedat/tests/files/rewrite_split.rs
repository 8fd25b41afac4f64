//! The parts of a file are the file, whatever it is cut by.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Cursor, Seek, SeekFrom, Write};

use crate::common::{Scratch, report};
use crate::reader_files::{Chance, Kept, forwards};
use crate::rewrite_files::{Contents, KEEP, contents, random_file, same_head, stock_traces};
use tracedat::reader::{Reader, Source};
use tracedat::rewrite::{Every, RewriteError, Selection, Split, Splitter, TimeRange};
use tracedat::{Compression, SectionId};

fn parts<S: Source>(reader: &Reader<S>, split: Split) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(reader, KEEP, &Selection::default(), split).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = splitter.next_part().unwrap() {
        let (out, _) = splitter.write(&part, Cursor::new(Vec::new()), &mut |_| true).unwrap();
        parts.push(out.into_inner());
        assert!(parts.len() < 5000);
    }
    parts
}

/// The records of a buffer's CPU in all files, one behind the other.
fn joined(files: &[Contents]) -> BTreeMap<(String, u32), Vec<Kept>> {
    let mut all: BTreeMap<_, Vec<Kept>> = BTreeMap::new();
    for (name, _, cpus) in files.iter().flatten() {
        for (cpu, records) in cpus {
            all.entry((name.clone(), *cpu)).or_default().extend(records.iter().cloned());
        }
    }
    all.retain(|_, records| !records.is_empty());
    all
}

fn every(what: Every, per_cpu: bool) -> Split {
    Split { every: Some(what), per_cpu, ..Split::default() }
}

#[test]
fn parts_of_random_files_are_the_whole() {
    for seed in 0..12 {
        let chance = &mut Chance::new(seed);
        let bytes = random_file(chance, chance_of(seed));
        let mut reader = Reader::open(bytes.as_slice()).unwrap();
        let mut whole = Reader::open(bytes.as_slice()).unwrap();
        // A named buffer may come in parts, which are parts of each part, too.
        let repeated = whole.buffers().iter().filter(|buffer| buffer.name == "one").count() > 1;
        let expected = contents(&mut whole);
        let events: usize = expected.iter().flat_map(|it| &it.2).map(|(_, records)| records.len()).sum();
        let span = reader.records().unwrap().next_record().unwrap().map_or(0, |record| record.timestamp);
        reader.set_corrections(tracedat::reader::Corrections::ALL);
        for split in [
            Split::default(),
            every(Every::Events(97), false),
            every(Every::Events(50), true),
            every(Every::Nanos(1 << 34), false),
            every(Every::Nanos(1 << 34), true),
            every(Every::Pages(1), false),
            every(Every::Pages(3), false),
            every(Every::Bytes(20_000), false),
        ] {
            let files = parts(&reader, split);
            let context = format!("seed {seed}, {split:?}, first at {span}");
            let mut read = Vec::new();
            for (number, file) in files.iter().enumerate() {
                let mut part = Reader::open(file.as_slice()).unwrap();
                same_head(&reader, &part);
                let found = contents(&mut part);
                let count: usize = found.iter().flat_map(|it| &it.2).map(|(_, records)| records.len()).sum();
                assert!(count > 0, "{context}");
                match split.every {
                    Some(Every::Events(97)) if number + 1 < files.len() => assert_eq!(count, 97, "{context}"),
                    // As long as it is not a single page.
                    Some(Every::Bytes(bytes)) if count > 400 => {
                        assert!(file.len() as u64 <= bytes + 8192, "{context}: {}", file.len());
                    }
                    _ => {}
                }
                read.push(found);
            }
            let (found, expected) = (joined(&read), joined(std::slice::from_ref(&expected)));
            if repeated {
                // The order of the parts of a buffer is that of the file within each part.
                let count = |all: &BTreeMap<_, Vec<Kept>>| all.values().map(Vec::len).sum::<usize>();
                assert_eq!((count(&found), count(&expected)), (events, events), "{context}");
            } else {
                assert!(found == expected, "{context}");
            }
        }
    }
}

fn chance_of(seed: u64) -> Compression {
    if seed.is_multiple_of(2) { Compression::None } else { Compression::default() }
}

#[test]
fn a_range_of_time_has_both_its_ends() {
    let bytes = random_file(&mut Chance::new(4), Compression::default());
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let all = forwards(&mut reader.records().unwrap());
    let (start, end) = (all[all.len() / 3].timestamp, all[all.len() / 2].timestamp);
    for (start, end) in
        [(Some(start), Some(end)), (None, Some(end)), (Some(start), None), (Some(end), Some(end))]
    {
        let split = Split { range: TimeRange { start, end }, ..Split::default() };
        let files = parts(&reader, split);
        let part = Reader::open(files[0].as_slice()).unwrap();
        let found: Vec<_> =
            forwards(&mut part.records().unwrap()).iter().map(|record| record.timestamp).collect();
        let expected: Vec<_> = all.iter().map(|record| record.timestamp).collect();
        let within =
            |time: &u64| start.is_none_or(|start| *time >= start) && end.is_none_or(|end| *time <= end);
        assert_eq!(found, expected.into_iter().filter(within).collect::<Vec<_>>());
    }
    let nothing = TimeRange { start: Some(u64::MAX - 1), end: None };
    assert!(parts(&reader, Split { range: nothing, ..Split::default() }).is_empty());
}

/// An output that notes what it is given at once.
struct Calls {
    out: Cursor<Vec<u8>>,
    sizes: Vec<usize>,
}

impl Write for Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sizes.push(bytes.len());
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for Calls {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

/// What stands before the data is made once, and not for each part.
#[test]
fn every_part_begins_with_one_copy_of_the_metadata() {
    let bytes = random_file(&mut Chance::new(4), Compression::default());
    let reader = Reader::open(bytes.as_slice()).unwrap();
    for target in [KEEP, crate::rewrite_files::V6] {
        let split = every(Every::Events(50), false);
        let mut splitter = Splitter::new(&reader, target, &Selection::default(), split).unwrap();
        let mut beginning: Option<Vec<u8>> = None;
        let mut parts = 0;
        while let Some(part) = splitter.next_part().unwrap() {
            let calls = Calls { out: Cursor::new(Vec::new()), sizes: Vec::new() };
            let (calls, _) = splitter.write(&part, calls, &mut |_| true).unwrap();
            let file = calls.out.into_inner();
            let written = Reader::open(file.as_slice()).unwrap();
            let first = calls.sizes[0];
            let data = written.buffers().iter().flat_map(|buffer| &buffer.cpus).map(|cpu| cpu.offset);
            // Behind the sections, the first buffer has a header and a list of CPUs before its data.
            assert!(first as u64 <= data.min().unwrap());
            let mut last = written.sections().iter().filter(|section| section.id == SectionId::CMDLINES);
            assert!(last.next_back().is_none_or(|section| section.offset < first as u64), "{target:?}");
            // All but the place of what comes later is the same.
            let same = |one: &[u8], other: &[u8]| one.iter().zip(other).filter(|(a, b)| a != b).count() <= 64;
            let before = beginning.get_or_insert_with(|| file[..first].to_vec());
            assert!(before.len() == first && same(before, &file), "{target:?}");
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
    }
}

#[test]
fn what_cannot_be() {
    let bytes = random_file(&mut Chance::new(4), Compression::default());
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let new = |split| Splitter::new(&reader, KEEP, &Selection::default(), split);
    for nothing in [Every::Events(0), Every::Nanos(0), Every::Pages(0), Every::Bytes(0)] {
        assert!(matches!(new(every(nothing, false)), Err(RewriteError::Nothing(_))));
    }
    let error = new(every(Every::Bytes(100), false)).unwrap().next_part().unwrap_err();
    assert!(error.to_string().contains("alone take"), "{error}");
}

#[test]
fn stock_trace_cmd_reads_the_parts() {
    let scratch = Scratch::new();
    for path in stock_traces(&scratch.path("")) {
        let reader = Reader::open(File::open(&path).unwrap()).unwrap();
        let text = report(&path, &["-t", "-R"]);
        let per_part = text.len() as u64 / 3;
        let mut lines = Vec::new();
        for bytes in parts(&reader, every(Every::Events(per_part), false)) {
            let part = scratch.path("part.dat");
            fs::write(&part, bytes).unwrap();
            lines.extend(report(&part, &["-t", "-R"]));
        }
        // Lines of one time may come in another order, and what is printed of a loss is told where the record
        // behind it is.
        let mut expected = text;
        expected.sort();
        lines.sort();
        // Stock readers say of a CPU without events that it is empty.
        lines.retain(|line| !line.ends_with("is empty"));
        expected.retain(|line| !line.ends_with("is empty"));
        assert!(lines == expected, "{}: {} and {} lines", path.display(), lines.len(), expected.len());
    }
}
