//! What is told of input and output.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use stdx::escapes;

use super::calls;
use super::files::{FileId, FileName};
use super::told::{Done, OfFile, Sum, Sums};
use super::{FileKind, Io, OfCalls, Operation, Operations, State};
use crate::answers::threads::Thread;
use crate::answers::{CallError, Evidence, Names, Tid, TimesTold};

/// Input and output.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IoAnswer {
    /// Block devices, by the time that their requests took together.
    pub devices: Vec<IoDevice>,
    /// Who gave requests to their drivers, by the time that these took together.
    pub requesters: Vec<IoRequester>,
    /// Files, by the bytes that were read and written.
    pub files: Vec<IoFile>,
    /// Threads, by the time that they were in calls that open, read, write, sync or close.
    pub threads: Vec<IoOfThread>,
    /// Whether it is known which system calls the machine has. Nothing is known of files otherwise.
    pub knows_calls: bool,
    /// How often there was no room for a request, a device, a thread, a file or a descriptor.
    pub left_out: u64,
}

/// A block device. What is `None` here and below was not recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IoDevice {
    /// Its major and minor number: `8:0`.
    pub device: String,
    /// Its name, if the recording has it: `sda`.
    pub name: Option<String>,
    /// What its requests did.
    pub operations: Vec<IoRequests>,
    /// How many requests it had at a time, on average. This and the next two are of all threads and CPUs,
    /// and leave out requests whose end was not seen.
    pub average_depth: Option<f64>,
    /// The most at a time.
    pub most_depth: Option<u64>,
    /// Time with at least one request.
    pub busy_ns: Option<u64>,
    /// Requests, or parts of them, that were done without having been seen to be issued.
    pub unmatched: Option<u64>,
}

/// Requests to a device, of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoRequests {
    /// What they do.
    pub operation: Operation,
    /// From the driver, which gets them last, until they are done.
    pub times: Option<TimesTold>,
    /// How much was read or written.
    pub bytes: Option<u64>,
    /// How long they waited in a queue before the driver got them; only of those that were seen to be put
    /// there.
    pub queued: Option<TimesTold>,
    /// Requests that were made part of others while they waited.
    pub merged: Option<u64>,
    /// How often the driver gave one back.
    pub requeued: Option<u64>,
    /// How many failed, or a part of them.
    pub failed: Option<u64>,
    /// How many were not seen to be done: at the end, and where events were lost.
    pub unfinished: Option<u64>,
}

/// Who gave requests to the driver of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoRequester {
    /// The thread's id; `None` if it is none.
    pub tid: Option<Tid>,
    /// Its last name, or `[interrupt]`, `[soft interrupt]`, `[unknown]`.
    pub comm: String,
    /// The device.
    pub device: String,
    /// What the requests did.
    pub operations: Vec<IoRequests>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoFile {
    /// The path by which it was opened, in its directory if that is known. Of what was open before, what
    /// /proc/PID/fd calls it: `pipe:[7]`. `None` if neither was seen. Of a path that is not UTF-8, `\xHH` is
    /// a byte.
    pub path: Option<String>,
    /// What it is.
    pub kind: FileKind,
    /// Of a file without a path its number in its process, if that is known.
    pub fd: Option<i32>,
    /// Of a file without a path the first thread of its process that was seen.
    pub tid: Option<Tid>,
    /// The last name of that thread, or of another one that used the file.
    pub comm: Option<String>,
    /// Calls that opened it.
    pub opens: Option<IoDone>,
    /// Calls that read.
    pub reads: Option<IoDone>,
    /// Calls that wrote.
    pub writes: Option<IoDone>,
    /// Calls that waited until it was on the disk.
    pub syncs: Option<IoDone>,
}

/// Calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoDone {
    /// From entry to exit, those that failed too.
    pub times: TimesTold,
    /// What they read or wrote.
    pub bytes: u64,
    /// How many failed.
    pub failed: u64,
    /// Why, as far as there was room to tell the errors apart.
    pub errors: Vec<CallError>,
}

/// Calls of one kind of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoSum {
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub failed: u64,
    /// What they read or wrote.
    pub bytes: u64,
    /// For how long the thread was in them.
    pub total_ns: u64,
}

/// What a thread did with files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IoOfThread {
    /// Its id.
    pub tid: Tid,
    /// Its last name.
    pub comm: String,
    /// Calls that opened files.
    pub opens: Option<IoSum>,
    /// Calls that read. What copies from one file to another is one of these and one of the next.
    pub reads: Option<IoSum>,
    /// Calls that wrote.
    pub writes: Option<IoSum>,
    /// Calls that waited until files were on the disk.
    pub syncs: Option<IoSum>,
    /// For how long it was in all of them, and in those that close.
    pub total_ns: Option<u64>,
    /// Entries without an exit: at the end, and where events were lost.
    pub unfinished: Option<u64>,
    /// Exits without an entry: at the beginning, and where events were lost. They are in none of the counts.
    pub unmatched: Option<u64>,
}

/// What was done with a file by all threads that are asked about.
#[derive(Debug, Default)]
struct AllOfFile {
    told: OfFile,
    /// The names of the threads.
    names: Vec<(Tid, String)>,
}

impl IoAnswer {
    pub(super) fn of(mut io: Io, end: u64, names: &Names<'_>) -> Self {
        let (threads, threads_left_out) = std::mem::take(&mut io.threads).into_parts();
        let left_out = io.rooms.left_out + io.requests.left_out + threads_left_out;
        let mut answer = Self {
            knows_calls: !io.calls.is_empty(),
            left_out: left_out + io.open_files.tables.left_out + io.open_files.files.left_out,
            ..Self::default()
        };
        let knows = Knows::of(&io.evidence);
        let mut operations = Operations::new();
        let mut files: BTreeMap<FileId, AllOfFile> = BTreeMap::new();
        for Thread { tid, name, of } in threads {
            if !io.scope.has_thread(tid, names.of_thread(tid, &name)) {
                continue;
            }
            let State { calls, requests, .. } = of;
            let comm = names.thread_text(tid, &name);
            if let Some(calls) = calls {
                answer.add_calls((tid, &comm), *calls, &mut files, &knows);
            }
            answer.add_requests((Some(tid), &comm), requests, &mut operations, &knows);
        }
        if io.scope.has_all_threads() {
            for (by, requests) in std::mem::take(&mut io.of_others) {
                let (comm, tid) = by.told(&io.threads, names);
                answer.add_requests((tid, &comm), requests, &mut operations, &knows);
            }
        }
        answer.add_devices(&io, end, operations, &knows);
        let files = files.into_iter();
        answer.files =
            files.filter_map(|(id, all)| Some(all.file(io.open_files.files.get(id)?, &knows))).collect();
        answer.sort();
        answer
    }

    /// Counts what a thread did with files.
    fn add_calls(
        &mut self,
        (tid, comm): (Tid, &str),
        calls: OfCalls,
        files: &mut BTreeMap<FileId, AllOfFile>,
        knows: &Knows,
    ) {
        for (id, told) in calls.files {
            let all = files.entry(id).or_default();
            all.told.merge(&told);
            all.names.push((tid, comm.to_owned()));
        }
        let Sums { opens, reads, writes, syncs, time, unfinished, unmatched } = calls.sums;
        if time == 0 && unfinished == 0 && unmatched == 0 && opens.count == 0 {
            return;
        }
        self.threads.push(IoOfThread {
            tid,
            comm: comm.to_owned(),
            opens: knows.opens.then(|| opens.told()),
            reads: knows.reads.then(|| reads.told()),
            writes: knows.writes.then(|| writes.told()),
            syncs: knows.syncs.then(|| syncs.told()),
            total_ns: knows.calls.then_some(time),
            unfinished: knows.call_begins.then_some(unfinished),
            unmatched: knows.call_ends.then_some(unmatched),
        });
    }

    /// Counts the requests that someone gave to drivers.
    fn add_requests(
        &mut self,
        (tid, comm): (Option<Tid>, &str),
        requests: Operations,
        all: &mut Operations,
        knows: &Knows,
    ) {
        for (key, told) in &requests {
            all.entry(*key).or_default().merge(told);
        }
        for (device, operations) in by_device(requests, knows) {
            self.requesters.push(IoRequester {
                tid,
                comm: comm.to_owned(),
                device: device_text(device),
                operations,
            });
        }
    }

    fn add_devices(&mut self, io: &Io, end: u64, operations: Operations, knows: &Knows) {
        let mut operations = by_device(operations, knows);
        let Knows { issued, done, .. } = *knows;
        let of_both = |count: u64| (issued && done).then_some(count);
        let begin = io.scope.from.or(io.begin).unwrap_or(end);
        let whole = end.saturating_sub(begin).max(1);
        for (device, of) in &io.requests.devices {
            let operations = operations.remove(device).unwrap_or_default();
            if operations.is_empty() && of.in_flight_ns == 0 && of.unmatched == 0 {
                continue;
            }
            self.devices.push(IoDevice {
                device: device_text(*device),
                name: io.device_names.get(device).cloned(),
                operations,
                average_depth: (issued && done).then_some(of.in_flight_ns as f64 / whole as f64),
                most_depth: of_both(of.most),
                busy_ns: of_both(of.busy_ns),
                unmatched: done.then_some(of.unmatched),
            });
        }
        // What was only given back, without having been issued.
        for (device, operations) in operations {
            let name = io.device_names.get(&device).cloned();
            self.devices.push(IoDevice {
                device: device_text(device),
                name,
                operations,
                average_depth: (issued && done).then_some(0.0),
                most_depth: of_both(0),
                busy_ns: of_both(0),
                unmatched: done.then_some(0),
            });
        }
    }

    fn sort(&mut self) {
        let total = |of: &[IoRequests]| -> u64 {
            of.iter().filter_map(|of| of.times).fold(0, |sum, times| sum.saturating_add(times.total_ns))
        };
        self.devices.sort_by_key(|of| Reverse(total(&of.operations)));
        self.requesters.sort_by_key(|of| Reverse(total(&of.operations)));
        self.files.sort_by_key(|of| {
            let sum = |of_one: fn(&IoDone) -> u64| {
                [&of.reads, &of.writes].into_iter().flatten().map(of_one).fold(0, u64::saturating_add)
            };
            let opens = of.opens.as_ref().map(|opens| opens.times.count);
            Reverse((sum(|done| done.bytes), sum(|done| done.times.total_ns), opens))
        });
        self.threads.sort_by_key(|of| (Reverse(of.total_ns), of.tid));
    }
}

impl AllOfFile {
    fn file(self, name: &FileName, knows: &Knows) -> IoFile {
        let Self { told: OfFile { opens, reads, writes, syncs }, names } = self;
        let (path, kind, fd, owner) = match name {
            FileName::Path(path) => (Some(escapes::text(path)), FileKind::File, None, None),
            FileName::Object(kind, name) => (Some(escapes::text(name)), *kind, None, None),
            FileName::Nameless(of) => (None, of.kind, of.fd, Some(of.owner)),
        };
        let comm = owner.and_then(|owner| {
            let of_owner = names.iter().find(|(tid, _)| *tid == owner);
            of_owner.or_else(|| names.first()).map(|(_, comm)| comm.clone())
        });
        let opens = knows.opens.then(|| opens.told());
        let reads = knows.reads.then(|| reads.told());
        let writes = knows.writes.then(|| writes.told());
        let syncs = knows.syncs.then(|| syncs.told());
        IoFile { path, kind, fd, tid: owner, comm, opens, reads, writes, syncs }
    }
}

impl Done {
    fn told(self) -> IoDone {
        let Self { times, bytes, errors } = self;
        let failed = errors.as_ref().map_or(0, |errors| errors.total());
        IoDone { times: times.told(), bytes, failed, errors: CallError::all(errors.as_deref()) }
    }
}

impl Sum {
    fn told(self) -> IoSum {
        let Self { count, failed, bytes, time: total_ns } = self;
        IoSum { count, failed, bytes, total_ns }
    }
}

/// What is known, by the events that there are.
#[expect(clippy::struct_excessive_bools, reason = "each rests on other events")]
struct Knows {
    /// Requests that drivers get.
    issued: bool,
    /// Requests that are done.
    done: bool,
    /// Requests in queues.
    queued: bool,
    /// Requests that are given back.
    requeued: bool,
    /// Calls of each kind, at both ends.
    opens: bool,
    reads: bool,
    writes: bool,
    syncs: bool,
    /// Some of these calls, or of those that close.
    calls: bool,
    call_begins: bool,
    call_ends: bool,
}

impl Knows {
    fn of(evidence: &Evidence) -> Self {
        let [opens, reads, writes, syncs] = [calls::OPENS, calls::READS, calls::WRITES, calls::SYNCS]
            .map(|names| names.iter().any(|name| evidence.has_calls(name)));
        let closes = calls::CLOSES.iter().any(|name| evidence.has_calls(name));
        let issued = evidence.has("block:block_rq_issue");
        Self {
            issued,
            done: evidence.has("block:block_rq_complete"),
            queued: issued && evidence.has("block:block_rq_insert"),
            requeued: evidence.has("block:block_rq_requeue"),
            opens,
            reads,
            writes,
            syncs,
            calls: opens || reads || writes || syncs || closes,
            call_begins: evidence.has_call_begins("*"),
            call_ends: evidence.has_call_ends("*"),
        }
    }
}

fn by_device(operations: Operations, knows: &Knows) -> BTreeMap<u64, Vec<IoRequests>> {
    let mut devices: BTreeMap<u64, Vec<IoRequests>> = BTreeMap::new();
    for ((device, operation), told) in operations {
        let Knows { issued, done, .. } = *knows;
        let of_both = |count: u64| (issued && done).then_some(count);
        // A request is counted when it is done.
        let knows_queue = done && knows.queued;
        let told = IoRequests {
            operation,
            times: (issued && done).then(|| told.times.told()),
            bytes: of_both(told.bytes),
            queued: knows_queue.then(|| told.queued.told()),
            merged: knows_queue.then_some(told.merged),
            requeued: knows.requeued.then_some(told.requeued),
            failed: of_both(told.failed),
            unfinished: issued.then_some(told.unfinished),
        };
        devices.entry(device).or_default().push(told);
    }
    devices
}

/// A device's numbers: the kernel has 20 bits for the minor one (include/linux/kdev_t.h).
fn device_text(device: u64) -> String {
    format!("{}:{}", device >> 20, device & 0xf_ffff)
}
