//! What a recording is written as: the trace of the channels that all share, and one of each user or process
//! that has rings of its own, in the directories that LTTng has for them.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{CtfOptions, CtfOutput, begun::Noted};
use crate::{Manifest, RecordedChannel, RecordedSet, sets};
use ctf_writer::{
    CallStacks, ChannelContexts, Chunk, Ctf, KERNEL, Owner, Process, Publication, Shapes, Taken,
    TraceSession, TraceState, TraceWriter,
};
use kernel::{cpus::Cpus, proc};
use recording::survey::lost_by_cpu;
use recording::{ExportError, NotCarried, TraceFile};
use spec::{CHANNELS_MAX, OwnRings, StackKind};
use stdx::output::Directory;
use tracedat::initial_state::InitialState;
use tracedat::ledger::{Ledger, Pause};
use tracedat::reader::Record;

/// The traces of a recording.
#[derive(Debug)]
pub(super) struct Parts {
    format: (Ctf, Shapes),
    /// No event is from before this time, by the recording's clock.
    begin_ns: u64,
    place: Place,
    /// That of the channels that all share, if there are such.
    shared: Option<TraceWriter>,
    owned: BTreeMap<Owner, TraceWriter>,
    /// Where the records of each buffer go.
    routes: Vec<Route>,
    /// What describes the events of the chunk, if that has changed since it began.
    newest: Option<TraceFile>,
    /// What is added to the recording's clock for wall time.
    realtime_offset: i64,
    pauses: Vec<Pause>,
    /// Up to when others may have read all there is, by the recording's clock, if they read it in the order
    /// of time.
    told_until: Option<u64>,
    /// How many streams they were told of.
    streams_told: usize,
    /// Records in traces that are gone.
    written_before: u64,
    not_carried: NotCarried,
    /// Whether a trace began here that should have gone on.
    has_begun_again: bool,
}

/// What the traces are as a chunk begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PartsState {
    shared: Option<TraceState>,
    owned: Vec<(Owner, TraceState)>,
}

impl PartsState {
    /// Whether it can be that of a recording: it is in the spool, which is its owner's.
    fn is_of(&self, manifest: &Manifest) -> bool {
        let cpus = Cpus::read().map_or(0, |cpus| cpus.table_len() as u32).min(manifest.cpu_count);
        let owners: BTreeSet<&Owner> = self.owned.iter().map(|(owner, _)| owner).collect();
        let streams: usize = self.owned.iter().map(|(_, state)| state.streams()).sum();
        // One channel has the state.
        self.shared.iter().all(|state| state.is_within(CHANNELS_MAX + 1, cpus))
            && owners.len() == self.owned.len()
            && owners.len() <= sets::SETS_MAX
            && self.owned.iter().all(|(_, state)| state.is_within(CHANNELS_MAX, cpus))
            && streams <= sets::RINGS_MAX.saturating_mul(CHANNELS_MAX)
    }
}

/// Where the records of a buffer go.
#[derive(Clone, Debug)]
enum Route {
    Shared,
    /// To whoever the set belongs to, once that is known.
    Set {
        number: u32,
        set: RecordedSet,
        /// The fields of the contexts that all of its events have.
        fields: String,
        stacks: CallStacks,
        owner: Option<Owner>,
    },
}

/// The stacks that follow events of a channel.
fn stacks(channel: &RecordedChannel) -> CallStacks {
    let has = |kind| channel.stacks.contains(&kind);
    CallStacks { kernel: has(StackKind::Kernel), user: has(StackKind::User) }
}

/// A chunk of the recording.
#[derive(Debug)]
pub(super) struct Place {
    /// Its directory.
    pub(super) dir: Directory,
    /// Who is told what is written, if its streams have indexes.
    pub(super) published: Option<Arc<Publication>>,
    /// The spool of what is in it, which says whose sets are.
    pub(super) spool: Directory,
    session: Option<TraceSession>,
    /// The directories in it, by their paths.
    dirs: BTreeMap<String, Directory>,
    /// What the spool has of it, unless it is a snapshot.
    noted: Option<Noted>,
    /// How many chunks are before it. The directories of the first one are in that of the trace.
    before: u64,
}

impl Place {
    pub(super) fn new(
        (dir, options): (Directory, &CtfOptions),
        published: Option<Arc<Publication>>,
        (spool, noted, before): (Directory, Option<Noted>, u64),
    ) -> Self {
        let (session, dirs) = (options.session.clone(), BTreeMap::new());
        Self { dir, published, spool, session, dirs, noted, before }
    }

    /// What the spool has of it.
    pub(super) fn noted(&mut self) -> Option<&mut Noted> {
        self.noted.as_mut()
    }

    /// What the trace of this path is a part of, whose directory is one of these.
    fn chunk<'c>(&'c self, dir: &'c Directory, path: &'c str) -> Chunk<'c> {
        let published = self.published.as_ref().map(|publication| (publication, path));
        Chunk { dir, before: self.before, published, session: self.session.as_ref() }
    }

    /// Creates the directory of a trace, and those above it that are not there.
    fn create_dir(&mut self, path: &[String]) -> Result<Directory, ExportError> {
        let mut dir = self.dir.clone();
        for (depth, name) in path.iter().enumerate() {
            let path = path[..=depth].join("/");
            if let Some(there) = self.dirs.get(&path) {
                dir = there.clone();
                continue;
            }
            dir = dir.create_dir(name).map_err(ExportError::io("create", dir.join(name)))?;
            // Before anything is in it: what is found there later is known to be of this chunk.
            if let Some(noted) = self.noted.as_mut().filter(|_| self.before == 0 && depth == 0) {
                noted.add_place(name, &dir).map_err(ExportError::io("note", dir.path()))?;
            }
            self.dirs.insert(path, dir.clone());
        }
        Ok(dir)
    }
}

impl Parts {
    /// Begins the traces of a recording, of which this head describes the events, or goes on with those of a
    /// chunk before, or of this one, that another process has written.
    pub(super) fn create(
        output: &CtfOutput,
        shapes: Shapes,
        (head, manifest): (&TraceFile, &Manifest),
        (place, before): (Place, Option<&PartsState>),
    ) -> Result<Self, ExportError> {
        let known = before.filter(|before| before.is_of(manifest));
        let mut parts = Self {
            format: (output.options.naming, shapes),
            begin_ns: output.begin_ns,
            place,
            shared: None,
            owned: BTreeMap::new(),
            routes: routes(manifest),
            newest: None,
            realtime_offset: manifest.realtime_offset,
            pauses: Vec::new(),
            told_until: output.options.live.then_some(0),
            streams_told: 0,
            written_before: 0,
            not_carried: NotCarried::default(),
            has_begun_again: known.is_none() && before.is_some(),
        };
        // A file has the buffer without a name in any case; a trace has it only if it is recorded.
        let wanted = |name: &str| match manifest.channels.iter().find(|of| of.name == name) {
            Some(of) => {
                of.set.is_none().then(|| ChannelContexts { fields: &of.contexts, stacks: stacks(of) })
            }
            None => manifest.channels.is_empty().then(ChannelContexts::default),
        };
        let is_owned = !manifest.channels.is_empty() && manifest.channels.iter().all(|of| of.set.is_some());
        if !is_owned {
            let dir = parts.place.create_dir(&[KERNEL.to_owned()])?;
            let chunk = parts.place.chunk(&dir, KERNEL);
            let (naming, shapes) = &parts.format;
            let begin = (head, parts.begin_ns);
            let format = || (*naming, shapes.clone());
            let state = known.and_then(|known| known.shared.as_ref());
            let goes_on =
                state.map(|state| TraceWriter::go_on(format(), begin, chunk, (state, None), &wanted));
            let writer = goes_on.transpose()?.flatten();
            parts.has_begun_again |= known.is_some() && writer.is_none();
            parts.shared = Some(match writer {
                Some(writer) => writer,
                None => TraceWriter::create(format(), begin, chunk, &wanted)?,
            });
        }
        for (owner, state) in known.into_iter().flat_map(|known| &known.owned) {
            let path = owner.path();
            let dir = parts.place.create_dir(&path)?;
            let path = path.join("/");
            let chunk = parts.place.chunk(&dir, &path);
            let (naming, shapes) = &parts.format;
            let begin = (head, parts.begin_ns);
            let format = || (*naming, shapes.clone());
            let writer = TraceWriter::go_on(format(), begin, chunk, (state, Some(owner)), &|_| None)?;
            parts.has_begun_again |= writer.is_none();
            let writer = match writer {
                Some(writer) => writer,
                None => TraceWriter::of_programs(format(), begin, chunk, owner)?,
            };
            parts.owned.insert(owner.clone(), writer);
        }
        Ok(parts)
    }

    /// What the traces are at the begin of the next chunk, as [`TraceWriter::state`].
    pub(super) fn state(&self) -> PartsState {
        let owned = self.owned.iter().filter(|(owner, _)| !has_ended(owner));
        PartsState {
            shared: self.shared.as_ref().map(TraceWriter::state),
            owned: owned.map(|(owner, writer)| (owner.clone(), writer.state())).collect(),
        }
    }

    /// What traces are that were begun in this chunk, or that go on in it with `before`.
    pub(super) fn state_of_begin(&self, before: Option<&PartsState>) -> PartsState {
        let shared = before.and_then(|before| before.shared.as_ref());
        let owned: BTreeMap<&Owner, &TraceState> = before
            .into_iter()
            .flat_map(|before| &before.owned)
            .map(|(owner, state)| (owner, state))
            .collect();
        let of_owner = |(owner, writer): (&Owner, &TraceWriter)| {
            (owner.clone(), writer.state_of_begin(owned.get(owner).copied()))
        };
        PartsState {
            shared: self.shared.as_ref().map(|writer| writer.state_of_begin(shared)),
            owned: self.owned.iter().map(of_owner).collect(),
        }
    }

    /// The chunk that is written.
    pub(super) fn place(&mut self) -> &mut Place {
        &mut self.place
    }

    /// Whether a trace began here that should have gone on.
    pub(super) fn has_begun_again(&self) -> bool {
        self.has_begun_again
    }

    /// Goes on in another chunk.
    pub(super) fn next_chunk(
        &mut self,
        place: Place,
        (head, manifest): (&TraceFile, &Manifest),
    ) -> Result<(), ExportError> {
        self.place = place;
        self.newest = None;
        self.pauses.clear();
        if let Some(writer) = &mut self.shared {
            let dir = self.place.create_dir(&[KERNEL.to_owned()])?;
            writer.next_chunk(self.place.chunk(&dir, KERNEL), head)?;
        }
        let gone: Vec<Owner> = self.owned.keys().filter(|owner| has_ended(owner)).cloned().collect();
        for mut writer in gone.iter().filter_map(|owner| self.owned.remove(owner)) {
            self.written_before += writer.events();
            self.not_carried.merge(writer.take_not_carried());
        }
        for (owner, writer) in &mut self.owned {
            let path = owner.path();
            let dir = self.place.create_dir(&path)?;
            writer.next_chunk(self.place.chunk(&dir, &path.join("/")), head)?;
        }
        // Sets stay whose they are, but those of traces that are gone have to be found again.
        let before = std::mem::replace(&mut self.routes, routes(manifest));
        for (route, before) in self.routes.iter_mut().zip(before) {
            if let (Route::Set { owner, .. }, Route::Set { owner: Some(known), .. }) = (route, before)
                && self.owned.contains_key(&known)
            {
                *owner = Some(known);
            }
        }
        Ok(())
    }

    /// The directories of the chunk that LTTng calls domains.
    pub(super) fn domains(&self) -> impl Iterator<Item = (&str, &Directory)> {
        self.place.dirs.iter().filter(|(path, _)| !path.contains('/')).map(|(path, dir)| (path.as_str(), dir))
    }

    /// Writes a record. `head` describes the events.
    pub(super) fn record(
        &mut self,
        record: &Record<'_>,
        streams: &[(usize, u32)],
        head: &TraceFile,
    ) -> Result<Taken, ExportError> {
        if let Some(until) = &mut self.told_until {
            *until = (*until).max(record.timestamp);
        }
        let newest = self.newest.take();
        let found = self.find(record.buffer, streams, newest.as_ref().unwrap_or(head));
        self.newest = newest;
        found?;
        match self.writer_of(record.buffer) {
            Some(writer) => writer.record(record),
            None => Ok(Taken::Unknown),
        }
    }

    fn writer_of(&mut self, buffer: usize) -> Option<&mut TraceWriter> {
        let writer = match self.routes.get(buffer)? {
            Route::Shared => self.shared.as_mut(),
            Route::Set { owner, .. } => self.owned.get_mut(owner.as_ref()?),
        }?;
        begin_streams(writer, self.told_until);
        Some(writer)
    }

    /// Makes sure that there is a trace for the records of a buffer.
    fn find(&mut self, buffer: usize, streams: &[(usize, u32)], head: &TraceFile) -> Result<(), ExportError> {
        let Some(Route::Set { number, set, fields, stacks, owner: owner @ None }) =
            self.routes.get_mut(buffer)
        else {
            return Ok(());
        };
        let whose = owner_of(set, *number, &self.place.spool, self.realtime_offset);
        *owner = Some(whose.clone());
        let (trace_name, like) = (set.trace_name.clone(), set.buffer.clone());
        let (fields, stacks) = (fields.clone(), *stacks);
        let writer = match self.owned.entry(whose.clone()) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => {
                let path = whose.path();
                let dir = self.place.create_dir(&path)?;
                let path = path.join("/");
                let chunk = self.place.chunk(&dir, &path);
                let (naming, shapes) = &self.format;
                let begin = (head, self.begin_ns);
                let mut writer = TraceWriter::of_programs((*naming, shapes.clone()), begin, chunk, &whose)?;
                writer.know_pauses(&self.pauses);
                begin_streams(&mut writer, self.told_until);
                free.insert(writer)
            }
        };
        let name = head.buffers().get(buffer).map_or("", |of| of.name.as_str());
        let contexts = ChannelContexts { fields: &fields, stacks };
        writer.add_channel((buffer, name), (&trace_name, &like), contexts)?;
        writer.open(streams.iter().copied().filter(|(of, _)| *of == buffer))
    }

    /// Creates the files of streams that are recorded, of which it is known whose they are.
    pub(super) fn open(&mut self, streams: &[(usize, u32)]) -> Result<(), ExportError> {
        for &(buffer, cpu) in streams {
            if let Some(writer) = self.writer_of(buffer) {
                writer.open([(buffer, cpu)])?;
            }
        }
        Ok(())
    }

    fn all(&mut self) -> impl Iterator<Item = &mut TraceWriter> {
        self.shared.iter_mut().chain(self.owned.values_mut())
    }

    /// Takes the descriptions of events from another head of the same chunk, which has more of them.
    pub(super) fn describe(&mut self, head: TraceFile) {
        self.all().for_each(|writer| writer.describe(&head));
        self.newest = Some(head);
    }

    /// The same from what describes the events from now on, and writes all metadata again.
    pub(super) fn describe_again(&mut self, head: &TraceFile) -> Result<(), ExportError> {
        self.newest = None;
        self.all().try_for_each(|writer| writer.describe_again(head))
    }

    pub(super) fn put_late_state(&mut self, head: &TraceFile) -> Result<(), ExportError> {
        let until = self.told_until;
        self.all().try_for_each(|writer| {
            begin_streams(writer, until);
            writer.put_late_state(head)
        })
    }

    /// Writes a state of later than the begin of the chunk.
    pub(super) fn put_later_state(&mut self, state: &InitialState) -> Result<(), ExportError> {
        let until = self.told_until;
        self.all().try_for_each(|writer| {
            begin_streams(writer, until);
            writer.put_later_state(state)
        })
    }

    pub(super) fn know_pauses(&mut self, pauses: &[Pause]) {
        pauses.clone_into(&mut self.pauses);
        self.all().for_each(|writer| writer.know_pauses(pauses));
    }

    pub(super) fn pause(&mut self) -> Result<(), ExportError> {
        self.all().try_for_each(TraceWriter::pause)
    }

    /// Lets all events from before `until`, by the recording's clock, be read: none from before then comes.
    pub(super) fn flush(&mut self, until: u64) -> Result<(), ExportError> {
        self.all().try_for_each(|writer| writer.flush(until))
    }

    /// The same, and tells those who read in the order of time that nothing from before this time comes any
    /// more. Where there are new streams, all others have a packet: without one nobody asks for them.
    pub(super) fn tell_silence(&mut self, until: u64) -> Result<(), ExportError> {
        let until = until.max(self.told_until.unwrap_or(0));
        self.told_until = Some(until);
        let streams = self.all().map(|writer| writer.stream_count()).sum();
        let told = std::mem::replace(&mut self.streams_told, streams);
        let marked = told != 0 && told != streams;
        self.all().try_for_each(|writer| writer.tell_silence(until, marked))
    }

    /// Ends the chunk, as [`TraceWriter::end_chunk`]. `head` describes the events; `closed` knows whose the
    /// sets are of which nothing was stored.
    pub(super) fn end_chunk(
        &mut self,
        (end, ledger): (u64, &Ledger),
        (head, streams): (&TraceFile, &[(usize, u32)]),
        closed: &Manifest,
    ) -> Result<(), ExportError> {
        let newest = self.newest.take();
        let found = self.find_lost(ledger, (newest.as_ref().unwrap_or(head), streams), closed);
        self.newest = newest;
        found?;
        self.all().try_for_each(|writer| writer.end_chunk(end, ledger))
    }

    /// Makes sure that there is a trace for what was lost in sets of rings, also where nothing else is: LTTng
    /// has the traces of all users and processes that were there.
    fn find_lost(
        &mut self,
        ledger: &Ledger,
        (head, streams): (&TraceFile, &[(usize, u32)]),
        closed: &Manifest,
    ) -> Result<(), ExportError> {
        let lost = lost_by_cpu(ledger);
        let has_lost: BTreeSet<&str> =
            lost.iter().filter(|(_, lost)| **lost != 0).map(|((buffer, _), _)| *buffer).collect();
        for (index, buffer) in head.buffers().iter().enumerate() {
            if !has_lost.contains(buffer.name.as_str()) {
                continue;
            }
            if let Some(Route::Set { number, set, owner: None, .. }) = self.routes.get_mut(index)
                && let Some(known) = closed.channel(*number).and_then(|of| of.set.clone())
            {
                set.owner = known.owner;
            }
            self.find(index, streams, head)?;
        }
        Ok(())
    }

    /// Records that were written.
    pub(super) fn events(&self) -> u64 {
        let now = self.shared.iter().chain(self.owned.values()).map(TraceWriter::events);
        self.written_before + now.sum::<u64>()
    }

    pub(super) fn leave_out(&mut self, records: u64) {
        self.not_carried.add("records of events that the recording does not describe", records);
    }

    pub(super) fn leave_out_damaged(&mut self, places: u64) {
        self.not_carried.add("damaged places of the recording", places);
    }

    pub(super) fn take_not_carried(&mut self) -> NotCarried {
        let mut all = std::mem::take(&mut self.not_carried);
        self.all().for_each(|writer| all.merge(writer.take_not_carried()));
        all
    }
}

/// Whether it is a process that has ended, which has nothing in the chunks that begin then.
fn has_ended(owner: &Owner) -> bool {
    match owner {
        Owner::Process(Some(process)) => proc::comm_of(process.id).is_err(),
        _ => false,
    }
}

/// Lets streams that are new from now on begin no earlier than what others may have read.
fn begin_streams(writer: &mut TraceWriter, told_until: Option<u64>) {
    if let Some(until) = told_until {
        writer.begin_streams_at(until);
    }
}

/// Where the records of each buffer go that a head of this recording has.
fn routes(manifest: &Manifest) -> Vec<Route> {
    let route = |(_, channel): (&str, Option<&RecordedChannel>)| {
        let set = channel.and_then(|of| Some((of, of.set.clone()?)));
        set.map_or(Route::Shared, |(of, set)| Route::Set {
            number: of.number,
            set,
            fields: of.contexts.clone(),
            stacks: stacks(of),
            owner: None,
        })
    };
    manifest.buffers().map(route).collect()
}

/// Whose a set is: by what is known of it, or by what is noted in the spool.
fn owner_of(set: &RecordedSet, number: u32, spool: &Directory, realtime_offset: i64) -> Owner {
    let owner = set.owner.clone().or_else(|| sets::noted(spool, number)).filter(|_| !set.is_last);
    match set.of {
        OwnRings::User => Owner::User(owner.map(|owner| owner.id)),
        OwnRings::Process => Owner::Process(owner.map(|owner| Process {
            id: owner.id,
            name: owner.comm,
            since_ns: owner.since_ns.saturating_add_signed(realtime_offset),
        })),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::{path::Path, sync::Arc};

    use super::{
        super::{CtfOptions, CtfOutput},
        *,
    };
    use crate::sets::recorded_sets;
    use crate::{RecordedChannel, SetOptions, SetOwner, follow};
    use ctf_writer::summary;
    use tracedat::ledger::{LedgerCpu, Losses};
    use tracedat::reader::{Reader, Source};

    /// A recording with a channel of sets, as it is before any is taken.
    fn manifest(of: OwnRings) -> Manifest {
        let channel = RecordedChannel { name: "ch-user".into(), ..RecordedChannel::default() };
        let sets = SetOptions { of, count: 4, trace_name: "ch".into() };
        Manifest {
            channels: recorded_sets(channel, Some(&sets)),
            header_page: tracedat::layout::header_page_text(agent_ebpf::PAGE_SIZE as u32),
            clock_name: "mono".into(),
            cpu_count: 2,
            ..Manifest::default()
        }
    }

    /// The same when it is closed: the first two sets are those of 1000 and 1001.
    fn closed(of: OwnRings) -> Manifest {
        let mut manifest = manifest(of);
        let numbers: Vec<u32> = manifest.channels.iter().map(|channel| channel.number).collect();
        sets::resolve(&mut manifest.channels, |number| {
            let set = numbers.iter().position(|of| *of == number).filter(|set| *set < 2)?;
            Some(SetOwner { id: 1000 + set as u32, since_ns: 1_772_446_500_000_000_000, comm: "app".into() })
        });
        manifest
    }

    fn lost(buffer: &str, cpu: u32, events: u64) -> LedgerCpu {
        let lost = Losses(vec![("ring_full".to_owned(), events)]);
        LedgerCpu { channel: buffer.into(), cpu, lost, ..LedgerCpu::default() }
    }

    /// What each trace says of losses, by its path and stream, when a chunk with this ledger is closed in
    /// which nothing was stored.
    fn told(dir: &Path, of: OwnRings, cpus: Vec<LedgerCpu>) -> Vec<(String, String, u64)> {
        let manifest = manifest(of);
        let bytes = follow::head::bytes(&manifest, None).unwrap();
        let head: TraceFile = Reader::open(Box::new(bytes) as Box<dyn Source>).unwrap();
        let options = CtfOptions {
            naming: Ctf::Lttng,
            shapes: Shapes::default(),
            flush: None,
            keep: None,
            live: false,
            session: Some(TraceSession { name: "mine".into(), created_at: 1_772_446_500, has_state: true }),
        };
        let dir_of = |name: &str| {
            std::fs::create_dir_all(dir.join(name)).unwrap();
            Directory::open(&dir.join(name)).unwrap()
        };
        let output = CtfOutput {
            dir: dir_of("trace"),
            options: Arc::new(options),
            begin_ns: 1_000,
            held: Arc::default(),
            is_begun: false,
            publication: Arc::default(),
        };
        let spool = (dir_of("spool"), None, 0);
        let place = Place::new((dir_of("trace"), output.options()), Some(Arc::default()), spool);
        let mut parts = Parts::create(&output, Shapes::default(), (&head, &manifest), (place, None)).unwrap();
        let ledger = Ledger { cpus, ..Ledger::default() };
        parts.end_chunk((9_000, &ledger), (&head, &[]), &closed(of)).unwrap();
        let row = |path: &str, of: summary::Stream| (path.to_owned(), of.name, of.discarded);
        let traces = summary::read(&dir.join("trace")).unwrap().traces;
        let rows = traces.into_iter().flat_map(|summary::Trace { path, streams, damage, .. }| {
            assert!(damage.is_empty(), "{damage:?}");
            streams.into_iter().map(move |stream| row(&path, stream))
        });
        rows.collect()
    }

    #[test]
    fn users_of_whom_all_was_lost_have_traces_that_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let cpus =
            vec![lost("ch-user:set-1", 0, 7), lost("ch-user:set-1", 1, 5), lost("ch-user:set-0", 1, 0)];
        let row = |name: &str, events| ("ust/uid/1001/64-bit".to_owned(), name.to_owned(), events);
        assert_eq!(told(dir.path(), OwnRings::User, cpus), [row("ch_0", 7), row("ch_1", 5)]);
    }

    #[test]
    fn so_have_processes_and_all_others() {
        let dir = tempfile::tempdir().unwrap();
        let cpus = vec![lost("ch-user:set-0", 0, 3), lost("ch-user:others", 1, 4)];
        let row = |path: &str, name: &str, events| (format!("ust/pid/{path}"), name.to_owned(), events);
        assert_eq!(
            told(dir.path(), OwnRings::Process, cpus),
            [row("app-1000-20260302-101500", "ch_0", 3), row("others", "ch_1", 4)]
        );
    }
}
