//! What a recording is: facts about it, and a name by which it is the same wherever it is exported.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use recording::Recording;
use tracedat::{FileOption, Uname, initial_state};

/// Characters of [`About::id`].
const ID_LEN: usize = 16;

/// Facts about a recording that several tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// 16 hexadecimal digits that are the same for the same recording, whatever its file is called and
    /// however it is compressed: of a hash of the facts here, the trace id, the time that is covered, and
    /// what each CPU recorded and lost.
    pub(super) id: String,
    /// The name of the file.
    pub(super) file: Option<String>,
    /// The program that recorded, and its version.
    pub(super) recorder: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) release: Option<String>,
    pub(super) version: Option<String>,
    pub(super) machine: Option<String>,
    pub(super) boot_id: Option<String>,
    pub(super) clock: String,
    /// Whether it is known how many events are missing.
    pub(super) lost_is_exact: bool,
}

impl About {
    pub(super) fn of(recording: &Recording<'_>, file_name: Option<&str>) -> Self {
        let file = recording.file();
        // A damaged one is counted where the threads are written.
        let host = file.host().ok().flatten();
        let Uname { system: _, node, release, version, machine } =
            Uname::of(file.facts()).unwrap_or_default();
        let known = |of_state: fn(&initial_state::Host) -> &String, of_file: String| {
            let told = host.as_ref().map(of_state).cloned();
            told.into_iter().chain([of_file]).find(|text| !text.is_empty())
        };
        let recorder = file.facts().find_map(|fact| match fact {
            FileOption::Version(text) => Some(text.trim().to_owned()),
            _ => None,
        });
        let lost_is_exact = recording.cpu_streams().iter().all(|stream| stream.lost_is_exact);
        let mut about = Self {
            id: String::new(),
            file: file_name.map(str::to_owned),
            recorder,
            hostname: known(|host| &host.hostname, node),
            release: known(|host| &host.release, release),
            version: known(|host| &host.version, version),
            machine: known(|host| &host.machine, machine),
            boot_id: known(|host| &host.boot_id, String::new()),
            clock: recording.clock_name(),
            lost_is_exact,
        };
        about.id = about.identify(recording);
        about
    }

    fn identify(&self, recording: &Recording<'_>) -> String {
        let trace_id = recording.file().facts().find_map(|fact| match fact {
            FileOption::TraceId(id) => Some(*id),
            _ => None,
        });
        let machine = (&self.hostname, &self.boot_id, &self.clock, recording.wall_offset());
        let mut facts = format!("{trace_id:?} {machine:?} {:?}\n", recording.span());
        for stream in recording.cpu_streams() {
            let (first, last) = (stream.counts.first, stream.counts.last);
            let counts = (stream.counts.events, stream.lost(), &stream.by_id);
            // Writing to a string does not fail.
            let _ = writeln!(facts, "{:?} {} {first:?} {last:?} {counts:?}", stream.channel, stream.cpu);
        }
        let mut id = String::new();
        for byte in Sha256::digest(facts.as_bytes()).iter().take(ID_LEN / 2) {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }
}
