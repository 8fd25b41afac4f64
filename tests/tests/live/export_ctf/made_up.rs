//! Recordings that no recorder made: of any byte order, length and loss.

use super::*;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// An event with text and numbers of any length.
pub(crate) fn blob_format(id: u16) -> String {
    format!(
        "name: blob{id}\nID: {id}\nformat:\n{COMMON}\n\
        \tfield:__data_loc char[] text;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc s16[] list;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:s64 number;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n"
    )
}

pub(crate) fn blob(endian: Endian, id: u16, text: &[u8], list: &[i16], number: i64) -> Vec<u8> {
    let mut record = endian.u16(id).to_vec();
    record.extend([1, 2]);
    record.extend(endian.u32(3));
    let list_at = 24 + text.len() as u32 + 1;
    record.extend(endian.u32(0x18 | (text.len() as u32 + 1) << 16));
    record.extend(endian.u32(list_at | (list.len() as u32 * 2) << 16));
    record.extend(endian.u64(number as u64));
    record.extend(text);
    record.push(0);
    record.extend(list.iter().flat_map(|number| endian.u16(*number as u16)));
    record
}

/// A step of a made-up recording: time, events lost before, record.
pub(crate) type Made = (u64, Option<u64>, Vec<u8>);

/// Writes a file with these formats, and the records of these CPUs.
pub(crate) fn make(
    path: &Path,
    endian: Endian,
    formats: &[String],
    page_size: u32,
    cpus: &[(u32, Vec<Made>)],
) {
    let setup = Setup { endian, page_size, compression: Compression::zstd(1) };
    let mut writer = Writer::create(
        File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap(),
        setup,
    )
    .unwrap();
    let header_page = layout::header_page_text(page_size);
    writer.section(Section::header_info(endian, &header_page, "x").unwrap()).unwrap();
    writer.section(Section::ftrace_events(endian, &[]).unwrap()).unwrap();
    let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
    writer
        .section(Section::event_formats(endian, &[EventSystem { name: "made", formats: &formats }]).unwrap())
        .unwrap();
    writer.section(Section::kallsyms(endian, b"").unwrap()).unwrap();
    writer.section(Section::printk(endian, b"").unwrap()).unwrap();
    writer.section(Section::cmdlines(endian, &Cmdlines::new())).unwrap();
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    for (cpu, records) in cpus {
        let mut builder = PageBuilder::new(page_size as usize, endian).unwrap();
        let mut pages = Vec::new();
        for (time, missed, record) in records {
            if let Some(missed) = missed {
                pages.extend_from_slice(builder.finish().unwrap_or_default());
                builder.missed(*missed);
            }
            while builder.push(*time, record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
            }
        }
        pages.extend_from_slice(builder.finish().unwrap_or_default());
        buffer.write_cpu(*cpu, pages.as_slice()).unwrap();
    }
    buffer.finish().unwrap();
    writer.finish().unwrap();
}

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}

#[test]
fn made_up_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made.dat");
    for seed in 0..4 {
        let mut random = Random(seed);
        // Few kinds of events have compact headers, many have large ones.
        let kinds = if seed % 2 == 0 { 3 } else { 40 };
        let endian = if seed < 2 { Endian::Little } else { Endian::Big };
        let formats: Vec<String> = (0..kinds).map(|kind| blob_format(1000 + kind)).collect();
        let mut cpus = Vec::new();
        let mut lost = 0;
        for cpu in [0, 3, 63] {
            let mut time = 1_000_000 + random.below(1000);
            let mut records = Vec::new();
            // One of them has nothing.
            let count = if cpu == 3 { 0 } else { 400 };
            for place in 0..count {
                // Gaps around the turns of 27 and 32 bits, and of five minutes.
                time += match random.below(20) {
                    0 => 300_000_000_000,
                    1 => (1 << 27) - 1 + random.below(3),
                    2 => (1 << 32) - 1 + random.below(3),
                    _ => random.below(5000),
                };
                let missed = (place == 0 || random.below(40) == 0).then(|| 1 + random.below(1000));
                lost += missed.unwrap_or(0);
                let text = match random.below(60) {
                    0..10 => Vec::new(),
                    // Nearly the longest that a page of 64 KB holds.
                    10 => vec![b'x'; 60_000],
                    length => vec![b"a\"\\\n b"[random.below(6) as usize]; length as usize],
                };
                let list: Vec<i16> = (0..random.below(5)).map(|_| random.below(65536) as i16).collect();
                let id = 1000 + random.below(kinds.into()) as u16;
                records.push((time, missed, blob(endian, id, &text, &list, random.below(u64::MAX) as i64)));
            }
            cpus.push((cpu, records));
        }
        make(&file, endian, &formats, 65536, &cpus);
        for format in FORMATS {
            let (trace, out) = check(&file, format, dir.path());
            assert_eq!(trace.events.len(), 800);
            assert_eq!(trace.losses.values().flatten().map(|loss| loss.2).sum::<u64>(), lost, "seed {seed}");
            assert!(trace.text.contains(if kinds == 3 {
                "event_header_compact;"
            } else {
                "event_header_large;"
            }));
            fs::remove_dir_all(out).unwrap();
        }
    }
}
