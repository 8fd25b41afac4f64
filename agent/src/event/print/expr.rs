//! A compiled expression, and arithmetic as C does it.

use super::ctype::IntType;
use super::spec::Spec;

/// Places for variables of statement expressions.
pub(super) const LOCALS: usize = 8;

/// Part of the text of a record.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Box<[u8]>),
    /// A conversion with its argument, and those that `*` asks for.
    Argument {
        spec: Spec,
        width: Option<Expr>,
        precision: Option<Expr>,
        value: Expr,
    },
}

/// An expression. Operands have been promoted where C promotes them: each operator knows the type that it works in.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(u64),
    /// The value of a name that nobody knows, or what was made of it.
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
    /// One of a list of texts.
    Pick {
        texts: Box<[Box<[u8]>]>,
        index: Box<Expr>,
    },
    StringLength(Box<Expr>),
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
        count: Box<Expr>,
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

/// An operator with two numbers as operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Shl,
    Shr,
    BitAnd,
    BitOr,
    BitXor,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    pub(super) const fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }

    /// What the operator makes of two numbers in a type. `None` where C leaves it open: division by zero.
    #[inline]
    pub(super) fn apply(self, int: IntType, a: u64, b: u64) -> Option<u64> {
        // The amount of a shift keeps its own type; all other operands are converted.
        let (a, shift) = (int.wrap(a), b);
        let b = int.wrap(b);
        let bits = u64::from(int.size) * 8;
        let value = match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div | Self::Rem if b == 0 => return None,
            Self::Div if int.signed => (a as i64).wrapping_div(b as i64) as u64,
            Self::Div => a / b,
            Self::Rem if int.signed => (a as i64).wrapping_rem(b as i64) as u64,
            Self::Rem => a % b,
            // What x86 does with an amount that is too big.
            Self::Shl => a << (shift & (bits - 1)),
            Self::Shr if int.signed => ((a as i64) >> (shift & (bits - 1))) as u64,
            Self::Shr => a >> (shift & (bits - 1)),
            Self::BitAnd => a & b,
            Self::BitOr => a | b,
            Self::BitXor => a ^ b,
            Self::Eq => return Some(u64::from(a == b)),
            Self::Ne => return Some(u64::from(a != b)),
            Self::Lt if int.signed => return Some(u64::from((a as i64) < b as i64)),
            Self::Lt => return Some(u64::from(a < b)),
            Self::Le if int.signed => return Some(u64::from(a as i64 <= b as i64)),
            Self::Le => return Some(u64::from(a <= b)),
            Self::Gt if int.signed => return Some(u64::from(a as i64 > b as i64)),
            Self::Gt => return Some(u64::from(a > b)),
            Self::Ge if int.signed => return Some(u64::from(a as i64 >= b as i64)),
            Self::Ge => return Some(u64::from(a >= b)),
        };
        Some(int.wrap(value))
    }
}
