//! `tracer-agent split`: parts of a file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::CliError;
use super::choose::Choice;
use super::convert::FormatArgs;
use super::exit::ExitCode;
use super::new_files::NewFileArgs;
use super::rewriting::{self, Made, Telling};
use super::units;
use tracedat::rewrite::{Every, Split, Splitter, TimeRange, to_file};

/// Heading of the options in the help text.
const PARTS: &str = "Length of the parts";

/// Split a trace.dat into parts, each a complete file
///
/// The parts are FILE.1, FILE.2 and so on. Without -r only the first one is written. START and END are times
/// as `report` prints them, in seconds, and both are inclusive.
///
/// Every part has the formats, names, symbols and options of the whole; `tracer-agent merge` puts parts
/// together again.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("every"))]
pub struct SplitArgs {
    /// The file to read (trace.dat if none is given), then the times of the first and the last event
    #[arg(value_name = "[FILE] [START [END]]", num_args = 0..=3)]
    pub words: Vec<String>,

    /// The file to read, as in trace-cmd; then only START and END may follow
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Prefix of the parts' names [default: the name of the file]
    #[arg(short = 'o', long = "output", value_name = "NAME")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// A part ends after this many seconds (decimals allowed)
    #[arg(
        short = 's',
        long = "seconds",
        value_name = "SECONDS",
        group = "every",
        value_parser = |text: &str| parse_time(text, 9),
        help_heading = PARTS
    )]
    pub seconds: Option<u64>,

    /// A part ends after this many milliseconds
    #[arg(
        short = 'm',
        long = "milliseconds",
        value_name = "MILLISECONDS",
        group = "every",
        value_parser = |text: &str| parse_time(text, 6),
        help_heading = PARTS
    )]
    pub milliseconds: Option<u64>,

    /// A part ends after this many microseconds
    #[arg(
        short = 'u',
        long = "microseconds",
        value_name = "MICROSECONDS",
        group = "every",
        value_parser = |text: &str| parse_time(text, 3),
        help_heading = PARTS
    )]
    pub microseconds: Option<u64>,

    /// A part ends after this many events
    #[arg(short = 'e', long = "events", value_name = "EVENTS", group = "every", help_heading = PARTS)]
    pub events: Option<u64>,

    /// A part ends after this many pages of each CPU
    #[arg(short = 'p', long = "pages", value_name = "PAGES", group = "every", help_heading = PARTS)]
    pub pages: Option<u64>,

    /// A part ends before its file exceeds about this size: 10M, 500K, 2G
    #[arg(
        long,
        value_name = "SIZE",
        group = "every",
        value_parser = |text: &str| units::size(text, 1),
        help_heading = PARTS
    )]
    pub size: Option<u64>,

    /// Write all parts, not only the first
    #[arg(short = 'r', long, help_heading = PARTS)]
    pub repeat: bool,

    /// Apply -s, -m, -u and -e to each CPU separately
    #[arg(short = 'c', long, help_heading = PARTS)]
    pub per_cpu: bool,

    // What follows has headings of its own, which clap keeps for whatever comes after.
    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub telling: Telling,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub choice: Choice,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub format: FormatArgs,
}

/// A decimal number in units of 10^`digits` nanoseconds.
fn parse_time(text: &str, digits: u32) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time: write it like 12.345678");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !is_number(whole) || !is_number(fraction) {
        return Err(wrong());
    }
    let kept = &fraction[..fraction.len().min(digits as usize)];
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let scaled = |text: &str, by: u32| number(text)?.checked_mul(10_u64.pow(by));
    let fraction = scaled(kept, digits - kept.len() as u32);
    scaled(whole, digits).zip(fraction).and_then(|(whole, rest)| whole.checked_add(rest)).ok_or_else(wrong)
}

impl SplitArgs {
    /// The input, and the times of the first and the last event.
    fn input_and_range(&self) -> Result<(PathBuf, TimeRange), CliError> {
        let (input, times) = match (&self.input, self.words.split_first()) {
            (Some(input), _) => (input.clone(), &self.words[..]),
            (None, None) => (PathBuf::from("trace.dat"), &self.words[..]),
            (None, Some((first, times))) => {
                if !Path::new(first).exists() && parse_time(first, 9).is_ok() {
                    return Err(CliError::Usage(format!(
                        "there is no file {first}; for a time, name the file before it: split trace.dat {first}"
                    )));
                }
                (PathBuf::from(first), times)
            }
        };
        if times.len() > 2 {
            return Err(CliError::Usage(format!(
                "unexpected argument {:?}: only START and END follow the file",
                times[2]
            )));
        }
        let time =
            |text: Option<&String>| text.map(|text| parse_time(text, 9)).transpose().map_err(CliError::Usage);
        let (start, end) = (time(times.first())?, time(times.get(1))?);
        if start.zip(end).is_some_and(|(start, end)| end < start) {
            return Err(CliError::Usage(format!("END ({}) is before START ({})", times[1], times[0])));
        }
        Ok((input, TimeRange { start: start.filter(|start| *start > 0), end }))
    }

    fn split(&self, range: TimeRange) -> Split {
        let time = self.seconds.or(self.milliseconds).or(self.microseconds);
        let every = time.map(Every::Nanos);
        let every = every.or(self.events.map(Every::Events)).or(self.pages.map(Every::Pages));
        Split { range, every: every.or(self.size.map(Every::Bytes)), per_cpu: self.per_cpu }
    }
}

/// Where a part goes, counted from 1.
fn part_path(base: &Path, number: usize) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

pub(super) fn run(args: &SplitArgs) -> Result<u8, CliError> {
    let (input, range) = args.input_and_range()?;
    let target = args.format.target()?;
    let reader = rewriting::open(&input)?;
    let selection = args.choice.selection(&reader)?;
    let base = args.output.as_ref().unwrap_or(&input);
    let failed = || rewriting::failed(&input);
    let made = rewriting::run("splitting", |watch| {
        let mut next = Some(rewriting::output(&part_path(base, 1), &input)?);
        let mut splitter = Splitter::new(&reader, target, &selection, args.split(range)).map_err(failed())?;
        let mut made = Vec::new();
        while let Some(part) = splitter.next_part().map_err(failed())? {
            let path = part_path(base, made.len() + 1);
            let output = next.take().map_or_else(|| rewriting::output(&path, &input), Ok)?;
            let (written, bytes) =
                to_file(&output, &[&input], |out| splitter.write(&part, out, watch)).map_err(failed())?;
            made.push(Made { path, bytes, written });
            if !args.repeat {
                break;
            }
        }
        Ok(made)
    })?;
    if made.is_empty() {
        return Err(CliError::Nothing(format!(
            "{}: no event matches, so that no file was written; `tracer-agent info` shows its times, CPUs and buffers",
            input.display()
        )));
    }
    rewriting::tell(args.telling, &made)?;
    Ok(ExitCode::Ok.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_time("12.5", 9), Ok(12_500_000_000));
        assert_eq!(parse_time("0.0000000019", 9), Ok(1));
        assert_eq!(parse_time(".25", 6), Ok(250_000));
        assert_eq!(parse_time("7", 3), Ok(7000));
        for wrong in ["", ".", "-1", "1e3", "1.2.3", "99999999999999999999", "x"] {
            assert!(parse_time(wrong, 9).is_err(), "{wrong}");
        }
    }
}
