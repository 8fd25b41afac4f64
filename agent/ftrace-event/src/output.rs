//! Where text is written, and how much of it.
//!
//! Strings in records are bytes of any kind (a thread may give itself any name), so that an output takes
//! bytes. A `Vec<u8>` keeps them as they are, a `String` and a [`fmt::Write`] get U+FFFD for what is not
//! UTF-8.

use std::fmt;

/// Bytes of a block.
pub const BLOCK: usize = 32;

/// Takes text.
pub trait Output {
    /// Appends bytes, which are UTF-8 apart from those that a record holds.
    fn push(&mut self, bytes: &[u8]);

    /// Appends the first bytes of a block. An output that has room for the whole block may copy all of it.
    #[inline]
    fn push_block(&mut self, block: &[u8; BLOCK], len: usize) {
        self.push(&block[..len.min(BLOCK)]);
    }

    /// Appends the first `len` bytes of a block that is full of `fill` before `compose` writes to it.
    #[inline]
    fn push_composed(&mut self, len: usize, fill: u8, compose: impl FnOnce(&mut [u8; BLOCK])) {
        let mut block = [fill; BLOCK];
        compose(&mut block);
        self.push_block(&block, len);
    }
}

impl Output for Vec<u8> {
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn push_block(&mut self, block: &[u8; BLOCK], len: usize) {
        append_block(self, block, len);
    }

    #[inline]
    fn push_composed(&mut self, len: usize, fill: u8, compose: impl FnOnce(&mut [u8; BLOCK])) {
        append_composed(self, len, fill, compose);
    }
}

/// Appends the first `len` bytes of a block: a copy of a fixed size, of which the rest is cut off, takes two
/// instructions, and one of any size is a call.
#[inline]
pub fn append_block<const N: usize>(out: &mut Vec<u8>, block: &[u8; N], len: usize) {
    let start = out.len();
    out.extend_from_slice(block);
    out.truncate(start + len);
}

/// Appends the first `len` bytes of a block that is composed in its place.
#[inline]
pub fn append_composed<const N: usize>(
    out: &mut Vec<u8>,
    len: usize,
    fill: u8,
    compose: impl FnOnce(&mut [u8; N]),
) {
    let start = out.len();
    out.extend_from_slice(&[fill; N]);
    if let Some(block) = out.last_chunk_mut() {
        compose(block);
    }
    out.truncate(start + len);
}

/// A text that is written often. A short one is copied as a block.
#[derive(Clone, Debug)]
pub struct Snippet {
    /// The text, and zeros up to the end of a block.
    padded: Box<[u8]>,
    len: usize,
}

impl Snippet {
    /// A snippet of this text.
    pub fn new(text: &[u8]) -> Self {
        let mut padded = text.to_vec();
        padded.resize(text.len().max(BLOCK), 0);
        Self { padded: padded.into(), len: text.len() }
    }

    /// The text.
    #[inline]
    pub(crate) fn text(&self) -> &[u8] {
        &self.padded[..self.len]
    }

    /// The block that has the text, if one does.
    #[inline]
    fn block(&self) -> Option<&[u8; BLOCK]> {
        if self.len <= BLOCK { self.padded.first_chunk() } else { None }
    }

    /// Appends the text.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self.block() {
            Some(block) => append_block(out, block, self.len),
            None => out.extend_from_slice(self.text()),
        }
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

    /// Appends the first bytes of a block.
    #[inline]
    pub(super) fn push_block(&mut self, block: &[u8; BLOCK], len: usize) {
        let len = len.min(self.left);
        self.left -= len;
        self.out.push_block(block, len);
    }

    /// As [`Output::push_composed`].
    #[inline]
    pub(super) fn push_composed(&mut self, len: usize, fill: u8, compose: impl FnOnce(&mut [u8; BLOCK])) {
        let len = len.min(self.left);
        self.left -= len;
        self.out.push_composed(len, fill, compose);
    }

    #[inline]
    pub(super) fn push_snippet(&mut self, snippet: &Snippet) {
        match snippet.block() {
            Some(block) => self.push_block(block, snippet.len),
            None => self.push(snippet.text()),
        }
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
        let snippet = Snippet::new(b"0123456789");
        for (limit, expected) in [(64, "0123456789"), (4, "0123"), (0, "")] {
            let (mut bytes, mut text) = (Vec::new(), String::new());
            Limited::new(&mut bytes, limit).push_snippet(&snippet);
            Limited::new(&mut text, limit).push_snippet(&snippet);
            assert_eq!((bytes.as_slice(), text.as_str()), (expected.as_bytes(), expected));
        }
    }

    #[test]
    fn snippets_of_any_length_are_whole() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 100] {
            let text: Vec<u8> = (0..len as u8).collect();
            let snippet = Snippet::new(&text);
            let (mut appended, mut pushed) = (Vec::new(), Vec::new());
            snippet.append_to(&mut appended);
            Limited::new(&mut pushed, 1000).push_snippet(&snippet);
            assert_eq!((&appended, &pushed, snippet.text()), (&text, &text, text.as_slice()));
        }
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
