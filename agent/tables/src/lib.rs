//! Recordings as tables, for DuckDB, pandas, Spark and other readers of such files.
//!
//! **Data flow:** [`recording::export`] → rows of typed values (`value`) in time order → an encoding
//! (`encoding`): CSV of RFC 4180, JSON lines, and with the feature `columnar` Parquet, Arrow's IPC format or
//! SQLite → a directory, a stream, or a data set of many recordings (`destination`, `dataset`).
//!
//! **Guarantees**
//!
//! - Values keep their types: numbers are exact, and a value that a record does not have is NULL.
//! - Memory is bounded: rows are written when a chunk of them is complete.
//!
//! **Must not know:** the running kernel, command lines. Without `columnar` it needs no large dependency.
//!
//! | file | rows |
//! |---|---|
//! | `SYSTEM.EVENT.csv` | the records of an event, by time |
//! | `events.csv` | the tables: event, file, number of rows |
//! | `losses.csv` | recorded and lost events of each CPU and buffer |
//! | `gaps.csv` | losses: the record after each gap |
//! | `threads.csv` | threads at the start (recordings of this recorder), or names by thread |
//! | `hosts.csv` | one row: the machine, the clock, the covered time |
//! | `sessions.csv` | one row: the recording |
//! | `tables.sql` | views of all tables for DuckDB, with the exact types |
//!
//! # Example
//!
//! ```no_run
//! use std::fs::File;
//! use recording::{Job, Target, TraceFile, export};
//! use tables::{TableFormat, Tables};
//!
//! let file = TraceFile::open(Box::new(File::open("trace.dat")?))?;
//! let target = Target { path: "tables".into(), ..Target::default() };
//! export(&file, &Tables::new(TableFormat::Csv), &target, &Job::new(&|_| {}))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `write`, `out` | filling the tables, and threads that encode and write them |
//! | `columns`, `value` | the columns of an event, and their values |
//! | `sheets`, `gaps`, `about` | the tables beside those of events |
//! | `encoding`, `text` | encodings; CSV and JSON lines |
//! | `columnar`, `sqlite` | Parquet and Arrow; SQLite |
//! | `destination`, `dataset` | directories and streams; data sets of many recordings |
//! | `sql` | the views for DuckDB |

#![forbid(unsafe_code)]

mod about;
#[cfg(feature = "columnar")]
mod columnar;
mod columns;
#[cfg(feature = "columnar")]
mod dataset;
mod destination;
mod encoding;
mod gaps;
mod out;
mod sheets;
mod sql;
#[cfg(feature = "columnar")]
mod sqlite;
mod text;
mod value;
mod write;

use std::fmt;
use std::io::Write;
#[cfg(feature = "columnar")]
use std::path::Path;

#[cfg(feature = "columnar")]
pub use self::dataset::dataset_files;
#[cfg(feature = "columnar")]
use self::{
    about::About,
    columnar::{Arrow, Parquet},
    dataset::Dataset,
    sqlite::{OneFile, Sqlite},
};
use self::{
    destination::{Files, Stream},
    encoding::Destination,
    sql::Reader,
    text::Text,
    write::Export,
};
#[cfg(feature = "columnar")]
use recording::Exported;
use recording::TABLES;
use recording::{Description, ExportError, Format, Job, Recording, TraceFile};
use stdx::output::Directory;

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated values.
    Csv,
    /// A JSON object a line.
    JsonLines,
    /// Apache Parquet.
    #[cfg(feature = "columnar")]
    Parquet,
    /// Arrow's IPC format: files, or a stream of one table.
    #[cfg(feature = "columnar")]
    Arrow,
    /// All tables in one file of SQLite.
    #[cfg(feature = "columnar")]
    Sqlite,
}

impl TableFormat {
    /// Whether it is text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::JsonLines)
    }

    /// Whether one table of it can be written to a stream.
    pub fn has_streams(self) -> bool {
        match self {
            Self::Csv | Self::JsonLines => true,
            #[cfg(feature = "columnar")]
            Self::Arrow => true,
            #[cfg(feature = "columnar")]
            Self::Parquet | Self::Sqlite => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            #[cfg(feature = "columnar")]
            Self::Parquet => "parquet",
            #[cfg(feature = "columnar")]
            Self::Arrow => "arrow",
            #[cfg(feature = "columnar")]
            Self::Sqlite => "sqlite",
        }
    }
}

impl fmt::Display for TableFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The formats of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// How they are written.
    pub format: TableFormat,
    /// Which of them: `SYSTEM:EVENT`, `EVENT`, or the name of one that is beside those of events. All if
    /// there are none.
    pub only: Vec<String>,
    /// What the table of sessions has for the name of the file.
    pub file_name: Option<String>,
}

impl Tables {
    /// All tables of a recording, whose file has no name.
    pub fn new(format: TableFormat) -> Self {
        Self { format, only: Vec::new(), file_name: None }
    }

    fn of<'e, 'r>(
        &self,
        recording: &'e Recording<'r>,
        job: &'e Job<'e>,
    ) -> Result<Export<'e, 'r>, ExportError> {
        Export::of(recording, &self.only, self.file_name.as_deref(), job)
    }

    /// Writes the one table that is chosen to `out`: of Arrow the format for streams. Gives how many records
    /// were looked at. Whoever reads may stop: that is no error.
    ///
    /// # Errors
    /// There is not one table, or what [`export`](recording::export) fails for.
    pub fn write_to(
        &self,
        file: &TraceFile,
        out: &mut (dyn Write + Send),
        job: &Job<'_>,
    ) -> Result<u64, ExportError> {
        let recording = Recording::survey(file, job)?;
        let export = self.of(&recording, job)?;
        if export.named() != 1 || !self.format.has_streams() {
            let why = "a stream takes one table: name it as SYSTEM:EVENT, in the format csv, jsonl or arrow";
            return Err(ExportError::Unsupported(why.to_owned()));
        }
        let out = Stream::new(out);
        match self.write_files(&export, &out) {
            Err(_) if out.is_closed() => {}
            Err(error) => return Err(error),
            Ok(_) => match out.flush() {
                Err(_) if out.is_closed() => {}
                flushed => flushed?,
            },
        }
        Ok(job.progress().events)
    }

    /// Adds the tables to a data set, which many recordings are in: files of Parquet in directories by event,
    /// day and host. Those of the same recording are replaced. The data set is created if there is none.
    ///
    /// # Errors
    /// There is something else, the same recording is being added, the format is not Parquet, or what
    /// [`export`](recording::export) fails for. What was there of the recording is complete then, or has no
    /// row in `sessions`.
    #[cfg(feature = "columnar")]
    pub fn add_to(&self, file: &TraceFile, root: &Path, job: &Job<'_>) -> Result<Exported, ExportError> {
        if self.format != TableFormat::Parquet {
            let why = format!("data sets are made of files of Parquet, not of {}", self.format);
            return Err(ExportError::Unsupported(why));
        }
        // Before the work, so that a refusal comes early.
        let root = dataset::open_root(root)?;
        let path = root.path().to_owned();
        let recording = Recording::survey(file, job)?;
        recording::description::count_others(&recording, self.keeps(), job);
        let export = self.of(&recording, job)?;
        let About { id, hostname, .. } = &export.about;
        let begin = recording.span().and_then(|(first, _)| day_of(columns::wall(first, &recording)));
        let dataset = Dataset::begin(root, id, hostname.as_deref(), begin)?;
        self.write_files(&export, &dataset)?;
        let bytes = dataset.commit()?;
        Ok(Exported { path, bytes, events: job.progress().events, not_carried: job.take_not_carried() })
    }

    /// Writes the files. Gives the text of their views.
    fn write_files(&self, export: &Export<'_, '_>, out: &dyn Destination) -> Result<String, ExportError> {
        let (tables, reader) = match self.format {
            TableFormat::Csv => (export.encode(&Text::Csv, out)?, Reader::Csv),
            TableFormat::JsonLines => (export.encode(&Text::JsonLines, out)?, Reader::Json),
            #[cfg(feature = "columnar")]
            TableFormat::Parquet => (export.encode(&Parquet::new(&export.about), out)?, Reader::Parquet),
            #[cfg(feature = "columnar")]
            TableFormat::Arrow => {
                (export.encode(&Arrow::new(&export.about, out.is_stream()), out)?, Reader::Arrow)
            }
            #[cfg(feature = "columnar")]
            TableFormat::Sqlite => {
                let why = "SQLite has all tables in one file, which it writes itself";
                return Err(ExportError::Unsupported(why.to_owned()));
            }
        };
        Ok(sql::views(tables.iter(), reader))
    }
}

impl Format for Tables {
    fn name(&self) -> &'static str {
        self.format.name()
    }

    #[cfg(feature = "columnar")]
    fn file(&self) -> Option<&'static str> {
        (self.format == TableFormat::Sqlite).then_some(sqlite::FILE)
    }

    fn keeps(&self) -> &'static [Description] {
        Description::OF_ROWS
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        let export = self.of(recording, job)?;
        #[cfg(feature = "columnar")]
        if self.format == TableFormat::Sqlite {
            // The library would give it another mode.
            dir.create(sqlite::FILE).map_err(ExportError::io("create", dir.join(sqlite::FILE)))?;
            let sqlite = Sqlite { path: dir.path_by_descriptor(sqlite::FILE) };
            return export.encode(&sqlite, &OneFile).map(drop);
        }
        let views = self.write_files(&export, &Files(dir))?;
        let name = TABLES;
        dir.write(name, views.as_bytes()).map_err(ExportError::io("write", dir.join(name)))
    }
}

/// The UTC day of a time since 1970, in days since then; none of a time before.
fn day_of(wall: Option<i64>) -> Option<i64> {
    wall.filter(|wall| *wall >= 0).map(|wall| wall / DAY)
}
