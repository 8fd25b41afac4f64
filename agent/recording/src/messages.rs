//! Records with the texts that they refer to.

use std::sync::OnceLock;

use ftrace_event::{EventTable, Message, SymbolTable};
use tracedat::reader::{ReadError, Record, Records};

use super::survey::TraceFile;

/// The events of a recording whose records refer to texts, and where the texts are.
#[derive(Debug)]
pub(super) struct Messages<'r> {
    file: &'r TraceFile,
    events: Vec<(u16, Message)>,
    /// Texts and the symbols in them, read for the first record that refers to one.
    symbols: OnceLock<SymbolTable>,
}

impl<'r> Messages<'r> {
    /// Of the events in a table, which gets the formats of records that have their texts.
    pub(super) fn of(file: &'r TraceFile, table: &mut EventTable) -> Self {
        Self { file, events: table.inline_messages(), symbols: OnceLock::new() }
    }

    /// Of a recording whose records are passed on as they are.
    pub(super) fn none(file: &'r TraceFile) -> Self {
        Self { file, events: Vec::new(), symbols: OnceLock::new() }
    }

    /// The record with the text that it refers to, which is made in `memory`.
    #[inline]
    pub(super) fn inlined<'d>(&self, record: Record<'d>, memory: &'d mut Vec<u8>) -> Record<'d> {
        if self.events.is_empty() {
            return record;
        }
        let message = record.event_id().and_then(|id| self.events.iter().find(|(event, _)| *event == id));
        let Some((_, message)) = message else { return record };
        message.inline(record.data, self.symbols(), memory);
        Record { data: memory, ..record }
    }

    fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| {
            let texts = self.file.metadata().printk.iter().map(|(at, text)| (*at, text.as_str()));
            SymbolTable::parse(self.file.kallsyms().unwrap_or_default()).with_texts(texts)
        })
    }
}

/// Records by time, with the texts that they refer to.
#[derive(Debug)]
pub struct TextRecords<'r> {
    records: Records<'r>,
    messages: &'r Messages<'r>,
    memory: Vec<u8>,
}

impl<'r> TextRecords<'r> {
    pub(super) fn new(records: Records<'r>, messages: &'r Messages<'r>) -> Self {
        Self { records, messages, memory: Vec::new() }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// As [`Records::next_record`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let Self { records, messages, memory } = self;
        Ok(records.next_record()?.map(|record| messages.inlined(record, memory)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ftrace_event::message::MESSAGE_FIELD;
    use ftrace_event::{Endian, Value};
    use tracedat::page::{PageBuilder, Push};
    use tracedat::reader::Reader;
    use tracedat::{Buffer, Compression, EventSystem, Section, Setup, Writer, layout};

    use super::*;
    use crate::{Job, Recording};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\n\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
";

    fn format(name: &str, id: u16, own: &str, print_fmt: &str) -> String {
        format!("name: {name}\nID: {id}\nformat:\n{COMMON}{own}\nprint fmt: {print_fmt}\n")
    }

    /// Records of trace_printk, of trace_marker with the format of older kernels, and of an event whose
    /// format cannot be used.
    fn file() -> TraceFile {
        let endian = Endian::Little;
        let setup = Setup { endian, compression: Compression::None, page_size: 4096 };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header = Section::header_info(endian, &layout::header_page_text(4096), "").unwrap();
        writer.section(header).unwrap();
        let bprint = "\tfield:const char * fmt;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 buf[];\toffset:24;\tsize:0;\tsigned:0;\n";
        let bputs = "\tfield:const char * str;\toffset:16;\tsize:8;\tsigned:0;\n";
        let print = "\tfield:char buf;\toffset:16;\tsize:0;\tsigned:0;\n";
        let texts = [
            format("print", 5, print, "\"%ps: %s\", (void *)REC->ip, REC->buf"),
            format("bprint", 6, bprint, "\"%ps: %s\", (void *)REC->ip, REC->fmt"),
            format("bputs", 14, bputs, "\"%ps: %s\", (void *)REC->ip, REC->str"),
        ];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        writer.section(Section::ftrace_events(endian, &texts).unwrap()).unwrap();
        let odd = format("odd", 300, "\tfield:int x[1][2];\toffset:16;\tsize:8;\tsigned:1;\n", "\"\"");
        let systems = [EventSystem { name: "demo", formats: &[&odd] }];
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        let printk = b"0x1000 : \"n=%d\"\n0x2000 : \"whole\"\n";
        writer.section(Section::printk(endian, printk).unwrap()).unwrap();
        let mut pages = PageBuilder::new(4096, endian).unwrap();
        for (id, own) in [
            (6_u16, [&0x1000_u64.to_le_bytes()[..], &7_u32.to_le_bytes()].concat()),
            (14, 0x2000_u64.to_le_bytes().to_vec()),
            (5, b"marked\n\0".to_vec()),
            (6, 0x3000_u64.to_le_bytes().to_vec()),
            (300, vec![1, 2, 3, 4, 5, 6, 7, 8]),
        ] {
            let mut record = id.to_le_bytes().to_vec();
            record.extend([0, 0, 42, 0, 0, 0]);
            record.extend(0x50_u64.to_le_bytes());
            record.extend(own);
            assert_eq!(pages.push(1000, &record).unwrap(), Push::Stored);
        }
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        top.write_cpu(0, pages.finish().unwrap()).unwrap();
        top.finish().unwrap();
        Reader::open(Box::new(writer.finish().unwrap().into_inner()) as Box<dyn tracedat::reader::Source>)
            .unwrap()
    }

    #[test]
    fn exports_see_texts_and_the_bytes_of_what_cannot_be_understood() {
        let file = file();
        let job = Job::new(&|_| {});
        let recording = Recording::survey(&file, &job).unwrap();
        let seen = |record: &Record<'_>| {
            let printer = recording.events().of_record(record.data).unwrap();
            let index = printer.field_index(MESSAGE_FIELD).or(printer.field_index("raw")).unwrap();
            match printer.value(index, record.data) {
                Some(Ok(Value::Text(text) | Value::Bytes(text))) => {
                    (printer.name().to_owned(), text.to_vec())
                }
                other => panic!("{other:?}"),
            }
        };
        let mut by_time = Vec::new();
        recording
            .each_record(&job, |record| {
                by_time.push(seen(record));
                Ok(())
            })
            .unwrap();
        let mut of_stream = Vec::new();
        let mut records = recording.records(&recording.cpu_streams()[0]).unwrap();
        while let Some(record) = records.next_record().unwrap() {
            of_stream.push(seen(&record));
        }
        let expected = [
            ("bprint", &b"n=7"[..]),
            ("bputs", b"whole"),
            ("print", b"marked\n"),
            ("bprint", b"?"),
            ("odd", &[0x50, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_vec()));
        assert_eq!(by_time, expected);
        assert_eq!(of_stream, expected);
    }
}
