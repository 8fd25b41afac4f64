//! An independent look into trace.dat files: options, pages and the records on them.
//!
//! Only what the tests need, and nothing of the agent's own codec: where the two disagree a test must see it.

use std::{fs, path::Path};

/// Number of the option with the agent's loss ledger.
const LEDGER_OPTION: u16 = 0x5441;
const BUFFER_OPTION: u16 = 3;
const PAGE: usize = 4096;

/// One record of a page, its event header stripped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// CPU that recorded it.
    pub cpu: u32,
    /// Nanoseconds of the trace clock.
    pub time: u64,
    /// Common fields and the event's own, as long as the event header says.
    pub bytes: Vec<u8>,
}

impl Record {
    /// `common_type`.
    pub fn id(&self) -> u16 {
        u16::from_le_bytes([self.bytes[0], self.bytes[1]])
    }

    /// `common_flags`.
    pub fn flags(&self) -> u8 {
        self.bytes[2]
    }

    /// `common_preempt_count`.
    pub fn preempt_count(&self) -> u8 {
        self.bytes[3]
    }

    /// `common_pid`.
    pub fn pid(&self) -> u32 {
        le_u32(&self.bytes, 4)
    }
}

/// Little-endian word at `at`.
pub fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The records on one CPU's pages (`Documentation/trace/ring-buffer-design.rst` and the kernel's
/// `events/header_page`).
pub fn records(cpu: u32, pages: &[u8]) -> Vec<Record> {
    assert!(pages.len().is_multiple_of(PAGE), "CPU {cpu}: {} bytes are not whole pages", pages.len());
    let mut records = Vec::new();
    for page in pages.chunks_exact(PAGE) {
        let mut time = le_u64(page, 0);
        let length = (le_u64(page, 8) & 0x7ff_ffff) as usize;
        let data = &page[16..16 + length];
        let mut at = 0;
        while at < data.len() {
            let header = le_u32(data, at);
            let delta = u64::from(header >> 5);
            at += 4;
            let payload = match header & 0x1f {
                0 => {
                    let payload = le_u32(data, at) as usize - 4;
                    at += 4;
                    payload
                }
                // What is left of a discarded event, or of the page.
                29 => {
                    time += delta;
                    at += le_u32(data, at) as usize;
                    continue;
                }
                30 => {
                    time += delta + (u64::from(le_u32(data, at)) << 27);
                    at += 4;
                    continue;
                }
                // 59 bits of an absolute time.
                31 => {
                    let stamp = delta + (u64::from(le_u32(data, at)) << 27);
                    time = time >> 59 << 59 | stamp;
                    at += 4;
                    continue;
                }
                words => words as usize * 4,
            };
            time += delta;
            records.push(Record { cpu, time, bytes: data[at..at + payload].to_vec() });
            at += payload.next_multiple_of(4);
        }
        assert_eq!(at, data.len(), "CPU {cpu}: the last record ends behind its page's data");
    }
    records
}

/// A trace.dat file of version 7.
#[derive(Debug)]
pub struct Dat {
    bytes: Vec<u8>,
    compressed: bool,
    /// Numbers and contents of the options, in the order of the file.
    options: Vec<(u16, Vec<u8>)>,
}

impl Dat {
    /// Reads the file and follows its options.
    pub fn open(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(bytes[..10], *b"\x17\x08\x44tracing", "{}: the magic", path.display());
        let mut at = 10;
        let version = c_string(&bytes, &mut at);
        assert_eq!(version, "7", "{}: the version", path.display());
        // Endianness, size of a long, page size.
        at += 6;
        let compressor = c_string(&bytes, &mut at);
        c_string(&bytes, &mut at);
        let mut next = le_u64(&bytes, at) as usize;
        let mut options = Vec::new();
        while next != 0 {
            // Behind the section's header; a list of options ends with a link to the next one.
            let mut at = next + 16;
            loop {
                let id = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
                let len = le_u32(&bytes, at + 2) as usize;
                let content = bytes[at + 6..at + 6 + len].to_vec();
                at += 6 + len;
                if id == 0 {
                    next = le_u64(&content, 0) as usize;
                    break;
                }
                options.push((id, content));
            }
        }
        Self { bytes, compressed: compressor != "none", options }
    }

    /// The records of an uncompressed file's top buffer, CPU by CPU.
    pub fn records(&self) -> Vec<Record> {
        assert!(!self.compressed, "this reader takes no compressed data: record with --compression none");
        let (_, option) = self.options.iter().find(|(id, _)| *id == BUFFER_OPTION).expect("a BUFFER option");
        let mut at = 8;
        assert_eq!(c_string(option, &mut at), "", "the first buffer is the top buffer");
        c_string(option, &mut at);
        let cpus = le_u32(option, at + 4);
        at += 8;
        let mut found = Vec::new();
        for _ in 0..cpus {
            let (cpu, offset, size) = (le_u32(option, at), le_u64(option, at + 4), le_u64(option, at + 12));
            found.extend(records(cpu, &self.bytes[offset as usize..][..size as usize]));
            at += 20;
        }
        found
    }

    /// The agent's loss ledger: JSON text.
    pub fn ledger(&self) -> Ledger {
        let (_, text) =
            self.options.iter().find(|(id, _)| *id == LEDGER_OPTION).expect("an option with the loss ledger");
        Ledger { text: String::from_utf8(text.clone()).unwrap() }
    }
}

/// What the agent says it lost.
#[derive(Debug)]
pub struct Ledger {
    text: String,
}

impl Ledger {
    /// Events skipped by the kernel's recursion guard; `None` on kernels that do not count them.
    pub fn recursion_misses(&self) -> Option<u64> {
        if self.text.contains("\"recursion_misses\":null") {
            return None;
        }
        Some(self.numbers("recursion_misses").next().expect("the ledger tells of recursion misses"))
    }

    /// Whether more may have been skipped than the kernel counts.
    pub fn skips_uncounted(&self) -> bool {
        self.text.contains("\"skips_uncounted\":true")
    }

    /// Whether an event took the generic lane.
    pub fn is_generic(&self, event: &str) -> bool {
        let entry = self.text.split_once(&format!("\"event\":\"{event}\","));
        let lane = entry.and_then(|(_, rest)| rest.split_once("\"lane\":\""));
        lane.is_some_and(|(_, rest)| rest.starts_with("generic\""))
    }

    /// Events recorded, over all CPUs.
    pub fn recorded(&self) -> u64 {
        let (cpus, _) = self.text.split_once("\"events\":").expect("the ledger lists events");
        Self { text: cpus.to_owned() }.numbers("recorded").sum()
    }

    /// Events lost for every other reason, over all events.
    pub fn lost(&self) -> u64 {
        let (cpus, _) = self.text.split_once("\"events\":").expect("the ledger lists events");
        let cpus = Self { text: cpus.to_owned() };
        ["ring_full", "oversize", "read_fault", "nested"].iter().flat_map(|cause| cpus.numbers(cause)).sum()
    }

    /// Events of this name that were lost.
    pub fn lost_of(&self, event: &str) -> u64 {
        let (_, events) = self.text.split_once("\"events\":").expect("the ledger lists events");
        let Some((_, of)) = events.split_once(&format!("\"event\":\"{event}\"")) else { return 0 };
        let (_, of) = of.split_once("\"lost\":{").expect("what was lost of it");
        let (lost, _) = of.split_once('}').expect("the end of what was lost");
        lost.split(',').map(|cause| cause.split_once(':').unwrap().1.parse::<u64>().unwrap()).sum()
    }

    fn numbers(&self, key: &str) -> impl Iterator<Item = u64> {
        let key = format!("\"{key}\":");
        let number = |(at, key): (usize, &str)| {
            let rest = &self.text[at + key.len()..];
            rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
        };
        self.text.match_indices(&key).map(number).collect::<Vec<_>>().into_iter()
    }
}

fn c_string(bytes: &[u8], at: &mut usize) -> String {
    let length = bytes[*at..].iter().position(|byte| *byte == 0).expect("a terminated string");
    let text = String::from_utf8(bytes[*at..*at + length].to_vec()).unwrap();
    *at += length + 1;
    text
}
