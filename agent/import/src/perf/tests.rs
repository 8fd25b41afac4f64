//! Made-up recordings, for what perf does not make on every machine: the other byte order, counts in samples,
//! hardware traces, damage.

use std::io::Cursor;

use super::super::read_back::lines;
use super::super::{Imported, Options, Target, import, import_to};
use super::*;
use ftrace_event::Endian;
use stdx::output::Directory;
use tracedat::Uname;
use tracedat::ledger::Ledger;
use tracedat::reader::Reader;

const HELLO: &str = "name: hello\nID: 300\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned int n;\toffset:8;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"n=%u\", REC->n\n";

/// IP, TID, TIME, READ, CALLCHAIN, CPU, PERIOD, RAW, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 16 | 32 | 128 | 256 | 1024 | 65536;

/// Enabled and running time, id, group, lost.
const READ_FORMAT: u64 = 31;

#[derive(Clone, Copy)]
struct Maker(Endian);

impl Maker {
    fn u32s(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| self.0.u32(*value)).collect()
    }

    fn u64s(self, values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| self.0.u64(*value)).collect()
    }

    fn record(self, kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(body.len() + 8).unwrap();
        [&self.0.u32(kind), self.0.u16(misc).as_slice(), &self.0.u16(size), body].concat()
    }

    /// An attribute of 128 bytes.
    fn attr(self, kind: u32, config: u64) -> Vec<u8> {
        let bit = |bit: u32| 1_u64 << if self.0 == Endian::Little { bit } else { 63 - bit };
        let flags = bit(18) | bit(25);
        let first = [self.u32s(&[kind, 128]), self.u64s(&[config, 1, SAMPLE_TYPE, READ_FORMAT, flags])];
        let mut attr = first.concat();
        attr.resize(92, 0);
        attr.extend(self.u32s(&[1]));
        attr.resize(128, 0);
        attr
    }

    fn sample(self, id: u64, time: u64, cpu: u32, n: u32, chain: &[u64]) -> Vec<u8> {
        let raw = [self.0.u16(0xffff).as_slice(), &[1, 2], &self.u32s(&[77, n])].concat();
        let body = [
            self.u64s(&[id, 0xffff_0000]),
            self.u32s(&[70, 77]),
            self.u64s(&[time]),
            self.u32s(&[cpu, 0]),
            self.u64s(&[1]),
            // A group of two counts, each with its id and its losses.
            self.u64s(&[2, 10, 10, 1, id, 0, 2, id + 1, 0]),
            self.u64s(&[chain.len() as u64]),
            self.u64s(chain),
            self.u32s(&[raw.len() as u32 + 4]),
            raw,
            vec![0xee; 4],
        ];
        self.record(9, 0, &body.concat())
    }

    /// What records that are no samples end with.
    fn end(self, id: u64, time: u64, cpu: u32) -> Vec<u8> {
        [self.u32s(&[70, 77]), self.u64s(&[time]), self.u32s(&[cpu, 0]), self.u64s(&[id])].concat()
    }

    fn tracing_data(self) -> Vec<u8> {
        let long = |text: &str| [&self.0.u64(text.len() as u64), text.as_bytes()].concat();
        let symbols = "ffffffff81000000 T start\n";
        [
            b"\x17\x08\x44tracing0.6\0".to_vec(),
            vec![self.0.header_byte(), 8],
            self.u32s(&[4096]),
            [b"header_page\0".to_vec(), long("page")].concat(),
            [b"header_event\0".to_vec(), long("event")].concat(),
            self.u32s(&[0, 1]),
            b"demo\0".to_vec(),
            self.u32s(&[1]),
            long(HELLO),
            [self.u32s(&[symbols.len() as u32]), symbols.as_bytes().to_vec()].concat(),
            self.u32s(&[0]),
            long("5 five\n"),
        ]
        .concat()
    }

    fn text(self, text: &str) -> Vec<u8> {
        let mut bytes = self.u32s(&[64]);
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(68, 0);
        bytes
    }

    /// Features by number.
    fn features(self) -> Vec<(u32, Vec<u8>)> {
        vec![
            (3, self.text("host")),
            (4, self.text("6.1.0")),
            (5, self.text("6.1.9")),
            (6, self.text("s390x")),
            (7, self.u32s(&[2, 4])),
            (29, [self.u32s(&[1, 1]), self.u64s(&[5_000_000, 1_000_000])].concat()),
        ]
    }

    fn records(self) -> Vec<Vec<u8>> {
        let kernel = (-128_i64).cast_unsigned();
        let user = (-512_i64).cast_unsigned();
        let comm = [self.u32s(&[70, 77]), b"worker\0\0".to_vec(), self.end(7, 1, 0)].concat();
        let fork = [self.u32s(&[70, 70, 78, 77]), self.u64s(&[5])].concat();
        vec![
            self.record(
                69,
                0,
                &[self.u64s(&[2]), self.u64s(&[7, 0, 0, 0]), self.u64s(&[8, 1, 1, 0])].concat(),
            ),
            self.record(3, 0, &comm),
            self.record(7, 0, &[fork, self.end(7, 5, 0)].concat()),
            self.sample(7, 2000, 0, 2, &[kernel, 0xffff_ffff_8100_0010, user, 0x40_0000]),
            // What was lost is told when the next sample has room.
            self.record(2, 0, &[self.u64s(&[8, 3]), self.end(8, 1500, 1)].concat()),
            self.sample(8, 1500, 1, 3, &[]),
            self.record(68, 0, &[]),
            self.sample(7, 1000, 0, 1, &[]),
            // Of an event that is no tracepoint, and of none.
            self.sample(9, 1001, 0, 9, &[]),
            self.sample(10, 1002, 0, 9, &[]),
            // Losses by the counts at the end, with the wrong CPU; those that a filter left out are none.
            self.record(13, 0, &[self.u64s(&[5]), self.end(8, 0, 0)].concat()),
            self.record(13, 1 << 15, &[self.u64s(&[500]), self.end(8, 0, 0)].concat()),
        ]
    }

    fn file(self, records: &[u8]) -> Vec<u8> {
        let mut features = self.features();
        features.insert(0, (1, self.tracing_data()));
        self.file_with(records, &features)
    }

    fn file_with(self, records: &[u8], features: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut flags = [0_u64; 4];
        for (number, _) in features {
            flags[*number as usize / 64] |= 1 << (number % 64);
        }
        let ids = self.u64s(&[7, 8, 9]);
        let (ids_at, attrs_at) = (104, 104 + ids.len() as u64);
        let attrs = [
            [self.attr(2, 300), self.u64s(&[ids_at, 16])].concat(),
            [self.attr(1, 9), self.u64s(&[ids_at + 16, 8])].concat(),
        ]
        .concat();
        let data_at = attrs_at + attrs.len() as u64;
        let mut at = data_at + (records.len() + features.len() * 16) as u64;
        let (mut table, mut sections) = (Vec::new(), Vec::new());
        for (_, bytes) in features {
            table.extend(self.u64s(&[at, bytes.len() as u64]));
            at += bytes.len() as u64;
            sections.extend_from_slice(bytes);
        }
        let header = [self.magic(), self.u64s(&[104, 144, attrs_at, attrs.len() as u64])].concat();
        let header = [header, self.u64s(&[data_at, records.len() as u64, 0, 0]), self.u64s(&flags)].concat();
        [header, ids, attrs, records.to_vec(), table, sections].concat()
    }

    fn stream(self, records: &[u8]) -> Vec<u8> {
        let mut bytes = [self.magic(), self.u64s(&[16])].concat();
        bytes.extend(self.record(64, 0, &[self.attr(2, 300), self.u64s(&[7, 8])].concat()));
        bytes.extend(self.record(64, 0, &[self.attr(1, 9), self.u64s(&[9])].concat()));
        for (number, feature) in self.features() {
            bytes.extend(self.record(80, 0, &[self.u64s(&[number.into()]), feature].concat()));
        }
        let mut formats = self.tracing_data();
        formats.resize(formats.len().next_multiple_of(8), 0);
        bytes.extend(self.record(66, 0, &self.u32s(&[formats.len() as u32, 0])));
        bytes.extend(formats);
        bytes.extend_from_slice(records);
        bytes
    }

    fn magic(self) -> Vec<u8> {
        self.u64s(&[u64::from_le_bytes(*b"PERFILE2")])
    }
}

/// What importing these bytes gives.
fn imported(bytes: &[u8], options: Options) -> Result<(Reader<Vec<u8>>, Imported), ImportError> {
    let temp = tempfile::tempdir().unwrap();
    let dir = Directory::open(temp.path()).unwrap();
    let mut source = PerfData::open(Box::new(bytes.to_vec()))?;
    let (out, imported) = import_to(&mut source, Cursor::new(Vec::new()), &dir, options, &mut |_| true)?;
    Ok((Reader::open(out.into_inner()).unwrap(), imported))
}

const EXPECTED: [&str; 4] = [
    "0 0 1000 demo:hello n=1",
    "0 1 1500 demo:hello n=3 after 3 lost",
    "0 0 2000 demo:hello n=2",
    "0 0 2000 ftrace:kernel_stack <stack trace>\n => 0xffffffff81000010",
];

#[track_caller]
fn check(bytes: &[u8]) {
    let (reader, imported) = imported(bytes, Options::default()).unwrap();
    let found: Vec<_> = lines(&reader).iter().map(|line| line.trim_end().to_owned()).collect();
    assert_eq!(found, EXPECTED);
    assert_eq!((imported.events, imported.lost, imported.lost_unknown), (4, 5, false));
    let not_carried: Vec<_> = imported.not_carried.iter().collect();
    assert_eq!(
        not_carried,
        [
            ("call chains of user space", 1),
            ("samples of events that are no tracepoints", 1),
            ("samples with an id that no event has", 1),
        ]
    );
    let state = reader.initial_state().unwrap().unwrap();
    let processes: Vec<_> = state.threads.iter().map(|thread| (thread.tid, thread.tgid)).collect();
    assert_eq!(processes, [(70, 70), (77, 70), (78, 70)]);
    let tasks: Vec<_> = reader.metadata().cmdlines.iter().map(|(pid, name)| (pid, name.to_vec())).collect();
    assert_eq!(tasks, [(5, b"five".to_vec()), (77, b"worker".to_vec()), (78, b"worker".to_vec())]);
    let ledger = Ledger::of(&reader).unwrap();
    assert_eq!((ledger.clock.as_deref(), ledger.realtime_offset_ns), (Some("mono"), Some(4_000_000)));
    assert_eq!(ledger.sum(|cpu| Some(cpu.lost.total())), 5);
    // Readers see all of them: those without a mark are behind the last records.
    let mut records = reader.records().unwrap();
    let mut marked = 0;
    while let Some(record) = records.next_record().unwrap() {
        marked += record.missed.unwrap_or(0);
    }
    let behind: u64 = records.lost_behind().filter_map(|end| end.missed).sum();
    assert_eq!((marked, behind), (3, 2));
    let uname = Uname::of(reader.facts()).unwrap();
    assert_eq!(
        (uname.node.as_str(), uname.release.as_str(), uname.machine.as_str()),
        ("host", "6.1.0", "s390x")
    );
    assert_eq!(reader.cpu_count(), 4);
    assert_eq!(reader.kallsyms().unwrap(), b"ffffffff81000000 T start\n");
}

#[test]
fn files_and_streams_of_both_byte_orders() {
    for endian in [Endian::Little, Endian::Big] {
        let maker = Maker(endian);
        let records = maker.records().concat();
        check(&maker.file(&records));
        check(&maker.stream(&records));
        // Compressed in pieces that end anywhere.
        let packed = zstd::bulk::compress(&records, 1).unwrap();
        let pieces: Vec<_> = packed.chunks(50).map(|piece| maker.record(81, 0, piece)).collect();
        check(&maker.file(&pieces.concat()));
        let pieces = packed.chunks(77).map(|piece| {
            let body = [maker.u64s(&[piece.len() as u64]), piece.to_vec(), vec![0; 3]].concat();
            maker.record(83, 0, &body)
        });
        check(&maker.stream(&pieces.collect::<Vec<_>>().concat()));
    }
}

/// The name of thread 77 and of 78, which it has made, by records in this order.
fn names(records: &[Vec<u8>]) -> Vec<(u32, Vec<u8>)> {
    let maker = Maker(Endian::Little);
    let (reader, _) = imported(&maker.file(&records.concat()), Options::default()).unwrap();
    let cmdlines = &reader.metadata().cmdlines;
    cmdlines.iter().filter(|(tid, _)| *tid != 5).map(|(tid, name)| (tid, name.to_vec())).collect()
}

#[test]
fn the_last_name_of_a_thread_is_that_of_the_latest_time() {
    let maker = Maker(Endian::Little);
    let named = |name: &[u8; 8], time: u64| {
        let body = [maker.u32s(&[70, 77]), name.to_vec(), maker.end(7, time, 0)];
        maker.record(3, 0, &body.concat())
    };
    let fork = [maker.u32s(&[70, 70, 78, 77]), maker.u64s(&[150]), maker.end(7, 150, 1)];
    let fork = maker.record(7, 0, &fork.concat());
    let sample = maker.sample(7, 1000, 0, 1, &[]);
    let (shell, run) = (named(b"shell\0\0\0", 100), named(b"runner\0\0", 200));
    let expected = [(77, b"runner".to_vec()), (78, b"shell".to_vec())];
    for order in [
        [&shell, &fork, &run, &sample],
        [&run, &fork, &shell, &sample],
        [&sample, &run, &shell, &fork],
        [&fork, &run, &sample, &shell],
    ] {
        assert_eq!(names(&order.map(Clone::clone)), expected);
    }
    // Names from before the recording have no time of their own.
    assert_eq!(names(&[run, named(b"before\0\0", 0), sample])[0], (77, b"runner".to_vec()));
}

/// A record of simpleperf's, whose size has 32 bits.
fn of_simpleperf(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len() + 8).unwrap();
    let maker = Maker(Endian::Little);
    let half = |half: u32| u16::try_from(half & 0xffff).unwrap().to_le_bytes();
    [maker.u32s(&[kind]), half(size >> 16).to_vec(), half(size).to_vec(), body.to_vec()].concat()
}

#[test]
fn simpleperf_describes_events_in_records_of_its_own() {
    let maker = Maker(Endian::Little);
    let descriptions = maker.tracing_data();
    let counted = |bytes: &[u8]| [maker.u32s(&[bytes.len() as u32]), bytes.to_vec(), vec![0; 40]].concat();
    let tracing = of_simpleperf(32777, &counted(&descriptions));
    let symbols = of_simpleperf(32769, &counted(b"ffffffff81000000 T other\n"));
    let long = of_simpleperf(32769, &counted(&b"ffffffff81000000 T other\n".repeat(5000)));
    let pieces = |record: &[u8], len: usize| {
        let pieces = record.chunks(len).map(|piece| of_simpleperf(32772, piece));
        pieces.chain([of_simpleperf(32773, &[])]).collect::<Vec<_>>().concat()
    };
    // An id that came while it recorded, of the first attribute.
    let id = of_simpleperf(32774, &maker.u64s(&[1, 0, 99]));
    let samples = [maker.sample(7, 1000, 0, 1, &[]), maker.sample(99, 2000, 0, 2, &[])].concat();
    let file = |records: Vec<Vec<u8>>| {
        let features = [(129, b"simpleperf_version\x001.2\0clockid\0monotonic\0".to_vec())];
        maker.file_with(&records.concat(), &features)
    };
    for (records, symbols_len) in [
        (vec![tracing.clone(), symbols.clone(), id.clone(), samples.clone()], 25),
        (vec![pieces(&tracing, 100), symbols, id.clone(), samples.clone()], 25),
        (vec![tracing.clone(), long.clone(), id.clone(), samples.clone()], 25 * 5000),
        (vec![tracing.clone(), pieces(&long, 60_000), id.clone(), samples.clone()], 25 * 5000),
    ] {
        let (reader, imported) = imported(&file(records), Options::default()).unwrap();
        let found: Vec<_> = lines(&reader).iter().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(found, ["0 0 1000 demo:hello n=1", "0 0 2000 demo:hello n=2"]);
        assert_eq!((imported.events, imported.not_carried.iter().count()), (2, 0));
        assert_eq!(reader.kallsyms().unwrap().len(), symbols_len);
    }
    for damaged in [
        of_simpleperf(32773, &[]),
        [of_simpleperf(32772, &tracing[..50]), of_simpleperf(32773, &[])].concat(),
        of_simpleperf(32777, &maker.u32s(&[1000])),
        pieces(&of_simpleperf(32773, &[]), 8),
    ] {
        let result = imported(&file(vec![tracing.clone(), damaged, samples.clone()]), Options::default());
        assert!(matches!(result, Err(ImportError::Damaged { .. })));
    }
}

#[test]
fn times_of_day_on_request() {
    let maker = Maker(Endian::Little);
    let options = Options { date: true, ..Options::default() };
    let (reader, _) = imported(&maker.file(&maker.records().concat()), options).unwrap();
    assert_eq!(lines(&reader)[0], "0 0 4001000 demo:hello n=1");
}

#[test]
fn hardware_traces_are_skipped() {
    let maker = Maker(Endian::Little);
    let mut records = maker.records();
    let aux = [maker.record(71, 0, &maker.u64s(&[600_000, 0, 0, 0, 0])), vec![0x55; 600_000]].concat();
    records.insert(4, aux);
    let (reader, imported) = imported(&maker.file(&records.concat()), Options::default()).unwrap();
    assert_eq!(lines(&reader).len(), 4);
    let bytes = imported.not_carried.iter().find(|(what, _)| what.starts_with("bytes of hardware"));
    assert_eq!(bytes.map(|(_, count)| count), Some(600_000));
}

#[test]
fn files_without_tracepoints_say_so() {
    let maker = Maker(Endian::Little);
    let records = maker.sample(9, 1, 0, 1, &[]);
    let mut bytes = [maker.magic(), maker.u64s(&[16])].concat();
    bytes.extend(maker.record(64, 0, &[maker.attr(1, 9), maker.u64s(&[9])].concat()));
    bytes.extend(records);
    let error = imported(&bytes, Options::default()).unwrap_err().to_string();
    assert!(error.contains("no tracepoints"), "{error}");
}

#[test]
fn what_is_cut_short_is_an_error_that_says_where() {
    let maker = Maker(Endian::Little);
    let records = maker.records().concat();
    let (file, stream) = (maker.file(&records), maker.stream(&records));
    for len in 0..file.len() {
        let error = imported(&file[..len], Options::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains("byte ") || error.contains("PERFILE2"), "{len}: {error}");
    }
    // A stream may end after any record.
    let mut ends = std::collections::BTreeSet::from([stream.len()]);
    for record in maker.records().iter().rev() {
        ends.insert(ends.first().unwrap() - record.len());
    }
    let first = *ends.first().unwrap();
    for len in 0..=stream.len() {
        let result = imported(&stream[..len], Options::default()).map(drop);
        match result {
            Ok(()) => assert!(ends.contains(&len), "{len}"),
            Err(error) => assert!(!ends.contains(&len), "{len}: {error}"),
        }
        if len >= first {
            let options = Options { keep_going: true, ..Options::default() };
            let (_, imported) = imported(&stream[..len], options).unwrap();
            assert_eq!(
                imported.not_carried.iter().any(|(what, _)| what.contains("byte")),
                !ends.contains(&len)
            );
        }
    }
}

#[test]
fn files_appear_when_they_are_complete() {
    let temp = tempfile::tempdir().unwrap();
    let target = Target { path: temp.path().join("new.dat"), force: false };
    let names = || std::fs::read_dir(temp.path()).unwrap().count();
    let maker = Maker(Endian::Little);
    let bytes = maker.stream(&maker.records().concat());
    let run = |bytes: &[u8], target: &Target, goes_on: bool| {
        let mut source = PerfData::open(Box::new(bytes.to_vec()))?;
        import(&mut source, target, Options::default(), &mut |_| goes_on)
    };
    assert!(matches!(run(&bytes[..bytes.len() - 1], &target, true), Err(ImportError::Damaged { .. })));
    let many = [bytes.clone(), maker.record(68, 0, &[]).repeat(5000)].concat();
    assert!(matches!(run(&many, &target, false), Err(ImportError::Cancelled)));
    assert_eq!(names(), 0, "something is left");
    assert_eq!(run(&bytes, &target, true).unwrap().events, 4);
    assert!(matches!(run(&bytes, &target, true), Err(ImportError::Exists { .. })));
    let imported = run(&bytes, &Target { force: true, ..target.clone() }, true).unwrap();
    assert_eq!(imported.bytes, std::fs::metadata(&target.path).unwrap().len());
    assert_eq!(names(), 1);
}

#[test]
fn damage_never_panics() {
    let maker = Maker(Endian::Little);
    let records = maker.records().concat();
    let packed = zstd::bulk::compress(&records, 1).unwrap();
    for bytes in [maker.file(&records), maker.stream(&records), maker.file(&maker.record(81, 0, &packed))] {
        for at in (0..bytes.len()).step_by(3) {
            for value in [0, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                drop(imported(&damaged, Options::default()));
            }
        }
    }
}

#[test]
fn other_files_are_refused() {
    for (bytes, said) in [
        (b"PERFFILE\x68\0\0\0\0\0\0\0".as_slice(), "before Linux 2.6.32"),
        (b"hello", "PERFILE2"),
        (b"PERFILE2", "ends after 8 bytes"),
        (b"PERFILE2\x20\0\0\0\0\0\0\0", "32 bytes"),
    ] {
        let error = imported(bytes, Options::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let stream = PerfData::stream(&Maker(Endian::Little).file(&[0; 8]), Box::new(std::io::empty()));
    assert!(stream.unwrap_err().to_string().contains("from a pipe"));
}
