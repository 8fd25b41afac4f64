//! What `%p` and a letter print of the bytes that a pointer points to (lib/vsprintf.c, pointer;
//! lib/hexdump.c).

use super::number::{self, Draw, Shape, padded};
use super::spec::Pointer;
use crate::output::{Limited, Output};
use crate::record::{Bits, Endian, Machine};
use crate::symbols::Symbols;

/// Printed where a value cannot be known: of memory that no record holds, of names that are not resolved.
pub(super) const UNKNOWN: &[u8] = b"?";

/// An address.
pub(super) fn address<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    mut shape: Shape,
    pointer: Pointer,
    value: u64,
    machine: Machine,
    symbols: &dyn Symbols,
) {
    match pointer {
        Pointer::Address => {
            // pointer_string: all digits, unless a width was asked for.
            if shape.width == 0 {
                shape.width = usize::from(machine.long_size) * 2;
                shape.zero = !shape.left;
            }
            number::unsigned(out, shape, value, 16, false);
        }
        Pointer::Symbol { offset, backtrace } => {
            padded(out, shape, &SymbolText { value, offset, backtrace, symbols });
        }
        // Only where the kernel was built with their names; the number says the same.
        Pointer::Error => number::signed(out, shape, value as i64),
        _ if value == 0 => number::text(out, shape, b"(null)"),
        _ => number::text(out, shape, UNKNOWN),
    }
}

/// The name of the function that holds an address.
pub(super) fn function<O: Output + ?Sized>(out: &mut Limited<'_, O>, value: u64, symbols: &dyn Symbols) {
    SymbolText { value, offset: false, backtrace: false, symbols }.draw(out);
}

struct SymbolText<'s> {
    value: u64,
    offset: bool,
    backtrace: bool,
    symbols: &'s dyn Symbols,
}

impl Draw for SymbolText<'_> {
    /// `__sprint_symbol` of kernel/kallsyms.c. A return address can be that of the next function: the one
    /// before it is looked up.
    fn draw<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>) {
        let back = u64::from(self.backtrace);
        let Some(symbol) = self.symbols.lookup(self.value.wrapping_sub(back)) else {
            out.push(b"0x");
            return number::unsigned(out, Shape::PLAIN, self.value, 16, false);
        };
        out.push(symbol.name.as_bytes());
        if self.offset {
            out.push(b"+0x");
            number::unsigned(out, Shape::PLAIN, symbol.offset.wrapping_add(back), 16, false);
            if let Some(size) = symbol.size {
                out.push(b"/0x");
                number::unsigned(out, Shape::PLAIN, size, 16, false);
            }
        }
        if let Some(module) = symbol.module {
            out.push(b" [");
            out.push(module.as_bytes());
            out.push(b"]");
        }
    }
}

/// What stands at an address in the record.
pub(super) fn bytes<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    mut shape: Shape,
    pointer: Pointer,
    bytes: &[u8],
    machine: Machine,
) {
    match pointer {
        Pointer::Hex { .. } => {
            // hex_string: the width is the number of bytes, 1 without one, 64 at most.
            let len = shape.width.clamp(1, 64).min(bytes.len());
            let Pointer::Hex { separator } = pointer else { return };
            hex(out, &bytes[..len], separator);
        }
        Pointer::Bitmap { list } => {
            // The width is the number of bits.
            let bits = Bits::new(bytes, machine);
            bitmap(out, bits, shape.width.min(bits.capacity()), list);
        }
        Pointer::Uuid { .. } | Pointer::Mac { .. } | Pointer::Ip4 { .. } | Pointer::Ip6 { .. } => {
            let needed = match pointer {
                Pointer::Mac { .. } => 6,
                Pointer::Ip4 { .. } => 4,
                _ => 16,
            };
            match bytes.get(..needed) {
                Some(bytes) => padded(out, shape, &Fixed { pointer, bytes, machine }),
                None => number::text(out, shape, UNKNOWN),
            }
        }
        Pointer::Socket { .. } => padded(out, shape, &Fixed { pointer, bytes, machine }),
        Pointer::Physical => match bytes.get(..8) {
            Some(bytes) => {
                shape.alternate = true;
                shape.zero = true;
                shape.width = 18;
                number::unsigned(out, shape, machine.number(bytes), 16, false);
            }
            None => number::text(out, shape, UNKNOWN),
        },
        // The address of the record itself, or something that the kernel would look up from there.
        Pointer::Address | Pointer::Symbol { .. } | Pointer::Error | Pointer::Kernel => {
            number::text(out, shape, UNKNOWN);
        }
    }
}

/// An address or a name of a fixed form.
struct Fixed<'r> {
    pointer: Pointer,
    bytes: &'r [u8],
    machine: Machine,
}

impl Draw for Fixed<'_> {
    fn draw<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>) {
        let bytes = self.bytes;
        match self.pointer {
            Pointer::Uuid { upper, little } => uuid(out, bytes, upper, little),
            Pointer::Mac { separator, reversed } => {
                let mut mac = [0; 6];
                mac.copy_from_slice(&bytes[..6]);
                if reversed {
                    mac.reverse();
                }
                hex(out, &mac, separator);
            }
            Pointer::Ip4 { leading_zeros, little, host } => {
                let mut ip = [bytes[0], bytes[1], bytes[2], bytes[3]];
                if little || (host && self.machine.endian == Endian::Little) {
                    ip.reverse();
                }
                ip4(out, ip, leading_zeros);
            }
            Pointer::Ip6 { colons, compressed } => ip6(out, bytes, colons, compressed),
            Pointer::Socket { compressed, port, flow, scope, leading_zeros } => {
                socket(out, bytes, [compressed, port, flow, scope, leading_zeros], self.machine);
            }
            _ => {}
        }
    }
}

/// Bytes as two digits each.
pub(super) fn hex<O: Output + ?Sized>(out: &mut Limited<'_, O>, bytes: &[u8], separator: Option<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        if out.left() == 0 {
            return;
        }
        if index > 0
            && let Some(separator) = separator
        {
            out.push(&[separator]);
        }
        number::unsigned(out, Shape::zeros(2), u64::from(*byte), 16, false);
    }
}

/// `bitmap_string` and `bitmap_list_string`: 32 bits as 8 digits, the highest first and with as many digits
/// as it has bits for, or ranges.
pub(super) fn bitmap<O: Output + ?Sized>(out: &mut Limited<'_, O>, bits: Bits<'_>, count: usize, list: bool) {
    if list {
        let mut next = 0;
        let mut first = true;
        while let Some(start) = (next..count).find(|bit| bits.contains(*bit)) {
            let end = (start..count).find(|bit| !bits.contains(*bit)).unwrap_or(count);
            if !first {
                out.push(b",");
            }
            first = false;
            number::unsigned(out, Shape::PLAIN, start as u64, 10, false);
            if end - start > 1 {
                out.push(b"-");
                number::unsigned(out, Shape::PLAIN, end as u64 - 1, 10, false);
            }
            next = end;
        }
        return;
    }
    let words = count.div_ceil(32);
    for word in (0..words).rev() {
        if out.left() == 0 {
            return;
        }
        let left = count - word * 32;
        let (digits, mask) = if left >= 32 { (8, u32::MAX) } else { (left.div_ceil(4), (1 << left) - 1) };
        number::unsigned(out, Shape::zeros(digits), u64::from(bits.word(word) & mask), 16, false);
        if word > 0 {
            out.push(b",");
        }
    }
}

/// `uuid_string`: the first three parts of the little-endian form are numbers.
fn uuid<O: Output + ?Sized>(out: &mut Limited<'_, O>, bytes: &[u8], upper: bool, little: bool) {
    const BIG: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const LITTLE: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    for (index, from) in if little { LITTLE } else { BIG }.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b"-");
        }
        number::unsigned(out, Shape::zeros(2), u64::from(bytes[from]), 16, upper);
    }
}

fn ip4<O: Output + ?Sized>(out: &mut Limited<'_, O>, ip: [u8; 4], leading_zeros: bool) {
    let shape = if leading_zeros { Shape::zeros(3) } else { Shape::PLAIN };
    for (index, byte) in ip.into_iter().enumerate() {
        if index > 0 {
            out.push(b".");
        }
        number::unsigned(out, shape, u64::from(byte), 10, false);
    }
}

fn ip6<O: Output + ?Sized>(out: &mut Limited<'_, O>, bytes: &[u8], colons: bool, compressed: bool) {
    let mut words = [0_u16; 8];
    for (word, pair) in words.iter_mut().zip(bytes.chunks_exact(2)) {
        *word = u16::from_be_bytes([pair[0], pair[1]]);
    }
    if compressed {
        return ip6_compressed(out, words);
    }
    for (index, word) in words.into_iter().enumerate() {
        if colons && index > 0 {
            out.push(b":");
        }
        number::unsigned(out, Shape::zeros(4), u64::from(word), 16, false);
    }
}

/// `ip6_compressed_string`: the longest run of zeros, the first of equal ones, becomes `::`; addresses that
/// hold an IPv4 one end in that.
fn ip6_compressed<O: Output + ?Sized>(out: &mut Limited<'_, O>, words: [u16; 8]) {
    // ipv6_addr_v4mapped, and ipv6_addr_is_isatap: the third word from the end is 0:5efe with bit 1 of its
    // first byte ignored.
    let mapped = words[..5] == [0; 5] && words[5] == 0xffff;
    let isatap = words[4] | 0x0200 == 0x0200 && words[5] == 0x5efe;
    let in_hex = if mapped || isatap { 6 } else { 8 };
    let (mut start, mut len) = (0, 1);
    for from in 0..in_hex {
        let zeros = words[from..in_hex].iter().take_while(|word| **word == 0).count();
        if zeros > len {
            (start, len) = (from, zeros);
        }
    }
    let run = if len == 1 { None } else { Some(start) };
    let mut colon = false;
    let mut at = 0;
    while at < in_hex {
        if run == Some(at) {
            out.push(if colon || at == 0 { b"::" } else { b":" });
            colon = false;
            at += len;
            continue;
        }
        if colon {
            out.push(b":");
        }
        number::unsigned(out, Shape::PLAIN, u64::from(words[at]), 16, false);
        colon = true;
        at += 1;
    }
    if in_hex == 6 {
        if colon {
            out.push(b":");
        }
        let ([a, b], [c, d]) = (words[6].to_be_bytes(), words[7].to_be_bytes());
        ip4(out, [a, b, c, d], false);
    }
}

/// `ip4_addr_string_sa` and `ip6_addr_string_sa`; the family decides.
fn socket<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    bytes: &[u8],
    [compressed, port, flow, scope, leading_zeros]: [bool; 5],
    machine: Machine,
) {
    let family = bytes.get(..2).map(|family| machine.number(family));
    let port_of = |bytes: &[u8]| u64::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    match family {
        // AF_INET: family, port, address.
        Some(2) if bytes.len() >= 8 => {
            ip4(out, [bytes[4], bytes[5], bytes[6], bytes[7]], leading_zeros);
            if port {
                out.push(b":");
                number::unsigned(out, Shape::PLAIN, port_of(bytes), 10, false);
            }
        }
        // AF_INET6: family, port, flow label, address, scope.
        Some(10) if bytes.len() >= 24 => {
            let brackets = port || flow || scope;
            if brackets {
                out.push(b"[");
            }
            ip6(out, &bytes[8..24], !leading_zeros, compressed);
            if brackets {
                out.push(b"]");
            }
            if port {
                out.push(b":");
                number::unsigned(out, Shape::PLAIN, port_of(bytes), 10, false);
            }
            if flow {
                let label = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) & 0x0fff_ffff;
                out.push(b"/");
                number::unsigned(out, Shape::PLAIN, u64::from(label), 10, false);
            }
            if scope && let Some(scope) = bytes.get(24..28) {
                out.push(b"%");
                number::unsigned(out, Shape::PLAIN, machine.number(scope), 10, false);
            }
        }
        // ip_addr_string: of other families it prints the address of the struct, as a text without a meaning.
        _ => out.push(b"(einval)"),
    }
}

/// `%p` of the address of a record's data makes no sense; `__print_hex_dump` needs lines of this form.
pub(super) struct Dump {
    pub(super) row: usize,
    pub(super) group: usize,
    pub(super) ascii: bool,
}

impl Dump {
    /// `hex_dump_to_buffer` of lib/hexdump.c, for one line.
    pub(super) fn line<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, bytes: &[u8], machine: Machine) {
        let row = if self.row == 32 { 32 } else { 16 };
        let mut group = if matches!(self.group, 1 | 2 | 4 | 8) { self.group } else { 1 };
        if !bytes.len().is_multiple_of(group) {
            group = 1;
        }
        let mut column = 0;
        for (index, part) in bytes.chunks(group).enumerate() {
            if index > 0 {
                out.push(b" ");
                column += 1;
            }
            number::unsigned(out, Shape::zeros(group * 2), machine.number(part), 16, false);
            column += group * 2;
        }
        if self.ascii {
            out.fill(b' ', (row * 2 + row / group + 1).saturating_sub(column));
            for &byte in bytes {
                out.push(&[if byte.is_ascii_graphic() || byte == b' ' { byte } else { b'.' }]);
            }
        }
    }
}
