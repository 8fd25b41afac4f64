//! What can end a command, and with which exit code.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
};

use super::{
    command::CommandError, exit::ExitCode, info::InfoError, input, list::ListError, record::Refused,
    report::ReportError,
};
use analysis::AnalysisError;
use attach::ProbeError;
use bpf::LoadError;
use capture::{CaptureError, FinishError};
use compile::dynamic::{DynamicError, trace_marker::TraceMarkerError};
use import::ImportError;
use kernel::events::SelectError;
use kernel::privileges::{Capabilities, Capability};
use kernel::tracefs::TracefsError;
use recording::ExportError;
use stdx::reason;
use tracedat::reader::ReadError;
use tracedat::rewrite::RewriteError;

#[cfg(feature = "daemon")]
use ctl::client::ClientError;

/// Why a command failed. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The options contradict each other or name what does not exist.
    #[error("{0}")]
    Usage(String),
    /// The output cannot be there.
    #[error("{0}")]
    Output(String),
    /// The kernel lacks something.
    #[error("{0}")]
    Kernel(String),
    /// The selection of events.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// tracefs.
    #[error("{source}{}", hint(.source.is_permission()))]
    Tracefs {
        /// The reason.
        #[from]
        source: TracefsError,
    },
    /// The session daemon does not answer, or refuses.
    #[error("{0}")]
    Daemon(String),
    /// The recorded command.
    #[error(transparent)]
    Command(CommandError),
    /// What is to be recorded cannot be.
    #[error("{0}")]
    Plan(Refused),
    /// Starting the capture.
    #[error("{source}{}", hint(is_permission(.source)))]
    Capture {
        /// The reason.
        #[from]
        source: CaptureError,
    },
    /// Making the file.
    #[error("{error}; the recording is in {}: `tracer-agent recover {}` tries again", .spool.display(), .spool.display())]
    Finish {
        /// The reason.
        error: FinishError,
        /// Where the data is.
        spool: PathBuf,
    },
    /// Recovering a recording.
    #[error("{0}")]
    Recover(#[source] FinishError),
    /// Listing events.
    #[error(transparent)]
    List(#[from] ListError),
    /// Something went wrong that has no exit code of its own.
    #[error("{0}")]
    Failed(String),
    /// A question about a file.
    #[error("{source}{}", analysis_hint(.source))]
    Analysis {
        /// The reason.
        #[from]
        source: AnalysisError,
    },
    /// Looking into a file.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// Exporting a file.
    #[error("cannot export {file}: {error}")]
    Export {
        /// The recording.
        file: String,
        /// The reason.
        error: ExportError,
    },
    /// Importing a recording of another tracer.
    #[error("cannot import {file}: {error}{}", import_hint(.error))]
    Import {
        /// The recording.
        file: String,
        /// The reason.
        error: ImportError,
    },
    /// Printing the events of files.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Writing a trace file anew from one or several.
    #[error("{input}: {error}{}", rewrite_hint(.error), input = .input.display())]
    Rewrite {
        /// The file that was read, or that is made of several.
        input: PathBuf,
        /// The reason.
        #[source]
        error: RewriteError,
    },
    /// There was nothing to do it with.
    #[error("{0}")]
    Nothing(String),
    /// A system call that hardly ever fails.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl From<spec::SelectorError> for CliError {
    fn from(error: spec::SelectorError) -> Self {
        Self::Select(error.into())
    }
}

/// What to do about a file that cannot be read, if anything.
pub(super) fn repair_hint(error: &ReadError) -> &'static str {
    if error.is_damage() { "; `tracer-agent repair FILE -o NEW` saves what is intact" } else { "" }
}

fn analysis_hint(error: &AnalysisError) -> &'static str {
    match error {
        AnalysisError::Read(error) => repair_hint(error),
        AnalysisError::Filter(_) | AnalysisError::Field(_) => "",
    }
}

impl From<CommandError> for CliError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl CliError {
    /// The session daemon does not answer, or refuses; what else is to be said of that is in `refused`.
    #[cfg(feature = "daemon")]
    pub(super) fn daemon(error: &ClientError, refused: impl FnOnce() -> String) -> Self {
        Self::Daemon(match error {
            ClientError::NoDaemon { .. } => {
                format!("{error}; `tracer-agent daemon` starts one, and --socket names another socket")
            }
            _ => refused(),
        })
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(super) fn usage(error: impl Display) -> Self {
        Self::Usage(error.to_string())
    }

    pub(super) fn kernel(error: impl Display) -> Self {
        Self::Kernel(error.to_string())
    }

    /// The process's exit code for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::Usage,
            Self::Output(_) => ExitCode::OutputNotWritable,
            Self::Kernel(_) => ExitCode::Unsupported,
            Self::Select(SelectError::Malformed(_)) => ExitCode::Usage,
            Self::Select(_) => ExitCode::NoSuchEvent,
            Self::Tracefs { source } => of_tracefs(source),
            Self::Plan(refused) => refused.exit_code(),
            Self::List(error) => error.exit_code(),
            Self::Command(CommandError::NotFound(_)) => ExitCode::CommandNotFound,
            Self::Command(CommandError::NotExecutable { .. }) => ExitCode::CommandNotExecutable,
            Self::Capture { source } => of_capture(source),
            Self::Finish { error, .. } | Self::Recover(error) if error.is_disk_full() => ExitCode::DiskFull,
            Self::Recover(FinishError::Output(_)) => ExitCode::OutputNotWritable,
            Self::Info(error) => error.exit_code(),
            Self::Rewrite { error, .. } => of_rewrite(error),
            Self::Analysis { source: AnalysisError::Filter(_) | AnalysisError::Field(_) } => ExitCode::Usage,
            Self::Analysis { .. } | Self::Failed(_) => ExitCode::Failure,
            Self::Export { error, .. } => of_export(error),
            Self::Import { error, .. } => of_import(error),
            Self::Report(error) => error.exit_code(),
            Self::Command(CommandError::Spawn(_))
            | Self::Finish { .. }
            | Self::Recover(_)
            | Self::Nothing(_)
            | Self::Daemon(_)
            | Self::System { .. } => ExitCode::Failure,
        }
    }
}

pub(super) fn of_probe(error: &DynamicError) -> ExitCode {
    match error {
        DynamicError::Spec(_)
        | DynamicError::TooMuch(_)
        | DynamicError::TooMany(_)
        | DynamicError::Filter(_)
        | DynamicError::TraceMarker(TraceMarkerError::Contexts) => ExitCode::Usage,
        DynamicError::Hook(_)
        | DynamicError::NotTraced(_)
        | DynamicError::Go(_)
        | DynamicError::GoResult
        | DynamicError::TraceMarker(_) => ExitCode::Unsupported,
        DynamicError::Symbols(_) => ExitCode::NotPermitted,
        DynamicError::Tracefs(error) => of_tracefs(error),
        DynamicError::Binary(_)
        | DynamicError::Lookup(_)
        | DynamicError::Marker(_)
        | DynamicError::Indirect(_)
        | DynamicError::IndirectOfPattern
        | DynamicError::Function(_) => ExitCode::NoSuchEvent,
    }
}

fn of_rewrite(error: &RewriteError) -> ExitCode {
    match error {
        _ if reason::is_disk_full(error) => ExitCode::DiskFull,
        RewriteError::IsInput { .. } => ExitCode::Usage,
        RewriteError::Output(_) => ExitCode::OutputNotWritable,
        _ => ExitCode::Failure,
    }
}

/// What to do about a file that cannot be rewritten.
fn rewrite_hint(error: &RewriteError) -> &'static str {
    match error {
        RewriteError::Input { error, .. } => rewrite_hint(error),
        RewriteError::Read(_) | RewriteError::Damaged { .. } => {
            "\n`tracer-agent repair FILE -o OTHER` makes a file of what is intact"
        }
        _ => "",
    }
}

fn of_tracefs(error: &TracefsError) -> ExitCode {
    if error.is_permission() { ExitCode::NotPermitted } else { ExitCode::Unsupported }
}

fn of_capture(error: &CaptureError) -> ExitCode {
    match error {
        _ if is_permission(error) => ExitCode::NotPermitted,
        CaptureError::Spool(error) if error.is_disk_full() => ExitCode::DiskFull,
        CaptureError::Spool(_) | CaptureError::Output(_) => ExitCode::OutputNotWritable,
        CaptureError::Memory { .. }
        | CaptureError::MapMemory { .. }
        | CaptureError::NoChannel
        | CaptureError::Scope(_)
        | CaptureError::Probe(ProbeError::Load(LoadError::TooManyPages { .. })) => ExitCode::Usage,
        CaptureError::OpenFiles { .. } => ExitCode::NotPermitted,
        CaptureError::Probe(_) => ExitCode::Unsupported,
        CaptureError::Threads(_) | CaptureError::Mappings(_) => ExitCode::Failure,
    }
}

fn of_export(error: &ExportError) -> ExitCode {
    match error {
        _ if error.is_disk_full() => ExitCode::DiskFull,
        ExportError::Exists { .. }
        | ExportError::InTheWay { .. }
        | ExportError::NoDataset { .. }
        | ExportError::InUse { .. }
        | ExportError::Output(_)
        | ExportError::Io { .. } => ExitCode::OutputNotWritable,
        _ => ExitCode::Failure,
    }
}

fn of_import(error: &ImportError) -> ExitCode {
    match error {
        _ if error.is_disk_full() => ExitCode::DiskFull,
        ImportError::Exists { .. } | ImportError::Output(_) | ImportError::Spool { .. } => {
            ExitCode::OutputNotWritable
        }
        ImportError::Read { source, .. } => ExitCode::of_opening(source),
        _ => ExitCode::Failure,
    }
}

/// What to do about a recording that is damaged, or may not be read.
fn import_hint(error: &ImportError) -> String {
    match error {
        ImportError::Damaged { .. } => "
--keep-going keeps what comes before the damage"
            .to_owned(),
        ImportError::Read { what, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            format!("\n{}", input::remedy(Path::new(what)))
        }
        _ => String::new(),
    }
}

fn is_permission(error: &CaptureError) -> bool {
    match error {
        CaptureError::Probe(ProbeError::Load(error)) => error.is_permission(),
        CaptureError::Probe(ProbeError::Fast(error)) => error.is_permission(),
        CaptureError::Probe(ProbeError::Attach(error)) => {
            error.source.kind() == io::ErrorKind::PermissionDenied
        }
        _ => false,
    }
}

fn hint(permission: bool) -> &'static str {
    let may_record = || {
        Capabilities::of_this_process().is_ok_and(|capabilities| {
            [Capability::Bpf, Capability::Perfmon].iter().all(|&one| capabilities.has_or_admin(one))
        })
    };
    match permission {
        false => "",
        // Root already: more privileges cannot help.
        true if may_record() => {
            "\nThis process has CAP_BPF and CAP_PERFMON; `tracer-agent doctor` shows what the kernel forbids nevertheless"
        }
        true => "\nRun it as root (sudo); `tracer-agent doctor` shows what is missing",
    }
}
