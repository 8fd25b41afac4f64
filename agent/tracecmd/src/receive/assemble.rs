//! The file, of what describes it and the data.
//!
//! Both are put one behind the other, with what leads from the one to the other, into something that reads as
//! a file does. Of that the trace file is made as `repair` makes one: what others have sent is checked by
//! what checks damaged files, and what is whole of it is kept.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufWriter},
};

use super::{File, NoFile, lanes::CpuData};
use ftrace_event::Endian;
use stdx::output::{Directory, Output, TempFile};
use tracedat::layout::{MAGIC, SECTION_HEADER_LEN, SectionHeader};
use tracedat::reader::{OptionValue, Reader, Source};
use tracedat::rewrite::repair;
use tracedat::{FileOption, OptionId, SectionId};

/// How many names are tried for a file, of which others may have the first.
const NAMES_MAX: u32 = 10_000;
/// The longest beginning of a file up to its options.
const HEADER_MAX: u64 = 256;
/// Most sections of options, and most options, that are gone through.
const OPTIONS_MAX: usize = 1 << 16;
/// Where the header says the byte order, behind the version.
const ENDIAN_AT: usize = MAGIC.len() + 2;

/// What came of a recorder.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) metadata: fs::File,
    pub(super) cpus: Vec<CpuData>,
    /// Bytes of a page, as the recorder says.
    pub(super) page_size: u32,
}

/// Makes the file `NAME.dat` in the directory, or with a number in its name if there is one.
pub(super) fn make(collected: Collected, dir: &Directory, name: &str) -> Result<File, NoFile> {
    let (reader, notes) = open(collected)?;
    let output = Output::in_directory(dir.clone(), format!("{name}.dat").into())
        .or_else(|_| Output::in_directory(dir.clone(), format!("{name}.new.dat").into()))?;
    let (temp, file) = TempFile::beside(&output)?;
    let out = BufWriter::with_capacity(1 << 20, file);
    let (out, written) = repair(&reader, notes, None, out, &mut |_| true)?;
    let file = out.into_inner().map_err(|error| NoFile::Store(error.into_error()))?;
    let numbered = (2..NAMES_MAX).map(|number| OsString::from(format!("{name}-{number}.dat")));
    let names = std::iter::once(OsString::from(format!("{name}.dat"))).chain(numbered);
    let (place, bytes) = temp.put_in_new_place(&file, names)?;
    let lost = written.lost.iter().map(|loss| {
        format!("CPU {}: {} bytes that came are no pages: {}", loss.cpu, loss.bytes, loss.reason)
    });
    let notes = written.notes.iter().cloned().chain(lost).collect();
    Ok(File { path: place.path(), bytes, events: written.events(), notes })
}

/// Opens both together.
fn open(collected: Collected) -> Result<(Reader<Parts>, Vec<String>), NoFile> {
    let Collected { metadata, cpus, page_size } = collected;
    let len = metadata.metadata().map_err(NoFile::Store)?.len();
    let mut begin = vec![0; len.min(HEADER_MAX) as usize];
    Source::read_exact_at(&metadata, &mut begin, 0).map_err(NoFile::Store)?;
    let endian = if begin.get(ENDIAN_AT) == Some(&1) { Endian::Big } else { Endian::Little };
    let mut parts = Parts::default();
    if begin.get(MAGIC.len()) == Some(&b'6') {
        // A recorder may have sent the names of threads, or not.
        let with_names = tail_v6(endian, len, &cpus);
        parts.add_file(&metadata, len)?;
        parts.add_bytes(with_names);
        parts.add_data(&cpus)?;
        if Reader::open(&parts).is_err() {
            let mut none = Parts::default();
            none.add_file(&metadata, len)?;
            none.add_bytes([&endian.u64(0)[..], &tail_v6(endian, len + 8, &cpus)].concat());
            none.add_data(&cpus)?;
            if Reader::open(&none).is_ok() {
                parts = none;
            }
        }
    } else {
        let alone = Reader::open_damaged(&metadata).ok().map(|(reader, _)| reader);
        let clock = alone.as_ref().and_then(clock).unwrap_or_default();
        let described = alone.as_ref().map(|reader| reader.layout().page_size).filter(|size| *size != 0);
        let data: u64 = cpus.iter().map(|cpu| cpu.len).sum();
        let header = SectionHeader { id: SectionId::FLYRECORD, flags: 0, description: u32::MAX, size: data };
        let unlisted = alone.as_ref().map(unlisted).unwrap_or_default();
        let options = options_v7(endian, (len, &clock, described.unwrap_or(page_size)), &cpus, &unlisted);
        parts.add_file(&metadata, len)?;
        parts.add_bytes(header.encode(endian));
        parts.add_data(&cpus)?;
        let link = endian.u64(parts.len);
        parts.add_bytes(options);
        // Without a place for it the options are found by their looks.
        let link_at = first_options_at(&begin).and_then(|at| last_link(&metadata, endian, (at, len)));
        parts.patch = link_at.map(|at| (at, link));
    }
    Ok(Reader::open_damaged(parts)?)
}

/// The clock that was chosen.
fn clock<S: Source>(reader: &Reader<S>) -> Option<String> {
    reader.facts().find_map(|fact| match fact {
        FileOption::TraceClock(text) => {
            Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()).filter(|name| !name.contains('\0'))
        }
        _ => None,
    })
}

/// Sections that are there, and that no option leads to: the recorder has gone before it sent that.
fn unlisted<S: Source>(reader: &Reader<S>) -> Vec<(SectionId, u64)> {
    let is_listed = |of: SectionId| {
        reader
            .options()
            .iter()
            .any(|entry| matches!(entry.value, OptionValue::Section { id, .. } if id == of))
    };
    let missing = SectionId::METADATA.into_iter().filter(|id| !is_listed(*id));
    missing
        .filter_map(|id| reader.sections().iter().find(|section| section.id == id))
        .map(|section| (section.id, section.offset))
        .collect()
}

/// What follows the names of threads in a file of version 6, which are `len` bytes.
fn tail_v6(endian: Endian, len: u64, cpus: &[CpuData]) -> Vec<u8> {
    let count = cpus.last().map_or(0, |last| last.cpu + 1);
    let mut tail = endian.u32(count).to_vec();
    tail.extend(b"options  \0\0\0flyrecord\0");
    let mut at = len + tail.len() as u64 + 16 * u64::from(count);
    for cpu in 0..count {
        let size = cpus.iter().find(|data| data.cpu == cpu).map_or(0, |data| data.len);
        tail.extend(endian.u64(at));
        tail.extend(endian.u64(size));
        at += size;
    }
    tail
}

/// Options with where the data are, which follow a section header at `at`.
fn options_v7(
    endian: Endian,
    (at, clock, page_size): (u64, &str, u32),
    cpus: &[CpuData],
    unlisted: &[(SectionId, u64)],
) -> Vec<u8> {
    let mut buffer = endian.u64(at).to_vec();
    buffer.push(0);
    buffer.extend(clock.as_bytes());
    buffer.push(0);
    buffer.extend(endian.u32(page_size));
    buffer.extend(endian.u32(cpus.len() as u32));
    let mut data_at = at + SECTION_HEADER_LEN;
    for CpuData { cpu, len, .. } in cpus {
        buffer.extend(endian.u32(*cpu));
        buffer.extend(endian.u64(data_at));
        buffer.extend(endian.u64(*len));
        data_at += len;
    }
    let mut options = Vec::new();
    let mut put = |id: u16, value: &[u8]| {
        options.extend(endian.u16(id));
        options.extend(endian.u32(value.len() as u32));
        options.extend(value);
    };
    for (id, offset) in unlisted {
        put(id.0, &endian.u64(*offset));
    }
    put(OptionId::BUFFER.0, &buffer);
    put(OptionId::DONE.0, &endian.u64(0));
    let size = options.len() as u64;
    let header = SectionHeader { id: SectionId::OPTIONS, flags: 0, description: u32::MAX, size };
    [header.encode(endian), options].concat()
}

/// Where the header says where the options are.
fn first_options_at(begin: &[u8]) -> Option<u64> {
    // Version, byte order, size of long, bytes of a page; the compression's name and version.
    let mut at = ENDIAN_AT + 2 + size_of::<u32>();
    for _ in 0..2 {
        at += begin.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
    }
    Some(at as u64)
}

/// Where the last options say that none follow, or lead to some that are not there: they can lead elsewhere.
fn last_link(file: &fs::File, endian: Endian, (header_at, len): (u64, u64)) -> Option<u64> {
    let bytes = |at: u64| -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        Source::read_exact_at(file, &mut bytes, at).ok()?;
        Some(bytes)
    };
    let mut link_at = header_at;
    let mut seen = 0;
    loop {
        let section = endian.read_u64(bytes(link_at)?);
        let is_there = section != 0 && section.checked_add(SECTION_HEADER_LEN).is_some_and(|end| end <= len);
        if !is_there {
            return Some(link_at);
        }
        let mut at = section + SECTION_HEADER_LEN;
        loop {
            seen += 1;
            let [i0, i1, s0, s1, s2, s3, ..] = bytes(at)?;
            let (id, size) = (endian.read_u16([i0, i1]), endian.read_u32([s0, s1, s2, s3]));
            if seen > OPTIONS_MAX {
                return None;
            }
            at = at.checked_add(6)?;
            if OptionId(id) == OptionId::DONE {
                link_at = at;
                break;
            }
            at = at.checked_add(size.into())?;
        }
    }
}

/// Pieces one behind the other, as one source.
#[derive(Debug, Default)]
struct Parts {
    pieces: Vec<(u64, Part)>,
    len: u64,
    /// A number that is different from that in its piece.
    patch: Option<(u64, [u8; 8])>,
}

#[derive(Debug)]
enum Part {
    File(fs::File),
    Bytes(Vec<u8>),
}

impl Parts {
    fn add_file(&mut self, file: &fs::File, len: u64) -> Result<(), NoFile> {
        self.pieces.push((self.len, Part::File(file.try_clone().map_err(NoFile::Store)?)));
        self.len += len;
        Ok(())
    }

    fn add_data(&mut self, cpus: &[CpuData]) -> Result<(), NoFile> {
        cpus.iter().try_for_each(|CpuData { file, len, .. }| self.add_file(file, *len))
    }

    fn add_bytes(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        self.pieces.push((self.len, Part::Bytes(bytes)));
        self.len += len;
    }

    /// Reads from one piece as much as it has. Gives how much that was.
    fn read_part(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let after = self.pieces.partition_point(|(start, _)| *start <= offset);
        let end = self.pieces.get(after).map_or(self.len, |(start, _)| *start);
        let (start, part) = after
            .checked_sub(1)
            .and_then(|index| self.pieces.get(index))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = left.min(buffer.len());
        let (now, at) = (buffer.get_mut(..len).unwrap_or_default(), offset - start);
        match part {
            Part::File(file) => Source::read_exact_at(file, now, at)?,
            Part::Bytes(bytes) => Source::read_exact_at(&**bytes, now, at)?,
        }
        Ok(len)
    }
}

impl Source for Parts {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_part(buffer.get_mut(done..).unwrap_or_default(), offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => done += len,
            }
        }
        if let Some((at, bytes)) = self.patch {
            for (index, byte) in (at..).zip(bytes) {
                let place = index.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
                if let Some(place) = place.and_then(|place| buffer.get_mut(place)) {
                    *place = byte;
                }
            }
        }
        Ok(())
    }
}
