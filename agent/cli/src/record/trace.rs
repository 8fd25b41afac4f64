//! `record --format lttng`: a trace in LTTng's layout instead of a trace.dat.

use clap::{Args, ValueEnum};

use super::super::units;
use spec::TraceFormat;

/// Where the trace goes if nothing is said.
pub(super) const DIRECTORY: &str = "trace";

/// What is written.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A trace.dat, at the end.
    #[default]
    Dat,
    /// A directory with the layout and the names of an LTTng 2.13 kernel session, while recording.
    Lttng,
    /// The same in the Common Trace Format 1.8 with the kernel's own names.
    Ctf,
    /// The same in the Common Trace Format 2.
    Ctf2,
}

impl From<Format> for TraceFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Dat => Self::Dat,
            Format::Lttng => Self::Lttng,
            Format::Ctf => Self::Ctf,
            Format::Ctf2 => Self::Ctf2,
        }
    }
}

/// The format, and what belongs to it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output format")]
pub struct TraceArgs {
    /// What to write: dat, a trace.dat at the end; lttng, ctf or ctf2, a directory (-o, by default trace)
    /// that can be read meanwhile. With --rotate-size or --rotate-time its closed chunks are in archives/
    #[arg(id = "trace_format", long = "format", value_name = "FORMAT", value_enum, default_value = "dat")]
    pub format: Format,

    /// Maximum size of a packet of a buffer, as LTTng's sub-buffers have one: 4K, 1M; plain numbers are KB
    /// [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub packet_size: Vec<u64>,

    /// Maximum size of the file of a stream of a buffer; the packet that does not fit begins the next one
    #[arg(long, value_name = "SIZE", value_parser = units::kilobytes)]
    pub tracefile_size: Vec<u64>,

    /// Keep this many files of each stream of a buffer, and replace the oldest
    #[arg(long, value_name = "FILES")]
    pub tracefile_count: Vec<u64>,
}
