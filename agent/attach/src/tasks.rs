//! What a recording follows of threads: their names, and whether they are among those recorded.

use std::{ffi::CStr, os::fd::OwnedFd};

use agent_ebpf::{TID_WORDS, tracking::LINE_WORDS};
use serde::{Deserialize, Serialize};

use super::{
    AttachError, ProbeError,
    programs::{Programs, program},
};
use crate::ring::{NameStream, SharedArray};
use bpf::{LoadError, sys};
use compile::scope::{Halves, Image, Scope, ScopeError};
use stdx::handover::{Descriptors, Number};

/// Programs at the births, renames and ends of threads, and the sets of threads that they keep. A recording
/// has one: it is of the first channel's programs, and the others [share its maps](super::SharedMaps).
#[derive(Debug)]
pub struct TaskTracker {
    links: Vec<OwnedFd>,
    traced: SharedArray<u64>,
    untraced: SharedArray<u64>,
    scoped: SharedArray<u64>,
    sets: SharedArray<u64>,
    /// Which half of the sets is in use.
    half: u32,
    /// The threads that are [not looked at](Self::untrace_thread).
    own: Vec<u32>,
}

/// What follows threads, on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub struct TasksState {
    links: Vec<Number>,
    half: u32,
    own: Vec<u32>,
}

impl TaskTracker {
    /// Starts noting thread names, and following traced processes if the programs were loaded for it. Gives
    /// the stream of names with it.
    ///
    /// Attached through raw tracepoints, whose detaching takes well under a millisecond.
    ///
    /// `halves` are those of the sets that programs ask for, of which there are none yet: every thread is
    /// within the scope.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn attach<'p>(
        first: &Programs,
        others: impl IntoIterator<Item = &'p Programs>,
        halves: Option<Halves>,
    ) -> Result<(Self, NameStream), ProbeError> {
        let hooks = [
            (program::TASK_CREATED, c"task_newtask"),
            (program::TASK_RENAMED, c"task_rename"),
            (program::TASK_FREED, FREED),
        ];
        let mut links = Vec::new();
        for (name, hook) in hooks {
            links.push(open(first, name, hook)?);
        }
        for other in others.into_iter().filter(|other| other.tracks_calls()) {
            // Calls are noted by thread, in a table of the channel's own.
            links.push(open(other, program::TASK_FREED, FREED)?);
        }
        let tracker = Self::of_maps(first, (links, 0), halves)?;
        Ok((tracker, names(first)?))
    }

    fn of_maps(
        first: &Programs,
        (links, half): (Vec<OwnedFd>, u32),
        halves: Option<Halves>,
    ) -> Result<Self, LoadError> {
        let set = |map| first.shared(map, TID_WORDS);
        Ok(Self {
            links,
            traced: set("TRACED")?,
            untraced: set("UNTRACED")?,
            scoped: set("SCOPED")?,
            sets: first.shared("SETS", halves.map_or(1, Halves::all_lines) as usize * LINE_WORDS)?,
            half,
            own: Vec::new(),
        })
    }

    /// Gives it away. The programs go on.
    pub fn hand_over(self, to: &mut Descriptors) -> TasksState {
        let links = self.links.into_iter().map(|link| to.put(link)).collect();
        TasksState { links, half: self.half, own: self.own }
    }

    /// Goes on with what another process has attached. The threads of that one are threads like others from
    /// here on. Gives the stream of names with it.
    ///
    /// # Errors
    /// A descriptor is missing, or a map cannot be used.
    pub fn take_over(
        state: TasksState,
        first: &Programs,
        halves: Option<Halves>,
        from: &mut Descriptors,
    ) -> Result<(Self, NameStream), LoadError> {
        let TasksState { links, half, own } = state;
        let links = links.into_iter().map(|link| from.take(link)).collect::<Result<_, _>>()?;
        let tracker = Self::of_maps(first, (links, half), halves)?;
        for tid in own {
            unmark(&tracker.untraced, tid);
        }
        Ok((tracker, names(first)?))
    }

    /// Adds a thread to the traced set.
    pub fn trace_thread(&self, tid: u32) {
        mark(&self.traced, tid);
    }

    /// Sets the scope that programs ask for: those that begin from now on. Others may still ask for the one
    /// before; until they have returned this must not be called again.
    ///
    /// # Errors
    /// Programs cannot ask for it. Nothing has changed then.
    pub fn set_scope(&mut self, halves: Halves, scope: &Scope) -> Result<(), ScopeError> {
        let half = self.half + 1;
        let Image { lines, asked } = halves.image(half, scope)?;
        let first = (asked >> agent_ebpf::tracking::asked::HALF_SHIFT) as usize * LINE_WORDS;
        for (index, word) in (first..).zip(lines.into_iter().flatten()) {
            self.sets.store(index, word);
        }
        self.sets.store(0, asked);
        self.half = half;
        Ok(())
    }

    /// Notes whether a thread is within the scope of the recording, until it is seen running.
    pub fn note_in_scope(&self, tid: u32, inside: bool) {
        if inside {
            mark(&self.scoped, tid);
        } else {
            unmark(&self.scoped, tid);
        }
    }

    /// Lets a thread of the agent no longer make an event interesting as its other thread.
    pub fn untrace_thread(&mut self, tid: u32) {
        mark(&self.untraced, tid);
        self.own.push(tid);
    }
}

/// Where the end of a thread is told.
const FREED: &CStr = c"sched_process_free";

fn open(programs: &Programs, name: &'static str, hook: &CStr) -> Result<OwnedFd, ProbeError> {
    sys::open_raw_tracepoint(programs.fd(name)?, hook).map_err(|source| {
        let event = hook.to_string_lossy().into_owned();
        ProbeError::Attach(AttachError { event, step: "BPF_RAW_TRACEPOINT_OPEN", advice: "", source })
    })
}

/// The stream of names.
fn names(first: &Programs) -> Result<NameStream, LoadError> {
    let failed = |source| LoadError::Mmap { map: "NAMES", source };
    first.map("NAMES")?.try_clone_to_owned().and_then(NameStream::map).map_err(failed)
}

fn unmark(set: &SharedArray<u64>, tid: u32) {
    set.clear_bits(tid as usize / 64, 1 << (tid % 64));
}

fn mark(set: &SharedArray<u64>, tid: u32) {
    set.set_bits(tid as usize / 64, 1 << (tid % 64));
}
