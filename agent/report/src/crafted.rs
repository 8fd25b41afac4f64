//! Recordings of a few records, for tests: version 6, one CPU, little-endian.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a helper of tests fails the test")]

use super::TraceFile;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";
const PAGE: usize = 65536;
const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits
\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30
\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

/// What follows what.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A record.
    Record(Vec<u8>),
    /// Events were lost here, it is not known how many.
    Lost,
}

/// The number of the event `test:ev`.
pub const EVENT: u16 = 300;

/// A record of `test:ev`: thread, `common_flags`, and its fields `ptr` and `pid`.
pub fn ev(thread: i32, flags: u8, ptr: u64, pid: i32) -> Entry {
    let mut record = common(EVENT, thread, flags);
    record.extend(ptr.to_le_bytes());
    record.extend(ptr.to_le_bytes());
    record.extend(pid.to_le_bytes());
    Entry::Record(record)
}

/// A record of `ftrace:kernel_stack`.
pub fn stack(thread: i32, flags: u8, frames: &[u64]) -> Entry {
    let mut record = common(4, thread, flags);
    record.extend((frames.len() as u64).to_le_bytes());
    record.extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
    Entry::Record(record)
}

/// A record of `ftrace:user_stack`, which has room for 8 frames.
pub fn user_stack(thread: i32, flags: u8, process: u32, frames: &[u64]) -> Entry {
    let mut record = common(13, thread, flags);
    record.extend(u64::from(process).to_le_bytes());
    record.extend(frames.iter().chain(&[u64::MAX; 8]).take(8).flat_map(|frame| frame.to_le_bytes()));
    Entry::Record(record)
}

/// A record of an event that the file does not describe.
pub fn unknown() -> Entry {
    Entry::Record(common(999, 1, 0))
}

fn common(id: u16, thread: i32, flags: u8) -> Vec<u8> {
    let mut record = id.to_le_bytes().to_vec();
    record.extend([flags, 0]);
    record.extend(thread.to_le_bytes());
    record
}

/// A recording of these records, a nanosecond each from 1001 on, and of events lost a microsecond. Symbols
/// are lines of `/proc/kallsyms`; threads are lines of number and name.
pub fn file(entries: &[Entry], symbols: &str, threads: &str, clock: &str) -> TraceFile<Vec<u8>> {
    TraceFile::open("crafted", bytes(entries, symbols, threads, clock)).unwrap()
}

/// The bytes of the same.
pub fn bytes(entries: &[Entry], symbols: &str, threads: impl AsRef<[u8]>, clock: &str) -> Vec<u8> {
    let header_page = format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:{};\tsigned:1;\n",
        PAGE - 16
    );
    let format = |name: &str, id: u16, own: &str, print_fmt: &str| {
        format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{own}\nprint fmt: {print_fmt}\n")
    };
    let kernel_stack = format(
        "kernel_stack",
        4,
        "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n",
        "\"\\t=> %ps\\n\", (void *)REC->caller[0]",
    );
    let user_stack = format(
        "user_stack",
        13,
        "\tfield:unsigned int tgid;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n",
        "\"\\t=> %ps\\n\", (void *)REC->caller[0]",
    );
    let event = format(
        "ev",
        EVENT,
        "\tfield:unsigned long ptr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;
\tfield:int pid;\toffset:24;\tsize:4;\tsigned:1;\n",
        "\"ptr=%lx\", REC->ptr",
    );
    let mut file = b"\x17\x08\x44tracing6\0\0\x08".to_vec();
    file.extend((PAGE as u32).to_le_bytes());
    let long = |file: &mut Vec<u8>, text: &dyn AsRef<[u8]>| {
        file.extend((text.as_ref().len() as u64).to_le_bytes());
        file.extend(text.as_ref());
    };
    file.extend(b"header_page\0");
    long(&mut file, &header_page);
    file.extend(b"header_event\0");
    long(&mut file, &HEADER_EVENT);
    file.extend(2_u32.to_le_bytes());
    long(&mut file, &kernel_stack);
    long(&mut file, &user_stack);
    file.extend(1_u32.to_le_bytes());
    file.extend(b"test\0");
    file.extend(1_u32.to_le_bytes());
    long(&mut file, &event);
    file.extend((symbols.len() as u32).to_le_bytes());
    file.extend(symbols.as_bytes());
    file.extend(0_u32.to_le_bytes());
    long(&mut file, &threads);
    file.extend(1_u32.to_le_bytes());
    file.extend(b"options  \0");
    // OPTION_TRACECLOCK.
    file.extend(4_u16.to_le_bytes());
    file.extend((clock.len() as u32 + 1).to_le_bytes());
    file.extend(clock.as_bytes());
    file.extend(b"\0\0\0flyrecord\0");
    let data = pages(entries);
    let start = (file.len() + 16).next_multiple_of(PAGE);
    file.extend((start as u64).to_le_bytes());
    file.extend((data.len() as u64).to_le_bytes());
    file.resize(start, 0);
    file.extend(data);
    file
}

/// Pages of the ring buffer. Records that do not fit go on in the next page; those after lost events begin
/// one.
fn pages(entries: &[Entry]) -> Vec<u8> {
    /// Events were lost before the page (`RB_MISSED_EVENTS` of kernel/trace/ring_buffer.c).
    const MISSED: u64 = 1 << 31;
    let (mut data, mut page, mut time, mut missed) = (Vec::new(), Vec::new(), 1000_u64, 0);
    let finish = |data: &mut Vec<u8>, page: &mut Vec<u8>, time: u64, missed: &mut u64| {
        if page.is_empty() {
            return;
        }
        data.extend(time.to_le_bytes());
        data.extend((page.len() as u64 | *missed).to_le_bytes());
        data.append(page);
        data.resize(data.len().next_multiple_of(PAGE), 0);
        *missed = 0;
    };
    for entry in entries {
        let Entry::Record(record) = entry else {
            finish(&mut data, &mut page, time, &mut missed);
            time += 1000;
            missed = MISSED;
            continue;
        };
        let len = record.len().next_multiple_of(4);
        if page.len() + len + 8 > PAGE - 16 {
            finish(&mut data, &mut page, time, &mut missed);
            time += 10_000;
        }
        // One unit of time after the record before it; the length is in words, or in bytes with its own.
        let delta = 1_u32 << 5;
        if len / 4 <= 28 {
            page.extend(((len as u32 / 4) | delta).to_le_bytes());
        } else {
            page.extend(delta.to_le_bytes());
            page.extend((len as u32 + 4).to_le_bytes());
        }
        page.extend(record);
        page.resize(page.len() + len - record.len(), 0);
    }
    finish(&mut data, &mut page, time, &mut missed);
    data
}
