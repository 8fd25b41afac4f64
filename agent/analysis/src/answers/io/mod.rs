//! Input and output: requests to block devices, and calls that open, read and write files.
//!
//! | file | subject |
//! |---|---|
//! | `operation` | what a request does |
//! | `requests` | which requests are under way |
//! | `calls` | which system calls say something of files |
//! | `descriptors` | which files processes have open |
//! | `files` | files by their names |
//! | `initial` | what was open when the recording began |
//! | `open_files` | which file a call is about, and what it changes |
//! | `told` | what is counted |
//! | `answer` | what is told at the end |
//!
//! A request is counted when it is done, for the thread that gave it to the driver: that is often one of the
//! kernel's workers, which do so for others. A call is counted when it ends.

mod answer;
mod calls;
mod descriptors;
mod files;
mod initial;
mod open_files;
mod operation;
mod requests;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;

pub use self::requests::{Completion, Place, Requests};
pub use self::{
    answer::{IoAnswer, IoDevice, IoDone, IoFile, IoOfThread, IoRequester, IoRequests, IoSum},
    calls::FileKind,
    operation::Operation,
};
use self::{
    calls::{Call, CallTable},
    descriptors::TableId,
    files::FileId,
    initial::Initial,
    open_files::OpenFiles,
    requests::MOST_DEVICES,
    told::{Done, Ended, OfDevice, OfFile, Rooms, Sums},
};
use super::{
    Analysis, At, Event, Evidence, Known, Names, Request, Scope, Tid, Topic,
    known::Arguments,
    threads::{Index, Threads},
    who::Who,
};
use ftrace_event::syscalls::{ANY_CALL, CallNames};
use report::TraceFile;
use tracedat::initial_state::InitialState;
use tracedat::reader::Source;

/// A call that a thread is in.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: i64,
    call: Call,
    since: u64,
    losses: u64,
    is_raw: bool,
    arguments: Arguments,
    /// The file, or the one that is read and the one that is written.
    files: [Option<FileId>; 2],
}

/// The calls of a thread.
#[derive(Clone, Debug, Default)]
struct OfCalls {
    open: Option<Open>,
    /// The call that it was in last, and by which of the two events its end was seen.
    ended: Option<(i64, bool)>,
    files: BTreeMap<FileId, OfFile>,
    sums: Sums,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct State {
    /// Which files it has open.
    table: Option<TableId>,
    /// `None` as long as it was in none.
    calls: Option<Box<OfCalls>>,
    requests: Operations,
}

/// Requests by device and operation.
type Operations = BTreeMap<(u64, Operation), OfDevice>;

/// The analysis.
#[derive(Clone, Debug)]
pub struct Io {
    scope: Scope,
    calls: CallTable,
    threads: Threads<State>,
    open_files: OpenFiles,
    requests: Requests<Who>,
    /// Requests that no thread gave to a driver, as far as is known.
    of_others: BTreeMap<Who, Operations>,
    rooms: Rooms,
    begin: Option<u64>,
    losses: u64,
    /// What there was at the beginning, as long as no events were lost since.
    initial: Option<Initial>,
    device_names: BTreeMap<u64, String>,
    evidence: Evidence,
}

impl Io {
    /// An analysis of a part of a recording, of a machine with these calls. Of another machine nothing is
    /// known of files.
    pub fn new(scope: Scope, names: impl Into<CallNames>) -> Self {
        Self {
            scope,
            calls: CallTable::of(&names.into()),
            threads: Threads::default(),
            open_files: OpenFiles::default(),
            requests: Requests::default(),
            of_others: BTreeMap::new(),
            rooms: Rooms::default(),
            begin: None,
            losses: 0,
            initial: None,
            device_names: BTreeMap::new(),
            evidence: Evidence::all(),
        }
    }

    /// An analysis of a part of a file, with what the recorder saw when it began to record, if the file has
    /// that.
    pub fn of<S: Source>(file: &TraceFile<S>, scope: Scope) -> Self {
        let mut io = Self::new(scope, file.call_names());
        // Without it, or if it is damaged, what was open before is unknown.
        if let Ok(Some(state)) = file.reader().initial_state() {
            io.begin_with(&state, file.reader().clock().added());
        }
        io
    }

    /// The part of it that is about requests to block devices, for a part of a file. It is fed with their
    /// events alone.
    pub(super) fn of_devices<S: Source>(file: &TraceFile<S>, scope: Scope) -> Self {
        let mut io = Self::new(scope, None);
        if let Ok(Some(state)) = file.reader().initial_state() {
            io.name_devices(&state);
        }
        io
    }

    /// Takes what the recorder saw when it began, and what is to be added to its times.
    fn begin_with(&mut self, state: &InitialState, added: i64) {
        self.initial = Some(Initial::of(state, added));
        self.name_devices(state);
    }

    fn name_devices(&mut self, state: &InitialState) {
        let devices = state.block_devices.iter().take(MOST_DEVICES);
        self.device_names = devices
            .map(|device| (u64::from(device.major) << 20 | u64::from(device.minor), device.name.clone()))
            .collect();
    }

    /// The table of a thread.
    fn table(&mut self, tid: Tid) -> Option<TableId> {
        let (_, thread) = self.threads.find(tid, State::default)?;
        if thread.of.table.is_none() {
            let (initial, open) = (&mut self.initial, &mut self.open_files);
            let known = initial.as_mut().and_then(|initial| initial.table(tid, open));
            thread.of.table = Some(known.unwrap_or_else(|| open.tables.create(tid)));
        }
        thread.of.table
    }

    fn enter(
        &mut self,
        at: At,
        tid: Tid,
        number: i64,
        is_raw: bool,
        (arguments, path): (&Arguments, Option<&[u8]>),
    ) {
        let call = self.calls.get(number);
        let thread = match call {
            Some(_) => self.threads.find(tid, State::default).map(|(_, thread)| thread),
            None => self.threads.current(tid),
        };
        let Some(thread) = thread else { return };
        let losses = self.losses;
        if let Some(calls) = &mut thread.of.calls
            && let Some(before) = &mut calls.open
        {
            if before.number == number && before.is_raw != is_raw && before.losses == losses {
                // The other event of the same entry. Only one of them has the path.
                if let (Some(table), Some(_), None) = (thread.of.table, path, before.files[0]) {
                    before.files = self.open_files.of_call(table, before.call, arguments, path);
                }
                return;
            }
            calls.sums.unfinished += u64::from(before.call.is_io() && self.scope.has(at));
            calls.open = None;
        }
        let Some((call, table)) = call.zip(self.table(tid)) else { return };
        let Some(thread) = self.threads.current(tid) else { return };
        let files = self.open_files.of_call(table, call, arguments, path);
        let table = self.open_files.begin(table, tid, call, arguments);
        thread.of.table = Some(table);
        if let Some(initial) = &mut self.initial {
            initial.note(at.time, table, call, arguments);
        }
        let calls = thread.of.calls.get_or_insert_default();
        calls.ended = None;
        calls.open =
            Some(Open { number, call, since: at.time, losses, is_raw, arguments: *arguments, files });
    }

    fn exit(&mut self, at: At, tid: Tid, (number, result): (i64, i64), is_raw: bool) {
        let number = if number == ANY_CALL { self.open_number(tid).unwrap_or(number) } else { number };
        let Some(call) = self.calls.get(number) else { return };
        let Some(table) = self.table(tid) else { return };
        let Some((_, thread)) = self.threads.find(tid, State::default) else { return };
        let calls = thread.of.calls.get_or_insert_default();
        // The other event of the same exit.
        if calls.open.is_none() && calls.ended == Some((number, !is_raw)) {
            return;
        }
        calls.ended = Some((number, is_raw));
        let losses = self.losses;
        let open = calls.open.take().filter(|open| open.number == number && open.losses == losses);
        let is_counted = call.is_io() && self.scope.has(at);
        let Some(mut open) = open else {
            calls.sums.unmatched += u64::from(is_counted);
            self.open_files.end_unseen(table, call, result);
            return;
        };
        let ended = Ended { result, time: at.time - open.since, at: at.time };
        if !ended.is_failed() {
            if let Some(initial) = self.initial.as_mut().filter(|_| call.is_new()) {
                initial.note(at.time, table, Call::Close, &[Some(result), None, None]);
            }
            let of = (call, &open.arguments);
            let table = self.open_files.end(table, tid, of, (&mut open.files[0], result));
            thread.of.table = Some(table);
        } else if matches!(call, Call::Open { .. }) && open.files[0].is_none() {
            open.files[0] = self.open_files.unopened(table);
        }
        if is_counted {
            calls.tell(call, open.files, ended, &mut self.rooms);
        }
    }

    /// The number of the call that a thread is in.
    fn open_number(&mut self, tid: Tid) -> Option<i64> {
        let thread = self.threads.current(tid)?;
        thread.of.calls.as_ref()?.open.as_ref().map(|open| open.number)
    }

    /// A thread is new. It has the open files of the one that made it, or a copy.
    fn new_task(&mut self, parent: Option<Tid>, child: Tid, shares_files: bool) {
        let Some(of) = parent.and_then(|parent| self.table(parent)) else { return };
        let Some(thread) = self.threads.current(child).filter(|thread| thread.of.table.is_none()) else {
            return;
        };
        let tables = &mut self.open_files.tables;
        let table = if shares_files { tables.share(of) } else { tables.copy(of, child) };
        thread.of.table = Some(table);
    }

    /// A thread has another id from now on.
    fn take(&mut self, from: Tid, to: Tid) {
        if let Some((was, is)) = self.threads.take(from, to, State::default)
            && let Some((was, is)) = self.threads.two(was, is)
        {
            if let Some(table) = was.of.table.take()
                && let Some(before) = is.of.table.replace(table)
            {
                self.open_files.tables.release(before);
            }
            if let Some(calls) = &mut was.of.calls
                && let Some(open) = calls.open.take()
            {
                is.of.calls.get_or_insert_default().open = Some(open);
            }
        }
        if let Some(initial) = &mut self.initial {
            initial.forget(from);
        }
    }

    /// A thread is there no more.
    fn end(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.current(tid)
            && let Some(table) = thread.of.table.take()
        {
            self.open_files.tables.release(table);
        }
        self.threads.end(tid);
        if let Some(initial) = &mut self.initial {
            initial.forget(tid);
        }
    }

    fn exec(&mut self, tid: Tid) {
        let Some(table) = self.table(tid) else { return };
        let table = self.open_files.tables.exec(table, tid);
        if let Some(thread) = self.threads.current(tid) {
            thread.of.table = Some(table);
        }
        if let Some(initial) = &mut self.initial {
            initial.note_all(table);
        }
    }

    fn issue(&mut self, at: At, event: &Event<'_>, request: &Request<'_>) {
        let by = Who::of(event, &mut self.threads, State::default);
        if let Who::Thread { index, .. } = by
            && let Some(thread) = self.threads.get_mut(index)
        {
            thread.is_called(request.comm);
        }
        let given = self.requests.issue(at, request, by, &self.scope);
        self.leave(given.unseen);
    }

    /// What is told of the requests that someone gave to a driver.
    fn told(&mut self, by: Who, place: Place) -> Option<(&mut OfDevice, &mut Rooms)> {
        let of = match by {
            Who::Thread { index, .. } => &mut self.threads.get_mut(index)?.of.requests,
            other => self.of_others.entry(other).or_default(),
        };
        let told = told::of_device(of, (place.device, place.operation), &mut self.rooms)?;
        Some((told, &mut self.rooms))
    }

    fn requeue(&mut self, at: At, event: &Event<'_>, place: Place) {
        let issued = self.requests.requeue(at, place, &self.scope);
        if issued.is_none() && !event.follows.all {
            return;
        }
        let by = issued.map_or(Who::Unknown, |issued| issued.by);
        if self.scope.has(at)
            && let Some((told, _)) = self.told(by, place)
        {
            told.requeued += 1;
        }
    }

    fn complete(&mut self, at: At, event: &Event<'_>, done: Completion) {
        let Some(issued) = self.requests.complete(at, done, &self.scope, event.follows.all) else { return };
        if self.scope.has(at)
            && let Some((told, rooms)) = self.told(issued.by, done.place)
        {
            if issued.is_ambiguous {
                told.unfinished += 1;
            } else {
                told.add(&issued, at.time, rooms);
            }
        }
    }

    /// Counts requests of which no end is known.
    fn leave(&mut self, requests: Vec<(Place, Who)>) {
        // They end on no CPU.
        if self.scope.cpus.is_some() {
            return;
        }
        for (place, by) in requests {
            if let Some((told, _)) = self.told(by, place) {
                told.unfinished += 1;
            }
        }
    }

    /// Forgets the names of files that are not open, when there is little room for others.
    fn forget_files(&mut self) {
        let OpenFiles { tables, files } = &mut self.open_files;
        if files.is_half_full() {
            let open = self.threads.iter_mut().filter_map(|thread| thread.of.calls.as_mut()?.open.as_mut());
            files.keep(tables.files_mut().chain(open.flat_map(|open| open.files.iter_mut().flatten())));
        }
    }

    /// Forgets the files and requests of threads that were forgotten.
    fn begin_anew(&mut self, from: u64) {
        let Self { scope, calls, device_names, losses, .. } = self;
        *self = Self {
            calls: std::mem::take(calls),
            device_names: std::mem::take(device_names),
            losses: *losses,
            begin: Some(from),
            ..Self::new(scope.clone(), None)
        };
    }

    /// Counts what goes on at the end.
    fn close(&mut self) {
        let requests = self.requests.lose().collect();
        self.leave(requests);
        if self.scope.cpus.is_some() {
            return;
        }
        for thread in self.threads.iter_mut() {
            if let Some(calls) = &mut thread.of.calls
                && calls.open.is_some_and(|open| open.call.is_io())
            {
                calls.sums.unfinished += 1;
            }
        }
    }
}

impl OfCalls {
    fn tell(&mut self, call: Call, files: [Option<FileId>; 2], ended: Ended, rooms: &mut Rooms) {
        let Self { files: of_files, sums, .. } = self;
        sums.time = sums.time.saturating_add(ended.time);
        let [file, other] = files;
        let mut of = |file: Option<FileId>, kind: fn(&mut OfFile) -> &mut Done, ended: Ended| {
            if let Some(told) = file.and_then(|file| told::of_file(of_files, file, rooms)) {
                kind(told).add(ended, rooms);
            }
        };
        match call {
            Call::Open { .. } => {
                // What it returns is the number of a file, not of bytes.
                let ended = Ended { result: ended.result.min(0), ..ended };
                sums.opens.add(ended);
                of(file, |told| &mut told.opens, ended);
            }
            Call::Read | Call::Receive => {
                sums.reads.add(ended);
                of(file, |told| &mut told.reads, ended);
            }
            Call::Write | Call::Send => {
                sums.writes.add(ended);
                of(file, |told| &mut told.writes, ended);
            }
            Call::Copy { .. } => {
                sums.reads.add(ended);
                sums.writes.add(ended);
                of(file, |told| &mut told.reads, ended);
                of(other, |told| &mut told.writes, ended);
            }
            Call::Sync { .. } => {
                sums.syncs.add(ended);
                of(file, |told| &mut told.syncs, ended);
            }
            _ => {}
        }
    }
}

impl Analysis for Io {
    type Answer = IoAnswer;

    const TOPIC: Option<Topic> = Some(Topic::Io);

    fn begins(&mut self, time: u64) {
        self.begin = Some(time);
    }

    fn look(&mut self, at: At, event: &Event<'_>) {
        self.begin.get_or_insert(at.time);
        if let Some(initial) = &mut self.initial {
            initial.advance(at.time, &mut self.open_files);
        }
        match &event.known {
            Known::CallEnter { number, arguments, path, is_raw } => {
                if let Some(tid) = event.tid {
                    self.enter(at, tid, *number, *is_raw, (arguments, *path));
                }
            }
            Known::CallExit { number, result, is_raw } => {
                if let Some(tid) = event.tid {
                    self.exit(at, tid, (*number, *result), *is_raw);
                }
            }
            Known::BlockInsert(request) => self.requests.insert(at, request),
            Known::BlockIssue(request) => self.issue(at, event, request),
            Known::BlockRequeue { device, sector, rwbs } => {
                self.requeue(at, event, Place::new(*device, *sector, rwbs));
            }
            Known::BlockComplete { device, sector, sectors, rwbs, is_failed } => {
                let place = Place::new(*device, *sector, rwbs);
                self.complete(at, event, Completion { place, sectors: *sectors, is_failed: *is_failed });
            }
            Known::Begins { child, comm, is_seen: true, .. } => {
                self.end(*child);
                if let Some(thread) = self.threads.begin(*child, State::default()) {
                    thread.is_called(comm);
                }
            }
            Known::NewTask { child, shares_files, .. } => {
                self.new_task(event.tid, *child, *shares_files);
            }
            Known::Exec { tid, .. } => self.exec(*tid),
            Known::Takes { from, to } => self.take(*from, *to),
            Known::Renamed { tid, comm: Some(comm), .. } => {
                if let Some((_, thread)) = self.threads.find(*tid, State::default) {
                    thread.is_called(comm);
                }
            }
            Known::Ends { tid } => self.end(*tid),
            _ => {}
        }
    }

    fn lost(&mut self, at: At) {
        self.begin.get_or_insert(at.time);
        self.losses += 1;
        self.initial = self.initial.take().filter(|initial| at.time < initial.began);
        self.open_files.tables.lose();
        let requests = self.requests.lose().collect();
        self.leave(requests);
    }

    fn restart(&mut self, from: u64) {
        self.scope.from = Some(from);
        self.rooms = Rooms::default();
        self.of_others.clear();
        self.open_files.tables.left_out = 0;
        self.open_files.files.left_out = 0;
        // A request can outlive the thread that gave it to its driver, which is forgotten.
        let names: BTreeMap<Index, Box<[u8]>> = (self.requests.requesters())
            .filter_map(|by| match by {
                Who::Thread { index, .. } => Some((index, self.threads.get(index)?.name.clone())),
                _ => None,
            })
            .collect();
        if self.threads.forget_ended() {
            self.begin_anew(from);
            return;
        }
        let threads = &mut self.threads;
        self.requests.restart(from, |by| {
            let Who::Thread { tid, index } = by else { return by };
            let Some((new, thread)) = threads.find(tid, State::default) else { return Who::Unknown };
            thread.is_called(names.get(&index).map_or(&[], |name| name));
            Who::Thread { tid, index: new }
        });
        for thread in self.threads.iter_mut() {
            thread.of.requests.clear();
            if let Some(calls) = &mut thread.of.calls {
                calls.files.clear();
                calls.sums = Sums::default();
            }
        }
        self.forget_files();
    }

    fn rests_on(&mut self, evidence: &Evidence) {
        self.evidence = evidence.clone();
    }

    fn answer(mut self, end: u64, names: &Names<'_>) -> IoAnswer {
        self.close();
        IoAnswer::of(self, end, names)
    }
}
