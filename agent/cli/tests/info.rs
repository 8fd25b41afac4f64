//! `tracer-agent info` on small files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[path = "../../tracedat/tests/files/common/mod.rs"]
mod common;
#[path = "../../tracedat/tests/files/reader_files/mod.rs"]
mod reader_files;

use std::fs;
use std::path::{Path, PathBuf};

use capture::LEDGER_OPTION;
use cli::exit::ExitCode;
use cli::info::{Args, InfoError, run};
use common::{COMPRESSIONS, Scratch, setup, squeeze, switch, tick};
use ftrace_event::Endian;
use reader_files::{page, version_6};
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, FileOption};

const LEDGER: &str = "{\"version\":1,\"cpus\":[{\"cpu\":0,\"recorded\":20,\"stored\":17,\"lost\":{\"ring_full\":3,\"other\":0}}]}";

fn info(file: &Path, json: bool) -> (String, ExitCode) {
    let mut out = Vec::new();
    let code = run(&Args::new(file.to_owned(), json), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), code)
}

/// 17 events on CPU 3 with a loss of 3 in between.
fn file(scratch: &Scratch, compression: Compression) -> PathBuf {
    let mut writer = scratch.writer("t.dat", setup(compression));
    let ledger = [LEDGER.as_bytes(), b"\0"].concat();
    writer.option(&FileOption::Unknown { id: LEDGER_OPTION, bytes: ledger }).unwrap();
    let mut pages = Vec::new();
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    for n in 0..17u32 {
        let record = if n % 4 == 0 { switch(("worker", 42), ("idle", 0)) } else { tick(42, n, 16) };
        if n == 9 {
            builder.missed(3);
        }
        while builder.push(1_000_000_000 + u64::from(n) * 1_000_000, &record).unwrap() == Push::Full {
            pages.extend_from_slice(builder.finish().unwrap());
        }
    }
    pages.extend_from_slice(builder.finish().unwrap());
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(3, pages.as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();
    scratch.path("t.dat")
}

#[test]
fn everything_is_told() {
    for compression in COMPRESSIONS {
        let scratch = Scratch::new();
        let (text, code) = info(&file(&scratch, compression), false);
        assert_eq!(code, ExitCode::Ok);
        let text = squeeze(&text);
        for part in [
            &format!("compression {}", compression.name()),
            "17 events from 1.000000000 to 1.016000000, 0.016000000 s, 1 062 per second",
            "19 (kernel symbols)",
            "3 (trace data)",
            "UNAME Linux test 6.18.0 x86_64",
            "CPUCOUNT 4",
            "BUFFER \"\" at",
            "(loss ledger) {\"version\":1",
            "BUFFER (top): clock mono",
            "12 70.6% 750.0 20000 demo:tick",
            "5 29.4% 312.5 372 sched:sched_switch",
            "3 events lost at 1 places",
            "the recorder's ledger: 20 events recorded, 17 stored; lost: ring_full 3",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("DAMAGE"));
    }
}

#[test]
fn json_has_the_same() {
    let scratch = Scratch::new();
    let (json, code) = info(&file(&scratch, Compression::default()), true);
    assert_eq!(code, ExitCode::Ok);
    for part in [
        "\"version\":7,\"endian\":\"little\",\"long_size\":8,\"page_size\":4096,\"compression\":\"zstd\"",
        "\"events\":17,\"first_ns\":1000000000,\"last_ns\":1016000000,\"missed_events\":3,\"missed_marks\":1",
        "\"name\":\"CPUCOUNT\"",
        "{\"id\":20000,\"system\":\"demo\",\"event\":\"tick\",\"events\":12,\"per_second\":750.000}",
        // What a version does not have is not known.
        "\"ledger\":{\"version\":1,\"clock\":null,",
        "{\"cpu\":0,\"recorded\":20,\"stored\":17,\"pages\":null,",
        "\"lost\":{\"ring_full\":3,\"other\":0}}",
        "\"damage\":[]}",
    ] {
        assert!(json.contains(part), "no {part} in\n{json}");
    }
}

#[test]
fn version_6_is_told_of_too() {
    let scratch = Scratch::new();
    let path = scratch.path("old.dat");
    let tick = common::tick_format();
    let pages = page(Endian::Big, 4, 100, None, &[(0, u32::from(common::TICK) << 16), (5, 9 << 16)]);
    fs::write(&path, version_6(Endian::Big, 4, &[("demo", &[&tick])], &[pages])).unwrap();
    let (text, code) = info(&path, false);
    let text = squeeze(&text);
    assert_eq!(code, ExitCode::Ok);
    for part in
        ["version 6", "big endian, 32-bit kernel", "20000 demo:tick", "9 (the file has no format for it)"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn damage_is_told_and_has_an_exit_code() {
    let scratch = Scratch::new();
    let path = file(&scratch, Compression::None);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5000]).unwrap();
    for json in [false, true] {
        let (text, code) = info(&path, json);
        assert_eq!(code, ExitCode::Failure);
        assert!(text.contains(if json { "\"damage\":[\"" } else { "DAMAGE\n" }), "{text}");
    }
    fs::write(&path, &bytes[..40]).unwrap();
    let error = run(&Args::new(path.clone(), false), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, InfoError::Read { .. }), "{error}");
    fs::write(&path, "no trace").unwrap();
    let error = run(&Args::new(path.clone(), false), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with("does not begin with the ten bytes of one"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = run(&Args::new(path, false), &mut Vec::new()).unwrap_err();
    assert_eq!((matches!(error, InfoError::Open { .. }), error.exit_code()), (true, ExitCode::Failure));
}
