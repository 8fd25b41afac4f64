//! Whole recordings, and less of each: what the viewer draws of less is what happened, or a part of it.
//!
//! Perfetto's viewer makes slices of events by rules (trace_processor's `syscall_tracker.h`,
//! `ftrace_parser.cc`, `slice_tracker.cc`, `process_tracker.cc`): an end goes to the innermost open slice of
//! its name, that of a marker, an interrupt or a reclaim to the innermost one; a slice without an end goes on
//! to the end of the trace; a number is another thread's after `task_newtask` and `sched_process_free`.

use std::collections::BTreeMap;

use super::table::messages;
use super::{FILE, Perfetto};
use analysis::world::{HOWS, Part, Span, UNEVEN_HOWS, What, World};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use recording::survey::TraceFile;
use recording::{Format as _, Job, Recording};
use stdx::output::Directory;
use tracedat::reader::Reader;

/// A field of a message.
enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

fn fields(mut message: &[u8]) -> Vec<(u32, Field<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).unwrap();
        match wire {
            WireType::Varint => fields.push((tag, Field::Number(decode_varint(&mut message).unwrap()))),
            WireType::LengthDelimited => {
                let len = decode_varint(&mut message).unwrap() as usize;
                let (bytes, rest) = message.split_at(len);
                fields.push((tag, Field::Bytes(bytes)));
                message = rest;
            }
            wire => skip_field(wire, tag, &mut message, DecodeContext::default()).unwrap(),
        }
    }
    fields
}

/// The fields of a message that are messages or texts.
pub(super) fn inside(message: &[u8], wanted: u32) -> Vec<&[u8]> {
    let of_tag = fields(message).into_iter().filter_map(|(tag, field)| match field {
        Field::Bytes(bytes) if tag == wanted => Some(bytes),
        _ => None,
    });
    of_tag.collect()
}

pub(super) fn number(message: &[u8], wanted: u32) -> u64 {
    let mut numbers = fields(message).into_iter().filter_map(|(tag, field)| match field {
        Field::Number(number) if tag == wanted => Some(number),
        _ => None,
    });
    numbers.next().unwrap_or(0)
}

/// An event as the viewer reads it.
pub(super) struct Event {
    time: u64,
    cpu: u64,
    thread: u64,
    /// Empty if it is a generic one.
    pub(super) name: &'static str,
    pub(super) message: Vec<u8>,
}

/// The events of a trace, in its order.
pub(super) fn read(trace: &[u8]) -> Vec<Event> {
    let messages = messages();
    let names: BTreeMap<u32, &'static str> =
        messages.iter().map(|(name, message)| (message.number, *name)).collect();
    let mut events = Vec::new();
    for bundle in inside(trace, 1).into_iter().flat_map(|packet| inside(packet, 1)) {
        let cpu = number(bundle, 1);
        for event in inside(bundle, 2) {
            let (time, thread) = (number(event, 1), number(event, 2));
            for (tag, field) in fields(event) {
                if let Field::Bytes(message) = field {
                    let name = names.get(&tag).copied().unwrap_or_default();
                    events.push(Event { time, cpu, thread, name, message: message.to_vec() });
                }
            }
        }
    }
    events
}

/// What the viewer draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Drawn {
    Of(What),
    Reclaim,
}

/// A slice that ended; without a result if no event of its own ended it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    what: Drawn,
    of: u64,
    begin: u64,
    end: u64,
    result: Option<i64>,
}

/// Kind, number, and for threads which one of those with the number.
type Track = (u8, u64, u64);

#[derive(Default)]
struct Viewer {
    /// How many threads with a number have ended.
    ended: BTreeMap<u64, u64>,
    /// What is open on a track, the innermost last, and since when.
    open: BTreeMap<Track, Vec<(Drawn, u64)>>,
    slices: Vec<Slice>,
}

impl Viewer {
    fn thread(&self, number: u64) -> Track {
        (0, number, self.ended.get(&number).copied().unwrap_or(0))
    }

    fn begin(&mut self, track: Track, what: Drawn, time: u64) {
        self.open.entry(track).or_default().push((what, time));
    }

    fn end(&mut self, track: Track, what: Option<Drawn>, time: u64, result: Option<i64>) {
        let open = self.open.entry(track).or_default();
        let Some(place) = open.iter().rposition(|(of, _)| what.is_none_or(|what| *of == what)) else {
            return;
        };
        let (what, begin) = open.remove(place);
        self.slices.push(Slice { what, of: track.1, begin, end: time, result });
    }

    fn take(&mut self, event: &Event) {
        let Event { time, cpu, thread, name, message } = event;
        let first = number(message, 1);
        let (of, irqs, softirqs) = (self.thread(*thread), (1, *cpu, 0), (2, *cpu, 0));
        let call = Drawn::Of(What::Call(first.cast_signed()));
        match *name {
            "sys_enter" => self.begin(of, call, *time),
            "sys_exit" => self.end(of, Some(call), *time, Some(number(message, 2).cast_signed())),
            "print" if inside(message, 2) == [b"E|0"] => self.end(of, None, *time, None),
            "mm_vmscan_direct_reclaim_begin" => self.begin(of, Drawn::Reclaim, *time),
            "mm_vmscan_direct_reclaim_end" => self.end(of, None, *time, Some(0)),
            "irq_handler_entry" => self.begin(irqs, Drawn::Of(What::Irq(first.cast_signed())), *time),
            "irq_handler_exit" => self.end(irqs, None, *time, Some(0)),
            "softirq_entry" => self.begin(softirqs, Drawn::Of(What::Softirq(first)), *time),
            "softirq_exit" => self.end(softirqs, None, *time, Some(0)),
            "task_newtask" => *self.ended.entry(first).or_default() += 1,
            "sched_process_free" => *self.ended.entry(number(message, 2)).or_default() += 1,
            _ => {}
        }
    }

    fn into_slices(mut self, end: u64) -> Vec<Slice> {
        for ((_, of, _), open) in self.open {
            let slices = open.into_iter().map(|(what, begin)| Slice { what, of, begin, end, result: None });
            self.slices.extend(slices);
        }
        self.slices.sort_unstable();
        self.slices
    }
}

fn slices(world: &World, part: &Part) -> Vec<Slice> {
    let file: TraceFile = Reader::open(Box::new(part.file(world)) as _).unwrap();
    let job = Job::new(&|_| {}).keep_going(true);
    let recording = Recording::survey(&file, &job).unwrap();
    let place = tempfile::tempdir().unwrap();
    let dir = Directory::open(place.path()).unwrap();
    Perfetto.write(&recording, &dir, &job).unwrap();
    let mut events = read(&std::fs::read(place.path().join(FILE)).unwrap());
    events.sort_by_key(|event| event.time);
    let mut viewer = Viewer::default();
    for event in &events {
        viewer.take(event);
    }
    viewer.into_slices(events.last().map_or(0, |event| event.time))
}

/// Whether a slice is what happened, or a part of it where no event of its own ends it.
fn is_in(span: &Span, slice: &Slice) -> bool {
    let is_its = slice.what == Drawn::Of(span.what) && [span.of, span.ends_on].contains(&slice.of);
    is_its
        && match slice.result {
            Some(result) => (span.begin, span.end, span.result) == (slice.begin, slice.end, Some(result)),
            None => span.begin == slice.begin && slice.end <= span.end,
        }
}

#[test]
fn slices_of_less_of_a_recording_are_those_of_all_of_it() {
    let mut wrong = BTreeMap::<String, (u64, String)>::new();
    let mut told = (0, 0);
    for seed in 1..=12_u64 {
        let mut world = World::new(seed * 0x9e37_79b9);
        world.run(500);
        let spans: Vec<Span> =
            world.spans().into_iter().filter(|span| !matches!(span.what, What::Request(_))).collect();
        let reclaims = world.reclaims();
        let is_reclaim = |slice: &Slice| {
            let (of, begin, end) = (slice.of, slice.begin, slice.end);
            slice.what == Drawn::Reclaim && reclaims.contains(&(of, begin, end))
        };
        // The viewer knows nothing of threads that get another number.
        let is_ended = |span: &&Span| span.result.is_some() && span.of == span.ends_on;
        let ended = spans.iter().filter(is_ended).count() + reclaims.len();
        let parts = [&HOWS[..], &UNEVEN_HOWS].concat();
        let parts = parts.into_iter().map(|how| (format!("{how:?}"), Part::less(&mut world, how)));
        let parts = parts.collect::<Vec<_>>().into_iter().chain(Part::without_each(&world));
        for (how, part) in parts.chain([("whole".to_owned(), Part::whole(&world))]) {
            let slices = slices(&world, &part);
            let known: Vec<&Slice> = slices.iter().filter(|slice| slice.result.is_some()).collect();
            if how == "whole" {
                assert_eq!(known.len(), ended);
            }
            told = (told.0 + known.len(), told.1 + ended);
            let is_part = |slice: &&Slice| is_reclaim(slice) || spans.iter().any(|span| is_in(span, slice));
            for slice in slices.iter().filter(|slice| !is_part(slice)) {
                wrong.entry(how.clone()).or_insert_with(|| (0, format!("{seed}: {slice:?}"))).0 += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // It is not unknown throughout.
    assert!(told.0 * 2 > told.1, "{told:?}");
}
