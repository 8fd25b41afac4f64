//! What the block headers of a historic trace hold.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::Serialize;

use recording::error::ExportError;

/// A trace, by its headers. Events are not decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The layout, in words.
    pub layout: String,
    /// What applies to the whole trace: name and value.
    pub facts: Vec<(String, String)>,
    /// Its files.
    pub files: Vec<FileSummary>,
    /// What could not be read.
    pub damage: Vec<String>,
}

/// A file of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// Its name in the trace.
    pub name: String,
    /// Its blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes that hold nothing, at the ends of blocks.
    pub unused: u64,
    /// Begin of the first block, by the clock, or in nanoseconds since 1970 where the clock's counts restart
    /// in each block.
    pub begin: u64,
    /// End of the last block, like its begin.
    pub end: u64,
}

/// What the headers of a block hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) unused: u64,
}

/// Looks at the headers of all blocks of a file. `header` reads those of the block at an offset.
///
/// # Errors
/// The file cannot be opened; what is wrong inside it goes to `damage`.
pub(super) fn file(
    dir: &Path,
    name: &str,
    block_size: u64,
    damage: &mut Vec<String>,
    header: impl Fn(&File, u64) -> io::Result<Option<BlockHeader>>,
) -> Result<FileSummary, ExportError> {
    let path = dir.join(name);
    let file = File::open(&path).map_err(ExportError::io("open", &path))?;
    let len = file.metadata().map_err(ExportError::io("look at", &path))?.len();
    let mut summary = FileSummary { name: name.to_owned(), block_size, ..FileSummary::default() };
    if block_size == 0 || !len.is_multiple_of(block_size) {
        damage.push(format!("{name}: {len} bytes are not whole blocks of {block_size}"));
    }
    let blocks = len.checked_div(block_size).unwrap_or(0);
    for block in 0..blocks {
        match header(&file, block * block_size).map_err(ExportError::io("read", &path))? {
            Some(BlockHeader { begin, end, unused }) => {
                summary.begin = if summary.blocks == 0 { begin } else { summary.begin };
                summary.end = end;
                summary.unused += unused;
                summary.blocks += 1;
            }
            None => damage.push(format!("{name}: the headers of block {block} make no sense")),
        }
    }
    Ok(summary)
}

/// The names of the files in a directory of a trace, `part` before each, in order.
pub(super) fn names(dir: &Path, part: &str) -> Result<Vec<String>, ExportError> {
    let path = dir.join(part);
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(ExportError::io("read", &path))? {
        let entry = entry.map_err(ExportError::io("read", &path))?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            names.push(format!("{part}{}", entry.file_name().to_string_lossy()));
        }
    }
    // Numbers in the order of numbers.
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names)
}

/// Bytes at an offset.
pub(super) fn bytes<const N: usize>(file: &File, offset: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
