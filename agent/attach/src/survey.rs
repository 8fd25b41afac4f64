//! Whether the kernel takes every program, and how long its verifier walks through each.
//!
//! A change of a program can make the verifier's work many times larger, which nobody sees until a kernel
//! refuses it or a start takes seconds. `doctor` shows which described events have no program of their own on
//! this kernel; the tests compare the numbers of instructions with those of the last time.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use agent_ebpf::EventSlot;

use super::{KernelLayout, ProgramOptions, Programs, fast::FastError, programs::program};
use bpf::{LoadError, sys};
use compile::context::ContextLayout;
use compile::fast::{FastEvent, FastLane, Lane, Mismatch, strings};
use compile::slot::plan_slot;
use ftrace_event::Format;
use kernel::btf::Btf;
use kernel::tracefs::Tracefs;
use spec::EventName;
use spec::StringLimit;

/// A program and what became of it.
#[derive(Debug)]
pub struct Surveyed {
    /// The event of a program of the fast lane (`system:name`), or the name of a program for many events.
    pub name: String,
    /// What the kernel made of it.
    pub outcome: Outcome,
}

/// What became of a program.
#[derive(Debug)]
pub enum Outcome {
    /// It was loaded.
    Loaded {
        /// How many instructions the verifier looked at (`verified_insns`, known since 5.16).
        verified: Option<u64>,
    },
    /// The event is not what its description says, so it takes the generic lane.
    Generic(Mismatch),
    /// The kernel refused it, so the event takes the generic lane.
    Refused {
        /// Its reason, in one line.
        reason: String,
        /// The end of what the verifier said.
        log: String,
    },
}

/// The event of the fast lane of which a watch's program is loaded, too.
const WATCHED: &str = "sched:sched_switch";

/// Loads every program that a recording of all events would use, and some of a watch, whose names begin with
/// `watch_`, without attaching any. Events that the kernel does not have are left out.
///
/// # Errors
/// The kernel refuses a program that every recording needs, or one of a watch for many events.
pub fn survey(tracefs: &Tracefs, btf: &Btf) -> Result<Vec<Surveyed>, LoadError> {
    let mut found = Vec::new();
    let mut planned: Vec<(String, FastEvent, EventSlot)> = Vec::new();
    let lane = FastLane::new(btf);
    let mut hooks = None;
    if let Ok(mut lane) = lane {
        for (system, name) in FastLane::described() {
            let Ok(format) = tracefs.event_format(&EventName::new(system, name)) else { continue };
            let Ok(mut parsed) = Format::parse(&format.text) else { continue };
            if system == "syscalls"
                && let Some(text) = strings::extend_text(name, &format.text, &parsed)
            {
                let Ok(extended) = Format::parse(&text) else { continue };
                parsed = extended;
            }
            let Ok(slot) = plan_slot(system, name, &parsed) else { continue };
            let name = format.name.to_string();
            match lane.plan(system, format.name.name(), &parsed, None, &ContextLayout::default()) {
                Ok(event) => planned.push((name, event, slot)),
                Err(mismatch) => found.push(Surveyed { name, outcome: Outcome::Generic(mismatch) }),
            }
        }
        hooks = lane.into_hooks();
    }
    let any = EventSlot { dynamic_len: 1, ..EventSlot::default() };
    let of_one_length = EventSlot { fixed_len: 64, copy_len: 64, fields_end: 64, ..EventSlot::default() };
    // Both kinds of generic programs, and the events in the order of their slots.
    let mut options = ProgramOptions {
        clock: agent_ebpf::clock::MONO,
        overwrite: false,
        wake_each: false,
        rule: None,
        asking: None,
        filter_tasks: true,
        follow_fork: true,
        exclude_tgid: Some(std::process::id()),
        possible_cpus: 1,
        ring_cpus: vec![0],
        sets: None,
        ring_pages: 2,
        wake_pages: 1,
        cpus_per_reader: 1,
        slots: vec![any, of_one_length],
        lanes: vec![Lane::Generic, Lane::Generic],
        spare: 0,
        generation: 0,
        filters: vec![None, None],
        own_strings: Vec::new(),
        scope: 0,
        set_lines: 1,
        hooks,
        strings: StringLimit::default(),
        layout: KernelLayout::from_btf(btf),
        preemptible: false,
        tracks_calls: false,
        map: None,
    };
    // The programs of a watch's rule take places, and each event wakes the reader.
    let of_watch =
        ProgramOptions { wake_each: true, rule: Some(0), spare: 1, generation: 1, ..options.clone() };
    for (_, event, slot) in &planned {
        options.slots.push(*slot);
        options.filters.push(None);
        options.lanes.push(Lane::Fast(event.clone()));
    }
    let programs = Programs::load(&options, None)?;
    let loaded = |name: String, program: BorrowedFd<'_>| Surveyed {
        name,
        outcome: Outcome::Loaded { verified: sys::told_of_program(program, "verified_insns") },
    };
    found.extend(programs.loaded().map(|(name, program)| loaded(name, program)));
    found.push(loaded(program::MARK_BORDER.to_owned(), programs.load_marker()?.as_fd()));
    let events: Vec<(&str, &FastEvent)> =
        planned.iter().map(|(name, event, _)| (name.as_str(), event)).collect();
    let tried = |name: String, result: Result<OwnedFd, FastError>| match result {
        Ok(program) => loaded(name, program.as_fd()),
        Err(error) => {
            let (reason, log) = (error.to_string(), error.log().to_owned());
            Surveyed { name, outcome: Outcome::Refused { reason, log } }
        }
    };
    let results = programs.try_out_fast(&events, hooks)?;
    found.extend(planned.iter().zip(results).map(|((name, ..), result)| tried(name.clone(), result)));
    let programs = Programs::load(&of_watch, None)?;
    found.extend(programs.generics().map(|(name, program)| loaded(format!("watch_{name}"), program)));
    let watched: Vec<(&str, &FastEvent)> = events.into_iter().filter(|(name, _)| *name == WATCHED).collect();
    let results = programs.try_out_fast(&watched, hooks)?;
    found.extend(watched.iter().zip(results).map(|((name, _), result)| {
        // Without the colon of events, of which each has one program.
        tried(format!("watch_{}", name.replace(':', "_")), result)
    }));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
