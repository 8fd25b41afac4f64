//! Version 7 as other recorders may write it: zlib, longs of 4 bytes, compressed options, sections that are
//! not known.

use crate::reader_files::{Chance, forwards, page, read_everything};
use ftrace_event::Endian;
use tracedat::reader::{OptionValue, ReadError, Reader, SectionInfo};
use tracedat::{Codec, DecompressError, FileOption, OptionId, SectionId, layout};

const FORMAT: &str = "name: x\nID: 9\nformat:\n";

/// A file put together by hand.
struct File {
    endian: Endian,
    codec: Codec,
    bytes: Vec<u8>,
    /// Where the offset of the next options belongs.
    link: usize,
    options: Vec<u8>,
}

impl File {
    fn new(endian: Endian, codec: Codec) -> Self {
        let mut bytes = layout::MAGIC.to_vec();
        bytes.extend_from_slice(b"7\0");
        bytes.extend_from_slice(&[endian.header_byte(), 4]);
        bytes.extend_from_slice(&endian.u32(4096));
        bytes.extend_from_slice(codec.name().as_bytes());
        bytes.extend_from_slice(b"\x001.2\0");
        let link = bytes.len();
        bytes.extend_from_slice(&[0; 8]);
        Self { endian, codec, bytes, link, options: Vec::new() }
    }

    fn pack(&self, plain: &[u8]) -> Vec<u8> {
        let packed = match self.codec {
            Codec::None => panic!("no compression"),
            Codec::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
            Codec::Zlib => miniz_oxide::deflate::compress_to_vec_zlib(plain, 6),
        };
        let sizes = [self.endian.u32(packed.len() as u32), self.endian.u32(plain.len() as u32)];
        [sizes.as_flattened(), &packed].concat()
    }

    /// Appends a section, and returns where it is.
    fn section(&mut self, id: u16, compressed: bool, body: &[u8]) -> usize {
        let body = if compressed && !matches!(id, 3 | 22) { self.pack(body) } else { body.to_vec() };
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&self.endian.u16(id));
        self.bytes.extend_from_slice(&self.endian.u16(u16::from(compressed)));
        self.bytes.extend_from_slice(&self.endian.u32(0));
        self.bytes.extend_from_slice(&self.endian.u64(body.len() as u64));
        self.bytes.extend_from_slice(&body);
        at
    }

    fn option(&mut self, id: u16, bytes: &[u8]) {
        self.options.extend_from_slice(&self.endian.u16(id));
        self.options.extend_from_slice(&self.endian.u32(bytes.len() as u32));
        self.options.extend_from_slice(bytes);
    }

    /// Appends a section and the option that points at it.
    fn pointed(&mut self, id: u16, body: &[u8]) {
        let at = self.section(id, self.codec != Codec::None, body);
        self.option(id, &self.endian.u64(at as u64));
    }

    /// Appends the options that were given, and links them to those before.
    fn close_options(&mut self, compressed: bool) -> usize {
        let link = self.options.len() + 6;
        self.option(0, &[0; 8]);
        let options = std::mem::take(&mut self.options);
        let at = self.section(0, compressed, &options);
        let offset = self.endian.u64(at as u64);
        self.bytes[self.link..self.link + 8].copy_from_slice(&offset);
        self.link = at + 16 + link;
        at
    }

    fn metadata(&mut self) {
        let endian = self.endian;
        let text = layout::header_page_text(4096)
            .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4");
        let text = text.replace("offset:16;\tsize:4080", "offset:12;\tsize:4084");
        let sized = |text: &str| [endian.u64(text.len() as u64).as_slice(), text.as_bytes()].concat();
        let info = [&b"header_page\0"[..], &sized(&text), b"header_event\0", &sized("e")].concat();
        self.pointed(16, &info);
        let one = endian.u32(1);
        self.pointed(18, &[&one, &b"demo\0"[..], &one, &sized(FORMAT)].concat());
        self.pointed(19, &[&endian.u32(3)[..], b"abc"].concat());
        // Newer recorders add these, without a size.
        self.pointed(23, b"types");
        self.pointed(25, b"modules");
    }

    /// Appends the pages of CPU 5 as a buffer.
    fn buffer(&mut self, name: &str, chunks: &[Vec<u8>]) {
        let mut body = if self.codec == Codec::None {
            Vec::new()
        } else {
            self.endian.u32(chunks.len() as u32).to_vec()
        };
        for chunk in chunks {
            body.extend(if self.codec == Codec::None { chunk.clone() } else { self.pack(chunk) });
        }
        let at = self.section(3, self.codec != Codec::None, &body);
        let endian = self.endian;
        let place = [endian.u64(at as u64 + 16), endian.u64(body.len() as u64)].concat();
        let numbers = [endian.u32(4096), endian.u32(1), endian.u32(5)].concat();
        self.option(3, &[&endian.u64(at as u64), name.as_bytes(), b"\0mono\0", &numbers, &place].concat());
    }
}

const CODECS: [Codec; 3] = [Codec::None, Codec::Zstd, Codec::Zlib];

fn file(endian: Endian, codec: Codec) -> File {
    let mut file = File::new(endian, codec);
    file.metadata();
    file.close_options(false);
    let pages: Vec<_> =
        (0..5).map(|n| page(endian, 4, 100 * n, (n == 3).then_some(8), &[(0, 9), (5, 9)])).collect();
    file.buffer("", &[pages[..2].concat(), pages[2].clone()]);
    file.buffer("other", &[pages[3..].concat()]);
    file.option(4000, b"mine");
    file.close_options(false);
    file
}

#[test]
fn every_compression_in_both_orders() {
    for codec in CODECS {
        for endian in [Endian::Little, Endian::Big] {
            let bytes = file(endian, codec).bytes;
            let reader = Reader::open(bytes.as_slice()).unwrap();
            assert_eq!(reader.problems().len(), 0);
            assert_eq!((reader.header().codec, reader.header().codec_version.as_str()), (codec, "1.2"));
            assert_eq!((reader.header().long_size, reader.layout().long_size), (4, 4));
            assert_eq!(reader.metadata().event_id("demo", "x"), Some(9));
            assert_eq!(reader.kallsyms().unwrap(), b"abc");
            let records = forwards(&mut reader.records().unwrap());
            let found: Vec<_> = records.iter().map(|r| (r.timestamp, r.buffer, r.cpu, r.missed)).collect();
            let expected: Vec<_> = (0..5u64)
                .flat_map(|n| [(100 * n, n), (100 * n + 5, 0)])
                .map(|(time, n)| (time, usize::from(time >= 300), 5, (n == 3).then_some(8)))
                .collect();
            assert_eq!(found, expected);
            let unknown = FileOption::Unknown { id: OptionId(4000), bytes: b"mine".to_vec() };
            assert!(reader.facts().any(|fact| *fact == unknown));
            // Sections that are not known are there as bytes.
            let bytes = |id: u16| {
                let section = reader.sections().iter().find(|section| section.id == SectionId(id)).unwrap();
                reader.section_bytes(section).unwrap()
            };
            assert_eq!((bytes(23), bytes(25)), (b"types".to_vec(), b"modules".to_vec()));
            let ids: Vec<_> = reader.sections().iter().map(|section| section.id.0).collect();
            assert_eq!(ids, [16, 18, 19, 23, 25, 0, 3, 3, 0]);
        }
    }
}

#[test]
fn text_of_a_latency_tracer() {
    for codec in CODECS {
        let endian = Endian::Little;
        let mut file = File::new(endian, codec);
        file.metadata();
        let body = if codec == Codec::None {
            b"# tracer: irqsoff".to_vec()
        } else {
            [endian.u32(2).to_vec(), file.pack(b"# tracer: "), file.pack(b"irqsoff")].concat()
        };
        let at = file.section(22, codec != Codec::None, &body);
        file.option(22, &[&endian.u64(at as u64)[..], b"\0local\0"].concat());
        file.close_options(false);
        let reader = Reader::open(file.bytes.as_slice()).unwrap();
        assert_eq!(reader.buffer_text("").unwrap().unwrap(), b"# tracer: irqsoff");
        assert_eq!(reader.buffer_text("other").unwrap(), None);
        assert!(reader.options().iter().any(|entry| matches!(entry.value, OptionValue::BufferText { .. })));
        assert_eq!(forwards(&mut reader.records().unwrap()), []);
    }
}

#[test]
fn options_may_be_compressed() {
    let mut file = File::new(Endian::Little, Codec::Zlib);
    file.metadata();
    file.option(5, b"Linux\0");
    file.close_options(true);
    let reader = Reader::open(file.bytes).unwrap();
    assert!(reader.facts().any(|fact| *fact == FileOption::Uname("Linux".into())));
}

#[test]
fn a_damaged_buffer_costs_that_buffer() {
    let mut file = File::new(Endian::Little, Codec::None);
    file.metadata();
    file.buffer("one", &[page(Endian::Little, 4, 1, None, &[(0, 9)])]);
    file.option(3, b"1234567");
    let at = file.close_options(false);
    let reader = Reader::open(file.bytes.as_slice()).unwrap();
    let damaged = reader.options().last().unwrap();
    assert!(damaged.offset > at as u64);
    let ReadError::Short { what, offset, wanted, left } = reader.problems()[0] else { panic!() };
    assert_eq!((what, offset, wanted, left), ("option BUFFER", damaged.offset, 8, 7));
    assert_eq!(forwards(&mut reader.records().unwrap()).len(), 1);
}

#[test]
fn options_in_a_circle_end() {
    let mut file = file(Endian::Little, Codec::None);
    let link = file.link;
    let first = Reader::open(file.bytes.as_slice()).unwrap();
    let options: Vec<SectionInfo> =
        first.sections().iter().filter(|s| s.id == SectionId::OPTIONS).cloned().collect();
    file.bytes[link..link + 8].copy_from_slice(&options[0].offset.to_le_bytes());
    let reader = Reader::open(file.bytes.as_slice()).unwrap();
    assert!(matches!(reader.problems(), [ReadError::Invalid { what: "the link to the next options", .. }]));
    assert_eq!(forwards(&mut reader.records().unwrap()).len(), 10);
}

#[test]
fn errors_say_what_and_where() {
    let error = |bytes: &[u8]| Reader::open(bytes).unwrap_err();
    assert!(matches!(error(b""), ReadError::NotATrace));
    assert!(matches!(error(b"\x17\x08\x44tracing5\0"), ReadError::Version { found } if found == "5"));
    let bytes = file(Endian::Little, Codec::Zlib).bytes;
    let name = String::from_utf8_lossy(&bytes).find("zlib").unwrap();
    let mut changed = bytes.clone();
    changed[name..name + 4].copy_from_slice(b"lz4x");
    assert!(matches!(error(&changed), ReadError::Compression { name } if name == "lz4x"));
    changed[name..name + 4].copy_from_slice(b"zstd");
    let wrong = matches!(error(&changed), ReadError::Decompress { source: DecompressError::Zstd(_), .. });
    assert!(wrong, "{}", error(&changed));
    changed[name..name + 4].copy_from_slice(b"none");
    let wrong = matches!(error(&changed), ReadError::Decompress { source: DecompressError::NoCodec, .. });
    assert!(wrong, "{}", error(&changed));
    // The byte order, behind magic and version.
    let mut changed = bytes.clone();
    changed[12] = 2;
    assert!(matches!(error(&changed), ReadError::Invalid { what: "the byte order", offset: 12, .. }));
    let short = error(&bytes[..20]).to_string();
    assert!(short.ends_with("at byte 18 should be a text that ends with NUL and is \"zl\"..."), "{short}");
    let reader = Reader::open(bytes.as_slice()).unwrap();
    assert!(matches!(reader.cpu_records(0, 4), Err(ReadError::NoSuchCpu { buffer: 0, cpu: 4 })));
    assert!(matches!(reader.cpu_pages(7, 5), Err(ReadError::NoSuchCpu { buffer: 7, cpu: 5 })));
}

#[test]
fn a_damaged_chunk_is_told_once_and_costs_its_pages() {
    for codec in [Codec::Zstd, Codec::Zlib] {
        let mut bytes = file(Endian::Little, codec).bytes;
        let whole = Reader::open(bytes.as_slice()).unwrap();
        let at = whole.buffers()[0].cpus[0].offset as usize + 4 + 8;
        bytes[at..at + 8].fill(0xa5);
        let reader = Reader::open(bytes.as_slice()).unwrap();
        let mut records = reader.records().unwrap();
        let mut found = Vec::new();
        loop {
            match records.next_record() {
                Ok(Some(record)) => found.push(record.timestamp),
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, ReadError::Decompress { what: "trace data", .. }), "{error}");
                    found.push(0);
                }
            }
        }
        assert_eq!(found, [0, 200, 205, 300, 305, 400, 405]);
        let mut back = Vec::new();
        loop {
            match records.prev_record() {
                Ok(Some(record)) => back.push(record.timestamp),
                Ok(None) => break,
                Err(_) => back.push(0),
            }
        }
        assert_eq!(back, [405, 400, 305, 300, 205, 200, 0]);
        assert_eq!((reader.count(0).cpus[0].damaged, reader.count(0).events()), (1, 2));
    }
}

#[test]
fn random_changes() {
    for codec in CODECS {
        let bytes = file(Endian::Big, codec).bytes;
        let chance = &mut Chance::new(3);
        for _ in 0..1000 {
            let mut bytes = bytes.clone();
            for _ in 0..=chance.below(3) {
                let at = chance.below(bytes.len() as u64) as usize;
                let any = chance.next() as u8;
                bytes[at] = chance.pick(&[0, 0xff, any]);
            }
            let _ = read_everything(bytes.as_slice());
        }
    }
}
