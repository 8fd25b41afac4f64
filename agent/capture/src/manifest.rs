//! What a trace file needs besides the data and the thread names, stored so that a crash does not lose it.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
};

use kernel::clock::ReadClock as _;
use serde::{Deserialize, Serialize};

use super::{
    ArchiveName, RecordedSet, Spool, SpoolError,
    sets::{self, SETS_MAX},
    state,
};
use kernel::proc;
use kernel::tracefs::{Tracefs, TracefsError};
use spec::{CHANNELS_MAX, StackKind, TraceClock, check_name};
use tracedat::initial_state::Host;
use tracedat::ledger::EventChoice;
use tracedat::reader::{Reader, Source};
use tracedat::{Compression, FileOption, layout};

/// The most bytes of the file: the formats of some ten thousand events.
const BYTES_MAX: u64 = 64 << 20;

/// Everything about a recording that is known when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Where the trace file goes.
    #[serde(with = "raw::path")]
    pub output: PathBuf,
    /// What an archive of several is called.
    pub archive: Option<ArchiveName>,
    /// The machine and its kernel, whose symbols' addresses hold for its boot only. Among the other members:
    /// recorders that knew the boot alone had it there.
    #[serde(flatten)]
    pub host: Host,
    /// tracefs' `events/header_page`.
    pub header_page: String,
    /// tracefs' `events/header_event`.
    pub header_event: String,
    /// Formats of the `ftrace` system.
    pub ftrace_events: Vec<String>,
    /// Formats of the other systems.
    pub systems: Vec<(String, Vec<String>)>,
    /// tracefs' `printk_formats`.
    #[serde(with = "raw")]
    pub printk_formats: Vec<u8>,
    /// Content of the UNAME option.
    pub uname: String,
    /// Content of the TRACECLOCK option; empty writes none.
    pub trace_clock: String,
    /// Name of the clock in the BUFFER option.
    pub clock_name: String,
    /// Nanoseconds to add to the clock for wall time, measured at the start.
    pub realtime_offset: i64,
    /// How wrong that can be, in nanoseconds.
    pub realtime_uncertainty: u64,
    /// Whether readers should show wall time.
    pub wall_time: bool,
    /// The channels that have data, in the order of their numbers.
    pub channels: Vec<RecordedChannel>,
    /// Which threads and CPUs are recorded, in a few words; none if all are.
    #[serde(default)]
    pub only: Vec<String>,
    /// The events that are recorded from the beginning on, and those of which not each firing is recorded, or
    /// that of more threads than others. A channel with sets of rings has its own name here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<EventChoice>,
    /// [`Ledger::marks_compat`](tracedat::ledger::Ledger::marks_compat).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks_compat: Option<bool>,
    /// One more than the highest CPU id.
    pub cpu_count: u32,
    /// Random number of this recording.
    pub trace_id: u64,
    /// Contents of the PROCMAPS options.
    #[serde(with = "raw::list")]
    pub proc_maps: Vec<Vec<u8>>,
    /// Compression of the data.
    #[serde(with = "spec::text")]
    pub compression: Compression,
    /// Whether the recording's own manifest was lost and this one is made of what its data and the running
    /// kernel show: then the clock's distance to wall time is unknown.
    #[serde(skip)]
    pub is_assumed: bool,
}

/// A channel of a recording, or one of its sets of rings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedChannel {
    /// Its index in the recording, which the spool's files are named by.
    pub number: u32,
    /// The name of its buffer in the trace file; empty for the buffer that every file has.
    pub name: String,
    /// Whether it keeps the newest events only.
    pub overwrite: bool,
    /// Which of a channel's sets of rings it is, where users or processes have rings of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<RecordedSet>,
    /// The contexts that all of its events have, those that are added later included: the format of an event
    /// that has nothing else. Empty if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub contexts: String,
    /// The stacks that follow events of it, those that are added later included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<StackKind>,
}

impl Manifest {
    /// Collects what the running kernel reports about itself. The event formats are for the caller to add.
    pub fn of_kernel(
        tracefs: &Tracefs,
        clock: TraceClock,
        output: &Path,
        compression: Compression,
    ) -> Result<Self, TracefsError> {
        let realtime = clock.realtime_offset();
        let available = tracefs.trace_clock().ok();
        Ok(Self {
            output: output.to_owned(),
            archive: None,
            host: state::host(),
            // Our pages have the usual size, whatever the kernel's own buffers were set to.
            header_page: layout::header_page_text(agent_ebpf::PAGE_SIZE as u32),
            header_event: tracefs.header_event()?,
            ftrace_events: tracefs.ftrace_formats()?.into_iter().map(|format| format.text).collect(),
            systems: Vec::new(),
            printk_formats: tracefs.printk_formats()?,
            uname: proc::uname_text(),
            trace_clock: clock.trace_clock_text(available.as_deref()).unwrap_or_default(),
            clock_name: clock.name().to_owned(),
            realtime_offset: realtime.offset_ns,
            realtime_uncertainty: realtime.uncertainty_ns,
            wall_time: false,
            channels: Vec::new(),
            only: Vec::new(),
            choices: Vec::new(),
            marks_compat: None,
            cpu_count: 1,
            trace_id: random_id(),
            proc_maps: Vec::new(),
            compression,
            is_assumed: false,
        })
    }

    /// Writes the manifest; complete or not at all.
    pub fn store(&self, spool: &Spool) -> Result<(), SpoolError> {
        let write = |file: &mut std::fs::File| {
            let mut out = std::io::BufWriter::new(file);
            self.encode(&mut out)?;
            out.flush()
        };
        spool.files().write_whole("manifest", write).map_err(SpoolError::io("write", spool.file("manifest")))
    }

    /// Writes it as in a spool.
    fn encode(&self, out: impl std::io::Write) -> std::io::Result<()> {
        let stored = Stored { version: VERSION, manifest: std::borrow::Cow::Borrowed(self) };
        Ok(serde_json::to_writer(out, &stored)?)
    }

    /// Its bytes, as in a spool.
    pub(super) fn encoded(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes).map(|()| bytes)
    }

    /// Reads the manifest of an unfinished recording.
    pub fn load(spool: &Spool) -> Result<Self, SpoolError> {
        let bytes = Self::bytes_in(spool)?;
        let damaged = |what| SpoolError::Damaged { path: spool.file("manifest"), what };
        Self::decode(without_padding(&bytes)).map_err(damaged)
    }

    /// The file of an unfinished recording.
    pub(super) fn bytes_in(spool: &Spool) -> Result<Vec<u8>, SpoolError> {
        let bytes = spool.files().read_within("manifest", BYTES_MAX);
        bytes.map_err(SpoolError::io("read", spool.file("manifest")))
    }

    /// Whether a loss of power took the manifest: the file is empty, ends too early, or has zeros for blocks
    /// that were not written.
    pub(super) fn is_lost(bytes: &[u8]) -> bool {
        let read = serde_json::from_slice::<Version>(without_padding(bytes));
        read.is_err_and(|error| error.is_eof() || error.is_syntax())
    }

    /// The channel of this number.
    pub(super) fn channel(&self, number: u32) -> Option<&RecordedChannel> {
        self.channels.iter().find(|channel| channel.number == number)
    }

    /// Whether all channels keep the newest events only: then nothing is stored before the end.
    pub(super) fn overwrites(&self) -> bool {
        !self.channels.is_empty() && self.channels.iter().all(|channel| channel.overwrite)
    }

    /// The buffers that the trace file has, in their order, with the channels that are in them. The buffer
    /// without a name is always the first, as readers expect it.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (&str, Option<&RecordedChannel>)> {
        let has_top = self.channels.iter().any(|channel| channel.name.is_empty());
        let empty = (!has_top).then_some(("", None));
        let (top, named): (Vec<_>, Vec<_>) =
            self.channels.iter().partition(|channel| channel.name.is_empty());
        let channels = top.into_iter().chain(named);
        empty.into_iter().chain(channels.map(|channel| (channel.name.as_str(), Some(channel))))
    }

    /// Whether a trace file is of this recording.
    pub(super) fn is_of<S: Source>(&self, file: &Reader<S>) -> bool {
        file.facts().any(|fact| matches!(fact, FileOption::TraceId(id) if *id == self.trace_id))
    }

    /// Gives sets of rings the names of those whose they are, as the spool says. The others have no data.
    pub(super) fn resolve_sets(&mut self, spool: &Spool) {
        sets::resolve_noted(&mut self.channels, spool);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        // A manifest of another version has other members.
        match serde_json::from_slice(bytes) {
            Ok(Version { version: VERSION }) => {}
            Err(error) if error.is_eof() => return Err("it ends too early".to_owned()),
            _ => return Err("it was not written by this version of tracer-agent".to_owned()),
        }
        let stored: Stored<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let manifest = stored.manifest.into_owned();
        let numbers: BTreeSet<u32> = manifest.channels.iter().map(|channel| channel.number).collect();
        let names: BTreeSet<&str> = manifest.channels.iter().map(|channel| &*channel.name).collect();
        if numbers.len().min(names.len()) != manifest.channels.len() {
            return Err("two of its channels have the same number or name".to_owned());
        }
        if manifest.channels.len() > CHANNELS_MAX * SETS_MAX {
            return Err("it has more channels than any recording".to_owned());
        }
        names.into_iter().try_for_each(check_name).map_err(|why| format!("the name of a channel: {why}"))?;
        Ok(manifest)
    }
}

/// Without the zeros that a file system puts behind what it has stored.
fn without_padding(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end).unwrap_or_default()
}

/// The version of the file.
const VERSION: u32 = 3;

/// What every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The file: a JSON object.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    version: u32,
    manifest: std::borrow::Cow<'a, Manifest>,
}

/// Bytes that are a text, nearly always: a string in JSON, or else a list of numbers.
pub(super) mod raw {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Raw {
        fn of(bytes: &[u8]) -> Self {
            String::from_utf8(bytes.to_vec()).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
        }

        fn into_bytes(self) -> Vec<u8> {
            match self {
                Self::Text(text) => text.into_bytes(),
                Self::Bytes(bytes) => bytes,
            }
        }
    }

    pub(in super::super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        Raw::of(bytes).serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Raw::deserialize(from).map(Raw::into_bytes)
    }

    pub(super) mod list {
        use super::{Deserialize, Deserializer, Raw, Serializer};

        pub(in super::super) fn serialize<S: Serializer>(all: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
            to.collect_seq(all.iter().map(|bytes| Raw::of(bytes)))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<Vec<u8>>, D::Error> {
            Ok(Vec::<Raw>::deserialize(from)?.into_iter().map(Raw::into_bytes).collect())
        }
    }

    pub(in super::super) mod path {
        use std::{
            ffi::OsString,
            os::unix::ffi::{OsStrExt as _, OsStringExt as _},
            path::{Path, PathBuf},
        };

        use super::{Deserialize, Deserializer, Raw, Serialize, Serializer};

        pub(in super::super::super) fn serialize<S: Serializer>(
            path: &Path,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            Raw::of(path.as_os_str().as_bytes()).serialize(to)
        }

        pub(in super::super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<PathBuf, D::Error> {
            Ok(PathBuf::from(OsString::from_vec(Raw::deserialize(from)?.into_bytes())))
        }
    }
}

/// A number that no other recording has. The hasher's keys come from the system's random numbers.
fn random_id() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn sample() -> Manifest {
        Manifest {
            output: PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
                b"/tmp/a \xff.dat",
            )),
            archive: Some(ArchiveName { begin_ns: 5, end_ns: None, number: 7 }),
            host: Host { boot_id: "0c2f".into(), ..Host::default() },
            header_page: "page".into(),
            header_event: "event".into(),
            ftrace_events: vec!["a".into(), "b".into()],
            systems: vec![("sched".into(), vec!["x".into()]), ("empty".into(), vec![])],
            printk_formats: b"\xff".to_vec(),
            uname: "Linux".into(),
            trace_clock: "[mono]".into(),
            clock_name: "mono".into(),
            realtime_offset: -12,
            realtime_uncertainty: 40,
            wall_time: true,
            channels: vec![RecordedChannel {
                number: 1,
                name: "a".into(),
                overwrite: true,
                contexts: "x".into(),
                stacks: vec![StackKind::User],
                ..Default::default()
            }],
            only: vec!["CPUs 0-3".into()],
            choices: vec![EventChoice { event: "a:b".into(), is_sampled: true, ..EventChoice::default() }],
            marks_compat: Some(false),
            cpu_count: 4,
            trace_id: u64::MAX,
            proc_maps: vec![b"1 1 x\n".to_vec()],
            compression: Compression::zstd(3),
            is_assumed: false,
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        assert_eq!(Manifest::decode(&sample().encoded().unwrap()), Ok(sample()));
    }

    #[test]
    fn channels_are_told_apart() {
        let twice = |number, name: &str| {
            let mut manifest = sample();
            manifest.channels.push(RecordedChannel { number, name: name.into(), ..Default::default() });
            let manifest = std::borrow::Cow::Owned(manifest);
            Manifest::decode(&serde_json::to_vec(&Stored { version: VERSION, manifest }).unwrap()).is_ok()
        };
        assert_eq!([twice(2, "b"), twice(1, "b"), twice(2, "a")], [true, false, false]);
        assert_eq!([twice(2, "\n"), twice(2, &"x".repeat(201)), twice(2, " x")], [false, false, false]);
    }

    #[test]
    fn the_buffer_without_a_name_is_the_first() {
        let channel =
            |number, name: &str| RecordedChannel { number, name: name.into(), ..Default::default() };
        let buffers = |channels: Vec<RecordedChannel>| {
            let manifest = Manifest { channels, ..sample() };
            let number = |(name, channel): (&str, Option<&RecordedChannel>)| {
                (name.to_owned(), channel.map(|channel| channel.number))
            };
            manifest.buffers().map(number).collect::<Vec<_>>()
        };
        let of = |name: &str, number| (name.to_owned(), number);
        assert_eq!(buffers(vec![channel(0, "a")]), [of("", None), of("a", Some(0))]);
        assert_eq!(buffers(vec![channel(0, "a"), channel(1, "")]), [of("", Some(1)), of("a", Some(0))]);
    }

    #[test]
    fn the_boot_is_where_manifests_without_a_host_have_it() {
        let mut stored: serde_json::Value = serde_json::from_slice(&sample().encoded().unwrap()).unwrap();
        let members = stored["manifest"].as_object_mut().unwrap();
        members.retain(|name, _| !["hostname", "release", "version", "product_uuid"].contains(&&**name));
        assert_eq!(Manifest::decode(stored.to_string().as_bytes()).unwrap().host, sample().host);
        assert_eq!(stored["manifest"]["boot_id"], "0c2f");
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample().encoded().unwrap();
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn other_versions_are_refused() {
        for other in [&b"TASPOOL1\x05\0\0"[..], br#"{"version":4,"manifest":{}}"#, b"[]"] {
            let error = Manifest::decode(other).unwrap_err();
            assert!(error.contains("this version"), "{error}");
        }
        let error = Manifest::decode(br#"{"version":3,"manifest":{}}"#).unwrap_err();
        assert!(error.contains("missing field"), "{error}");
    }
}
