//! Files of Apache Parquet.
//!
//! Rows of a file are sorted by time within each row group, and their times are statistics of its pages, so
//! that readers find a span of time without the rest.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch, UInt32Array, cast::AsArray as _};
use arrow_select::take::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding as Layout, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::super::about::About;
use super::super::encoding::{Destination, Encoding, Table, Writer};
use super::super::value::{Column, Type};
use super::schema::{self, Names};
use super::{Appender, ColumnarRows, MOST_BYTES};
use recording::ExportError;

/// Level of zstd: 3 takes half as long again, and files are 3 % smaller.
const LEVEL: i32 = 1;

/// Tables as files of Parquet.
pub(in super::super) struct Parquet {
    metadata: Vec<(String, String)>,
}

impl Parquet {
    pub(in super::super) fn new(about: &About) -> Self {
        Self { metadata: schema::metadata(about) }
    }
}

impl Encoding for Parquet {
    type Rows = ColumnarRows;
    type Writer<'w> = ParquetWriter<'w>;

    fn ending(&self) -> &'static str {
        "parquet"
    }

    fn has(&self, _ty: Type) -> bool {
        true
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn rows(&self, columns: &[Column]) -> ColumnarRows {
        // Here the file has metadata of its own.
        ColumnarRows::new(columns, Names::Dictionary, &[])
    }

    fn writer<'w>(&self, out: &'w dyn Destination) -> ParquetWriter<'w> {
        ParquetWriter { out, metadata: self.metadata.clone(), files: Vec::new() }
    }
}

/// The files that are written.
pub(in super::super) struct ParquetWriter<'w> {
    out: &'w dyn Destination,
    metadata: Vec<(String, String)>,
    files: Vec<Option<File<'w>>>,
}

struct File<'w> {
    writer: ArrowWriter<Appender<'w>>,
    by_time: bool,
}

impl Writer for ParquetWriter<'_> {
    type Chunk = RecordBatch;

    fn open(&mut self, table: &Arc<Table>) -> Result<(), ExportError> {
        self.out.create(&table.file)?;
        let schema = schema::of(&table.columns, Names::Dictionary, &[]);
        let appender = Appender::new(self.out, &table.file);
        let writer = ArrowWriter::try_new(appender, schema, Some(properties(table, &self.metadata)));
        let writer =
            writer.map_err(|error| ExportError::io("write", &table.file)(std::io::Error::other(error)))?;
        self.files.push(Some(File { writer, by_time: table.by_time }));
        Ok(())
    }

    fn write(&mut self, table: usize, chunk: RecordBatch) -> Result<(), ExportError> {
        let Some(Some(File { writer, by_time })) = self.files.get_mut(table) else { return Ok(()) };
        let written = sorted(chunk, *by_time).and_then(|chunk| {
            writer.write(&chunk)?;
            writer.flush()?;
            Ok(writer.sync()?)
        });
        written.map_err(|error| writer.inner_mut().error("write", error))
    }

    fn close(&mut self, table: usize) -> Result<(), ExportError> {
        let Some(mut file) = self.files.get_mut(table).and_then(Option::take) else { return Ok(()) };
        let written = file.writer.finish().and_then(|_| Ok(file.writer.sync()?));
        written.map_err(|error| file.writer.inner_mut().error("write", error))
    }
}

fn properties(table: &Table, metadata: &[(String, String)]) -> WriterProperties {
    let metadata = metadata.iter().map(|(name, text)| KeyValue::new(name.clone(), text.clone()));
    let by_time =
        table.by_time.then(|| vec![SortingColumn { column_idx: 0, descending: false, nulls_first: false }]);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).unwrap_or_default()))
        .set_created_by(format!("tracer-agent version {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(metadata.collect()))
        .set_sorting_columns(by_time);
    for (index, (name, ty)) in table.columns.iter().enumerate() {
        let path = ColumnPath::new(vec![name.to_string()]);
        if matches!(ty, Type::Time | Type::Wall | Type::Moment) {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path.clone(), Layout::DELTA_BINARY_PACKED);
        }
        if table.by_time && index == 0 {
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::Page);
        }
    }
    properties.build()
}

/// The rows by time: those of a CPU whose clock was set, or of a damaged file, may go back.
fn sorted(chunk: RecordBatch, by_time: bool) -> Result<RecordBatch, ParquetError> {
    let times = chunk.columns().first().filter(|_| by_time);
    let Some(times) = times.and_then(|times| times.as_primitive_opt::<Int64Type>()) else {
        return Ok(chunk);
    };
    // What is unknown is later than what can be said.
    let key = |index: &u32| (times.is_null(*index as usize), times.value(*index as usize));
    let mut order: Vec<u32> = (0..chunk.num_rows() as u32).collect();
    if order.is_sorted_by_key(key) {
        return Ok(chunk);
    }
    order.sort_by_key(key);
    Ok(take_record_batch(&chunk, &UInt32Array::from(order))?)
}

#[cfg(test)]
mod tests {
    use super::super::super::encoding::Rows as _;
    use super::super::super::value::Cell;
    use super::*;

    #[test]
    fn rows_of_a_group_are_sorted_by_time() {
        let columns = [("common_timestamp".into(), Type::Time), ("name".into(), Type::Name)];
        let mut rows = ColumnarRows::new(&columns, Names::Dictionary, &[]);
        for (time, name) in [(3, "a"), (1, "b"), (u64::MAX, "a"), (0, "c"), (1, "a")] {
            rows.put(0, Cell::Unsigned(time));
            rows.put(1, Cell::Text(name.as_bytes()));
            rows.end();
        }
        assert_eq!(rows.changed().times, 1);
        let chunk = sorted(rows.take().unwrap(), true).unwrap();
        let times: Vec<Option<i64>> = chunk.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(times, [Some(0), Some(1), Some(1), Some(3), None]);
        let names = chunk.column(1).as_any_dictionary_opt().unwrap();
        let texts = names.values().as_string::<i32>();
        let names: Vec<&str> = names.normalized_keys().into_iter().map(|key| texts.value(key)).collect();
        assert_eq!(names, ["c", "b", "a", "a", "a"]);
    }
}
