//! Small files, and damage done to them.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;

use ftrace_event::Endian;

use crate::common::{COMPRESSIONS, Scratch, pages, setup, switch, text, tick};
use crate::reader_files::{Chance, version_6};

/// Random changes in each file: more than 10 000 in all.
pub(crate) const CHANGES: usize = 3400;

/// Does something with each file, with all of them at the same time.
pub(crate) fn with_each_file(work: impl Fn(&str, &[u8]) + Sync) {
    let files = files();
    std::thread::scope(|scope| {
        for (name, bytes) in &files {
            let work = &work;
            scope.spawn(move || work(name, bytes));
        }
    });
}

fn cpus() -> Vec<Vec<u8>> {
    let records = |cpu: u32| {
        (0..90u32).map(move |n| {
            let time = 1_000_000_000 + u64::from(n * 3 + cpu) * 190_000 + u64::from(n / 30) * 300_000_000;
            let record = match n % 3 {
                0 => tick(42, n, 16),
                1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                _ => switch(("worker", 42), ("idle task", 0)),
            };
            (time, record)
        })
    };
    (0..2).map(|cpu| pages(4096, records(cpu))).collect()
}

/// A small file in each compression, and one of version 6.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let scratch = Scratch::new();
    let mut files = Vec::new();
    let cpus = cpus();
    for compression in COMPRESSIONS {
        let numbered: Vec<_> = (0..).zip(cpus.iter().cloned()).collect();
        let path = scratch.file(compression.name(), setup(compression), &numbered);
        files.push((compression.name(), fs::read(path).unwrap()));
    }
    let (switch, tick, text) =
        (crate::common::switch_format(), crate::common::tick_format(), crate::common::text_format());
    let formats: [(&str, &[&str]); 2] = [("sched", &[&switch]), ("demo", &[&tick, &text])];
    files.push(("version 6", version_6(Endian::Little, 8, &formats, &cpus)));
    files
}

/// Changes up to three bytes. Returns the file and the places.
pub(crate) fn changed(bytes: &[u8], chance: &mut Chance) -> (Vec<u8>, Vec<usize>) {
    let mut damaged = bytes.to_vec();
    let mut places = Vec::new();
    for _ in 0..=chance.below(3) {
        let len = bytes.len() as u64;
        let at = match chance.below(4) {
            0 => chance.below(len.min(300)),
            1 => len - 1 - chance.below(len.min(900)),
            _ => chance.below(len),
        } as usize;
        damaged[at] = match chance.below(3) {
            0 => 0xff,
            1 => damaged[at] ^ 1 << chance.below(8),
            _ => chance.next() as u8,
        };
        places.push(at);
    }
    (damaged, places)
}
