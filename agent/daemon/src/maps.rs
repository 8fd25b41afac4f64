//! Maps that the daemon counts in: those of sessions and of triggers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    descriptors::{Held, OfUser},
    sessions::{
        check_location, check_probe_name,
        spec::{self, Tracks},
    },
};
use ::spec::{MapSpec, RecordingSpec, ScopeSpec, What};
use api::map::{CountedMap, MapOwner, Question};
use api::{Code, ControlError};
use capture::{CaptureOptions, Counting, HandOver, counted_map};
use plan::Plan;

type Answer<T = ()> = Result<T, ControlError>;

/// The longest text of a question.
const TEXT_MAX: usize = 64 << 10;

/// What each map takes beside its keys and values: the sets of threads (512 KB each), and the names of
/// threads (1 MB).
const BYTES_OF_ANY: u64 = 3 << 20;

/// A map that can be loaded.
pub(super) struct Planned {
    options: CaptureOptions,
    tracks: Tracks,
}

/// A map while there is one.
#[derive(Debug)]
pub(super) struct Map {
    counting: Counting,
    tracks: Tracks,
    held: Held,
    bytes: u64,
}

/// A map on its way to another daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedMap {
    pub(super) name: String,
    tracks: Tracks,
    held: u64,
    bytes: u64,
}

/// What a user's question asks for, whatever the machine is.
///
/// # Errors
/// It makes no sense, or a user must not ask it.
pub(super) fn read(uid: u32, question: &Question, max_keys: Option<u32>) -> Answer<MapSpec> {
    if question.text().len() > TEXT_MAX {
        return Err(refused("the text is longer than 64 KB"));
    }
    let spec = match question {
        Question::Count(text) => MapSpec::of_events(text),
        Question::Time(text) => MapSpec::of_times(text),
    };
    let spec = MapSpec { max_keys, ..spec.map_err(|error| refused(error.to_string()))? };
    check_rules(uid, &spec)?;
    Ok(spec)
}

/// Whether a user may count such events: those that rules of sessions may have.
fn check_rules(uid: u32, spec: &MapSpec) -> Answer {
    if uid == 0 {
        return Ok(());
    }
    std::iter::once(&spec.event).chain(&spec.from).try_for_each(|rule| match &rule.what {
        What::Events(_) => Ok(()),
        What::Kprobe(text) | What::Kretprobe(text) => {
            let (name, location) = text.split_once('=').unwrap_or(("", text));
            if !name.is_empty() {
                check_probe_name(name)?;
            }
            check_location(location).map_err(|error| {
                let why = format!("{}; more (arguments, patterns) is for root's maps", error.message);
                ControlError::new(Code::NotSupported, why)
            })
        }
        _ => Err(ControlError::new(
            Code::NotSupported,
            "probes of programs and libraries are for root's maps: the program is looked up with root's rights",
        )),
    })
}

impl Planned {
    /// Plans a map on this kernel, which counts events of the tracked threads.
    ///
    /// # Errors
    /// This kernel does not have what it is about.
    pub(super) fn make(spec: MapSpec, tracks: Tracks) -> Answer<Self> {
        let recording = RecordingSpec {
            channels: Vec::new(),
            maps: vec![spec],
            scope: ScopeSpec { track: tracks.clone(), changes: true, ..ScopeSpec::default() },
            ..RecordingSpec::default()
        };
        let Plan { options, .. } = Plan::make(&recording).map_err(|error| refused(error.to_string()))?;
        Ok(Self { options, tracks })
    }

    /// Bytes of its memory.
    pub(super) fn bytes(&self) -> u64 {
        let cpus = self.options.possible_cpus;
        self.options.maps.iter().map(|map| map.sizes.bytes(cpus)).fold(BYTES_OF_ANY, u64::saturating_add)
    }

    /// Loads and attaches it. It does not count yet.
    ///
    /// # Errors
    /// The kernel refuses it, or the user has too many descriptors.
    pub(super) fn load(self, descriptors: &OfUser) -> Answer<Map> {
        let bytes = self.bytes();
        let Self { options, tracks } = self;
        let held = descriptors.take(options.descriptors())?;
        let counting = Counting::create(options)
            .map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))?;
        let left_out = counting.maps().left_out().first().map(|of| format!("{}: {}", of.event, of.reason));
        match left_out {
            Some(why) => Err(ControlError::new(Code::StartKernel, why)),
            None => Ok(Map { counting, tracks, held, bytes }),
        }
    }
}

impl Map {
    /// Bytes of its memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts from now on.
    pub(super) fn start(&mut self) {
        self.counting.start();
    }

    /// Lets several count nothing from now on, all from the same moment on.
    pub(super) fn stop_all<'m>(all: impl IntoIterator<Item = &'m mut Self>) {
        Counting::pause_all(all.into_iter().map(|map| &mut map.counting));
    }

    /// Empties it. It goes on counting if it does.
    pub(super) fn clear(&mut self) {
        self.counting.clear();
    }

    /// Whether it could count events of other threads.
    ///
    /// # Errors
    /// Values that mean nothing on this machine.
    pub(super) fn check_tracks(&self, wanted: &Tracks) -> Answer {
        let mut changed =
            wanted.iter().filter(|(attribute, values)| self.tracks.get(attribute) != Some(values));
        changed.try_for_each(|(attribute, values)| spec::tracking(*attribute, Some(values)).map(drop))
    }

    /// Counts events of other threads from now on.
    pub(super) fn track(&mut self, wanted: &Tracks) -> Answer {
        let attributes: BTreeSet<_> = self.tracks.keys().chain(wanted.keys()).copied().collect();
        for attribute in attributes {
            let values = wanted.get(&attribute);
            if values != self.tracks.get(&attribute) {
                let tracking = spec::tracking(attribute, values.map(Vec::as_slice))?;
                let failed =
                    |error: &dyn std::fmt::Display| ControlError::new(Code::Daemon, error.to_string());
                self.counting.track(tracking).map_err(|error| failed(&error))?;
            }
        }
        self.tracks.clone_from(wanted);
        Ok(())
    }

    /// How many events it has counted, those included that have no key.
    pub(super) fn events(&self) -> u64 {
        self.counting.maps().events(0)
    }

    /// How many events the kernel kept from it; 0 where it does not count that.
    pub(super) fn skipped(&self) -> u64 {
        self.counting.maps().skipped(0).unwrap_or_default()
    }

    /// What it has counted: so many keys at most.
    pub(super) fn contents(
        &self,
        (name, question): (&str, &str),
        (uid, of): (u32, MapOwner),
        most: usize,
    ) -> Option<CountedMap> {
        let maps = self.counting.maps();
        let elapsed = self.counting.counted();
        let (options, contents) = maps.all().next()?;
        Some(CountedMap {
            map: name.to_owned(),
            question: Some(question.to_owned()),
            uid: Some(uid),
            of: Some(of),
            // Its users may be others than those to whom the kernel shows its symbols.
            ..counted_map(options, &contents, most, (elapsed, false), || None)
        })
    }

    /// Gives it to another daemon. It counts meanwhile.
    pub(super) fn hand_over(self, name: String) -> Answer<(HandedMap, HandOver)> {
        let Self { counting, tracks, held, bytes } = self;
        let handed = HandedMap { name, tracks, held: held.count(), bytes };
        let counting = counting.hand_over();
        let counting = counting.map_err(|error| ControlError::new(Code::Daemon, error.to_string()))?;
        Ok((handed, counting))
    }

    /// Goes on with one of another daemon.
    pub(super) fn take_over((handed, from): (HandedMap, HandOver), descriptors: &OfUser) -> Answer<Self> {
        let HandedMap { name: _, tracks, held, bytes } = handed;
        let counting = Counting::take_over(from);
        let counting = counting.map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))?;
        Ok(Self { counting, tracks, held: descriptors.keep(held), bytes })
    }
}

fn refused(why: impl Into<String>) -> ControlError {
    ControlError::new(Code::InvalidMap, why)
}
