//! Profiles of pprof: `profile.proto` (github.com/google/pprof, proto/profile.proto), compressed with gzip.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::name::line;
use super::{Difference, FlameStacks, Frame, Kind, Unit};

/// Of which thread a sample is. pprof shows and selects by labels (`-tagfocus`, `-tagroot`).
const THREAD: &str = "thread";

/// What samples are of that are taken away: the label that pprof's own option `-diff_base` gives them.
const BASE: (&str, &str) = ("pprof::base", "true");

/// The message `Profile`, with the fields that are written.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    /// Indices of texts.
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
}

/// What values are, as indices of texts.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

/// A text of a sample, by indices of texts.
#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    id: u64,
    /// Indices of texts. There is no `system_name` (3): pprof would shorten a name that is both.
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// A profile.
pub(super) fn write(stacks: &FlameStacks, out: &mut dyn Write) -> io::Result<()> {
    let mut making = Making::new(stacks);
    for (frames, weight) in stacks.sorted() {
        making.add(&frames, value(weight), false);
    }
    making.write(out)
}

/// A profile of the difference.
pub(super) fn write_difference(of: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut making = Making::new(of.now);
    for (frames, before, now) in of.sorted() {
        for (value, is_base) in [(-value(before), true), (value(now), false)] {
            if value != 0 {
                making.add(&frames, value, is_base);
            }
        }
    }
    making.write(out)
}

fn value(weight: u128) -> i64 {
    i64::try_from(weight).unwrap_or(i64::MAX)
}

/// A profile that is made.
struct Making<'s> {
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<Frame<'s>, u64>,
}

impl<'s> Making<'s> {
    fn new(stacks: &FlameStacks) -> Self {
        let mut making =
            Self { profile: Profile::default(), texts: HashMap::new(), functions: HashMap::new() };
        // The first text is the empty one.
        making.text("");
        let (what, unit) = match stacks.unit() {
            Unit::Nanoseconds => ("time", "nanoseconds"),
            unit if unit.is_bytes() => (unit.name(), "bytes"),
            unit => (unit.name(), "count"),
        };
        let kind = ValueType { r#type: making.text(&line(what)), unit: making.text(unit) };
        making.profile.sample_type = vec![kind];
        making.profile.duration_nanos =
            stacks.duration_ns().map_or(0, |duration| i64::try_from(duration).unwrap_or(i64::MAX));
        (making.profile.period_type, making.profile.period) = (Some(kind), 1);
        making.profile.comment = vec![making.text(&line(stacks.title()))];
        making
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    /// The location of a frame: each function has one.
    fn location(&mut self, frame: Frame<'s>) -> u64 {
        if let Some(id) = self.functions.get(&frame) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(frame, id);
        let name = self.text(frame.name);
        let filename = self.text(if frame.kind == Kind::Kernel { "[kernel]" } else { "" });
        self.profile.function.push(Function { id, name, filename });
        self.profile.location.push(Location { id, line: vec![Line { function_id: id }] });
        id
    }

    fn add(&mut self, frames: &[Frame<'s>], value: i64, is_base: bool) {
        let (thread, frames) = match frames.split_first() {
            Some((first, rest)) if first.kind == Kind::Thread && !rest.is_empty() => (Some(first.name), rest),
            _ => (None, frames),
        };
        let mut label = Vec::new();
        let texts = thread.map(|thread| (THREAD, thread)).into_iter().chain(is_base.then_some(BASE));
        for (key, text) in texts {
            label.push(Label { key: self.text(key), str: self.text(text) });
        }
        let location_id = frames.iter().rev().map(|frame| self.location(*frame)).collect();
        self.profile.sample.push(Sample { location_id, value: vec![value], label });
    }

    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&self.profile.encode_to_vec())?;
        gzip.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::Format;
    use super::*;

    fn read(bytes: &[u8]) -> Profile {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        Profile::decode(plain.as_slice()).unwrap()
    }

    #[expect(clippy::type_complexity, reason = "a test looks at all of it")]
    /// The samples: frames from the innermost one, value, and labels.
    fn samples(profile: &Profile) -> Vec<(Vec<&str>, i64, Vec<(&str, &str)>)> {
        let text = |index: i64| profile.string_table[index as usize].as_str();
        let name = |id: &u64| text(profile.function[*id as usize - 1].name);
        let label = |label: &Label| (text(label.key), text(label.str));
        let told = |sample: &Sample| {
            let labels = sample.label.iter().copied().map(|of| label(&of)).collect();
            // The texts are the profile's.
            (sample.location_id.iter().map(name).collect(), sample.value[0], labels)
        };
        profile.sample.iter().map(told).collect()
    }

    fn stacks(title: &str, read: u64) -> FlameStacks {
        let frame = |kind, name| Frame { kind, name };
        let mut stacks = FlameStacks::new(title, Unit::Samples).lasting(5);
        stacks.add([frame(Kind::Thread, "p"), frame(Kind::User, "main"), frame(Kind::Kernel, "read")], read);
        stacks.add([frame(Kind::Thread, "p"), frame(Kind::User, "main")], 2);
        stacks
    }

    #[test]
    fn samples_have_their_frames_and_threads() {
        let mut out = Vec::new();
        Format::Pprof.write(&stacks("title", 3), &mut out).unwrap();
        let profile = read(&out);
        assert_eq!(profile.string_table[0], "");
        let thread = || vec![("thread", "p")];
        assert_eq!(samples(&profile), [(vec!["main"], 2, thread()), (vec!["read", "main"], 3, thread())]);
        assert_eq!((profile.duration_nanos, profile.period), (5, 1));
        let kind = profile.sample_type[0];
        let text = |index: i64| profile.string_table[index as usize].as_str();
        assert_eq!((text(kind.r#type), text(kind.unit)), ("samples", "count"));
    }

    #[test]
    fn what_was_before_is_taken_away() {
        let (before, mut now) = (stacks("old", 3), stacks("new", u64::MAX));
        now.add([Frame { kind: Kind::Thread, name: "only" }], 7);
        let mut out = Vec::new();
        let of = Difference { before: &before, now: &now, is_normalized: false };
        Format::Pprof.write_difference(&of, &mut out).unwrap();
        let base = || vec![("thread", "p"), ("pprof::base", "true")];
        let thread = || vec![("thread", "p")];
        assert_eq!(
            samples(&read(&out)),
            [
                (vec!["only"], 7, vec![]),
                (vec!["main"], -2, base()),
                (vec!["main"], 2, thread()),
                (vec!["read", "main"], -3, base()),
                (vec!["read", "main"], i64::MAX, thread()),
            ]
        );
    }
}
