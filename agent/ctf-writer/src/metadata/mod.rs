//! The metadata stream of a trace, in one of two languages: the text of CTF 1.8, and the JSON texts of CTF 2.
//! Data streams are the same bytes in both.
//!
//! | module | what |
//! |---|---|
//! | `tsdl` | CTF 1.8 |
//! | `fragments` | CTF 2 |

mod fragments;
mod tsdl;

use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::PathBuf;

use super::files::TraceDirectory;
use super::published::METADATA as NAME;
use super::schema::{Channel, Event, Trace};
use super::{WRITTEN_BY, shape, summary};
use recording::ExportError;
use recording::staging::create_file;

pub use fragments::FRAGMENT_VALUES_MAX;
#[cfg(test)]
pub(super) use tsdl::declare;

/// The same while it is written again.
const DRAFT: &str = ".metadata";

/// The metadata of a trace, which get longer as more is declared.
#[derive(Debug)]
pub(super) struct Metadata {
    file: File,
    path: PathBuf,
    dir: TraceDirectory,
    /// What is in it.
    told: Told,
    /// What is in it or in the metadata of the chunks before.
    told_ever: Told,
    /// Bytes of whole packets or fragments.
    len: u64,
}

/// The language of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// That of CTF 1.8.
    Tsdl,
    /// The JSON texts of CTF 2.
    Fragments,
}

impl Language {
    /// What the metadata begin with.
    fn head(self, trace: &Trace) -> String {
        match self {
            Self::Tsdl => tsdl::head(trace),
            Self::Fragments => fragments::head(trace),
        }
    }

    /// Declares a stream.
    fn stream(self, id: usize, channel: &Channel, text: &mut String) {
        match self {
            Self::Tsdl => tsdl::stream(id, channel, text),
            Self::Fragments => fragments::stream(id, channel, text),
        }
    }

    /// Declares an event of a stream.
    fn event(self, stream: (usize, &Channel), id: usize, event: &Event, text: &mut String) {
        match self {
            Self::Tsdl => tsdl::event(stream, id, event, text),
            Self::Fragments => fragments::event(stream, id, event, text),
        }
    }

    /// The text as it is stored.
    fn stored(self, text: String, uuid: [u8; 16]) -> Vec<u8> {
        match self {
            Self::Tsdl => tsdl::packets(&text, uuid),
            Self::Fragments => text.into_bytes(),
        }
    }
}

/// What metadata say, as far as a summary has it, and the shapes of the streams' events, if these are known.
/// `None` for what is no metadata, or damaged.
pub(super) fn read(bytes: &[u8]) -> Option<(summary::Trace, Option<Vec<shape::StreamShape>>)> {
    if bytes.first() == Some(&fragments::SEPARATOR) {
        return fragments::read(bytes);
    }
    let text = tsdl::unpack(bytes)?;
    Some((summary::of_text(&text), shape::of_text(&text)))
}

/// Whether metadata, or the begin of them, name an export as what wrote them.
pub fn names_export(metadata: &[u8]) -> bool {
    let marks = [format!("written_by = \"{WRITTEN_BY}\""), format!("\"written_by\":\"{WRITTEN_BY}\"")];
    marks.iter().any(|mark| metadata.windows(mark.len()).any(|found| found == mark.as_bytes()))
}

/// What somebody was told of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Whether it is anything.
    is_begun: bool,
    /// How many events of each stream that was declared.
    events: Vec<usize>,
}

impl Told {
    /// What was declared since the last time.
    fn more(&mut self, trace: &Trace) -> String {
        let language = trace.language;
        let mut text = if self.is_begun { String::new() } else { language.head(trace) };
        self.is_begun = true;
        for (id, channel) in trace.channels.iter().enumerate() {
            if id == self.events.len() {
                language.stream(id, channel, &mut text);
                self.events.push(0);
            }
            for (number, event) in channel.events.iter().enumerate().skip(self.events[id]) {
                language.event((id, channel), number, event, &mut text);
            }
            self.events[id] = channel.events.len();
        }
        text
    }
}

/// A number that is the same for traces with the same declarations of streams and events.
pub(super) fn sum_of_declarations(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    Told { is_begun: true, events: Vec::new() }.more(trace).hash(&mut hasher);
    hasher.finish()
}

impl Metadata {
    /// Creates the file, with nothing in it.
    pub(super) fn create(dir: &TraceDirectory) -> Result<Self, ExportError> {
        let (file, path) = create_file(&dir.kernel, NAME)?;
        let (told, told_ever) = (Told::default(), Told::default());
        Ok(Self { file, path, dir: dir.clone(), told, told_ever, len: 0 })
    }

    /// Goes on in another directory, with all of it again.
    pub(super) fn move_to(&mut self, dir: &TraceDirectory, trace: &Trace) -> Result<(), ExportError> {
        let told_ever = std::mem::take(&mut self.told_ever);
        *self = Self { told_ever, ..Self::create(dir)? };
        self.tell(trace)
    }

    /// Writes all of it again, in the place of what is there.
    pub(super) fn rewrite(&mut self, trace: &Trace) -> Result<(), ExportError> {
        // Readers take no file for a stream whose name begins with a dot.
        let dir = &self.dir.kernel;
        let failed = |action| ExportError::io(action, &self.path);
        let file = dir.replace(DRAFT).map_err(failed("write"))?;
        let path = dir.join(DRAFT);
        let (trace_dir, told_ever) = (self.dir.clone(), self.told_ever.clone());
        let mut new = Self { file, path, dir: trace_dir, told: Told::default(), told_ever, len: 0 };
        let written = new
            .write(trace)
            .and_then(|_| dir.rename(DRAFT.as_ref(), dir, NAME.as_ref()).map_err(failed("replace")));
        if let Err(error) = written {
            // It is ours, and has no name that anybody looks for.
            let _ = dir.remove(DRAFT);
            return Err(error);
        }
        *self = Self { path: dir.join(NAME), ..new };
        self.publish(trace, true);
        Ok(())
    }

    /// Writes what was declared since the last time, before the first event of it is written.
    pub(super) fn tell(&mut self, trace: &Trace) -> Result<(), ExportError> {
        if self.write(trace)? {
            self.publish(trace, false);
        }
        Ok(())
    }

    /// Gives whether there was anything to write.
    fn write(&mut self, trace: &Trace) -> Result<bool, ExportError> {
        let text = self.told.more(trace);
        if text.is_empty() {
            return Ok(false);
        }
        let bytes = trace.language.stored(text, trace.uuid);
        let written = self.file.write_all(&bytes).map_err(ExportError::io("write", &self.path));
        if written.is_ok() {
            self.len += bytes.len() as u64;
        } else {
            // Part of a packet or of a fragment would be no metadata.
            let _ = self.file.set_len(self.len);
        }
        written.map(|()| true)
    }

    /// Tells those who read meanwhile; `again` if it is another file than before.
    fn publish(&mut self, trace: &Trace, again: bool) {
        if let Some(publisher) = &self.dir.publisher {
            let new = self.told_ever.more(trace);
            publisher.metadata(self.len, again, &trace.language.stored(new, trace.uuid));
        }
    }
}

/// `01234567-89ab-...`
pub(super) fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::schema::{Clock, EnvValue, Field, Source};
    use super::super::stream::EventHeader;
    use super::super::types::{Integer, Type};
    use super::super::{Ctf, Machine};
    use super::*;

    /// A trace with fields of all types, contexts of all kinds, and both event headers.
    fn trace() -> Trace {
        let element = Integer::new(2, true);
        let types = [
            Type::Integer(Integer { network: true, ..Integer::hex(4) }),
            Type::String,
            Type::Strings { count: 2 },
            Type::TextArray { len: 16 },
            Type::Array { element, count: 3 },
            Type::Sequence { element },
        ];
        let field =
            |(ty, index): (Type, u32)| Field { name: format!("f{index}"), ty, source: Source::Record(0) };
        let own: Vec<Field> = types.clone().into_iter().zip(0..).map(field).collect();
        let channel = |name: &str, header| {
            let mut channel = Ctf::Kernel.channel(name, &[], Machine::default(), &mut BTreeSet::new());
            channel.header = header;
            channel.context = vec![("pid".to_owned(), Type::Integer(Integer::new(4, true)))];
            channel.shared = vec![("f0".to_owned(), types[0].clone())];
            channel.events = [(0, 1), (2, own.len())]
                .map(|(contexts, fields)| Event {
                    name: format!("a:\"{fields}\\"),
                    contexts,
                    fields: own[..fields].to_vec(),
                })
                .to_vec();
            channel
        };
        Trace {
            uuid: [0xab; 16],
            language: Language::Tsdl,
            env: vec![("tracer_major", EnvValue::Number(3)), ("hostname", "h \u{e9}".into())],
            provenance: (0..11).map(|number| (format!("recording_threads_{number}"), "[]".into())).collect(),
            clock: Clock {
                uuid: Some("boot".into()),
                description: "of a \"test\"".into(),
                offset: 5_000_000_007,
                absolute: true,
                shift: 0,
            },
            span: (0, 0),
            pauses: Vec::new(),
            channels: vec![channel("", EventHeader::Compact), channel("b", EventHeader::Large)],
        }
    }

    fn texts() -> [String; 2] {
        [Language::Tsdl, Language::Fragments]
            .map(|language| Told::default().more(&Trace { language, ..trace() }))
    }

    /// The JSON texts, each with its separator before it and a line's end behind it.
    fn fragments(text: &str) -> Vec<Value> {
        let all = text.strip_prefix('\x1e').unwrap().split('\x1e');
        all.map(|text| serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap()).collect()
    }

    #[test]
    fn both_languages_say_the_same() {
        let [tsdl, json] = texts();
        let (of_tsdl, shapes) = read(&Language::Tsdl.stored(tsdl, [1; 16])).unwrap();
        let (of_json, shapes_of_json) = read(&Language::Fragments.stored(json, [1; 16])).unwrap();
        assert_eq!((of_tsdl.version, of_json.version), ("1.8", "2"));
        assert_eq!(of_json.clock_offset_ns, 5_000_000_007);
        assert_eq!(shapes.as_ref().unwrap().len(), 2);
        assert_eq!(shapes_of_json, shapes);
        // The one reads no escapes.
        assert_eq!(
            of_json.env,
            [("tracer_major", "3"), ("hostname", "h \u{e9}")]
                .map(|(name, value)| (name.into(), value.into()))
        );
        assert_eq!((of_tsdl.env, of_tsdl.clock_offset_ns), (of_json.env, of_json.clock_offset_ns));
        assert_eq!(of_json.events, ["a:\"1\\", "a:\"6\\"].repeat(2));
        assert_eq!(of_tsdl.events.len(), 4);
    }

    #[test]
    fn fragments_come_in_the_order_that_they_need() {
        let [_, json] = texts();
        let fragments = fragments(&json);
        let kinds: Vec<&str> = fragments.iter().map(|of| of["type"].as_str().unwrap()).collect();
        let alias = "field-class-alias";
        let (stream, event) = ("data-stream-class", "event-record-class");
        let expected = [
            &["preamble", alias, alias, alias, "trace-class", "clock-class"][..],
            &[stream, event, event, stream, event, event],
        ];
        assert_eq!(kinds, expected.concat());
        assert_eq!(fragments[0]["uuid"], Value::from(vec![0xab; 16]));
        assert_eq!(fragments[4]["uid"], "abababab-abab-abab-abab-abababababab");
        // Its pieces come in their order, whichever the names have.
        let environment = json.split('\x1e').find(|text| text.contains("environment")).unwrap();
        let at = |name: &str| environment.find(&format!("\"recording_threads_{name}\"")).unwrap();
        assert!(environment.find("tracer_major").unwrap() < at("0") && at("2") < at("10"));
        let clock = &fragments[5];
        assert_eq!((&clock["origin"], &clock["uid"]), (&Value::from("unix-epoch"), &Value::from("boot")));
        assert_eq!(clock["offset-from-origin"], serde_json::json!({ "seconds": 5, "cycles": 7 }));
        let unknown = Clock { absolute: false, ..trace().clock };
        let text = Told::default().more(&Trace { language: Language::Fragments, clock: unknown, ..trace() });
        let clock = &self::fragments(&text)[5];
        assert_eq!((&clock["origin"], &clock["offset-from-origin"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn damaged_fragments_are_no_metadata() {
        let [_, json] = texts();
        assert!(read(json.as_bytes()).is_some());
        // What is cut is not whole, but between fragments.
        let whole: Vec<usize> = json.match_indices('\n').map(|(at, _)| at).collect();
        for end in
            (1..json.len()).step_by(3).filter(|end| !whole.contains(end) && !whole.contains(&(end - 1)))
        {
            let is_begun = json.as_bytes()[end - 1] == 0x1e;
            assert_eq!(read(&json.as_bytes()[..end]).is_some(), is_begun, "{end}");
        }
        let other = json.replace("event-record-header-compact", "er-header-compact");
        assert_eq!(read(other.as_bytes()).unwrap().1, None);
        let many = format!("\x1e[{}]", ",".repeat(1 << 18));
        assert!(read(many.as_bytes()).is_none());
    }

    #[test]
    fn uuids_are_texts() {
        assert_eq!(uuid_text([0xab; 16]), "abababab-abab-abab-abab-abababababab");
    }

    #[test]
    fn exports_are_known_by_their_writer() {
        let tsdl = format!("env {{\n\twritten_by = \"{WRITTEN_BY}\";\n}};");
        let fragment = format!("\x1e{{\"environment\":{{\"written_by\":\"{WRITTEN_BY}\"}}}}");
        assert!(names_export(tsdl.as_bytes()) && names_export(fragment.as_bytes()));
        assert!(!names_export(b"env { written_by = \"another\"; };") && !names_export(b""));
    }
}
