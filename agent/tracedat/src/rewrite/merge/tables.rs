//! Symbols, printk formats and names of tasks of several files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::super::layout::SectionId;
use super::super::super::reader::{Reader, Source};
use super::super::super::section::{Body, Section};
use super::super::error::RewriteError;
use super::super::head::Head;
use super::{MergeInput, all_same};
use ftrace_event::Cmdlines;

/// Where the kernel's half of the addresses begins on every 64-bit machine; below are numbers that are no
/// addresses.
const KERNEL_HALF: u64 = 1 << 63;

fn set(merged: &mut Head, section: Section) {
    if let Body::Plain(bytes) = section.body {
        merged.set_body(section.id, bytes);
    }
}

/// Formats of `trace_printk`, by address.
pub(super) fn printk<S: Source>(
    readers: &[&Reader<S>],
    heads: &[Head],
    merged: &mut Head,
) -> Result<(), RewriteError> {
    if all_same(heads, SectionId::PRINTK) {
        return Ok(());
    }
    let mut all: BTreeMap<u64, &str> = BTreeMap::new();
    let mut clashes = 0;
    for (address, format) in readers.iter().flat_map(|reader| &reader.metadata().printk) {
        let first = *all.entry(*address).or_insert(format);
        clashes += u32::from(first != format);
    }
    if clashes > 0 {
        merged.notes.push(format!(
            "{clashes} addresses have different printk formats in different files; those of the first are kept"
        ));
    }
    let mut text = String::new();
    for (address, format) in all {
        let _ = writeln!(text, "0x{address:x} : \"{format}\""); // a String takes everything
    }
    set(merged, Section::printk(merged.layout.endian, text.as_bytes())?);
    Ok(())
}

/// Kernel symbols.
pub(super) fn kallsyms<S: Source>(inputs: &[MergeInput<'_, S>], heads: &[Head], merged: &mut Head) {
    if all_same(heads, SectionId::KALLSYMS) {
        return;
    }
    // Behind the size.
    let texts = heads.iter().map(|head| head.body(SectionId::KALLSYMS).get(4..).unwrap_or_default());
    let mut different: Vec<(&str, &[u8])> = Vec::new();
    for (input, text) in inputs.iter().zip(texts) {
        if !text.is_empty() && different.iter().all(|(_, other)| *other != text) {
            different.push((&input.name, text));
        }
    }
    let mut ranges: Vec<_> =
        different.iter().filter_map(|(name, text)| Some((range(text)?, *name))).collect();
    ranges.sort_unstable();
    let overlap = ranges.windows(2).find(|pair| pair[1].0.0 <= pair[0].0.1);
    let mut text = Vec::new();
    if let Some(pair) = overlap {
        merged.notes.push(format!(
            "no kernel symbols: those of {} and {} are at the same addresses, so that names would be wrong",
            pair[0].1, pair[1].1
        ));
    } else {
        for (_, symbols) in &different {
            text.extend_from_slice(symbols);
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
    }
    match Section::kallsyms(merged.layout.endian, &text) {
        Ok(section) => set(merged, section),
        Err(error) => merged.notes.push(format!("no kernel symbols: {error}")),
    }
}

/// First and last kernel address of the symbols.
fn range(text: &[u8]) -> Option<(u64, u64)> {
    let addresses = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let word = line.split(|byte| *byte == b' ').next()?;
        let address = u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        (address >= KERNEL_HALF).then_some(address)
    });
    addresses.fold(None, |range, address| {
        let (first, last) = range.unwrap_or((address, address));
        Some((address.min(first), address.max(last)))
    })
}

/// Names of tasks. Within a recording the name that comes last counts; of different recordings all do.
pub(super) fn cmdlines<S: Source>(recordings: &[Vec<&Reader<S>>], merged: &mut Head) {
    let mut all: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
    for recording in recordings {
        let mut names: BTreeMap<u32, &[u8]> = BTreeMap::new();
        for reader in recording {
            names.extend(reader.metadata().cmdlines.iter());
        }
        for (pid, name) in names {
            let known = all.entry(pid).or_default();
            if known.iter().all(|other| other != name) {
                known.push(name.to_vec());
            }
        }
    }
    let clashes = all.values().filter(|names| names.len() > 1).count();
    if clashes > 0 {
        merged.notes.push(format!(
            "{clashes} pids have different names in different files; each of their events shows all of them, as in bash|nginx"
        ));
    }
    let cmdlines: Cmdlines = all.into_iter().map(|(pid, names)| (pid, names.join(&b'|'))).collect();
    set(merged, Section::cmdlines(merged.layout.endian, &cmdlines));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_symbols() {
        let text = b"0000000000000000 A nothing\nffffffff81000000 T b\nffffffff80000000 T a\t[m]\nx\n";
        assert_eq!(range(text), Some((0xffff_ffff_8000_0000, 0xffff_ffff_8100_0000)));
        assert_eq!(range(b"0000000000000000 T hidden\n"), None);
    }
}
