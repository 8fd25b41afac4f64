//! Options of `tracer-agent export` that only tables have.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::path::Path;

use clap::Args;

use super::{CliError, input};
#[cfg(all(feature = "store", feature = "tables"))]
use super::{tell, temporary::Temporary};
#[cfg(all(feature = "store", feature = "tables"))]
use recording::Exported;
use recording::{ExportError, Job, TraceFile};
use stdx::terminal::SafeWriter;
#[cfg(all(feature = "store", feature = "tables"))]
use store::tree::{Observer, Tree};
#[cfg(all(feature = "store", feature = "tables"))]
use store::{Access, StoreError};
#[cfg(all(feature = "store", feature = "tables"))]
use tables::dataset_files;
use tables::{TableFormat, Tables};

/// The name of standard output.
const STDOUT: &str = "-";

/// What can be chosen of tables.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Options of tables")]
pub(super) struct TableArgs {
    /// Only this table, and those of other --table: SYSTEM:EVENT, EVENT, or one beside those of events: gaps,
    /// losses, threads, hosts, sessions, events. With OUT -, it goes to standard output (csv, jsonl, arrow)
    #[arg(long = "table", value_name = "TABLE")]
    pub tables: Vec<String>,

    /// Add the recording to a data set OUT (parquet), a directory or s3://BUCKET/PREFIX, gs://, az://: files
    /// in directories by event, UTC day and host, as Hive has them, in the place of those of the same
    /// recording
    #[arg(long)]
    pub partition: bool,
}

impl TableArgs {
    /// Tables in this format, of this file.
    pub(super) fn tables(&self, format: TableFormat, file: &Path) -> Tables {
        let name = file.file_name().filter(|_| !input::is_standard(file));
        let file_name = name.map(|name| name.to_string_lossy().into_owned());
        Tables { only: self.tables.clone(), file_name, ..Tables::new(format) }
    }

    /// The table that goes to standard output.
    ///
    /// # Errors
    /// The format has no streams, or it is not one table.
    pub(super) fn for_stdout(&self, format: TableFormat, file: &Path) -> Result<Tables, CliError> {
        if !format.has_streams() {
            let why =
                format!("the format {format} is not written to standard output; arrow, csv and jsonl are");
            return Err(CliError::Usage(why));
        }
        if self.tables.len() != 1 {
            let why = "standard output takes one table: name it with --table SYSTEM:EVENT";
            return Err(CliError::Usage(why.to_owned()));
        }
        Ok(self.tables(format, file))
    }
}

/// Whether an export goes to standard output.
pub(super) fn is_stdout(out: &Path) -> bool {
    out.as_os_str() == STDOUT
}

/// Writes a table to standard output.
///
/// # Errors
/// There is more or less than one table, or the format has no streams.
pub(super) fn to_stdout(tables: &Tables, file: &TraceFile, job: &Job<'_>) -> Result<(), ExportError> {
    let failed = ExportError::io("write", STDOUT);
    // The writer is another thread than the one that has the lock of the library's own.
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let out = File::from(out);
    let is_terminal = out.is_terminal();
    if is_terminal && !tables.format.is_text() {
        let why = format!(
            "{} is no text, and standard output is a terminal; lead it to a file, or a pipe",
            tables.format
        );
        return Err(ExportError::Unsupported(why));
    }
    let mut out = SafeWriter::new(out, is_terminal);
    tables.write_to(file, &mut out, job)?;
    out.flush().map_err(ExportError::io("write", STDOUT))
}

/// Adds a recording to a data set in an object store: it is written to a temporary directory first, so that
/// what is uploaded is complete.
///
/// # Errors
/// It cannot be exported, or the store refuses it.
#[cfg(all(feature = "store", feature = "tables"))]
pub(super) fn to_store(
    tables: &Tables,
    file: &TraceFile,
    (url, access): &(String, Access),
    job: &Job<'_>,
) -> Result<Exported, CliError> {
    struct Watch<'a>(&'a Job<'a>);
    impl Observer for Watch<'_> {
        fn is_cancelled(&self) -> bool {
            self.0.is_cancelled()
        }

        fn failed(&self, error: &StoreError) {
            tell(&format!("tracer-agent: {error}; it is tried again"));
        }
    }
    let failed = |error: StoreError| CliError::Failed(error.to_string());
    // Before the work, so that a refusal comes early.
    let tree = Tree::open(url, access).map_err(failed)?;
    let staging = Temporary::create("export")?;
    let exported = tables.add_to(file, staging.dir().path(), job);
    let (exported, groups) = exported
        .and_then(|exported| Ok((exported, dataset_files(staging.dir())?)))
        .map_err(|error| CliError::Failed(error.to_string()))?;
    match tree.upload(staging.dir(), &groups, &Watch(job)).map_err(failed)? {
        Some(_) => Ok(Exported { path: url.into(), ..exported }),
        None => Err(CliError::Failed(format!(
            "interrupted; what is at {url} of the recording is incomplete until it is exported again"
        ))),
    }
}
