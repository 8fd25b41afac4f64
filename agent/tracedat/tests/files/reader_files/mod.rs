//! Bytes for the reader's tests: a generator of chances, and files that our writer does not write.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::ControlFlow;

use ftrace_event::{Cmdlines, Endian};
use tracedat::page::{PageBuilder, Push};
use tracedat::reader::{CpuRecords, Next, ReadError, Reader, Record, Records, Source, each_record_ahead};
use tracedat::{EventSystem, FileOption, OptionId, Section, Setup, Writer, layout};

/// A small generator (xorshift64*): tests that fail must fail again.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A record with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) buffer: usize,
    pub(crate) cpu: u32,
    pub(crate) timestamp: u64,
    pub(crate) missed: Option<u64>,
    pub(crate) data: Vec<u8>,
}

impl From<Record<'_>> for Kept {
    fn from(record: Record<'_>) -> Self {
        let Record { reader: _, buffer, cpu, timestamp, missed, data, endian: _ } = record;
        Self { buffer, cpu, timestamp, missed, data: data.to_vec() }
    }
}

pub(crate) fn forwards(records: &mut Records<'_>) -> Vec<Kept> {
    let mut kept = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        kept.push(record.into());
    }
    kept
}

pub(crate) fn backwards(records: &mut Records<'_>) -> Vec<Kept> {
    let mut kept = Vec::new();
    while let Some(record) = records.prev_record().unwrap() {
        kept.push(record.into());
    }
    kept.reverse();
    kept
}

pub(crate) fn cpu_forwards(records: &mut CpuRecords<'_>) -> Vec<Kept> {
    let mut kept = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        kept.push(record.into());
    }
    kept
}

/// Asks a file for everything that a reader can be asked for. Returns how many records came.
pub(crate) fn read_everything<S: Source>(source: S) -> Result<u64, ReadError> {
    let reader = Reader::open(source)?;
    let mut count = 0;
    let _ = reader.kallsyms();
    let _ = reader.buffer_text("");
    for section in reader.sections() {
        let _ = reader.section_bytes(section);
    }
    let _ = reader.metadata().events().count();
    for (index, buffer) in reader.buffers().iter().enumerate() {
        let counts = reader.count(index);
        for cpu in &buffer.cpus {
            let Ok(mut records) = reader.cpu_records(index, cpu.cpu) else { continue };
            let (mut found, mut errors) = (0, 0);
            loop {
                match records.next_record() {
                    Ok(Some(_)) => found += 1,
                    Ok(None) => break,
                    Err(_) => errors += 1,
                }
            }
            assert!(errors <= counts.cpus.iter().map(|cpu| cpu.pages + 1).sum::<u64>());
            let at = counts.cpus.iter().position(|counts| counts.cpu == cpu.cpu);
            assert_eq!(at.map(|at| counts.cpus[at].events), Some(found));
        }
    }
    let mut records = reader.records()?;
    let mut middle = 0;
    let mut forwards = Vec::new();
    loop {
        match records.next_record() {
            Ok(Some(record)) => {
                count += 1;
                if count == 20 {
                    middle = record.timestamp;
                }
                forwards.push(Some((record.timestamp, record.cpu, record.missed, record.data.to_vec())));
            }
            Ok(None) => break,
            Err(_) => forwards.push(None),
        }
    }
    let (mut ahead, mut gaps) = (Vec::new(), BTreeSet::new());
    let all = |record: &Record<'_>| record.data.len();
    each_record_ahead(&mut reader.records()?, all, |next| {
        match next {
            Next::Record(record) => {
                // A loss is known before the first record behind it.
                let is_behind_gap = gaps.remove(&(record.reader, record.buffer, record.cpu));
                assert!(is_behind_gap || record.missed.is_none(), "{record:?}");
                ahead.push(Some((record.timestamp, record.cpu, record.missed, record.data.to_vec())));
            }
            Next::End(_) => {}
            Next::Gap(gap) => drop(gaps.insert((gap.reader, gap.buffer, gap.cpu))),
            Next::Damage(_) => ahead.push(None),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ahead, forwards);
    let mut back = 0;
    loop {
        match records.prev_record() {
            Ok(Some(_)) => back += 1,
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert_eq!(back, count);
    records.seek(middle);
    let _ = records.next_record();
    Ok(count)
}

/// The only event.
pub(crate) const FORMAT: &str = "name: x\nID: 9\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
    \tfield:u32 value;\toffset:4;\tsize:4;\tsigned:0;\n\nprint fmt: \"%u\", REC->value\n";

/// A CPU's pages and the records that are on them.
pub(crate) fn cpu(
    chance: &mut Chance,
    setup: Setup,
    page_size: u32,
    buffer: usize,
    cpu: u32,
) -> (Vec<u8>, Vec<Kept>) {
    let mut builder = PageBuilder::new(page_size as usize, setup.endian).unwrap();
    let (mut pages, mut records) = (Vec::new(), Vec::new());
    let mut timestamp = chance.below(1 << 40);
    let mut missed = None;
    for _ in 0..chance.pick(&[0, 1, 50, 700]) {
        timestamp += match chance.below(20) {
            0 => chance.below(1 << 35),
            1 => (1 << 27) - chance.below(2),
            2 => 0,
            _ => chance.below(5000),
        };
        if chance.below(100) == 0 {
            let lost = chance.pick(&[0, 1, 12345]);
            builder.missed(lost);
            missed = Some(lost);
        }
        let len = match chance.below(30) {
            0 => chance.below(page_size as u64 - 24) + 1,
            _ => chance.below(140) + 1,
        };
        let mut data = chance.bytes(len as usize);
        while builder.push(timestamp, &data).unwrap() == Push::Full {
            pages.extend_from_slice(builder.finish().unwrap());
        }
        data.resize(data.len().next_multiple_of(4), 0);
        records.push(Kept { buffer, cpu, timestamp, missed: missed.take(), data });
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    (pages, records)
}

/// A file with its metadata.
pub(crate) fn start(setup: Setup) -> Writer<Cursor<Vec<u8>>> {
    let endian = setup.endian;
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    let header_page = layout::header_page_text(setup.page_size);
    writer.section(Section::header_info(endian, &header_page, "the event").unwrap()).unwrap();
    let systems = [EventSystem { name: "demo", formats: &[FORMAT] }];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.section(Section::kallsyms(endian, b"ff T symbol\n").unwrap()).unwrap();
    writer.section(Section::printk(endian, b"0xff : \"hi\"\n").unwrap()).unwrap();
    let tasks: Cmdlines = [(1, "init"), (42, "two words")].into_iter().collect();
    writer.section(Section::cmdlines(endian, &tasks)).unwrap();
    writer
}

/// Its facts.
pub(crate) fn options() -> Vec<FileOption> {
    vec![
        FileOption::TraceClock("[mono]".into()),
        FileOption::Uname("Linux".into()),
        FileOption::CpuStat("CPU: 0\n".into()),
        FileOption::TraceId(77),
        FileOption::Unknown { id: OptionId(0x5441), bytes: b"{}\0".to_vec() },
    ]
}

/// A file of version 6 with these pages of CPUs 0.., for kernels with longs of 4 or 8 bytes.
pub(crate) fn version_6(endian: Endian, long: u8, formats: &[(&str, &[&str])], cpus: &[Vec<u8>]) -> Vec<u8> {
    let header_page = layout::header_page_text(4096);
    let header_page = if long == 4 {
        let text = header_page.replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4");
        text.replace("offset:16;\tsize:4080", "offset:12;\tsize:4084")
    } else {
        header_page
    };
    let mut file = layout::MAGIC.to_vec();
    file.extend_from_slice(b"6\0");
    file.extend_from_slice(&[endian.header_byte(), long]);
    file.extend_from_slice(&endian.u32(4096));
    let sized = |file: &mut Vec<u8>, text: &str| {
        file.extend_from_slice(&endian.u64(text.len() as u64));
        file.extend_from_slice(text.as_bytes());
    };
    file.extend_from_slice(b"header_page\0");
    sized(&mut file, &header_page);
    file.extend_from_slice(b"header_event\0");
    sized(&mut file, "");
    file.extend_from_slice(&endian.u32(0));
    file.extend_from_slice(&endian.u32(formats.len() as u32));
    for (system, formats) in formats {
        file.extend_from_slice(system.as_bytes());
        file.push(0);
        file.extend_from_slice(&endian.u32(formats.len() as u32));
        formats.iter().for_each(|format| sized(&mut file, format));
    }
    for text in ["ffffffff81000000 T first\n", "0xff : \"x\"\n"] {
        file.extend_from_slice(&endian.u32(text.len() as u32));
        file.extend_from_slice(text.as_bytes());
    }
    sized(&mut file, "42 worker\n");
    file.extend_from_slice(&endian.u32(cpus.len() as u32));
    file.extend_from_slice(b"options  \0");
    for (id, bytes) in [(4u16, b"local [mono]\0".as_slice()), (5, b"Linux\0"), (7, b"1000\0")] {
        file.extend_from_slice(&endian.u16(id));
        file.extend_from_slice(&endian.u32(bytes.len() as u32));
        file.extend_from_slice(bytes);
    }
    file.extend_from_slice(&endian.u16(0));
    file.extend_from_slice(b"flyrecord\0");
    let mut at = (file.len() + cpus.len() * 16).next_multiple_of(4096);
    for pages in cpus {
        file.extend_from_slice(&endian.u64(at as u64));
        file.extend_from_slice(&endian.u64(pages.len() as u64));
        at += pages.len();
    }
    for pages in cpus {
        file.resize(file.len().next_multiple_of(4096), 0);
        file.extend_from_slice(pages);
    }
    file
}

/// A page of this time with records of 4 bytes, each with its distance from the one before. `long` is the
/// size of the commit word.
pub(crate) fn page(
    endian: Endian,
    long: u8,
    time: u64,
    missed: Option<u64>,
    records: &[(u32, u32)],
) -> Vec<u8> {
    let mut data = Vec::new();
    for (delta, value) in records {
        let header = match endian {
            Endian::Little => 1 | delta << 5,
            Endian::Big => 1 << 27 | delta,
        };
        data.extend_from_slice(&endian.u32(header));
        data.extend_from_slice(&endian.u32(*value));
    }
    let number = |value: u64| match long {
        4 => endian.u32(value as u32).to_vec(),
        _ => endian.u64(value).to_vec(),
    };
    let flags = missed.map_or(0, |_| 3u64 << 30);
    let mut page = endian.u64(time).to_vec();
    page.extend_from_slice(&number(data.len() as u64 | flags));
    page.extend_from_slice(&data);
    page.extend(missed.iter().flat_map(|missed| number(*missed)));
    page.resize(4096, 0);
    page
}
