//! Values of expressions, and the text of a record.

use std::cell::Cell;

use super::PointerStyle;
use super::expr::{Argument, Expr, HexDump, LOCALS, Op, Piece};
use super::number::{self, Draw, Shape, padded};
use super::pointer::{self, Dump, UNKNOWN};
use super::spec::{Kind, Pointer};
use crate::format::Location;
use crate::output::{Limited, Output};
use crate::record::{Bits, Machine, dynamic, until_nul};
use crate::symbols::Symbols;

/// What an expression is worth in one record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Val<'a> {
    Int(u64),
    /// A pointer to data that is there up to the end of the slice.
    Bytes(&'a [u8]),
    Unknown,
}

/// A record, and what is needed beside it.
pub(super) struct Context<'a> {
    record: &'a [u8],
    machine: Machine,
    symbols: &'a dyn Symbols,
    pointers: PointerStyle,
    locals: [Cell<Val<'a>>; LOCALS],
}

impl<'a> Context<'a> {
    pub(super) fn new(
        record: &'a [u8],
        machine: Machine,
        symbols: &'a dyn Symbols,
        pointers: PointerStyle,
    ) -> Self {
        Self { record, machine, symbols, pointers, locals: [const { Cell::new(Val::Unknown) }; LOCALS] }
    }

    /// Prints all pieces. `nested` text ends at a NUL: it is read back as a string.
    pub(super) fn pieces<O: Output + ?Sized>(
        &self,
        out: &mut Limited<'_, O>,
        pieces: &'a [Piece],
        nested: bool,
    ) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.push_snippet(text),
                Piece::Argument(argument) => {
                    if nested
                        && argument.spec.kind == Kind::Char
                        && let Val::Int(0) = self.eval(&argument.value)
                    {
                        return;
                    }
                    self.argument(out, argument);
                }
            }
            if out.left() == 0 {
                return;
            }
        }
    }

    /// Prints a conversion.
    #[inline]
    pub(super) fn argument<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, argument: &'a Argument) {
        if let Some(direct) = &argument.direct {
            return direct.print(out, self.record, self.machine);
        }
        let Argument { direct: _, spec, width, precision, value } = argument;
        let amount = |expr: &'a Option<Expr>| self.int(expr.as_ref()?).map(|value| value as i32);
        let shape = Shape::new(spec, amount(width), amount(precision));
        if spec.kind == Kind::Text {
            return self.text(out, shape, value);
        }
        match (spec.kind, self.eval(value)) {
            (Kind::Signed { size }, Val::Int(value)) => {
                let unused = 64 - u32::from(size) * 8;
                number::signed(out, shape, (value << unused) as i64 >> unused);
            }
            (Kind::Unsigned { size, base, upper }, Val::Int(value)) => {
                let unused = 64 - u32::from(size) * 8;
                number::unsigned(out, shape, value << unused >> unused, base, upper);
            }
            (Kind::Char, Val::Int(value)) => {
                let shape = Shape { precision: None, ..shape };
                number::text(out, shape, &[value as u8]);
            }
            (Kind::Pointer(pointer), Val::Int(value)) => {
                if pointer == Pointer::Address && self.pointers == PointerStyle::TraceCmd {
                    if value == 0 {
                        return number::text(out, shape, b"(nil)");
                    }
                    return number::unsigned(out, Shape { alternate: true, ..shape }, value, 16, false);
                }
                pointer::address(out, shape, pointer, value, self.machine, self.symbols);
            }
            // hex_string of lib/vsprintf.c: no bytes were asked for.
            (Kind::Pointer(Pointer::Hex { .. }), Val::Bytes(_)) if width.is_some() && shape.width == 0 => {}
            (Kind::Pointer(pointer), Val::Bytes(bytes)) => {
                pointer::bytes(out, shape, pointer, bytes, self.machine);
            }
            _ => {
                let jiffies = if let Expr::Jiffies(jiffies) = value { self.int(jiffies) } else { None };
                match jiffies {
                    Some(jiffies) => {
                        number::unsigned(out, shape, jiffies, 10, false);
                        out.push(b" jiffies");
                    }
                    None => number::text(out, shape, UNKNOWN),
                }
            }
        }
    }

    /// `%s`
    fn text<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, shape: Shape, expr: &'a Expr) {
        match expr {
            Expr::Choice(parts) => match self.truth(&parts.0) {
                Some(true) => self.text(out, shape, &parts.1),
                Some(false) => self.text(out, shape, &parts.2),
                None => number::text(out, shape, UNKNOWN),
            },
            Expr::Block { lets, result } => {
                self.assign(lets);
                self.text(out, shape, result);
            }
            Expr::Symbolic { value, table } => {
                let Val::Int(value) = self.eval(value) else { return number::text(out, shape, UNKNOWN) };
                // An empty text counts as none (trace_print_symbols_seq).
                match table.binary_search_by_key(&value, |(key, _)| *key) {
                    Ok(at) if !table[at].1.is_empty() => number::text(out, shape, &table[at].1),
                    _ => number::unsigned(out, Shape { alternate: true, ..shape }, value, 16, false),
                }
            }
            Expr::Flags { .. }
            | Expr::Hex { .. }
            | Expr::Array { .. }
            | Expr::HexDump(_)
            | Expr::Bitmask(_)
            | Expr::Stack(_)
            | Expr::NvmeDisk(_)
            | Expr::NvmeCommand { .. }
            | Expr::ScsiCommand(_)
            | Expr::Printf(_) => padded(out, shape, &Made { context: self, expr }),
            expr => match self.eval(expr) {
                Val::Bytes(bytes) => number::text(out, shape, until_nul(bytes)),
                Val::Int(0) => number::text(out, shape, b"(null)"),
                Val::Int(address) => {
                    if let Some(text) = self.symbols.text_at(address) {
                        return number::text(out, shape, text.as_bytes());
                    }
                    let shape = Shape { alternate: true, precision: None, ..shape };
                    number::unsigned(out, shape, address, 16, false);
                }
                Val::Unknown => number::text(out, shape, UNKNOWN),
            },
        }
    }

    /// Text that is made when it is printed.
    fn made<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, expr: &'a Expr) {
        if self.try_made(out, expr).is_none() {
            out.push(UNKNOWN);
        }
    }

    /// `None` if it needs something that is not known.
    fn try_made<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, expr: &'a Expr) -> Option<()> {
        match expr {
            Expr::Flags { value, delimiter, table } => flags(out, self.int(value)?, delimiter, table),
            Expr::Hex { bytes, len, spaced } => {
                let bytes = self.data(bytes)?;
                let len = (self.int(len)? as i32).max(0) as usize;
                pointer::hex(out, &bytes[..len.min(bytes.len())], spaced.then_some(b' '));
            }
            Expr::Array { bytes, count, size } => {
                let (bytes, size) = (self.data(bytes)?, self.int(size)?);
                let count = match count {
                    Some(count) => self.int(count)?,
                    None => (bytes.len() as u64).checked_div(size)?,
                };
                self.array(out, bytes, count as i32, size);
            }
            Expr::HexDump(dump) => self.hex_dump(out, dump)?,
            Expr::Bitmask(bytes) => {
                let bits = Bits::new(self.data(bytes)?, self.machine);
                pointer::bitmap(out, bits, bits.capacity(), false);
            }
            Expr::Stack(bytes) => self.stack(out, self.data(bytes)?),
            Expr::NvmeDisk(name) => {
                let name = until_nul(self.data(name)?);
                if !name.is_empty() {
                    out.push(b"disk=");
                    out.push(name);
                    out.push(b", ");
                }
            }
            Expr::NvmeCommand { io, operands } => {
                super::nvme::command(out, *io, self.int(&operands.0)?, self.data(&operands.1)?);
            }
            Expr::ScsiCommand(bytes) => super::scsi::command(out, self.data(bytes)?),
            Expr::Printf(pieces) => self.pieces(out, pieces, true),
            _ => return None,
        }
        Some(())
    }

    fn int(&self, expr: &'a Expr) -> Option<u64> {
        match self.eval(expr) {
            Val::Int(value) => Some(value),
            Val::Bytes(_) | Val::Unknown => None,
        }
    }

    fn data(&self, expr: &'a Expr) -> Option<&'a [u8]> {
        match self.eval(expr) {
            Val::Bytes(bytes) => Some(bytes),
            Val::Int(_) | Val::Unknown => None,
        }
    }

    /// `trace_print_array_seq`
    fn array<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, bytes: &[u8], count: i32, size: u64) {
        out.push(b"{");
        let known = matches!(size, 1 | 2 | 4 | 8);
        let step = if known { size as usize } else { 1 };
        let count = count.max(0) as usize;
        for (index, bytes) in bytes.chunks_exact(step).take(count).enumerate() {
            if out.left() == 0 {
                return;
            }
            if index > 0 {
                out.push(b",");
            }
            if !known {
                out.push(b"BAD SIZE:");
                number::unsigned(out, Shape::PLAIN, size, 10, false);
                out.push(b" ");
            }
            out.push(b"0x");
            number::unsigned(out, Shape::PLAIN, self.machine.number(bytes), 16, false);
        }
        out.push(b"}");
    }

    /// `trace_print_hex_dump_seq` and `seq_buf_hex_dump`
    fn hex_dump<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, dump: &'a HexDump) -> Option<()> {
        let number = |expr: &'a Expr| self.int(expr).map(|value| value as usize);
        let bytes = self.data(&dump.bytes)?;
        let len = number(&dump.len)?;
        let prefix_type = number(&dump.prefix_type)?;
        let form =
            Dump { row: number(&dump.row)?, group: number(&dump.group)?, ascii: number(&dump.ascii)? != 0 };
        let row = if form.row == 32 { 32 } else { 16 };
        out.push(b"\n");
        for (index, line) in bytes[..len.min(bytes.len())].chunks(row).enumerate() {
            if out.left() == 0 {
                break;
            }
            out.push(&dump.prefix);
            match prefix_type {
                1 => {
                    out.push(UNKNOWN);
                    out.push(b": ");
                }
                2 => {
                    number::unsigned(out, Shape::zeros(8), (index * row) as u64, 16, false);
                    out.push(b": ");
                }
                _ => {}
            }
            form.line(out, line, self.machine);
            out.push(b"\n");
        }
        Some(())
    }

    /// A stack of a synthetic event (kernel/trace/trace_events_synth.c): a line for each function. In newer
    /// kernels the first long is their number.
    fn stack<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>, bytes: &[u8]) {
        let long = usize::from(self.machine.long_size);
        let skip =
            bytes.get(..long).is_some_and(|first| self.machine.number(first) <= (bytes.len() / long) as u64);
        for address in
            bytes.chunks_exact(long).skip(usize::from(skip)).map(|bytes| self.machine.number(bytes))
        {
            if address == 0 || out.left() == 0 {
                break;
            }
            out.push(b"=> ");
            let symbol = Pointer::Symbol { offset: true, backtrace: false };
            pointer::address(out, Shape::PLAIN, symbol, address, self.machine, self.symbols);
            out.push(b"\n");
        }
    }

    fn assign(&self, lets: &'a [(u8, Expr)]) {
        for (slot, expr) in lets {
            let value = self.eval(expr);
            if let Some(local) = self.locals.get(usize::from(*slot)) {
                local.set(value);
            }
        }
    }

    /// Whether a condition holds. `None` if that cannot be known.
    fn truth(&self, expr: &'a Expr) -> Option<bool> {
        match self.eval(expr) {
            Val::Int(value) => Some(value != 0),
            Val::Bytes(_) => Some(true),
            Val::Unknown => None,
        }
    }

    pub(super) fn eval(&self, expr: &'a Expr) -> Val<'a> {
        match expr {
            Expr::Const(value) => Val::Int(*value),
            Expr::Text(text) => Val::Bytes(text),
            Expr::Load { offset, int } => {
                let start = *offset as usize;
                match self.record.get(start..start + usize::from(int.size)) {
                    Some(bytes) => Val::Int(int.wrap(self.machine.number(bytes))),
                    None => Val::Unknown,
                }
            }
            Expr::Bytes { offset, len } => {
                // What a record that was cut still has.
                let rest = self.record.get(*offset as usize..).unwrap_or_default();
                Val::Bytes(len.map_or(rest, |len| &rest[..rest.len().min(len as usize)]))
            }
            Expr::Dynamic { offset, relative } => match self.dynamic(*offset, *relative) {
                Some((start, size)) => {
                    let rest = self.record.get(start..).unwrap_or_default();
                    Val::Bytes(&rest[..rest.len().min(size)])
                }
                None => Val::Unknown,
            },
            Expr::DynamicLen { offset } => match self.dynamic(*offset, false) {
                Some((_, size)) => Val::Int(size as u64),
                None => Val::Unknown,
            },
            Expr::Local(slot) => self.locals.get(usize::from(*slot)).map_or(Val::Unknown, Cell::get),
            Expr::Not(inner) => self.truth(inner).map_or(Val::Unknown, |truth| Val::Int(u64::from(!truth))),
            Expr::Complement(int, inner) => self.map(inner, |value| Some(int.wrap(!value))),
            Expr::Negate(int, inner) => self.map(inner, |value| Some(int.wrap(value.wrapping_neg()))),
            Expr::Cast(int, inner) => self.map(inner, |value| Some(int.wrap(value))),
            Expr::Binary(op, int, operands) => match (self.eval(&operands.0), self.eval(&operands.1)) {
                (Val::Int(a), Val::Int(b)) => op.apply(*int, a, b).map_or(Val::Unknown, Val::Int),
                // A pointer into the record is not NULL.
                (Val::Bytes(_), Val::Int(0)) | (Val::Int(0), Val::Bytes(_)) => match op {
                    Op::Eq => Val::Int(0),
                    Op::Ne => Val::Int(1),
                    _ => Val::Unknown,
                },
                _ => Val::Unknown,
            },
            Expr::And(operands) => match self.truth(&operands.0) {
                Some(false) => Val::Int(0),
                Some(true) => {
                    self.truth(&operands.1).map_or(Val::Unknown, |truth| Val::Int(u64::from(truth)))
                }
                None => Val::Unknown,
            },
            Expr::Or(operands) => match self.truth(&operands.0) {
                Some(true) => Val::Int(1),
                Some(false) => {
                    self.truth(&operands.1).map_or(Val::Unknown, |truth| Val::Int(u64::from(truth)))
                }
                None => Val::Unknown,
            },
            Expr::Choice(parts) => match self.truth(&parts.0) {
                Some(true) => self.eval(&parts.1),
                Some(false) => self.eval(&parts.2),
                None => Val::Unknown,
            },
            Expr::Element { int, operands } => match (self.eval(&operands.0), self.eval(&operands.1)) {
                (Val::Bytes(bytes), Val::Int(index)) => {
                    let size = usize::from(int.size);
                    let start = usize::try_from(index).ok().and_then(|index| index.checked_mul(size));
                    let end = start.and_then(|start| start.checked_add(size));
                    match start.zip(end).and_then(|(start, end)| bytes.get(start..end)) {
                        Some(bytes) => Val::Int(int.wrap(self.machine.number(bytes))),
                        // The end of a text.
                        None if size == 1 => Val::Int(0),
                        None => Val::Unknown,
                    }
                }
                _ => Val::Unknown,
            },
            Expr::Advance { step, operands } => match (self.eval(&operands.0), self.eval(&operands.1)) {
                (Val::Int(base), Val::Int(index)) => {
                    Val::Int(base.wrapping_add(index.wrapping_mul(u64::from(*step))))
                }
                (Val::Bytes(bytes), Val::Int(index)) => {
                    let start =
                        usize::try_from(index).ok().and_then(|index| index.checked_mul(*step as usize));
                    Val::Bytes(start.and_then(|start| bytes.get(start..)).unwrap_or_default())
                }
                _ => Val::Unknown,
            },
            Expr::BitField { shift, bits, value } => {
                self.map(value, |value| Some(value >> shift & ((1 << bits) - 1)))
            }
            Expr::Pick { texts, index } => match self.eval(index) {
                Val::Int(index) => {
                    let text = usize::try_from(index).ok().and_then(|index| texts.get(index));
                    text.map_or(Val::Unknown, |text| Val::Bytes(text))
                }
                Val::Bytes(_) | Val::Unknown => Val::Unknown,
            },
            Expr::StringLength(text) => match self.eval(text) {
                Val::Bytes(bytes) => Val::Int(until_nul(bytes).len() as u64),
                Val::Int(_) | Val::Unknown => Val::Unknown,
            },
            Expr::SwapBytes { size, value } => self.map(value, |value| match size {
                2 => Some(u64::from((value as u16).swap_bytes())),
                4 => Some(u64::from((value as u32).swap_bytes())),
                _ => Some(value.swap_bytes()),
            }),
            Expr::Block { lets, result } => {
                self.assign(lets);
                self.eval(result)
            }
            // Only %s prints these, and nothing can be calculated with them.
            Expr::Unknown
            | Expr::Jiffies(_)
            | Expr::Symbolic { .. }
            | Expr::Flags { .. }
            | Expr::Hex { .. }
            | Expr::Array { .. }
            | Expr::HexDump(_)
            | Expr::Bitmask(_)
            | Expr::Stack(_)
            | Expr::NvmeDisk(_)
            | Expr::NvmeCommand { .. }
            | Expr::ScsiCommand(_)
            | Expr::Printf(_) => Val::Unknown,
        }
    }

    fn map(&self, expr: &'a Expr, f: impl FnOnce(u64) -> Option<u64>) -> Val<'a> {
        match self.eval(expr) {
            Val::Int(value) => f(value).map_or(Val::Unknown, Val::Int),
            Val::Bytes(_) | Val::Unknown => Val::Unknown,
        }
    }

    fn dynamic(&self, offset: u32, relative: bool) -> Option<(usize, usize)> {
        let (start, end) = (offset as usize, offset as usize + 4);
        let word = self.machine.number(self.record.get(start..end)?) as u32;
        Some(dynamic(word, if relative { Location::RelLoc } else { Location::DataLoc }, end))
    }
}

struct Made<'c, 'a> {
    context: &'c Context<'a>,
    expr: &'a Expr,
}

impl Draw for Made<'_, '_> {
    fn draw<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>) {
        self.context.made(out, self.expr);
    }
}

/// `trace_print_flags_seq`: what no entry explains is printed as a number.
fn flags<O: Output + ?Sized>(
    out: &mut Limited<'_, O>,
    value: u64,
    delimiter: &[u8],
    table: &[(u64, Box<[u8]>)],
) {
    let mut left = value;
    let mut first = true;
    for (mask, text) in table {
        if left == 0 {
            break;
        }
        if left & mask != *mask {
            continue;
        }
        left &= !mask;
        if !first {
            out.push(delimiter);
        }
        first = false;
        out.push(text);
    }
    if left != 0 {
        if !first {
            out.push(delimiter);
        }
        out.push(b"0x");
        number::unsigned(out, Shape::PLAIN, left, 16, false);
    }
}
