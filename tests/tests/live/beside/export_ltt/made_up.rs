//! Recordings that no recorder made: of everything that fields can be.

use super::*;

/// A small generator (xorshift64*): tests that fail must fail again.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// An event of everything that fields can be.
pub(crate) fn format() -> String {
    let mut text = String::from("name: mixed\nID: 9\nformat:\n");
    for (declaration, offset, size, signed) in [
        ("unsigned short common_type", 0, 2, 0),
        ("int common_pid", 4, 4, 1),
        ("", 0, 0, 0),
        ("u8 small", 8, 1, 0),
        ("short half", 10, 2, 1),
        ("int whole", 12, 4, 1),
        ("void * at", 16, 8, 0),
        ("char name[8]", 24, 8, 0),
        ("u16 pair[2]", 32, 4, 0),
        ("u8 many[20]", 36, 20, 0),
        ("struct pair blob", 56, 3, 0),
        ("__data_loc char[] text", 60, 4, 0),
        ("__data_loc u16[] list", 64, 4, 0),
        ("__data_loc cpumask_t cpus", 68, 4, 0),
        ("__data_loc char[][2] two", 72, 8, 0),
    ] {
        if declaration.is_empty() {
            text.push('\n');
        } else {
            let _ =
                writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};");
        }
    }
    text + "\nprint fmt: \"%s\", __print_symbolic(REC->small, { 0, \"NONE\" }, { 1, \"ONE\" })\n"
}

pub(crate) fn mixed(chance: &mut Chance, endian: Endian) -> Vec<u8> {
    let mut record = endian.u16(9).to_vec();
    record.extend((0..58).map(|_| chance.next() as u8));
    let list = match chance.below(30) {
        0 => 30_000,
        1 => 0,
        n => n * 2,
    };
    let text = chance.below(3) * 5;
    let mut at = 80;
    let mut tail = Vec::new();
    for len in [text, list * 2, chance.below(3) * 8, chance.below(5), 1] {
        record.extend_from_slice(&endian.u32(at as u32 | (len as u32) << 16));
        tail.extend((0..len).map(|_| chance.below(255) as u8 + 1));
        at += len;
    }
    record.extend_from_slice(&tail);
    record
}

/// A recording of these CPUs. `pages` makes a CPU's pages.
pub(crate) fn build(
    cpus: &[u32],
    options: &[FileOption],
    endian: Endian,
    mut pages: impl FnMut(u32, &mut PageBuilder) -> Vec<u8>,
) -> TraceFile {
    let page_size = 64 << 10;
    let setup = Setup { endian, page_size, compression: Compression::None };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
    writer.section(Section::header_info(endian, &layout::header_page_text(page_size), "").unwrap()).unwrap();
    let format = format();
    let systems = [EventSystem { name: "demo", formats: &[format.as_str()] }];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    for option in options {
        writer.option(option).unwrap();
    }
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    for cpu in cpus {
        let mut builder = PageBuilder::new(page_size as usize, endian).unwrap();
        top.write_cpu(*cpu, pages(*cpu, &mut builder).as_slice()).unwrap();
    }
    top.finish().unwrap();
    Reader::open(Box::new(writer.finish().unwrap().into_inner()) as Box<dyn Source>).unwrap()
}

/// A recording of sparse CPUs, one without a record, with long gaps, lost events and records of 60 KB.
pub(crate) fn synthetic(seed: u64) -> TraceFile {
    let endian = if seed.is_multiple_of(2) { Endian::Little } else { Endian::Big };
    let chance = &mut Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    build(&[0, 3, 9, 20], &[], endian, |cpu, builder| {
        let mut pages = Vec::new();
        let mut time = chance.below(1 << 40);
        // What may be missing is told by its time.
        let mut apart = 0;
        for number in 0..(if cpu == 9 { 0 } else { 150 }) {
            time += apart;
            time += match chance.below(40) {
                0 => 300_000_000_000,
                1 => 90_000_000_000_000,
                2 => (1 << 32) - chance.below(3),
                3 => 0,
                _ => chance.below(5000),
            };
            // One at the start, and some in the middle.
            if number == 0 || chance.below(50) == 0 {
                builder.missed(chance.below(3));
            }
            let record = if number == 70 { long(chance, endian) } else { mixed(chance, endian) };
            apart = u64::from(record.len() > LONG);
            while builder.push(time, &record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
            }
        }
        pages.extend_from_slice(builder.finish().unwrap_or_default());
        pages
    })
}

/// A record of 60 KB at least.
pub(crate) fn long(chance: &mut Chance, endian: Endian) -> Vec<u8> {
    std::iter::repeat_with(|| mixed(chance, endian)).find(|record| record.len() > 60_000).unwrap()
}

pub(crate) fn count_long(file: &TraceFile) -> u64 {
    let mut records = file.records().unwrap();
    let mut count = 0;
    while let Some(record) = records.next_record().unwrap() {
        count += u64::from(record.data.len() > 60_000);
    }
    count
}
