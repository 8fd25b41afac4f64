use std::io::{self, Cursor};

use super::super::layout::header_page_text;
use super::super::page::{PageBuilder, PageError, Push};
use super::super::section::EventSystem;
use super::*;
use ftrace_event::Cmdlines;

const NONE: Setup = Setup { endian: Endian::Little, page_size: 4096, compression: Compression::None };
const TOP: Buffer<'static> = Buffer { name: "", clock: "mono", page_size: 4096 };

type Memory = Cursor<Vec<u8>>;

fn writer(setup: Setup) -> Writer<Memory> {
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    let header_page = header_page_text(setup.page_size);
    writer.section(Section::header_info(setup.endian, &header_page, "").unwrap()).unwrap();
    writer
}

fn pages(count: usize) -> Vec<u8> {
    let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
    let mut pages = Vec::new();
    for time in 0..count as u64 {
        assert_eq!(builder.push(time, &[1; 4000]), Ok(Push::Stored));
        pages.extend_from_slice(builder.finish().unwrap());
    }
    pages
}

/// A walk over a little-endian file, as a reader does it.
struct Walk<'a>(&'a [u8], usize);

impl Walk<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.1 += N;
        self.0[self.1 - N..self.1].try_into().unwrap()
    }
    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    fn string(&mut self) -> String {
        let len = self.0[self.1..].iter().position(|byte| *byte == 0).unwrap();
        let text = String::from_utf8(self.0[self.1..self.1 + len].to_vec()).unwrap();
        self.1 += len + 1;
        text
    }
}

/// Id, flags, description and bytes of each section from `at` to the end of the file.
fn sections(file: &[u8], at: usize) -> Vec<(u16, u16, u32, usize, &[u8])> {
    let mut walk = Walk(file, at);
    let mut found = Vec::new();
    while walk.1 < file.len() {
        let at = walk.1;
        let (id, flags, description, size) = (walk.u16(), walk.u16(), walk.u32(), walk.u64() as usize);
        found.push((id, flags, description, at, &file[walk.1..walk.1 + size]));
        walk.1 += size;
    }
    assert_eq!(walk.1, file.len(), "sections follow each other to the very end");
    found
}

/// Id and bytes of each option of a section, DONE included.
fn options(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut walk = Walk(bytes, 0);
    let mut found = Vec::new();
    while walk.1 < bytes.len() {
        let (id, size) = (walk.u16(), walk.u32() as usize);
        found.push((id, &bytes[walk.1..walk.1 + size]));
        walk.1 += size;
    }
    found
}

#[test]
fn a_whole_file_byte_by_byte() {
    let mut writer = writer(NONE);
    writer.section(Section::cmdlines(Endian::Little, &Cmdlines::from_iter([(5, "five")]))).unwrap();
    writer.option(&FileOption::TraceId(7)).unwrap();
    let mut top = writer.begin_buffer(TOP).unwrap();
    assert_eq!(top.write_cpu(3, pages(2).as_slice()).unwrap(), 2);
    assert_eq!(top.write_cpu(1, pages(1).as_slice()).unwrap(), 1);
    assert_eq!(top.write_cpu(2, io::empty()).unwrap(), 0);
    top.finish().unwrap();
    writer.option(&FileOption::Uname("late".into())).unwrap();
    let out = writer.finish().unwrap();
    assert_eq!(out.position(), out.get_ref().len() as u64);
    let file = out.into_inner();

    let header = b"\x17\x08\x44tracing7\0\x00\x08\x00\x10\x00\x00none\0\0";
    assert_eq!(file[..header.len()], *header);
    let mut walk = Walk(&file, header.len());
    let first_options = walk.u64() as usize;
    let found = sections(&file, walk.1);
    let ids: Vec<u16> = found.iter().map(|section| section.0).collect();
    // In the order given, then what was not given, options, data, options, strings.
    assert_eq!(ids, [16, 21, 17, 18, 19, 20, 0, 3, 0, 15]);
    assert!(found.iter().all(|section| section.1 == 0));
    assert_eq!(found[1].4, b"\x07\0\0\0\0\0\0\x005 five\n");
    assert_eq!(
        (found[2].4, found[3].4, found[4].4, found[5].4),
        (&[0; 4][..], &[0; 4][..], &[0; 4][..], &[0; 4][..])
    );

    let (options_a, data, options_b, strings) = (&found[6], &found[7], &found[8], &found[9]);
    assert_eq!(options_a.3, first_options);
    let offset = |index: usize| (found[index].3 as u64).to_le_bytes();
    let expected = [
        (16, &offset(0)[..]),
        (17, &offset(2)),
        (18, &offset(3)),
        (19, &offset(4)),
        (20, &offset(5)),
        (21, &offset(1)),
        (11, &7u64.to_le_bytes()),
        (0, &offset(8)),
    ];
    assert_eq!(options(options_a.4), expected);

    let late = options(options_b.4);
    assert_eq!(late[0], (5, b"late\0".as_slice()));
    assert_eq!(late[1], (8, 4u32.to_le_bytes().as_slice()), "the highest CPU and one");
    assert_eq!(late[3].0, 0x5443, "checksums; what they cover is looked at by the check of whole files");
    assert_eq!(late[4], (0, 0u64.to_le_bytes().as_slice()));
    let mut buffer = Walk(late[2].1, 0);
    assert_eq!((late[2].0, buffer.u64()), (3, data.3 as u64));
    assert_eq!((buffer.string(), buffer.string()), (String::new(), "mono".to_owned()));
    assert_eq!((buffer.u32(), buffer.u32()), (4096, 2));
    for (cpu, count) in [(1, 1), (3, 2)] {
        assert_eq!(buffer.u32(), cpu);
        let (at, size) = (buffer.u64() as usize, buffer.u64() as usize);
        assert!(at.is_multiple_of(4096));
        assert_eq!(file[at..at + size], pages(count));
    }
    assert_eq!(buffer.1, late[2].1.len());

    for section in &found {
        let text = Walk(strings.4, section.2 as usize).string();
        assert_eq!(text, SectionId(section.0).description());
    }
}

#[test]
fn compressed_data_have_a_count_and_chunks() {
    let setup = Setup::default();
    let mut writer = writer(setup);
    let data = pages(35);
    let mut top = writer.begin_buffer(TOP).unwrap();
    top.write_cpu(0, data.as_slice()).unwrap();
    top.finish().unwrap();
    let file = writer.finish().unwrap().into_inner();
    let first = file.windows(5).position(|bytes| bytes == b"zstd\0").unwrap() + 5;
    let mut walk = Walk(&file, first);
    assert_eq!(walk.string(), zstd::zstd_safe::version_string());
    let at = walk.1 + 8;
    let found = sections(&file, at);
    // Options are never compressed, all else is.
    assert!(found.iter().all(|section| section.1 == u16::from(section.0 != 0)));
    for section in found.iter().filter(|section| ![0, 3].contains(&section.0)) {
        assert_eq!(Walk(section.4, 0).u32() as usize, section.4.len() - 8);
    }
    let (_, buffer) = options(found[8].4).into_iter().find(|(id, _)| *id == 3).unwrap();
    let mut buffer = Walk(buffer, 8 + 1 + 5 + 4 + 4 + 4);
    let (start, size) = (buffer.u64() as usize, buffer.u64() as usize);
    assert_eq!(start, found[7].3 + 16, "not aligned");
    let mut chunks = Walk(&file[start..start + size], 0);
    assert_eq!(chunks.u32(), 3);
    let mut unpacked = Vec::new();
    for page_count in [16, 16, 3] {
        let (packed, plain) = (chunks.u32() as usize, chunks.u32() as usize);
        assert_eq!(plain, page_count * 4096);
        unpacked.extend(zstd::bulk::decompress(&chunks.0[chunks.1..chunks.1 + packed], plain).unwrap());
        chunks.1 += packed;
    }
    assert_eq!(chunks.1, size);
    assert_eq!(unpacked, data);
}

#[test]
fn a_big_endian_file_is_big_endian_throughout() {
    let endian = Endian::Big;
    let setup = Setup { endian, ..NONE };
    let mut builder = PageBuilder::new(4096, endian).unwrap();
    assert_eq!(builder.push(1, &[1; 8]), Ok(Push::Stored));
    let mut writer = writer(setup);
    let mut top = writer.begin_buffer(TOP).unwrap();
    top.write_cpu(0, builder.finish().unwrap()).unwrap();
    top.finish().unwrap();
    let file = writer.finish().unwrap().into_inner();
    assert_eq!(file[12..18], [1, 8, 0, 0, 0x10, 0]);
    let first_options = u64::from_be_bytes(file[24..32].try_into().unwrap()) as usize;
    assert_eq!(file[32..34], [0, 16], "header info");
    assert_eq!(file[first_options..first_options + 4], [0; 4]);
    assert_eq!(file[first_options + 16..first_options + 22], [0, 16, 0, 0, 0, 8]);
    assert_eq!(file[4096..4112], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12]);
    let little = Section::cmdlines(Endian::Little, &Cmdlines::new());
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    assert!(matches!(writer.section(little), Err(WriteError::ForeignSection { .. })));
}

#[test]
fn until_the_end_the_file_has_no_buffers() {
    let mut writer = writer(NONE);
    let mut top = writer.begin_buffer(TOP).unwrap();
    top.write_cpu(0, pages(1).as_slice()).unwrap();
    top.finish().unwrap();
    let link = writer.link_at.unwrap() as usize;
    assert_eq!(writer.out.get_ref()[link..link + 8], [0; 8]);
    let file = writer.finish().unwrap().into_inner();
    assert_ne!(file[link..link + 8], [0; 8]);
}

#[test]
fn cpu_count_is_never_too_small() {
    let count = |given: Option<u32>, cpus: &[u32]| {
        let mut writer = writer(NONE);
        if let Some(count) = given {
            writer.option(&FileOption::CpuCount(count)).unwrap();
        }
        let mut top = writer.begin_buffer(TOP).unwrap();
        for cpu in cpus {
            top.write_cpu(*cpu, pages(1).as_slice()).unwrap();
        }
        top.finish().unwrap();
        let file = writer.finish().unwrap().into_inner();
        let found = sections(&file, 32);
        let counts: Vec<_> = found
            .iter()
            .filter(|section| section.0 == 0)
            .flat_map(|section| options(section.4))
            .filter(|(id, _)| *id == 8)
            .collect();
        assert_eq!(counts.len(), 1);
        u32::from_le_bytes(counts[0].1.try_into().unwrap())
    };
    assert_eq!((count(None, &[]), count(None, &[0]), count(None, &[9, 2])), (1, 1, 10));
    assert_eq!((count(Some(64), &[9]), count(Some(4), &[9])), (64, 10));
}

#[test]
fn events_must_agree_with_each_other() {
    let format = |name: &str, id: u16, pid_offset: u8| {
        format!(
            "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:{pid_offset};\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n"
        )
    };
    let event = |text: &str| {
        Section::event_formats(Endian::Little, &[EventSystem { name: "s", formats: &[text] }]).unwrap()
    };
    let mut writer = writer(NONE);
    let ftrace = format("a", 1, 4);
    writer.section(Section::ftrace_events(Endian::Little, &[&ftrace]).unwrap()).unwrap();
    match writer.section(event(&format("b", 1, 4))) {
        Err(WriteError::DuplicateEventId { id: 1, first, second }) => {
            assert_eq!((first.as_str(), second.as_str()), ("ftrace:a", "s:b"));
        }
        other => panic!("{other:?}"),
    }
    let differs = writer.section(event(&format("b", 2, 8)));
    assert!(matches!(differs, Err(WriteError::CommonFields { event }) if event == "s:b"));
    // What was refused has left nothing behind.
    writer.section(event(&format("b", 2, 4))).unwrap();
    let again = writer.section(event(&format("c", 3, 4)));
    assert!(matches!(again, Err(WriteError::DuplicateSection { id: SectionId::EVENT_FORMATS })));
}

#[test]
fn what_may_not_be_in_a_file() {
    let memory = || Cursor::new(Vec::new());
    let odd = Writer::create(memory(), Setup { page_size: 5000, ..NONE });
    assert!(matches!(odd, Err(WriteError::PageSize { size: 5000 })));
    assert!(matches!(
        Writer::create(memory(), NONE).unwrap().finish(),
        Err(WriteError::MissingSection { .. })
    ));

    let mut other = Writer::create(memory(), Setup { page_size: 8192, ..NONE }).unwrap();
    let described = other.section(Section::header_info(Endian::Little, &header_page_text(4096), "").unwrap());
    assert!(matches!(described, Err(WriteError::HeaderPageSize { described: 4096, size: 8192 })));
    let packed = Section::printk(Endian::Little, b"").unwrap().pack(Compression::default()).unwrap();
    assert!(matches!(other.section(packed), Err(WriteError::ForeignSection { .. })));

    let mut writer = writer(NONE);
    assert!(matches!(
        writer.begin_buffer(Buffer { page_size: 8192, ..TOP }),
        Err(WriteError::PageSize { .. })
    ));
    assert!(matches!(writer.begin_buffer(Buffer { name: "a\0", ..TOP }), Err(WriteError::Text { .. })));
    let mut top = writer.begin_buffer(TOP).unwrap();
    top.write_cpu(0, pages(1).as_slice()).unwrap();
    assert!(matches!(top.write_cpu(0, pages(1).as_slice()), Err(WriteError::DuplicateCpu { cpu: 0, .. })));
    assert!(matches!(top.copy_cpu(0, 1, |_, _| Ok(0)), Err(WriteError::DuplicateCpu { cpu: 0, .. })));
    assert!(matches!(top.write_cpu(u32::MAX, io::empty()), Err(WriteError::CpuNumber { .. })));
    top.finish().unwrap();
    assert!(matches!(writer.begin_buffer(TOP), Err(WriteError::DuplicateTopBuffer)));
    let late = writer.section(Section::printk(Endian::Little, b"").unwrap());
    assert!(matches!(late, Err(WriteError::AfterData { .. })));
    let _ = writer.begin_buffer(Buffer { name: "left open", ..TOP }).unwrap();
    assert!(matches!(writer.finish(), Err(WriteError::BufferNotFinished { name }) if name == "left open"));
}

#[test]
fn data_that_readers_would_choke_on() {
    let write = |data: &[u8]| writer(NONE).begin_buffer(TOP).unwrap().write_cpu(2, data).unwrap_err();
    assert!(matches!(write(&pages(1)[..4000]), WriteError::PageRun { cpu: 2, len: 4000, .. }));
    let mut broken = pages(18);
    broken[17 * 4096 + 8..17 * 4096 + 12].copy_from_slice(&4084u32.to_le_bytes());
    assert!(matches!(
        write(&broken),
        WriteError::Page { cpu: 2, index: 17, source: PageError::DataLen { .. } }
    ));

    let mut writer = writer(NONE);
    let mut top = writer.begin_buffer(TOP).unwrap();
    assert!(matches!(
        top.copy_cpu(0, 1, |_, _| Ok(4096)),
        Err(WriteError::CopyLength { said: 4096, found: 0, .. })
    ));
    assert!(matches!(top.copy_cpu(0, 1, |_, _| Ok(100)), Err(WriteError::PageRun { len: 100, .. })));
    let failing = top.copy_cpu(0, 1, |_, _| Err(io::Error::other("disk")));
    assert!(matches!(failing, Err(WriteError::Io { .. })));
}
