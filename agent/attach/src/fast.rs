//! Putting the programs of the fast lane together, loading and attaching them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use aya_obj::generated::bpf_insn;
use serde::{Deserialize, Serialize};

use bpf::load::{LoadError, Object, Refused, side_by_side, verdict, verify};
use bpf::parts::Code;
use bpf::program::{Body, Recorded};
use bpf::sys;
use compile::fast::together::Fragment;
use compile::fast::{FastEvent, Hooks, Kind, Module, together};
use kernel::btf::TypeId;
use stdx::handover::{Descriptors, Missing, Number};
use stdx::reason;

/// Why an event's program could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum FastError {
    /// The verifier or a missing permission.
    #[error("the kernel refused its program: {}", verdict(source, .log))]
    Load {
        /// The system's reason.
        #[source]
        source: io::Error,
        /// The end of what the verifier said.
        log: String,
    },
    /// The object has not what the program calls: a defect of the build.
    #[error("its program cannot be put together: {0}")]
    Link(#[source] Box<LoadError>),
    /// The program that it shares with others.
    #[error("the kernel refused the program of all system calls")]
    Shared,
    /// Attaching.
    #[error("the kernel refused to attach its program: {0}")]
    Attach(#[source] io::Error),
}

impl FastError {
    /// The end of what the verifier said, if it was asked; several lines.
    pub fn log(&self) -> &str {
        match self {
            Self::Load { log, .. } => log,
            Self::Link(_) | Self::Shared | Self::Attach(_) => "",
        }
    }

    /// Whether the kernel's reason was a missing permission, and not what the verifier says.
    pub fn is_permission(&self) -> bool {
        self.log().is_empty() && reason::io_kind(self) == Some(io::ErrorKind::PermissionDenied)
    }
}

/// Programs on their tracepoints. Dropping them detaches, which takes no time worth mentioning.
#[derive(Debug, Default)]
pub struct FastLinks {
    /// In the order in which they are attached.
    programs: Vec<Attached>,
}

/// A program, and whether it is on its tracepoint.
#[derive(Debug)]
struct Attached {
    /// An event's name, or that of a program for many events.
    name: String,
    program: OwnedFd,
    /// Nothing while it is detached.
    link: Option<OwnedFd>,
    /// The slots of the events that need it.
    slots: BTreeSet<u32>,
    /// Whether it records events, of which it counts those that it missed.
    records: bool,
    hook: Hook,
}

/// What a program is attached to.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Hook {
    /// The tracepoint that it is loaded for.
    Own,
    /// A tracepoint, with a cookie.
    Tracepoint { name: CString, cookie: u64 },
}

impl Hook {
    fn attach(&self, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::Own => sys::attach_tracing(program),
            Self::Tracepoint { name, cookie } => sys::open_raw_tracepoint_with(program, name, *cookie),
        }
    }
}

impl FastLinks {
    /// How many programs are attached.
    pub fn len(&self) -> usize {
        self.programs.iter().filter(|program| program.link.is_some()).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The programs, which count what they missed, by name; those that are detached by now, too.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let recording = self.programs.iter().filter(|program| program.records);
        recording.map(|program| (program.name.as_str(), program.program.as_fd()))
    }

    /// Says that an event needs its program no more, and detaches those that no event needs.
    pub fn release(&mut self, slot: u32) {
        for program in &mut self.programs {
            if program.slots.remove(&slot) && program.slots.is_empty() {
                program.link = None;
            }
        }
    }

    /// Detaches all of them until [`FastLinks::resume`].
    pub fn suspend(&mut self) {
        self.programs.iter_mut().for_each(|program| program.link = None);
    }

    /// Attaches again what was suspended.
    ///
    /// # Errors
    /// The kernel refuses one: those after it are not attached.
    pub fn resume(&mut self) -> io::Result<()> {
        let detached = self.programs.iter_mut().filter(|program| program.link.is_none());
        for program in detached.filter(|program| !program.slots.is_empty()) {
            program.link = Some(program.hook.attach(program.program.as_fd())?);
        }
        Ok(())
    }
}

/// Links of the fast lane on their way to another process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FastState {
    programs: Vec<AttachedState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AttachedState {
    name: String,
    program: Number,
    link: Option<Number>,
    slots: BTreeSet<u32>,
    records: bool,
    hook: Hook,
}

impl FastLinks {
    /// Gives them away. The programs go on.
    pub fn hand_over(self, to: &mut Descriptors) -> FastState {
        let programs = self.programs.into_iter().map(|of| AttachedState {
            name: of.name,
            program: to.put(of.program),
            link: of.link.map(|link| to.put(link)),
            slots: of.slots,
            records: of.records,
            hook: of.hook,
        });
        FastState { programs: programs.collect() }
    }

    /// Takes those that another process has given away.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: FastState, from: &mut Descriptors) -> Result<Self, Missing> {
        let of = |of: AttachedState| {
            let AttachedState { name, program, link, slots, records, hook } = of;
            let link = link.map(|link| from.take(link)).transpose()?;
            Ok(Attached { name, program: from.take(program)?, link, slots, records, hook })
        };
        Ok(Self { programs: state.programs.into_iter().map(of).collect::<Result<_, _>>()? })
    }
}

/// Loads and attaches fast events.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    object: &'a Object,
    enter: &'a [bpf_insn],
    exit: &'a [bpf_insn],
    /// Whether the exit's program completes records of the entry's.
    late_strings: bool,
    hooks: Option<Hooks>,
}

/// An event to attach: its name, how it is recorded, and its slot.
pub(crate) type ToAttach<'a> = (&'a str, &'a FastEvent, u32);

/// From how many events on those that can have programs together do. Fewer are loaded as fast by themselves
/// as the rest of a start takes, and cost less then.
const MANY: usize = 100;
/// Events of a program at most.
const TOGETHER: usize = 32;

/// An event of a program of many.
struct Member<'a> {
    /// Where it is among the events to attach.
    at: usize,
    name: &'a str,
    slot: u32,
    id: u16,
    fragment: &'a Fragment,
}

impl Member<'_> {
    /// Attaches the event's program, in which it is at `index`.
    fn attach(&self, program: BorrowedFd<'_>, index: u16) -> io::Result<Attached> {
        let tracepoint = self.name.split_once(':').map_or(self.name, |(_, name)| name);
        let cookie = together::cookie(index, self.slot, self.id);
        let hook = Hook::Tracepoint { name: CString::new(tracepoint)?, cookie };
        let link = Some(hook.attach(program)?);
        let (name, program) = (self.name.to_owned(), program.try_clone_to_owned()?);
        Ok(Attached { name, program, link, slots: [self.slot].into(), records: false, hook })
    }
}

/// Which events have programs together: those whose records are about as long, so that little room is asked
/// for in vain, of tracepoints with as many arguments.
fn groups<'a>(events: &[ToAttach<'a>]) -> Vec<Vec<Member<'a>>> {
    let member = |(at, &(name, event, slot)): (usize, &ToAttach<'a>)| match &event.0 {
        Kind::Own { id, together: Some(fragment), .. } => Some(Member { at, name, slot, id: *id, fragment }),
        _ => None,
    };
    let mut members: Vec<Member<'a>> = events.iter().enumerate().filter_map(member).collect();
    if members.len() < MANY {
        return Vec::new();
    }
    members.sort_by_key(|member| (member.fragment.arguments, member.fragment.max));
    let mut groups: Vec<Vec<Member<'a>>> = Vec::new();
    for member in members {
        match groups.last_mut() {
            Some(group)
                if group.len() < TOGETHER && group[0].fragment.arguments == member.fragment.arguments =>
            {
                group.push(member);
            }
            _ => groups.push(vec![member]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// A program that one or more events need.
enum Job<'a> {
    Own {
        name: &'a str,
        tracepoint: Tracepoint<'a>,
        direct: &'a Body,
        copied: &'a Body,
        event: Recorded,
    },
    Calls {
        name: &'static str,
        tracepoint: Tracepoint<'a>,
        code: &'a [bpf_insn],
    },
    /// Attached by another process.
    Attached {
        name: &'a str,
    },
}

/// What a program is loaded for.
#[derive(Clone, Copy)]
struct Tracepoint<'a> {
    /// The number of its type.
    type_id: TypeId,
    /// The module in whose types it is; `None` for the kernel's own.
    module: Option<&'a Module>,
}

impl Job<'_> {
    fn name(&self) -> &str {
        match self {
            Job::Own { name, .. } | Job::Calls { name, .. } | Job::Attached { name } => name,
        }
    }
}

/// What came of attaching fast events.
#[derive(Debug)]
pub struct FastResults {
    /// In the order of the events.
    pub events: Vec<Result<(), FastError>>,
    /// Of the program that completes strings of events with programs by themselves: without it, a string that
    /// is not resident at the entry stays unavailable.
    pub own_strings: Result<(), FastError>,
}

impl<'a> Loader<'a> {
    /// `late_strings`: whether strings of system calls may have to be copied at the exit.
    pub(crate) fn new(
        object: &'a Object,
        hooks: Option<Hooks>,
        late_strings: bool,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            object,
            enter: object.instructions("syscall_enter")?,
            exit: object.instructions("syscall_exit")?,
            late_strings,
            hooks,
        })
    }

    /// Loads and attaches the programs of these events, and what completes strings of those with the slots
    /// `own_strings`, which have programs by themselves.
    pub(crate) fn attach(&self, events: &[ToAttach<'_>], own_strings: &[u32]) -> (FastLinks, FastResults) {
        let (mut links, together) = self.attach_together(events);
        let others = events.iter().zip(&together).filter(|(_, done)| done.is_none());
        let (more, alone) =
            self.attach_alone(&others.map(|(event, _)| *event).collect::<Vec<_>>(), own_strings);
        links.programs.extend(more.programs);
        let FastResults { events: alone, own_strings } = alone;
        let mut alone = alone.into_iter();
        let events = together.into_iter().map(|done| done.or_else(|| alone.next()).unwrap_or(Ok(())));
        (links, FastResults { events: events.collect(), own_strings })
    }

    /// Loads programs of many events, where there are many, and attaches them. Events that have no part in
    /// one, or in one that the kernel refuses to load or to attach, have no result.
    fn attach_together(&self, events: &[ToAttach<'_>]) -> (FastLinks, Vec<Option<Result<(), FastError>>>) {
        let mut links = FastLinks::default();
        let mut results: Vec<Option<Result<(), FastError>>> = events.iter().map(|_| None).collect();
        let groups = groups(events);
        let loaded = side_by_side(&groups, |group| self.load_together(group));
        for (group, program) in groups.iter().zip(loaded) {
            // Events of a program that the kernel refuses are tried one by one, which tells why.
            let Ok(program) = program else { continue };
            let attached = (0..).zip(group).map(|(index, of)| (of.at, of.attach(program.as_fd(), index)));
            let mut attached: Vec<(usize, Attached)> =
                attached.filter_map(|(at, attached)| Some((at, attached.ok()?))).collect();
            // The kernel counts what a program missed, not of which event.
            let others = attached.len().saturating_sub(1);
            if let Some((_, first)) = attached.first_mut() {
                first.records = true;
                first.name = format!("{} and {others} others", first.name);
            }
            for (at, attached) in attached {
                results[at] = Some(Ok(()));
                links.programs.push(attached);
            }
        }
        (links, results)
    }

    fn load_together(&self, group: &[Member<'_>]) -> Result<OwnedFd, FastError> {
        let unlinked = |error| FastError::Link(Box::new(error));
        let fragments: Vec<&Fragment> = group.iter().map(|member| member.fragment).collect();
        let body = together::program(&fragments);
        let body = body.ok_or_else(|| unlinked(LoadError::Missing("code of a program of many events")))?;
        let code = body.link(&[], self.object.parts()).map_err(unlinked)?;
        let program = code.program(sys::ProgramKind::RawTracepoint, "many_events");
        verify(&program).map_err(|Refused { source, log }| FastError::Load { source, log })
    }

    /// Loads and attaches programs of one event each, and those that all system calls share.
    fn attach_alone(&self, events: &[ToAttach<'_>], own_strings: &[u32]) -> (FastLinks, FastResults) {
        let mut jobs = Vec::new();
        // All system calls at the entry share a program, and all at the exit.
        let mut calls = BTreeMap::new();
        let job_of: Vec<usize> = (events.iter())
            .map(|&(name, event, slot)| match &event.0 {
                Kind::Own { id, tracepoint, module, direct, copied, .. } => {
                    let event = Recorded { slot, id: *id };
                    let tracepoint = Tracepoint { type_id: *tracepoint, module: module.as_deref() };
                    jobs.push(Job::Own { name, tracepoint, direct, copied, event });
                    jobs.len() - 1
                }
                Kind::Attached => {
                    jobs.push(Job::Attached { name });
                    jobs.len() - 1
                }
                Kind::Call(call) => *calls.entry(call.is_entry()).or_insert_with(|| {
                    jobs.push(self.calls(call.is_entry()));
                    jobs.len() - 1
                }),
            })
            .collect();
        // Strings of entries are copied at the exit, of which nothing else may be recorded.
        let entry = calls.get(&true).copied();
        let is_completed = self.late_strings && (entry.is_some() || !own_strings.is_empty());
        let exit = is_completed.then(|| {
            *calls.entry(false).or_insert_with(|| {
                jobs.push(self.calls(false));
                jobs.len() - 1
            })
        });
        let completed = entry.zip(exit);
        let mut links = FastLinks::default();
        let mut loaded: Vec<Option<Result<OwnedFd, FastError>>> =
            side_by_side(&jobs, |job| self.load(job)).into_iter().map(Some).collect();
        let attach = |job: usize, program: OwnedFd| {
            let needs_it = |of: usize| of == job || completed == Some((of, job));
            let slots = job_of.iter().zip(events).filter(|&(&of, _)| needs_it(of));
            let others = own_strings.iter().filter(|_| exit == Some(job));
            let hook = Hook::Own;
            Ok(Attached {
                name: jobs[job].name().to_owned(),
                link: Some(hook.attach(program.as_fd()).map_err(FastError::Attach)?),
                program,
                slots: slots.map(|(_, &(.., slot))| slot).chain(others.copied()).collect(),
                // Where it records no events, what it misses is none of them.
                records: job_of.contains(&job),
                hook,
            })
        };
        let mut attached = vec![false; jobs.len()];
        let mut attach_once = |job: usize| {
            let result = match loaded[job].take() {
                Some(program) => program
                    .and_then(|program| attach(job, program))
                    .map(|attached| links.programs.push(attached)),
                None if attached[job] => Ok(()),
                None => Err(FastError::Shared),
            };
            attached[job] = result.is_ok();
            result
        };
        // An entry has its strings only if the exit's program is there, which is attached first.
        let attach_for = |&job: &usize| match completed {
            Some((entry, exit)) if entry == job => attach_once(exit).and_then(|()| attach_once(job)),
            _ => attach_once(job),
        };
        let events = job_of.iter().map(attach_for).collect();
        let own_strings = match exit.filter(|_| !own_strings.is_empty()) {
            Some(exit) => attach_once(exit),
            None => Ok(()),
        };
        (links, FastResults { events, own_strings })
    }

    /// Loads the programs of these events, for a look at what the verifier makes of them; nothing is
    /// attached.
    pub(crate) fn try_out(&self, events: &[(&str, &FastEvent)]) -> Vec<Result<OwnedFd, FastError>> {
        side_by_side(events, |&(name, event)| match &event.0 {
            Kind::Own { id, tracepoint, module, direct, copied, .. } => {
                let event = Recorded { slot: 0, id: *id };
                let tracepoint = Tracepoint { type_id: *tracepoint, module: module.as_deref() };
                self.load(&Job::Own { name, tracepoint, direct, copied, event })
            }
            Kind::Call(call) => self.load(&self.calls(call.is_entry())),
            Kind::Attached => self.load(&Job::Attached { name }),
        })
    }

    /// The program of all system calls, at the entry or at the exit.
    fn calls(&self, is_entry: bool) -> Job<'a> {
        let hook = |of: fn(&Hooks) -> TypeId| {
            let type_id = self.hooks.as_ref().map_or(TypeId(0), of);
            Tracepoint { type_id, module: None }
        };
        if is_entry {
            Job::Calls { name: "syscall_enter", tracepoint: hook(|hooks| hooks.enter), code: self.enter }
        } else {
            Job::Calls { name: "syscall_exit", tracepoint: hook(|hooks| hooks.exit), code: self.exit }
        }
    }

    fn load(&self, job: &Job<'_>) -> Result<OwnedFd, FastError> {
        match *job {
            Job::Own { name, tracepoint, direct, copied, event } => {
                let name = name.split_once(':').map_or(name, |(_, name)| name);
                let load = |body: &Body| {
                    let code = body
                        .link(&[event], self.object.parts())
                        .map_err(|error| FastError::Link(Box::new(error)))?;
                    load(name, tracepoint, &code)
                };
                // The reason that matters is that of the program that was meant.
                load(direct).or_else(|first| load(copied).map_err(|_| first))
            }
            Job::Attached { .. } => {
                Err(FastError::Link(Box::new(LoadError::Missing("code of a program that is attached"))))
            }
            Job::Calls { name, tracepoint, code } => {
                load(name, tracepoint, &self.object.parts().join(code.to_vec(), Vec::new()))
            }
        }
    }
}

fn load(name: &str, tracepoint: Tracepoint<'_>, code: &Code) -> Result<OwnedFd, FastError> {
    verify(&sys::Program {
        expected_attach: sys::BPF_TRACE_RAW_TP,
        attach_btf_id: tracepoint.type_id.0,
        attach_btf: tracepoint.module.map(AsFd::as_fd),
        ..code.program(sys::ProgramKind::Tracing, name)
    })
    .map_err(|Refused { source, log }| FastError::Load { source, log })
}
