//! Rows on their way to the files of their tables.
//!
//! There may be thousands of tables. What is in memory of all of them has a limit, [`BUDGET`]; when it is
//! reached, those with the most rows are written. Records wait as they were read: threads make rows of them,
//! many at a time, and write these in their order.

use std::collections::HashSet;
use std::sync::Arc;

use super::encoding::{Changed, Destination, Encoding, Kind, Rows, Table, Writer};
use super::value::{Cell, Column, Type};
use recording::{ExportError, NotCarried};
use stdx::parallel;
use stdx::parallel::{Ended, HandOn, Items};
use tracedat::reader::{Batch, Record};

/// How much waits of all tables; what threads work on comes on top.
const BUDGET: usize = 48 << 20;
/// How many rows of one table are written together at most. DuckDB divides tables into as many.
const MOST_ROWS: usize = 122_880;
/// Threads that make rows, at most: each has records of a table, and rows of them.
const MOST_THREADS: usize = 4;

/// Rows of this many times the bytes of records that are made into rows together are handed on in one piece,
/// as they usually are; and how much that is at most.
const EXPANDS: usize = 8;
const MOST_BYTES: usize = 24 << 20;

/// A table, by its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sheet(usize);

/// The records of one event as rows.
pub(super) trait Decoder {
    /// Writes them. Gives how many fields they should have, and have not.
    ///
    /// # Errors
    /// Nobody takes rows any more.
    fn decode<R: Rows>(&mut self, records: &Batch<()>, rows: &mut Filling<'_, R>) -> Result<u64, Ended>;
}

/// What is to be done with a table.
enum Order<C> {
    Open(Arc<Table>),
    Write(Result<C, String>),
    Records(Layout, Batch<()>),
    Close,
}

/// The same when there are no records any more.
enum Done<C> {
    Open(Arc<Table>),
    Write(Result<C, String>),
    /// What is not in the rows that were made as it was in the records, and how many fields are missing.
    Changed(Changed, u64),
    Close,
}

/// The column that tells recordings apart where they are together.
pub(super) const RECORDING: &str = "recording";

/// The columns that rows have values for, whether or not the format has them.
#[derive(Clone)]
struct Layout {
    columns: Arc<[Column]>,
    /// The index of the column with the recording, where it is added here.
    recording: Option<usize>,
}

/// A table, and what is in memory of it.
struct Open<R> {
    table: Arc<Table>,
    layout: Layout,
    /// Those that come as rows.
    rows: R,
    records: Batch<()>,
    /// What the budget knows of it.
    counted: usize,
}

impl<R: Rows> Open<R> {
    fn size(&self) -> usize {
        self.rows.size() + self.records.size()
    }
}

/// All tables of an export.
pub(super) struct Sheets<'a, E: Encoding> {
    pub(super) encoding: &'a E,
    out: &'a dyn Destination,
    open: Vec<Open<E::Rows>>,
    stems: HashSet<String>,
    pending: usize,
    orders: &'a mut Items<(usize, Order<<E::Rows as Rows>::Chunk>)>,
}

/// Has `fill` write tables, whose files are complete when this returns. Gives what `fill` gives.
pub(super) fn write<E: Encoding + Sync, D: Decoder, T>(
    encoding: &E,
    out: &dyn Destination,
    decoder: &(impl Fn() -> D + Sync),
    threads: usize,
    not_carried: &mut NotCarried,
    fill: impl FnOnce(&mut Sheets<'_, E>) -> Result<T, ExportError>,
) -> Result<T, ExportError> {
    let mut writer = encoding.writer(out);
    let mut files =
        Written { writer: &mut writer, tables: Vec::new(), changed: Changed::default(), broken: 0 };
    let worker = || {
        let mut decoder = decoder();
        move |(table, order), hand_on: &mut HandOn<'_, _>| {
            done(order, encoding, out.recording(), &mut decoder, &mut |done| hand_on((table, done)))
        }
    };
    let filled = parallel::in_order(
        threads.min(MOST_THREADS),
        &worker,
        |(table, done)| files.take(table, done),
        |orders| {
            let (open, stems) = (Vec::new(), HashSet::new());
            let mut sheets = Sheets { encoding, out, open, stems, pending: 0, orders };
            let filled = fill(&mut sheets)?;
            sheets.finish(not_carried)?;
            Ok(filled)
        },
    )?;
    let Written { changed, broken, .. } = files;
    tell(changed, not_carried);
    not_carried.add("values of fields that are not in their records", broken);
    writer.finish()?;
    Ok(filled)
}

fn tell(changed: Changed, not_carried: &mut NotCarried) {
    not_carried.add("texts that are not UTF-8, whose wrong bytes are replaced", changed.replaced);
    not_carried.add("times later than 2^63 ns, which are unknown in the tables", changed.times);
}

/// Makes rows of records, and hands them on when they are many: a record may have very many fields.
fn done<E: Encoding>(
    order: Order<<E::Rows as Rows>::Chunk>,
    encoding: &E,
    recording: Option<&str>,
    decoder: &mut impl Decoder,
    hand_on: &mut HandOn<'_, Done<<E::Rows as Rows>::Chunk>>,
) -> Result<(), Ended> {
    match order {
        Order::Open(table) => hand_on(Done::Open(table)),
        Order::Write(chunk) => hand_on(Done::Write(chunk)),
        Order::Close => hand_on(Done::Close),
        Order::Records(layout, records) => {
            let mut rows = encoding.rows(&layout.columns);
            let mut full = |rows: &mut E::Rows| hand_on(Done::Write(rows.take()));
            let most = (encoding.most_bytes() * EXPANDS).min(MOST_BYTES);
            let recording = layout.recording.zip(recording);
            let mut filling = Filling { rows: &mut rows, recording, most, full: &mut full };
            let broken = decoder.decode(&records, &mut filling)?;
            if rows.count() != 0 {
                full(&mut rows)?;
            }
            hand_on(Done::Changed(rows.changed(), broken))
        }
    }
}

/// What was written, as far as writing has to know it.
struct Written<'w, W> {
    writer: &'w mut W,
    tables: Vec<Arc<Table>>,
    changed: Changed,
    broken: u64,
}

impl<W: Writer> Written<'_, W> {
    fn take(&mut self, table: usize, done: Done<W::Chunk>) -> Result<(), ExportError> {
        let chunk = match done {
            Done::Open(table) => {
                self.writer.open(&table)?;
                self.tables.push(table);
                return Ok(());
            }
            Done::Close => return self.writer.close(table),
            Done::Changed(changed, broken) => {
                self.changed.replaced += changed.replaced;
                self.changed.times += changed.times;
                self.broken += broken;
                return Ok(());
            }
            Done::Write(chunk) => chunk,
        };
        let chunk = chunk.map_err(|why| {
            let name = self.tables.get(table).map_or("", |table| &table.name);
            ExportError::Unsupported(format!("the table {name} cannot be written: {why}"))
        })?;
        self.writer.write(table, chunk)
    }
}

impl<E: Encoding> Sheets<'_, E> {
    /// A new table. Names come from the recording: what may not be in the name of a file is replaced.
    pub(super) fn add(
        &mut self,
        name: &str,
        kind: Kind,
        columns: impl Into<Vec<Column>>,
    ) -> Result<Sheet, ExportError> {
        let plain = plain_name(name);
        let mut stem = plain.clone();
        let mut number = 2;
        while !self.stems.insert(stem.clone()) {
            stem = format!("{plain}-{number}");
            number += 1;
        }
        self.begin(name, stem, kind, columns.into())
    }

    /// The same table of another kind, in whose place it comes.
    pub(super) fn add_next(&mut self, sheet: Sheet, kind: Kind) -> Result<Sheet, ExportError> {
        let Open { table, layout, .. } = &self.open[sheet.0];
        let mut columns = layout.columns.to_vec();
        columns.truncate(layout.recording.unwrap_or(columns.len()));
        let table = Arc::clone(table);
        self.close(sheet.0)?;
        self.begin(&table.name, table.stem.clone(), kind, columns)
    }

    fn begin(
        &mut self,
        name: &str,
        stem: String,
        kind: Kind,
        columns: Vec<Column>,
    ) -> Result<Sheet, ExportError> {
        let mut all = columns;
        let is_there = all.iter().any(|(name, _)| name == RECORDING);
        let recording = self.out.recording().filter(|_| !is_there).map(|_| all.len());
        all.extend(recording.map(|_| (RECORDING.into(), Type::Name)));
        let rows = self.encoding.rows(&all);
        let layout = Layout { columns: all.as_slice().into(), recording };
        all.retain(|(_, ty)| self.encoding.has(*ty));
        let table = Arc::new(Table {
            name: name.to_owned(),
            file: self.out.path(kind, &stem, self.encoding.ending()),
            stem,
            by_time: all.first().is_some_and(|(name, _)| name == super::columns::TIME),
            columns: all,
        });
        let index = self.open.len();
        self.order(index, Order::Open(Arc::clone(&table)))?;
        self.open.push(Open { table, layout, rows, records: Batch::default(), counted: 0 });
        Ok(Sheet(index))
    }

    /// The tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.open.iter().map(|open| &*open.table)
    }

    /// The file of a table.
    pub(super) fn file_of(&self, sheet: Sheet) -> &str {
        self.open.get(sheet.0).map_or("", |open| &open.table.file)
    }

    /// Begins a row.
    pub(super) fn row(&mut self, sheet: Sheet) -> Row<'_, E::Rows> {
        // Whoever has a sheet has it from `add`.
        Row { rows: &mut self.open[sheet.0].rows, next: 0 }
    }

    /// Ends a row, and has rows written if they are many.
    pub(super) fn end(&mut self, sheet: Sheet) -> Result<(), ExportError> {
        let open = &mut self.open[sheet.0];
        end(&mut open.rows, open.layout.recording.zip(self.out.recording()));
        let count = open.rows.count();
        self.count(sheet, count)
    }

    /// Adds a record as a row. All of a table are of one event.
    pub(super) fn record(&mut self, sheet: Sheet, record: &Record<'_>) -> Result<(), ExportError> {
        let records = &mut self.open[sheet.0].records;
        records.push(record, usize::MAX, ());
        let count = records.len();
        self.count(sheet, count)
    }

    /// Has what is in memory written if it is much.
    fn count(&mut self, sheet: Sheet, rows: usize) -> Result<(), ExportError> {
        let open = &mut self.open[sheet.0];
        let size = open.size();
        self.pending += size.saturating_sub(open.counted);
        open.counted = size;
        if size >= self.encoding.most_bytes() || rows >= MOST_ROWS {
            self.flush(sheet.0)?;
        }
        if self.pending >= BUDGET { self.make_room() } else { Ok(()) }
    }

    /// Has those written that have the most, until half of the budget is free.
    fn make_room(&mut self) -> Result<(), ExportError> {
        let mut sizes: Vec<(usize, usize)> =
            self.open.iter().enumerate().map(|(index, open)| (open.counted, index)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        for (_, index) in sizes {
            if self.pending <= BUDGET / 2 {
                break;
            }
            self.flush(index)?;
        }
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<(), ExportError> {
        let open = &mut self.open[index];
        let records = std::mem::take(&mut open.records);
        let chunk = (open.rows.count() != 0).then(|| open.rows.take());
        let layout = open.layout.clone();
        self.pending -= std::mem::take(&mut open.counted);
        if let Some(chunk) = chunk {
            self.order(index, Order::Write(chunk))?;
        }
        if !records.is_empty() {
            self.order(index, Order::Records(layout, records))?;
        }
        Ok(())
    }

    /// Brings what is in memory to the files.
    fn finish(&mut self, not_carried: &mut NotCarried) -> Result<(), ExportError> {
        for index in 0..self.open.len() {
            self.close(index)?;
            tell(self.open[index].rows.changed(), not_carried);
        }
        Ok(())
    }

    fn close(&mut self, index: usize) -> Result<(), ExportError> {
        self.flush(index)?;
        self.order(index, Order::Close)
    }

    fn order(&mut self, index: usize, order: Order<<E::Rows as Rows>::Chunk>) -> Result<(), ExportError> {
        Ok(self.orders.give((index, order))?)
    }
}

fn end<R: Rows>(rows: &mut R, recording: Option<(usize, &str)>) {
    if let Some((column, recording)) = recording {
        rows.put(column, recording.into());
    }
    rows.end();
}

/// Rows that a decoder writes.
pub(super) struct Filling<'a, R> {
    rows: &'a mut R,
    recording: Option<(usize, &'a str)>,
    /// From so many bytes on, `full` takes the rows away.
    most: usize,
    full: &'a mut dyn FnMut(&mut R) -> Result<(), Ended>,
}

impl<R: Rows> Filling<'_, R> {
    /// Begins a row.
    pub(super) fn row(&mut self) -> Row<'_, R> {
        Row { rows: self.rows, next: 0 }
    }

    /// Ends it.
    ///
    /// # Errors
    /// Nobody takes rows any more.
    pub(super) fn end(&mut self) -> Result<(), Ended> {
        end(self.rows, self.recording);
        if self.rows.size() < self.most { Ok(()) } else { (self.full)(self.rows) }
    }
}

/// A name that files can have everywhere.
fn plain_name(name: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.');
    let plain: String = name.chars().map(|one| if is_plain(one) { one } else { '_' }).take(200).collect();
    if plain.is_empty() || plain.starts_with('.') { format!("_{plain}") } else { plain }
}

/// A row that is written, value by value, in the order of the columns.
pub(super) struct Row<'a, R: Rows> {
    rows: &'a mut R,
    next: usize,
}

impl<R: Rows> Row<'_, R> {
    pub(super) fn put<'c>(&mut self, cell: impl Into<Cell<'c>>) {
        self.rows.put(self.next, cell.into());
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::super::destination::Files;
    use super::super::text::Text;
    use super::super::value::Type;
    use super::*;
    use ftrace_event::Endian;
    use stdx::output::Directory;

    /// Nothing here comes as records.
    struct NoRecords;

    impl Decoder for NoRecords {
        fn decode<R: Rows>(&mut self, _: &Batch<()>, _: &mut Filling<'_, R>) -> Result<u64, Ended> {
            Ok(0)
        }
    }

    fn write_rows<T>(
        out: &dyn Destination,
        fill: impl FnOnce(&mut Sheets<'_, Text>) -> Result<T, ExportError>,
    ) -> Result<T, ExportError> {
        write(&Text::Csv, out, &|| NoRecords, 2, &mut NotCarried::default(), fill)
    }

    #[test]
    fn names_of_files_stay_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let names = write_rows(&Files(&directory), |sheets| {
            let names = ["../x", "a/b", "a_b", "", "..", "ok.event"].into_iter().map(|name| {
                let sheet = sheets.add(name, Kind::Beside, [])?;
                Ok(sheets.file_of(sheet).to_owned())
            });
            names.collect::<Result<Vec<String>, ExportError>>()
        });
        assert_eq!(names.unwrap(), ["_.._x.csv", "a_b.csv", "a_b-2.csv", "_.csv", "_...csv", "ok.event.csv"]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6);
    }

    /// What was appended to each file, in bytes.
    #[derive(Default)]
    struct Sizes(Mutex<BTreeMap<String, Vec<usize>>>);

    impl Destination for Sizes {
        fn create(&self, file: &str) -> Result<(), ExportError> {
            self.0.lock().unwrap().insert(file.to_owned(), Vec::new());
            Ok(())
        }

        fn append(&self, file: &str, bytes: &[u8]) -> Result<(), ExportError> {
            self.0.lock().unwrap().get_mut(file).unwrap().push(bytes.len());
            Ok(())
        }
    }

    #[test]
    fn tables_with_the_most_rows_make_room() {
        const TABLES: usize = 4000;
        let out = Sizes::default();
        write_rows(&out, |sheets| {
            let column: Column = ("text".into(), Type::Text);
            let sheets_of: Vec<Sheet> = (0..TABLES)
                .map(|table| sheets.add(&table.to_string(), Kind::Beside, [column.clone()]))
                .collect::<Result<_, _>>()?;
            // Too little for each of them to be written by itself, and too much of all.
            let text = "x".repeat(1000);
            for _ in 0..20 {
                for (table, sheet) in sheets_of.iter().enumerate() {
                    for _ in 0..=usize::from(table % 2 == 0) {
                        sheets.row(*sheet).put(&*text);
                        sheets.end(*sheet)?;
                    }
                    assert!(sheets.pending <= BUDGET);
                    assert_eq!(sheets.pending, sheets.open.iter().map(Open::size).sum::<usize>());
                }
            }
            Ok(())
        })
        .unwrap();
        let sizes = out.0.into_inner().unwrap();
        assert_eq!(sizes.len(), TABLES);
        for (file, sizes) in sizes {
            let is_large = file.trim_end_matches(".csv").parse::<usize>().unwrap() % 2 == 0;
            let all: usize = sizes.iter().sum();
            assert_eq!(all, 8 + if is_large { 40 } else { 20 } * 1004, "{file}");
            // Few writes of many rows, and not one for each row.
            assert!(sizes.len() <= 4, "{file}: {sizes:?}");
        }
    }

    #[test]
    fn few_records_may_be_many_rows() {
        /// Of each record a row with a long text.
        struct Long;
        impl Decoder for Long {
            fn decode<R: Rows>(
                &mut self,
                records: &Batch<()>,
                rows: &mut Filling<'_, R>,
            ) -> Result<u64, Ended> {
                let text = "x".repeat(1 << 20);
                for _ in 0..records.len() {
                    rows.row().put(&*text);
                    rows.end()?;
                }
                Ok(1)
            }
        }
        let (out, mut not_carried) = (Sizes::default(), NotCarried::default());
        write(&Text::JsonLines, &out, &|| Long, 2, &mut not_carried, |sheets| {
            let sheet = sheets.add("a", Kind::Beside, [("text".into(), Type::Text)])?;
            let (timestamp, missed, data, endian) = (0, None, &[1, 0, 0, 0][..], Endian::Little);
            let record = Record { reader: 0, buffer: 0, cpu: 0, timestamp, missed, data, endian };
            (0..100).try_for_each(|_| sheets.record(sheet, &record))
        })
        .unwrap();
        let sizes = out.0.into_inner().unwrap().remove("a.jsonl").unwrap();
        assert_eq!(sizes.len(), 100, "each is written by itself");
        assert_eq!(not_carried.iter().map(|(_, count)| count).sum::<u64>(), 1);
    }

    #[test]
    fn what_stops_the_thread_is_the_error() {
        struct Full;
        impl Destination for Full {
            fn create(&self, _file: &str) -> Result<(), ExportError> {
                Ok(())
            }

            fn append(&self, file: &str, _bytes: &[u8]) -> Result<(), ExportError> {
                Err(ExportError::io("write", file)(std::io::ErrorKind::StorageFull.into()))
            }
        }
        let written = write_rows(&Full, |sheets| {
            let sheet = sheets.add("a", Kind::Beside, [])?;
            (0..10 * MOST_ROWS).try_for_each(|_| sheets.end(sheet))
        });
        assert!(written.unwrap_err().is_disk_full());
    }
}
