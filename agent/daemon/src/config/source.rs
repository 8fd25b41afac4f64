//! Texts that are read as one, and places in them.

use std::{fmt, ops::Range, path::PathBuf};

/// What is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, what } = self;
        write!(f, "{}:{line}:{column}: {what}", path.display())
    }
}

/// The same while only its place among all texts is known: offsets in bytes, as if they were one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Range<usize>,
    pub(super) what: String,
}

impl Found {
    pub(super) fn at(self, sources: &Sources) -> Mistake {
        let (path, line, column) = sources.place(self.span.start);
        Mistake { path, line, column, what: self.what }
    }
}

/// A text.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Bytes of the texts before it.
    pub(super) base: usize,
}

/// Texts in the order in which they are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(Vec<Source>);

impl Sources {
    pub(super) fn add(&mut self, path: PathBuf, text: String) {
        // One more, for the end of the one before.
        let base = self.0.last().map_or(0, |last| last.base + last.text.len() + 1);
        self.0.push(Source { path, text, base });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    /// Bytes of all of them.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|source| source.text.len()).sum()
    }

    /// The file, line and character of an offset.
    fn place(&self, offset: usize) -> (PathBuf, usize, usize) {
        let Some(source) = self.0.iter().rev().find(|source| source.base <= offset) else {
            return (PathBuf::new(), 1, 1);
        };
        let end = source.text.floor_char_boundary((offset - source.base).min(source.text.len()));
        let before = &source.text[..end];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (source.path.clone(), line, column)
    }
}
