//! The scope of a recording: which threads are recorded, by what they are.
//!
//! It becomes a function that every recording program asks about the current thread. Scheduler events are
//! about another thread, too, and that one's name, user and group are not at hand: it counts by what was
//! found when it was last seen running, or at the start.

use super::filter::{Emitter, Facts, Program, Uncompiled};
use crate::{
    bpf::insn::Label,
    event::{
        filter::{
            Context,
            program::{Number, Pattern, Test, Text},
        },
        int::{IntType, Op},
    },
    input::glob,
    kernel::{
        cgroup::{self, Cgroup},
        clock::TraceClock,
        proc::{self, Thread},
    },
};

/// Bytes of a thread's name.
const COMM: u32 = 16;

/// What threads are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Names, with wildcards.
    pub comms: Vec<String>,
    /// Users.
    pub uids: Vec<u32>,
    /// Control groups, with those inside of them.
    pub cgroups: Vec<Cgroup>,
    /// Processes.
    pub processes: Vec<u32>,
}

/// Which threads are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// What a thread has to be: one of each kind that is not empty.
    pub only: Traits,
    /// What it must not be: any of these.
    pub except: Traits,
}

impl Traits {
    fn is_empty(&self) -> bool {
        let Self { comms, uids, cgroups, processes } = self;
        comms.is_empty() && uids.is_empty() && cgroups.is_empty() && processes.is_empty()
    }

    /// What is asked of a thread, by kind.
    fn kinds(&self) -> [Vec<Ask<'_>>; 4] {
        [
            self.processes.iter().map(|id| Ask::Number(Context::Pid, (*id).into())).collect(),
            self.uids.iter().map(|id| Ask::Number(Context::Uid, (*id).into())).collect(),
            self.cgroups.iter().map(Ask::Cgroup).collect(),
            self.comms.iter().map(|comm| Ask::Comm(comm)).collect(),
        ]
    }
}

/// A question about a thread.
enum Ask<'a> {
    Number(Context, u64),
    Cgroup(&'a Cgroup),
    Comm(&'a str),
}

impl Scope {
    /// Whether it is that of every thread.
    pub fn is_everything(&self) -> bool {
        self.only.is_empty() && self.except.is_empty()
    }

    /// The function for the programs.
    pub(crate) fn compile(&self) -> Result<Program, Uncompiled> {
        // Nothing that is asked of threads depends on them.
        let facts = Facts::new(TraceClock::Mono, None);
        let mut emitter = Emitter::new(0, &facts, super::filter::TEXT_MAX, COMM);
        let (yes, no) = (emitter.label(), emitter.label());
        for kind in self.except.kinds().iter().flatten() {
            let next = emitter.label();
            kind.emit(&mut emitter, no, next)?;
            emitter.bind(next);
        }
        for kind in self.only.kinds().iter().filter(|kind| !kind.is_empty()) {
            let found = emitter.label();
            for ask in kind {
                let next = emitter.label();
                ask.emit(&mut emitter, found, next)?;
                emitter.bind(next);
            }
            emitter.goto(no);
            emitter.bind(found);
        }
        emitter.goto(yes);
        emitter.finish(yes, no)
    }

    /// Whether a thread of this moment is within it.
    pub(crate) fn takes(&self, thread: &Thread) -> bool {
        let holds = |ask: &Ask<'_>| ask.holds(thread);
        !self.except.kinds().iter().flatten().any(holds)
            && self.only.kinds().iter().all(|kind| kind.is_empty() || kind.iter().any(holds))
    }

    /// Its control groups that are no more.
    pub(crate) fn vanished(&self) -> Vec<String> {
        let groups = self.only.cgroups.iter().chain(&self.except.cgroups);
        groups.filter(|group| !group.is_there()).map(|group| group.path.clone()).collect()
    }
}

impl Ask<'_> {
    fn emit(&self, emitter: &mut Emitter<'_>, yes: Label, no: Label) -> Result<(), Uncompiled> {
        match self {
            Self::Number(context, value) => {
                let number = Number::Context { context: *context, tid: None };
                let operands = Box::new((number, Number::Const(*value)));
                let test = Test::Number(Number::Binary { op: Op::Eq, int: IntType::U64, operands });
                emitter.test(&test, yes, no)
            }
            Self::Cgroup(group) => {
                emitter.in_cgroup(group.id, group.level, yes);
                emitter.goto(no);
                Ok(())
            }
            Self::Comm(comm) => {
                let (text, pattern) = (Text::Comm(Number::Const(0)), Pattern::Glob(comm.as_bytes().into()));
                emitter.test(&Test::Text { text, pattern, negated: false }, yes, no)
            }
        }
    }

    fn holds(&self, thread: &Thread) -> bool {
        match self {
            Self::Number(Context::Uid, uid) => {
                proc::uid_of(thread.tid).is_some_and(|found| u64::from(found) == *uid)
            }
            Self::Number(_, process) => u64::from(thread.tgid) == *process,
            Self::Cgroup(group) => cgroup::of_thread(thread.tid).is_some_and(|path| group.holds(&path)),
            Self::Comm(comm) => glob::matches_bytes(comm.as_bytes(), &thread.comm),
        }
    }
}
