//! JSON as all commands but `report` print it: where lines end, and how strings and fractions are written.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use serde_json::ser::Formatter;

/// Where lines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Everything is on one line.
    One,
    /// Each element of the outermost array but the first one begins a line.
    Elements,
    /// Each element of the outermost array is a line, between the lines with its brackets.
    Rows,
}

/// A value and a line feed.
///
/// # Errors
/// The value is none that JSON can hold, such as a map whose keys are no strings.
pub(super) fn text(value: &impl Serialize, lines: Lines) -> io::Result<String> {
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Form::new(lines)))?;
    text.push(b'\n');
    String::from_utf8(text).map_err(io::Error::other)
}

/// An array and a line feed. Each element is made when it is written: there may be many thousand.
///
/// # Errors
/// That of the first element that is one, or the output fails.
pub(super) fn array<T: Serialize, E: From<io::Error>>(
    out: &mut impl Write,
    lines: Lines,
    elements: impl IntoIterator<Item = Result<T, E>>,
) -> Result<(), E> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Form::new(lines));
    let mut array = serializer.serialize_seq(None).map_err(io::Error::from)?;
    for element in elements {
        array.serialize_element(&element?).map_err(io::Error::from)?;
    }
    array.end().map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Serializes pairs as an object whose members have their order.
pub(super) fn object<K: Serialize, V: Serialize, S: Serializer>(
    members: &[(K, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
}

/// The form of what is written.
struct Form {
    lines: Lines,
    /// Arrays that are open.
    depth: usize,
}

impl Form {
    fn new(lines: Lines) -> Self {
        Self { lines, depth: 0 }
    }

    /// Whether the innermost array has lines of this kind.
    fn is_in(&self, lines: Lines) -> bool {
        self.depth == 1 && self.lines == lines
    }
}

impl Formatter for Form {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"[")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        let breaks = self.is_in(Lines::Rows) || self.is_in(Lines::Elements) && !first;
        out.write_all(match (first, breaks) {
            (true, true) => b"\n",
            (true, false) => b"",
            (false, true) => b",\n",
            (false, false) => b",",
        })
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        let end: &[u8] = if self.is_in(Lines::Rows) { b"\n]" } else { b"]" };
        self.depth -= 1;
        out.write_all(end)
    }

    /// Rates are the only numbers with a fraction.
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write!(out, "{value:.3}")
    }

    /// Writes what needs no escape by RFC 8259. Of that, DEL and the control characters of C1 would disturb a
    /// terminal.
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for piece in fragment.split_inclusive(char::is_control) {
            let control = piece.chars().next_back().filter(|last| last.is_control());
            let plain = control.map_or(piece, |control| piece.trim_end_matches(control));
            out.write_all(plain.as_bytes())?;
            if let Some(control) = control {
                write!(out, "\\u{:04x}", u32::from(control))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let told = "a\"b\\c\n\t\r\u{1}\u{7f}\u{7f}\u{85}é\u{9f}\u{a0}";
        let written = "\"a\\\"b\\\\c\\n\\t\\r\\u0001\\u007f\\u007f\\u0085é\\u009f\u{a0}\"";
        assert_eq!(text(&told, Lines::One).unwrap(), format!("{written}\n"));
        // Keys are strings, too.
        let members = std::collections::BTreeMap::from([(told, 1.0 / 3.0)]);
        assert_eq!(text(&members, Lines::One).unwrap(), format!("{{{written}:0.333}}\n"));
        assert_eq!(serde_json::from_str::<String>(written).unwrap(), told);
    }

    #[test]
    fn only_the_outermost_array_has_lines() {
        let value = [vec![1, 2], vec![], vec![3]];
        for (lines, expected) in [
            (Lines::One, "[[1,2],[],[3]]\n"),
            (Lines::Elements, "[[1,2],\n[],\n[3]]\n"),
            (Lines::Rows, "[\n[1,2],\n[],\n[3]\n]\n"),
        ] {
            assert_eq!(text(&value, lines).unwrap(), expected);
            let mut out = Vec::new();
            array(&mut out, lines, value.iter().map(Ok::<_, io::Error>)).unwrap();
            assert_eq!(out, expected.as_bytes());
        }
    }

    #[test]
    fn elements_are_written_before_the_next_one_is_made() {
        struct Shared<'a>(&'a std::cell::RefCell<Vec<u8>>);
        impl Write for Shared<'_> {
            fn write(&mut self, text: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().write(text)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let out = std::cell::RefCell::new(Vec::new());
        let elements = ["a", "b"].into_iter().map(|name| {
            let before = String::from_utf8(out.borrow().clone()).unwrap();
            Ok(format!("{before}{name}"))
        });
        let failure = std::iter::once(Err(io::Error::from_raw_os_error(5)));
        let error = array(&mut Shared(&out), Lines::One, elements.chain(failure)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
        assert_eq!(String::from_utf8(out.take()).unwrap(), r#"["[a","[\"[a\"b""#);
    }

    #[test]
    fn what_the_output_says_reaches_the_caller() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = array(&mut Closed, Lines::Rows, [Ok::<_, io::Error>(1)]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
