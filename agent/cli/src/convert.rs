//! `tracer-agent convert`: a file in another version or compression, or with less in it.

use std::ops::Range;
use std::path::PathBuf;

use clap::Args;

use super::CliError;
use super::choose::Choice;
use super::exit::ExitCode;
use super::new_files::NewFileArgs;
use super::rewriting::{self, Made, Telling};
use tracedat::Compression;
use tracedat::rewrite::{FileVersion, Target, convert, to_file};

/// Convert a trace.dat to another version or compression, or keep a part of it
///
/// Byte order, pages, formats, options and unknown parts are kept. Data that needs no change is copied in its
/// compressed form, but is checked for damage. The file appears under its name when it is complete.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// The file to read
    #[arg(value_name = "FILE", default_value = "trace.dat", conflicts_with = "input")]
    pub file: PathBuf,

    /// The file to read, as in trace-cmd
    #[arg(short = 'i', long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Replace the file to write if it exists
    #[arg(long)]
    pub force: bool,

    // What follows has headings of its own, which clap keeps for whatever comes after.
    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub telling: Telling,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub format: FormatArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub choice: Choice,

    /// Keep only these pages of each CPU, counted from 0: 10-19, or 10- for all from there, or -9 for the
    /// first ten
    #[arg(
        long,
        value_name = "RANGE",
        value_parser = parse_pages,
        allow_hyphen_values = true,
        help_heading = "Selection"
    )]
    pub pages: Option<Range<u64>>,
}

/// What kind of file is written.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Format of the new file")]
pub struct FormatArgs {
    /// File version: 7, or 6 for readers older than 2022
    #[arg(long, value_name = "VERSION", default_value = "7", value_parser = parse_version)]
    pub file_version: FileVersion,

    /// Compression: none, zstd, or zstd:LEVEL (1 to 19) [default: unchanged]
    #[arg(long, value_name = "HOW")]
    pub compression: Option<Compression>,
}

impl FormatArgs {
    /// What the library is to write.
    pub(super) fn target(self) -> Result<Target, CliError> {
        let Self { file_version: version, compression } = self;
        match (version, compression) {
            (FileVersion::V6, Some(Compression::Zstd { .. })) => Err(CliError::Usage(
                "version 6 does not support compression: omit --compression, or write version 7".to_owned(),
            )),
            _ => Ok(Target { version, compression }),
        }
    }
}

fn parse_version(text: &str) -> Result<FileVersion, String> {
    match text {
        "6" => Ok(FileVersion::V6),
        "7" => Ok(FileVersion::V7),
        _ => Err("versions are 6 and 7".to_owned()),
    }
}

fn parse_pages(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let (first, last) = match text.split_once('-') {
        None => (number(text)?, Some(number(text)?)),
        Some((first, last)) => (
            if first.is_empty() { 0 } else { number(first)? },
            if last.is_empty() { None } else { Some(number(last)?) },
        ),
    };
    let end = last.map_or(u64::MAX, |last| last.saturating_add(1));
    if first < end { Ok(first..end) } else { Err(format!("{text} is a reversed range")) }
}

pub(super) fn run(args: &ConvertArgs) -> Result<u8, CliError> {
    let input = args.input.as_ref().unwrap_or(&args.file);
    let target = args.format.target()?;
    let output = rewriting::output(&args.output, input)?;
    // An output that is the input is refused for that.
    if !args.force && !output.is_same_file(input) && output.is_taken() {
        return Err(CliError::Output(format!("{} exists; --force replaces it", args.output.display())));
    }
    let reader = rewriting::open(input)?;
    let mut selection = args.choice.selection(&reader)?;
    selection.pages.clone_from(&args.pages);
    let (written, bytes) = rewriting::run("converting", |watch| {
        to_file(&output, &[input], |out| convert(&reader, &target, &selection, out, watch))
            .map_err(rewriting::failed(input))
    })?;
    rewriting::tell(args.telling, &[Made { path: args.output.clone(), bytes, written }])?;
    Ok(ExitCode::Ok.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_pages() {
        for (text, range) in [("5", 5..6), ("2-4", 2..5), ("-9", 0..10), ("3-", 3..u64::MAX)] {
            assert_eq!(parse_pages(text), Ok(range));
        }
        for wrong in ["", "a", "4-2", "1-2-3"] {
            assert!(parse_pages(wrong).is_err(), "{wrong}");
        }
    }
}
