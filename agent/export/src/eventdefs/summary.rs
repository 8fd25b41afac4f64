//! What is in a directory in this layout, by its system.xml and the first and last events of its blocks.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::super::blocks::{self, BlockHeader, Summary};
use super::block::BLOCK_EVENT;
use super::builtin::{LITERAL, READABLE};
use ftrace_event::Endian;
use recording::error::ExportError;

/// Longest system.xml that is read.
const MAX_SYSTEM: u64 = 1 << 20;

/// Looks into a directory.
///
/// # Errors
/// It has no system.xml with byte order and size of blocks, or a file cannot be read.
pub fn read(dir: &Path) -> Result<Summary, ExportError> {
    let path = dir.join("info/system.xml");
    let len = fs::metadata(&path).map_err(ExportError::io("look at", &path))?.len();
    let wrong = |what: &str| ExportError::Unsupported(format!("{} {what}", path.display()));
    if len > MAX_SYSTEM {
        return Err(wrong("is too long for a description of a system"));
    }
    let text = fs::read(&path).map_err(ExportError::io("read", &path))?;
    let text = String::from_utf8_lossy(&text);
    let attribute = |name: &str| {
        let (_, rest) = text.split_once(&format!(" {name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let (endian, literal) = match attribute("endian").as_deref() {
        Some("LITTLE_ENDIAN") => (Endian::Little, false),
        Some("BIG_ENDIAN") => (Endian::Big, false),
        Some("little") => (Endian::Little, true),
        Some("big") => (Endian::Big, true),
        _ => return Err(wrong("tells no byte order")),
    };
    let block_size: u64 = attribute("ltt_block_size")
        .and_then(|size| size.parse().ok())
        .filter(|size| *size > 2 * BLOCK_EVENT as u64 + 4)
        .ok_or_else(|| wrong("tells no size of blocks"))?;
    let facilities = blocks::names(dir, "eventdefs/")?.len();
    let mut summary = Summary {
        layout: "ltt-eventdefs: LTT of 2003".to_owned(),
        facts: [
            (
                "blocks",
                if literal { "as the document has them" } else { "as its reader has them" }.to_owned(),
            ),
            ("byte order", if endian == Endian::Big { "big-endian" } else { "little-endian" }.to_owned()),
            ("facilities", facilities.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        ..Summary::default()
    };
    for name in ["node_name", "kernel_name", "kernel_release", "machine", "cpu", "arch_size"] {
        summary.facts.extend(attribute(name).map(|value| (name.to_owned(), value)));
    }
    let mut names = blocks::names(dir, "control/")?;
    names.extend(blocks::names(dir, "cpu/")?);
    for name in names {
        let read = |file: &File, at: u64| header(file, at, endian, block_size, literal);
        let found = blocks::file(dir, &name, block_size, &mut summary.damage, read)?;
        summary.files.push(found);
    }
    Ok(summary)
}

/// The times of block_start and of block_end, which the last 4 bytes lead to. The cycles restart in each
/// block.
fn header(
    file: &File,
    at: u64,
    endian: Endian,
    block_size: u64,
    literal: bool,
) -> io::Result<Option<BlockHeader>> {
    let trailer = u64::from(endian.read_u32(blocks::bytes(file, at + block_size - 4)?));
    let event = BLOCK_EVENT as u64;
    let numbers = if literal { LITERAL } else { READABLE };
    // Where block_end is, and how many bytes after it are unused.
    let end_at = if literal { Some(trailer) } else { (block_size - 4).checked_sub(trailer + event) };
    let unused = end_at.and_then(|end_at| (block_size - 4).checked_sub(end_at + event));
    let (Some(end_at), Some(unused)) = (end_at, unused) else { return Ok(None) };
    let edge = |at: u64, code: u16| {
        let bytes = blocks::bytes::<BLOCK_EVENT>(file, at)?;
        let found = bytes.first_chunk().map(|bytes| endian.read_u16(*bytes));
        let number = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| endian.read_u32(*bytes).into());
        let time =
            number(6).zip(number(10)).map(|(seconds, nanos): (u64, u64)| seconds * 1_000_000_000 + nanos);
        io::Result::Ok(time.filter(|_| found == Some(code)))
    };
    let (begin, end) = (edge(at, numbers.block_start)?, edge(at + end_at, numbers.block_end)?);
    Ok(begin.zip(end).map(|(begin, end)| BlockHeader { begin, end, unused }))
}
