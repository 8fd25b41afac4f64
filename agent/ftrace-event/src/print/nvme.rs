//! The words of an NVMe command, as drivers/nvme/host/trace.c prints them (NVM Express base specification,
//! "Submission Queue Entry": from byte 40 on, little-endian).

use super::number::{self, Shape};
use super::pointer;
use crate::output::{Limited, Output};

/// Prints the 24 bytes from `cdw10` on. Of I/O commands those that carry data are explained; the others, and
/// all of the administration, are printed as bytes.
pub(super) fn command<O: Output + ?Sized>(out: &mut Limited<'_, O>, io: bool, opcode: u64, bytes: &[u8]) {
    let Some(words) = bytes.first_chunk::<24>() else { return pointer::hex(out, bytes, Some(b' ')) };
    let number = |from: usize, len: usize| {
        words[from..from + len].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let mut put = |name: &[u8], value: u64, base: u8| {
        out.push(name);
        number::unsigned(out, Shape::PLAIN, value, base, false);
    };
    match opcode {
        // Write, read, write zeroes, zone append.
        1 | 2 | 8 | 0x7d if io => {
            put(b"slba=", number(0, 8), 10);
            put(b", len=", number(8, 2), 10);
            put(b", ctrl=0x", number(10, 2), 16);
            put(b", dsmgmt=", number(12, 4), 10);
            put(b", reftag=", number(16, 4), 10);
        }
        // Dataset management.
        9 if io => {
            put(b"nr=", number(0, 4), 10);
            put(b", attributes=", number(4, 4), 10);
        }
        _ => {
            out.push(b"cdw10=");
            pointer::hex(out, words, Some(b' '));
        }
    }
}
