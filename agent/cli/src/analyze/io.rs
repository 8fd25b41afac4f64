//! `analyze io`, as text.

use super::table::{Side::Left, Side::Right, TIMES, Table, duration, no_room, percent, times};
use crate::units::{bytes, count};
use analysis::answers::{Covered, FileKind, IoAnswer, IoDone, IoFile, IoRequests, Operation};

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
    match operations.map(|of| of.unfinished).sum() {
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
            device.operations.iter().find(|of| of.operation == operation).map_or(0, |of| of.bytes)
        };
        table.row(&[&[
            device.device.clone(),
            device.name.clone().unwrap_or_default(),
            duration(device.busy_ns),
            percent(device.busy_ns, whole),
            format!("{:.2}", device.average_depth),
            count(device.most_depth),
            bytes(of(Operation::Read)),
            bytes(of(Operation::Write)),
            count(device.unmatched),
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
            table.row(&[&name, &times(&of.times), &rest_of(of)]);
        }
    }
    table
}

fn rest_of(of: &IoRequests) -> [String; 8] {
    [
        bytes(of.bytes),
        count(of.queued.count),
        duration(of.queued.average_ns),
        duration(of.queued.most_ns),
        count(of.merged),
        count(of.requeued),
        count(of.failed),
        count(of.unfinished),
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
            table.row(&[&name, &times(&of.times), &[bytes(of.bytes), count(of.unfinished)]]);
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
        let failed =
            [&file.opens, &file.reads, &file.writes, &file.syncs].iter().map(|done| done.failed).sum();
        table.row(&[
            &[count(file.opens.times.count)],
            &transfers(&file.reads),
            &transfers(&file.writes),
            &[count(file.syncs.times.count), duration(file.syncs.times.total_ns), count(failed)],
            &[errors(file), name(file)],
        ]);
    }
    table
}

fn transfers(done: &IoDone) -> [String; 5] {
    let [calls, total, _, _, most_of, most] = times(&done.times);
    [calls, bytes(done.bytes), total, most_of, most]
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
    let number = file.fd.map_or_else(|| "?".to_owned(), |fd| fd.to_string());
    let process = file.comm.as_deref().unwrap_or_default();
    let tid = file.tid.map(|tid| tid.to_string()).unwrap_or_default();
    format!("{kind} {number} of {process} {tid}")
}

/// The errors of a file, by the calls that had them.
fn errors(file: &IoFile) -> String {
    let calls =
        [("open", &file.opens), ("read", &file.reads), ("write", &file.writes), ("sync", &file.syncs)];
    let named = calls.iter().flat_map(|(call, done)| done.errors.iter().map(move |error| (call, error)));
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
    for of in &answer.threads {
        table.row(&[&[
            of.comm.clone(),
            of.tid.to_string(),
            duration(of.total_ns),
            count(of.opens.count),
            count(of.opens.failed),
            count(of.reads.count),
            bytes(of.reads.bytes),
            duration(of.reads.total_ns),
            count(of.writes.count),
            bytes(of.writes.bytes),
            duration(of.writes.total_ns),
            count(of.syncs.count),
            duration(of.syncs.total_ns),
            count(of.reads.failed + of.writes.failed + of.syncs.failed),
            count(of.unfinished),
            count(of.unmatched),
        ]]);
    }
    table
}
