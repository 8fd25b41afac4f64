//! `tables.sql`: the tables as views of DuckDB, with their exact types.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::encoding::Table;
use super::value::{Element, Type};

/// A view of those processes among the threads.
const PROCESSES: &str = "processes";

/// How DuckDB reads a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Csv,
    Json,
    /// The file has the types.
    #[cfg_attr(not(feature = "columnar"), expect(dead_code, reason = "texts have no types"))]
    Parquet,
    /// Only through Python.
    Arrow,
}

/// The content of the file.
pub(super) fn views<'t>(tables: impl Iterator<Item = &'t Table>, reader: Reader) -> String {
    let tables: Vec<&Table> = tables.collect();
    let mut text = match reader {
        Reader::Arrow => String::from(
            "-- Written by tracer-agent. DuckDB alone does not read Arrow files. In Python, with the package pyarrow, in this directory:\n\
             --   import duckdb, pyarrow.dataset\n\
             --   db = duckdb.connect()\n\
             -- and for each table:\n",
        ),
        _ => String::from(
            "-- Written by tracer-agent: views of the tables beside this file. In their directory: duckdb -init tables.sql\n",
        ),
    };
    for (table, view) in tables.iter().zip(short_names(&tables)) {
        // Writing to a string does not fail.
        let _ = match reader {
            Reader::Arrow => writeln!(
                text,
                "--   db.register({}, pyarrow.dataset.dataset({}, format='ipc'))",
                literal(&view),
                literal(&table.file)
            ),
            Reader::Parquet => writeln!(
                text,
                "CREATE OR REPLACE VIEW {} AS SELECT * FROM read_parquet({});",
                identifier(&view),
                literal(&table.file)
            ),
            Reader::Csv | Reader::Json => write_view(&mut text, table, &view, reader),
        };
    }
    if tables.iter().any(|table| table.name == "threads") {
        let comment = if reader == Reader::Arrow { "-- " } else { "" };
        let _ = writeln!(
            text,
            "{comment}CREATE OR REPLACE VIEW {PROCESSES} AS SELECT * FROM threads WHERE tid = tgid;"
        );
    }
    text
}

/// Views of tables that are there under the beginnings of their files' names, as any database has them: of
/// events, under their own names.
#[cfg(feature = "columnar")]
pub(super) fn short_views<'t>(tables: impl Iterator<Item = &'t Table>) -> String {
    let tables: Vec<&Table> = tables.collect();
    let mut text = String::new();
    for (table, view) in tables.iter().zip(short_names(&tables)) {
        if view != table.name {
            let (view, table) = (identifier(&view), identifier(&table.stem));
            text += &format!("CREATE VIEW {view} AS SELECT * FROM {table};\n");
        }
    }
    if tables.iter().any(|table| table.name == "threads") {
        text += &format!("CREATE VIEW {PROCESSES} AS SELECT * FROM threads WHERE tid = tgid;\n");
    }
    text
}

/// The names of views: of an event its own, unless other tables have it, too.
fn short_names(tables: &[&Table]) -> Vec<String> {
    let own = |table: &Table| table.name.split_once('.').map_or(&*table.name, |(_, event)| event).to_owned();
    let mut uses: BTreeMap<String, usize> = BTreeMap::from([(PROCESSES.to_owned(), 1)]);
    for table in tables {
        // DuckDB does not tell capital letters from others.
        *uses.entry(own(table).to_lowercase()).or_default() += 1;
    }
    let name = |table: &&Table| match uses.get(&own(table).to_lowercase()) {
        Some(1) => own(table),
        _ => table.name.clone(),
    };
    tables.iter().map(name).collect()
}

/// The type of a column as the text has it.
fn type_of(ty: Type) -> &'static str {
    match ty {
        Type::Signed(_) | Type::Wall => "BIGINT",
        Type::Unsigned(_) | Type::Time => "UBIGINT",
        Type::Bool => "BOOLEAN",
        Type::Address | Type::Text | Type::Name => "VARCHAR",
        Type::Moment => "TIMESTAMPTZ",
        Type::List(Element::Signed(_)) => "BIGINT[]",
        Type::List(Element::Unsigned(_)) => "UBIGINT[]",
        Type::List(Element::Address | Element::Text) => "VARCHAR[]",
    }
}

fn write_view(text: &mut String, table: &Table, view: &str, reader: Reader) -> std::fmt::Result {
    write!(text, "CREATE OR REPLACE VIEW {} AS SELECT ", identifier(view))?;
    for (index, (name, ty)) in table.columns.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let name = identifier(name);
        match (reader, ty) {
            // CSV has the list as a text.
            (Reader::Csv, Type::List(element)) => {
                write!(text, "{comma}from_json({name}, '[\"{}\"]') AS {name}", type_of(element.ty()))?;
            }
            _ => write!(text, "{comma}{name}")?,
        }
    }
    let function = if reader == Reader::Csv { "read_csv" } else { "read_json" };
    write!(text, " FROM {function}({}, columns = {{", literal(&table.file))?;
    for (index, (name, ty)) in table.columns.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let ty = match (reader, ty) {
            (Reader::Csv, Type::List(_)) => "VARCHAR",
            (_, ty) => type_of(*ty),
        };
        write!(text, "{comma}{}: '{ty}'", literal(name))?;
    }
    text.push_str(match reader {
        Reader::Csv => {
            "}, header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false, new_line = '\\r\\n');\n"
        }
        _ => "}, format = 'newline_delimited');\n",
    });
    Ok(())
}

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
