//! Names of threads survive the way through text.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use export::perf_script::PerfScript;
use import::{Options, Target, import, open};
use recording::{Job, TraceFile};
use report::crafted::{self, ev};

#[test]
fn perf_script_is_read_back_as_it_was() {
    let names: [&[u8]; 8] = [
        b"plain",
        b"x-12 [001] 1.5:",
        b" around ",
        br"\x0a",
        br"C:\x5c",
        b"tab\tname",
        b"\xffbytes",
        b"<...>",
    ];
    let threads: Vec<u8> = (1..)
        .zip(names)
        .flat_map(|(tid, name): (u32, &[u8])| [tid.to_string().as_bytes(), b" ", name, b"\n"].concat())
        .collect();
    let entries: Vec<_> = (1..=8).map(|tid| ev(tid, 0, 7, 1)).collect();
    let bytes = crafted::bytes(&entries, "", &threads, "[local]");
    let original = TraceFile::open(Box::new(bytes)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = recording::Target { path: dir.path().join("perf.txt"), ..recording::Target::default() };
    recording::export(&original, &PerfScript, &target, &Job::new(&|_| {})).unwrap();
    let text = fs::read(&target.path).unwrap();
    let lines =
        text.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"# tracer-agent: recording_"));
    assert_eq!(lines.count(), 2 + names.len());

    let path = dir.path().join("trace.dat");
    let mut source = open::open(&target.path, open::Hints::default()).unwrap();
    import(&mut *source, &Target { path: path.clone(), force: false }, Options::default(), &mut |_| true)
        .unwrap();
    let file = report::TraceFile::open("trace.dat", fs::read(path).unwrap()).unwrap();
    let cmdlines = &file.reader().metadata().cmdlines;
    let found: Vec<_> = (1..=8).map(|tid| cmdlines.get(tid).unwrap()).collect();
    assert_eq!(found, names);

    // What others write is no escape.
    let foreign = text.split(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>().join(&b'\n');
    fs::write(&target.path, foreign).unwrap();
    let path = dir.path().join("foreign.dat");
    let mut source = open::open(&target.path, open::Hints::default()).unwrap();
    import(&mut *source, &Target { path: path.clone(), force: false }, Options::default(), &mut |_| true)
        .unwrap();
    let file = report::TraceFile::open("trace.dat", fs::read(path).unwrap()).unwrap();
    assert_eq!(file.reader().metadata().cmdlines.get(4), Some(&br"\x5cx0a"[..]));
}
