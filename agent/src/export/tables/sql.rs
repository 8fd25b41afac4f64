//! `tables.sql`: the tables as views of DuckDB, with their exact types.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::{ExportError, recognise};
use super::out::{Encoding, Sheets, Type, Written};

/// Writes the file.
pub(super) fn write(sheets: &Sheets<'_>) -> Result<(), ExportError> {
    let mut text = String::from(
        "-- Views of the tables beside this file. In their directory: duckdb -init tables.sql\n",
    );
    let short = short_names(sheets.written());
    for (table, view) in sheets.written().iter().zip(short) {
        // Writing to a string does not fail.
        let _ = write_view(&mut text, table, &view, sheets.encoding);
    }
    let name = recognise::TABLES;
    sheets.dir.write(name, text.as_bytes()).map_err(ExportError::io("write", sheets.dir.join(name)))
}

/// The names of views: of an event its own, unless other tables have it, too.
fn short_names(tables: &[Written]) -> Vec<String> {
    let own =
        |table: &Written| table.name.split_once('.').map_or(&*table.name, |(_, event)| event).to_owned();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for table in tables {
        // DuckDB does not tell capital letters from others.
        *uses.entry(own(table).to_lowercase()).or_default() += 1;
    }
    let name = |table: &Written| match uses.get(&own(table).to_lowercase()) {
        Some(1) => own(table),
        _ => table.name.clone(),
    };
    tables.iter().map(name).collect()
}

fn write_view(text: &mut String, table: &Written, view: &str, encoding: Encoding) -> std::fmt::Result {
    write!(text, "CREATE OR REPLACE VIEW {} AS SELECT ", identifier(view))?;
    for (index, (name, ty)) in table.columns.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let name = identifier(name);
        match (encoding, ty) {
            // CSV has the list as a text.
            (Encoding::Csv, Type::List(element)) => {
                write!(text, "{comma}from_json({name}, '[\"{element}\"]') AS {name}")?;
            }
            _ => write!(text, "{comma}{name}")?,
        }
    }
    let reader = match encoding {
        Encoding::Csv => "read_csv",
        Encoding::JsonLines => "read_json",
    };
    write!(text, " FROM {reader}({}, columns = {{", literal(&table.file))?;
    for (index, (name, ty)) in table.columns.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let ty = match (ty, encoding) {
            (Type::Signed, _) => "BIGINT".to_owned(),
            (Type::Unsigned, _) => "UBIGINT".to_owned(),
            (Type::Bool, _) => "BOOLEAN".to_owned(),
            (Type::Text, _) | (Type::List(_), Encoding::Csv) => "VARCHAR".to_owned(),
            (Type::List(element), Encoding::JsonLines) => format!("{element}[]"),
        };
        write!(text, "{comma}{}: '{ty}'", literal(name))?;
    }
    match encoding {
        Encoding::Csv => text.push_str(
            "}, header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false, new_line = '\\r\\n');\n",
        ),
        Encoding::JsonLines => text.push_str("}, format = 'newline_delimited');\n"),
    }
    Ok(())
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
