//! What both versions of the format have: the header, and what is known of a file once it is open.

use super::super::compress::Codec;
use super::super::layout::{MAGIC, OptionId, SectionId};
use super::super::option::FileOption;
use super::super::page::{LayoutError, PageLayout};
use super::cursor::Cursor;
use super::error::ReadError;
use super::metadata::Metadata;
use super::option::{BufferOption, CpuExtent, OptionEntry, OptionValue};
use ftrace_event::endian::Endian;

/// Largest section that is read as a whole, uncompressed. Kernel symbols, the largest of all, are 5 to 20 MB.
pub(crate) const MAX_SECTION: u64 = 256 << 20;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileHeader {
    /// Version of the format: 6 or 7.
    pub version: u8,
    /// Byte order.
    pub endian: Endian,
    /// Bytes of a `long` of the recording program. For that of the kernel see [`PageLayout`].
    pub long_size: u8,
    /// Page size of the recorded machine.
    pub page_size: u32,
    /// Compression of sections and trace data.
    pub codec: Codec,
    /// The compressor's version, as far as the file has it.
    pub codec_version: String,
}

/// A section, or in version 6 the part of the file that became one later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// What it holds.
    pub id: SectionId,
    /// Where it begins in the file, with its header.
    pub offset: u64,
    /// Bytes in the file after its header.
    pub size: u64,
    /// Whether these are compressed.
    pub compressed: bool,
    /// Bytes of a metadata section when uncompressed; not known of trace data.
    pub plain_size: Option<u64>,
    /// What the file says that it is.
    pub description: Option<String>,
}

/// A buffer: one ring buffer of the recorded machine, with the data of its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferInfo {
    /// Name, empty for the top buffer. A named buffer may come in several parts.
    pub name: String,
    /// Its clock, as the file names it; empty if it does not.
    pub clock: String,
    /// Its pages.
    pub layout: PageLayout,
    /// Whether its data are compressed.
    pub compressed: bool,
    /// Where the data of its CPUs are, by CPU. CPUs without data are left out.
    pub cpus: Vec<CpuExtent>,
}

/// Where bytes are that are read when they are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// A section of version 7, with its header.
    Section(u64),
    /// A plain text of the file.
    Text { at: u64, len: u64 },
}

/// A file once it is open.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) header: FileHeader,
    pub(crate) layout: PageLayout,
    pub(crate) metadata: Metadata,
    pub(crate) options: Vec<OptionEntry>,
    pub(crate) buffers: Vec<BufferInfo>,
    /// How many CPUs the file says that the machine has.
    pub(crate) cpus: u32,
    pub(crate) sections: Vec<SectionInfo>,
    pub(crate) kallsyms: Option<Body>,
    /// Texts of latency tracers.
    pub(crate) texts: Vec<(String, Body)>,
    /// What could not be read, and was left out.
    pub(crate) problems: Vec<ReadError>,
}

impl FileHeader {
    /// Layout: 10 bytes magic, version NUL, u8 byte order, u8 size of long, u32 page size; from version 7 on
    /// compressor name NUL, its version NUL (trace-cmd.dat.v7(5), INITIAL FORMAT).
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, ReadError> {
        let magic = cursor.array::<10>("the file header").map_err(|error| match error {
            ReadError::Short { .. } => ReadError::NotATrace,
            other => other,
        })?;
        if magic != MAGIC {
            return Err(ReadError::NotATrace);
        }
        let version = cursor.c_string("the format version")?;
        let version = match version.as_str() {
            "6" => 6,
            "7" => 7,
            _ => return Err(ReadError::Version { found: version.chars().take(20).collect() }),
        };
        let invalid = |what, offset, expected, found: u32| ReadError::Invalid {
            what,
            offset,
            expected,
            found: found.to_string(),
        };
        let at = cursor.at();
        let order = cursor.u8("the byte order")?;
        let endian = Endian::from_header_byte(order)
            .ok_or_else(|| invalid("the byte order", at, "0 or 1", order.into()))?;
        cursor.set_endian(endian);
        let long_size = cursor.u8("the size of a long")?;
        if !matches!(long_size, 4 | 8) {
            return Err(invalid("the size of a long", at + 1, "4 or 8", long_size.into()));
        }
        let page_size = cursor.u32("the page size")?;
        let mut header =
            Self { version, endian, long_size, page_size, codec: Codec::None, codec_version: String::new() };
        if version >= 7 {
            let name = cursor.c_string("the name of the compression")?;
            header.codec_version = cursor.c_string("the version of the compression")?;
            header.codec = Codec::from_name(&name)
                .ok_or_else(|| ReadError::Compression { name: name.chars().take(40).collect() })?;
        }
        Ok(header)
    }
}

impl BufferInfo {
    /// A buffer as its option describes it, its pages as `layout` unless the option has another size.
    pub(crate) fn new(
        option: &BufferOption,
        layout: PageLayout,
        compressed: bool,
    ) -> Result<Self, ReadError> {
        let BufferOption { offset: _, name, clock, page_size, cpus } = option;
        let layout = match *page_size {
            0 => layout,
            size => layout.with_page_size(size).ok_or(ReadError::Layout {
                source: LayoutError::Field { name: "data", offset: layout.data_at, size },
            })?,
        };
        let mut cpus: Vec<_> = cpus.iter().copied().filter(|extent| extent.size != 0).collect();
        cpus.sort_by_key(|extent| extent.cpu);
        Ok(Self { name: name.clone(), clock: clock.clone(), layout, compressed, cpus })
    }

    /// The data of a CPU.
    pub fn cpu(&self, cpu: u32) -> Option<CpuExtent> {
        let index = self.cpus.binary_search_by_key(&cpu, |extent| extent.cpu).ok()?;
        self.cpus.get(index).copied()
    }
}

/// Data that together are longer than the file must overlap. No recorder does that; who reads them would need
/// more memory than the file's size explains.
pub(crate) fn check_extents(buffers: &[BufferInfo], file_len: u64) -> Result<(), ReadError> {
    let mut total = 0_u64;
    for CpuExtent { cpu: _, offset, size } in buffers.iter().flat_map(|buffer| &buffer.cpus) {
        // A truncated file has less than it says.
        total = total.saturating_add((*size).min(file_len.saturating_sub(*offset)));
        if total > file_len {
            let found = format!("{total} bytes in a file of {file_len}");
            let expected = "the data of different CPUs at different places";
            return Err(ReadError::Invalid { what: "a buffer's data", offset: *offset, expected, found });
        }
    }
    Ok(())
}

/// Tells of data that a truncated file has not.
pub(crate) fn missing_data(buffers: &[BufferInfo], file_len: u64, problems: &mut Vec<ReadError>) {
    for CpuExtent { offset, size, .. } in buffers.iter().flat_map(|buffer| &buffer.cpus) {
        let left = file_len.saturating_sub(*offset);
        if *size > left {
            let what = "the data of a CPU";
            problems.push(ReadError::Short { what, offset: *offset, wanted: *size, left });
        }
    }
}

/// Numbers of CPUs, as the options have them.
pub(crate) fn cpu_count(options: &[OptionEntry]) -> Option<u32> {
    options.iter().rev().find_map(|entry| match &entry.value {
        OptionValue::Fact(FileOption::CpuCount(count)) if entry.id == OptionId::CPUCOUNT => Some(*count),
        _ => None,
    })
}
