//! No bytes make the reader panic, or take more memory than the file explains.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[path = "files/common/mod.rs"]
mod common;
#[path = "files/reader_files/mod.rs"]
mod reader_files;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Scratch, pages, switch, text, tick};
use ftrace_event::Endian;
use reader_files::{Chance, page, read_everything, version_6};
use tracedat::{Compression, Setup};

/// Most bytes that one allocation may ask for. A chunk of the small files that are damaged here cannot have
/// more: zstd gets no more than 32 KiB out of a byte.
const LARGEST: usize = 96 << 20;

/// The largest allocation so far.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, watched.
struct Watched;

// SAFETY: everything is done by the system's allocator, which keeps the promises.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        SEEN.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that it wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        SEEN.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        SEEN.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Small files of each kind.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let scratch = Scratch::new();
    let mut files = Vec::new();
    for (name, compression) in [("none", Compression::None), ("zstd", Compression::zstd(1))] {
        let setup = Setup { compression, ..Setup::default() };
        let records = |cpu: u32| {
            (0..60u32).map(move |n| {
                let time = u64::from(n * 3 + cpu) * 90_000_000;
                let record = match n % 3 {
                    0 => tick(42, n, 16 + n as usize * 4),
                    1 => text(43, 0xffff_ffff_8100_0110, &format!("message {n}")),
                    _ => switch(("worker", 42), ("idle", 0)),
                };
                (time, record)
            })
        };
        let cpus: Vec<_> = (0..2).map(|cpu| (cpu, pages(4096, records(cpu)))).collect();
        files.push((name, fs::read(scratch.file(name, setup, &cpus)).unwrap()));
    }
    let endian = Endian::Big;
    let cpus = [
        page(endian, 4, 100, Some(5), &[(0, 1), (7, 2)]),
        page(endian, 4, 90, None, &[(0, 1), (30, 2), (9, 3)]),
    ];
    let format = common::tick_format();
    files.push(("version 6", version_6(endian, 4, &[("demo", &[&format])], &cpus)));
    files
}

#[test]
fn every_truncation() {
    for (name, bytes) in files() {
        let whole = read_everything(bytes.as_slice()).unwrap();
        assert!(whole > 4, "{name}");
        for len in 0..bytes.len() {
            // Of trace data that are not compressed, every byte is as good as any other.
            if name == "none" && len > 6000 && len % 13 != 0 {
                continue;
            }
            if let Ok(records) = read_everything(&bytes[..len]) {
                assert!(records <= whole, "{name} cut to {len}");
            }
        }
    }
    assert!(SEEN.load(Ordering::Relaxed) < LARGEST);
}

#[test]
fn ten_thousand_random_changes() {
    for (name, bytes) in files() {
        let chance = &mut Chance::new(bytes.len() as u64);
        for _ in 0..3400 {
            let mut bytes = bytes.clone();
            for _ in 0..=chance.below(4) {
                // Where numbers are is where damage is interesting: sizes and offsets at the start, the
                // options at the end.
                let len = bytes.len() as u64;
                let at = match chance.below(4) {
                    0 => chance.below(len.min(200)),
                    1 => len - 1 - chance.below(len.min(700)),
                    _ => chance.below(len),
                };
                bytes[at as usize] = match chance.below(3) {
                    0 => 0xff,
                    1 => bytes[at as usize] ^ 1 << chance.below(8),
                    _ => chance.next() as u8,
                };
            }
            // What comes out is any number of records, or an error; `name` says which file, should it panic.
            let _ = (name, read_everything(bytes.as_slice()));
        }
    }
    let seen = SEEN.load(Ordering::Relaxed);
    assert!(seen < LARGEST, "{seen} bytes at once");
}

#[test]
fn bytes_that_are_no_file() {
    let chance = &mut Chance::new(5);
    for _ in 0..2000 {
        let len = chance.below(600) as usize;
        let mut bytes = chance.bytes(len);
        assert!(read_everything(bytes.as_slice()).is_err());
        bytes.splice(0..0, *b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0none\0\0");
        assert!(read_everything(bytes.as_slice()).is_err());
    }
}
