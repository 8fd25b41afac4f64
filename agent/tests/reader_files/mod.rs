//! Bytes for the reader's tests: a generator of chances, and files that our writer does not write.

#![allow(dead_code, reason = "each test program uses its part")]

use tracer_agent::tracedat::reader::{CpuRecords, ReadError, Reader, Record, Records, Source};
use tracer_agent::tracedat::{Endian, layout};

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
    loop {
        match records.next_record() {
            Ok(Some(record)) => {
                count += 1;
                if count == 20 {
                    middle = record.timestamp;
                }
            }
            Ok(None) => break,
            Err(_) => {}
        }
    }
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

/// A page of this time with records of 4 bytes, each with its distance from the one before. `long` is the size of the commit
/// word.
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
