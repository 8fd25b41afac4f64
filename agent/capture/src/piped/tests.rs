//! Streams that are made here, whole, cut off and damaged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use super::{
    PipedError, PipedRecording, Scratch, Step, Totals,
    frame::{FrameReader, FrameWriter, Subject},
    spooled, whole,
};
use crate::{Manifest, RecordedChannel, StreamId};
use ftrace_event::Endian;
use report::TraceFile;
use tracedat::initial_state::Host;
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::LiveRecords as _;
use tracedat::{ChunkCompressor, Compression, layout};

const FORMAT: &str = "name: x\nID: 9\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

print fmt: \"%d\", REC->common_pid
";

fn manifest(compression: Compression) -> Manifest {
    Manifest {
        output: PathBuf::from("/nowhere/t.dat"),
        archive: None,
        host: Host { boot_id: "none".into(), ..Host::default() },
        header_page: layout::header_page_text(4096),
        header_event: String::new(),
        ftrace_events: Vec::new(),
        systems: vec![("demo".into(), vec![FORMAT.into()])],
        printk_formats: Vec::new(),
        uname: "Linux".into(),
        trace_clock: "[mono]".into(),
        clock_name: "mono".into(),
        realtime_offset: 5,
        realtime_uncertainty: 1,
        wall_time: false,
        channels: vec![RecordedChannel::default()],
        only: Vec::new(),
        choices: Vec::new(),
        marks_compat: None,
        cpu_count: 3,
        trace_id: 7,
        proc_maps: Vec::new(),
        compression,
        is_assumed: false,
    }
}

fn stream(cpu: u32) -> StreamId {
    StreamId { channel: 0, cpu }
}

/// A chunk of one page with records of these times.
fn chunk(compression: Compression, times: &[u64]) -> Vec<u8> {
    let mut page = PageBuilder::new(4096, Endian::Little).unwrap();
    for time in times {
        let record = [9_u32.to_le_bytes(), 7_u32.to_le_bytes()].concat();
        assert_eq!(page.push(*time, &record).unwrap(), Push::Stored);
    }
    let page = page.finish().unwrap().to_vec();
    ChunkCompressor::new(compression, Endian::Little).unwrap().compress(&page).unwrap().to_vec()
}

/// Frames of a recording, as far as its finished file.
fn begun(compression: Compression, chunks: &[(u32, &[u64])]) -> FrameWriter<Vec<u8>> {
    let mut frames = FrameWriter::begin(Vec::new()).unwrap();
    frames.text(Subject::Manifest, &manifest(compression).encoded().unwrap()).unwrap();
    frames.names([(7, &b"worker"[..])].into_iter()).unwrap();
    for (cpu, times) in chunks {
        frames.data(stream(*cpu), times[0], &chunk(compression, times)).unwrap();
    }
    frames
}

const CHUNKS: [(u32, &[u64]); 4] = [(0, &[10, 40, 70]), (1, &[20, 21, 90]), (2, &[60]), (0, &[80, 81])];

/// The same with an end, of a file that is text around the data of CPU 1.
fn ended(compression: Compression) -> (Vec<u8>, Vec<u8>) {
    let mut frames = begun(compression, &CHUNKS);
    let of_first = chunk(compression, CHUNKS[1].1);
    frames.time(95).unwrap();
    frames.bytes(b"begin").unwrap();
    frames.data_of(stream(1), of_first.len() as u64).unwrap();
    frames.bytes(b"end").unwrap();
    let data = CHUNKS.iter().map(|(_, times)| chunk(compression, times).len() as u64).sum();
    let file = [b"begin", &*of_first, b"end"].concat();
    frames.end(Totals { frames: 0, data, events: 9, file: file.len() as u64 }).unwrap();
    (frames.into_inner(), file)
}

/// The times and CPUs of all records, in the order in which they are given.
fn records(bytes: &[u8]) -> Result<(Vec<(u64, u32)>, Step), PipedError> {
    let mut recording = PipedRecording::open(bytes)?;
    let head = recording.head("test")?;
    let mut found = Vec::new();
    loop {
        let step = recording.read()?;
        let mut records = recording.records(head.reader().clock());
        while let Ok(Some(record)) = records.next_record() {
            found.push((record.timestamp, record.cpu));
        }
        if step != Step::GoesOn {
            return Ok((found, step));
        }
    }
}

const COMPRESSIONS: [Compression; 2] = [Compression::None, Compression::zstd(1)];

#[test]
fn records_are_in_the_order_of_time_over_cpus() {
    for compression in COMPRESSIONS {
        let (found, step) = records(&ended(compression).0).unwrap();
        let times = [(10, 0), (20, 1), (21, 1), (40, 0), (60, 2), (70, 0), (80, 0), (81, 0), (90, 1)];
        assert_eq!(found, times);
        assert!(matches!(step, Step::Ended(Totals { events: 9, .. })), "{step:?}");
    }
}

#[test]
fn a_record_is_given_when_nothing_older_can_come() {
    let mut frames = begun(Compression::None, &CHUNKS[..2]);
    let counted = |bytes: &[u8]| records_known(bytes).len();
    let bytes = frames.out().clone();
    assert_eq!(counted(&bytes), 1, "those from before 20");
    frames.time(30).unwrap();
    assert_eq!(counted(frames.out()), 3, "nothing from before 30 comes");
    frames.data(stream(2), 60, &chunk(Compression::None, &[60])).unwrap();
    assert_eq!(counted(frames.out()), 4, "nothing from before 60 comes");
}

/// The times of the records that are known before the end of these frames is.
fn records_known(bytes: &[u8]) -> Vec<u64> {
    let mut recording = PipedRecording::open(bytes).unwrap();
    let head = recording.head("test").unwrap();
    let mut frames = FrameReader::begin(bytes).unwrap();
    let mut found = Vec::new();
    // The first frame was read.
    frames.next().unwrap();
    while frames.next().unwrap().is_some() {
        assert_eq!(recording.read().unwrap(), Step::GoesOn);
        let mut records = recording.records(head.reader().clock());
        while let Some(record) = records.next_record().unwrap() {
            found.push(record.timestamp);
        }
    }
    found
}

#[test]
fn the_finished_file_is_made_of_its_pieces() {
    for compression in COMPRESSIONS {
        let (bytes, file) = ended(compression);
        let dir = tempfile::tempdir().unwrap();
        let made = whole(&*bytes, Scratch::in_directory(dir.path()).unwrap(), &|| false).unwrap();
        assert!(!made.is_cut_off);
        let mut found = Vec::new();
        std::io::Read::read_to_end(&mut &made.file, &mut found).unwrap();
        assert_eq!(found, file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_was_cut_off_anywhere_has_everything_until_then() {
    for compression in COMPRESSIONS {
        let (bytes, _) = ended(compression);
        let all = records(&bytes).unwrap().0;
        let dir = tempfile::tempdir().unwrap();
        let (mut most, mut made) = (0, 0);
        for len in 0..bytes.len() {
            let part = &bytes[..len];
            match records(part) {
                Ok((found, step)) => {
                    assert_eq!(step, Step::CutOff, "{len}");
                    assert!(found.iter().all(|record| all.contains(record)), "{len}");
                    assert!(found.len() >= most && found.is_sorted(), "{len}");
                    most = found.len();
                }
                Err(PipedError::NotPiped) => assert!(len < 16),
                Err(PipedError::Empty) => assert_eq!(most, 0),
                Err(error) => panic!("{len}: {error}"),
            }
            // Each is a directory and a few files.
            if len % 16 != 0 || most == made {
                continue;
            }
            let file = whole(part, Scratch::in_directory(dir.path()).unwrap(), &|| false).unwrap();
            assert!(file.is_cut_off);
            let file = TraceFile::open("cut", file.file).unwrap();
            let mut stored = file.reader().records().unwrap();
            let mut times = Vec::new();
            while let Some(record) = stored.next_record().unwrap() {
                times.push(record.timestamp);
            }
            assert_eq!(times.len(), most, "{len}");
            made = most;
        }
        assert_eq!((most, made), (9, 9));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn every_changed_byte_is_found() {
    let (bytes, _) = ended(Compression::zstd(1));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        // A length that is too large is the end of the input, as if it had been cut off.
        let found = records(&changed);
        assert!(!matches!(found, Ok((_, Step::Ended(_)))), "byte {at}: {found:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let none = Compression::None;
    let page = chunk(none, &[1]);
    let refused = |fill: &dyn Fn(&mut FrameWriter<Vec<u8>>)| {
        let mut frames = begun(none, &CHUNKS);
        fill(&mut frames);
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::in_directory(dir.path()).unwrap();
        match whole(&*frames.into_inner(), scratch, &|| false) {
            Err(PipedError::Damaged { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    let end = Totals { frames: 0, data: 0, events: 0, file: 5 };
    let texts = [
        refused(&|frames| frames.end(end).unwrap()),
        refused(&|frames| frames.data_of(stream(1), 1).unwrap()),
        refused(&|frames| frames.data_of(stream(9), page.len() as u64).unwrap()),
        refused(&|frames| {
            frames.bytes(b"x").unwrap();
            frames.data(stream(1), 99, &page).unwrap();
        }),
        refused(&|frames| {
            frames.bytes(b"begin").unwrap();
            frames.end(end).unwrap();
        }),
        refused(&|frames| {
            frames.bytes(b"x").unwrap();
            (0..2).for_each(|_| frames.data_of(stream(1), page.len() as u64).unwrap());
        }),
    ];
    assert_eq!(
        texts,
        [
            "there is no finished file",
            "the finished file has other data than those that came",
            "the finished file has other data than those that came",
            "data behind the last of them",
            "not all of the finished file is here",
            "the finished file has other data than those that came",
        ]
    );
}

#[test]
fn pages_that_wait_for_others_are_limited() {
    // All of one moment, so that none is known to be complete.
    let mut frames = begun(Compression::None, &[]);
    let page = chunk(Compression::None, &[5]).repeat(16);
    let before = frames.out().len();
    frames.data(stream(0), 5, &page).unwrap();
    let frame = frames.out()[before..].to_vec();
    let begin = frames.into_inner();
    let endless = std::io::Read::chain(&*begin, Endless { frame, at: 0 });
    let mut recording = PipedRecording::open(endless).unwrap();
    let error = loop {
        match recording.read() {
            Ok(step) => assert_eq!(step, Step::GoesOn),
            Err(error) => break error.to_string(),
        }
        assert!(recording.waiting() <= 256 << 20);
    };
    assert!(error.contains("too many pages wait"), "{error}");
}

/// The same bytes again and again.
struct Endless {
    frame: Vec<u8>,
    at: usize,
}

impl std::io::Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.frame[self.at..];
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        self.at = (self.at + len) % self.frame.len();
        Ok(len)
    }
}

#[test]
fn what_is_stored_meanwhile_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = || Scratch::in_directory(dir.path()).unwrap().limit(5);
    assert_eq!(spooled(&b"12345"[..], scratch()).unwrap().metadata().unwrap().len(), 5);
    let error = spooled(&b"123456"[..], scratch()).unwrap_err();
    assert!(matches!(error, PipedError::TooLarge { limit: 5, .. }), "{error}");
    assert!(matches!(
        whole(&*ended(COMPRESSIONS[0]).0, scratch(), &|| false),
        Err(PipedError::TooLarge { .. })
    ));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn other_versions_are_told() {
    let (mut bytes, _) = ended(Compression::None);
    bytes[8] = 2;
    assert!(matches!(records(&bytes), Err(PipedError::Version { found: 2 })));
    bytes[0] = 0;
    assert!(matches!(records(&bytes), Err(PipedError::NotPiped)));
}
