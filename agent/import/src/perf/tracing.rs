//! The formats of the recorded events, as `perf record` stores them (tools/perf/util/trace-event-info.c): a
//! trace.dat of trace-cmd's versions 0.5 and 0.6, without events.
//!
//! ```text
//! 17 08 44 "tracing", version NUL, u8 byte order (1 = big), u8 bytes of long, u32 page size
//! "header_page" NUL u64 size text, "header_event" NUL u64 size text
//! formats of system ftrace: u32 count, each u64 size, text
//! other systems: u32 count, each name NUL, u32 count, each u64 size, text
//! u32 size, lines of /proc/kallsyms; u32 size, lines of printk_formats
//! since version 0.6: u64 size, lines of saved_cmdlines
//! ```

use super::bytes::Bytes;
use super::damaged;
use crate::ImportError;
use ftrace_event::Endian;
use tracedat::layout::MAGIC;

/// What is in it.
#[derive(Debug, Default)]
pub(super) struct TracingData<'a> {
    /// Bytes of `long`: 4 or 8.
    pub(super) long_size: u8,
    pub(super) header_event: &'a [u8],
    /// System and text of each event.
    pub(super) formats: Vec<(String, &'a [u8])>,
    pub(super) kallsyms: &'a [u8],
    pub(super) printk: &'a [u8],
    /// Lines `pid name`.
    pub(super) cmdlines: &'a [u8],
}

impl<'a> TracingData<'a> {
    /// Reads it. `start` is where it is in the source.
    pub(super) fn read(whole: &'a [u8], start: u64) -> Result<Self, ImportError> {
        let mut bytes = Bytes::new(whole, Endian::Little);
        let mut found = Self::default();
        // What is missing when the bytes end too early.
        let mut part = "its beginning";
        if found.parts(&mut bytes, &mut part).is_some() {
            return Ok(found);
        }
        let at = start + (whole.len() - bytes.rest.len()) as u64;
        Err(damaged(at, format!("the descriptions of the events are cut short or damaged in {part}")))
    }

    fn parts(&mut self, bytes: &mut Bytes<'a>, part: &mut &'static str) -> Option<()> {
        (bytes.take(MAGIC.len())? == MAGIC).then_some(())?;
        let version = bytes.c_string()?;
        bytes.endian = Endian::from_header_byte(*bytes.take(1)?.first()?)?;
        self.long_size = *bytes.take(1)?.first()?;
        matches!(self.long_size, 4 | 8).then_some(())?;
        bytes.u32()?;
        *part = "header_page";
        (bytes.c_string()? == b"header_page").then_some(())?;
        long_text(bytes)?;
        *part = "header_event";
        (bytes.c_string()? == b"header_event").then_some(())?;
        self.header_event = long_text(bytes)?;
        *part = "the formats of ftrace";
        for _ in 0..bytes.u32()? {
            self.formats.push(("ftrace".to_owned(), long_text(bytes)?));
        }
        *part = "the formats of the events";
        for _ in 0..bytes.u32()? {
            let system = String::from_utf8_lossy(bytes.c_string()?).into_owned();
            for _ in 0..bytes.u32()? {
                self.formats.push((system.clone(), long_text(bytes)?));
            }
        }
        *part = "the symbols of the kernel";
        let len = bytes.u32()? as usize;
        self.kallsyms = bytes.take(len)?;
        *part = "the formats of printk";
        let len = bytes.u32()? as usize;
        self.printk = bytes.take(len)?;
        if version != b"0.5" {
            *part = "the names of tasks";
            self.cmdlines = long_text(bytes)?;
        }
        Some(())
    }
}

fn long_text<'a>(bytes: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(bytes.u64()?).ok()?;
    bytes.take(len)
}
