//! `trace_printk` with its arguments in binary form: the record has the address of the format string, and the
//! arguments as `vbin_printf` of lib/vsprintf.c stores them.

use super::number::{self, Shape};
use super::pointer;
use super::spec::{self, Amount, Kind, Pointer};
use crate::output::{Limited, Output};
use crate::record::{Machine, until_nul};
use crate::symbols::Symbols;

/// Prints `format` with the arguments in `data`, which starts where the kernel's array of u32 does.
pub(super) fn print<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    format: &[u8],
    data: &[u8],
    machine: Machine,
    symbols: &dyn Symbols,
) {
    let mut arguments = Arguments { data, at: 0, machine };
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.push(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            out.push(b"%");
            rest = after;
            continue;
        }
        let Ok((spec, used)) = spec::parse(rest, machine.long_size) else {
            // The kernel prints what it does not understand.
            out.push(b"%");
            continue;
        };
        rest = &rest[used..];
        let mut amount = |wanted| match wanted {
            Amount::Argument => arguments.number(4).map(|value| value as i32),
            _ => None,
        };
        let (width, precision) = (amount(spec.width), amount(spec.precision));
        let shape = Shape::new(&spec, width, precision);
        if arguments.print(out, spec.kind, shape, symbols).is_none() {
            out.push(pointer::UNKNOWN);
        }
        if out.left() == 0 {
            return;
        }
    }
    out.push(rest);
}

struct Arguments<'d> {
    data: &'d [u8],
    at: usize,
    machine: Machine,
}

impl<'d> Arguments<'d> {
    /// Prints the next argument; `None` if the record has none.
    fn print<O: Output + ?Sized>(
        &mut self,
        out: &mut Limited<'_, O>,
        kind: Kind,
        shape: Shape,
        symbols: &dyn Symbols,
    ) -> Option<()> {
        match kind {
            Kind::Signed { size } => {
                let unused = 64 - u32::from(size) * 8;
                number::signed(out, shape, (self.number(size)? << unused) as i64 >> unused);
            }
            Kind::Unsigned { size, base, upper } => {
                number::unsigned(out, shape, self.number(size)?, base, upper);
            }
            Kind::Char => number::text(out, Shape { precision: None, ..shape }, &[self.number(1)? as u8]),
            Kind::Text => number::text(out, shape, self.text()?),
            Kind::Pointer(kind @ (Pointer::Address | Pointer::Symbol { .. } | Pointer::Error)) => {
                let value = self.number(self.machine.long_size)?;
                pointer::address(out, shape, kind, value, self.machine, symbols);
            }
            // What the kernel would have to follow it has followed when it wrote the record.
            Kind::Pointer(_) => number::text(out, shape, self.text()?),
        }
        Some(())
    }

    /// Numbers are aligned to their size, those of 8 bytes to 4.
    fn number(&mut self, size: u8) -> Option<u64> {
        let start = self.at.checked_next_multiple_of(usize::from(size.clamp(1, 4)))?;
        let bytes = self.data.get(start..start + usize::from(size))?;
        self.at = start + usize::from(size);
        Some(self.machine.number(bytes))
    }

    fn text(&mut self) -> Option<&'d [u8]> {
        let rest = self.data.get(self.at..).filter(|rest| !rest.is_empty())?;
        let text = until_nul(rest);
        self.at += text.len() + 1;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::NoSymbols;

    #[test]
    fn arguments_as_the_kernel_packs_them() {
        let mut data = vec![0xfe, 0xff, 0xff, 0xff];
        data.extend(b"text\0");
        data.extend(b"c");
        // A short is aligned to 2 bytes, a long of 8 to 4.
        data.extend([7, 0, 0xdd, 0xdd]);
        data.truncate(12);
        data.extend(0x0123_4567_89ab_cdef_u64.to_le_bytes());
        data.extend(b"10.0.0.1\0");
        let printed = |format: &str, data: &[u8]| {
            let mut text = String::new();
            let mut limited = Limited::new(&mut text, 1000);
            print(&mut limited, format.as_bytes(), data, Machine::default(), &NoSymbols);
            text
        };
        assert_eq!(
            printed("%d <%6s> %c %hd 100%% %#lx %pI4 %y %d.", &data),
            "-2 <  text> c 7 100% 0x123456789abcdef 10.0.0.1 %y ?."
        );
        assert_eq!(printed("%*d|%-*d|", &[5, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0]), "    1|2   |");
        assert_eq!(printed("%s%", &[]), "?%");
    }
}
