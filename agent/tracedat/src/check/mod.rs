//! Checking a file: every structure, size, checksum, page and record, against the format and against each
//! other.
//!
//! A reader uses what it can read. A check finds out whether that is everything, and reports every fault with
//! its location, its meaning, and what stock readers do with it ([`Rule`]). After a fault it continues
//! wherever the rest can be found.
//!
//! | module | what |
//! |---|---|
//! | `rule`, `report` | the rules; the faults |
//! | `v7` | header, options and sections of version 7 |
//! | `options`, `metadata` | what options and metadata sections say, in both versions |
//! | `checksums` | whether bytes are those that were written |
//! | `buffers` | where the data of the CPUs are |
//! | `data` | chunks, pages and records, a thread per CPU |
//! | `counts` | what the recorder counted against what is there |
//!
//! Memory is bounded as for reading: no size is trusted, and at most [`KEPT_PER_RULE`] faults of a rule are
//! kept as text.
//!
//! What cannot be found out: bytes that no structure and no checksum covers may be changed into others that
//! are equally valid. `docs/file-format.md` says which these are.

mod buffers;
mod checksums;
mod counts;
mod data;
mod metadata;
mod options;
mod report;
mod rule;
mod v7;

use std::num::NonZeroUsize;

pub use report::{At, Checked, Fault, KEPT_PER_RULE, Report};
pub use rule::{Rule, Severity};

use super::compress::Codec;
use super::layout::SectionId;
use super::reader::cursor::Cursor;
use super::reader::file::FileHeader;
use super::reader::{ReadError, Reader, Source};
use ftrace_event::endian::Endian;
use metadata::Events;
use report::Faults;

/// A check in progress.
struct Check<'a> {
    source: &'a dyn Source,
    len: u64,
    faults: Faults,
    checked: Checked,
    /// What records are checked with.
    events: Events,
}

/// Checks a file of version 6 or 7.
///
/// The data of different CPUs are looked at on `threads` threads; `None` is one for each processor.
///
/// ```no_run
/// use std::fs::File;
/// use tracedat::check::check;
///
/// let report = check(&File::open("trace.dat")?, None);
/// for fault in &report.faults {
///     println!("{} at byte {}: {}", fault.rule.name(), fault.at, fault.detail);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check<S: Source>(source: &S, threads: Option<NonZeroUsize>) -> Report {
    let mut check = Check {
        source,
        len: 0,
        faults: Faults::default(),
        checked: Checked::default(),
        events: Events::default(),
    };
    match source.size() {
        Ok(len) => check.len = len,
        Err(error) => {
            let detail = || format!("its size cannot be told: {error}");
            check.faults.add(Rule::Source, At::default(), || "the file".to_owned(), detail);
        }
    }
    check.checked.bytes = check.len;
    let mut cursor = Cursor::new(source, Endian::Little, 0, check.len);
    match FileHeader::read(&mut cursor) {
        Ok(header) => check.file(source, &header, cursor, threads),
        Err(error) => check.header_fault(&error),
    }
    check.faults.finish(check.checked)
}

impl Check<'_> {
    fn header_fault(&mut self, error: &ReadError) {
        let rule = if matches!(error, ReadError::Io { .. }) { Rule::Source } else { Rule::Header };
        let at = At::plain(error.offset().unwrap_or(0));
        self.faults.add(rule, at, || "the file header".to_owned(), || error.to_string());
    }

    /// Everything after the header, at whose end `cursor` is.
    fn file<S: Source>(
        &mut self,
        source: &S,
        header: &FileHeader,
        cursor: Cursor<'_>,
        threads: Option<NonZeroUsize>,
    ) {
        self.checked.version = header.version;
        if header.codec == Codec::Zlib {
            let detail = || "common builds of trace-cmd have zstd only".to_owned();
            self.faults.add(Rule::Zlib, At::plain(0), || "the file header".to_owned(), detail);
        }
        let mut options = Vec::new();
        let mut bodies = None;
        if header.version >= 7 {
            let structure = v7::structure(self, header, cursor);
            options = structure.options;
            bodies = Some(structure.bodies);
        }
        let reader = match Reader::open(source) {
            Ok(reader) => reader,
            Err(error) => {
                // Of version 7 what is wrong was reported in more detail, most likely.
                if header.version < 7 || !self.faults.has_errors() {
                    let at = At::plain(error.offset().unwrap_or(0));
                    self.faults.add(Rule::Unreadable, at, || "the file".to_owned(), || error.to_string());
                }
                return;
            }
        };
        if header.version < 7 {
            self.parts_of_version_6(&reader);
            options = options::of_version_6(self, &reader);
        }
        self.page_size(header, &reader);
        options::check(self, header, &options);
        checksums::check(self, header, &options);
        buffers::check(self, &reader, &options, bodies.as_ref());
        let found = data::check(self, &reader, threads);
        counts::check(self, &reader, &options, &found);
        // What the reader stumbled over is a fault, whatever was found here.
        if !self.faults.has_errors() {
            for error in reader.problems() {
                let at = At::plain(error.offset().unwrap_or(0));
                self.faults.add(Rule::Unreadable, at, || "the file".to_owned(), || error.to_string());
            }
        }
    }

    fn page_size<S: Source>(&mut self, header: &FileHeader, reader: &Reader<S>) {
        let (told, real) = (header.page_size, reader.layout().page_size);
        // Kernels may have sub-buffers of several pages (6.8 and later); then the header has the machine's
        // page.
        let fits = told.is_power_of_two() && told >= 512 && real.is_multiple_of(told);
        if !fits {
            let detail = || format!("the header says {told} bytes, header_page describes pages of {real}");
            self.faults.add(Rule::PageSize, At::plain(14), || "the file header".to_owned(), detail);
        }
    }

    /// The parts of a file of version 6 that are sections in version 7.
    fn parts_of_version_6<S: Source>(&mut self, reader: &Reader<S>) {
        for section in reader.sections() {
            self.checked.sections += 1;
            if !SectionId::METADATA.contains(&section.id) {
                continue;
            }
            match reader.section_bytes(section) {
                Ok(bytes) => {
                    metadata::check(self, section.id, &bytes, At::plain(section.offset), reader.header());
                }
                Err(error) => {
                    let (at, location) = (At::plain(section.offset), || section.id.to_string());
                    self.faults.add(Rule::SectionContent, at, location, || error.to_string());
                }
            }
        }
    }

    /// Adds the error of an attempt to decompress or read something.
    fn unreadable(&mut self, rule: Rule, at: At, location: impl FnOnce() -> String, error: &ReadError) {
        let rule = match error {
            ReadError::Io { .. } => Rule::Source,
            ReadError::Decompress { .. } => Rule::Decompress,
            _ => rule,
        };
        self.faults.add(rule, at, location, || error.to_string());
    }
}

/// How a buffer is called in a message.
fn buffer_name(name: &str) -> String {
    if name.is_empty() { "the top buffer".to_owned() } else { format!("buffer {name:?}") }
}
