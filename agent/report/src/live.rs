//! Printing the records of a recording that goes on.

use std::collections::HashMap;
use std::io::{self, Write};

use super::feed::{Input, Progressed};
use super::tasks::Learned;
use super::{Notice, Report};
use tracedat::reader::{LiveRecords, Source};

/// What was printed so far, and what lines of later records need to know of it.
#[derive(Debug, Default)]
pub struct Printed {
    pub(super) so_far: Progressed,
    /// Names that events have told, by file.
    pub(super) learned: Vec<HashMap<u32, Learned>>,
    pub(super) backwards: u64,
    pub(super) is_cut_off: bool,
}

impl Printed {
    /// Whether nothing is to be printed any more: the records are over, or those that follow are not
    /// selected, or nobody reads the output.
    pub fn is_over(&self) -> bool {
        self.so_far.is_done || self.is_cut_off
    }

    /// Notes that the reader of the output closed it.
    pub fn cut_off(&mut self) {
        self.is_cut_off = true;
    }
}

impl<S: Source> Report<'_, S> {
    /// Prints those records that are there by now, as records of the only file, and behind what was printed
    /// before. The file describes the events; names and symbols may be added to it between two calls. A call
    /// of the function graph whose return may follow is printed with the next call.
    ///
    /// # Errors
    /// As [`Report::run`].
    pub fn print_live(
        &self,
        records: &mut dyn LiveRecords,
        printed: &mut Printed,
        out: &mut dyn Write,
        notice: impl FnMut(Notice),
    ) -> io::Result<()> {
        self.print(Input::Live(records), printed, out, notice)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::TraceFile;
    use ftrace_event::Endian;
    use tracedat::reader::{ReadError, Record};
    use tracedat::{Buffer, Compression, Section, Setup, Writer, layout};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    /// A file without data that describes calls and returns of the function graph.
    fn file() -> TraceFile<Vec<u8>> {
        let field = |name: &str, offset: u32| {
            format!("\tfield:unsigned long {name};\toffset:{offset};\tsize:8;\tsigned:0;\n")
        };
        let format = |name: &str, id: u32, fields: &[&str]| {
            let own: String = (8..).step_by(8).zip(fields).map(|(at, name)| field(name, at)).collect();
            format!("name: {name}\nID: {id}\nformat:\n{COMMON}{own}\nprint fmt: \"%lx\", REC->func\n")
        };
        let entry = format("funcgraph_entry", 11, &["func", "depth"]);
        let exit = format("funcgraph_exit", 10, &["func", "depth", "calltime", "rettime"]);
        let (endian, compression) = (Endian::Little, Compression::None);
        let setup = Setup { endian, page_size: 4096, compression };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header_page = layout::header_page_text(4096);
        writer.section(Section::header_info(endian, &header_page, "").unwrap()).unwrap();
        writer.section(Section::ftrace_events(endian, &[&entry, &exit]).unwrap()).unwrap();
        let buffer = Buffer { name: "", clock: "mono", page_size: 4096 };
        writer.begin_buffer(buffer).unwrap().finish().unwrap();
        TraceFile::open("live", writer.finish().unwrap().into_inner()).unwrap()
    }

    fn record(id: u32, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = [id.to_le_bytes(), 7_u32.to_le_bytes()].concat();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    fn call(func: u64, depth: u64) -> Vec<u8> {
        record(11, &[func, depth])
    }

    fn ret(func: u64, depth: u64) -> Vec<u8> {
        record(10, &[func, depth, 1000, 3000])
    }

    /// Some of these records at a time.
    struct Parts<'a> {
        records: &'a [Vec<u8>],
        next: usize,
        end: usize,
    }

    impl LiveRecords for Parts<'_> {
        fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
            let Some(data) = self.records[..self.end].get(self.next) else { return Ok(None) };
            self.next += 1;
            let (timestamp, endian) = (1000 * self.next as u64, Endian::Little);
            Ok(Some(Record { reader: 0, buffer: 0, cpu: 0, timestamp, missed: None, data, endian }))
        }

        fn seek(&mut self, _: u64) {}

        fn goes_on(&self) -> bool {
            self.end < self.records.len()
        }
    }

    fn printed(records: &[Vec<u8>], step: usize) -> String {
        let files = [file()];
        let report = Report::new(&files);
        let (mut printed, mut out) = (Printed::default(), Vec::new());
        let mut parts = Parts { records, next: 0, end: 0 };
        while !printed.is_over() {
            parts.end = (parts.end + step).min(records.len());
            report.print_live(&mut parts, &mut printed, &mut out, |_| ()).unwrap();
        }
        assert_eq!(report.summary(printed).records, records.len() as u64);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_call_waits_for_its_return() {
        // A leaf, a call with another in it, and one that has not returned.
        let records = [call(1, 0), ret(1, 0), call(2, 0), call(3, 1), ret(3, 1), ret(2, 0), call(4, 0)];
        let whole = printed(&records, records.len());
        let count = |text: &str| whole.lines().filter(|line| line.ends_with(text)).count();
        assert_eq!((whole.lines().count(), count("();"), count("() {"), count("}")), (5, 2, 2, 1), "{whole}");
        for step in 1..records.len() {
            assert_eq!(printed(&records, step), whole, "{step} at a time");
        }
    }
}
