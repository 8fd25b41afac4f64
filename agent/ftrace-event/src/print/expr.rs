//! A compiled expression.

use std::sync::Arc;

use super::ctype::IntType;
use super::direct::Direct;
use super::spec::Spec;
pub(super) use crate::int::Op;
use crate::output::Snippet;

/// Slots for variables of statement expressions.
pub(super) const LOCALS: usize = 8;

/// Part of the text of a record.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Snippet),
    Argument(Argument),
}

/// A conversion with its argument, and those that `*` asks for.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    /// The conversion, if it is of a number of the record.
    pub(super) direct: Option<Direct>,
    pub(super) spec: Spec,
    pub(super) width: Option<Expr>,
    pub(super) precision: Option<Expr>,
    pub(super) value: Expr,
}

/// An expression. Operands have been promoted where C promotes them: each operator knows the type that it
/// works in.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(u64),
    /// The value of an unknown name, or what was made of it.
    Unknown,
    Text(Box<[u8]>),
    /// A number in the record.
    Load {
        offset: u32,
        int: IntType,
    },
    /// The bytes of a field, up to the end of the record if it has no length.
    Bytes {
        offset: u32,
        len: Option<u32>,
    },
    /// What `__data_loc` and `__rel_loc` point to.
    Dynamic {
        offset: u32,
        relative: bool,
    },
    DynamicLen {
        offset: u32,
    },
    Local(u8),
    Not(Box<Expr>),
    Complement(IntType, Box<Expr>),
    Negate(IntType, Box<Expr>),
    Cast(IntType, Box<Expr>),
    Binary(Op, IntType, Box<(Expr, Expr)>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    Choice(Box<(Expr, Expr, Expr)>),
    /// `base[index]` of numbers.
    Element {
        int: IntType,
        operands: Box<(Expr, Expr)>,
    },
    /// `base + index` of a pointer to things of `step` bytes.
    Advance {
        step: u32,
        operands: Box<(Expr, Expr)>,
    },
    /// Bits of a union's word.
    BitField {
        shift: u8,
        bits: u8,
        value: Box<Expr>,
    },
    /// One of a list of texts. A list is one variable, and any number of expressions may use it.
    Pick {
        texts: Arc<[Box<[u8]>]>,
        index: Box<Expr>,
    },
    StringLength(Box<Expr>),
    /// A number of jiffies that is to be one of milliseconds, where the kernel's HZ is unknown.
    Jiffies(Box<Expr>),
    SwapBytes {
        size: u8,
        value: Box<Expr>,
    },
    /// A statement expression: values for variables, then the result.
    Block {
        lets: Box<[(u8, Expr)]>,
        result: Box<Expr>,
    },
    // From here on those whose value is a text that is made when it is printed.
    Symbolic {
        value: Box<Expr>,
        table: Box<[(u64, Box<[u8]>)]>,
    },
    Flags {
        value: Box<Expr>,
        delimiter: Box<[u8]>,
        table: Box<[(u64, Box<[u8]>)]>,
    },
    Hex {
        bytes: Box<Expr>,
        len: Box<Expr>,
        spaced: bool,
    },
    Array {
        bytes: Box<Expr>,
        /// `None`: as many as the bytes are.
        count: Option<Box<Expr>>,
        size: Box<Expr>,
    },
    HexDump(Box<HexDump>),
    Bitmask(Box<Expr>),
    Stack(Box<Expr>),
    /// The disk's name before a comma, if there is one (`nvme_trace_disk_name`).
    NvmeDisk(Box<Expr>),
    /// The words of a command: its number and the bytes from `cdw10` on.
    NvmeCommand {
        io: bool,
        operands: Box<(Expr, Expr)>,
    },
    /// The bytes of a SCSI command.
    ScsiCommand(Box<Expr>),
    Printf(Box<[Piece]>),
}

/// The arguments of `__print_hex_dump`.
#[derive(Clone, Debug)]
pub(super) struct HexDump {
    pub(super) prefix: Box<[u8]>,
    pub(super) prefix_type: Expr,
    pub(super) row: Expr,
    pub(super) group: Expr,
    pub(super) bytes: Expr,
    pub(super) len: Expr,
    pub(super) ascii: Expr,
}
