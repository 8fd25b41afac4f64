//! Integers and their arithmetic as C has them.

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntType {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it has a sign.
    pub signed: bool,
}

impl IntType {
    /// `int`.
    pub const INT: Self = Self { size: 4, signed: true };
    /// `char` of x86, which has a sign.
    pub const CHAR: Self = Self { size: 1, signed: true };
    /// `unsigned long long`.
    pub const U64: Self = Self { size: 8, signed: false };

    /// The value that remains of 64 bits, extended to 64 bits again.
    #[inline]
    pub const fn wrap(self, value: u64) -> u64 {
        match (self.size, self.signed) {
            (1, true) => value as i8 as i64 as u64,
            (1, false) => value as u8 as u64,
            (2, true) => value as i16 as i64 as u64,
            (2, false) => value as u16 as u64,
            (4, true) => value as i32 as i64 as u64,
            (4, false) => value as u32 as u64,
            _ => value,
        }
    }

    /// Whether a number of no sign fits.
    pub const fn holds(self, value: u64) -> bool {
        let bits = self.size as u32 * 8 - self.signed as u32;
        bits == 64 || value >> bits == 0
    }

    /// The type that operands of this type are calculated with (C11, 6.3.1.1).
    #[must_use]
    pub const fn promoted(self) -> Self {
        if self.size < 4 { Self::INT } else { self }
    }

    /// The type that both operands of an operator are converted to (C11, 6.3.1.8).
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        let (a, b) = (self.promoted(), other.promoted());
        match a.size.cmp(&b.size) {
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Equal => Self { size: a.size, signed: a.signed && b.signed },
        }
    }
}

/// An operator with two numbers as operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `&`
    BitAnd,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl Op {
    /// Whether the result is 0 or 1.
    pub const fn is_comparison(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge)
    }

    /// What the operator makes of two numbers in a type. `None` where C leaves it open: division by zero.
    #[inline]
    pub fn apply(self, int: IntType, a: u64, b: u64) -> Option<u64> {
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
