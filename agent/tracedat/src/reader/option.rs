//! Options of a file that is read.
//!
//! Readers of this format skip what they do not know, and so does this one: an option whose bytes are not
//! what its number promises is kept as [`FileOption::Unknown`] with the bytes as they are.

use std::io;

use super::super::checksum::Checksums;
use super::super::layout::{OptionId, SectionId};
use super::super::option::{FileOption, Guest, GuestCpu, ProcMap, ProcMaps, TimeShift, TimeShiftSample};
use super::cursor::{Cursor, lossy};
use super::error::ReadError;
use super::source::Source;
use ftrace_event::endian::Endian;

/// An option as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionEntry {
    /// Where its data begin in the file.
    pub offset: u64,
    /// Bytes of its data.
    pub size: u64,
    /// Its number.
    pub id: OptionId,
    /// What it says.
    pub value: OptionValue,
}

/// What an option says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionValue {
    /// A fact about the recording, or an option that is not known.
    Fact(FileOption),
    /// Where a section is.
    Section {
        /// Which section.
        id: SectionId,
        /// Offset of its header in the file.
        offset: u64,
    },
    /// A buffer; see [`Reader::buffers`](super::Reader::buffers).
    Buffer(BufferOption),
    /// The text of a latency tracer; see [`Reader::buffer_text`](super::Reader::buffer_text).
    BufferText {
        /// Offset of the section's header in the file.
        offset: u64,
        /// Name of the buffer, empty for the top one.
        name: String,
        /// Its clock.
        clock: String,
    },
    /// Checksums of the file; `None` if they are damaged themselves.
    Checksums(Option<Checksums>),
}

/// Layout of option BUFFER: u64 offset of the trace data's section, name NUL, clock NUL, u32 page size, u32
/// number of CPUs, each u32 CPU, u64 offset, u64 size. In version 6 there is only the offset, of a list of
/// CPUs, and the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferOption {
    /// Offset of the section's header.
    pub offset: u64,
    /// Name, empty for the top buffer.
    pub name: String,
    /// Clock, as the file names it.
    pub clock: String,
    /// Bytes per page.
    pub page_size: u32,
    /// Where the data of the CPUs are. Stock recorders leave out those without data.
    pub cpus: Vec<CpuExtent>,
}

/// Where the data of one CPU are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuExtent {
    /// The CPU.
    pub cpu: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// The bytes of an option, which know where in the file they are.
struct Window<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Source for Window<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.at + self.bytes.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buffer, offset.checked_sub(self.at).ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

/// Parses an option whose data are at `at`. It is more than one for PROCMAPS, which the manual page lets hold
/// several processes.
pub(crate) fn decode(
    id: OptionId,
    at: u64,
    bytes: &[u8],
    endian: Endian,
    version: u8,
) -> Result<Vec<OptionValue>, ReadError> {
    let window = Window { bytes, at };
    let mut cursor = Cursor::new(&window, endian, at, at.saturating_add(bytes.len() as u64));
    Ok(vec![match id {
        OptionId::BUFFER => OptionValue::Buffer(decode_buffer(&mut cursor, version)?),
        OptionId::BUFFER_TEXT => {
            let what = "option BUFFER_TEXT";
            let offset = cursor.u64(what)?;
            OptionValue::BufferText { offset, name: cursor.c_string(what)?, clock: cursor.c_string(what)? }
        }
        OptionId::CHECKSUMS => OptionValue::Checksums(Checksums::decode(bytes, endian)),
        OptionId(16..=21) | OptionId::BTF | OptionId::MODULES if version >= 7 => {
            OptionValue::Section { id: SectionId(id.0), offset: cursor.u64("offset of a section")? }
        }
        _ => return Ok(FileOption::decode(id, bytes, endian).into_iter().map(OptionValue::Fact).collect()),
    }])
}

fn decode_buffer(cursor: &mut Cursor<'_>, version: u8) -> Result<BufferOption, ReadError> {
    let what = "option BUFFER";
    let mut buffer =
        BufferOption { offset: cursor.u64(what)?, name: cursor.c_string(what)?, ..BufferOption::default() };
    if version < 7 {
        return Ok(buffer);
    }
    buffer.clock = cursor.c_string(what)?;
    buffer.page_size = cursor.u32(what)?;
    let count = cursor.u32(what)?;
    for _ in 0..count {
        let extent = CpuExtent { cpu: cursor.u32(what)?, offset: cursor.u64(what)?, size: cursor.u64(what)? };
        buffer.cpus.push(extent);
    }
    Ok(buffer)
}

impl FileOption {
    /// Parses the data of an option, as they follow number and size. The inverse is
    /// [`encode`](Self::encode).
    pub fn decode(id: OptionId, bytes: &[u8], endian: Endian) -> Vec<Self> {
        let text = || text(bytes);
        let known = match id {
            OptionId::DATE => c_integer(bytes).map(|micros| Self::Date { micros }),
            OptionId::OFFSET => c_integer(bytes).map(|nanos| Self::Offset { nanos }),
            OptionId::CPUSTAT => Some(Self::CpuStat(text())),
            OptionId::TRACECLOCK => Some(Self::TraceClock(text())),
            OptionId::UNAME => Some(Self::Uname(text())),
            OptionId::HOOK => Some(Self::Hook(text())),
            OptionId::VERSION => Some(Self::Version(text())),
            OptionId::LAST_BOOT_INFO => text().split_once(':').map(|(buffer, text)| Self::LastBootInfo {
                buffer: buffer.to_owned(),
                text: text.to_owned(),
            }),
            OptionId::PROCMAPS => {
                let processes = proc_maps(&text());
                if let Some(processes) = processes {
                    return processes.into_iter().map(Self::ProcMaps).collect();
                }
                None
            }
            _ => {
                let mut cursor = Cursor::new(&bytes, endian, 0, bytes.len() as u64);
                binary(id, &mut cursor).ok().flatten()
            }
        };
        vec![known.unwrap_or_else(|| Self::Unknown { id, bytes: bytes.to_vec() })]
    }
}

/// Options of numbers. `None` if the number is not known.
fn binary(id: OptionId, cursor: &mut Cursor<'_>) -> Result<Option<FileOption>, ReadError> {
    let what = "an option";
    Ok(Some(match id {
        OptionId::CPUCOUNT => FileOption::CpuCount(cursor.u32(what)?),
        OptionId::TRACEID => FileOption::TraceId(cursor.u64(what)?),
        OptionId::TIME_SHIFT => FileOption::TimeShift(time_shift(cursor)?),
        OptionId::TSC2NSEC => FileOption::Tsc2Nsec {
            mult: cursor.u32(what)?,
            shift: cursor.u32(what)?,
            offset: cursor.u64(what)?,
        },
        OptionId::GUEST => {
            let mut guest =
                Guest { name: cursor.c_string(what)?, trace_id: cursor.u64(what)?, ..Guest::default() };
            for _ in 0..cursor.u32(what)? {
                guest.cpus.push(GuestCpu { cpu: cursor.u32(what)?, pid: cursor.u32(what)? });
            }
            FileOption::Guest(guest)
        }
        _ => return Ok(None),
    }))
}

/// Layout: u64 peer, u32 flags, u32 CPUs; each u32 count, count times, count offsets, count factors (u64
/// each). Behind everything else, in files of later recorders only, the fraction bits of all samples.
fn time_shift(cursor: &mut Cursor<'_>) -> Result<TimeShift, ReadError> {
    let what = "option TIME_SHIFT";
    let mut shift = TimeShift { peer: cursor.u64(what)?, flags: cursor.u32(what)?, cpus: Vec::new() };
    for _ in 0..cursor.u32(what)? {
        let count = cursor.u32(what)?;
        let mut samples = Vec::new();
        for _ in 0..count {
            samples.push(TimeShiftSample { time: cursor.u64(what)?, ..TimeShiftSample::default() });
        }
        for sample in &mut samples {
            sample.offset = cursor.u64(what)?.cast_signed();
        }
        for sample in &mut samples {
            sample.scaling = cursor.u64(what)?;
        }
        shift.cpus.push(samples);
    }
    if cursor.left() > 0 {
        for sample in shift.cpus.iter_mut().flatten() {
            sample.fraction = cursor.u64(what)?;
        }
    }
    Ok(shift)
}

/// The text without the NUL that ends it; there may be more than one, or none.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    lossy(bytes[..end].to_vec())
}

/// A number as C's `strtoll` with base 0 reads it: decimal, or hexadecimal after `0x`, or octal after `0`.
/// What is after it is left alone, and what is too large becomes the largest.
fn c_integer(bytes: &[u8]) -> Option<i64> {
    let text = text(bytes);
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => (16, hexadecimal),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let value = i128::from_str_radix(&digits[..end], radix).unwrap_or(i128::MAX);
    let value = if negative { -value } else { value };
    Some(value.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

/// Lines `pid count name` and, `count` times, `start end path`, numbers hexadecimal. `None` if it is anything
/// else.
fn proc_maps(text: &str) -> Option<Vec<ProcMaps>> {
    let mut processes = Vec::new();
    let mut lines = text.lines().filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        let mut words = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (pid, count) = (u32::try_from(number()?).ok()?, number()?);
        let mut process = ProcMaps { pid, name: unescape(words.next()?), maps: Vec::new() };
        for _ in 0..count {
            let mut words = lines.next()?.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?, 16).ok();
            let (start, end) = (number()?, number()?);
            process.maps.push(ProcMap { start, end, path: unescape(words.next()?) });
        }
        processes.push(process);
    }
    (!processes.is_empty()).then_some(processes)
}

/// Blanks are stored as `\ooo`, as /proc does.
fn unescape(word: &str) -> String {
    ["\t", "\n", "\x0b", "\x0c", "\r", " "].iter().fold(word.to_owned(), |word, blank| {
        let code = format!("\\{:03o}", blank.as_bytes()[0]);
        if word.contains(&code) { word.replace(&code, blank) } else { word }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let sample = |n: u64| TimeShiftSample { time: n, offset: -5, scaling: n + 1, fraction: n + 2 };
        let map = |start: u64, path: &str| ProcMap { start, end: start + 16, path: path.to_owned() };
        let maps = vec![map(4096, "/lib/a b"), map(8192, "/x")];
        let options = [
            FileOption::Date { micros: -7 },
            FileOption::Offset { nanos: i64::MAX },
            FileOption::CpuStat("CPU: 0\nentries: 1\n".into()),
            FileOption::TraceClock("[mono]".into()),
            FileOption::Uname("Linux".into()),
            FileOption::Hook("a,b/c,d".into()),
            FileOption::Version("v".into()),
            FileOption::CpuCount(9),
            FileOption::TraceId(1 << 63),
            FileOption::TimeShift(TimeShift {
                peer: 1,
                flags: 1,
                cpus: vec![vec![sample(1), sample(2)], vec![sample(3)], vec![]],
            }),
            FileOption::Guest(Guest {
                name: "g".into(),
                trace_id: 2,
                cpus: vec![GuestCpu { cpu: 1, pid: 2 }, GuestCpu { cpu: 3, pid: 4 }],
            }),
            FileOption::Tsc2Nsec { mult: 1, shift: 2, offset: 3 },
            FileOption::LastBootInfo { buffer: "b".into(), text: "x:y".into() },
            FileOption::ProcMaps(ProcMaps { pid: 26, name: "a b".into(), maps }),
            FileOption::Unknown { id: OptionId(4000), bytes: vec![1, 0, 0] },
        ];
        for option in options {
            for endian in [Endian::Little, Endian::Big] {
                let bytes = option.encode(endian).unwrap();
                assert_eq!(FileOption::decode(option.id(), &bytes, endian), std::slice::from_ref(&option));
            }
        }
    }

    #[test]
    fn time_shift_without_fractions() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&1u64.to_le_bytes());
        bytes.extend([0u32, 1, 1].iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend([10u64, 20, 30].iter().flat_map(|n| n.to_le_bytes()));
        let sample = TimeShiftSample { time: 10, offset: 20, scaling: 30, fraction: 0 };
        let shift = TimeShift { peer: 1, flags: 0, cpus: vec![vec![sample]] };
        let decoded = FileOption::decode(OptionId::TIME_SHIFT, &bytes, Endian::Little);
        assert_eq!(decoded, [FileOption::TimeShift(shift)]);
    }

    #[test]
    fn damaged_options_are_kept_as_bytes() {
        for (id, bytes) in [
            (OptionId::DATE, b"x\0".as_slice()),
            (OptionId::OFFSET, b""),
            (OptionId::CPUCOUNT, b"\x01"),
            (OptionId::TRACEID, b"1234567"),
            (OptionId::TIME_SHIFT, b"12345678\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            (OptionId::GUEST, b"g\x0012345678\xff\xff\xff\xff"),
            (OptionId::PROCMAPS, b"1a ffff name\n"),
            (OptionId::LAST_BOOT_INFO, b"none\0"),
        ] {
            let unknown = FileOption::Unknown { id, bytes: bytes.to_vec() };
            assert_eq!(FileOption::decode(id, bytes, Endian::Little), [unknown]);
        }
    }

    #[test]
    fn integers_as_c_reads_them() {
        for (text, value) in [
            ("0x10", Some(16)),
            ("-0x10\n", Some(-16)),
            ("010", Some(8)),
            ("0", Some(0)),
            (" 12abc", Some(12)),
            ("+5", Some(5)),
            ("99999999999999999999999999999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999", Some(i64::MIN)),
            ("", None),
            ("-", None),
            ("0x", None),
        ] {
            assert_eq!(c_integer(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn several_processes_in_one_option() {
        let bytes = b"1 1 a\n10 20 /x\n2 0 b\n\0";
        assert_eq!(FileOption::decode(OptionId::PROCMAPS, bytes, Endian::Little).len(), 2);
    }
}
