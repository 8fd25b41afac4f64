//! Metadata sections: what a reader must know to understand the records.
//!
//! A [`Section`] is made from texts, checked, and may be [packed](Section::pack) ahead of time and on any
//! thread: the kernel's symbols are 5 MB and take long enough to compress that a recorder does it while it
//! records.
//!
//! Layouts: trace-cmd.dat.v7(5), HEADER INFO SECTION to SAVED COMMAND LINES SECTION.

use super::compress::Compression;
use super::error::{WriteError, text_error};
use super::layout::SectionId;
use super::option::no_nul;
use ftrace_event::Cmdlines;
use ftrace_event::endian::{Encoder, Endian};
use ftrace_event::format::{Field, Format, name_and_id};

/// Longest system name: old readers have a buffer of 8 KiB for it, and none comes near.
const MAX_SYSTEM_NAME: usize = 4096;

/// One of the six metadata sections, ready to be written.
#[derive(Clone, Debug)]
pub struct Section {
    pub(crate) id: SectionId,
    pub(crate) endian: Endian,
    pub(crate) body: Body,
    pub(crate) facts: Facts,
}

/// The bytes of a section after its header.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Plain(Vec<u8>),
    /// A block with its sizes.
    Packed(Vec<u8>),
}

/// What the writer must know of a section when it checks one against another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Page size that the header page's text describes.
    pub(crate) page_size: Option<u32>,
    /// The events of the section.
    pub(crate) events: Vec<EventFact>,
}

#[derive(Clone, Debug)]
pub(crate) struct EventFact {
    pub(crate) id: u16,
    /// `system:name`.
    pub(crate) name: String,
    /// The common fields, where the text could be parsed.
    pub(crate) common: Option<Vec<Field>>,
}

/// The events of one system.
#[derive(Clone, Copy, Debug)]
pub struct EventSystem<'a> {
    /// Name of the system: `sched`.
    pub name: &'a str,
    /// The format texts of its events, as tracefs has them.
    pub formats: &'a [&'a str],
}

impl Section {
    /// Section `HEADER_INFO`: the texts of tracefs' `events/header_page` and `events/header_event`.
    ///
    /// Both files must be read with one call of a buffer that is large enough: the kernel answers a second
    /// read with the end of the file, so that [`std::fs::read`], which starts small, returns a piece of them.
    ///
    /// Layout: `"header_page\0"`, u64 size, text, `"header_event\0"`, u64 size, text. Recorders that fill
    /// pages of their own take the first text from [`header_page_text`](super::layout::header_page_text).
    ///
    /// # Errors
    /// [`WriteError::HeaderPage`] if the page is none that readers know: they want a timestamp of 8 bytes at
    /// 0, the commit word and the data.
    pub fn header_info(endian: Endian, header_page: &str, header_event: &str) -> Result<Self, WriteError> {
        let page_size = described_page_size(header_page)?;
        let mut out = Encoder::new(endian);
        out.c_string("header_page").u64(header_page.len() as u64).raw(header_page.as_bytes());
        out.c_string("header_event").u64(header_event.len() as u64).raw(header_event.as_bytes());
        let facts = Facts { page_size: Some(page_size), events: Vec::new() };
        Ok(Self { id: SectionId::HEADER_INFO, endian, body: Body::Plain(out.into_bytes()), facts })
    }

    /// Section `FTRACE_EVENTS`: the format texts of system `ftrace`.
    ///
    /// Layout: u32 count; each u64 size, text.
    ///
    /// # Errors
    /// A text without a number, or with one that is not 1 to 65535.
    pub fn ftrace_events(endian: Endian, formats: &[&str]) -> Result<Self, WriteError> {
        let mut out = Encoder::new(endian);
        let mut facts = Facts::default();
        put_formats(&mut out, &mut facts, "ftrace", formats)?;
        Ok(Self { id: SectionId::FTRACE_EVENTS, endian, body: Body::Plain(out.into_bytes()), facts })
    }

    /// Section `EVENT_FORMATS`: the format texts of all other systems.
    ///
    /// Layout: u32 systems; each name NUL, u32 count; each u64 size, text.
    ///
    /// # Errors
    /// As [`ftrace_events`](Self::ftrace_events); also a system name that is empty or not a C string.
    pub fn event_formats(endian: Endian, systems: &[EventSystem<'_>]) -> Result<Self, WriteError> {
        let mut out = Encoder::new(endian);
        let mut facts = Facts::default();
        out.u32(count("event systems", systems.len())?);
        for EventSystem { name, formats } in systems {
            if name.is_empty() || name.len() > MAX_SYSTEM_NAME {
                return Err(text_error("system name", name, "it is empty or too long"));
            }
            out.c_string(no_nul("system name", name)?);
            put_formats(&mut out, &mut facts, name, formats)?;
        }
        Ok(Self { id: SectionId::EVENT_FORMATS, endian, body: Body::Plain(out.into_bytes()), facts })
    }

    /// Section KALLSYMS: lines of `/proc/kallsyms`, `address type name[<TAB>[module]]`.
    ///
    /// Layout: u32 size, text. Readers find the nearest symbol at or before an address, but the last symbol
    /// only at its very address: who leaves symbols out should add one after the last.
    ///
    /// # Errors
    /// [`WriteError::TooLong`] above 4 GiB.
    pub fn kallsyms(endian: Endian, text: &[u8]) -> Result<Self, WriteError> {
        Self::sized(SectionId::KALLSYMS, endian, text)
    }

    /// Section PRINTK: the text of tracefs' `printk_formats`, lines `0xaddress : "format"`.
    ///
    /// Layout: u32 size, text.
    ///
    /// # Errors
    /// [`WriteError::TooLong`] above 4 GiB.
    pub fn printk(endian: Endian, text: &[u8]) -> Result<Self, WriteError> {
        Self::sized(SectionId::PRINTK, endian, text)
    }

    /// Section CMDLINES: the names of tasks.
    ///
    /// Layout: u64 size, text of lines `pid name`.
    pub fn cmdlines(endian: Endian, cmdlines: &Cmdlines) -> Self {
        let text = cmdlines.text();
        let mut out = Encoder::new(endian);
        out.u64(text.len() as u64).raw(&text);
        let facts = Facts::default();
        Self { id: SectionId::CMDLINES, endian, body: Body::Plain(out.into_bytes()), facts }
    }

    /// The section that stands in a file for one that was not given; `None` if it cannot be empty.
    pub(crate) fn empty(id: SectionId, endian: Endian) -> Option<Self> {
        let body = match id {
            SectionId::FTRACE_EVENTS | SectionId::EVENT_FORMATS | SectionId::KALLSYMS | SectionId::PRINTK => {
                vec![0; 4]
            }
            SectionId::CMDLINES => vec![0; 8],
            _ => return None,
        };
        Some(Self { id, endian, body: Body::Plain(body), facts: Facts::default() })
    }

    /// Which section this is.
    pub fn id(&self) -> SectionId {
        self.id
    }

    /// The bytes of the section, as they are by now.
    pub fn into_body(self) -> Vec<u8> {
        match self.body {
            Body::Plain(bytes) | Body::Packed(bytes) => bytes,
        }
    }

    /// Compresses the section now, rather than when it is written. Nothing happens if it is packed already,
    /// or if the file has no compression.
    ///
    /// # Errors
    /// [`WriteError::Compress`].
    pub fn pack(mut self, compression: Compression) -> Result<Self, WriteError> {
        if let Body::Plain(body) = &self.body {
            let what = self.id.description();
            let block = compression
                .block(self.endian, body)
                .map_err(|source| WriteError::Compress { what, source })?;
            if let Some(block) = block {
                self.body = Body::Packed(block);
            }
        }
        Ok(self)
    }

    /// A section of a u32 size and a text.
    fn sized(id: SectionId, endian: Endian, text: &[u8]) -> Result<Self, WriteError> {
        let mut out = Encoder::new(endian);
        out.u32(count(id.description(), text.len())?).raw(text);
        Ok(Self { id, endian, body: Body::Plain(out.into_bytes()), facts: Facts::default() })
    }
}

fn put_formats(
    out: &mut Encoder,
    facts: &mut Facts,
    system: &str,
    formats: &[&str],
) -> Result<(), WriteError> {
    out.u32(count("event formats", formats.len())?);
    for (index, format) in formats.iter().enumerate() {
        let (name, id) = name_and_id(format)
            .ok_or_else(|| WriteError::FormatWithoutId { system: system.to_owned(), index })?;
        let name = format!("{system}:{name}");
        let id = match u16::try_from(id) {
            Ok(id) if id != 0 => id,
            _ => return Err(WriteError::EventId { event: name, id }),
        };
        // A text that is not understood here may well be understood by readers: a recording must not fail for
        // it.
        let common = Format::parse(format).ok().map(|format| format.common);
        facts.events.push(EventFact { id, name, common });
        out.u64(format.len() as u64).raw(format.as_bytes());
    }
    Ok(())
}

/// Size of the pages that a `header_page` text describes: where the data end.
fn described_page_size(header_page: &str) -> Result<u32, WriteError> {
    let error = |reason: String| WriteError::HeaderPage { reason };
    let mut fields = Vec::new();
    for line in header_page.lines().filter(|line| !line.trim().is_empty()) {
        let text =
            line.trim().strip_prefix("field:").ok_or_else(|| error(format!("no field in line {line:?}")))?;
        fields.push(Field::parse(text).map_err(|kind| error(kind.to_string()))?);
    }
    let field = |name: &str| {
        fields.iter().find(|field| field.name == name).ok_or_else(|| error(format!("it has no field {name}")))
    };
    let timestamp = field("timestamp")?;
    if (timestamp.offset, timestamp.size) != (0, 8) {
        return Err(error("its timestamp is not the first 8 bytes".to_owned()));
    }
    let commit = field("commit")?;
    if (commit.offset, commit.size) != (8, 8) {
        return Err(error("its commit word is not the second 8 bytes, as on 64-bit kernels".to_owned()));
    }
    Ok(field("data")?.end())
}

fn count(what: &'static str, len: usize) -> Result<u32, WriteError> {
    u32::try_from(len).map_err(|_| WriteError::TooLong { what, len })
}

#[cfg(test)]
mod tests {
    use super::super::layout::header_page_text;
    use super::*;

    const FORMAT: &str = "name: x\nID: 9\nformat:\n";

    fn plain(section: Section) -> Vec<u8> {
        match section.body {
            Body::Plain(bytes) => bytes,
            Body::Packed(_) => panic!("packed"),
        }
    }

    #[test]
    fn header_info_bytes() {
        let page = header_page_text(4096);
        let section = Section::header_info(Endian::Little, &page, "ev").unwrap();
        assert_eq!(section.facts.page_size, Some(4096));
        let mut expected = b"header_page\0".to_vec();
        expected.extend_from_slice(&(page.len() as u64).to_le_bytes());
        expected.extend_from_slice(page.as_bytes());
        expected.extend_from_slice(b"header_event\0\x02\0\0\0\0\0\0\0ev");
        assert_eq!(plain(section), expected);
    }

    #[test]
    fn header_pages_that_no_reader_knows() {
        for page in
            ["", "x", &header_page_text(4096).replace("size:8", "size:4"), "\tfield: u64 timestamp;\n"]
        {
            let error = Section::header_info(Endian::Little, page, "").unwrap_err();
            assert!(matches!(error, WriteError::HeaderPage { .. }), "{page:?}: {error}");
        }
    }

    #[test]
    fn event_format_bytes() {
        let ftrace = Section::ftrace_events(Endian::Little, &[FORMAT]).unwrap();
        let text = FORMAT.as_bytes();
        let len = [text.len() as u8, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(plain(ftrace), [&[1, 0, 0, 0], len.as_slice(), text].concat());
        let systems =
            [EventSystem { name: "a", formats: &[FORMAT] }, EventSystem { name: "b", formats: &[] }];
        let events = Section::event_formats(Endian::Little, &systems).unwrap();
        let expected = [b"\x02\0\0\0a\0\x01\0\0\0", len.as_slice(), text, b"b\0\0\0\0\0"].concat();
        assert_eq!(plain(events), expected);
    }

    #[test]
    fn event_ids_are_checked() {
        let error = |format| Section::ftrace_events(Endian::Little, &[format]).unwrap_err();
        assert!(matches!(error("name: x\nID: 0\n"), WriteError::EventId { id: 0, .. }));
        assert!(matches!(error("name: x\nID: 65536\n"), WriteError::EventId { id: 65536, .. }));
        assert!(matches!(error("name: x\n"), WriteError::FormatWithoutId { index: 0, .. }));
        for name in ["", "a\0b", &"s".repeat(5000)] {
            assert!(Section::event_formats(Endian::Little, &[EventSystem { name, formats: &[] }]).is_err());
        }
    }

    #[test]
    fn sized_texts() {
        assert_eq!(plain(Section::kallsyms(Endian::Big, b"abc").unwrap()), b"\0\0\0\x03abc");
        assert_eq!(plain(Section::printk(Endian::Little, b"").unwrap()), [0; 4]);
        let cmdlines: Cmdlines = [(7, "seven"), (3, "three")].into_iter().collect();
        let expected = b"\x10\0\0\0\0\0\0\x003 three\n7 seven\n";
        assert_eq!(plain(Section::cmdlines(Endian::Little, &cmdlines)), expected);
    }

    #[test]
    fn cmdlines_have_no_blank_names_and_no_pid_twice() {
        let mut cmdlines = Cmdlines::new();
        assert!(!cmdlines.insert(1, b"  \t") && !cmdlines.insert(2, b"") && !cmdlines.insert(3, b"\0abc"));
        assert!(
            cmdlines.insert(4, b"old")
                && cmdlines.insert(4, b"new\nline\0rest")
                && cmdlines.insert(5, b"\xff")
        );
        assert_eq!(cmdlines.text(), b"4 new?line\n5 \xff\n");
        assert_eq!((cmdlines.len(), cmdlines.get(4)), (2, Some(b"new?line".as_slice())));
    }

    #[test]
    fn packing_is_done_once() {
        let pack = |section: Section| section.pack(Compression::default()).unwrap();
        let once = pack(Section::kallsyms(Endian::Little, &[b'x'; 1000]).unwrap());
        let Body::Packed(block) = once.clone().body else { panic!("plain") };
        let Body::Packed(again) = pack(once).body else { panic!("plain") };
        assert_eq!(block, again);
        assert_eq!(block[4..8], 1004u32.to_le_bytes());
    }
}
