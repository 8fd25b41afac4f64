//! A SCSI command, as plugins/plugin_scsi.c of libtraceevent and drivers/scsi/scsi_trace.c print it. The
//! layouts are those of the SCSI Block Commands and Primary Commands standards: big-endian numbers.

use super::number::{self, Shape};
use super::pointer::UNKNOWN;
use crate::output::{Limited, Output};

/// Service actions of commands of 32 bytes, which name the command.
const ACTIONS_32: [(u64, &[u8]); 4] =
    [(0x09, b"READ"), (0x0a, b"VERIFY"), (0x0b, b"WRITE"), (0x0d, b"WRITE_SAME")];

/// Prints what a command asks for: `-` for one that is not explained, `?` for one that is cut off.
pub(super) fn command<O: Output + ?Sized>(out: &mut Limited<'_, O>, bytes: &[u8]) {
    if Command(bytes).write(out).is_none() {
        out.push(UNKNOWN);
    }
}

#[derive(Clone, Copy)]
struct Command<'c>(&'c [u8]);

impl Command<'_> {
    /// A big-endian number. `None` if the command is shorter.
    fn number(self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.0.get(at..at + len)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// `None`, and nothing printed, if the command is shorter than its kind is.
    fn write<O: Output + ?Sized>(self, out: &mut Limited<'_, O>) -> Option<()> {
        let number = |at, len| self.number(at, len);
        let flags = |at| self.number(at, 1);
        let protect = |at| Some((b" protect=".as_slice(), flags(at)? >> 5));
        let unmap = |at| Some((b" unmap=".as_slice(), flags(at)? >> 3 & 1));
        match number(0, 1)? {
            // READ(6), WRITE(6): no blocks stand for 256.
            0x08 | 0x0a => {
                let blocks = match number(4, 1)? {
                    0 => 256,
                    blocks => blocks,
                };
                put(out, &[(b"lba=", number(1, 3)? & 0x1f_ffff), (b" txlen=", blocks)]);
            }
            // READ(10), WRITE(10), VERIFY(10), WRITE SAME(10).
            code @ (0x28 | 0x2a | 0x2f | 0x41) => {
                let parts = [(b"lba=".as_slice(), number(2, 4)?), (b" txlen=", number(7, 2)?), protect(1)?];
                put(out, &parts);
                if code == 0x41 {
                    put(out, &[unmap(1)?]);
                }
            }
            // READ(12), WRITE(12), VERIFY(12).
            0xa8 | 0xaa | 0xaf => {
                put(out, &[(b"lba=", number(2, 4)?), (b" txlen=", number(6, 4)?), protect(1)?]);
            }
            // READ(16), WRITE(16), VERIFY(16), WRITE SAME(16).
            code @ (0x88 | 0x8a | 0x8f | 0x93) => {
                let parts = [(b"lba=".as_slice(), number(2, 8)?), (b" txlen=", number(10, 4)?), protect(1)?];
                put(out, &parts);
                if code == 0x93 {
                    put(out, &[unmap(1)?]);
                }
            }
            // UNMAP: a list of regions of 16 bytes behind a header of 8.
            0x42 => {
                let regions = (number(7, 2)? as u32).wrapping_sub(8) / 16;
                put(out, &[(b"regions=", u64::from(regions))]);
            }
            // SERVICE ACTION IN(16).
            0x9e => {
                let name: &[u8] = match flags(1)? & 0x1f {
                    0x10 => b"READ_CAPACITY_16 lba=",
                    0x12 => b"GET_LBA_STATUS lba=",
                    _ => {
                        out.push(b"UNKNOWN");
                        return Some(());
                    }
                };
                put(out, &[(name, number(2, 8)?), (b" alloc_len=", number(10, 4)?)]);
            }
            // A command of variable length, of which those of 32 bytes are known.
            0x7f => {
                let action = number(8, 2)?;
                let Some((_, name)) = ACTIONS_32.iter().find(|(known, _)| *known == action) else {
                    out.push(b"-");
                    return Some(());
                };
                let parts = [
                    (b"_32 lba=".as_slice(), number(12, 8)?),
                    (b" txlen=", number(28, 4)?),
                    protect(10)?,
                    (b" ei_lbrt=", number(20, 4)?),
                ];
                out.push(name);
                put(out, &parts);
                if action == 0x0d {
                    put(out, &[unmap(10)?]);
                }
            }
            _ => out.push(b"-"),
        }
        Some(())
    }
}

fn put<O: Output + ?Sized>(out: &mut Limited<'_, O>, parts: &[(&[u8], u64)]) {
    for (label, value) in parts {
        out.push(label);
        number::unsigned(out, Shape::PLAIN, *value, 10, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_explained() {
        let text = |bytes: &[u8]| {
            let mut text = String::new();
            command(&mut Limited::new(&mut text, 1000), bytes);
            text
        };
        let long = |service_action: u8| {
            let mut bytes = [0; 32];
            (bytes[0], bytes[9], bytes[10]) = (0x7f, service_action, 0x28);
            bytes[12..20].copy_from_slice(&0xfedc_ba98_7654_3210_u64.to_be_bytes());
            bytes[20..24].copy_from_slice(&0x8000_0001_u32.to_be_bytes());
            bytes[28..].copy_from_slice(&7_u32.to_be_bytes());
            bytes
        };
        let read_12 = [0xa8, 0x20, 0x80, 0, 0, 1, 0x90, 0, 0, 2, 0, 0];
        let read_16 = [0x88, 0, 0x80, 0, 0, 0, 0x90, 0, 0, 1, 0, 0, 1, 0, 0, 0];
        let capacity = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
        for (bytes, expected) in [
            (&[0x08, 0xff, 1, 2, 8, 0][..], "lba=2031874 txlen=8"),
            (&[0x0a, 0, 0, 1, 0, 0], "lba=1 txlen=256"),
            (&[0x28, 0x20, 0xff, 0, 0, 1, 0, 1, 0, 0], "lba=4278190081 txlen=256 protect=1"),
            (&[0x41, 0x08, 0, 0, 0, 1, 0, 0, 9, 0], "lba=1 txlen=9 protect=0 unmap=1"),
            (&read_12, "lba=2147483649 txlen=2415919106 protect=1"),
            (&read_16, "lba=9223372039270694913 txlen=256 protect=0"),
            (&[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], "regions=2"),
            (&capacity, "READ_CAPACITY_16 lba=0 alloc_len=32"),
            (&[0x9e, 1], "UNKNOWN"),
            (&long(9), "READ_32 lba=18364758544493064720 txlen=7 protect=1 ei_lbrt=2147483649"),
            (
                &long(13),
                "WRITE_SAME_32 lba=18364758544493064720 txlen=7 protect=1 ei_lbrt=2147483649 unmap=1",
            ),
            (&long(6), "-"),
            (b"abc", "-"),
            (&[0x28, 0, 0], "?"),
            (&[], "?"),
        ] {
            assert_eq!(text(bytes), expected, "{bytes:x?}");
        }
    }
}
