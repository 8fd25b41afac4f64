//! `tracer-agent repair`: what is intact of a damaged file.

use std::path::PathBuf;

use clap::Args;

use super::CliError;
use super::exit::ExitCode;
use super::input;
use super::new_files::NewFileArgs;
use super::rewriting::{self, Made, Telling};
use tracedat::Compression;
use tracedat::reader::Reader;
use tracedat::rewrite::{repair, to_file};

/// Save what is intact of a damaged trace.dat, and report what is lost
///
/// It saves the metadata that can be read, intact chunks and pages, and the events of damaged pages up to the
/// damage. Every loss is marked in the new file and reported: buffer, CPU and pages, number of bytes, and
/// offset. If nothing can be saved, no file is written and the exit code is 1. For the spool of a recording
/// that was killed, use `recover`.
#[derive(Args, Debug)]
pub struct RepairArgs {
    /// The damaged file
    #[arg(value_name = "FILE", default_value = "trace.dat")]
    pub file: PathBuf,

    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Compression: none, zstd, or zstd:LEVEL (1 to 19) [default: unchanged]
    #[arg(long, value_name = "HOW")]
    pub compression: Option<Compression>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub telling: Telling,
}

pub(super) fn run(args: &RepairArgs) -> Result<u8, CliError> {
    let output = rewriting::output(&args.output, &args.file)?;
    let file = input::open_itself(&args.file).map_err(input::not_opened(&args.file))?;
    let (reader, notes) = Reader::open_damaged(file).map_err(|error| {
        CliError::Nothing(format!("{}: nothing can be saved: {error}", args.file.display()))
    })?;
    let (written, bytes) = rewriting::run("repairing", |watch| {
        to_file(&output, &[&args.file], |out| repair(&reader, notes, args.compression, out, watch))
            .map_err(rewriting::failed(&args.file))
    })?;
    let is_whole = written.notes.is_empty() && written.lost.is_empty();
    rewriting::tell(args.telling, &[Made { path: args.output.clone(), bytes, written }])?;
    if is_whole && !args.telling.quiet && !args.telling.json {
        super::tell("no damage was found; `tracer-agent check` is more thorough");
    }
    Ok(ExitCode::Ok.code())
}
