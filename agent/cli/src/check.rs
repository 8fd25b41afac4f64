//! `tracer-agent check`: whether files are what they should be.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::exit::ExitCode;
use super::json_writer::{self, Lines};
use super::units::{bytes, count};
use stdx::terminal;
use tracedat::check::{Checked, Fault, Report, Rule, Severity, check};

/// Check trace.dat files for damage
///
/// Verifies every structure, size, checksum, page and record of files of version 6 or 7, whichever recorder
/// wrote them, and compares the recorder's counts with the contents. For each fault it prints the exact
/// position, the meaning, and what stock readers make of it. Exits with 1 if there are errors or warnings in
/// any file. A position `123+45` is byte 45 of the decompressed data of the chunk at byte 123.
#[derive(Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// The files
    #[arg(value_name = "FILE", default_value = "trace.dat")]
    pub files: Vec<PathBuf>,

    /// Print JSON: one object per file
    #[arg(long)]
    pub json: bool,

    /// Print nothing; only the exit code tells the result
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,

    /// Print notes, too: what is worth knowing but no fault
    #[arg(short, long)]
    pub verbose: bool,

    /// Exit with 1 only for errors, not for warnings
    #[arg(long)]
    pub allow_warnings: bool,

    /// Number of threads, each of which checks the data of one CPU at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

/// Checks the files. What cannot be opened is reported on stderr.
///
/// # Errors
/// The report cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> io::Result<ExitCode> {
    let mut code = ExitCode::Ok;
    for path in &args.files {
        let report = match super::input::open(path) {
            Ok(file) => check(&file, args.threads),
            Err(error) => {
                super::tell(&format!("tracer-agent: cannot open {}: {error}", path.display()));
                code = ExitCode::of_opening(&error);
                continue;
            }
        };
        let limit = if args.allow_warnings { Severity::Error } else { Severity::Warning };
        if report.worst() >= Some(limit) {
            code = ExitCode::Failure;
        }
        if args.quiet {
            continue;
        }
        let text = if args.json {
            json_writer::text(&FileReport::of(path, &report), Lines::One)?
        } else {
            text(path, &report, args.verbose)
        };
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // A reader that has seen enough is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(code),
            result => result?,
        }
    }
    Ok(code)
}

fn text(path: &Path, report: &Report, notes: bool) -> String {
    let mut text = String::new();
    let name = path.display();
    let least = if notes { Severity::Note } else { Severity::Warning };
    for Fault { rule, at, location, detail } in report.faults.iter().filter(|f| f.rule.severity() >= least) {
        let severity = rule.severity().name();
        // A file may bring control characters along.
        let line = format!("{name}: byte {at}: {severity} [{}] {location}: {detail}", rule.name());
        text += &terminal::name(&line);
        let _ = write!(text, "\n    {}", rule.meaning());
        if rule.severity() > Severity::Note {
            let _ = write!(text, " Stock readers: {}.", rule.consequence());
        }
        text.push('\n');
    }
    for (rule, total) in report.totals.iter().filter(|(rule, _)| rule.severity() >= least) {
        let told = report.faults.iter().filter(|fault| fault.rule == *rule).count() as u64;
        if *total > told {
            let _ = writeln!(text, "{name}: {} more of [{}]", count(total - told), rule.name());
        }
    }
    let verdict = match (report.count(Severity::Error), report.count(Severity::Warning)) {
        (0, 0) => "no faults".to_owned(),
        (errors, warnings) => format!("{} errors, {} warnings", count(errors), count(warnings)),
    };
    // No fault of the file, and more than a note for who wants to know what happened.
    let cut_short = report.totals.iter().any(|(rule, _)| *rule == Rule::CutShort);
    let end = match (cut_short, notes) {
        (false, _) => "",
        (true, true) => "; the recording was cut short",
        (true, false) => "; the recording was cut short (-v tells what is known of its end)",
    };
    let checked = &report.checked;
    let _ = writeln!(
        text,
        "{name}: {verdict} in {}: {} sections, {} options, {} CPUs, {} pages, {} events{end}",
        bytes(checked.bytes),
        count(checked.sections),
        count(checked.options),
        count(checked.cpus),
        count(checked.pages),
        count(checked.events),
    );
    text
}

/// A file's report as JSON.
#[derive(Serialize)]
struct FileReport<'a> {
    file: String,
    clean: bool,
    errors: u64,
    warnings: u64,
    notes: u64,
    #[serde(flatten)]
    checked: &'a Checked,
    #[serde(serialize_with = "json_writer::object")]
    totals: Vec<(&'static str, u64)>,
    faults: Vec<FoundFault<'a>>,
}

/// A fault as JSON.
#[derive(Serialize)]
struct FoundFault<'a> {
    rule: &'static str,
    severity: &'static str,
    offset: u64,
    inside: Option<u64>,
    #[serde(rename = "place")]
    location: &'a str,
    detail: &'a str,
    meaning: &'static str,
    stock_readers: &'static str,
}

impl<'a> FileReport<'a> {
    fn of(path: &Path, report: &'a Report) -> Self {
        Self {
            file: path.display().to_string(),
            clean: report.is_clean(),
            errors: report.count(Severity::Error),
            warnings: report.count(Severity::Warning),
            notes: report.count(Severity::Note),
            checked: &report.checked,
            totals: report.totals.iter().map(|(rule, total)| (rule.name(), *total)).collect(),
            faults: report.faults.iter().map(FoundFault::of).collect(),
        }
    }
}

impl<'a> FoundFault<'a> {
    fn of(Fault { rule, at, location, detail }: &'a Fault) -> Self {
        Self {
            rule: rule.name(),
            severity: rule.severity().name(),
            offset: at.offset,
            inside: at.inside,
            location,
            detail,
            meaning: rule.meaning(),
            stock_readers: rule.consequence(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(content: &[u8], args: &Args) -> (String, ExitCode) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let mut out = Vec::new();
        let code = run(
            &Args {
                files: vec![file.path().to_owned()],
                json: args.json,
                quiet: args.quiet,
                ..Args::default()
            },
            &mut out,
        )
        .unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn a_fault_has_location_meaning_consequence_and_exit_code() {
        let (text, code) = checked(b"no trace", &Args::default());
        assert_eq!(code, ExitCode::Failure);
        for part in [
            ": byte 0: error [header] the file header: ",
            "Stock readers: they refuse the file.",
            ": 1 errors, ",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let (json, _) = checked(b"no\ttrace", &Args { json: true, ..Args::default() });
        for part in [
            "\"clean\":false,\"errors\":1,",
            "{\"rule\":\"header\",\"severity\":\"error\",\"offset\":0,\"inside\":null,",
        ] {
            assert!(json.contains(part), "no {part} in {json}");
        }
        assert!(json.ends_with("]}\n"));
        let quiet = checked(b"no trace", &Args { quiet: true, ..Args::default() });
        assert_eq!(quiet, (String::new(), ExitCode::Failure));
    }

    #[test]
    fn files_that_cannot_be_opened_do_not_end_it() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, "").unwrap();
        let files = vec![dir.path().join("not there"), there];
        let mut out = Vec::new();
        assert_eq!(run(&Args { files, ..Args::default() }, &mut out).unwrap(), ExitCode::Failure);
        assert!(String::from_utf8(out).unwrap().contains("/there: 1 errors"));
    }
}
