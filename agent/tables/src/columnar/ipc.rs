//! Files and streams in Arrow's IPC format.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::ArrowError;

use super::super::about::About;
use super::super::encoding::{Destination, Encoding, Table, Writer};
use super::super::value::{Column, Type};
use super::schema::{self, Names};
use super::{Appender, ColumnarRows, MOST_BYTES};
use recording::ExportError;

/// Tables in Arrow's IPC format.
pub(in super::super) struct Arrow {
    metadata: Vec<(String, String)>,
    /// The format for streams, which has dictionaries and is not compressed.
    stream: bool,
}

impl Arrow {
    pub(in super::super) fn new(about: &About, stream: bool) -> Self {
        Self { metadata: schema::metadata(about), stream }
    }

    fn names(&self) -> Names {
        if self.stream { Names::Dictionary } else { Names::Plain }
    }
}

impl Encoding for Arrow {
    type Rows = ColumnarRows;
    type Writer<'w> = ArrowWriter<'w>;

    fn ending(&self) -> &'static str {
        "arrow"
    }

    fn has(&self, _ty: Type) -> bool {
        true
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn rows(&self, columns: &[Column]) -> ColumnarRows {
        ColumnarRows::new(columns, self.names(), &self.metadata)
    }

    fn writer<'w>(&self, out: &'w dyn Destination) -> ArrowWriter<'w> {
        let Self { metadata, stream } = self;
        ArrowWriter {
            out,
            metadata: metadata.clone(),
            stream: *stream,
            names: self.names(),
            files: Vec::new(),
        }
    }
}

/// The files that are written.
pub(in super::super) struct ArrowWriter<'w> {
    out: &'w dyn Destination,
    metadata: Vec<(String, String)>,
    stream: bool,
    names: Names,
    files: Vec<Option<File<'w>>>,
}

enum File<'w> {
    File(FileWriter<Appender<'w>>),
    Stream(StreamWriter<Appender<'w>>),
}

impl Writer for ArrowWriter<'_> {
    type Chunk = RecordBatch;

    fn open(&mut self, table: &Arc<Table>) -> Result<(), ExportError> {
        self.out.create(&table.file)?;
        let schema = schema::of(&table.columns, self.names, &self.metadata);
        let appender = Appender::new(self.out, &table.file);
        let file = if self.stream {
            StreamWriter::try_new(appender, &schema).map(File::Stream)
        } else {
            IpcWriteOptions::default()
                .try_with_compression(Some(CompressionType::ZSTD))
                .and_then(|options| FileWriter::try_new_with_options(appender, &schema, options))
                .map(File::File)
        };
        let file =
            file.map_err(|error| ExportError::io("write", &table.file)(std::io::Error::other(error)))?;
        self.files.push(Some(file));
        Ok(())
    }

    fn write(&mut self, table: usize, chunk: RecordBatch) -> Result<(), ExportError> {
        let Some(Some(file)) = self.files.get_mut(table) else { return Ok(()) };
        let written = match file {
            File::File(writer) => writer.write(&chunk).and_then(|()| writer.flush()),
            File::Stream(writer) => writer.write(&chunk).and_then(|()| writer.flush()),
        };
        written.map_err(|error| file.error(error))
    }

    fn close(&mut self, table: usize) -> Result<(), ExportError> {
        let Some(mut file) = self.files.get_mut(table).and_then(Option::take) else { return Ok(()) };
        let written = match &mut file {
            File::File(writer) => writer.finish().and_then(|()| writer.flush()),
            File::Stream(writer) => writer.finish().and_then(|()| writer.flush()),
        };
        written.map_err(|error| file.error(error))
    }
}

impl File<'_> {
    fn error(&mut self, error: ArrowError) -> ExportError {
        let appender = match self {
            File::File(writer) => writer.get_mut(),
            File::Stream(writer) => writer.get_mut(),
        };
        appender.error("write", error)
    }
}
