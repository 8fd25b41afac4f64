//! What analyses keep while they go on for a long time, and threads, stacks and the like come and go.

use std::fmt::{self, Debug, Write as _};

use super::{
    Analysis, At, Calls, Context, Event, Feed, Frames, Io, Irqs, Known, Lives, Locks, Memory, Names, OffCpu,
    Pick, Sched, Scope, Stacks, Summary, Switch, Tid, Topic, Wakeup, Weight,
};
use ftrace_event::syscalls::SyscallTable;
use report::crafted;
use report::crafted::{ev, stack};
use tracedat::reader::Record;

/// Intervals, and of what has much room: all of it is used up more than once.
const ROUNDS: u64 = 400;
const ROUNDS_OF_MANY: u64 = 1000;
/// New threads in each of them.
const NEW: u64 = 150;
/// How many ids there are for them.
const IDS: u64 = 30_000;
/// Calls of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
const OPENAT: i64 = 257;
const READ: i64 = 0;
const FUTEX: i64 = 202;

/// Counts the bytes of a text.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// How many bytes the text of all that is kept has.
fn size(kept: &impl Debug) -> usize {
    let mut length = Length(0);
    write!(length, "{kept:?}").expect("everything can be printed");
    length.0
}

/// An analysis, and what time it is.
struct Story<A> {
    analysis: A,
    lives: Lives,
    time: u64,
    cpu: u32,
    /// Whether the ends of threads are recorded.
    frees: bool,
}

impl<A: Analysis + Debug> Story<A> {
    fn new(analysis: A, frees: bool) -> Self {
        Self { analysis, lives: Lives::default(), time: 1000, cpu: 0, frees }
    }

    fn look(&mut self, tid: Tid, known: Known<'_>) {
        self.time += 1;
        let at = At { time: self.time, cpu: self.cpu };
        self.analysis.count(at, 7);
        let event = Event::whole(Some(tid), Context::Thread, known);
        self.lives.tell(&event, |event| self.analysis.look(at, &event));
        self.stack();
    }

    /// The stack of the last event, if it is wanted.
    fn stack(&mut self) {
        if let Some(of) = self.analysis.awaits_stack() {
            let mut own = [self.time, self.time / 7, 1].into_iter();
            self.analysis.stack(of, Frames { is_kernel: true, addresses: &mut own });
            self.analysis.stack_ended(of, &Names::none());
        }
    }

    /// A thread begins, does something, and ends.
    fn life(&mut self, tid: Tid, nth: u64) {
        self.cpu = (nth % 4) as u32;
        let name = format!("n{nth}");
        let comm = name.as_bytes();
        let switch = |prev, prev_state, next| {
            Known::Switch(Switch { prev, prev_comm: comm, prev_state, next, next_comm: comm })
        };
        let (is_thread, shares_memory, shares_files) = (false, false, false);
        self.look(1, Known::NewTask { child: tid, comm, is_thread, shares_memory, shares_files });
        self.look(1, Known::Fork { child: tid, comm });
        self.look(1, Known::Wakeup(Wakeup { tid, comm, is_new: true }));
        self.look(1, switch(1, 1, tid));
        self.calls(tid, nth, comm);
        self.look(tid, switch(tid, 1, 1));
        self.look(1, Known::Wakeup(Wakeup { tid, comm, is_new: false }));
        self.look(1, switch(1, 1, tid));
        let irq = i64::from(tid % 100);
        self.look(tid, Known::IrqEntry { irq, name: comm });
        self.look(tid, Known::IrqExit { irq });
        self.memory(tid, nth);
        // In a futex when it ends.
        self.enter(tid, FUTEX, [Some(nth as i64), Some(128), None], None);
        self.look(tid, switch(tid, if self.frees { 0x10 } else { 1 }, 1));
        if self.frees {
            self.look(1, Known::Freed { tid });
        }
    }

    fn enter(&mut self, tid: Tid, number: i64, arguments: [Option<i64>; 3], path: Option<&[u8]>) {
        self.look(tid, Known::CallEnter { number, arguments, path, is_raw: false });
    }

    fn calls(&mut self, tid: Tid, nth: u64, path: &[u8]) {
        self.enter(tid, OPENAT, [Some(-100), None, None], Some(path));
        self.look(tid, Known::CallExit { number: OPENAT, result: 3, is_raw: false });
        self.enter(tid, READ, [Some(3), None, None], None);
        self.look(tid, Known::CallExit { number: READ, result: 100, is_raw: false });
        let number = i64::from(tid % 500);
        self.enter(tid, number, [None; 3], None);
        self.look(tid, Known::CallExit { number, result: -number, is_raw: false });
        self.look(tid, Known::LockBegin { lock: nth, flags: 0 });
        self.look(tid, Known::LockEnd { lock: nth, result: 0 });
        self.enter(tid, FUTEX, [Some(nth as i64), Some(129), None], None);
        self.look(tid, Known::CallExit { number: FUTEX, result: 1, is_raw: false });
    }

    /// Some of what it takes is never given back.
    fn memory(&mut self, tid: Tid, nth: u64) {
        self.look(tid, Known::PageAlloc { pfn: Some(nth), order: 0 });
        if !nth.is_multiple_of(16) {
            self.look(tid, Known::PageFree { pfn: nth, order: 0 });
        }
        let address = 0x1000 + nth * 64;
        let (requested, allocated, cache) = (nth % 64, 64, Some(&b"cache"[..]));
        self.look(tid, Known::SlabAlloc { address, call_site: nth % 512, requested, allocated, cache });
        if !nth.is_multiple_of(16) {
            self.look(tid, Known::SlabFree { address });
        }
    }

    /// The most that is kept in each half.
    fn sizes(mut self, rounds: u64) -> [usize; 2] {
        let mut sizes = [0; 2];
        for round in 0..rounds {
            for new in 0..NEW {
                let nth = round * NEW + new;
                self.life(10 + (nth % IDS) as Tid, nth);
            }
            self.analysis.restart(self.time);
            if round % 25 == 0 {
                let _ = self.analysis.clone().answer(self.time, &Names::none());
                let half = &mut sizes[usize::from(round >= rounds / 2)];
                *half = (*half).max(size(&self.analysis));
            }
        }
        sizes
    }
}

#[track_caller]
fn is_bounded<A: Analysis + Debug>(analysis: A, rounds: u64) {
    let [before, after] = Story::new(analysis, true).sizes(rounds);
    assert!(after <= before + before / 8, "{before} bytes, then {after}");
}

fn calls() -> Option<SyscallTable> {
    SyscallTable::of_machine("x86_64")
}

#[test]
fn what_is_kept_of_threads_does_not_grow_with_time() {
    is_bounded(Sched::new(Scope::default()), ROUNDS);
    is_bounded(Calls::new(Scope::default(), calls()), ROUNDS);
    is_bounded(Irqs::new(Scope::default()), ROUNDS);
    is_bounded(Summary::new(Scope::default(), calls()), ROUNDS);
}

#[test]
fn what_is_kept_of_stacks_does_not_grow_with_time() {
    is_bounded(OffCpu::new(Scope::default()), ROUNDS_OF_MANY);
    is_bounded(Locks::new(Scope::default(), calls(), []), ROUNDS_OF_MANY);
}

#[test]
fn what_is_kept_of_stacks_of_any_event_does_not_grow_with_time() {
    const FUNCTIONS: u64 = 64;
    const ROUNDS_OF_ANY: u64 = 300;
    let symbols: Vec<String> = (1..=FUNCTIONS).map(|nth| format!("{:x} t f{nth}\n", nth << 12)).collect();
    let file = crafted::file(&[ev(1, 0, 7, 0), stack(1, 0, &[0; 4])], &symbols.concat(), "", "[local]");
    let mut records = file.reader().records().unwrap();
    let event = records.next_record().unwrap().unwrap().data.to_vec();
    let frames = records.next_record().unwrap().unwrap().data.to_vec();
    for weight in ["count", "time"] {
        let Ok(weight) = weight.parse::<Weight>();
        let pick = Pick::of(&file, "ev", &weight).unwrap();
        let mut feed = Feed::new(&file, Scope::default(), Stacks::new(Scope::default(), pick));
        let mut sizes = [0; 2];
        let (mut time, mut random) = (1_000_000, 1_u64);
        let mut take = |feed: &mut Feed<Stacks>, data: &[u8]| {
            let (reader, buffer, cpu, missed) = (0, 0, 0, None);
            let endian = ftrace_event::Endian::Little;
            time += 5000;
            feed.take(&file, &Record { reader, buffer, cpu, timestamp: time, missed, data, endian });
            time
        };
        for round in 0..ROUNDS_OF_ANY {
            let mut now = 0;
            for nth in 0..500 {
                let tid = ((round * 500 + nth) % IDS + 1) as Tid;
                let of_thread = |data: &[u8]| [&data[..4], &tid.to_le_bytes(), &data[8..]].concat();
                take(&mut feed, &of_thread(&event));
                let mut frames = of_thread(&frames);
                for frame in frames[16..].chunks_exact_mut(8) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    frame.copy_from_slice(&(((random >> 40) % FUNCTIONS + 1) << 12).to_le_bytes());
                }
                now = take(&mut feed, &frames);
            }
            let (answer, _) = feed.answer_until(now, &file, Topic::Stacks);
            assert_eq!(answer.others.count, 0);
            feed.restart(now);
            // Printing everything takes longer than a round.
            if round % 5 == 0 {
                let half = &mut sizes[usize::from(round >= ROUNDS_OF_ANY / 2)];
                *half = (*half).max(size(&feed));
            }
        }
        let [before, after] = sizes;
        assert!(after <= before + before / 8, "{before} bytes, then {after}");
    }
}

#[test]
fn what_is_kept_of_files_and_memory_does_not_grow_with_time() {
    is_bounded(Io::new(Scope::default(), calls()), ROUNDS_OF_MANY);
    is_bounded(Memory::new(Scope::default()), ROUNDS_OF_MANY);
}

#[test]
fn there_is_room_for_new_threads_though_nobody_tells_that_others_have_ended() {
    let mut sched = Story::new(Sched::new(Scope::default()), false);
    let mut of_calls = Story::new(Calls::new(Scope::default(), calls()), false);
    let mut io = Story::new(Io::new(Scope::default(), calls()), false);
    let mut locks = Story::new(Locks::new(Scope::default(), calls(), []), false);
    let newest = 299_999;
    for tid in 10..=newest {
        let nth = u64::from(tid);
        sched.life(tid, nth);
        of_calls.life(tid, nth);
        io.life(tid, nth);
        locks.life(tid, nth);
        if tid % 10_000 == 0 {
            sched.analysis.restart(sched.time);
            of_calls.analysis.restart(of_calls.time);
            io.analysis.restart(io.time);
            locks.analysis.restart(locks.time);
        }
    }
    let (end, names) = (sched.time, Names::none());
    let (sched, calls) = (sched.analysis.answer(end, &names), of_calls.analysis.answer(end, &names));
    assert_eq!((sched.threads_left_out, calls.left_out), (0, 0));
    assert!(sched.threads.iter().any(|thread| thread.tid == newest && thread.run_ns > 0));
    assert!(calls.threads.iter().any(|thread| thread.tid == newest));
    let io = io.analysis.answer(end, &names);
    assert!(io.threads.iter().any(|thread| thread.tid == newest), "{}", io.threads.len());
    let locks = locks.analysis.answer(end, &names);
    assert!(locks.threads.iter().any(|thread| thread.tid == Some(newest)), "{}", locks.threads.len());
}
