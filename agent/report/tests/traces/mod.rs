//! The recordings of stock trace-cmd in `tests/traces`, and the texts that it prints for them.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a helper of tests")]
use std::fs;
use std::path::PathBuf;

/// All recordings, without the ends of their names.
pub const RECORDINGS: [&str; 9] = [
    "k6.12-all-mono",
    "k6.12-graph",
    "k6.12-instances",
    "k6.12-kprobes",
    "k6.12-lost",
    "k6.12-sched-irq-timer-zstd",
    "k6.12-sched-v6",
    "k6.12-stacks",
    "k6.12-syscalls-none",
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(name)
}

/// The bytes of a recording.
pub fn recording(name: &str) -> Vec<u8> {
    fs::read(path(&format!("{name}.dat"))).unwrap_or_else(|_| unpacked(&format!("{name}.dat.gz")).unwrap())
}

/// What trace-cmd prints for a recording: `report`, `raw` or `noplugin`. Of the two largest there is only the
/// first.
#[allow(dead_code, reason = "each test program uses its part")]
pub fn text(name: &str, kind: &str) -> Option<String> {
    let bytes = unpacked(&format!("{name}.{kind}.txt.gz"))?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// RFC 1952: a header of 10 bytes, then the file's name if bit 3 of the flags is set.
fn unpacked(name: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(path(name)).ok()?;
    assert_eq!(bytes[..3], [0x1f, 0x8b, 8], "{name}");
    assert_eq!(bytes[3] & !8, 0, "{name} has a header with more parts");
    let name_len = if bytes[3] & 8 == 0 { 0 } else { bytes[10..].iter().position(|b| *b == 0).unwrap() + 1 };
    Some(miniz_oxide::inflate::decompress_to_vec(&bytes[10 + name_len..]).unwrap())
}
