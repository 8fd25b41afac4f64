//! Checksums: whether bytes are those that were written.

use super::super::checksum::{Checksums, Range};
use super::super::layout::OptionId;
use super::super::reader::file::FileHeader;
use super::super::reader::option::OptionValue;
use super::Check;
use super::options::RawOption;
use super::report::At;
use super::rule::Rule;

/// Bytes that are checked at a time.
const PIECE: usize = 256 << 10;

/// Compares all checksums with the file.
pub(super) fn check(check: &mut Check<'_>, header: &FileHeader, options: &[RawOption]) {
    for option in options {
        // Damage to the number alone would make all of them unknown.
        if option.id != OptionId::CHECKSUMS
            && Checksums::decode(&option.bytes, header.endian)
                .is_some_and(|it| At::plain(it.offset) == option.at)
        {
            let detail = || "its bytes are checksums of this file: its number is damaged".to_owned();
            check.faults.add(Rule::ChecksumOption, option.at, || option.name(), detail);
        }
        for value in &option.values {
            match value {
                OptionValue::Checksums(Some(checksums)) => compare(check, option, checksums),
                OptionValue::Checksums(None) => {
                    let detail = || "they are not those that were written".to_owned();
                    check.faults.add(Rule::ChecksumOption, option.at, || option.name(), detail);
                }
                _ => {}
            }
        }
    }
}

fn compare(check: &mut Check<'_>, option: &RawOption, Checksums { offset, ranges }: &Checksums) {
    if option.at != At::plain(*offset) {
        let detail = || format!("they were written at byte {offset}");
        return check.faults.add(Rule::ChecksumStale, option.at, || option.name(), detail);
    }
    // Ranges do not overlap, so that all together are no longer than the file.
    let mut budget = check.len;
    let mut buffer = vec![0; PIECE];
    for Range { offset, len, crc } in ranges {
        let location = || format!("bytes {offset} to {}", offset.saturating_add(*len));
        let end = offset.checked_add(*len).filter(|end| *end <= check.len);
        let (Some(end), Some(left)) = (end, budget.checked_sub(*len)) else {
            let detail = || "they are not all in the file".to_owned();
            check.faults.add(Rule::Checksum, At::plain(*offset), location, detail);
            continue;
        };
        budget = left;
        let mut hasher = crc32fast::Hasher::new();
        let mut at = *offset;
        let mut failed = None;
        while at < end && failed.is_none() {
            let piece = &mut buffer[..PIECE.min((end - at) as usize)];
            failed = check.source.read_exact_at(piece, at).err();
            hasher.update(piece);
            at += piece.len() as u64;
        }
        if let Some(error) = failed {
            check.faults.add(Rule::Source, At::plain(at), location, || error.to_string());
            continue;
        }
        let found = hasher.finalize();
        if found != *crc {
            let detail = || format!("their CRC-32 is {found:08x} and was {crc:08x}");
            check.faults.add(Rule::Checksum, At::plain(*offset), location, detail);
        }
    }
}
