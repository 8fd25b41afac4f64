//! The slices of a page, as its scripts read them.

use std::collections::BTreeSet;
use std::io::Read as _;

use super::{Drawn, Flow, Kind, Slice};
use flate2::read::DeflateDecoder;
use serde_json::Value;

/// What threads do, by the numbers of `tracks::state`.
const STATES: [&str; 7] = ["unknown", "runs", "woken", "preempted", "sleeps", "blocked", "stopped"];

pub(super) struct Page {
    pub(super) slices: Vec<Drawn>,
    /// Wakeups, as Chrome's JSON has them.
    pub(super) flows: BTreeSet<Flow>,
    /// CPU and number of each loss.
    lost: Vec<(u32, u64)>,
}

/// The data of an element.
fn element(html: &str, id: &str) -> Vec<u8> {
    let begin = format!("<script type=\"application/octet-stream\" id=\"{id}\">");
    let (_, rest) = html.split_once(&begin).unwrap();
    let (text, _) = rest.split_once("</script>").unwrap();
    let mut data = Vec::new();
    DeflateDecoder::new(&*bytes(text)).read_to_end(&mut data).unwrap();
    data
}

/// The bytes of a text in base64 (RFC 4648).
fn bytes(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let of_chunk = |chunk: &[u8]| {
        let bits =
            chunk.iter().enumerate().map(|(nth, bits)| u32::from(*bits) << (18 - 6 * nth)).sum::<u32>();
        bits.to_be_bytes()[1..chunk.len()].to_vec()
    };
    letters.chunks(4).flat_map(of_chunk).collect()
}

/// The numbers of a column.
fn numbers(column: &[u8]) -> Vec<u64> {
    let (mut numbers, mut value, mut shift) = (Vec::new(), 0, 0);
    for byte in column {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            numbers.push(value);
            (value, shift) = (0, 0);
        }
    }
    numbers
}

fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn columns(mut block: &[u8]) -> Vec<Vec<u64>> {
    let mut columns = Vec::new();
    while !block.is_empty() {
        let end = block.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (len, rest) = block.split_at(end);
        let (column, rest) = rest.split_at(numbers(len)[0] as usize);
        columns.push(numbers(column));
        block = rest;
    }
    columns
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

impl Page {
    pub(super) fn of(html: &str) -> Self {
        let index: Value = serde_json::from_slice(&element(html, "index")).unwrap();
        let mut page = Self { slices: Vec::new(), flows: BTreeSet::new(), lost: Vec::new() };
        for written in index["slices"].as_array().unwrap() {
            let block = element(html, &format!("block{}", written[1]));
            page.add(&index, &columns(&block), number(&written[3]));
        }
        page
    }

    /// How many events of a CPU are lost.
    pub(super) fn lost(&self, of: u32) -> u64 {
        self.lost.iter().filter(|(cpu, _)| *cpu == of).map(|(_, count)| count).sum()
    }

    /// Adds the slices of a block, whose times count from one.
    fn add(&mut self, index: &Value, columns: &[Vec<u64>], from: u64) {
        let [rows, starts, times, keys, args, firsts, lasts] = columns else { panic!("{columns:?}") };
        let (mut row, mut nth, mut first) = (0, 0, 0_i64);
        for run in rows.chunks(2) {
            row += run[0];
            let mut start = from;
            for _ in 0..run[1] {
                start += starts[nth];
                first += signed(firsts[nth]);
                let has = (first != 0, first + signed(lasts[nth]) != 0);
                self.slice(index, row, (start, start + times[nth]), keys[nth], signed(args[nth]), has);
                nth += 1;
            }
        }
    }

    fn slice(
        &mut self,
        index: &Value,
        row: u64,
        (begin, end): (u64, u64),
        key: u64,
        arg: i64,
        has: (bool, bool),
    ) {
        let base: u64 = index["first"].as_str().unwrap().parse().unwrap();
        let row = &index["rows"][row as usize];
        let (owner, line) = (number(&row[1]), number(&row[2]) as u32);
        let label = index["labels"][key as usize].as_str().unwrap_or_default().to_owned();
        let thread = |number: u64| {
            let thread = &index["threads"][number as usize];
            Some((self::number(&thread[0]) as u32, thread[1].as_str().unwrap().to_owned()))
        };
        let of = |thread: &Option<(u32, String)>| thread.as_ref().map_or(0, |(tid, _)| u64::from(*tid));
        let (kind, of, name, thread, result) = match number(&row[0]) {
            0 => (Kind::Cpu, owner, of(&thread(key)).to_string(), thread(key), None),
            1 => (Kind::Irq, owner, label, None, None),
            2 => {
                self.lost.push((owner as u32, arg as u64));
                return;
            }
            3 => (Kind::Request, 0, label, None, Some(arg)),
            4 => (Kind::State, of(&thread(owner)), STATES[key as usize].to_owned(), thread(owner), None),
            5 => (Kind::Call, of(&thread(owner)), label, thread(owner), has.1.then_some(arg)),
            _ => panic!("{row}"),
        };
        let slice = Slice { kind, of, name, begin: base + begin, end: base + end, result };
        self.slices.push(Drawn { slice, line: (owner, line), thread, has });
    }
}
