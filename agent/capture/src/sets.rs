//! Sets of rings: where each user or process has rings of its own in a channel (`agent_ebpf::sets`).
//!
//! To the spool, the readers and the files a set is a channel: the first has the number of its channel, the
//! others come `CHANNELS_MAX` apart. Whose a set is is known once it has been taken, and noted in the spool
//! before its first data: what is found there after a crash, and what is read meanwhile, has a name then.

use std::collections::BTreeSet;

use agent_ebpf::sets::{self, Owner};
use serde::{Deserialize, Serialize};

use super::{RecordedChannel, Spool, SpoolError, StreamId, stream::index_of};
use attach::RingSets;
use attach::ring::SharedArray;
use spec::OwnRings;
use stdx::output::Directory;

/// The most rings of a channel whose sets are many: on a machine with more CPUs there are fewer sets.
pub(super) const RINGS_MAX: usize = 1024;
/// The most sets of users, and of processes; the last of them is for all others.
const OF_USERS: usize = 8;
const OF_PROCESSES: usize = 32;
/// The fewest.
const LEAST: usize = 4;
/// More sets than any channel has.
pub(super) const SETS_MAX: usize = 64;

const _: () = assert!(OF_PROCESSES <= SETS_MAX && OF_USERS <= SETS_MAX);

/// The sets of rings of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetOptions {
    /// Whose they are.
    pub of: OwnRings,
    /// How many there are. The last is for whoever finds none.
    pub count: u32,
    /// What the channel is called in a trace.
    pub trace_name: String,
}

impl SetOptions {
    /// Those of a channel on a machine with so many CPUs.
    pub fn new(of: OwnRings, cpus: usize, trace_name: &str) -> Self {
        let most = match of {
            OwnRings::User => OF_USERS,
            OwnRings::Process => OF_PROCESSES,
        };
        let count = (RINGS_MAX / cpus.max(1)).clamp(LEAST, most) as u32;
        Self { of, count, trace_name: trace_name.to_owned() }
    }

    /// What the programs are told of them.
    pub(super) fn of_programs(&self) -> RingSets {
        let by = match self.of {
            OwnRings::User => sets::BY_USER,
            OwnRings::Process => sets::BY_PROCESS,
        };
        RingSets { by, count: self.count }
    }
}

/// A set of rings of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSet {
    /// The name of the channel's buffer, without what tells the set from others.
    pub buffer: String,
    /// What the channel is called in a trace.
    pub trace_name: String,
    /// Whose the sets are.
    pub of: OwnRings,
    /// Whose this one is, if that is known; nobody's own if it is the last.
    pub owner: Option<SetOwner>,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// Whose a set is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetOwner {
    /// The user's or process's id.
    pub id: u32,
    /// When it had its first event, by the recording's clock.
    pub since_ns: u64,
    /// The name of the thread that had it.
    pub comm: String,
}

impl SetOwner {
    fn of(owner: &Owner) -> Option<Self> {
        let id = u32::try_from(owner.key.checked_sub(1)?).ok()?;
        let comm = owner.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self { id, since_ns: owner.since, comm: String::from_utf8_lossy(comm).into_owned() })
    }
}

/// The set number `set`, if it is taken.
pub(super) fn owner_of(owners: &SharedArray<Owner>, set: u32) -> Option<SetOwner> {
    SetOwner::of(&owners.read(set as usize)?)
}

/// The sets of a channel as they are before they are taken; the channel itself if it has none.
pub(super) fn recorded_sets(channel: RecordedChannel, sets: Option<&SetOptions>) -> Vec<RecordedChannel> {
    let Some(SetOptions { of, count, trace_name }) = sets else { return vec![channel] };
    let recorded = |set: u32| {
        let is_last = set + 1 == *count;
        let name =
            if is_last { format!("{}:others", channel.name) } else { format!("{}:set-{set}", channel.name) };
        let (buffer, trace_name) = (channel.name.clone(), trace_name.clone());
        RecordedChannel {
            number: StreamId::in_set(channel.number, set, 0).channel,
            name,
            set: Some(RecordedSet { buffer, trace_name, of: *of, owner: None, is_last }),
            ..channel.clone()
        }
    };
    (0..*count).map(recorded).collect()
}

/// Gives sets the names of those whose they are. What is nobody's has no events, and is left out; `owner` is
/// asked by the number that the set has among channels.
pub(super) fn resolve(channels: &mut Vec<RecordedChannel>, owner: impl Fn(u32) -> Option<SetOwner>) {
    let mut names: BTreeSet<String> = channels.iter().map(|channel| channel.name.clone()).collect();
    channels.retain_mut(|channel| {
        let Some(set) = channel.set.as_mut().filter(|set| !set.is_last && set.owner.is_none()) else {
            return true;
        };
        let Some(owner) = owner(channel.number) else { return false };
        let whose = match set.of {
            OwnRings::User => "uid",
            OwnRings::Process => "pid",
        };
        let name = format!("{}:{whose}-{}", set.buffer, owner.id);
        set.owner = Some(owner);
        // A channel of its own may be called so.
        if names.insert(name.clone()) {
            channel.name = name;
        }
        true
    });
}

/// Leaves out sets that are nobody's and in which nothing was counted, of channels that have others.
pub(super) fn leave_out_others(channels: &mut Vec<RecordedChannel>, has_some: impl Fn(u32) -> bool) {
    let of_owners = channels.iter().filter(|of| of.set.as_ref().is_some_and(|set| !set.is_last));
    let owned: BTreeSet<usize> = of_owners.map(|of| index_of(of.number)).collect();
    channels.retain(|of| {
        let is_last = of.set.as_ref().is_some_and(|set| set.is_last);
        !is_last || !owned.contains(&index_of(of.number)) || has_some(of.number)
    });
}

fn file_of(StreamId { channel, cpu }: StreamId) -> String {
    format!("owner{channel}-cpu{cpu}")
}

/// Notes in the spool whose data are about to come.
pub(super) fn note(files: &Directory, stream: StreamId, owner: &SetOwner) -> Result<(), SpoolError> {
    let name = file_of(stream);
    let written = files.write_whole(&name, |file| Ok(serde_json::to_writer(file, owner)?));
    written.map_err(SpoolError::io("write", files.join(&name)))
}

/// What was noted of the set with this number among channels.
pub(super) fn noted(files: &Directory, number: u32) -> Option<SetOwner> {
    /// More than a note has.
    const LONGEST: u64 = 4096;
    let prefix = format!("owner{number}-cpu");
    let names = files.names().ok()?.into_iter().filter_map(|name| name.into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).find_map(|name| {
        let mut text = String::new();
        let file = files.open_file(&name).ok()?;
        std::io::Read::read_to_string(&mut std::io::Read::take(file, LONGEST), &mut text).ok()?;
        // One that a crash cut short says nothing.
        serde_json::from_str(&text).ok()
    })
}

/// The same for all sets of a recording whose process is gone.
pub(super) fn resolve_noted(channels: &mut Vec<RecordedChannel>, spool: &Spool) {
    resolve(channels, |number| noted(spool.files(), number));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn channels(names: [&str; 2]) -> Vec<RecordedChannel> {
        let sets = SetOptions { of: OwnRings::User, count: 3, trace_name: "t".into() };
        let channel =
            |number, name: &str| RecordedChannel { number, name: name.into(), ..Default::default() };
        let mut all = recorded_sets(channel(1, names[0]), Some(&sets));
        all.extend(recorded_sets(channel(0, names[1]), None));
        all
    }

    fn names(channels: &[RecordedChannel]) -> Vec<(u32, &str)> {
        channels.iter().map(|channel| (channel.number, channel.name.as_str())).collect()
    }

    #[test]
    fn a_set_is_called_after_whose_it_is() {
        let mut all = channels(["a", "b"]);
        assert_eq!(names(&all), [(1, "a:set-0"), (65, "a:set-1"), (129, "a:others"), (0, "b")]);
        let owner = SetOwner { id: 1000, since_ns: 5, comm: "x".into() };
        resolve(&mut all, |number| (number == 65).then(|| owner.clone()));
        assert_eq!(names(&all), [(65, "a:uid-1000"), (129, "a:others"), (0, "b")]);
        assert_eq!(all[0].set.as_ref().unwrap().owner, Some(owner));
    }

    #[test]
    fn no_two_buffers_have_one_name() {
        let mut all = channels(["a", "a:uid-7"]);
        resolve(&mut all, |_| Some(SetOwner { id: 7, since_ns: 0, comm: String::new() }));
        let found: BTreeSet<&str> = all.iter().map(|channel| channel.name.as_str()).collect();
        assert_eq!(found.len(), all.len());
    }

    #[test]
    fn machines_of_many_cpus_have_fewer_sets() {
        let count = |of, cpus| SetOptions::new(of, cpus, "").count;
        assert_eq!([1, 64, 128, 4096].map(|cpus| count(OwnRings::Process, cpus)), [32, 16, 8, 4]);
        assert_eq!([1, 128, 4096].map(|cpus| count(OwnRings::User, cpus)), [8, 8, 4]);
    }
}
