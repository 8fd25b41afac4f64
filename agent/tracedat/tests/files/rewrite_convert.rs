//! Files of every kind come out of a conversion as they went in, for us and for stock trace-cmd.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Cursor;
use std::path::Path;

use crate::common::{Scratch, report};
use crate::reader_files::{Chance, page, version_6};
use crate::rewrite_files::{KEEP, V6, contents, converted, facts, random_file, same_head, stock_traces, v7};
use ftrace_event::Endian;
use stdx::output::Output;
use tracedat::reader::Reader;
use tracedat::rewrite::{RewriteError, Selection, convert, to_file};
use tracedat::{Codec, Compression, FileOption};

const ZSTD: Compression = Compression::zstd(3);

#[test]
fn stock_recordings_have_the_same_text_in_every_form() {
    let scratch = Scratch::new();
    for path in stock_traces(&scratch.path("")) {
        let mut reader = Reader::open(File::open(&path).unwrap()).unwrap();
        let (text, records) = (report(&path, &["-t", "-R"]), contents(&mut reader));
        assert!(text.len() > 50, "{}", path.display());
        let (six, _) = converted(&reader, V6);
        let back = converted(&Reader::open(six.as_slice()).unwrap(), KEEP).0;
        let forms = [
            ("6", six, Codec::None),
            ("7 from 6", back, Codec::Zstd),
            ("7 none", converted(&reader, v7(Compression::None)).0, Codec::None),
            ("7 zstd", converted(&reader, v7(ZSTD)).0, Codec::Zstd),
            ("7 as it is", converted(&reader, KEEP).0, reader.header().codec),
        ];
        for (form, bytes, codec) in forms {
            let other = scratch.path("other.dat");
            fs::write(&other, &bytes).unwrap();
            assert_eq!(report(&other, &["-t", "-R"]), text, "{} as {form}", path.display());
            let mut reread = Reader::open(bytes).unwrap();
            if form != "7 as it is" || reader.header().version == 7 {
                assert_eq!(reread.header().codec, codec);
            }
            same_head(&reader, &reread);
            assert_eq!(contents(&mut reread), records, "{} as {form}", path.display());
        }
    }
}

#[test]
fn random_files_come_back_from_version_6_and_every_compression() {
    for seed in 0..15 {
        let chance = &mut Chance::new(seed);
        let compression = chance.pick(&[Compression::None, Compression::zstd(1)]);
        let bytes = random_file(chance, compression);
        let mut reader = Reader::open(bytes.as_slice()).unwrap();
        let records = contents(&mut reader);
        let mut last = bytes.clone();
        for target in [V6, v7(Compression::None), KEEP, v7(ZSTD), KEEP, V6, KEEP] {
            last = converted(&Reader::open(last.as_slice()).unwrap(), target).0;
            let mut reread = Reader::open(last.as_slice()).unwrap();
            assert_eq!(contents(&mut reread), records, "seed {seed}, {target:?}");
            same_head(&reader, &reread);
        }
    }
}

#[test]
fn chunks_are_copied_when_nothing_changes() {
    let bytes = random_file(&mut Chance::new(77), Compression::zstd(9));
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let (copy, written) = converted(&reader, KEEP);
    let again = Reader::open(copy.as_slice()).unwrap();
    for (one, other) in reader.buffers().iter().zip(again.buffers()) {
        for (from, to) in one.cpus.iter().zip(&other.cpus) {
            let data = |bytes: &[u8], at: u64, len: u64| bytes[at as usize..(at + len) as usize].to_vec();
            assert_eq!(data(&bytes, from.offset, from.size), data(&copy, to.offset, to.size));
        }
    }
    let cpus = || written.buffers.iter().flat_map(|buffer| &buffer.cpus);
    assert!(cpus().map(|cpu| cpu.copied_pages).sum::<u64>() > 10);
    assert_eq!(
        written.events(),
        (0..reader.buffers().len()).map(|buffer| reader.count(buffer).events()).sum::<u64>()
    );
}

#[test]
fn foreign_pages_keep_byte_order_and_long() {
    let format = "name: x\nID: 9\nformat:\n";
    for (endian, long) in [(Endian::Little, 4), (Endian::Big, 8), (Endian::Big, 4)] {
        let cpus = [
            [
                page(endian, long, 100, None, &[(0, 9), (5, 10)]),
                page(endian, long, 200, Some(7), &[(1, 11), (2, 9 << 16 | 9)]),
            ]
            .concat(),
            Vec::new(),
            // Marks before an empty page, and times that go backwards from page to page.
            [
                page(endian, long, 150, Some(3), &[]),
                page(endian, long, 160, None, &[(0, 12)]),
                page(endian, long, 90, None, &[(0, 13)]),
            ]
            .concat(),
        ];
        let bytes = version_6(endian, long, &[("demo", &[format])], &cpus);
        let mut reader = Reader::open(bytes.as_slice()).unwrap();
        let records = contents(&mut reader);
        let mut last = bytes.clone();
        for target in [KEEP, v7(Compression::None), V6] {
            last = converted(&Reader::open(last.as_slice()).unwrap(), target).0;
            let mut reread = Reader::open(last.as_slice()).unwrap();
            assert_eq!((reread.header().endian, reread.layout().long_size), (endian, long));
            assert_eq!(contents(&mut reread), records);
            same_head(&reader, &reread);
        }
        // Records that are written anew keep everything, too.
        let number = endian.read_u16(endian.u32(10)[..2].try_into().unwrap());
        let selection =
            Selection { without_events: BTreeSet::from([number, 0x7777]), ..Selection::default() };
        let out = Cursor::new(Vec::new());
        let (out, written) = convert(&reader, &KEEP, &selection, out, &mut |_| true).unwrap();
        let gone = |data: &[u8]| endian.read_u16(data[..2].try_into().unwrap()) == number;
        let mut expected = Vec::new();
        for (_, records) in &records[0].2 {
            // A loss before a record that is left out is one before the next.
            let mut missed = None;
            for record in records {
                missed = missed.take().or(record.missed);
                if !gone(&record.data) {
                    expected.push(crate::reader_files::Kept { missed: missed.take(), ..record.clone() });
                }
            }
        }
        let found = contents(&mut Reader::open(out.into_inner()).unwrap());
        let found: Vec<_> = found[0].2.iter().flat_map(|(_, records)| records.clone()).collect();
        assert_eq!(found, expected);
        assert_eq!(written.left_out() + written.events(), 6);
    }
}

#[test]
fn less_of_a_file() {
    let bytes = random_file(&mut Chance::new(5), Compression::default());
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    let all = contents(&mut reader);
    let with = |selection: &Selection| {
        let out = Cursor::new(Vec::new());
        let out = convert(&reader, &KEEP, selection, out, &mut |_| true).unwrap().0;
        let mut less = Reader::open(out.into_inner()).unwrap();
        assert_eq!(facts(&less), facts(&reader));
        contents(&mut less)
    };
    let one_cpu = with(&Selection { cpus: Some(BTreeSet::from([1])), ..Selection::default() });
    let expected: Vec<_> = all
        .iter()
        .map(|(name, clock, cpus)| {
            let cpus: Vec<_> = cpus.iter().filter(|(cpu, _)| *cpu == 1).cloned().collect();
            (name.clone(), clock.clone(), cpus)
        })
        .filter(|(_, _, cpus)| !cpus.is_empty())
        .collect();
    assert_eq!(one_cpu, expected);
    let top = with(&Selection { buffers: Some(BTreeSet::from([String::new()])), ..Selection::default() });
    let expected: Vec<_> = all.iter().filter(|(name, _, _)| name.is_empty()).cloned().collect();
    assert_eq!(top, expected);
    let pages = with(&Selection { pages: Some(1..2), ..Selection::default() });
    let mut expected = 0;
    for (index, buffer) in reader.buffers().iter().enumerate() {
        for extent in &buffer.cpus {
            let mut pages = reader.cpu_pages(index, extent.cpu).unwrap();
            expected += u64::from(pages.len() > 1);
            let _ = pages.page(0);
        }
    }
    assert_eq!(pages.iter().flat_map(|buffer| &buffer.2).count() as u64, expected);
}

#[test]
fn damage_is_not_passed_on_and_inputs_are_not_overwritten() {
    let scratch = Scratch::new();
    let bytes = random_file(&mut Chance::new(77), Compression::default());
    let whole = Reader::open(bytes.as_slice()).unwrap();
    let place = whole.buffers().iter().flat_map(|buffer| &buffer.cpus).max_by_key(|cpu| cpu.size).unwrap();
    let mut damaged = bytes.clone();
    // Behind the number of chunks and the sizes of the first.
    damaged[place.offset as usize + 12..][..8].fill(0xa5);
    let path = scratch.path("damaged.dat");
    fs::write(&path, &damaged).unwrap();
    let reader = Reader::open(damaged).unwrap();
    let output = scratch.path("out.dat");
    let place = |path: &Path| Output::at(path).unwrap();
    let error = to_file(&place(&output), &[&path], |out| {
        convert(&reader, &KEEP, &Selection::default(), out, &mut |_| true)
    });
    assert!(matches!(error, Err(RewriteError::Damaged { .. })), "{:?}", error.map(drop));
    let names = || fs::read_dir(scratch.path("")).unwrap().count();
    assert_eq!(names(), 1);
    let error = to_file(&place(&path), &[&path], |_| -> Result<_, RewriteError> { panic!("not called") });
    assert!(matches!(error.map(|_: ((), _)| ()), Err(RewriteError::IsInput { .. })));
    // Who does not want it any more gets nothing.
    let error = to_file(&place(&output), &[&path], |out| {
        convert(&whole, &KEEP, &Selection::default(), out, &mut |_| false)
    });
    assert!(matches!(error, Err(RewriteError::Stopped)));
    assert_eq!(names(), 1);
    let target = v7(Compression::None);
    let (_, bytes) = to_file(&place(&output), &[&path], |out| {
        convert(&whole, &target, &Selection::default(), out, &mut |_| true)
    })
    .unwrap();
    assert_eq!(fs::metadata(&output).unwrap().len(), bytes);
    assert!(facts(&Reader::open(File::open(&output).unwrap()).unwrap()).contains(&FileOption::TraceId(77)));
}
