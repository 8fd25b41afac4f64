//! Numbers of the file format that the writer and a reader share: magic, ids, sizes, the section header.

use std::fmt;

use super::page::PageLayout;
use ftrace_event::endian::{Encoder, Endian};

/// The first ten bytes of every trace.dat file (trace-cmd.dat.v7(5), INITIAL FORMAT).
pub const MAGIC: [u8; 10] = *b"\x17\x08\x44tracing";

/// The file version that is written, as the text that the file holds.
pub const VERSION: &str = "7";

/// Bytes of a `long` on the recorded machine. Pages of 32-bit kernels have a shorter header and are not
/// written.
pub const LONG_SIZE: u8 = 8;

/// Bytes of a section header: u16 id, u16 flags, s32 description, u64 size.
pub const SECTION_HEADER_LEN: u64 = 16;

/// Offset of the u64 size inside a section header.
pub(crate) const SECTION_SIZE_AT: u64 = 8;

/// Section flag: the section's bytes are compressed.
pub const SECTION_COMPRESSED: u16 = 1;

/// Smallest page that can be written. Readers map files by the machine's page, so that smaller ones fail to
/// map.
pub const MIN_PAGE_SIZE: u32 = 4096;

/// Largest page that can be written, as the largest sub-buffer of the kernel's: its write counter has 20 bits
/// (`RB_WRITE_MASK` in `kernel/trace/ring_buffer.c`).
pub const MAX_PAGE_SIZE: u32 = 1 << 20;

/// What the options of version 6 begin with.
pub(crate) const V6_OPTIONS: [u8; 10] = *b"options  \0";

/// What the trace data of version 6 begin with.
pub(crate) const V6_FLYRECORD: [u8; 10] = *b"flyrecord\0";

/// What the text of a latency tracer begins with in version 6.
pub(crate) const V6_LATENCY: [u8; 10] = *b"latency  \0";

/// Most CPUs that version 6 is read or written with: every buffer lists all of them.
pub(crate) const V6_MAX_CPUS: u32 = 1 << 16;

/// Pages per compressed chunk.
///
/// A chunk is what a reader must decompress to reach one page of it. Newer readers forget a chunk with its
/// last page and then decompress it again, so that chunks of thousands of pages read several times slower;
/// below ten pages the compression ratio falls.
pub const CHUNK_PAGES: usize = 16;

/// Whether `size` is a page size that can be written: a power of two, [`MIN_PAGE_SIZE`] to [`MAX_PAGE_SIZE`].
pub const fn is_page_size(size: u32) -> bool {
    size.is_power_of_two() && size >= MIN_PAGE_SIZE && size <= MAX_PAGE_SIZE
}

/// What a section holds. Any number can occur in a file; the ones known here have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionId(pub u16);

impl SectionId {
    /// A list of options.
    pub const OPTIONS: Self = Self(0);
    /// The trace data of one buffer, per CPU.
    pub const FLYRECORD: Self = Self(3);
    /// Descriptions of the sections.
    pub const STRINGS: Self = Self(15);
    /// The layout of a ring buffer page.
    pub const HEADER_INFO: Self = Self(16);
    /// Formats of the events of system `ftrace`.
    pub const FTRACE_EVENTS: Self = Self(17);
    /// Formats of the events of all other systems.
    pub const EVENT_FORMATS: Self = Self(18);
    /// Function names by address.
    pub const KALLSYMS: Self = Self(19);
    /// Format strings of `trace_printk` by address.
    pub const PRINTK: Self = Self(20);
    /// Task names by pid.
    pub const CMDLINES: Self = Self(21);
    /// The text of a latency tracer.
    pub const BUFFER_TEXT: Self = Self(22);
    /// The kernel's BTF, in files of trace-cmd 3.3 and later.
    pub const BTF: Self = Self(23);
    /// The kernel's modules, in files of trace-cmd 3.4 and later.
    pub const MODULES: Self = Self(25);

    /// The six metadata sections, in the order in which they are written.
    pub const METADATA: [Self; 6] = [
        Self::HEADER_INFO,
        Self::FTRACE_EVENTS,
        Self::EVENT_FORMATS,
        Self::KALLSYMS,
        Self::PRINTK,
        Self::CMDLINES,
    ];

    /// The description that the writer stores for a section of this kind.
    pub const fn description(self) -> &'static str {
        match self {
            Self::OPTIONS => "options",
            Self::FLYRECORD => "trace data",
            Self::STRINGS => "strings",
            Self::HEADER_INFO => "page layout",
            Self::FTRACE_EVENTS => "ftrace event formats",
            Self::EVENT_FORMATS => "event formats",
            Self::KALLSYMS => "kernel symbols",
            Self::PRINTK => "printk formats",
            Self::CMDLINES => "task names",
            Self::BUFFER_TEXT => "trace text",
            Self::BTF => "types of the kernel",
            Self::MODULES => "modules of the kernel",
            _ => "unknown",
        }
    }
}

impl fmt::Display for SectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.description())
    }
}

/// What an option holds. Readers skip the numbers that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionId(pub u16);

impl OptionId {
    /// End of an options section, and where the next one is.
    pub const DONE: Self = Self(0);
    /// Difference between event time and the time of day.
    pub const DATE: Self = Self(1);
    /// Ring buffer statistics of one CPU.
    pub const CPUSTAT: Self = Self(2);
    /// One buffer: name, clock, and where its CPUs' data are.
    pub const BUFFER: Self = Self(3);
    /// The clock that was chosen.
    pub const TRACECLOCK: Self = Self(4);
    /// The machine.
    pub const UNAME: Self = Self(5);
    /// Pairing of two events.
    pub const HOOK: Self = Self(6);
    /// Nanoseconds to add to every timestamp.
    pub const OFFSET: Self = Self(7);
    /// Number of CPUs.
    pub const CPUCOUNT: Self = Self(8);
    /// The program that recorded.
    pub const VERSION: Self = Self(9);
    /// Address map of one process.
    pub const PROCMAPS: Self = Self(10);
    /// Random number of the session.
    pub const TRACEID: Self = Self(11);
    /// Clock corrections against another file.
    pub const TIME_SHIFT: Self = Self(12);
    /// A guest that was traced in the same session.
    pub const GUEST: Self = Self(13);
    /// How TSC ticks become nanoseconds.
    pub const TSC2NSEC: Self = Self(14);
    /// Number of the strings section (as an option it is not used).
    pub const STRINGS: Self = Self(15);
    /// Where the text of a latency tracer is.
    pub const BUFFER_TEXT: Self = Self(22);
    /// Where the kernel's type information is (written by newer recorders only).
    pub const BTF: Self = Self(23);
    /// What a persistent ring buffer says of the boot before.
    pub const LAST_BOOT_INFO: Self = Self(24);
    /// Where the list of modules is (written by newer recorders only).
    pub const MODULES: Self = Self(25);
    /// The loss ledger of our recorder: JSON. Far from the numbers that stock recorders give out.
    pub const LEDGER: Self = Self(0x5441);
    /// Checksums of what our writer wrote; see [`Checksums`](super::checksum::Checksums).
    pub const CHECKSUMS: Self = Self(0x5443);
}

impl OptionId {
    /// The name that the manual page has for it; `None` of a number that is not known.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DONE => "DONE",
            Self::DATE => "DATE",
            Self::CPUSTAT => "CPUSTAT",
            Self::BUFFER => "BUFFER",
            Self::TRACECLOCK => "TRACECLOCK",
            Self::UNAME => "UNAME",
            Self::HOOK => "HOOK",
            Self::OFFSET => "OFFSET",
            Self::CPUCOUNT => "CPUCOUNT",
            Self::VERSION => "VERSION",
            Self::PROCMAPS => "PROCMAPS",
            Self::TRACEID => "TRACEID",
            Self::TIME_SHIFT => "TIME_SHIFT",
            Self::GUEST => "GUEST",
            Self::TSC2NSEC => "TSC2NSEC",
            Self::STRINGS => "STRINGS",
            Self(16) => "HEADER_INFO",
            Self(17) => "FTRACE_EVENTS",
            Self(18) => "EVENT_FORMATS",
            Self(19) => "KALLSYMS",
            Self(20) => "PRINTK",
            Self(21) => "CMDLINES",
            Self::BUFFER_TEXT => "BUFFER_TEXT",
            Self::BTF => "BTF",
            Self::LAST_BOOT_INFO => "LAST_BOOT_INFO",
            Self::MODULES => "MODULES",
            _ => return None,
        })
    }
}

impl fmt::Display for OptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A section header: what stands before the bytes of every section.
///
/// Layout (trace-cmd.dat.v7(5), FORMAT OF THE SECTION HEADER): u16 id, u16 flags, u32 offset of the
/// description inside the strings section, u64 size of what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// What the section holds.
    pub id: SectionId,
    /// [`SECTION_COMPRESSED`] or 0.
    pub flags: u16,
    /// Byte offset of the description in the strings of the file, all strings sections joined in file order.
    pub description: u32,
    /// Bytes after this header, with the 8 bytes that stand before a compressed block.
    pub size: u64,
}

impl SectionHeader {
    /// The 16 bytes of the header.
    pub fn encode(&self, endian: Endian) -> Vec<u8> {
        let Self { id, flags, description, size } = *self;
        let mut out = Encoder::new(endian);
        out.u16(id.0).u16(flags).u32(description).u64(size);
        out.into_bytes()
    }
}

/// The text of tracefs' `events/header_page` for 64-bit pages of `page_size` bytes.
///
/// For a recorder that fills pages of its own: the kernel's text has the size of the kernel's pages, which
/// another user of tracefs may have changed.
pub fn header_page_text(page_size: u32) -> String {
    // The byte order is that of the file, and nowhere in the text.
    PageLayout::native(Endian::default(), page_size).header_page_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_header_bytes() {
        let header = SectionHeader {
            id: SectionId::KALLSYMS,
            flags: SECTION_COMPRESSED,
            description: 0x21,
            size: 0x0102_0304,
        };
        assert_eq!(header.encode(Endian::Little), b"\x13\0\x01\0\x21\0\0\0\x04\x03\x02\x01\0\0\0\0");
        assert_eq!(header.encode(Endian::Big), b"\0\x13\0\x01\0\0\0\x21\0\0\0\0\x01\x02\x03\x04");
        assert_eq!(header.encode(Endian::Big).len() as u64, SECTION_HEADER_LEN);
    }

    #[test]
    fn page_sizes() {
        assert!([4096, 8192, 65536, 524_288, 1_048_576].into_iter().all(is_page_size));
        assert!([0, 1, 2048, 4097, 12288, 2_097_152].into_iter().all(|size| !is_page_size(size)));
    }
}
