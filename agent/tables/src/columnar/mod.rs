//! Tables in columns: Parquet, and Arrow's IPC format.
//!
//! | file | subject |
//! |---|---|
//! | `column` | the values of one column |
//! | `schema` | types as Arrow has them |
//! | `parquet` | files of Parquet: a chunk of rows is a row group |
//! | `ipc` | Arrow's files and streams: a chunk of rows is a record batch |

mod column;
mod ipc;
mod parquet;
mod schema;

use std::io::{self, Write};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

pub(super) use self::ipc::Arrow;
pub(super) use self::parquet::Parquet;

use self::column::ColumnRows;
use self::schema::Names;
use super::encoding::{Changed, Destination, Rows};
use super::value::{Cell, Column};
use recording::ExportError;

/// How much of one table is written together: enough for readers to work on at a time.
const MOST_BYTES: usize = 16 << 20;
/// How much of a file is collected before it is opened and gets it.
const APPENDED: usize = 1 << 20;

/// Rows as columns.
pub(super) struct ColumnarRows {
    columns: Vec<ColumnRows>,
    schema: SchemaRef,
    names: Names,
    count: usize,
    size: usize,
    changed: Changed,
}

impl ColumnarRows {
    fn new(columns: &[Column], names: Names, metadata: &[(String, String)]) -> Self {
        Self {
            columns: columns.iter().map(|(_, ty)| ColumnRows::new(*ty, names)).collect(),
            schema: schema::of(columns, names, metadata),
            names,
            count: 0,
            size: 0,
            changed: Changed::default(),
        }
    }
}

impl Rows for ColumnarRows {
    type Chunk = RecordBatch;

    fn put(&mut self, column: usize, cell: Cell<'_>) {
        if let Some(column) = self.columns.get_mut(column) {
            self.size += column.push(cell, &mut self.changed);
        }
    }

    fn end(&mut self) {
        self.count += 1;
    }

    fn size(&self) -> usize {
        self.size
    }

    fn count(&self) -> usize {
        self.count
    }

    fn take(&mut self) -> Result<RecordBatch, String> {
        let arrays: Result<Vec<_>, _> =
            self.columns.iter_mut().map(|column| column.take(self.names)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.count)));
        self.size = 0;
        let batch = arrays
            .and_then(|arrays| RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options));
        batch.map_err(|error| error.to_string())
    }

    fn changed(&self) -> Changed {
        self.changed
    }
}

/// Appends to a file, a good deal at a time.
struct Appender<'w> {
    out: &'w dyn Destination,
    file: String,
    pending: Vec<u8>,
    /// Why nothing could be written: what encodes has a text of it only.
    failed: Option<ExportError>,
}

impl<'w> Appender<'w> {
    fn new(out: &'w dyn Destination, file: &str) -> Self {
        Self { out, file: file.to_owned(), pending: Vec::new(), failed: None }
    }

    /// The error of an encoder: what kept it from writing, if that is why.
    fn error(
        &mut self,
        action: &'static str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> ExportError {
        let text = io::Error::other(error);
        self.failed.take().unwrap_or_else(|| ExportError::io(action, &self.file)(text))
    }
}

impl Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= APPENDED {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        self.out.append(&self.file, &pending).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("it cannot be written")
        })
    }
}
