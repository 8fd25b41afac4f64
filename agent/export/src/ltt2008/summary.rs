//! What is in a directory in this layout, by the headers of its blocks.

use std::fs::File;
use std::io;
use std::path::Path;

use super::super::blocks::{self, BlockHeader, Summary};
use super::layout::{BLOCK_HEADER, MAGIC};
use ftrace_event::Endian;
use recording::error::ExportError;

/// Bytes of a block that are looked at.
const LOOK: usize = 160;
/// What the first event of control/facilities_0 begins with.
const FIRST: &[u8] = b"core_marker_id\0";
/// Bytes of the headers of a block by the document.
const LITERAL_HEADERS: usize = BLOCK_HEADER + 61;

/// Looks into a directory.
///
/// # Errors
/// It has no control/facilities_0, or a file cannot be read.
pub fn read(dir: &Path) -> Result<Summary, ExportError> {
    let path = dir.join("control/facilities_0");
    let file = File::open(&path).map_err(ExportError::io("open", &path))?;
    let first = blocks::bytes::<LOOK>(&file, 0).map_err(ExportError::io("read", &path))?;
    let endian = order(&first)
        .ok_or_else(|| ExportError::Unsupported(format!("{} has no magic number", path.display())))?;
    let number = |at: usize| first.get(at).copied().unwrap_or(0);
    let (arch_size, heartbeat, alignment) = (number(56), number(60), number(61));
    let first_at = first.windows(FIRST.len()).position(|window| window == FIRST).unwrap_or(LOOK);
    // Literally, headers are 8 bytes shorter.
    let literal = first_at < LITERAL_HEADERS + 24 && first_at + 8 < LITERAL_HEADERS + 8 + 24 && {
        let stamp = if heartbeat == 1 { 4 } else { 8 };
        let step = |at: usize, to: usize| at.next_multiple_of(to.max(1));
        let header = step(LITERAL_HEADERS, alignment.into());
        first_at == step(header + stamp + 4, if alignment == 0 { 0 } else { arch_size.into() })
    };
    let yes = |flag: u8| if flag == 1 { "yes" } else { "no" }.to_owned();
    let facts = [
        ("version", format!("{}.{}", number(57), number(58))),
        (
            "header",
            if literal { "61 bytes, as the document has it" } else { "69 bytes, as readers have it" }
                .to_owned(),
        ),
        ("byte order", if endian == Endian::Big { "big-endian" } else { "little-endian" }.to_owned()),
        ("pointer", format!("{arch_size} bytes")),
        ("stamps", if heartbeat == 1 { "32 bits, heartbeats" } else { "64 bits" }.to_owned()),
        ("alignment", alignment.to_string()),
        ("flight recorder", yes(number(59))),
    ];
    let mut summary = Summary {
        layout: "lttng-2008: LTTng of 2008".to_owned(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Summary::default()
    };
    let mut names = blocks::names(dir, "control/")?;
    names.extend(blocks::names(dir, "")?);
    for name in names {
        let path = dir.join(&name);
        let file = File::open(&path).map_err(ExportError::io("open", &path))?;
        let Ok(head) = blocks::bytes::<LOOK>(&file, 0) else {
            summary.damage.push(format!("{name}: too short for a block"));
            continue;
        };
        let block_size = u64::from(word(&head, 36, endian));
        let read = |file: &File, at: u64| header(file, at, endian, block_size);
        let found = blocks::file(dir, &name, block_size, &mut summary.damage, read)?;
        summary.files.push(found);
    }
    Ok(summary)
}

fn order(block: &[u8; LOOK]) -> Option<Endian> {
    [Endian::Little, Endian::Big].into_iter().find(|endian| word(block, BLOCK_HEADER, *endian) == MAGIC)
}

fn word(block: &[u8; LOOK], at: usize, endian: Endian) -> u32 {
    block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| endian.read_u32(*bytes))
}

fn header(file: &File, at: u64, endian: Endian, block_size: u64) -> io::Result<Option<BlockHeader>> {
    let block = blocks::bytes::<LOOK>(file, at)?;
    let long = |at: usize| {
        block.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| endian.read_u64(*bytes))
    };
    let (begin, end, unused) = (long(0), long(16), u64::from(word(&block, 32, endian)));
    let sound = u64::from(word(&block, 36, endian)) == block_size
        && unused < block_size
        && order(&block) == Some(endian);
    Ok(sound.then_some(BlockHeader { begin, end, unused }))
}
