//! `analyze io`, as text.

use super::table::{
    Side::Left, Side::Right, TIMES, Table, no_room, percent, perhaps, perhaps_duration, times,
};
use crate::units::{bytes, count};
use analysis::answers::{Covered, FileKind, IoAnswer, IoDone, IoFile, IoRequests, IoSum, Operation};

/// Most errors that are named of a file.
const ERRORS: usize = 3;

/// Tables of block devices, of who gives them requests, of files and of threads.
pub(super) fn text(answer: &IoAnswer, covered: &Covered, limit: usize) -> String {
    let mut text = no_room(answer.left_out, "a request, a device, a thread, a file or a descriptor");
    if !answer.knows_calls {
        text += "unknown: files; it is not known which system calls the machine of the recording has\n";
    }
    text += &open(answer);
    text += &devices(answer, covered).text(usize::MAX);
    text += &requests(answer).text(limit);
    text += &requesters(answer).text(limit);
    text += &files(answer).text(limit);
    text + &threads(answer).text(limit)
}

/// How many requests have no known end, as a line.
fn open(answer: &IoAnswer) -> String {
    let operations = answer.devices.iter().flat_map(|device| &device.operations);
    match operations.filter_map(|of| of.unfinished).sum() {
        0 => String::new(),
        open => format!("unknown: the end of {} requests; BUSY and DEPTH leave them out\n", count(open)),
    }
}

fn devices(answer: &IoAnswer, covered: &Covered) -> Table {
    let whole = covered.to_ns.saturating_sub(covered.from_ns);
    let heads = [
        ("DEVICE", Left),
        ("NAME", Left),
        ("BUSY", Right),
        ("%", Right),
        ("AVERAGE DEPTH", Right),
        ("MAX", Right),
        ("READ", Right),
        ("WRITTEN", Right),
        ("UNMATCHED", Right),
    ];
    let title =
        "Block devices; DEPTH: requests that the driver has at a time, UNMATCHED: done without a beginning";
    let mut table = Table::new(title, &[&heads]);
    for device in &answer.devices {
        let of = |operation: Operation| {
            device.operations.iter().find(|of| of.operation == operation).map(|of| of.bytes)
        };
        // Of a device without such requests it is known if of others it is.
        let read_or_written = |operation| perhaps(of(operation).unwrap_or(device.busy_ns.map(|_| 0)), bytes);
        table.row(&[&[
            device.device.clone(),
            device.name.clone().unwrap_or_default(),
            perhaps_duration(device.busy_ns),
            perhaps(device.busy_ns, |busy| percent(busy, whole)),
            perhaps(device.average_depth, |depth| format!("{depth:.2}")),
            perhaps(device.most_depth, count),
            read_or_written(Operation::Read),
            read_or_written(Operation::Write),
            perhaps(device.unmatched, count),
        ]]);
    }
    table
}

fn requests(answer: &IoAnswer) -> Table {
    let rest = [
        ("BYTES", Right),
        ("QUEUED", Right),
        ("AVERAGE", Right),
        ("MAX", Right),
        ("MERGED", Right),
        ("REQUEUED", Right),
        ("FAILED", Right),
        ("OPEN", Right),
    ];
    let title = "Requests, from the driver until they are done; QUEUED: put into a queue before, and for how long, \
                 OPEN: without an end";
    let mut table = Table::new(title, &[&[("DEVICE", Left), ("OPERATION", Left)], &TIMES, &rest]);
    for device in &answer.devices {
        for of in &device.operations {
            let name = [device.device.clone(), of.operation.name().to_owned()];
            table.row(&[&name, &times(of.times), &rest_of(of)]);
        }
    }
    table
}

fn rest_of(of: &IoRequests) -> [String; 8] {
    [
        perhaps(of.bytes, bytes),
        perhaps(of.queued, |queued| count(queued.count)),
        perhaps_duration(of.queued.map(|queued| queued.average_ns)),
        perhaps_duration(of.queued.map(|queued| queued.most_ns)),
        perhaps(of.merged, count),
        perhaps(of.requeued, count),
        perhaps(of.failed, count),
        perhaps(of.unfinished, count),
    ]
}

fn requesters(answer: &IoAnswer) -> Table {
    let heads: [&[_]; 3] = [
        &[("THREAD", Left), ("TID", Right), ("DEVICE", Left), ("OPERATION", Left)],
        &TIMES,
        &[("BYTES", Right), ("OPEN", Right)],
    ];
    let title = "Who gives requests to drivers: workers of the kernel do so for others";
    let mut table = Table::new(title, &heads);
    for requester in &answer.requesters {
        for of in &requester.operations {
            let name = [
                requester.comm.clone(),
                requester.tid.map(|tid| tid.to_string()).unwrap_or_default(),
                requester.device.clone(),
                of.operation.name().to_owned(),
            ];
            table.row(&[&name, &times(of.times), &[perhaps(of.bytes, bytes), perhaps(of.unfinished, count)]]);
        }
    }
    table
}

fn files(answer: &IoAnswer) -> Table {
    let heads = [
        ("OPENS", Right),
        ("READS", Right),
        ("READ", Right),
        ("TIME", Right),
        ("P99", Right),
        ("MAX", Right),
        ("WRITES", Right),
        ("WRITTEN", Right),
        ("TIME", Right),
        ("P99", Right),
        ("MAX", Right),
        ("SYNCS", Right),
        ("TIME", Right),
        ("FAILED", Right),
        ("ERRORS", Left),
        ("FILE", Left),
    ];
    let mut table = Table::new("Files, by the bytes that were read and written", &[&heads]);
    for file in &answer.files {
        let all = [&file.opens, &file.reads, &file.writes, &file.syncs];
        let failed = all.into_iter().flatten().map(|done| done.failed).reduce(|one, other| one + other);
        let syncs = file.syncs.as_ref().map(|syncs| syncs.times);
        table.row(&[
            &[perhaps(file.opens.as_ref(), |opens| count(opens.times.count))],
            &transfers(file.reads.as_ref()),
            &transfers(file.writes.as_ref()),
            &[
                perhaps(syncs, |syncs| count(syncs.count)),
                perhaps_duration(syncs.map(|syncs| syncs.total_ns)),
                perhaps(failed, count),
            ],
            &[errors(file), name(file)],
        ]);
    }
    table
}

fn transfers(done: Option<&IoDone>) -> [String; 5] {
    let [calls, total, _, _, most_of, most] = times(done.map(|done| done.times));
    [calls, perhaps(done, |done| bytes(done.bytes)), total, most_of, most]
}

/// What a file is told by.
fn name(file: &IoFile) -> String {
    if let Some(path) = &file.path {
        return path.clone();
    }
    let kind = match file.kind {
        FileKind::File => "file",
        FileKind::Pipe => "pipe",
        FileKind::Socket => "socket",
        FileKind::Eventfd => "eventfd",
        FileKind::Timerfd => "timerfd",
        FileKind::Signalfd => "signalfd",
        FileKind::Inotify => "inotify",
        FileKind::Memfd => "memfd",
        FileKind::Unknown => "fd",
    };
    let number = perhaps(file.fd, |fd| fd.to_string());
    let process = file.comm.as_deref().unwrap_or_default();
    let tid = file.tid.map(|tid| tid.to_string()).unwrap_or_default();
    format!("{kind} {number} of {process} {tid}")
}

/// The errors of a file, by the calls that had them.
fn errors(file: &IoFile) -> String {
    let calls =
        [("open", &file.opens), ("read", &file.reads), ("write", &file.writes), ("sync", &file.syncs)];
    let known = calls.iter().filter_map(|(call, done)| Some((call, done.as_ref()?)));
    let named = known.flat_map(|(call, done)| done.errors.iter().map(move |error| (call, error)));
    let mut texts: Vec<String> = named
        .take(ERRORS + 1)
        .map(|(call, error)| {
            let name = error.name.map_or_else(|| error.errno.to_string(), str::to_owned);
            format!("{call} {name} {}", count(error.count))
        })
        .collect();
    if let Some(more) = texts.get_mut(ERRORS) {
        "...".clone_into(more);
    }
    texts.join(", ")
}

fn threads(answer: &IoAnswer) -> Table {
    let heads = [
        ("THREAD", Left),
        ("TID", Right),
        ("TIME", Right),
        ("OPENS", Right),
        ("FAILED", Right),
        ("READS", Right),
        ("READ", Right),
        ("TIME", Right),
        ("WRITES", Right),
        ("WRITTEN", Right),
        ("TIME", Right),
        ("SYNCS", Right),
        ("TIME", Right),
        ("FAILED", Right),
        ("OPEN", Right),
        ("UNMATCHED", Right),
    ];
    let title = "Threads, by the time that they were in calls that open, read, write, sync or close; OPEN: calls without \
                 an end, UNMATCHED: without a beginning";
    let mut table = Table::new(title, &[&heads]);
    let calls = |sum: Option<IoSum>| perhaps(sum, |sum| count(sum.count));
    let total = |sum: Option<IoSum>| perhaps_duration(sum.map(|sum| sum.total_ns));
    for of in &answer.threads {
        let kinds = [of.reads, of.writes, of.syncs].into_iter().flatten();
        let failed = kinds.map(|sum| sum.failed).reduce(|one, other| one + other);
        table.row(&[&[
            of.comm.clone(),
            of.tid.to_string(),
            perhaps_duration(of.total_ns),
            calls(of.opens),
            perhaps(of.opens, |opens| count(opens.failed)),
            calls(of.reads),
            perhaps(of.reads, |reads| bytes(reads.bytes)),
            total(of.reads),
            calls(of.writes),
            perhaps(of.writes, |writes| bytes(writes.bytes)),
            total(of.writes),
            calls(of.syncs),
            total(of.syncs),
            perhaps(failed, count),
            perhaps(of.unfinished, count),
            perhaps(of.unmatched, count),
        ]]);
    }
    table
}
