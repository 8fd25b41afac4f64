//! The functions that a `print fmt` calls: those of the trace event macros
//! (include/trace/stages/stage3_trace_output.h) and a few of the kernel's own.

use super::ctype::{IntType, Pointee, Type};
use super::error::{PrintFmtError, PrintFmtErrorKind};
use super::expr::{Expr, HexDump, Op};
use super::parse::{Parsed, Parser, Result, constant};
use super::token::{TokenKind, shorten};
use crate::Endian;
use crate::format::{Field, Location};

/// Names of Xen's hypercalls by their numbers (include/xen/interface/xen.h); empty for a number without one.
const XEN_HYPERCALLS: [&str; 56] = [
    "set_trap_table",
    "mmu_update",
    "set_gdt",
    "stack_switch",
    "set_callbacks",
    "fpu_taskswitch",
    "sched_op_compat",
    "dom0_op",
    "set_debugreg",
    "get_debugreg",
    "update_descriptor",
    "",
    "memory_op",
    "multicall",
    "update_va_mapping",
    "set_timer_op",
    "event_channel_op_compat",
    "xen_version",
    "console_io",
    "physdev_op_compat",
    "grant_table_op",
    "vm_assist",
    "update_va_mapping_otherdomain",
    "iret",
    "vcpu_op",
    "set_segment_base",
    "mmuext_op",
    "acm_op",
    "nmi_op",
    "sched_op",
    "callback_op",
    "xenoprof_op",
    "event_channel_op",
    "physdev_op",
    "hvm_op",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "arch_0",
    "arch_1",
    "arch_2",
    "arch_3",
    "arch_4",
    "arch_5",
    "arch_6",
    "arch_7",
];

/// What `name` and the parentheses that stand here are.
pub(super) fn parse(parser: &mut Parser<'_>, name: &str) -> Result<Parsed> {
    let start = parser.last_position();
    parser.expect("(")?;
    let parsed = match name {
        "__print_symbolic" | "__print_symbolic_u64" => symbolic(parser)?,
        "__print_flags" | "__print_flags_u64" => flags(parser)?,
        "__get_str" | "__get_rel_str" | "__get_sockaddr" | "__get_rel_sockaddr" => data(parser)?,
        "__get_dynamic_array" | "__get_rel_dynamic_array" => data(parser)?,
        "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => {
            let field = dynamic_field(parser)?;
            let expr = Expr::DynamicLen { offset: field.offset };
            Parsed { expr, ty: Type::Int(IntType { size: 4, signed: false }), depth: 1 }
        }
        "__get_bitmask" | "__get_rel_bitmask" | "__get_cpumask" | "__get_rel_cpumask" => {
            let inner = data(parser)?;
            parser.made(Expr::Bitmask(Box::new(inner.expr)), Type::TEXT, inner.depth)?
        }
        "__get_stacktrace" | "__get_rel_stacktrace" => {
            let inner = data(parser)?;
            parser.made(Expr::Stack(Box::new(inner.expr)), Type::TEXT, inner.depth)?
        }
        "__print_hex" | "__print_hex_str" => {
            let [bytes, len] = arguments(parser)?;
            let depth = bytes.depth.max(len.depth);
            let spaced = name == "__print_hex";
            let expr = Expr::Hex { bytes: Box::new(bytes.expr), len: Box::new(len.expr), spaced };
            parser.made(expr, Type::TEXT, depth)?
        }
        "__print_array" => {
            let [bytes, count, size] = arguments(parser)?;
            let depth = bytes.depth.max(count.depth).max(size.depth);
            let (bytes, count, size) = (Box::new(bytes.expr), Box::new(count.expr), Box::new(size.expr));
            parser.made(Expr::Array { bytes, count: Some(count), size }, Type::TEXT, depth)?
        }
        "__print_dynamic_array" => {
            let field = dynamic_field(parser)?;
            let (offset, relative) = (field.offset, field.location == Location::RelLoc);
            parser.expect(",")?;
            let size = parser.expression()?;
            let bytes = Box::new(Expr::Dynamic { offset, relative });
            parser.made(
                Expr::Array { bytes, count: None, size: Box::new(size.expr) },
                Type::TEXT,
                size.depth + 1,
            )?
        }
        "__print_hex_dump" => {
            let prefix = parser.text()?.into();
            parser.expect(",")?;
            let [prefix_type, row, group, bytes, len, ascii] = arguments(parser)?;
            let parts = [&prefix_type, &row, &group, &bytes, &len, &ascii];
            let depth = parts.into_iter().map(|part| part.depth).max().unwrap_or(0);
            let dump = HexDump {
                prefix,
                prefix_type: prefix_type.expr,
                row: row.expr,
                group: group.expr,
                bytes: bytes.expr,
                len: len.expr,
                ascii: ascii.expr,
            };
            parser.made(Expr::HexDump(Box::new(dump)), Type::TEXT, depth)?
        }
        "__print_ns_to_secs" => per_second(parser, Op::Div, IntType::U64)?,
        "__print_ns_without_secs" => per_second(parser, Op::Rem, IntType { size: 4, signed: false })?,
        // kernel/time/time.c: with an HZ that divides 1000 it is a multiplication.
        "jiffies_to_msecs" => {
            let [jiffies] = arguments(parser)?;
            match parser.names.value("HZ") {
                Some(hz) if hz > 0 => {
                    let long = IntType::U64;
                    let operands = Box::new((jiffies.expr, Expr::Const(1000)));
                    let product = Expr::Binary(Op::Mul, long, operands);
                    let quotient = Expr::Binary(Op::Div, long, Box::new((product, Expr::Const(hz as u64))));
                    let uint = IntType { size: 4, signed: false };
                    let expr = Expr::Cast(uint, Box::new(quotient));
                    parser.made(expr, Type::Int(uint), jiffies.depth + 2)?
                }
                _ => {
                    parser.unresolved("HZ".to_owned());
                    let expr = Expr::Jiffies(Box::new(jiffies.expr));
                    parser.made(expr, Type::Int(IntType::U64), jiffies.depth)?
                }
            }
        }
        // A device's number, of which 20 bits are the minor one (include/linux/kdev_t.h).
        "jbd2_dev_to_name" => {
            let [device] = arguments(parser)?;
            let part = |op, operand| {
                let operands = Box::new((device.expr.clone(), Expr::Const(operand)));
                let int = IntType { size: 4, signed: false };
                let expr = Expr::Binary(op, int, operands);
                parser.made(expr, Type::Int(int), device.depth)
            };
            let parts = vec![part(Op::Shr, 20)?, part(Op::BitAnd, 0xf_ffff)?];
            let pieces = parser.pieces(b"%u:%u", parts).map_err(|kind| PrintFmtError { at: start, kind })?;
            parser.made(Expr::Printf(pieces.into()), Type::TEXT, device.depth + 1)?
        }
        // The number that a pointer leads to, little-endian.
        "__le16_to_cpup" | "le16_to_cpup" => from_little_endian(parser, 2)?,
        "__le32_to_cpup" | "le32_to_cpup" => from_little_endian(parser, 4)?,
        "__le64_to_cpup" | "le64_to_cpup" => from_little_endian(parser, 8)?,
        "__builtin_expect" => {
            let [value, _] = arguments(parser)?;
            value
        }
        "__builtin_constant_p" => {
            let [value] = arguments(parser)?;
            constant(u64::from(matches!(value.expr, Expr::Const(_))), IntType::INT)
        }
        "strlen" => {
            let [text] = arguments(parser)?;
            let long = IntType { size: parser.machine.long_size, signed: false };
            parser.made(Expr::StringLength(Box::new(text.expr)), Type::Int(long), text.depth)?
        }
        "__builtin_bswap16" | "__swab16" | "___constant_swab16" | "__fswab16" => swapped(parser, 2)?,
        "__builtin_bswap32" | "__swab32" | "___constant_swab32" | "__fswab32" => swapped(parser, 4)?,
        "__builtin_bswap64" | "__swab64" | "___constant_swab64" | "__fswab64" => swapped(parser, 8)?,
        // Conversions between a number and a struct that holds nothing else
        // (arch/x86/include/asm/pgtable_types.h).
        "pte_val" | "pmd_val" | "pud_val" | "p4d_val" | "pgd_val" | "native_make_pte" | "native_make_pmd"
        | "native_make_pud" | "native_make_p4d" | "native_make_pgd" => {
            let [value] = arguments(parser)?;
            value
        }
        // arch/x86/xen/trace.c: the name in parentheses behind the number, or nothing.
        "xen_hypercall_name" => {
            let [number] = arguments(parser)?;
            let name = |name: &&str| match *name {
                "" => Box::default(),
                name => format!("({name})").into_bytes().into(),
            };
            let texts: Vec<Box<[u8]>> = XEN_HYPERCALLS.iter().map(name).collect();
            let known = Box::new((number.expr.clone(), Expr::Const(texts.len() as u64)));
            let known = Expr::Binary(Op::Lt, IntType { size: 4, signed: false }, known);
            let text = Expr::Pick { texts: texts.into(), index: Box::new(number.expr) };
            let expr = Expr::Choice(Box::new((known, text, Expr::Text(Box::default()))));
            parser.made(expr, Type::TEXT, number.depth + 1)?
        }
        // drivers/scsi/scsi_trace.c; the first argument is the trace_seq.
        "scsi_trace_parse_cdb" => {
            parser.name()?;
            parser.expect(",")?;
            let [bytes, _] = arguments(parser)?;
            parser.made(Expr::ScsiCommand(Box::new(bytes.expr)), Type::TEXT, bytes.depth)?
        }
        // drivers/nvme/host/trace.c; the first argument is the trace_seq.
        "nvme_trace_disk_name" => {
            parser.name()?;
            parser.expect(",")?;
            let [disk] = arguments(parser)?;
            parser.made(Expr::NvmeDisk(Box::new(disk.expr)), Type::TEXT, disk.depth)?
        }
        "nvme_trace_parse_nvm_cmd" | "nvme_trace_parse_admin_cmd" | "nvme_trace_parse_fabrics_cmd" => {
            parser.name()?;
            parser.expect(",")?;
            let [opcode, bytes] = arguments(parser)?;
            let depth = opcode.depth.max(bytes.depth);
            let io = name == "nvme_trace_parse_nvm_cmd";
            let operands = Box::new((opcode.expr, bytes.expr));
            parser.made(Expr::NvmeCommand { io, operands }, Type::TEXT, depth)?
        }
        // include/linux/edac.h
        "mc_event_error_type" => {
            let [value] = arguments(parser)?;
            let texts: [&[u8]; 5] = [b"Corrected", b"Uncorrected", b"Deferred", b"Fatal", b"Info"];
            let texts = texts.map(Box::from).into();
            parser.made(Expr::Pick { texts, index: Box::new(value.expr) }, Type::TEXT, value.depth)?
        }
        _ => {
            let kind = PrintFmtErrorKind::Function(shorten(name));
            return Err(PrintFmtError { at: start, kind });
        }
    };
    parser.expect(")")?;
    Ok(parsed)
}

/// A fixed number of arguments.
fn arguments<const N: usize>(parser: &mut Parser<'_>) -> Result<[Parsed; N]> {
    let mut found = Vec::with_capacity(N);
    for index in 0..N {
        if index > 0 {
            parser.expect(",")?;
        }
        found.push(parser.expression()?);
    }
    found.try_into().map_err(|_| parser.fail(PrintFmtErrorKind::Arguments("function")))
}

fn any_field<'t>(parser: &mut Parser<'t>) -> Result<&'t Field> {
    let format = parser.format;
    match *parser.peek() {
        TokenKind::Name(name) => match format.member(name, true) {
            Some(field) => {
                parser.name()?;
                Ok(field)
            }
            None => Err(parser.fail(PrintFmtErrorKind::NoField(shorten(name)))),
        },
        _ => Err(parser.expected("the name of a field")),
    }
}

fn dynamic_field<'t>(parser: &mut Parser<'t>) -> Result<&'t Field> {
    let field = any_field(parser)?;
    if field.location == Location::Inline {
        return Err(parser.fail(PrintFmtErrorKind::Arguments("__get_dynamic_array")));
    }
    Ok(field)
}

/// The bytes of a field, dynamic or not.
fn data(parser: &mut Parser<'_>) -> Result<Parsed> {
    let field = any_field(parser)?;
    let Some(count) = field.strings() else { return Ok(parser.field(field)) };
    // `__get_str(name[1])`: one of an array of strings (kernel/trace/trace_probe.c, print_str).
    parser.expect("[")?;
    let index = parser.expression()?;
    parser.expect("]")?;
    match index.expr {
        Expr::Const(index) if index < u64::from(count) => {
            let offset = field.offset + index as u32 * 4;
            let expr = Expr::Dynamic { offset, relative: field.location == Location::RelLoc };
            Ok(Parsed { expr, ty: Type::TEXT, depth: 1 })
        }
        _ => Err(parser.fail(PrintFmtErrorKind::Arguments("__get_str"))),
    }
}

fn swapped(parser: &mut Parser<'_>, size: u8) -> Result<Parsed> {
    let [value] = arguments(parser)?;
    let expr = Expr::SwapBytes { size, value: Box::new(value.expr) };
    parser.made(expr, Type::Int(IntType { size, signed: false }), value.depth)
}

/// The number that a pointer leads to, in the byte order of little-endian machines.
fn from_little_endian(parser: &mut Parser<'_>, size: u8) -> Result<Parsed> {
    let [pointer] = arguments(parser)?;
    let int = IntType { size, signed: false };
    let operands = Box::new((pointer.expr, Expr::Const(0)));
    let mut value = Expr::Element { int, operands };
    if parser.machine.endian == Endian::Big {
        value = Expr::SwapBytes { size, value: Box::new(value) };
    }
    parser.made(value, Type::Int(int), pointer.depth + 1)
}

/// kernel/trace/trace_output.c and stage3: nanoseconds divided by those of a second.
fn per_second(parser: &mut Parser<'_>, op: Op, result: IntType) -> Result<Parsed> {
    let [value] = arguments(parser)?;
    let operands = Box::new((value.expr, Expr::Const(1_000_000_000)));
    let expr = Expr::Cast(result, Box::new(Expr::Binary(op, IntType::U64, operands)));
    parser.made(expr, Type::Int(result), value.depth + 1)
}

type Entry = (u64, Box<[u8]>);

fn symbolic(parser: &mut Parser<'_>) -> Result<Parsed> {
    let value = parser.expression()?;
    let mut table = entries(parser)?;
    // The first one of a number counts.
    table.sort_by_key(|(number, _)| *number);
    table.dedup_by_key(|(number, _)| *number);
    let expr = Expr::Symbolic { value: Box::new(value.expr), table: table.into() };
    parser.made(expr, Type::TEXT, value.depth)
}

fn flags(parser: &mut Parser<'_>) -> Result<Parsed> {
    let value = parser.expression()?;
    parser.expect(",")?;
    let delimiter = if let TokenKind::Text(_) = parser.peek() {
        parser.text()?
    } else {
        // NULL: no delimiter.
        parser.expression()?;
        Vec::new()
    };
    let table = entries(parser)?;
    let expr = Expr::Flags { value: Box::new(value.expr), delimiter: delimiter.into(), table: table.into() };
    parser.made(expr, Type::Pointer(Pointee::Int(IntType::CHAR)), value.depth)
}

/// `, { number, "text" }`, any number of times. Entries whose number is unknown are left out: their values
/// are printed as the kernel prints those that no entry has.
fn entries(parser: &mut Parser<'_>) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    while parser.accept(",") {
        // Some lists end with a comma.
        if parser.peek() == &TokenKind::Punct(")") {
            break;
        }
        let braced = parser.accept("{");
        // Macros can leave the list in braces of its own.
        // A macro that lists nothing leaves an entry of nothing.
        if braced && parser.accept("}") {
            continue;
        }
        let outer = braced && parser.accept("{");
        let number = parser.expression()?;
        parser.expect(",")?;
        if let TokenKind::Text(_) = parser.peek() {
            let text = parser.text()?;
            match number.expr {
                Expr::Const(value) => found.push((value, text.into())),
                _ if number.is_unknown() => {}
                _ => return Err(parser.fail(PrintFmtErrorKind::Arguments("__print_symbolic"))),
            }
        } else {
            // `{ -1, NULL }` ends the list.
            parser.expression()?;
        }
        if outer {
            parser.expect("}")?;
        }
        if braced {
            parser.expect("}")?;
        }
    }
    Ok(found)
}

impl Parsed {
    /// Whether the value depends on an unknown name, and on nothing of the record.
    fn is_unknown(&self) -> bool {
        fn unknown(expr: &Expr) -> bool {
            match expr {
                Expr::Unknown => true,
                Expr::Not(inner)
                | Expr::Complement(_, inner)
                | Expr::Negate(_, inner)
                | Expr::Cast(_, inner) => unknown(inner),
                Expr::Binary(_, _, operands) | Expr::And(operands) | Expr::Or(operands) => {
                    unknown(&operands.0) || unknown(&operands.1)
                }
                Expr::Choice(parts) => unknown(&parts.0) || unknown(&parts.1) || unknown(&parts.2),
                _ => false,
            }
        }
        unknown(&self.expr)
    }
}
