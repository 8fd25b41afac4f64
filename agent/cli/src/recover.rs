//! `tracer-agent recover`: a trace.dat, or the rest of a trace, from what a killed recording left behind.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use clap::Args;

use super::{CliError, ending::wait_for_end, exit::ExitCode, new_files::NewFileArgs, rewriting, summary};
use capture::{FinishError, LostManifest, Spool, recover};
use stdx::output::Output;

/// Recover the trace.dat of a recording that was killed
///
/// While it runs, a recording keeps its data in a directory next to the output, FILE.spool, which remains
/// when the recorder is killed. What had been stored there by then becomes the file; what was still in the
/// kernel's ring buffers is lost. The directory is removed when the file is complete, unless it is damaged.
///
/// Of a recording of several files, the directory of the files can be given: each spool in it becomes a file.
/// A spool beside the CTF trace that was written of it (record --format lttng, --format ctf) becomes a part
/// of that trace, in which each event is once; with --output it becomes a file, and the trace stays as it is.
///
/// A recorder that is still ending, as after a second Ctrl-C, is waited for, up to a minute.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The spool directory, or the trace file that was to be written, or a directory of spools
    #[arg(value_name = "DIR|FILE")]
    pub path: PathBuf,

    /// File to write [default: NAME for NAME.spool, NAME.1 for NAME.spool.1]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

pub(super) fn run(args: &RecoverArgs) -> Result<u8, CliError> {
    let of_spool = |error| CliError::Recover(FinishError::Spool(error));
    let several = Spool::all_in(&args.path).map_err(of_spool)?;
    let output = args.output.as_deref().map(Output::at).transpose();
    let output = output.map_err(|error| CliError::Recover(FinishError::Output(error)))?;
    if output.is_some() && several.as_ref().is_some_and(|spools| spools.len() > 1) {
        return Err(CliError::Usage(format!(
            "{} has more than one recording, and -o names one file; name one of the spools in it",
            args.path.display()
        )));
    }
    let Some(several) = several else {
        wait_for_end(&args.path).map_err(of_spool)?;
        recover_one(&args.path, output, args.quiet)?;
        return Ok(ExitCode::Ok.code());
    };
    let mut failed = None;
    for path in several {
        // The last one may have been killed before it was complete.
        let recovered = match wait_for_end(&path).and_then(|()| Spool::remove_started(&path)) {
            Ok(true) => Ok(()),
            Ok(false) => recover_one(&path, output.clone(), args.quiet),
            Err(error) => Err(of_spool(error)),
        };
        match recovered {
            Ok(()) => {}
            Err(error @ CliError::Recover(FinishError::Stopped)) => return Err(error),
            // The others are not worse for it. The last error ends the program, and is told then.
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    super::tell(&format!("tracer-agent: {earlier}"));
                }
            }
        }
    }
    failed.map_or(Ok(ExitCode::Ok.code()), Err)
}

fn recover_one(path: &Path, output: Option<Output>, quiet: bool) -> Result<(), CliError> {
    let spool = Spool::open(path).map_err(|error| CliError::Recover(FinishError::Spool(error)))?;
    let finished = rewriting::stoppable(|stopped| {
        recover(spool, output, LostManifest::Assume, &|| stopped.load(Ordering::Relaxed))
            .map_err(CliError::Recover)
    })?;
    if !quiet {
        super::tell(summary::text(&finished, true).trim_end());
    }
    Ok(())
}
