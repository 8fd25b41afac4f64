//! Format `chrome`: a trace in the JSON of Chrome's trace viewer, which Perfetto's viewer, speedscope and
//! many other programs read.
//!
//! The format is that of the document "Trace Event Format" of the Chromium project, in its form with an
//! object: `traceEvents` has all events, in any order. Times are microseconds with three decimals, so that no
//! nanosecond is lost.
//!
//! | in the recording | in the trace |
//! |---|---|
//! | any record | an instant (`i`) of its thread, or of its CPU if that idled; its fields are in `args` |
//! | who runs on a CPU | slices (`X`) of the CPU's thread in the process `CPUs` |
//! | interrupts and soft interrupts | slices of a thread beside it |
//! | what a thread does: it runs, waits for a CPU, is blocked | slices of a thread beside it: `NAME: states` |
//! | system calls | slices of the thread |
//! | functions of the kernel that call each other | slices of a thread beside it: `NAME: functions` |
//! | requests to block devices | slices in the process `Block devices` |
//! | wake-ups | flows (`s`, `f`) from who woke to the begin of the slice in which the woken thread runs |
//! | frequencies, idle states, sizes of memory, temperatures | counters (`C`) |
//! | losses | instants `events lost` of the CPU's thread, with their number |
//!
//! | file | subject |
//! |---|---|
//! | `lanes` | processes and threads of the trace |
//! | `slices` | what `tracks` makes of the records |
//! | `counters` | records that have values to be drawn |
//! | `args` | what an instant says of its record |
//! | `out` | events as JSON |
//!
//! The slices are those of the timeline in a page (`tracks`). Nothing is held but what goes on, rows and
//! names: memory does not grow with the recording. Names come at the end, when they are known.

mod args;
mod counters;
mod lanes;
mod out;
mod slices;

use std::io::Write as _;
use std::sync::Arc;

use self::args::{Args, Untold};
use self::counters::Counters;
use self::lanes::{Lane, Lanes};
use self::out::Out;
use crate::tracks::Slicer;
use ftrace_event::SymbolTable;
use recording::{
    Description, ExportError, Format, Job, MOST_RECORDS, MOST_TEXT, Recording, Seen, Snapshot, create_file,
};
use report::json::string;
use stdx::fast_map::FastMap;
use stdx::output::Directory;
use stdx::parallel;
use stdx::parallel::{Ended, HandOn};
use tracedat::FileOption;
use tracedat::reader::Batch;

/// The name of the file in the directory that it is written in.
const FILE: &str = "trace.json";

/// The last time in nanoseconds that all readers can tell from the next: they hold times as doubles.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// The format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chrome;

impl Format for Chrome {
    fn name(&self) -> &'static str {
        "chrome"
    }

    fn file(&self) -> Option<&'static str> {
        Some(FILE)
    }

    fn keeps(&self) -> &'static [Description] {
        Description::OF_ROWS
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        if !recording.counts_nanoseconds() {
            return Err(ExportError::Unsupported(format!(
                "the clock {} does not count nanoseconds, and Chrome's traces have no other times; record with another one (-C mono)",
                recording.clock_name()
            )));
        }
        let (mut file, path) = create_file(dir, FILE)?;
        let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(ExportError::io("write", &path));
        let (first, last) = recording.span().unwrap_or_default();
        let origin = if last > MOST_EXACT { first } else { 0 };
        write(&out::begin(&head(recording, origin)))?;
        let slicer = Slicer::new(recording);
        let symbols = Arc::clone(slicer.symbols());
        let (args, counters) = (Args::of(recording), Counters::of(recording.events()));
        let mut writer = Writer {
            slicer,
            lanes: Lanes::new(Snapshot::of(recording, job).as_ref(), recording),
            slices: Vec::new(),
            woken: FastMap::default(),
            flows: 0,
            spans: 0,
            recording,
        };
        let (mut untold, mut is_first) = (Untold::default(), true);
        let take = |(bytes, untold_here): (Vec<u8>, Untold)| {
            untold.add(untold_here);
            // The first event has no comma before it.
            let start = usize::from(is_first);
            is_first &= bytes.is_empty();
            write(bytes.get(start..).unwrap_or_default())
        };
        let write_events =
            || |chunk: Chunk, hand_on: &mut HandOn<'_, _>| chunk.write(&args, &counters, &symbols, hand_on);
        parallel::in_order(job.thread_count(), &write_events, take, |chunks| {
            let mut chunk = Chunk::new(origin);
            recording.each_record_or_gap(job, |seen| {
                writer.take(seen, &mut chunk);
                if chunk.is_full() {
                    chunks.give(std::mem::replace(&mut chunk, Chunk::new(origin)))?;
                }
                Ok(())
            })?;
            writer.finish(job, &mut chunk.out);
            Ok::<(), ExportError>(chunks.give(chunk)?)
        })?;
        untold.tell(job);
        write(out::END)
    }
}

/// Some events, and records of which there are none yet.
struct Chunk {
    out: Out,
    records: Batch<Lane>,
}

impl Chunk {
    fn new(origin: u64) -> Self {
        Self { out: Out::new(origin), records: Batch::default() }
    }

    fn is_full(&self) -> bool {
        self.out.size().max(self.records.size()) >= MOST_RECORDS
    }

    /// Makes events of the records. Hands on the text of all, and what of the records is not in it.
    fn write(
        self,
        args: &Args<'_>,
        counters: &Counters,
        symbols: &SymbolTable,
        hand_on: &mut HandOn<'_, (Vec<u8>, Untold)>,
    ) -> Result<(), Ended> {
        let Self { mut out, records } = self;
        let mut untold = Untold::default();
        for (record, lane) in records.iter() {
            untold.add(args.write(&record, lane, symbols, &mut out));
            counters.write(&record, &mut out);
            if out.size() >= MOST_TEXT {
                hand_on((out.take(), std::mem::take(&mut untold)))?;
            }
        }
        hand_on((out.take(), untold))
    }
}

/// What applies to the whole trace: an object. Numbers of 64 bits are texts: readers may not have them.
fn head(recording: &Recording<'_>, origin: u64) -> Vec<u8> {
    let machine = recording.file().facts().find_map(|fact| match fact {
        FileOption::Uname(text) => Some(text.clone()),
        _ => None,
    });
    let members = [
        ("writer", Some(format!("tracer-agent {}", env!("CARGO_PKG_VERSION")))),
        ("machine", machine),
        ("clock", Some(recording.clock_name())),
        ("time_origin_ns", Some(origin.to_string())),
        ("wall_offset_ns", recording.wall_offset().map(|offset| offset.to_string())),
    ];
    let mut head = Vec::new();
    for (name, value) in members {
        head.push(if head.is_empty() { b'{' } else { b',' });
        string(&mut head, name.as_bytes());
        head.push(b':');
        match value {
            Some(value) => string(&mut head, value.as_bytes()),
            None => head.extend_from_slice(b"null"),
        }
    }
    head.push(b'}');
    head
}

/// What an export knows while it goes through the records.
struct Writer<'r> {
    recording: &'r Recording<'r>,
    slicer: Slicer<'r>,
    lanes: Lanes,
    slices: Vec<crate::tracks::Slice>,
    /// Threads that were woken and did not run yet, by their numbers.
    woken: FastMap<u32, slices::Woken>,
    /// How many flows there are.
    flows: u64,
    /// How many spans of processes there are.
    spans: u64,
}

impl Writer<'_> {
    fn take(&mut self, seen: Seen<'_>, chunk: &mut Chunk) {
        // Records of events that are not described were found by the survey.
        let (Some(taken), Seen::Record(record)) = (self.slicer.take(seen), seen) else { return };
        self.lanes.look(record);
        self.write_slices(&mut chunk.out);
        chunk.records.push(record, usize::MAX, self.lanes.of_record(&taken));
    }

    /// Writes what goes on at the end, and the names.
    fn finish(mut self, job: &Job<'_>, out: &mut Out) {
        self.slicer.end();
        self.write_slices(out);
        let finished = self.slicer.finish();
        for (what, count) in finished.left_out {
            job.not_carried(what, count);
        }
        job.not_carried("slices that begin later than they did: times go back", finished.backwards);
        self.lanes.write_names(&finished, self.recording, out);
    }
}
