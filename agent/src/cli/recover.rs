//! `tracer-agent recover`: a trace.dat from what a killed recording left behind.

use std::{path::PathBuf, sync::atomic::Ordering};

use clap::Args;

use super::{CliError, exit::ExitCode, rewriting, summary};
use crate::{
    capture::{FinishError, Spool, recover},
    output::Output,
};

/// Recover the trace.dat of a recording that was killed
///
/// While it runs, a recording keeps its data in a directory next to the output, FILE.spool, which remains
/// when the recorder is killed. What had been stored there by then becomes the file; what was still in the
/// kernel's ring buffers is lost. The directory is removed when the file is complete, unless it is damaged.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The spool directory, or the trace file that was to be written
    #[arg(value_name = "DIR|FILE")]
    pub path: PathBuf,

    /// File to write [default: NAME for NAME.spool, NAME.1 for NAME.spool.1]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print no summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

pub(super) fn run(args: &RecoverArgs) -> Result<u8, CliError> {
    let output = args.output.as_deref().map(Output::at).transpose();
    let output = output.map_err(|error| CliError::Recover(FinishError::Output(error)))?;
    let spool = Spool::open(&args.path).map_err(|error| CliError::Recover(FinishError::Spool(error)))?;
    let finished = rewriting::stoppable(|stopped| {
        recover(spool, output, &|| stopped.load(Ordering::Relaxed)).map_err(CliError::Recover)
    })?;
    if !args.quiet {
        super::tell(summary::text(&finished, true).trim_end());
    }
    Ok(ExitCode::Ok.code())
}
