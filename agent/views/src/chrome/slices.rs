//! Slices, flows and losses: what `tracks` makes of the records.

use super::Writer;
use super::lanes::Lane;
use super::out::Out;
use crate::tracks::{Row, Slice, state};
use report::json::string;
use report::text::{signed, unsigned};

/// Who woke a thread, where and when, and when it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woken {
    from: Lane,
    at: u64,
    runs: u64,
}

impl Writer<'_> {
    /// Writes the slices that were made since the last time.
    pub(super) fn write_slices(&mut self, out: &mut Out) {
        let mut slices = std::mem::take(&mut self.slices);
        self.slicer.slices(&mut slices);
        for slice in slices.drain(..) {
            if let Some(row) = self.slicer.sink().rows.get(slice.row) {
                self.write_slice(row, slice, out);
            }
        }
        self.slices = slices;
    }

    fn write_slice(&mut self, row: Row, slice: Slice, out: &mut Out) {
        let first = self.slicer.first();
        let slicer = &self.slicer;
        let Some(lane) = self.lanes.of_row(row, |number| Some(slicer.thread(number)?.0)) else { return };
        let (start, end) = (first.saturating_add(slice.start), first.saturating_add(slice.end));
        let event = |out: &mut Out, category: &str, name: &[u8], key: &[u8], arg: i64| {
            let event = out.event(b'X', lane, start).lasts(end - start).category(category).name(name);
            event.args(|args| {
                if !key.is_empty() {
                    args.extend_from_slice(key);
                    signed(args, arg);
                }
            });
        };
        match row {
            Row::Cpu(_) => {
                let (tid, name) = self.name(slice.key);
                event(out, "cpu", name, b"\"tid\":", tid.into());
            }
            Row::Thread(number) => {
                let Some((name, key)) = doing(slice.key) else { return };
                let cpu = if slice.key == state::RUNS { slice.arg } else { 0 };
                event(out, "state", name, key, cpu);
                match slice.key {
                    state::WOKEN if slice.last != 0 => self.note_waker(number, slice.arg, (start, end)),
                    state::RUNS => self.write_flow(number, lane, start, out),
                    _ => {}
                }
            }
            Row::Calls(_) => {
                // What has not returned has no result.
                let key: &[u8] = if slice.last == 0 { b"" } else { b"\"ret\":" };
                event(out, "syscall", self.label(slice.key), key, slice.arg);
            }
            Row::Graph(..) | Row::IdleGraph(..) => event(out, "function", self.label(slice.key), b"", 0),
            Row::Irq(..) => event(out, "irq", self.label(slice.key), b"", 0),
            Row::Device(..) => event(out, "block", self.label(slice.key), b"", 0),
            Row::Spans(..) => event(out, "span", self.label(slice.key), b"", 0),
            Row::ProcessSpans(..) => {
                self.spans += 1;
                // Those of a process may overlap: each has an id.
                for (phase, time) in [(b'b', start), (b'e', end)] {
                    let event = out.event(phase, lane, time).category("span").name(self.label(slice.key));
                    event.number(b",\"id\":", self.spans).end();
                }
            }
            Row::Moments(_) => {
                let event = out.event(b'i', lane, start).category("span").name(self.label(slice.key));
                event.members(b",\"s\":\"t\"").end();
            }
            Row::Counter(..) => {
                let event = out.event(b'C', lane, start).category("counter").name(self.label(slice.key));
                event.args(|args| {
                    args.extend_from_slice(b"\"value\":");
                    signed(args, slice.arg);
                });
            }
            Row::Gap(_) => write_loss(lane, (start, end), (slice.arg, self.buffer(slice.key)), out),
            Row::Marks(_) | Row::Event(_) => {}
        }
    }

    /// Notes who woke a thread, and when, until it runs.
    fn note_waker(&mut self, number: u32, waker: i64, (at, runs): (u64, u64)) {
        // A thread, whose numbers count from 1, or else an interrupt of a CPU.
        let from = match u32::try_from(waker - 1) {
            Ok(waker) => match self.slicer.thread(waker).map(|(tid, _)| tid) {
                Some(tid) => self.lanes.of_states(waker, tid),
                None => return,
            },
            // Nobody knows who it was.
            Err(_) if waker == 0 => return,
            Err(_) => Lane::of_interrupts(u32::try_from(-1 - waker).unwrap_or(0)),
        };
        self.woken.insert(number, Woken { from, at, runs });
    }

    /// Writes the flow from who woke a thread to the slice in which it runs, which was written just now:
    /// Perfetto binds the end of a flow to a slice that is before it in the file.
    fn write_flow(&mut self, number: u32, lane: Lane, runs: u64, out: &mut Out) {
        let Some(flow) = self.woken.remove(&number).filter(|flow| flow.runs == runs) else { return };
        self.flows += 1;
        let begin = out.event(b's', flow.from, flow.at).category("wakeup").name(b"wakeup");
        begin.number(b",\"id\":", self.flows).end();
        let end = out.event(b'f', lane, runs).category("wakeup").name(b"wakeup").members(b",\"bp\":\"e\"");
        end.number(b",\"id\":", self.flows).end();
    }

    fn name(&self, thread: u32) -> (u32, &[u8]) {
        let Some((tid, name)) = self.slicer.thread(thread) else { return (0, b"") };
        match name {
            [] => (tid, self.recording.file().metadata().cmdlines.get(tid).unwrap_or_default()),
            name => (tid, name),
        }
    }

    fn label(&self, number: u32) -> &[u8] {
        self.slicer.label(number).as_bytes()
    }

    /// The name of a loss's buffer; empty for the top one, and where there was no room for it.
    fn buffer(&self, number: u32) -> &[u8] {
        if number == 0 { b"" } else { self.label(number) }
    }
}

/// What the slice of a thread that does something is called, and what is said of it. A thread that sleeps has
/// no slice, and neither has one of which it is not known.
fn doing(does: u32) -> Option<(&'static [u8], &'static [u8])> {
    Some(match does {
        state::RUNS => (b"Running", b"\"cpu\":"),
        state::WOKEN => (b"Runnable", b""),
        state::PREEMPTED => (b"Runnable (preempted)", b""),
        state::BLOCKED => (b"Blocked", b""),
        state::STOPPED => (b"Stopped", b""),
        _ => return None,
    })
}

/// A loss in a buffer, at the record that comes after it. The last record before was at `since`.
fn write_loss(lane: Lane, (since, at): (u64, u64), (count, buffer): (i64, &[u8]), out: &mut Out) {
    let event = out.event(b'i', lane, at).category("loss").name(b"events lost").members(b",\"s\":\"t\"");
    event.args(|args| {
        args.extend_from_slice(b"\"count\":");
        match count {
            // It is not known how many.
            0 => args.extend_from_slice(b"null"),
            count => signed(args, count),
        }
        args.extend_from_slice(b",\"since_ns\":\"");
        unsigned(args, since);
        args.push(b'"');
        if !buffer.is_empty() {
            args.extend_from_slice(b",\"buffer\":");
            string(args, buffer);
        }
    });
}
