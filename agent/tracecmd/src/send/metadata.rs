//! What describes the events, and the order in which it goes.
//!
//! The listener makes a file of what it gets: a trace file of version 7 without data, to which it adds the
//! data at the end. What is known only then (names of threads, what was lost) is a part of it, so its end has
//! to wait; but a listener of trace-cmd waits five seconds for more of it, and no longer. And the options,
//! which a reader finds through their offsets, cannot move any more once it is said where they are.
//!
//! ```text
//! header                    points at options A
//! sections                  page layout, formats, printk formats; the names that are known at the beginning
//! options A                 offsets of these sections, facts; DONE points at options B
//! filler                    some ten thousand bytes, which go one by one while the recording goes on
//! options B                 offsets of what follows, facts of the end: losses, the ledger
//! sections                  names, symbols
//! ```
//!
//! The filler is a section of descriptions, which nothing points at. When it is used up, what is known by
//! then is the end.

use super::SendError;
use ftrace_event::{Cmdlines, Endian};
use tracedat::layout::{LONG_SIZE, MAGIC, SECTION_COMPRESSED, SECTION_HEADER_LEN, SectionHeader, VERSION};
use tracedat::reader::{Reader, Source};
use tracedat::{Compression, FileOption, OptionId, Section, SectionId};

/// Bytes of the filler.
pub(super) const FILLER: usize = 64 << 10;
/// No description.
const UNDESCRIBED: u32 = u32::MAX;
/// The byte order of the recorder.
const ENDIAN: Endian = Endian::Little;

/// What goes at the beginning.
#[derive(Debug)]
pub(super) struct Early {
    /// Everything before the filler's bytes.
    pub(super) bytes: Vec<u8>,
    compression: Compression,
    facts: Vec<FileOption>,
}

impl Early {
    /// Of a trace file without data.
    pub(super) fn new(
        head: &Reader<Vec<u8>>,
        compression: Compression,
        names: &Cmdlines,
    ) -> Result<Self, SendError> {
        let mut bytes = [&MAGIC[..], VERSION.as_bytes(), &[0, ENDIAN.header_byte(), LONG_SIZE]].concat();
        bytes.extend(ENDIAN.u32(head.header().page_size));
        for text in [compression.name(), &compression.version()] {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
        let options_at = bytes.len();
        bytes.extend(ENDIAN.u64(0));

        let mut options = Options::default();
        for section in head.sections() {
            let is_late = matches!(section.id, SectionId::KALLSYMS | SectionId::CMDLINES);
            if is_late || !SectionId::METADATA.contains(&section.id) {
                continue;
            }
            options.offset(section.id, bytes.len());
            put_section(&mut bytes, section.id, compression, &head.section_bytes(section)?)?;
        }
        // Nothing points at them, as they are repeated: they are for who mends what was cut off.
        put_section(&mut bytes, SectionId::CMDLINES, compression, &names_body(names))?;
        let is_early = |fact: &&FileOption| {
            !matches!(fact.id(), OptionId::CPUSTAT | OptionId::LEDGER | OptionId::CPUCOUNT)
        };
        let facts: Vec<FileOption> = head.facts().filter(is_early).cloned().collect();
        for fact in &facts {
            options.fact(fact)?;
        }
        options.put(OptionId::CPUCOUNT, &ENDIAN.u32(head.cpu_count()));

        let link = ENDIAN.u64(bytes.len() as u64);
        bytes[options_at..options_at + link.len()].copy_from_slice(&link);
        let begin = bytes.len() + options.section_len() + SECTION_HEADER_LEN as usize + FILLER;
        options.put_into(&mut bytes, begin as u64);
        put_header(&mut bytes, SectionId::STRINGS, 0, FILLER);
        Ok(Self { bytes, compression, facts })
    }

    /// What goes behind the filler, without a finished file: names and symbols as they are known.
    pub(super) fn end(&self, names: &Cmdlines, symbols: &[u8]) -> Result<Vec<u8>, SendError> {
        let text = ENDIAN.u32(symbols.len() as u32);
        self.tail(Options::default(), &[&text, symbols].concat(), &names_body(names))
    }

    /// What goes behind the filler, of the finished file.
    pub(super) fn end_of<S: Source>(&self, finished: &Reader<S>) -> Result<Vec<u8>, SendError> {
        let mut options = Options::default();
        let is_new = |fact: &&FileOption| fact.id() != OptionId::CPUCOUNT && !self.facts.contains(fact);
        for fact in finished.facts().filter(is_new) {
            options.fact(fact)?;
        }
        let body = |id, empty: usize| {
            let section = finished.sections().iter().find(|section| section.id == id);
            section.map_or_else(|| Ok(vec![0; empty]), |section| finished.section_bytes(section))
        };
        self.tail(options, &body(SectionId::KALLSYMS, 4)?, &body(SectionId::CMDLINES, 8)?)
    }

    fn tail(&self, mut options: Options, symbols: &[u8], names: &[u8]) -> Result<Vec<u8>, SendError> {
        let mut sections = Vec::new();
        put_section(&mut sections, SectionId::KALLSYMS, self.compression, symbols)?;
        let names_at = sections.len();
        put_section(&mut sections, SectionId::CMDLINES, self.compression, names)?;
        // Both options have one length, wherever they point.
        let begin = self.bytes.len() + FILLER + options.section_len() + 2 * Options::OFFSET_LEN;
        options.offset(SectionId::KALLSYMS, begin);
        options.offset(SectionId::CMDLINES, begin + names_at);
        let mut tail = Vec::new();
        options.put_into(&mut tail, 0);
        tail.extend(sections);
        Ok(tail)
    }
}

/// A file of version 6 up to the names of threads, as version 1 of the protocol has it.
pub(super) fn version6<S: Source>(finished: &Reader<S>) -> Result<Vec<u8>, SendError> {
    let mut bytes = [&MAGIC[..], b"6\0", &[ENDIAN.header_byte(), LONG_SIZE]].concat();
    bytes.extend(ENDIAN.u32(finished.header().page_size));
    for id in SectionId::METADATA {
        match finished.sections().iter().find(|section| section.id == id) {
            Some(section) => bytes.extend(finished.section_bytes(section)?),
            None => bytes.extend(vec![0; if id == SectionId::CMDLINES { 8 } else { 4 }]),
        }
    }
    Ok(bytes)
}

fn names_body(names: &Cmdlines) -> Vec<u8> {
    Section::cmdlines(ENDIAN, names).into_body()
}

fn put_header(bytes: &mut Vec<u8>, id: SectionId, flags: u16, size: usize) {
    let header = SectionHeader { id, flags, description: UNDESCRIBED, size: size as u64 };
    bytes.extend(header.encode(ENDIAN));
}

fn put_section(
    bytes: &mut Vec<u8>,
    id: SectionId,
    compression: Compression,
    body: &[u8],
) -> Result<(), SendError> {
    if let Some(block) = compression.block(ENDIAN, body)? {
        put_header(bytes, id, SECTION_COMPRESSED, block.len());
        bytes.extend(block);
    } else {
        put_header(bytes, id, 0, body.len());
        bytes.extend(body);
    }
    Ok(())
}

/// Options on their way.
#[derive(Debug, Default)]
struct Options {
    bytes: Vec<u8>,
}

impl Options {
    /// An option's number and length.
    const HEADER: usize = 6;
    /// An option that is an offset.
    const OFFSET_LEN: usize = Self::HEADER + size_of::<u64>();

    fn put(&mut self, id: OptionId, value: &[u8]) {
        self.bytes.extend(ENDIAN.u16(id.0));
        self.bytes.extend(ENDIAN.u32(value.len() as u32));
        self.bytes.extend(value);
    }

    fn offset(&mut self, id: SectionId, at: usize) {
        self.put(OptionId(id.0), &ENDIAN.u64(at as u64));
    }

    fn fact(&mut self, fact: &FileOption) -> Result<(), SendError> {
        self.put(fact.id(), &fact.encode(ENDIAN)?);
        Ok(())
    }

    /// The length of the section, its header and the link at its end included.
    fn section_len(&self) -> usize {
        SECTION_HEADER_LEN as usize + self.bytes.len() + Self::OFFSET_LEN
    }

    fn put_into(mut self, bytes: &mut Vec<u8>, next: u64) {
        self.put(OptionId::DONE, &ENDIAN.u64(next));
        put_header(bytes, SectionId::OPTIONS, 0, self.bytes.len());
        bytes.extend(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracedat::{EventSystem, Setup, Writer};

    const FORMAT: &str = "name: hello\nID: 20000\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:u64 value;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"%llu\", REC->value\n";

    fn file(names: &Cmdlines, facts: &[FileOption]) -> Reader<Vec<u8>> {
        let mut writer = Writer::create(std::io::Cursor::new(Vec::new()), Setup::default()).unwrap();
        let page = tracedat::layout::header_page_text(4096);
        writer.section(Section::header_info(ENDIAN, &page, "").unwrap()).unwrap();
        let systems = [EventSystem { name: "demo", formats: &[FORMAT] }];
        writer.section(Section::event_formats(ENDIAN, &systems).unwrap()).unwrap();
        writer.section(Section::kallsyms(ENDIAN, b"ff00 t here\n").unwrap()).unwrap();
        writer.section(Section::cmdlines(ENDIAN, names)).unwrap();
        for fact in facts {
            writer.option(fact).unwrap();
        }
        Reader::open(writer.finish().unwrap().into_inner()).unwrap()
    }

    #[test]
    fn what_is_sent_is_a_file_with_what_both_ends_know() {
        let early_facts = [FileOption::Uname("Linux".to_owned()), FileOption::TraceId(7)];
        let ledger = FileOption::Unknown { id: OptionId::LEDGER, bytes: b"{}".to_vec() };
        let late_facts = [&early_facts[..], std::slice::from_ref(&ledger)].concat();
        let first = Cmdlines::from_iter([(1, "init")]);
        let all = Cmdlines::from_iter([(1, "init"), (2, "late")]);
        let head = file(&first, &early_facts);
        for compression in [Compression::None, Compression::default()] {
            let early = Early::new(&head, compression, &first).unwrap();
            for (tail, names, symbols, facts) in [
                (
                    early.end_of(&file(&all, &late_facts)).unwrap(),
                    &all,
                    &b"ff00 t here\n"[..],
                    &late_facts[..],
                ),
                (early.end(&first, b"").unwrap(), &first, b"", &early_facts),
            ] {
                let reader = Reader::open([&*early.bytes, &vec![0; FILLER], &tail].concat()).unwrap();
                assert!(reader.problems().is_empty(), "{:?}", reader.problems());
                assert_eq!(&reader.metadata().cmdlines, names);
                assert_eq!(reader.kallsyms().unwrap(), symbols);
                let found: Vec<_> =
                    reader.facts().filter(|fact| fact.id() != OptionId::CPUCOUNT).cloned().collect();
                assert_eq!(found, facts);
                assert_eq!(reader.metadata().event_id("demo", "hello"), Some(20000));
            }
            // What was cut off has the names of the beginning.
            let (cut, _) = Reader::open_damaged(early.bytes.clone()).unwrap();
            assert_eq!(cut.metadata().cmdlines, first);
            assert_eq!(cut.metadata().event_id("demo", "hello"), Some(20000));
        }
    }
}
