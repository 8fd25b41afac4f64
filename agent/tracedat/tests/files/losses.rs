//! Losses that only the ledger has: where they are in a file, in its parts, and in what is made of it.

use std::io::Cursor;
use std::ops::ControlFlow;

use crate::common::{COMPRESSIONS, TICK, setup, tick};
use crate::reader_files::start;
use crate::rewrite_files::{KEEP, V6, converted};
use ftrace_event::Endian;
use tracedat::ledger::{EventChoice, Ledger, LedgerCpu, Losses};
use tracedat::losses::Losses as FileLosses;
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::{Next, Reader, Record, Source, each_record_ahead};
use tracedat::rewrite::{
    Every, MergeInput, MergeOptions, Selection, Split, Splitter, Target, TimeRange, convert, merge,
};
use tracedat::{Buffer, Compression, FileOption, OptionId};

/// How many are lost at which places of a CPU: before which record, and at its end.
type Lost = Vec<(u32, usize, u64)>;

/// The pages of a CPU with records at these times; a number below 0 is a loss of so many.
fn pages(times: &[i64]) -> Vec<u8> {
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    let mut pages = Vec::new();
    for (number, time) in (0..).zip(times) {
        let Ok(time) = u64::try_from(*time) else {
            builder.missed(time.unsigned_abs());
            continue;
        };
        while builder.push(time, &tick(7, number, 16)).unwrap() == Push::Full {
            pages.extend_from_slice(builder.finish().unwrap());
        }
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    pages
}

fn row(cpu: u32, stored: u64, lost: u64) -> LedgerCpu {
    let lost = Losses(vec![("ring_full".to_owned(), lost)]);
    LedgerCpu { cpu, stored: Some(stored), lost, ..LedgerCpu::default() }
}

fn file(compression: Compression, cpus: &[(u32, &[i64])], rows: Vec<LedgerCpu>, id: u64) -> Vec<u8> {
    let mut writer = start(setup(compression));
    let bytes = Ledger { version: 3, cpus: rows, ..Ledger::default() }.to_bytes();
    writer.option(&FileOption::TraceId(id)).unwrap();
    writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes }).unwrap();
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    for (cpu, times) in cpus {
        top.write_cpu(*cpu, pages(times).as_slice()).unwrap();
    }
    top.finish().unwrap();
    writer.finish().unwrap().into_inner()
}

/// CPU 0 lost 5 between its records, CPU 1 also 40 behind its last one, which is early; CPU 2 lost all.
fn example(compression: Compression) -> Vec<u8> {
    let cpus: &[(u32, &[i64])] = &[(0, &[10, -5, 30, 50]), (1, &[12, -2, 20])];
    file(compression, cpus, vec![row(0, 3, 5), row(1, 2, 42), row(2, 0, 9)], 77)
}

/// The losses that readers see, by CPU and place.
fn lost<S: Source>(reader: &Reader<S>) -> Lost {
    let (mut before, mut found) = ([0; 8], Vec::new());
    each_record_ahead(
        &mut reader.records().unwrap(),
        |record: &Record<'_>| record.data.len(),
        |next| {
            match next {
                Next::Record(record) => {
                    assert_eq!(record.event_id(), Some(TICK));
                    let place = &mut before[record.cpu as usize];
                    found.extend(record.missed.map(|missed| (record.cpu, *place, missed)));
                    *place += 1;
                }
                Next::End(end) => {
                    found.extend(end.missed.map(|missed| (end.cpu, before[end.cpu as usize], missed)));
                }
                Next::Gap(_) => {}
                Next::Damage(error) => panic!("{error}"),
            }
            ControlFlow::Continue(())
        },
    );
    found.sort_unstable();
    found
}

fn lost_in(bytes: &[u8]) -> Lost {
    lost(&Reader::open(bytes).unwrap())
}

/// Whether all losses of each CPU are known, with their numbers.
fn are_exact(bytes: &[u8]) -> Vec<(u32, bool)> {
    let reader = Reader::open(bytes).unwrap();
    let counts = reader.count(0).cpus.into_iter().map(|counts| ((String::new(), counts.cpu), counts));
    let ledgers: Vec<_> = Ledger::all_of(&reader).collect();
    FileLosses::new(&ledgers, &counts.collect())
        .iter()
        .map(|(_, cpu, losses)| (cpu, losses.is_exact))
        .collect()
}

fn split(bytes: &[u8], split: Split, target: Target) -> Vec<Vec<u8>> {
    let reader = Reader::open(bytes).unwrap();
    let mut splitter = Splitter::new(&reader, target, &Selection::default(), split).unwrap();
    let mut parts = Vec::new();
    while let Some(part) = splitter.next_part().unwrap() {
        let (out, _) = splitter.write(&part, Cursor::new(Vec::new()), &mut |_| true).unwrap();
        parts.push(out.into_inner());
    }
    parts
}

fn merged(files: &[Vec<u8>]) -> Vec<u8> {
    let readers: Vec<_> = files.iter().map(|bytes| Reader::open(bytes.as_slice()).unwrap()).collect();
    let names = ('a'..).map(|name| name.to_string());
    let inputs: Vec<_> =
        readers.iter().zip(names).map(|(reader, name)| MergeInput { name, reader }).collect();
    let out = Cursor::new(Vec::new());
    merge(&inputs, &KEEP, MergeOptions::default(), out, &mut |_| true).unwrap().0.into_inner()
}

const WHOLE: [(u32, usize, u64); 4] = [(0, 1, 5), (1, 1, 2), (1, 2, 40), (2, 0, 9)];

#[test]
fn ledger_and_pages_together_are_the_losses() {
    for compression in COMPRESSIONS {
        let bytes = example(compression);
        assert_eq!(lost_in(&bytes), WHOLE);
        assert_eq!(are_exact(&bytes), [(0, true), (1, true), (2, true)]);
    }
}

#[test]
fn a_conversion_marks_what_only_the_ledger_had() {
    for compression in COMPRESSIONS {
        let bytes = example(compression);
        let reader = Reader::open(bytes.as_slice()).unwrap();
        for target in [KEEP, V6] {
            let (out, _) = converted(&reader, target);
            assert_eq!(lost_in(&out), WHOLE);
            let new = Reader::open(out.as_slice()).unwrap();
            // The pages have it all now.
            assert!(new.losses().iter().all(|(.., losses)| !losses.any() && losses.is_exact));
            let counts = new.count_cpu(0, 1).cpus[0].clone();
            assert_eq!((counts.missed_events, counts.missed_behind), (2, Some(40)));
            assert_eq!(new.count_cpu(0, 2).cpus[0].missed_behind, Some(9));
            // And once is enough.
            assert_eq!(lost_in(&converted(&new, KEEP).0), WHOLE);
        }
    }
}

#[test]
fn losses_before_the_first_record_are_marked_there() {
    let capped = |capped| LedgerCpu { capped: Some(capped), ..row(0, 2, 0) };
    for (row, expected) in [(capped(Some(6)), 6), (capped(None), 0)] {
        let bytes = file(Compression::default(), &[(0, &[10, 20])], vec![row], 1);
        assert_eq!(lost_in(&bytes), [(0, 0, expected)]);
        let reader = Reader::open(bytes.as_slice()).unwrap();
        let mut records = reader.records().unwrap();
        records.fast_forward();
        let back = |records: &mut tracedat::reader::Records<'_>| {
            records.prev_record().unwrap().map(|record| record.missed)
        };
        assert_eq!([(); 3].map(|()| back(&mut records)), [Some(None), Some(Some(expected)), None]);
        assert_eq!(records.next_record().unwrap().map(|record| record.missed), Some(Some(expected)));
    }
}

#[test]
fn parts_have_their_own_losses_and_together_those_of_the_whole() {
    for compression in COMPRESSIONS {
        let bytes = example(compression);
        for target in [KEEP, V6] {
            // From 10 to 19, 20 to 29, and so on; two of them without records.
            let every = Some(Every::Nanos(10));
            let parts = split(&bytes, Split { every, ..Split::default() }, target);
            let found: Vec<_> = parts.iter().map(|part| lost_in(part)).collect();
            let expected: [Lost; 4] = [
                vec![(2, 0, 9)],
                vec![(1, 0, 2), (1, 1, 40), (2, 0, 0)],
                // How much of what CPUs 1 and 2 have lost was lost now is not known.
                vec![(0, 0, 5), (1, 0, 0), (2, 0, 0)],
                vec![(1, 0, 0), (2, 0, 0)],
            ];
            assert_eq!(found, expected);
            assert_eq!(are_exact(&parts[0]), [(0, true), (1, true), (2, true)]);
            assert_eq!(are_exact(&parts[3]), [(0, true), (1, false), (2, false)]);
            for part in &parts {
                assert!(Ledger::of(&Reader::open(part.as_slice()).unwrap()).unwrap().part);
            }
        }
    }
}

#[test]
fn all_parts_are_the_whole_again() {
    let bytes = file(
        Compression::default(),
        &[(0, &[10, -5, 30, 50]), (1, &[12, -2, 55])],
        vec![row(0, 3, 8), row(1, 2, 42)],
        77,
    );
    let expected = [(0, 1, 5), (0, 3, 3), (1, 1, 2), (1, 2, 40)];
    assert_eq!(lost_in(&bytes), expected);
    let every = Some(Every::Nanos(10));
    let parts = split(&bytes, Split { every, ..Split::default() }, KEEP);
    let ledger = |bytes: &[u8]| Ledger::of(&Reader::open(bytes).unwrap()).unwrap();
    let again = merged(&parts);
    assert_eq!(lost_in(&again), expected);
    assert_eq!(ledger(&again), ledger(&bytes));
    // CPUs 1 and 2 ended before the last part.
    for compression in COMPRESSIONS {
        let bytes = example(compression);
        for every in [Every::Nanos(10), Every::Events(1), Every::Pages(1)] {
            let mut parts = split(&bytes, Split { every: Some(every), ..Split::default() }, KEEP);
            for _ in 0..2 {
                let again = merged(&parts);
                assert_eq!(lost_in(&again), WHOLE);
                assert_eq!(are_exact(&again), [(0, true), (1, true), (2, true)]);
                assert_eq!(ledger(&again), ledger(&bytes));
                parts.reverse();
            }
        }
    }
    // Without one of them it is a part.
    let less = merged(&parts[..2]);
    assert_eq!(lost_in(&less), [(0, 1, 5)]);
    assert!(ledger(&less).part);
}

#[test]
fn what_is_left_out_takes_its_losses_along() {
    let bytes = example(Compression::default());
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let with = |selection: Selection| {
        let out = Cursor::new(Vec::new());
        convert(&reader, &KEEP, &selection, out, &mut |_| true).unwrap().0.into_inner()
    };
    let one = Selection { cpus: Some([0].into()), ..Selection::default() };
    assert_eq!(lost_in(&with(one)), [(0, 1, 5)]);
    let pages = |pages| Selection { pages: Some(pages), ..Selection::default() };
    // CPU 1 has 2 pages.
    assert_eq!(lost_in(&with(pages(0..1))), [(2, 0, 9)]);
    assert_eq!(lost_in(&with(pages(1..2))), [(0, 0, 5), (1, 0, 2), (1, 1, 40), (2, 0, 9)]);
    // A range of time.
    let range = |start, end| Split { range: TimeRange { start, end }, ..Split::default() };
    let lost_in_range = |start, end| lost_in(&split(&bytes, range(start, end), KEEP)[0]);
    assert_eq!(lost_in_range(None, Some(12)), [(2, 0, 9)]);
    assert_eq!(lost_in_range(Some(25), None), [(0, 0, 5), (1, 0, 0), (2, 0, 9)]);
}

#[test]
fn the_whole_ledger_of_an_older_part_does_not_count() {
    // As parts were made that do not say that they are.
    let part = file(
        Compression::default(),
        &[(0, &[30, 50]), (1, &[12, -2, 20])],
        vec![row(0, 3, 8), row(1, 2, 42), row(2, 0, 9)],
        77,
    );
    assert_eq!(lost_in(&part), [(1, 1, 2), (1, 2, 40)]);
    assert_eq!(are_exact(&part), [(1, true)]);
}

#[test]
fn merged_recordings_keep_their_losses() {
    let one = example(Compression::default());
    let other = file(Compression::default(), &[(3, &[15])], vec![row(3, 1, 4)], 78);
    let bytes = merged(&[one, other]);
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let mut found: Vec<_> = reader
        .losses()
        .iter()
        .map(|(buffer, cpu, losses)| (buffer.to_owned(), cpu, losses.any(), losses.is_exact))
        .collect();
    found.sort();
    let named = |buffer: &str, cpu| (buffer.to_owned(), cpu, false, true);
    assert_eq!(found, [named("a", 0), named("a", 1), named("a", 2), named("b", 3)]);
    assert_eq!(lost(&reader), [(0, 1, 5), (1, 1, 2), (1, 2, 40), (2, 0, 9), (3, 1, 4)]);
}

#[test]
fn archives_of_one_recording_count_a_loss_between_them_once() {
    // The 4 behind the first archive are marked at the begin of the second, with 1 of its own.
    let first = file(Compression::default(), &[(0, &[10])], vec![row(0, 1, 4)], 5);
    let noted = LedgerCpu { marked_before: 4, ..row(0, 1, 1) };
    let second = file(Compression::default(), &[(0, &[-5, 20])], vec![noted], 5);
    assert_eq!(lost_in(&first), [(0, 1, 4)]);
    assert_eq!(lost_in(&second), [(0, 0, 5)]);
    assert_eq!(lost_in(&merged(&[first, second])), [(0, 1, 5)]);
}

#[test]
fn an_archive_in_which_a_cpu_was_silent_keeps_its_place() {
    let file = |cpus: &[(u32, &[i64])], rows| file(Compression::default(), cpus, rows, 5);
    // CPU 0 has no record in the second archive, CPU 1 has.
    let first = file(&[(0, &[-3, 10]), (1, &[11])], vec![row(0, 1, 3), row(1, 1, 0)]);
    let second = file(&[(1, &[20])], vec![row(0, 0, 4), row(1, 1, 0)]);
    assert_eq!(lost_in(&second), [(0, 0, 4)]);
    let expected = [(0, 0, 3), (0, 1, 4)];
    assert_eq!(lost_in(&merged(&[first.clone(), second.clone()])), expected);
    assert_eq!(lost_in(&merged(&[second.clone(), first])), expected);
    // The first mark of the third counts what both before it lost at their ends, 3 and 4, and 1 itself.
    let first = file(&[(0, &[10]), (1, &[11])], vec![row(0, 1, 3), row(1, 1, 0)]);
    let noted = LedgerCpu { marked_before: 7, ..row(0, 1, 1) };
    let third = file(&[(0, &[-8, 30])], vec![noted]);
    assert_eq!(lost_in(&merged(&[first, second, third])), [(0, 1, 8)]);
}

#[test]
fn choices_of_events_follow_their_buffer() {
    let recovered = |id, channel: &str| {
        let choice =
            EventChoice { channel: channel.to_owned(), event: "a:b".to_owned(), ..EventChoice::default() };
        let ledger = Ledger { version: 3, choices: vec![choice], ..Ledger::default() };
        let mut writer = start(setup(Compression::default()));
        writer.option(&FileOption::TraceId(id)).unwrap();
        writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() }).unwrap();
        let top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        top.finish().unwrap();
        writer.finish().unwrap().into_inner()
    };
    let bytes = merged(&[recovered(1, ""), recovered(2, "net")]);
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let choices = Ledger::all_of(&reader).flat_map(|ledger| ledger.event_choices());
    assert_eq!(choices.map(|choice| choice.channel).collect::<Vec<_>>(), ["a", "b.net"]);
}
