//! Reading takes little memory, whatever the file: many CPUs, and chunks that are a megabyte when they are
//! decompressed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[path = "files/common/mod.rs"]
mod common;

use std::fs::{self, File};

use common::{Scratch, pages, setup, tick};
use tracedat::Compression;
use tracedat::reader::Reader;

const CPUS: u32 = 400;
/// 16 of them are a chunk.
const PAGE: u32 = 64 << 10;
const PAGES: u32 = 16;

/// The most memory that this process ever had, in MB (proc(5), `VmHWM`).
fn peak_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn many_cpus_with_large_chunks() {
    let scratch = Scratch::new();
    let setup = tracedat::Setup { page_size: PAGE, ..setup(Compression::zstd(1)) };
    let mut writer = scratch.writer("many.dat", setup);
    let buffer = tracedat::Buffer { name: "", clock: "mono", page_size: PAGE };
    let mut top = writer.begin_buffer(buffer).unwrap();
    // One record fills a page, nearly.
    let data = pages(PAGE, (0..PAGES).map(|n| (1_000_000 + u64::from(n), tick(1, n, 65_000))));
    assert_eq!(data.len(), (PAGES * PAGE) as usize);
    for cpu in 0..CPUS {
        top.write_cpu(cpu, data.as_slice()).unwrap();
    }
    top.finish().unwrap();
    writer.finish().unwrap();

    let before = peak_mb();
    let reader = Reader::open(File::open(scratch.path("many.dat")).unwrap()).unwrap();
    let mut records = reader.records().unwrap();
    let (mut found, mut last) = (0, 0);
    while let Some(record) = records.next_record().unwrap() {
        assert!(record.timestamp >= last);
        last = record.timestamp;
        found += 1;
    }
    assert_eq!(found, CPUS * PAGES);
    while let Some(record) = records.prev_record().unwrap() {
        assert!(record.timestamp <= last);
        last = record.timestamp;
        found -= 1;
    }
    assert_eq!(found, 0);
    records.seek(1_000_010);
    assert_eq!(records.next_record().unwrap().map(|record| record.cpu), Some(0));
    let peak = peak_mb();
    assert!(peak < 256, "{peak} MB, {before} of them before");
}
