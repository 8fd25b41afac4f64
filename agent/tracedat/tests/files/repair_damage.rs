//! Whatever bytes of a file are changed or cut off: `repair` makes a file that is read, or says that there is
//! nothing to save.
//!
//! Our reader reads every one of them. Stock trace-cmd takes milliseconds to start, and reads a sample.

use std::fs;

use crate::common::Scratch;
use crate::damage_files::{CHANGES, changed, with_each_file};
use crate::reader_files::Chance;
use crate::rewrite_files::{contents, repaired, stock};
use tracedat::reader::Reader;

/// Of the files that were saved, how many of stock trace-cmd's are skipped for one that it reads.
const SAMPLE: usize = 150;

/// The records of a file that was saved, which has no problems.
fn records(file: &[u8], what: &str) -> usize {
    let mut reader = Reader::open(file).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(reader.problems().len(), 0, "{what}: {:?}", reader.problems());
    let contents = contents(&mut reader);
    contents.iter().flat_map(|buffer| &buffer.2).map(|(_, records)| records.len()).sum()
}

#[test]
fn every_truncation_is_repaired_or_leaves_nothing() {
    let scratch = Scratch::new();
    with_each_file(|name, bytes| {
        let path = scratch.path(&format!("{name}.cut.dat"));
        let (mut last, mut saved) = (0, 0);
        for len in 0..=bytes.len() {
            let what = format!("{name} cut to {len}");
            let Ok((file, written)) = repaired(&bytes[..len]) else {
                assert_eq!(last, 0, "{what}: less is left than of a shorter file");
                continue;
            };
            let found = records(&file, &what);
            assert_eq!(found as u64, written.events(), "{what}");
            last = found;
            if saved % SAMPLE == 0 || len == bytes.len() {
                fs::write(&path, &file).unwrap();
                assert_eq!(stock(&path), (Some(0), found), "{what}");
            }
            saved += 1;
        }
        assert!(last == 180 && saved > SAMPLE, "{name}: {last} of 180 records, {saved} files");
    });
}

#[test]
fn every_random_change_is_repaired_or_leaves_nothing() {
    let scratch = Scratch::new();
    with_each_file(|name, bytes| {
        let path = scratch.path(&format!("{name}.changed.dat"));
        let chance = &mut Chance::new(bytes.len() as u64 + 1);
        let (mut saved, mut nothing) = (0, 0);
        for round in 0..CHANGES {
            let (mut damaged, _) = changed(bytes, chance);
            // A stretch of it now and then, as disks do.
            if chance.below(3) == 0 {
                let at = chance.below(damaged.len() as u64) as usize;
                let end = (at + 1 + chance.below(40) as usize).min(damaged.len());
                damaged[at..end].fill(chance.pick(&[0, 0xff, 0x5a]));
            }
            let what = format!("{name}, round {round}");
            let Ok((file, written)) = repaired(&damaged) else {
                nothing += 1;
                continue;
            };
            saved += 1;
            assert_eq!(records(&file, &what) as u64, written.events(), "{what}");
            if saved % SAMPLE == 0 {
                fs::write(&path, &file).unwrap();
                // The damage may be in a format or a record, of which nothing else tells; but nothing makes
                // it crash.
                assert!(stock(&path).0.is_some(), "{what}");
            }
        }
        assert!(saved > nothing, "{name}: {saved} saved, {nothing} not");
    });
}
