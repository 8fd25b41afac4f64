//! `tracer-agent merge`: several files in one.

use std::path::{Path, PathBuf};

use clap::Args;

use super::CliError;
use super::convert::FormatArgs;
use super::exit::ExitCode;
use super::new_files::NewFileArgs;
use super::rewriting::{self, Made, Telling};
use tracedat::rewrite::{Join, MergeInput, MergeOptions, merge, to_file};

/// Merge several trace.dat files into one, on a common timeline
///
/// Files with the same TRACEID, such as parts made by `split`, become one recording again. Otherwise each
/// file becomes a named buffer, with the name of the file, or NAME in NAME=FILE. Offsets to wall-clock time,
/// guests' time shifts and TSC factors are applied.
///
/// Files of different byte orders cannot be merged; `report -i A -i B` shows them together.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The files to read
    #[arg(value_name = "[NAME=]FILE", required = true)]
    pub files: Vec<String>,

    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Treat all files as parts of one recording, even without a TRACEID
    #[arg(long, conflicts_with = "apart")]
    pub join: bool,

    /// Treat each file as a separate recording, even with the same TRACEID
    #[arg(long)]
    pub apart: bool,

    /// Merge files with different clocks, although their times cannot be compared
    #[arg(long)]
    pub mixed_clocks: bool,

    // What follows has headings of its own, which clap keeps for whatever comes after.
    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub telling: Telling,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub format: FormatArgs,
}

/// The name and the file of an argument. A file that exists needs no name, whatever is in it.
fn name_and_file(text: &str) -> (String, PathBuf) {
    match text.split_once('=') {
        Some((name, file)) if !Path::new(text).exists() && !name.is_empty() => (name.to_owned(), file.into()),
        _ => {
            let path = PathBuf::from(text);
            let stem = path.file_name().unwrap_or_default().to_string_lossy();
            let stem = stem.strip_suffix(".dat").filter(|stem| !stem.is_empty()).unwrap_or(&stem).to_owned();
            (stem, path)
        }
    }
}

pub(super) fn run(args: &MergeArgs) -> Result<u8, CliError> {
    let target = args.format.target()?;
    let output = rewriting::output(&args.output, &args.output)?;
    let named: Vec<_> = args.files.iter().map(|text| name_and_file(text)).collect();
    let readers: Result<Vec<_>, _> = named.iter().map(|(_, path)| rewriting::open(path)).collect();
    let readers = readers?;
    let inputs: Vec<_> = named
        .iter()
        .zip(&readers)
        .map(|((name, _), reader)| MergeInput { name: name.clone(), reader })
        .collect();
    let join = match (args.join, args.apart) {
        (true, _) => Join::All,
        (_, true) => Join::None,
        _ => Join::SameTrace,
    };
    let options = MergeOptions { join, mixed_clocks: args.mixed_clocks };
    let paths: Vec<_> = named.iter().map(|(_, path)| path.as_path()).collect();
    let (written, bytes) = rewriting::run("merging", |watch| {
        to_file(&output, &paths, |out| merge(&inputs, &target, options, out, watch))
            .map_err(rewriting::failed(&args.output))
    })?;
    rewriting::tell(args.telling, &[Made { path: args.output.clone(), bytes, written }])?;
    Ok(ExitCode::Ok.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_inputs() {
        for (text, name, file) in [
            ("a/host.dat", "host", "a/host.dat"),
            ("web=a/host.dat", "web", "a/host.dat"),
            ("noend", "noend", "noend"),
            ("=x", "=x", "=x"),
            (".dat", ".dat", ".dat"),
        ] {
            assert_eq!(name_and_file(text), (name.to_owned(), PathBuf::from(file)), "{text}");
        }
    }
}
