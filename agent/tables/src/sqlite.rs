//! Tables in one file of SQLite, whose order of rows (`rowid`) is that of time.
//!
//! Numbers are signed with 64 bits there: an unsigned one that does not fit is a text, as all addresses are
//! (`0xffffffff81000000`). Lists are JSON in a text, and `true` is 1.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::encoding::{Changed, Destination, Encoding, Kind, Rows, Table, Writer};
use super::sql::{self, identifier};
use super::text::json_list;
use super::value::{Cell, Column, Type};
use recording::ExportError;

/// The file in the directory of the export.
pub(super) const FILE: &str = "tables.sqlite";
/// How much of one table is written together.
const BYTES: usize = 1 << 20;
/// Nothing but this process sees the file before it is complete, and it is synced then.
const PRAGMAS: &str =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; BEGIN";

/// Tables in the file at a path.
pub(super) struct Sqlite {
    pub(super) path: PathBuf,
}

/// Tables that are in one file, under their own names.
pub(super) struct OneFile;

impl Destination for OneFile {
    fn path(&self, _kind: Kind, stem: &str, _ending: &str) -> String {
        stem.to_owned()
    }

    fn create(&self, _file: &str) -> Result<(), ExportError> {
        Ok(())
    }

    fn append(&self, _file: &str, _bytes: &[u8]) -> Result<(), ExportError> {
        Ok(())
    }
}

impl Encoding for Sqlite {
    type Rows = SqliteRows;
    type Writer<'w> = SqliteWriter;

    fn ending(&self) -> &'static str {
        "sqlite"
    }

    fn has(&self, ty: Type) -> bool {
        ty != Type::Moment
    }

    fn most_bytes(&self) -> usize {
        BYTES
    }

    fn rows(&self, columns: &[Column]) -> SqliteRows {
        let has = columns.iter().map(|(_, ty)| self.has(*ty)).collect();
        SqliteRows { has, values: Vec::new(), count: 0, size: 0, changed: Changed::default() }
    }

    fn writer(&self, _out: &dyn Destination) -> SqliteWriter {
        SqliteWriter { path: self.path.clone(), connection: None, tables: Vec::new() }
    }
}

/// Values of rows, one after the other.
pub(super) struct SqliteRows {
    /// Which of the columns are written.
    has: Vec<bool>,
    values: Vec<Value>,
    count: usize,
    size: usize,
    changed: Changed,
}

impl Rows for SqliteRows {
    type Chunk = Vec<Value>;

    fn put(&mut self, column: usize, cell: Cell<'_>) {
        if self.has.get(column) != Some(&true) {
            return;
        }
        let value = match cell {
            Cell::Unknown => Value::Null,
            Cell::Signed(number) => Value::Integer(number),
            Cell::Unsigned(number) => match i64::try_from(number) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Text(format!("{number:#x}")),
            },
            Cell::Address(address) => Value::Text(format!("{address:#x}")),
            Cell::Bool(value) => Value::Integer(value.into()),
            Cell::Text(text) => {
                self.changed.replaced += u64::from(std::str::from_utf8(text).is_err());
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            Cell::List(items) => {
                let mut json = Vec::new();
                json_list(items, &mut json, &mut self.changed);
                Value::Text(String::from_utf8_lossy(&json).into_owned())
            }
        };
        self.size += size_of::<Value>();
        if let Value::Text(text) = &value {
            self.size += text.len();
        }
        self.values.push(value);
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

    fn take(&mut self) -> Result<Vec<Value>, String> {
        (self.count, self.size) = (0, 0);
        Ok(std::mem::take(&mut self.values))
    }

    fn changed(&self) -> Changed {
        self.changed
    }
}

/// Inserts what comes, all of it in one transaction.
pub(super) struct SqliteWriter {
    path: PathBuf,
    connection: Option<Connection>,
    tables: Vec<Arc<Table>>,
}

impl SqliteWriter {
    /// Does something with the file, which is created when it is needed for the first time.
    fn with(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<(), ExportError> {
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => connect(&self.path),
        };
        let done = connection.and_then(|connection| work(self.connection.insert(connection)));
        done.map_err(|error| {
            // Its error for a full disk has none of the system's.
            let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
            let full = || io::ErrorKind::StorageFull.into();
            ExportError::io("write", FILE)(if is_full { full() } else { io::Error::other(error) })
        })
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch(PRAGMAS)?;
    Ok(connection)
}

impl Writer for SqliteWriter {
    type Chunk = Vec<Value>;

    fn open(&mut self, table: &Arc<Table>) -> Result<(), ExportError> {
        let columns: Vec<String> = names(table).iter().map(|name| identifier(name)).collect();
        let create = format!("CREATE TABLE {} ({})", identifier(&table.file), columns.join(", "));
        self.tables.push(Arc::clone(table));
        self.with(|connection| connection.execute_batch(&create))
    }

    fn write(&mut self, table: usize, chunk: Vec<Value>) -> Result<(), ExportError> {
        let Some(table) = self.tables.get(table).cloned() else { return Ok(()) };
        let columns = table.columns.len().max(1);
        let places = vec!["?"; columns].join(", ");
        let insert = format!("INSERT INTO {} VALUES ({places})", identifier(&table.file));
        self.with(|connection| {
            let mut statement = connection.prepare(&insert)?;
            chunk.chunks_exact(columns).try_for_each(|row| statement.execute(params_from_iter(row)).map(drop))
        })
    }

    fn close(&mut self, _table: usize) -> Result<(), ExportError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExportError> {
        let views = sql::short_views(self.tables.iter().map(|table| &**table));
        self.with(|connection| connection.execute_batch(&format!("{views}COMMIT")))
    }
}

/// The names of columns, which SQLite compares without regard to case.
fn names(table: &Table) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |(name, _): &Column| {
        let mut name = name.to_string();
        while !taken.insert(name.to_lowercase()) {
            name.push('_');
        }
        name
    };
    table.columns.iter().map(name).collect()
}
