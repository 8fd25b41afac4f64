//! Weighted stacks, and the forms in which viewers of stacks read them.
//!
//! **Data flow:** stacks are [added](FlameStacks::add) to [`FlameStacks`], which a [`Format`] writes: a flame
//! graph (SVG), folded lines, a profile of pprof, a file of speedscope. [`Difference`] compares two sets.
//!
//! **Guarantees**
//!
//! - All forms have the same stacks with the same weights.
//! - Memory is bounded: stacks without room are added up as [`OTHERS`].
//! - Names may be hostile: none ends a frame or a line, or acts on the reader.
//!
//! **Must not know:** traces, events, files. It depends on no other crate of tracer-agent.
//!
//! # Example
//!
//! ```
//! use flame::{FlameStacks, Format, Frame, Kind, Unit};
//!
//! let mut stacks = FlameStacks::new("two stacks", Unit::Events);
//! let main = Frame { kind: Kind::User, name: "main" };
//! stacks.add([main, Frame { kind: Kind::Kernel, name: "schedule" }], 3);
//! stacks.add([main], 1);
//! let mut folded = Vec::new();
//! Format::Folded.write(&stacks, &mut folded)?;
//! assert_eq!(String::from_utf8(folded)?, "main 1\nmain;schedule 3\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `stacks` | stacks with their weights, each once |
//! | `name` | safe names of frames |
//! | `diff` | two sets of stacks |
//! | `folded` | a line for each stack |
//! | `svg` | a flame graph |
//! | `pprof` | a profile of pprof |
//! | `speedscope` | a file of speedscope |

#![forbid(unsafe_code)]

mod diff;
mod folded;
mod name;
mod pprof;
mod speedscope;
mod stacks;
mod svg;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub use diff::Difference;
pub use stacks::{FlameStacks, Frame, Kind, OTHERS, Unit};

/// A form in which stacks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A flame graph: a picture for browsers, in which frames can be zoomed and searched.
    Svg,
    /// Lines: the frames from the outermost to the innermost with `;` between them, a blank, and the weight.
    /// Of two sets of stacks, the weights before and now.
    Folded,
    /// A profile of pprof: `profile.proto` of github.com/google/pprof, compressed with gzip.
    Pprof,
    /// A file of speedscope, by its schema of version 0.0.1 (file-format-schema.json of the npm package
    /// `speedscope`).
    Speedscope,
}

impl Format {
    /// How the names of files end, and what is in them then.
    pub const ENDINGS: [(&'static str, Self); 7] = [
        (".svg", Self::Svg),
        (".folded", Self::Folded),
        (".txt", Self::Folded),
        (".pb.gz", Self::Pprof),
        (".pprof", Self::Pprof),
        (".speedscope.json", Self::Speedscope),
        (".json", Self::Speedscope),
    ];

    /// The form that the name of a file stands for. `None` if its end is none of [`ENDINGS`](Self::ENDINGS).
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name().map(OsStr::as_bytes)?;
        let is_it = |ending: &str| {
            let from = name.len().checked_sub(ending.len());
            from.is_some_and(|from| name[from..].eq_ignore_ascii_case(ending.as_bytes()))
        };
        Self::ENDINGS.iter().find(|(ending, _)| is_it(ending)).map(|(_, format)| *format)
    }

    /// Writes stacks.
    ///
    /// # Errors
    /// Of writing; [`io::ErrorKind::InvalidInput`] if there are no stacks.
    pub fn write(self, stacks: &FlameStacks, out: &mut dyn Write) -> io::Result<()> {
        if stacks.is_empty() {
            return Err(nothing());
        }
        match self {
            Self::Svg => svg::write(stacks, out),
            Self::Folded => folded::write(stacks, out),
            Self::Pprof => pprof::write(stacks, out),
            Self::Speedscope => speedscope::write(stacks, out),
        }
    }

    /// Writes how stacks differ from those of before. In a flame graph, the widths are those of now, and the
    /// colours tell what grew (red) and what shrank (blue); what is gone is not in it. In a profile of pprof,
    /// what was before is taken away, as by its option `-diff_base`. For speedscope there are two profiles.
    ///
    /// # Errors
    /// As [`write`](Self::write); for a flame graph also if there are no stacks now.
    pub fn write_difference(self, of: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
        if of.now.is_empty() && (of.before.is_empty() || self == Self::Svg) {
            return Err(nothing());
        }
        match self {
            Self::Svg => svg::write_difference(of, out),
            Self::Folded => folded::write_difference(of, out),
            Self::Pprof => pprof::write_difference(of, out),
            Self::Speedscope => speedscope::write_difference(of, out),
        }
    }
}

fn nothing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "there are no stacks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_name_formats() {
        for (name, format) in [
            ("a.svg", Some(Format::Svg)),
            ("/x/A.SVG", Some(Format::Svg)),
            ("a.folded", Some(Format::Folded)),
            ("a.b.txt", Some(Format::Folded)),
            ("cpu.pb.gz", Some(Format::Pprof)),
            ("cpu.pprof", Some(Format::Pprof)),
            ("cpu.speedscope.json", Some(Format::Speedscope)),
            ("cpu.json", Some(Format::Speedscope)),
            ("cpu.gz", None),
            ("svg", None),
            ("", None),
        ] {
            assert_eq!(Format::of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn nothing_is_not_written() {
        let nothing = FlameStacks::new("", Unit::Events);
        let mut some = nothing.clone();
        some.add([Frame { kind: Kind::User, name: "main" }], 1);
        for (_, format) in Format::ENDINGS {
            assert!(format.write(&nothing, &mut Vec::new()).is_err());
            let gone = Difference { before: &some, now: &nothing, is_normalized: false };
            assert_eq!(format.write_difference(&gone, &mut Vec::new()).is_err(), format == Format::Svg);
        }
    }

    /// 16 MB of names, each of another thread and function, and nothing that a name may do.
    #[test]
    fn many_hostile_names_do_no_harm() {
        let evil = "</title><script>alert(1)</script>;\"'&]]>\n\r\u{1b}[2J\u{202e}\u{fffe} 7";
        let mut stacks = FlameStacks::new(evil, Unit::Field(evil.to_owned()));
        let count = (16 << 20) / evil.len();
        for number in 0..count {
            let name = format!("{number}{evil}");
            stacks
                .add([Frame { kind: Kind::Thread, name: &name }, Frame { kind: Kind::User, name: &name }], 2);
        }
        assert_eq!((stacks.total(), stacks.others()), (2 * count as u128, 0));
        let written = |format: Format| {
            let mut out = Vec::new();
            format.write(&stacks, &mut out).unwrap();
            out
        };
        let lines = String::from_utf8(written(Format::Folded)).unwrap();
        assert_eq!(lines.lines().count(), count);
        assert!(lines.lines().all(|line| line.ends_with("_7 2") && line.matches(';').count() == 1));
        let picture = String::from_utf8(written(Format::Svg)).unwrap();
        assert_eq!(picture.matches("<script").count(), 1);
        assert!(picture.len() < 16 << 20, "what is too narrow to be seen is not in the picture");
        let file: serde_json::Value = serde_json::from_slice(&written(Format::Speedscope)).unwrap();
        assert_eq!(file["profiles"][0]["samples"].as_array().unwrap().len(), count);
        assert!(written(Format::Pprof).starts_with(&[0x1f, 0x8b]));
    }
}
