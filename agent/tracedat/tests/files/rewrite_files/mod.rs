//! What the tests of rewriting share: files to start from, and what must be the same afterwards.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use ftrace_event::Endian;
use tracedat::reader::{Corrections, ReadError, Reader, Source};
use tracedat::rewrite::{FileVersion, RewriteError, Rewritten, Selection, Target, convert, repair};
use tracedat::{Buffer, Compression, FileOption, Setup};

use crate::reader_files::{Chance, Kept, cpu, cpu_forwards, options, start};

/// Version 7 with this compression.
pub(crate) const fn v7(compression: Compression) -> Target {
    Target { version: FileVersion::V7, compression: Some(compression) }
}

/// Version 7 as it is.
pub(crate) const KEEP: Target = Target { version: FileVersion::V7, compression: None };

/// Version 6.
pub(crate) const V6: Target = Target { version: FileVersion::V6, compression: None };

/// Stock recordings, unpacked into `directory` where they are packed.
pub(crate) fn stock_traces(directory: &Path) -> Vec<PathBuf> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    let mut paths = Vec::new();
    for entry in fs::read_dir(traces).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(plain) = name.strip_suffix(".dat.gz") {
            let unpacked = directory.join(format!("{plain}.dat"));
            let output = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
            assert!(output.status.success());
            fs::write(&unpacked, output.stdout).unwrap();
            paths.push(unpacked);
        } else if name.strip_suffix(".dat").is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    assert_eq!(paths.len(), 9);
    paths
}

/// A buffer with the records of its CPUs.
pub(crate) type Contents = Vec<(String, String, Vec<(u32, Vec<Kept>)>)>;

/// Name, clock and records of each buffer that has data, with the times that are stored.
pub(crate) fn contents<S: Source>(reader: &mut Reader<S>) -> Contents {
    assert_eq!(reader.problems().len(), 0, "{:?}", reader.problems());
    reader.set_corrections(Corrections::NONE);
    let mut all = Vec::new();
    for (place, buffer) in reader.buffers().iter().enumerate() {
        let records = |cpu| {
            let mut records = cpu_forwards(&mut reader.cpu_records(place, cpu).unwrap());
            // Empty buffers change the places of others.
            for record in &mut records {
                record.buffer = 0;
            }
            (cpu, records)
        };
        let cpus: Vec<_> = buffer.cpus.iter().map(|extent| records(extent.cpu)).collect();
        if !cpus.is_empty() {
            all.push((buffer.name.clone(), buffer.clock.clone(), cpus));
        }
    }
    all
}

/// The facts of a file without the number of CPUs, which stands in its own place in version 6.
pub(crate) fn facts<S: Source>(reader: &Reader<S>) -> Vec<FileOption> {
    reader.facts().filter(|fact| !matches!(fact, FileOption::CpuCount(_))).cloned().collect()
}

/// Whether everything but trace data is the same in two files.
pub(crate) fn same_head<S: Source, T: Source>(one: &Reader<S>, other: &Reader<T>) {
    let header = |endian: Endian, long: u8, page: u32| (endian, long, page);
    let (first, second) = (one.header(), other.header());
    assert_eq!(
        header(first.endian, first.long_size, first.page_size),
        header(second.endian, second.long_size, second.page_size)
    );
    assert_eq!(one.layout(), other.layout());
    assert_eq!(one.cpu_count(), other.cpu_count());
    assert_eq!(facts(one), facts(other));
    assert_eq!(one.kallsyms().unwrap(), other.kallsyms().unwrap());
    let (first, second) = (one.metadata(), other.metadata());
    assert_eq!(first.header_page, second.header_page);
    assert_eq!(first.header_event, second.header_event);
    assert_eq!(first.systems, second.systems);
    assert_eq!(first.cmdlines, second.cmdlines);
    assert_eq!(first.printk, second.printk);
}

/// Converts in memory.
pub(crate) fn converted<S: Source>(reader: &Reader<S>, target: Target) -> (Vec<u8>, Rewritten) {
    let out = Cursor::new(Vec::new());
    let (out, written) = convert(reader, &target, &Selection::default(), out, &mut |_| true).unwrap();
    (out.into_inner(), written)
}

/// A file with buffers, CPUs and records by chance.
pub(crate) fn random_file(chance: &mut Chance, compression: Compression) -> Vec<u8> {
    let endian = chance.pick(&[Endian::Little, Endian::Big]);
    let setup = Setup { endian, page_size: chance.pick(&[4096, 8192]), compression };
    let mut writer = start(setup);
    for option in options() {
        writer.option(&option).unwrap();
    }
    for (buffer, name) in
        chance.pick(&[&[""][..], &["", "one"], &["", "one", "two", "one"]]).iter().enumerate()
    {
        let page_size = setup.page_size;
        let mut out = writer.begin_buffer(Buffer { name, clock: "mono", page_size }).unwrap();
        for number in [0, 1, 5].into_iter().take(chance.below(4) as usize) {
            let (pages, _) = cpu(chance, setup, page_size, buffer, number);
            out.write_cpu(number, pages.as_slice()).unwrap();
        }
        out.finish().unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// What is saved of these bytes: a file and what is told of it.
pub(crate) fn repaired(bytes: &[u8]) -> Result<(Vec<u8>, Rewritten), String> {
    let (reader, notes) = Reader::open_damaged(bytes).map_err(|error: ReadError| error.to_string())?;
    match repair(&reader, notes, None, Cursor::new(Vec::new()), &mut |_| true) {
        Ok((out, written)) => Ok((out.into_inner(), written)),
        Err(RewriteError::Nothing(reason)) => Err(reason),
        Err(error) => panic!("neither saved nor nothing to save: {error}"),
    }
}

/// What stock trace-cmd makes of a file: its exit code, and how many events it shows.
pub(crate) fn stock(path: &Path) -> (Option<i32>, usize) {
    let output =
        Command::new("trace-cmd").args(["report", "-R", "-i", path.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let is_event = |line: &&str| {
        !(line.starts_with("version")
            || line.starts_with("cpus=")
            || line.starts_with("CPU")
            || line.trim().is_empty())
    };
    (output.status.code(), text.lines().filter(is_event).count())
}
