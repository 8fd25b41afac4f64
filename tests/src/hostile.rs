//! A recording in which everything that has a name has a hostile one: names of events, systems, values,
//! threads, buffers, the host, and texts in records.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use ftrace_event::Cmdlines;
use tracedat::layout::header_page_text;
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, EventSystem, FileOption, Section, Setup, Writer};

/// What a page, a shell, a table, a terminal, a path or a format string could take for more than text.
pub const TEXTS: [&[u8]; 22] = [
    b"ends with \\",
    b"<script>window.pwned=1</script>",
    b"</script><img src=x onerror=window.pwned=1>",
    b"<!--<script>",
    b"\"quoted\" 'twice' `thrice`",
    b"back\\slash\\n\\u0041\\",
    b"\x1b]0;title\x07",
    b"\x1b[2J\x1b[31mred",
    b"c1 \xc2\x9b31m \xc2\x9d0;x",
    b"raw \x9b31m \xff\xfe\xc0\xaf",
    b"\xe2\x80\xaegnp.exe \xe2\x81\xa6",
    b"=cmd|' /C calc'!A0",
    b"-rf --help",
    b"+1+1,@SUM(1)",
    b"../../../etc/passwd",
    b"%s%n%99999d %1$s",
    b"semi;colon, comma; tab\tand\x0bmore",
    b"{\"json\": [1,2]} }] ]]> */ -->",
    b"&lt;amp&amp;&#x3c;",
    b"${HOME} $(id) `id`",
    b"\xe2\x80\xa8line separators\xe2\x80\xa9",
    b"\x01\x02\x7f",
];

/// How long a long name is.
pub const LONG: usize = 1 << 20;

/// Where the text of a record is in it.
const TEXT_AT: u32 = 0x18;

/// The number of the first event.
const FIRST: u32 = 400;

/// Names for what a file has as UTF-8: those of the texts that are.
pub fn names() -> impl Iterator<Item = &'static str> {
    TEXTS.into_iter().filter_map(|text| std::str::from_utf8(text).ok())
}

/// How many records there are.
pub fn records() -> usize {
    (names().count() + 2) * TEXTS.len()
}

/// Writes the recording. `long` is how long the names of one of its events are.
pub fn write(path: &Path, long: usize) {
    // Events have names of letters and digits; others are not described, and have no records here.
    let mut formats: Vec<(String, String)> = (FIRST..)
        .zip(names())
        .map(|(id, name)| (format!("nasty {name}"), format(&format!("e{id}"), id, name)))
        .collect();
    for name in ["plain".to_owned(), "x".repeat(long)] {
        let id = FIRST + formats.len() as u32;
        formats.push(("nasty".to_owned(), format(&name, id, &name)));
    }
    let events = formats.len();
    for (id, name) in (FIRST + 100..).zip(names()) {
        formats.push((format!("undescribed {name}"), format(name, id, name)));
    }
    let setup = Setup::default();
    let endian = setup.endian;
    let mut writer = Writer::create(File::create(path).unwrap(), setup).unwrap();
    writer.section(Section::header_info(endian, &header_page_text(setup.page_size), "").unwrap()).unwrap();
    let texts: Vec<[&str; 1]> = formats.iter().map(|(_, text)| [text.as_str()]).collect();
    let systems: Vec<_> =
        formats.iter().zip(&texts).map(|((name, _), formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    let mut symbols = String::new();
    for (name, at) in names().zip(0x1000..) {
        let name = name.replace([' ', '\t', '\x0b'], "_");
        writeln!(symbols, "ffffffff8100{at:04x} T {name}").unwrap();
    }
    writer.section(Section::kallsyms(endian, symbols.as_bytes()).unwrap()).unwrap();
    writer.section(Section::printk(endian, b"0x20 : \"<b>\x1b[7m\"\n").unwrap()).unwrap();
    let mut threads = Cmdlines::default();
    for (text, tid) in TEXTS.into_iter().zip(100..) {
        threads.insert(tid, text);
    }
    threads.insert(99, &vec![b'c'; long]);
    writer.section(Section::cmdlines(endian, &threads)).unwrap();
    let host = names().collect::<Vec<_>>().join(" ");
    for option in [
        FileOption::Uname(format!("Linux {} 6.12.0 x86_64", host.replace(' ', "_"))),
        FileOption::Version(host.clone()),
        FileOption::TraceClock("local [mono]".to_owned()),
        FileOption::CpuCount(2),
    ] {
        writer.option(&option).unwrap();
    }
    // A reader takes no longer ones.
    let long = "b".repeat(long.min(4000));
    for (number, name) in ["", "</script><b>", "\x1b]0;x\x07../..\u{202e}", &long].into_iter().enumerate() {
        let mut buffer =
            writer.begin_buffer(Buffer { name, clock: "mono", page_size: setup.page_size }).unwrap();
        if number == 0 {
            buffer.write_cpu(0, pages(events).as_slice()).unwrap();
        }
        buffer.finish().unwrap();
    }
    writer.finish().unwrap();
}

/// An event of which everything has a name: values of `kind`, and texts in records.
fn format(name: &str, id: u32, value: &str) -> String {
    let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "name: {name}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         \tfield:u64 at;\toffset:8;\tsize:8;\tsigned:0;\n\
         \tfield:int kind;\toffset:16;\tsize:4;\tsigned:1;\n\
         \tfield:__data_loc char[] text;\toffset:20;\tsize:4;\tsigned:0;\n\n\
         print fmt: \"%pS %s %s\", (void *)REC->at, __print_symbolic(REC->kind, {{ 1, \"{quoted}\" }}, {{ 2, \"two\" }}), __get_str(text)\n"
    )
}

/// A record of each event for each text.
fn pages(events: usize) -> Vec<u8> {
    let setup = Setup::default();
    let mut builder = PageBuilder::new(setup.page_size as usize, setup.endian).unwrap();
    let mut pages = Vec::new();
    let mut time = 1_000_000;
    for event in 0..events as u32 {
        for (text, tid) in TEXTS.into_iter().zip(100_u32..) {
            time += 1000;
            let mut record = [(FIRST + event).to_le_bytes(), tid.to_le_bytes()].concat();
            record.extend_from_slice(&0xffff_ffff_8100_1000_u64.to_le_bytes());
            record.extend_from_slice(&1_u32.to_le_bytes());
            record.extend_from_slice(&(TEXT_AT | (text.len() as u32 + 1) << 16).to_le_bytes());
            record.extend_from_slice(text);
            record.push(0);
            record.resize(record.len().next_multiple_of(4), 0);
            if builder.push(time, &record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
                assert_ne!(builder.push(time, &record).unwrap(), Push::Full);
            }
        }
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    pages
}
