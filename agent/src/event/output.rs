//! Where text is written, and how much of it.
//!
//! Strings in records are bytes of any kind (a thread may give itself any name), so that an output takes
//! bytes. A `Vec<u8>` keeps them as they are, a `String` and a [`fmt::Write`] get U+FFFD for what is not
//! UTF-8.

use std::fmt;

/// Takes text.
pub trait Output {
    /// Appends bytes, which are UTF-8 apart from those that a record holds.
    fn push(&mut self, bytes: &[u8]);
}

impl Output for Vec<u8> {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Output for String {
    fn push(&mut self, bytes: &[u8]) {
        lossy(bytes, |text| self.push_str(text));
    }
}

/// An output that hands everything to a [`fmt::Write`] and keeps its first error.
#[derive(Debug)]
pub struct FmtOutput<W> {
    writer: W,
    result: fmt::Result,
}

impl<W: fmt::Write> FmtOutput<W> {
    /// An output to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer, result: Ok(()) }
    }

    /// Whether all was written.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(self) -> fmt::Result {
        self.result
    }
}

impl<W: fmt::Write> Output for FmtOutput<W> {
    fn push(&mut self, bytes: &[u8]) {
        let Self { writer, result } = self;
        lossy(bytes, |text| {
            if result.is_ok() {
                *result = writer.write_str(text);
            }
        });
    }
}

fn lossy(bytes: &[u8], mut write: impl FnMut(&str)) {
    for chunk in bytes.utf8_chunks() {
        write(chunk.valid());
        if !chunk.invalid().is_empty() {
            write("\u{fffd}");
        }
    }
}

/// Counts what is printed.
#[derive(Debug, Default)]
pub(super) struct Count(pub(super) usize);

impl Output for Count {
    fn push(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// An output that takes no more than a number of bytes: a format of anyone's can ask for texts of any width,
/// any number of times.
#[derive(Debug)]
pub(super) struct Limited<'o, O: ?Sized> {
    out: &'o mut O,
    left: usize,
}

impl<'o, O: Output + ?Sized> Limited<'o, O> {
    pub(super) fn new(out: &'o mut O, left: usize) -> Self {
        Self { out, left }
    }

    /// How much more it takes.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = if bytes.len() <= self.left { bytes } else { &bytes[..self.left] };
        self.left -= bytes.len();
        self.out.push(bytes);
    }

    pub(super) fn fill(&mut self, byte: u8, count: usize) {
        let block = [byte; 32];
        let mut count = count.min(self.left);
        while count > 0 {
            let part = count.min(block.len());
            self.push(&block[..part]);
            count -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept() {
        let mut text = String::new();
        let mut out = Limited::new(&mut text, 40);
        out.push(b"ab");
        out.fill(b'-', 1 << 40);
        out.push(b"cd");
        assert_eq!((out.left(), text.len()), (0, 40));
    }

    #[test]
    fn bytes_stay_bytes_and_strings_stay_strings() {
        let (mut bytes, mut text, mut written) = (Vec::new(), String::new(), String::new());
        let mut fmt = FmtOutput::new(&mut written);
        for part in [&b"a\xffb"[..], b"\xc3\xa4"] {
            bytes.push(0);
            Output::push(&mut bytes, part);
            Output::push(&mut text, part);
            fmt.push(part);
        }
        fmt.finish().unwrap();
        assert_eq!(bytes, b"\0a\xffb\0\xc3\xa4");
        assert_eq!((text.as_str(), written.as_str()), ("a\u{fffd}bä", "a\u{fffd}bä"));
    }
}
