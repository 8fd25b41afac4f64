//! Conversions of the kernel's printf (lib/vsprintf.c, format_decode and pointer;
//! Documentation/core-api/printk-formats.rst).

/// Widest field, and most digits: the kernel's own buffer for the text of an event is 8 KiB.
pub(super) const MAX_WIDTH: u32 = 4096;

/// A conversion: what follows `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are printf's flags")]
pub(super) struct Spec {
    pub(super) left: bool,
    pub(super) plus: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    pub(super) alternate: bool,
    pub(super) width: Amount,
    pub(super) precision: Amount,
    pub(super) kind: Kind,
}

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    None,
    Fixed(u32),
    /// `*`: the next argument.
    Argument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Signed { size: u8 },
    Unsigned { size: u8, base: u8, upper: bool },
    Char,
    Text,
    Pointer(Pointer),
}

/// What is printed of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    /// The address. The kernel prints a hash of it for `%p`, which no record holds.
    Address,
    Symbol {
        offset: bool,
        backtrace: bool,
    },
    /// `%pI4`, `%pi4`, with `h`, `n`, `b`, `l` for the byte order.
    Ip4 {
        leading_zeros: bool,
        little: bool,
        host: bool,
    },
    Ip6 {
        colons: bool,
        compressed: bool,
    },
    /// `%pIS`, with `p` port, `f` flow, `s` scope, `c` compressed.
    Socket {
        compressed: bool,
        port: bool,
        flow: bool,
        scope: bool,
        leading_zeros: bool,
    },
    Mac {
        separator: Option<u8>,
        reversed: bool,
    },
    /// `%*ph`
    Hex {
        separator: Option<u8>,
    },
    Bitmap {
        list: bool,
    },
    Uuid {
        upper: bool,
        little: bool,
    },
    /// `%pa`: a physical address after the pointer.
    Physical,
    Error,
    /// One that needs the kernel's memory, as `%pd` does.
    Kernel,
}

/// Reads what follows `%`, which must not be another `%`. Returns how many bytes it takes, or those that are
/// not understood.
pub(super) fn parse(text: &[u8], long_size: u8) -> Result<(Spec, usize), usize> {
    let mut at = 0;
    let mut spec = Spec {
        left: false,
        plus: false,
        space: false,
        zero: false,
        alternate: false,
        width: Amount::None,
        precision: Amount::None,
        kind: Kind::Char,
    };
    loop {
        match text.get(at) {
            Some(b'-') => spec.left = true,
            Some(b'+') => spec.plus = true,
            Some(b' ') => spec.space = true,
            Some(b'0') => spec.zero = true,
            Some(b'#') => spec.alternate = true,
            _ => break,
        }
        at += 1;
    }
    spec.width = amount(text, &mut at);
    if text.get(at) == Some(&b'.') {
        at += 1;
        // A point without a number is a precision of 0.
        spec.precision = match amount(text, &mut at) {
            Amount::None => Amount::Fixed(0),
            amount => amount,
        };
    }
    let long = long_size;
    let size = match (text.get(at), text.get(at + 1)) {
        (Some(b'h'), Some(b'h')) => (at += 2, 1).1,
        (Some(b'h'), _) => (at += 1, 2).1,
        (Some(b'l'), Some(b'l')) => (at += 2, 8).1,
        (Some(b'l' | b'z' | b'Z' | b't'), _) => (at += 1, long).1,
        (Some(b'L' | b'q' | b'j'), _) => (at += 1, 8).1,
        _ => 4,
    };
    let unsigned = |base, upper| Kind::Unsigned { size, base, upper };
    spec.kind = match text.get(at) {
        Some(b'd' | b'i') => Kind::Signed { size },
        Some(b'u') => unsigned(10, false),
        Some(b'x') => unsigned(16, false),
        Some(b'X') => unsigned(16, true),
        Some(b'o') => unsigned(8, false),
        Some(b'c') => Kind::Char,
        Some(b's') => Kind::Text,
        Some(b'p') => {
            // The kernel skips every letter and digit after `%p`, also those that mean nothing.
            let suffix = &text[at + 1..];
            let len = suffix.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            at += len;
            Kind::Pointer(pointer(&suffix[..len]))
        }
        _ => return Err((at + 1).min(text.len())),
    };
    Ok((spec, at + 1))
}

fn amount(text: &[u8], at: &mut usize) -> Amount {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Amount::Argument;
    }
    let digits = text[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return Amount::None;
    }
    let value = text[*at..*at + digits]
        .iter()
        .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    *at += digits;
    Amount::Fixed(value.min(MAX_WIDTH))
}

fn pointer(suffix: &[u8]) -> Pointer {
    let has = |byte: u8| suffix[1..].contains(&byte);
    let second = suffix.get(1).copied();
    match suffix.first() {
        None | Some(b'x' | b'K') => Pointer::Address,
        Some(b'S' | b'F') => Pointer::Symbol { offset: true, backtrace: false },
        Some(b's' | b'f') => Pointer::Symbol { offset: false, backtrace: false },
        Some(b'B') => Pointer::Symbol { offset: true, backtrace: true },
        Some(first @ (b'I' | b'i')) => match second {
            Some(b'4') => Pointer::Ip4 {
                leading_zeros: *first == b'i',
                little: suffix.get(2) == Some(&b'l'),
                host: suffix.get(2) == Some(&b'h'),
            },
            Some(b'6') => Pointer::Ip6 {
                colons: *first == b'I',
                compressed: *first == b'I' && suffix.get(2) == Some(&b'c'),
            },
            Some(b'S') => Pointer::Socket {
                compressed: has(b'c'),
                port: has(b'p'),
                flow: has(b'f'),
                scope: has(b's'),
                leading_zeros: *first == b'i',
            },
            _ => Pointer::Address,
        },
        Some(b'M') => Pointer::Mac {
            separator: Some(if second == Some(b'F') { b'-' } else { b':' }),
            reversed: second == Some(b'R'),
        },
        Some(b'm') => Pointer::Mac { separator: None, reversed: second == Some(b'R') },
        Some(b'h') => Pointer::Hex {
            separator: match second {
                Some(b'C') => Some(b':'),
                Some(b'D') => Some(b'-'),
                Some(b'N') => None,
                _ => Some(b' '),
            },
        },
        Some(b'b') => Pointer::Bitmap { list: second == Some(b'l') },
        Some(b'U') => Pointer::Uuid {
            upper: matches!(second, Some(b'B' | b'L')),
            little: matches!(second, Some(b'l' | b'L')),
        },
        Some(b'a') => Pointer::Physical,
        Some(b'e') => Pointer::Error,
        Some(b'd' | b'D' | b'E' | b'R' | b'r' | b'V' | b'N' | b'O' | b'G' | b'g' | b't' | b'C' | b'4') => {
            Pointer::Kernel
        }
        Some(_) => Pointer::Address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions() {
        let kind = |text: &str| {
            let (spec, used) = parse(text.as_bytes(), 8).unwrap();
            assert_eq!(used, text.len(), "{text}");
            spec.kind
        };
        assert_eq!(kind("hhu"), Kind::Unsigned { size: 1, base: 10, upper: false });
        assert_eq!(kind("08lx"), Kind::Unsigned { size: 8, base: 16, upper: false });
        assert_eq!(kind("Lu"), Kind::Unsigned { size: 8, base: 10, upper: false });
        assert_eq!(kind("-3d"), Kind::Signed { size: 4 });
        assert_eq!(kind("pISpc"), kind("pIScp"));
        assert_eq!(kind("pI6c"), Kind::Pointer(Pointer::Ip6 { colons: true, compressed: true }));
        assert_eq!(kind("*pbl"), Kind::Pointer(Pointer::Bitmap { list: true }));
        assert_eq!(parse(b"ps_x", 8).unwrap().1, 2);
        assert_eq!(parse(b"y", 8), Err(1));
        assert_eq!(parse(b"", 8), Err(0));
        let (spec, _) = parse(b"999999999999d", 8).unwrap();
        assert_eq!(spec.width, Amount::Fixed(MAX_WIDTH));
        let (spec, _) = parse(b"-*.*s", 8).unwrap();
        assert_eq!((spec.left, spec.width, spec.precision), (true, Amount::Argument, Amount::Argument));
    }
}
