//! `record --format lttng`: a trace in LTTng's layout instead of a trace.dat.

use std::{path::Path, time::Duration};

use clap::{Args, ValueEnum};

use super::super::{CliError, tell, units};
use crate::{
    capture::{CtfOptions, CtfOutput, Done, Finished, Finisher, Recorded, Session},
    export::ctf::{Ctf, FileLimits, Shape},
    spec::RecordingSpec,
};

/// Where the trace goes if nothing is said.
pub(super) const DIRECTORY: &str = "trace";
/// Bytes that packets are multiples of.
const PAGE: u64 = 4096;

/// What is written.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceFormat {
    /// A trace.dat, at the end.
    #[default]
    Dat,
    /// A directory with the layout and the names of an LTTng 2.13 kernel session, while recording.
    Lttng,
    /// The same in the Common Trace Format with the kernel's own names.
    Ctf,
}

/// The format, and what belongs to it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output format")]
pub struct TraceArgs {
    /// What to write: dat, a trace.dat at the end; lttng or ctf, a directory (-o, by default trace) that can
    /// be read meanwhile. With --rotate-size or --rotate-time its closed chunks are in archives/
    #[arg(id = "trace_format", long = "format", value_name = "FORMAT", value_enum, default_value = "dat")]
    pub format: TraceFormat,

    /// Maximum size of a packet, as LTTng's sub-buffers have one: 4K, 1M; plain numbers are KB [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub packet_size: Option<u64>,

    /// Maximum size of the file of a stream; the packet that does not fit begins the next one
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub tracefile_size: Option<u64>,

    /// Keep this many files of each stream, and replace the oldest
    #[arg(long, value_name = "FILES", requires = "tracefile_size")]
    pub tracefile_count: Option<u64>,
}

impl TraceArgs {
    /// The options of a trace, if one is to be written.
    pub(super) fn options(&self, spec: &RecordingSpec) -> Result<Option<CtfOptions>, CliError> {
        let naming = match self.format {
            TraceFormat::Lttng => Ctf::Lttng,
            TraceFormat::Ctf => Ctf::Kernel,
            TraceFormat::Dat => {
                let is_given = self.packet_size.is_some() || self.tracefile_size.is_some();
                return if is_given {
                    Err(CliError::usage(
                        "--packet-size and --tracefile-size are for the streams of --format lttng or ctf",
                    ))
                } else {
                    Ok(None)
                };
            }
        };
        let bytes = |kb: u64| kb.saturating_mul(1024);
        let packet = self.packet_size.map_or(Shape::default().packet as u64, bytes);
        if packet == 0 || !packet.is_multiple_of(PAGE) || packet > u64::from(u32::MAX) {
            return Err(CliError::usage("--packet-size is a multiple of 4 KB, and less than 4 GB"));
        }
        let size = self.tracefile_size.map(bytes);
        if size.is_some_and(|size| size < packet) {
            return Err(CliError::usage(
                "--tracefile-size has room for one packet at least; use more, or a smaller --packet-size",
            ));
        }
        if self.tracefile_count == Some(0) {
            return Err(CliError::usage("--tracefile-count 0 would keep no file; use 1 or more"));
        }
        let keep = spec.rotation.and_then(|rotation| rotation.keep);
        let switch = spec.channels.iter().map(|channel| channel.switch_ns).filter(|ns| *ns != 0).min();
        Ok(Some(CtfOptions {
            naming,
            shape: Shape { packet: packet as usize, files: FileLimits { size, count: self.tracefile_count } },
            flush: switch.map(Duration::from_nanos),
            keep: keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX)),
        }))
    }
}

/// The trace while the recording goes on, and what writes it.
pub(super) struct TraceFile {
    finisher: Finisher,
}

impl TraceFile {
    pub(super) fn start(output: &CtfOutput) -> Result<Self, CliError> {
        let finisher = Finisher::start_with(output.recording())
            .map_err(CliError::system("start a thread that writes the trace"))?;
        Ok(Self { finisher })
    }

    /// Writes what comes from now on.
    pub(super) fn follow(&self, session: &Session) {
        follow(&self.finisher, session);
    }

    pub(super) fn into_finisher(self) -> Finisher {
        self.finisher
    }

    /// Writes the rest, and waits for it.
    pub(super) fn finish(self, recorded: Recorded) -> Result<Finished, CliError> {
        self.finisher.add_last(recorded);
        match self.finisher.finish().pop() {
            Some(Done::File(finished)) => Ok(*finished),
            Some(Done::Failed { error, spool }) => Err(CliError::Finish { error, spool }),
            None => Err(CliError::Usage("nothing was recorded".to_owned())),
        }
    }
}

/// Lets the archive be written that is recorded to. Without that it is written when it is closed.
pub(super) fn follow(finisher: &Finisher, session: &Session) {
    match session.follow() {
        Ok(follower) => finisher.follow(follower),
        Err(error) => tell(&format!("tracer-agent: the trace is written when the recording ends: {error}")),
    }
}

/// Opens the directory of the trace. The specification is told where `recover` puts what is left of the
/// recording if it is killed.
pub(super) fn create(options: CtfOptions, spec: &mut RecordingSpec) -> Result<CtfOutput, CliError> {
    let dir = spec.file.path.clone();
    let output =
        CtfOutput::create(Path::new(&dir), options).map_err(|error| CliError::Output(error.to_string()))?;
    if spec.rotation.is_none() {
        spec.file.path = dir.join("trace.dat");
    }
    Ok(output)
}
