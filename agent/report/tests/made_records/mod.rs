//! Records made for formats, in a file of version 7.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a helper of tests fails the test")]

use std::collections::BTreeMap;

use ftrace_event::{Array, Endian, Field, Format, Location};
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

/// Format texts by system.
pub type Systems = BTreeMap<String, Vec<String>>;

const PAGE: u32 = 65536;
const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits
\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30
\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

/// Numbers that fields get, in turns: what flags, states, sizes and errors are like.
const NUMBERS: [u64; 16] = [0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 64, 100, 1000, 4096, 65537, 0xffff_fff5];

/// Records of each format.
pub const RECORDS: usize = 4;

/// A recording with records of every format, the same for the same formats.
pub fn file_of(systems: &Systems) -> Vec<u8> {
    let endian = Endian::Little;
    let setup = Setup { endian, compression: Compression::None, page_size: PAGE };
    let mut writer = Writer::create(std::io::Cursor::new(Vec::new()), setup).unwrap();
    writer
        .section(Section::header_info(endian, &layout::header_page_text(PAGE), HEADER_EVENT).unwrap())
        .unwrap();
    let texts = |name: &str| systems.get(name).into_iter().flatten().map(String::as_str).collect::<Vec<_>>();
    writer.section(Section::ftrace_events(endian, &texts("ftrace")).unwrap()).unwrap();
    let others: Vec<(&String, Vec<&str>)> =
        systems.keys().filter(|name| *name != "ftrace").map(|name| (name, texts(name))).collect();
    let others: Vec<EventSystem<'_>> =
        others.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &others).unwrap()).unwrap();
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: PAGE }).unwrap();
    top.write_cpu(0, pages(systems).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap().into_inner()
}

fn pages(systems: &Systems) -> Vec<u8> {
    let mut builder = PageBuilder::new(PAGE as usize, Endian::Little).unwrap();
    let mut pages = Vec::new();
    let mut time = 1_000_000_000;
    let mut dice = Dice(1);
    for text in systems.values().flatten() {
        let Ok(format) = Format::parse(text) else { continue };
        for number in 0..RECORDS {
            time += 1000;
            let record = record(&format, if number == 0 { None } else { Some(&mut dice) });
            while builder.push(time, &record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
            }
        }
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    pages
}

/// Numbers by chance, the same in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// A record with these numbers, or of nothing but zeros.
fn record(format: &Format, mut dice: Option<&mut Dice>) -> Vec<u8> {
    let mut number = |field: &Field| {
        // Stock trace-cmd reads as many bytes as a length says.
        let is_length = ["len", "size", "count", "num", "nr", "cnt", "bytes", "depth"]
            .iter()
            .any(|part| field.name.contains(part));
        let numbers = if is_length { &NUMBERS[..3] } else { &NUMBERS[..] };
        dice.as_mut().map_or(0, |dice| numbers[dice.next(numbers.len())])
    };
    let layout = format.record_layout();
    let mut record = vec![0; layout.size as usize];
    record[..2].copy_from_slice(&format.id.to_le_bytes());
    record[4..8].copy_from_slice(&42_u32.to_le_bytes());
    for field in &format.fields {
        let (start, end) = (field.offset as usize, field.end() as usize);
        let is_text = field.type_text.split_whitespace().any(|word| word == "char");
        if field.location != Location::Inline {
            for word in 0..field.strings().unwrap_or(1) as usize {
                let value = number(field);
                let at = start + word * 4;
                dynamic(&mut record, at, field, value);
            }
        } else if field.is_open() {
            let bytes = content(field, number(field));
            record.truncate(end);
            record.extend(bytes);
        } else if is_text && field.array != Array::Single {
            let len = (end - start).min(4);
            record[start..start + len].copy_from_slice(&b"abc\0"[..len]);
        } else {
            let step =
                field.element_size().filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(1) as usize;
            for place in record[start..end].chunks_exact_mut(step) {
                place.copy_from_slice(&number(field).to_le_bytes()[..step]);
            }
            // For stock, an array that was no text once is none in all later records.
            if step == 1 && field.array != Array::Single {
                record[start] = 0xff;
            }
        }
    }
    record
}

/// Data of a field behind the record, and the word that leads there.
fn dynamic(record: &mut Vec<u8>, at: usize, field: &Field, value: u64) {
    let bytes = content(field, value);
    let place = record.len().next_multiple_of(8);
    record.resize(place, 0);
    let base = if field.location == Location::RelLoc { at + 4 } else { 0 };
    let word = (place - base) as u32 | (bytes.len() as u32) << 16;
    record[at..at + 4].copy_from_slice(&word.to_le_bytes());
    record.extend(bytes);
}

/// A text, or two numbers.
fn content(field: &Field, value: u64) -> Vec<u8> {
    if field.type_text.contains("char") {
        return b"abc\0".to_vec();
    }
    let size = field.element_size().filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(8) as usize;
    // As in the record, arrays of bytes are no texts.
    let value = if size == 1 { 0xff } else { value };
    [value, 3].iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect()
}
