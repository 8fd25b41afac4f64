//! What exports replace, and that formats of old and new kernels come to the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

#[path = "../../tracedat/tests/files/common/mod.rs"]
mod common;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{COMMON, Scratch, setup, switch};
use report::{Report, TraceFile};
use tracedat::{Buffer, Compression, Section, Writer, layout};

/// Formats of exports that are directories.
const DIRECTORIES: [&str; 7] = ["ctf", "ctf2", "lttng", "lttng-2008", "ltt-eventdefs", "csv", "jsonl"];

/// Files by their names.
type Files<'f> = &'f [(&'f str, &'f [u8])];

fn file(scratch: &Scratch) -> PathBuf {
    let mut writer = scratch.writer("t.dat", setup(Compression::default()));
    let records = [(1, switch(("idle", 0), ("worker", 42))), (2, switch(("worker", 42), ("idle", 0)))];
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, common::pages(4096, records).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();
    scratch.path("t.dat")
}

/// Whether an export came to its end.
fn export(file: &Path, format: &str, to: &Path, options: &[&str]) -> bool {
    let args = ["tracer-agent", "export", "-q", "--format", format];
    let args = args.iter().chain(options).map(OsString::from);
    let ended = cli::run(args.chain([file.into(), to.into()]));
    format!("{ended:?}") == format!("{:?}", ExitCode::SUCCESS)
}

#[test]
fn exports_replace_exports_of_any_format() {
    let scratch = Scratch::new();
    let (file, out) = (file(&scratch), scratch.path("out"));
    for (index, before) in DIRECTORIES.iter().enumerate() {
        for after in [*before, DIRECTORIES[(index + 1) % DIRECTORIES.len()], "chrome"] {
            assert!(export(&file, before, &out, &[]), "{before}");
            assert!(!export(&file, after, &out, &[]) && export(&file, after, &out, &["--force"]), "{after}");
            assert_eq!(out.is_dir(), after != "chrome", "{before} {after}");
            if out.is_dir() { fs::remove_dir_all(&out) } else { fs::remove_file(&out) }.unwrap();
        }
    }
}

#[test]
fn exports_replace_nothing_that_others_wrote() {
    let scratch = Scratch::new();
    let (file, out) = (file(&scratch), scratch.path("out"));
    let write = |name: &str, text: &[u8]| {
        let path = out.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let metadata = b"/* CTF 1.8 */ env { tracer_name = \"lttng-modules\"; };";
    let of_host = b"/* CTF 1.8 */ env { hostname = \"tracer-agent-1\"; };";
    let recorded = b"/* CTF 1.8 */ env { exporter = \"tracer-agent 0.1.0\"; };";
    let fragments = b"\x1e{\"type\":\"trace-class\",\"environment\":{\"exporter\":\"tracer-agent 0.1.0\"}}\n";
    let cases: [(&str, Files<'_>); 9] = [
        ("a trace of CTF 2", &[("metadata", fragments), ("channel0_0", b"")]),
        ("a trace of a host of our name", &[("metadata", of_host), ("channel0_0", b"")]),
        ("a recording of ours", &[("kernel/metadata", recorded), ("kernel/channel0_0", b"")]),
        (
            "a dump of a database of our name",
            &[("tables.sql", b"CREATE TABLE \"tracer-agent\" (name TEXT);")],
        ),
        ("a trace", &[("metadata", metadata), ("channel0_0", b"")]),
        ("a session", &[("kernel/metadata", metadata), ("ust/uid/0/64-bit/metadata", metadata)]),
        ("a dump of a database", &[("tables.sql", b"CREATE TABLE wages (name TEXT);")]),
        (
            "an LTT trace",
            &[("eventdefs/core.xml", b""), ("control/facilities", b""), ("info/system.xml", b"<system/>")],
        ),
        ("a 2008 trace and more", &[("control/facilities_0", b""), ("cpu_0", b""), ("thesis.tex", b"")]),
    ];
    for (foreign, files) in cases {
        for (name, text) in files {
            write(name, text);
        }
        for format in ["ctf", "csv", "chrome"] {
            assert!(!export(&file, format, &out, &["--force"]), "{foreign} {format}");
        }
        for (name, text) in files {
            assert_eq!(fs::read(out.join(name)).unwrap(), *text, "{foreign}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
}

/// A record of trace_marker, in a file whose format declares the text like this.
fn marked(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let setup = setup(Compression::default());
    let file = fs::File::options().create_new(true).read(true).write(true).open(scratch.path(name)).unwrap();
    let mut writer = Writer::create(file, setup).unwrap();
    let header = layout::header_page_text(4096);
    writer.section(Section::header_info(setup.endian, &header, "").unwrap()).unwrap();
    let format = format!(
        "name: print\nID: 5\nformat:\n{COMMON}\n\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:{text};\toffset:16;\tsize:0;\tsigned:0;\n\nprint fmt: \"%ps: %s\", (void *)REC->ip, REC->buf\n"
    );
    writer.section(Section::ftrace_events(setup.endian, &[&format]).unwrap()).unwrap();
    writer.section(Section::event_formats(setup.endian, &[]).unwrap()).unwrap();
    let record = |text: &[u8]| {
        let head = [&[5, 0, 0, 0, 42, 0, 0, 0][..], &0x50_u64.to_le_bytes()].concat();
        [head.as_slice(), text].concat()
    };
    let records =
        [(1, record(b"B|42|draw\n\0")), (2, record(b"two\nlines\n\0\0\0")), (3, record(b"\xe9,\"\0"))];
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
    top.write_cpu(0, common::pages(4096, records).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();
    scratch.path(name)
}

#[test]
fn markers_of_old_and_new_kernels_are_the_same_values() {
    let scratch = Scratch::new();
    let files = [marked(&scratch, "new.dat", "char buf[]"), marked(&scratch, "old.dat", "char buf")];
    let json = files.each_ref().map(|file| {
        let file = [TraceFile::open("t.dat", fs::read(file).unwrap()).unwrap()];
        let mut out = Vec::new();
        Report::new(&file).json(true).run(&mut out, |_| {}).unwrap();
        String::from_utf8(out).unwrap()
    });
    assert_eq!(json[0], json[1]);
    let texts = json[0].lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["fields"]["buf"].clone()
    });
    assert_eq!(texts.collect::<Vec<_>>()[..2], ["B|42|draw\n", "two\nlines\n"]);
    for format in ["csv", "jsonl"] {
        let tables = ["new", "old"].iter().zip(&files).map(|(name, file)| {
            let out = scratch.path(&format!("{name}-{format}"));
            assert!(export(file, format, &out, &[]));
            fs::read_to_string(out.join(format!("ftrace.print.{format}"))).unwrap()
        });
        let tables: Vec<String> = tables.collect();
        assert!(tables[0].contains("B|42|draw") && tables[0].contains("two"), "{}", tables[0]);
        assert_eq!(tables[0], tables[1]);
    }
}
