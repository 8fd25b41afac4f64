//! Made-up records with known answers.

use super::super::{At, Context, Event, Follows, Known, Names, Random, Request, Scope, Tid};
use super::requests::MOST_DEVICES;
use super::*;
use ftrace_event::syscalls::SyscallTable;

const DISK: u64 = 254 << 20;

/// Numbers of calls on x86-64.
mod nr {
    pub(super) const READ: i64 = 0;
    pub(super) const WRITE: i64 = 1;
    pub(super) const CLOSE: i64 = 3;
    pub(super) const DUP2: i64 = 33;
    pub(super) const GETPID: i64 = 39;
    pub(super) const SENDFILE: i64 = 40;
    pub(super) const SENDTO: i64 = 44;
    pub(super) const FSYNC: i64 = 74;
    pub(super) const FCNTL: i64 = 72;
    pub(super) const OPENAT: i64 = 257;
    pub(super) const CLOSE_RANGE: i64 = 436;
}

const CLOEXEC: i64 = 0o2_000_000;
const CURRENT_DIRECTORY: i64 = -100;

#[derive(Clone)]
struct Story(Io);

impl Story {
    fn new() -> Self {
        Self::of(Scope::default())
    }

    fn of(scope: Scope) -> Self {
        Self(Io::new(scope, SyscallTable::of_machine("x86_64")))
    }

    fn look(&mut self, time: u64, tid: Tid, known: Known<'_>) {
        self.0.look(At { time, cpu: 0 }, &Event::whole(Some(tid), Context::Thread, known));
    }

    fn insert(&mut self, time: u64, sector: u64, bytes: u64, rwbs: &str) {
        self.look(time, 1, Known::BlockInsert(request(sector, bytes, rwbs)));
    }

    fn issue(&mut self, time: u64, tid: Tid, (sector, bytes, rwbs): (u64, u64, &str)) {
        self.look(time, tid, Known::BlockIssue(request(sector, bytes, rwbs)));
    }

    fn complete(&mut self, time: u64, (sector, sectors, rwbs): (u64, u64, &str), is_failed: bool) {
        let rwbs = rwbs.as_bytes();
        self.look(time, 0, Known::BlockComplete { device: DISK, sector, sectors, rwbs, is_failed });
    }

    fn enter(&mut self, time: u64, tid: Tid, number: i64, arguments: &[i64], path: Option<&str>) {
        let arguments = std::array::from_fn(|nth| arguments.get(nth).copied());
        let path = path.map(str::as_bytes);
        self.look(time, tid, Known::CallEnter { number, arguments, path, is_raw: false });
    }

    fn exit(&mut self, time: u64, tid: Tid, number: i64, result: i64) {
        self.look(time, tid, Known::CallExit { number, result, is_raw: false });
    }

    /// A call that takes 5 ns.
    fn call(&mut self, time: u64, tid: Tid, number: i64, arguments: &[i64], result: i64) {
        self.enter(time, tid, number, arguments, None);
        self.exit(time + 5, tid, number, result);
    }

    fn open(&mut self, time: u64, tid: Tid, (path, flags): (&str, i64), result: i64) {
        self.enter(time, tid, nr::OPENAT, &[CURRENT_DIRECTORY, 0, flags], Some(path));
        self.exit(time + 5, tid, nr::OPENAT, result);
    }

    fn fork(&mut self, time: u64, parent: Tid, child: Tid, shares_files: bool) {
        let (is_thread, shares_memory) = (shares_files, shares_files);
        let begins = Known::Begins { child, comm: b"child", is_thread, is_seen: true };
        self.look(time, parent, begins);
        let known = Known::NewTask { child, comm: b"child", shares_files, is_thread, shares_memory };
        self.look(time, parent, known);
    }

    fn lose(&mut self, time: u64) {
        self.0.lost(At { time, cpu: 0 });
    }

    fn answer(self, end: u64) -> IoAnswer {
        self.0.answer(end, &Names::none())
    }
}

fn request(sector: u64, bytes: u64, rwbs: &str) -> Request<'_> {
    Request { device: DISK, sector, bytes, rwbs: rwbs.as_bytes(), comm: b"asks" }
}

/// What is told of the only device: count, time, bytes, merged, requeued, failed, unfinished.
fn told(answer: &IoAnswer, operation: Operation) -> (u64, u64, u64, u64, u64, u64, u64) {
    let [device] = &answer.devices[..] else { panic!("{:?}", answer.devices) };
    assert_eq!(device.device, "254:0");
    let of = device.operations.iter().find(|of| of.operation == operation).unwrap();
    (
        of.times.unwrap().count,
        of.times.unwrap().total_ns,
        of.bytes.unwrap(),
        of.merged.unwrap(),
        of.requeued.unwrap(),
        of.failed.unwrap(),
        of.unfinished.unwrap(),
    )
}

/// Reads, bytes of them, writes and bytes of a file.
fn file(answer: &IoAnswer, name: &str) -> (u64, u64, u64, u64) {
    let name_of = |file: &IoFile| {
        let fd = || format!("{:?} {:?} {:?}", file.kind, file.fd, file.tid);
        file.path.clone().unwrap_or_else(fd)
    };
    let found = answer.files.iter().find(|file| name_of(file) == name);
    let names: Vec<_> = answer.files.iter().map(name_of).collect();
    let file = found.unwrap_or_else(|| panic!("no {name} in {names:?}"));
    (
        file.reads.as_ref().unwrap().times.count,
        file.reads.as_ref().unwrap().bytes,
        file.writes.as_ref().unwrap().times.count,
        file.writes.as_ref().unwrap().bytes,
    )
}

#[test]
fn requests_wait_are_issued_and_done() {
    let mut story = Story::new();
    story.insert(100, 8, 4096, "R");
    story.issue(110, 1, (8, 4096, "R"));
    story.issue(120, 2, (64, 1024, "WS"));
    story.complete(150, (8, 8, "R"), false);
    story.complete(180, (64, 2, "WS"), true);
    // Both at one place: which one is done first is not known.
    story.issue(200, 2, (64, 512, "WS"));
    story.issue(210, 2, (64, 512, "WS"));
    story.complete(220, (64, 1, "WS"), false);
    story.complete(250, (64, 1, "WS"), false);
    story.issue(290, 2, (64, 512, "D"));
    story.complete(295, (7777, 8, "R"), false);
    let answer = story.answer(300);
    assert_eq!(told(&answer, Operation::Read), (1, 40, 4096, 0, 0, 0, 0));
    assert_eq!(told(&answer, Operation::Write), (1, 60, 1024, 0, 0, 1, 2));
    assert_eq!(told(&answer, Operation::Discard), (0, 0, 0, 0, 0, 0, 1));
    let device = &answer.devices[0];
    let read = &device.operations[0];
    assert_eq!((read.queued.unwrap().count, read.queued.unwrap().total_ns), (1, 10));
    assert_eq!((device.busy_ns.unwrap(), device.most_depth.unwrap(), device.unmatched.unwrap()), (70, 2, 2));
    assert!((device.average_depth.unwrap() - (40 + 60) as f64 / 200.0).abs() < 1e-9);
    let requesters: Vec<_> =
        answer.requesters.iter().map(|of| (of.tid, of.comm.as_str(), of.operations.len())).collect();
    assert_eq!(requesters, [(Some(2), "asks", 2), (Some(1), "asks", 1)]);
}

#[test]
fn a_request_has_the_sectors_of_all_that_are_merged_with_it() {
    let mut story = Story::new();
    story.insert(100, 16, 4096, "WS");
    // In front of it, behind it, far away, and of another operation.
    story.insert(105, 8, 4096, "WS");
    story.insert(107, 24, 4096, "WS");
    story.insert(107, 32, 4096, "WS");
    story.insert(108, 16, 4096, "R");
    story.issue(120, 1, (8, 3 * 4096, "WS"));
    story.issue(130, 1, (32, 4096, "WS"));
    story.complete(140, (8, 24, "WS"), false);
    story.complete(140, (32, 8, "WS"), false);
    story.issue(150, 1, (16, 4096, "R"));
    story.complete(160, (16, 8, "R"), false);
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Write), (2, 20 + 10, 4 * 4096, 2, 0, 0, 0));
    let queued: Vec<_> = answer.devices[0].operations.iter().map(|of| of.queued.unwrap().total_ns).collect();
    assert_eq!(queued, [42, 20 + 23]);
}

#[test]
fn parts_of_a_request_are_done_one_after_the_other() {
    let mut story = Story::new();
    story.issue(100, 1, (8, 8 * 512, "R"));
    story.complete(110, (8, 2, "R"), false);
    story.complete(120, (10, 2, "R"), true);
    story.complete(150, (12, 4, "R"), false);
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Read), (1, 50, 8 * 512, 0, 0, 1, 0));
    assert_eq!((answer.devices[0].unmatched.unwrap(), answer.devices[0].busy_ns.unwrap()), (0, 50));
}

#[test]
fn a_request_that_the_driver_gives_back_begins_again() {
    let mut story = Story::new();
    story.issue(100, 1, (8, 512, "R"));
    story.look(110, 9, Known::BlockRequeue { device: DISK, sector: 8, rwbs: b"R" });
    story.issue(150, 2, (8, 512, "R"));
    story.complete(160, (8, 1, "R"), false);
    // One that was not given to the driver before.
    story.look(170, 9, Known::BlockRequeue { device: DISK, sector: 99, rwbs: b"R" });
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Read), (1, 10, 512, 0, 2, 0, 0));
    assert_eq!((answer.devices[0].busy_ns.unwrap(), answer.devices[0].most_depth.unwrap()), (20, 1));
}

#[test]
fn flushes_have_no_sectors() {
    let mut story = Story::new();
    // As the kernel tells of a synced write: the flush, and the write that asked for it.
    story.issue(100, 58, (0, 0, "FF"));
    story.complete(130, (u64::MAX, 0, "FF"), false);
    story.complete(131, (0, 0, "WS"), false);
    story.complete(140, (u64::MAX, 0, "FF"), false);
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Flush), (1, 30, 0, 0, 0, 0, 0));
    assert_eq!((answer.devices[0].operations.len(), answer.devices[0].unmatched.unwrap()), (1, 1));
}

/// As `record --for io -F` has them: ends of every thread's requests.
#[test]
fn ends_of_requests_that_are_not_recorded_are_in_no_count() {
    let mut story = Story::new();
    let others = |story: &mut Story, time, known| {
        let follows = Follows { all: false, ..Follows::ALL };
        let event = Event { follows, ..Event::whole(Some(9), Context::Irq, known) };
        story.0.look(At { time, cpu: 0 }, &event);
    };
    let complete =
        |sector| Known::BlockComplete { device: DISK, sector, sectors: 1, rwbs: b"R", is_failed: false };
    story.issue(100, 1, (8, 512, "R"));
    others(&mut story, 120, complete(99));
    others(&mut story, 130, Known::BlockRequeue { device: DISK, sector: 99, rwbs: b"R" });
    others(&mut story, 150, complete(8));
    // Another thread gives it to the driver, which is not recorded: it waits no longer when it is done.
    story.insert(160, 16, 512, "R");
    others(&mut story, 170, complete(16));
    story.issue(180, 1, (16, 512, "R"));
    others(&mut story, 190, complete(16));
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Read), (2, 60, 1024, 0, 0, 0, 0));
    let device = &answer.devices[0];
    assert_eq!((device.unmatched.unwrap(), device.busy_ns.unwrap(), device.most_depth.unwrap()), (0, 60, 1));
    assert_eq!(device.operations[0].queued.unwrap().count, 0);
}

#[test]
fn requests_over_a_loss_are_unknown() {
    let mut story = Story::new();
    story.issue(100, 1, (8, 512, "R"));
    story.lose(150);
    story.complete(160, (8, 1, "R"), false);
    story.issue(170, 1, (8, 512, "R"));
    story.complete(180, (8, 1, "R"), false);
    let answer = story.answer(200);
    assert_eq!(told(&answer, Operation::Read), (1, 10, 512, 0, 0, 0, 1));
    assert_eq!((answer.devices[0].unmatched.unwrap(), answer.devices[0].busy_ns.unwrap()), (1, 10));
}

#[test]
fn requests_of_interrupts_are_of_no_thread() {
    let mut story = Story::new();
    let known = Known::BlockIssue(request(8, 512, "R"));
    story.0.look(At { time: 10, cpu: 0 }, &Event::whole(Some(7), Context::Softirq, known));
    story.complete(30, (8, 1, "R"), false);
    let all = story.clone_answer(100);
    assert_eq!((all.requesters[0].tid, all.requesters[0].comm.as_str()), (None, "[soft interrupt]"));
    story.0.scope.tids = Some([7].into());
    assert_eq!(story.answer(100).requesters, []);
}

impl Story {
    fn clone_answer(&self, end: u64) -> IoAnswer {
        Self(self.0.clone()).answer(end)
    }
}

#[test]
fn requests_and_devices_are_bounded() {
    let mut story = Story::new();
    for number in 0..(1 << 16) + 5 {
        story.issue(number, 1, (number * 8, 512, "R"));
    }
    let answer = story.answer(1 << 17);
    assert_eq!(answer.left_out, 5);
    assert_eq!(told(&answer, Operation::Read).6, 1 << 16);
    let mut story = Story::new();
    for device in 0..MOST_DEVICES as u64 + 3 {
        let known = Known::BlockIssue(Request { device, ..request(8, 512, "R") });
        story.look(device, 1, known);
        let rwbs = b"R".as_slice();
        let done = Known::BlockComplete { device, sector: 8, sectors: 1, rwbs, is_failed: false };
        story.look(device, 1, done);
    }
    let answer = story.answer(1 << 17);
    // One that has no room when it is issued has none when it is done.
    assert_eq!((answer.devices.len(), answer.left_out), (MOST_DEVICES, 6));
}

#[test]
fn files_are_told_by_the_paths_by_which_they_were_opened() {
    let mut story = Story::new();
    story.open(100, 1, ("/a", 0), 3);
    story.call(110, 1, nr::READ, &[3], 100);
    story.call(120, 1, nr::READ, &[3], 0);
    story.call(130, 1, nr::WRITE, &[3], -9);
    story.call(140, 1, nr::WRITE, &[1], 7);
    story.call(150, 1, nr::FSYNC, &[3], 0);
    story.call(160, 1, nr::GETPID, &[], 1);
    story.call(170, 1, nr::CLOSE, &[3], 0);
    story.call(180, 1, nr::READ, &[3], 5);
    story.open(190, 1, ("/missing", 0), -2);
    story.open(200, 1, ("/missing", 0), -13);
    story.open(210, 1, ("/missing", 0), -2);
    let answer = story.answer(300);
    assert_eq!(file(&answer, "/a"), (2, 100, 1, 0));
    assert_eq!(file(&answer, "Unknown Some(1) Some(1)"), (0, 0, 1, 7));
    assert_eq!(file(&answer, "Unknown Some(3) Some(1)"), (1, 5, 0, 0));
    let of = |path: &str| answer.files.iter().find(|file| file.path.as_deref() == Some(path)).unwrap();
    let a = of("/a");
    assert_eq!(
        (
            a.opens.as_ref().unwrap().times.count,
            a.syncs.as_ref().unwrap().times.total_ns,
            a.reads.as_ref().unwrap().times.total_ns
        ),
        (1, 5, 10)
    );
    assert_eq!(
        (a.writes.as_ref().unwrap().failed, a.writes.as_ref().unwrap().errors[0].name),
        (1, Some("EBADF"))
    );
    let missing = of("/missing");
    let errors: Vec<_> =
        missing.opens.as_ref().unwrap().errors.iter().map(|error| (error.name, error.count)).collect();
    assert_eq!((missing.opens.as_ref().unwrap().times.count, missing.opens.as_ref().unwrap().failed), (3, 3));
    assert_eq!(errors, [(Some("ENOENT"), 2), (Some("EACCES"), 1)]);
    let [thread] = &answer.threads[..] else { panic!("{:?}", answer.threads) };
    let sums = [thread.opens.unwrap(), thread.reads.unwrap(), thread.writes.unwrap(), thread.syncs.unwrap()];
    let sums = sums.map(|of| (of.count, of.failed, of.bytes, of.total_ns));
    assert_eq!(sums, [(4, 3, 0, 20), (3, 0, 105, 15), (2, 1, 7, 10), (1, 0, 0, 5)]);
    assert_eq!((thread.total_ns.unwrap(), thread.unfinished.unwrap(), thread.unmatched.unwrap()), (55, 0, 0));
    assert_eq!((answer.left_out, answer.knows_calls), (0, true));
}

#[test]
fn threads_share_their_files_and_processes_copy_them() {
    let mut story = Story::new();
    story.open(100, 1, ("/a", 0), 3);
    story.open(110, 1, ("/hidden", CLOEXEC), 4);
    story.fork(120, 1, 2, true);
    story.fork(121, 1, 3, false);
    story.open(130, 2, ("/of thread", 0), 5);
    story.call(140, 1, nr::READ, &[5], 10);
    story.call(150, 3, nr::READ, &[5], 20);
    story.call(160, 3, nr::READ, &[3], 30);
    story.call(170, 3, nr::DUP2, &[3, 1], 1);
    story.call(180, 3, nr::FCNTL, &[3, 0, 10], 10);
    story.look(190, 3, Known::Exec { tid: 3, from: None });
    story.call(200, 3, nr::WRITE, &[1], 40);
    story.call(210, 3, nr::WRITE, &[10], 50);
    story.call(220, 3, nr::WRITE, &[4], 60);
    story.call(230, 1, nr::WRITE, &[4], 70);
    story.call(240, 2, nr::CLOSE_RANGE, &[4, 0xffff_ffff, 0], 0);
    story.call(250, 1, nr::WRITE, &[4], 80);
    // The id is given to another process.
    story.look(260, 3, Known::Ends { tid: 3 });
    story.call(270, 3, nr::WRITE, &[1], 90);
    let answer = story.answer(300);
    assert_eq!(file(&answer, "/a"), (1, 30, 2, 90));
    assert_eq!(file(&answer, "/hidden"), (0, 0, 1, 70));
    assert_eq!(file(&answer, "/of thread"), (1, 10, 0, 0));
    assert_eq!(file(&answer, "Unknown Some(5) Some(3)"), (1, 20, 0, 0));
    assert_eq!(file(&answer, "Unknown Some(4) Some(3)"), (0, 0, 1, 60));
    assert_eq!(file(&answer, "Unknown Some(4) Some(1)"), (0, 0, 1, 80));
    assert_eq!(file(&answer, "Unknown Some(1) Some(3)"), (0, 0, 1, 90));
}

#[test]
fn a_number_that_another_thread_gets_during_a_close_is_not_lost() {
    let mut story = Story::new();
    story.open(100, 1, ("/a", 0), 3);
    story.fork(110, 1, 2, true);
    story.enter(120, 1, nr::CLOSE, &[3], None);
    story.open(125, 2, ("/b", 0), 3);
    story.exit(140, 1, nr::CLOSE, 0);
    story.call(150, 1, nr::READ, &[3], 10);
    assert_eq!(file(&story.answer(200), "/b"), (1, 10, 0, 0));
}

#[test]
fn paths_begin_at_directories_that_are_known() {
    let mut story = Story::new();
    story.open(100, 1, ("/dir", 0), 3);
    for (time, directory, path, fd) in
        [(110, 3, "in", 4), (120, CURRENT_DIRECTORY, "in", 5), (130, 3, "/in", 6)]
    {
        story.enter(time, 1, nr::OPENAT, &[directory, 0, 0], Some(path));
        story.exit(time + 5, 1, nr::OPENAT, fd);
        story.call(time + 6, 1, nr::READ, &[fd], fd);
    }
    let answer = story.answer(200);
    for (path, bytes) in [("/dir/in", 4), ("in", 5), ("/in", 6)] {
        assert_eq!(file(&answer, path), (1, bytes, 0, 0));
    }
}

#[test]
fn sockets_and_copies_from_file_to_file() {
    let mut story = Story::new();
    story.open(100, 1, ("/a", 0), 3);
    story.call(110, 1, nr::SENDFILE, &[5, 3], 100);
    story.call(120, 1, nr::SENDTO, &[7], 11);
    // It is known to be a socket from now on.
    story.call(130, 1, nr::WRITE, &[7], 12);
    let answer = story.answer(200);
    assert_eq!(file(&answer, "/a"), (1, 100, 0, 0));
    assert_eq!(file(&answer, "Unknown Some(5) Some(1)"), (0, 0, 1, 100));
    assert_eq!(file(&answer, "Socket Some(7) Some(1)"), (0, 0, 2, 23));
    assert_eq!((answer.threads[0].reads.unwrap().bytes, answer.threads[0].writes.unwrap().bytes), (100, 123));
    assert_eq!(answer.threads[0].total_ns.unwrap(), 20);
}

#[test]
fn two_events_of_one_call_are_one_call() {
    let mut story = Story::new();
    let raw = Known::CallEnter {
        number: nr::OPENAT,
        arguments: [Some(-100), None, Some(0)],
        path: None,
        is_raw: true,
    };
    story.look(100, 1, raw);
    story.enter(101, 1, nr::OPENAT, &[CURRENT_DIRECTORY, 0, 0], Some("/a"));
    story.exit(105, 1, nr::OPENAT, 3);
    story.look(106, 1, Known::CallExit { number: nr::OPENAT, result: 3, is_raw: true });
    story.call(110, 1, nr::READ, &[3], 9);
    let answer = story.answer(200);
    assert_eq!(file(&answer, "/a"), (1, 9, 0, 0));
    let thread = &answer.threads[0];
    assert_eq!(
        (thread.opens.unwrap().count, thread.opens.unwrap().total_ns, thread.unmatched.unwrap()),
        (1, 5, 0)
    );
}

#[test]
fn what_was_open_or_under_way_over_a_loss_is_unknown() {
    let mut story = Story::new();
    story.exit(50, 1, nr::READ, 100);
    story.open(100, 1, ("/a", 0), 3);
    story.enter(110, 1, nr::READ, &[3], None);
    story.lose(115);
    story.exit(120, 1, nr::READ, 100);
    story.call(130, 1, nr::READ, &[3], 10);
    // The begin of this one was lost: what the number stands for now is unknown.
    story.open(140, 1, ("/b", 0), 4);
    story.exit(150, 1, nr::OPENAT, 4);
    story.call(160, 1, nr::READ, &[4], 20);
    story.enter(170, 1, nr::READ, &[4], None);
    let answer = story.answer(200);
    assert_eq!(file(&answer, "Unknown Some(3) Some(1)"), (1, 10, 0, 0));
    assert_eq!(file(&answer, "Unknown Some(4) Some(1)"), (1, 20, 0, 0));
    let thread = &answer.threads[0];
    assert_eq!(
        (thread.reads.unwrap().count, thread.unmatched.unwrap(), thread.unfinished.unwrap()),
        (2, 3, 1)
    );
}

#[test]
fn a_part_of_a_recording_is_told() {
    let mut story = Story::of(Scope { from: Some(125), names: vec!["o*".to_owned()], ..Scope::default() });
    story.look(90, 1, Known::Renamed { tid: 1, comm: Some(b"one"), before: b"" });
    story.look(90, 2, Known::Renamed { tid: 2, comm: Some(b"two"), before: b"" });
    story.open(100, 1, ("/a", 0), 3);
    story.fork(105, 1, 2, true);
    story.look(106, 2, Known::Renamed { tid: 2, comm: Some(b"two"), before: b"" });
    story.call(110, 1, nr::READ, &[3], 10);
    story.enter(120, 1, nr::READ, &[3], None);
    story.exit(130, 1, nr::READ, 20);
    story.call(140, 2, nr::READ, &[3], 40);
    story.issue(110, 1, (8, 512, "R"));
    story.issue(110, 2, (16, 512, "R"));
    story.complete(150, (8, 1, "R"), false);
    story.look(151, 1, Known::Renamed { tid: 1, comm: Some(b"one"), before: b"" });
    story.look(151, 2, Known::Renamed { tid: 2, comm: Some(b"two"), before: b"" });
    story.complete(160, (16, 1, "R"), false);
    let answer = story.answer(225);
    assert_eq!(file(&answer, "/a"), (1, 20, 0, 0));
    assert_eq!(answer.threads.iter().map(|of| of.tid).collect::<Vec<_>>(), [1]);
    assert_eq!(told(&answer, Operation::Read), (1, 40, 512, 0, 0, 0, 0));
    // How many the device has at a time is of all threads.
    assert_eq!(answer.devices[0].busy_ns.unwrap(), 35);
    assert!((answer.devices[0].average_depth.unwrap() - (25 + 35) as f64 / 100.0).abs() < 1e-9);
}

#[test]
fn a_new_count_has_what_goes_on() {
    let mut story = Story::new();
    story.open(100, 1, ("/a", 0), 3);
    story.call(110, 1, nr::READ, &[3], 10);
    story.issue(120, 9, (8, 512, "R"));
    story.look(125, 9, Known::Ends { tid: 9 });
    story.enter(130, 1, nr::READ, &[3], None);
    story.0.restart(150);
    story.exit(160, 1, nr::READ, 20);
    story.call(170, 1, nr::READ, &[3], 40);
    story.complete(180, (8, 1, "R"), false);
    let answer = story.answer(250);
    assert_eq!(file(&answer, "/a"), (2, 60, 0, 0));
    assert_eq!(answer.threads[0].opens.unwrap().count, 0);
    assert_eq!(told(&answer, Operation::Read), (1, 60, 512, 0, 0, 0, 0));
    assert_eq!((answer.requesters[0].tid, answer.requesters[0].comm.as_str()), (Some(9), "asks"));
    assert_eq!((answer.devices[0].busy_ns.unwrap(), answer.devices[0].most_depth.unwrap()), (30, 1));
}

#[test]
fn names_of_files_that_are_open_stay_when_there_is_little_room() {
    let mut story = Story::new();
    story.open(1, 1, ("/first", 0), 3);
    for number in 0..(1 << 15) + 10 {
        let path = format!("/{number}");
        story.open(10 + number, 1, (&path, 0), 4);
    }
    let last = format!("/{}", (1 << 15) + 9);
    story.open(1 << 16, 1, ("/hidden", 0), 5);
    story.enter((1 << 16) + 10, 1, nr::READ, &[5], None);
    story.fork((1 << 16) + 11, 1, 2, true);
    story.call((1 << 16) + 12, 2, nr::CLOSE, &[5], 0);
    story.0.restart(1 << 17);
    assert!(!story.0.open_files.files.is_half_full());
    story.exit((1 << 17) + 1, 1, nr::READ, 5);
    story.call((1 << 17) + 10, 1, nr::READ, &[3], 10);
    story.call((1 << 17) + 20, 2, nr::READ, &[4], 20);
    let answer = story.answer(1 << 18);
    assert_eq!(file(&answer, "/hidden"), (1, 5, 0, 0));
    assert_eq!(file(&answer, "/first"), (1, 10, 0, 0));
    assert_eq!(file(&answer, &last), (1, 20, 0, 0));
    assert_eq!((answer.files.len(), answer.left_out), (3, 0));
}

#[test]
fn nothing_is_known_of_the_calls_of_another_machine() {
    let mut story = Story(Io::new(Scope::default(), None));
    story.call(10, 1, nr::READ, &[3], 10);
    let answer = story.answer(100);
    assert!(!answer.knows_calls && answer.files.is_empty() && answer.threads.is_empty());
}

/// Whole recordings, of which completions are missing at random without a mark.
#[test]
fn missing_completions_make_nothing_longer_deeper_or_busier() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut below = |end| random.below(end);
    for round in 0..200 {
        // No two requests are at one place at a time; flushes are at the same one always.
        let (mut open, mut time): (Vec<(u64, &str)>, u64) = (Vec::new(), 100);
        let [mut whole, mut part] = [Story::new(), Story::new()];
        let dropped = below(100);
        for _ in 0..150 {
            time += 1 + below(10);
            let new = [(below(20) * 8, "R"), (below(20) * 8, "WS"), (0, "FF")][below(3) as usize];
            if below(2) == 0 && !open.contains(&new) {
                open.push(new);
                let bytes = if new.1 == "FF" { 0 } else { 512 };
                whole.issue(time, 1, (new.0, bytes, new.1));
                part.issue(time, 1, (new.0, bytes, new.1));
            } else if !open.is_empty() {
                let (sector, rwbs) = open.swap_remove(below(open.len() as u64) as usize);
                let done = if rwbs == "FF" { (u64::MAX, 0, rwbs) } else { (sector, 1, rwbs) };
                whole.complete(time, done, false);
                if below(100) >= dropped {
                    part.complete(time, done, false);
                }
            }
        }
        let [whole, part] = [whole.answer(time), part.answer(time)];
        let Some(of_whole) = whole.devices.first() else { continue };
        for device in &part.devices {
            assert!(device.busy_ns.unwrap() <= of_whole.busy_ns.unwrap(), "{round}: {device:?} {of_whole:?}");
            assert!(
                device.most_depth.unwrap() <= of_whole.most_depth.unwrap(),
                "{round}: {device:?} {of_whole:?}"
            );
            assert!(
                device.average_depth.unwrap() <= of_whole.average_depth.unwrap(),
                "{round}: {device:?} {of_whole:?}"
            );
            for of in &device.operations {
                let operation = of.operation;
                let of_whole = of_whole.operations.iter().find(|whole| whole.operation == operation).unwrap();
                assert!(
                    of.times.unwrap().most_ns <= of_whole.times.unwrap().most_ns,
                    "{round}: {of:?} {of_whole:?}"
                );
                assert!(
                    of.times.unwrap().count <= of_whole.times.unwrap().count,
                    "{round}: {of:?} {of_whole:?}"
                );
                let all = of.times.unwrap().count + of.unfinished.unwrap();
                assert_eq!(
                    all,
                    of_whole.times.unwrap().count + of_whole.unfinished.unwrap(),
                    "{round}: {of:?} {of_whole:?}"
                );
            }
        }
    }
}
