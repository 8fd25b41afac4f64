//! Format `perf-script`: the text of `perf script`, which `stackcollapse-perf.pl`, speedscope, Firefox
//! Profiler and many other programs read.
//!
//! A record is a line, as tools/perf/builtin-script.c of Linux 6.1 prints those of tracepoints for
//! `perf script --ns -F comm,pid,tid,cpu,time,event,trace,ip,sym,symoff,dso`:
//!
//! ```text
//!             bash   411/411   [001]   532.728860908:   sched:sched_switch: prev_comm=bash ...
//! ```
//!
//! In a recording with stacks, names begin at the left, the frames follow, the innermost first, and an empty
//! line:
//!
//! ```text
//! bash   411/411   [001]   532.728860908:   sched:sched_switch: prev_comm=bash ...
//! <tab>ffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])
//! ```
//!
//! Losses, of which `perf script` prints nothing, are comments. What a line cannot have is written as `\xHH`,
//! and so is a backslash that something like it follows; the first line says so. Comments behind it have the
//! recording's [provenance](tracedat::provenance). In a recording with named buffers, one names the buffer of
//! the lines that follow.
//!
//! | file | subject |
//! |---|---|
//! | `joined` | records of a CPU with their stacks |
//! | `chunk` | some of all CPUs, on their way to the threads that print them |
//! | `line` | the text of a record and of a frame |

mod chunk;
mod joined;
mod line;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write as _;

use self::chunk::Chunk;
use self::joined::{Entry, Joined, Shared};
use self::line::{Lines, Said};
use recording::{Description, ExportError, Format, Job, NotCarried, Processes, Recording, Snapshot, staging};
use stdx::escapes;
use stdx::output::Directory;
use stdx::parallel;
use stdx::parallel::HandOn;
use tracedat::reader::Record;

/// The name of the file in the directory that it is written in.
const FILE: &str = "perf-script.txt";
/// After how many records progress is told.
const STEP: u64 = 4096;

/// The format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfScript;

impl Format for PerfScript {
    fn name(&self) -> &'static str {
        "perf-script"
    }

    fn file(&self) -> Option<&'static str> {
        Some(FILE)
    }

    fn keeps(&self) -> &'static [Description] {
        &[
            Description::Choice,
            Description::Buffers,
            Description::Machine,
            Description::Threads,
            Description::ValueNames,
        ]
    }

    fn write(&self, recording: &Recording<'_>, dir: &Directory, job: &Job<'_>) -> Result<(), ExportError> {
        if !recording.counts_nanoseconds() {
            return Err(ExportError::Unsupported(format!(
                "the clock {} does not count nanoseconds, and perf script prints seconds; record with another one (-C mono)",
                recording.clock_name()
            )));
        }
        let (mut file, path) = staging::create_file(dir, FILE)?;
        let state = Snapshot::of(recording, job);
        let lines = Lines::new(recording);
        let processes = Processes::new(state.as_ref(), recording);
        let mut shared = Shared {
            lines: &lines,
            processes,
            stray_stacks: 0,
            later_stacks: 0,
            flagged: 0,
            with_preempt_count: 0,
        };
        writeln!(file, "{}", escapes::NOTE).map_err(ExportError::io("write", &path))?;
        let provenance = recording.provenance(state.as_ref().map(|state| &state.state));
        for (name, value) in recording::description::texts(&provenance, job) {
            writeln!(file, "{}{name} {value}", escapes::COMMENT).map_err(ExportError::io("write", &path))?;
        }
        let mut escaped = 0;
        let take = |(text, escaped_here): (Vec<u8>, u64)| {
            escaped += escaped_here;
            file.write_all(&text).map_err(ExportError::io("write", &path))
        };
        let worker = || |chunk: Chunk, hand_on: &mut HandOn<'_, _>| chunk.print(&lines, hand_on);
        parallel::in_order(job.thread_count(), &worker, take, |chunks| {
            let mut chunk = Chunk::default();
            merge(recording, job, &mut shared, |entry| {
                chunk.add(entry);
                if chunk.is_full() {
                    chunks.give(std::mem::take(&mut chunk))?;
                }
                Ok(())
            })?;
            Ok::<(), ExportError>(chunks.give(chunk)?)
        })?;
        let mut not_carried = NotCarried::default();
        not_carried.add("stacks whose event is not known, which are lines of their own", shared.stray_stacks);
        not_carried.add("texts that are not UTF-8, or that a line cannot have, which are escaped", escaped);
        not_carried.add("times of stacks, which have those of their events", shared.later_stacks);
        not_carried.add("flags of records, as of interrupts, which a line has no place for", shared.flagged);
        not_carried
            .add("preempt counts of records, which a line has no place for", shared.with_preempt_count);
        job.merge_not_carried(not_carried);
        Ok(())
    }
}

/// Gives the records of all CPUs by time, each with its stacks.
fn merge(
    recording: &Recording<'_>,
    job: &Job<'_>,
    shared: &mut Shared<'_, '_>,
    mut give: impl FnMut(&Entry) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let mut streams = Vec::new();
    let mut heads = BinaryHeap::new();
    for cpu_stream in recording.cpu_streams() {
        let mut stream = Joined::new(recording.records(cpu_stream)?);
        if let Some(time) = stream.fill(shared) {
            heads.push(Reverse((time, streams.len())));
        }
        streams.push(stream);
    }
    let mut done = 0;
    while let Some(Reverse((_, index))) = heads.pop() {
        let Some(stream) = streams.get_mut(index) else { break };
        let Some(entry) = stream.pop() else { break };
        give(&entry)?;
        done += entry.records;
        stream.recycle(entry);
        if done >= STEP {
            job.advance(done)?;
            done = 0;
        }
        if let Some(time) = stream.fill(shared) {
            heads.push(Reverse((time, index)));
        }
    }
    for of in recording.cpu_streams() {
        let Some(missed) = of.lost_at_end() else { continue };
        // A CPU that lost all of its events is in no buffer.
        let named = || recording.file().buffers().iter().position(|buffer| buffer.name == of.channel);
        let buffer = of.parts().first().copied().or_else(named).unwrap_or(0);
        let timestamp = of.counts.last.unwrap_or(0);
        let (cpu, data, endian) = (of.cpu, &[][..], recording.machine().endian);
        let behind = Record { reader: 0, buffer, cpu, timestamp, missed: None, data, endian };
        give(&Entry::of(&behind, Said::Lost(missed), None))?;
    }
    job.advance(done)
}
