//! Of damaged files everything is saved that can be, and stock trace-cmd reads it; what is lost is told.

use std::fs::{self, File};

use crate::common::{Scratch, pages, report, str, switch, text, tick};
use crate::reader_files::Kept;
use crate::rewrite_files::{contents, repaired, stock, stock_traces};
use tracedat::check::{Rule, Severity, check};
use tracedat::layout::header_page_text;
use tracedat::reader::Reader;
use tracedat::{Compression, Setup};

/// Small files of both compressions, and of version 6.
fn small_files(scratch: &Scratch) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    for (name, compression) in [("none", Compression::None), ("zstd", Compression::zstd(1))] {
        let setup = Setup { compression, ..Setup::default() };
        let records = |cpu: u32| {
            (0..900u32).map(move |n| {
                let time = 1_000_000_000 + u64::from(n * 3 + cpu) * 90_000;
                let record = match n % 3 {
                    0 => tick(42, n, 16 + n as usize % 50 * 4),
                    1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                    _ => switch(("worker", 42), ("idle", 0)),
                };
                (time, record)
            })
        };
        let cpus: Vec<_> = (0..2).map(|cpu| (cpu, pages(4096, records(cpu)))).collect();
        files.push((name, fs::read(scratch.file(name, setup, &cpus)).unwrap()));
    }
    let six = crate::rewrite_files::converted(
        &Reader::open(files[0].1.as_slice()).unwrap(),
        crate::rewrite_files::V6,
    )
    .0;
    files.push(("six", six));
    files
}

/// Every record without its place and without marks of loss, which damage adds.
fn records(bytes: &[u8]) -> Vec<Kept> {
    let contents = contents(&mut Reader::open(bytes).unwrap());
    let all = contents.into_iter().flat_map(|(_, _, cpus)| cpus).flat_map(|(_, records)| records);
    let mut all: Vec<_> = all.map(|record| Kept { cpu: 0, missed: None, ..record }).collect();
    all.sort_by_key(|record| (record.timestamp, record.data.clone()));
    all
}

#[test]
fn files_without_damage_are_copied() {
    let scratch = Scratch::new();
    for (name, bytes) in small_files(&scratch) {
        let (file, written) = repaired(&bytes).unwrap();
        assert_eq!((written.notes.len(), written.lost.len()), (0, 0), "{name}: {written:?}");
        assert_eq!(contents(&mut Reader::open(file).unwrap()), contents(&mut Reader::open(bytes).unwrap()));
    }
}

#[test]
fn cut_files_keep_what_is_before_the_cut() {
    let scratch = Scratch::new();
    for (name, bytes) in small_files(&scratch) {
        let whole = records(&bytes);
        let reader = Reader::open(bytes.as_slice()).unwrap();
        let data = reader.buffers()[0].cpus[0].offset as usize;
        let path = scratch.path("cut.dat");
        let mut last = 0;
        for step in 0..40 {
            let len = data + 1 + (bytes.len() - data) * step / 40;
            let result = repaired(&bytes[..len]);
            // A page, or a chunk, that is whole is enough.
            let Ok((file, written)) = result else {
                assert!(len < data + 20_000, "{name} cut to {len}: {result:?}");
                continue;
            };
            let saved = records(&file);
            assert_eq!(saved.len() as u64, written.events());
            assert!(saved.iter().all(|record| {
                whole
                    .binary_search_by_key(&(record.timestamp, &record.data), |other| {
                        (other.timestamp, &other.data)
                    })
                    .is_ok()
            }));
            assert!(saved.len() >= last, "{name} cut to {len}: {} after {last}", saved.len());
            last = saved.len();
            if step % 8 == 0 {
                fs::write(&path, &file).unwrap();
                assert_eq!(stock(&path), (Some(0), saved.len()), "{name} cut to {len}");
            }
            assert!(!written.notes.is_empty() || !written.lost.is_empty(), "{name} cut to {len}");
        }
        // The last byte of the strings matters to nobody.
        assert!(last * 10 > whole.len() * 8, "{name}: {last} of {}", whole.len());
    }
}

#[test]
fn losses_are_told_where_they_are() {
    let scratch = Scratch::new();
    let files = small_files(&scratch);
    // A page whose length is wrong, in the middle.
    let mut bytes = files[0].1.clone();
    let place = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[1];
    let page = place.offset as usize + 2 * 4096;
    bytes[page + 8..page + 12].copy_from_slice(&5000u32.to_le_bytes());
    let (file, written) = repaired(&bytes).unwrap();
    let [loss] = written.lost.as_slice() else { panic!("{:?}", written.lost) };
    assert_eq!((loss.cpu, loss.pages.clone(), loss.offset, loss.bytes), (place.cpu, 2..3, page as u64, 4096));
    let marks = contents(&mut Reader::open(file).unwrap());
    let marks = marks[0].2[1].1.iter().filter(|record| record.missed == Some(0)).count();
    assert_eq!(marks, 1, "the loss is marked");
    // A chunk that cannot be decompressed.
    let mut bytes = files[1].1.clone();
    let place = Reader::open(bytes.as_slice()).unwrap().buffers()[0].cpus[0];
    bytes[place.offset as usize + 12..][..8].fill(0xa5);
    let (_, written) = repaired(&bytes).unwrap();
    let [loss] = written.lost.as_slice() else { panic!("{:?}", written.lost) };
    assert_eq!((loss.cpu, loss.pages.start, loss.offset), (0, 0, place.offset + 4));
    assert!(written.events() >= 900);
    // A link of the options that leads nowhere.
    let mut bytes = files[1].1.clone();
    let header = bytes.windows(5).position(|window| window == b"zstd\0").unwrap();
    let first = header + 5 + bytes[header + 5..].iter().position(|byte| *byte == 0).unwrap() + 1;
    bytes[first..first + 8].fill(0xee);
    let (file, written) = repaired(&bytes).unwrap();
    assert_eq!(records(&file), records(&files[1].1));
    assert!(written.lost.is_empty() && !written.notes.is_empty(), "{written:?}");
    assert!(repaired(b"nothing of this is a file").unwrap_err().contains("no trace.dat file"));
}

/// What fuzzing found.
#[test]
fn a_clock_with_a_nul_inside_ends_there() {
    let (file, written) = repaired(include_bytes!("repair_findings/nul_in_clock.dat")).unwrap();
    assert_eq!(written.events(), 8);
    assert!(written.notes.iter().any(|note| note.contains("NUL inside, where it ends now")), "{written:?}");
    assert!(Reader::open(file.as_slice()).unwrap().problems().is_empty());
}

#[test]
fn a_page_size_that_no_machine_has_is_replaced() {
    let scratch = Scratch::new();
    for (name, bytes) in small_files(&scratch) {
        let mut damaged = bytes.clone();
        // Behind the magic, the version, the byte order and the size of `long`.
        let at = 14;
        assert_eq!(damaged[at..at + 4], 4096u32.to_le_bytes(), "{name}");
        damaged[at + 3] = 8;
        let (file, written) = repaired(&damaged).unwrap();
        assert!(written.notes.iter().any(|note| note.contains("134221824 bytes")), "{name}: {written:?}");
        assert_eq!(records(&file), records(&bytes), "{name}");
    }
}

/// To stock readers such a character is the end of the text, wherever it is.
#[test]
fn a_page_layout_with_a_foreign_character_is_found_and_written_anew() {
    let scratch = Scratch::new();
    for (name, bytes) in small_files(&scratch) {
        // Where the metadata is not compressed.
        let text = b"\tfield: u64 timestamp;";
        let Some(start) = bytes.windows(text.len()).position(|window| window == text) else {
            assert_eq!(name, "zstd");
            continue;
        };
        let end = start + header_page_text(4096).len();
        let damaged = scratch.path(&format!("{name}-damaged"));
        let mut refused = 0;
        for at in (start..end).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] = 0xff;
            let found = check(&changed.as_slice(), None);
            // A file of version 6 whose layout cannot be told at all is not looked at any further.
            let is_told = |rule| rule == Rule::HeaderPage || rule == Rule::Unreadable && name == "six";
            let rule = found.faults.iter().find(|fault| is_told(fault.rule));
            assert!(rule.is_some(), "{name}, byte {}: {:?}", at - start, found.faults);
            let (file, _) = repaired(&changed).unwrap();
            let report = check(&file.as_slice(), None);
            // Its records are longer than their formats say, which is a warning.
            assert_eq!(report.count(Severity::Error), 0, "{name}, byte {}: {:?}", at - start, report.faults);
            // Stock readers are slow to start: some places will do.
            if (at - start) % 18 == 9 {
                fs::write(&damaged, &changed).unwrap();
                refused += usize::from(stock(&damaged).1 != 1800);
                fs::write(&damaged, &file).unwrap();
                assert_eq!(stock(&damaged), (Some(0), 1800), "{name}, byte {}", at - start);
                assert_eq!(records(&file), records(&bytes), "{name}, byte {}", at - start);
            }
        }
        assert!(refused > 1, "{name}: stock readers refuse {refused}");
    }
}

/// Nothing but the sizes of the parts in front tells where the data of version 6 are.
#[test]
fn version_6_keeps_its_events_whatever_is_damaged_in_front_of_them() {
    let scratch = Scratch::new();
    let files = small_files(&scratch);
    let bytes = &files[2].1;
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let whole = records(bytes);
    let formats = |reader: &Reader<&[u8]>| reader.metadata().systems.clone();
    let path = scratch.path("six.dat");
    for section in reader.sections() {
        // Names, counts and sizes, but not what follows: two bytes of a text are no damage that keeps the
        // rest from being found.
        let at = section.offset as usize;
        for (from, fill) in [(0, 0xee), (1, 0xff), (0, 0)] {
            let mut damaged = bytes.clone();
            damaged[at + from..at + 4].fill(fill);
            let what = format!("{:?} filled with {fill:#x}", section.id);
            let is_damaged = Reader::open(damaged.as_slice()).is_err();
            let (file, written) = repaired(&damaged).unwrap_or_else(|error| panic!("{what}: {error}"));
            let saved = records(&file);
            assert_eq!(saved, whole, "{what}: {written:?}");
            assert_eq!(formats(&Reader::open(file.as_slice()).unwrap()), formats(&reader), "{what}");
            assert!(!is_damaged || !written.notes.is_empty(), "{what}: nothing is told");
            fs::write(&path, &file).unwrap();
            assert_eq!(stock(&path), (Some(0), whole.len()), "{what}");
        }
    }
    // A format's size in the middle of the list.
    let mut damaged = bytes.clone();
    let second = damaged.windows(6).enumerate().filter(|(_, bytes)| bytes == b"name: ").nth(1).unwrap().0;
    damaged[second - 8..second].fill(0xee);
    let (file, written) = repaired(&damaged).unwrap();
    assert_eq!(records(&file), whole);
    let count = |bytes: &[u8]| Reader::open(bytes).unwrap().metadata().events().count();
    assert_eq!(count(&file) + 1, count(bytes), "{written:?}");
}

#[test]
fn stock_recordings_that_were_cut_off() {
    let scratch = Scratch::new();
    for path in stock_traces(&scratch.path("")) {
        // Large ones take long, and are cut in the same way.
        if str(&path).contains("lost") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let events = report(&path, &["-R"]).len();
        let reader = Reader::open(File::open(&path).unwrap()).unwrap();
        let last =
            reader.buffers().iter().flat_map(|buffer| &buffer.cpus).max_by_key(|cpu| cpu.offset).unwrap();
        let cut = &bytes[..(last.offset + last.size / 2) as usize];
        let (file, written) = repaired(cut).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let other = scratch.path("saved.dat");
        fs::write(&other, file).unwrap();
        let (code, shown) = stock(&other);
        assert_eq!((code, shown as u64), (Some(0), written.events()), "{}", path.display());
        assert!(shown > 0 && shown < events, "{}: {shown} of {events}", path.display());
    }
}
