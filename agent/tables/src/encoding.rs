//! What it takes to write tables in some format: rows on their way, and files that take them.

use std::sync::Arc;

use super::value::{Cell, Column, Type};
use recording::ExportError;

/// A table that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// `SYSTEM.EVENT`, or what else it is about.
    pub(super) name: String,
    /// What the name of its file begins with.
    pub(super) stem: String,
    /// Its file, by its path in the export.
    pub(super) file: String,
    /// Those that the format has.
    pub(super) columns: Vec<Column>,
    /// Whether rows come by time, which is the column `common_timestamp`.
    pub(super) by_time: bool,
}

/// How tables are written.
pub(super) trait Encoding {
    /// The rows of a table that are in memory.
    type Rows: Rows;
    /// What writes them.
    type Writer<'w>: Writer<Chunk = <Self::Rows as Rows>::Chunk> + Send;

    /// What the names of files end in.
    fn ending(&self) -> &'static str;

    /// Whether there are columns of this type.
    fn has(&self, ty: Type) -> bool;

    /// How many bytes of one table are written together, about: of records that wait, and of rows.
    fn most_bytes(&self) -> usize;

    /// No rows of a table yet.
    fn rows(&self, columns: &[Column]) -> Self::Rows;

    /// Writes to `out`.
    fn writer<'w>(&self, out: &'w dyn Destination) -> Self::Writer<'w>;
}

/// Rows of a table, collected until they are worth writing.
pub(super) trait Rows {
    /// Rows that go to the table's file together.
    type Chunk: Send;

    /// The next value of the row that is being written, of the column with this index. A value that does not
    /// go with the column's type is unknown.
    fn put(&mut self, column: usize, cell: Cell<'_>);

    /// Ends the row.
    fn end(&mut self);

    /// How much memory they need, in bytes.
    fn size(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// Takes the rows away.
    ///
    /// # Errors
    /// They make no chunk, in words.
    fn take(&mut self) -> Result<Self::Chunk, String>;

    /// What was changed or left out so far.
    fn changed(&self) -> Changed;
}

/// Values that a table does not have as they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Texts that are not UTF-8.
    pub(super) replaced: u64,
    /// Times that are too large for a signed number.
    pub(super) times: u64,
}

/// Writes the files of tables, in one thread after the other.
pub(super) trait Writer {
    /// What it writes.
    type Chunk;

    /// Begins a table, whose number is how many were begun before.
    fn open(&mut self, table: &Arc<Table>) -> Result<(), ExportError>;

    /// Writes rows of a table.
    fn write(&mut self, table: usize, chunk: Self::Chunk) -> Result<(), ExportError>;

    /// Ends all of them, after all tables were ended.
    fn finish(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Ends a table, if it is not ended: nothing more of it comes.
    fn close(&mut self, table: usize) -> Result<(), ExportError>;
}

/// What a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Records of an event; where there are tables of each day, those of a UTC day, in days since 1970, or
    /// those whose day is unknown.
    Event { day: Option<i64> },
    /// Anything else.
    Beside,
}

/// Where files are. None of them stays open: there may be more tables than there are descriptors.
pub(super) trait Destination: Sync {
    /// The path of a table's file. `stem` is a name that files can have everywhere.
    fn path(&self, kind: Kind, stem: &str, ending: &str) -> String {
        let _ = kind;
        format!("{stem}.{ending}")
    }

    /// Whether it is a stream, which has one table.
    #[cfg(feature = "columnar")]
    fn is_stream(&self) -> bool {
        false
    }

    /// The id of the recording, where tables of several recordings are together: each row has it, and there
    /// are tables of each day.
    fn recording(&self) -> Option<&str> {
        None
    }

    /// Creates a file.
    fn create(&self, file: &str) -> Result<(), ExportError>;

    /// Appends to a file.
    fn append(&self, file: &str, bytes: &[u8]) -> Result<(), ExportError>;
}
