//! Attaching a recording's programs, and what must be known before the first event.

use std::{collections::BTreeSet, ops::Range};

use agent_ebpf::{EventSlot, NameRecord};

use super::{
    CaptureError, LeftOut, Spool,
    channel::Links,
    names::NameTable,
    options::{CaptureEvent, CaptureOptions, CaptureProbe, ChannelOptions, OwnProgram},
};
use attach::fast::FastLinks;
use attach::hook::HookLinks;
use attach::tracepoint::Carriers;
use attach::{ProbeError, ProbeToAttach, Programs, TaskTracker, tracepoint};
use compile::fast::{FastEvent, Kind, Lane};
use compile::hook::HookProgram;
use compile::scope::Scope;
use ftrace_event::Cmdlines;
use kernel::proc;
use kernel::proc::Thread;

/// From how many events of the generic lane on a thread opens what they need.
const WORTH_A_THREAD: usize = 16;

/// Looks at a thread that becomes another one at each of them.
const LOOKS: usize = 4;

/// The names of the threads that there are, in a table with its journal in `spool`; and which of them are
/// within the scope of the recording.
pub(super) fn names_of_threads(
    spool: &Spool,
    tasks: &TaskTracker,
    options: &CaptureOptions,
) -> Result<NameTable, CaptureError> {
    // Threads that are born while /proc is read announce themselves; these names must not replace theirs.
    let mut names = NameTable::create(spool)?;
    for thread in proc::threads().map_err(CaptureError::Threads)? {
        names.insert_if_absent(NameRecord { tid: thread.tid, comm: padded(&thread.comm) })?;
        if let Some(scope) = &options.scope {
            note_in_scope(tasks, scope, &thread);
        }
    }
    names.flush()?;
    Ok(names)
}

/// Notes which threads are within the scope of the recording, which has changed.
pub(super) fn note_threads_in_scope(tasks: &TaskTracker, scope: &Scope) -> std::io::Result<()> {
    for thread in proc::threads()? {
        note_in_scope(tasks, scope, &thread);
    }
    Ok(())
}

/// Notes whether a thread is within a scope. It may meanwhile become another one, of which the programs have
/// made a note: the last word is that of a look after the note.
fn note_in_scope(tasks: &TaskTracker, scope: &Scope, thread: &Thread) {
    let mut inside = scope.takes(thread);
    for _ in 0..LOOKS {
        tasks.note_in_scope(thread.tid, inside);
        let comm = proc::comm_of(thread.tid).unwrap_or_default();
        let now = scope.takes(&Thread { comm, ..*thread });
        if now == inside {
            return;
        }
        inside = now;
    }
}

/// The names at the end of a recording, in which names were lost if `lost` says so: then those of threads
/// that there still are replace what is known of them, as none is newer.
pub(super) fn last_names(mut names: NameTable, lost: bool) -> Cmdlines {
    if lost {
        for thread in proc::threads().unwrap_or_default() {
            // A failure to journal does not matter any more: the table itself is what is used from here on.
            let _ = names.insert(NameRecord { tid: thread.tid, comm: padded(&thread.comm) });
        }
    }
    names.into_cmdlines()
}

/// Attaches everything of a channel. Gives what the kernel refused and the recording can do without.
/// `slots` are those of its events, and `attaching` is told how many are done.
pub(super) fn attach(
    programs: &mut Programs,
    links: &mut Links,
    options: &mut ChannelOptions,
    slots: &Range<usize>,
    attaching: &mut dyn FnMut(usize),
) -> Result<Vec<LeftOut>, CaptureError> {
    let mut left_out = Vec::new();
    let (fast, mut carriers) = fast_and_carriers(programs, options, slots)?;
    links.fast = fast;
    for (index, event) in of(options, slots) {
        attaching(index - slots.start);
        if !matches!(event.lane, Lane::Generic) || event.own.is_some() {
            continue;
        }
        let filter = event.filter.as_ref().map(|filter| &filter.program);
        match tracepoint::attach(
            programs,
            &event.name,
            &event.slot,
            filter,
            (index as u32, carriers.take(index)),
        ) {
            Ok(link) => links.events.push((index, link)),
            Err(error) if event.required => return Err(error.into()),
            Err(reason) => left_out.push(LeftOut { event: event.name.clone(), reason }),
        }
    }
    links.probes = attach_probes(programs, options, slots, &mut left_out)?;
    links.probes.append(attach_own(programs, options, slots, &mut left_out)?);
    if links.events.is_empty()
        && links.fast.is_empty()
        && links.probes.is_empty()
        && let Some(LeftOut { reason, .. }) = left_out.pop()
    {
        return Err(reason.into());
    }
    Ok(left_out)
}

/// Attaches the fast events, and meanwhile opens the perf events of the others: the verifier and the patching
/// of tracepoints take different processors.
fn fast_and_carriers(
    programs: &Programs,
    options: &mut ChannelOptions,
    slots: &Range<usize>,
) -> Result<(FastLinks, Carriers), ProbeError> {
    let is_generic =
        |(_, event): &(usize, &CaptureEvent)| matches!(event.lane, Lane::Generic) && event.own.is_none();
    let generic: Vec<(usize, EventSlot)> =
        of(options, slots).filter(is_generic).map(|(index, event)| (index, event.slot)).collect();
    if generic.len() < WORTH_A_THREAD {
        return Ok((attach_fast(programs, options, slots)?, Carriers::default()));
    }
    let (fast, carriers) = std::thread::scope(|scope| {
        let opening = std::thread::Builder::new().spawn_scoped(scope, || Carriers::open(&generic));
        let fast = attach_fast(programs, options, slots);
        // What no thread has opened is opened when it is needed.
        (fast, opening.ok().and_then(|opening| opening.join().ok()).unwrap_or_default())
    });
    Ok((fast?, carriers))
}

/// The events with these slots.
fn of<'o>(
    options: &'o ChannelOptions,
    slots: &Range<usize>,
) -> impl Iterator<Item = (usize, &'o CaptureEvent)> + use<'o> {
    options.events.iter().enumerate().skip(slots.start).take(slots.len())
}

/// Attaches the fast events. One that the kernel refuses goes to the generic lane.
fn attach_fast(
    programs: &Programs,
    options: &mut ChannelOptions,
    slots: &Range<usize>,
) -> Result<FastLinks, ProbeError> {
    let mut fast = Vec::new();
    for (index, event) in of(options, slots) {
        if let Lane::Fast(program) = &event.lane {
            fast.push((event.name.as_str(), program, index as u32));
        }
    }
    let own_strings: Vec<u32> = of(options, slots)
        .filter(|(_, event)| event.own_strings().is_some())
        .map(|(slot, _)| slot as u32)
        .collect();
    if fast.is_empty() && own_strings.is_empty() {
        return Ok(FastLinks::default());
    }
    let fast_slots: Vec<u32> = fast.iter().map(|&(.., slot)| slot).collect();
    let (links, results) = programs.attach_fast(&fast, &own_strings, options.hooks)?;
    if let Err(error) = results.own_strings {
        for slot in &own_strings {
            options.events[*slot as usize].string_note =
                Some(format!("those that are not in memory at the entry: {error}"));
        }
    }
    for (slot, result) in fast_slots.into_iter().zip(results.events) {
        let Err(error) = result else { continue };
        let event = &mut options.events[slot as usize];
        if event.only_fast {
            return Err(ProbeError::Fast(error));
        }
        if let Lane::Fast(FastEvent(Kind::Call(call))) = &event.lane
            && call.strings().is_some()
        {
            event.string_note = Some(error.to_string());
        }
        event.lane = Lane::Generic;
        event.lane_note = Some(error.to_string());
    }
    Ok(links)
}

/// Attaches the probes. Attach points that the kernel refuses are left out where a probe has many of them.
fn attach_probes(
    programs: &Programs,
    options: &ChannelOptions,
    slots: &Range<usize>,
    left_out: &mut Vec<LeftOut>,
) -> Result<HookLinks, ProbeError> {
    let mut to_attach = Vec::new();
    let is_wanted = |probe: &&CaptureProbe| slots.contains(&(probe.first_slot as usize));
    for CaptureProbe { name, first_slot, programs } in options.probes.iter().filter(is_wanted) {
        let of = |program| ProbeToAttach { event: name, first_slot: *first_slot, program };
        to_attach.extend(programs.iter().map(of));
    }
    if to_attach.is_empty() {
        return Ok(HookLinks::default());
    }
    let plans: Vec<EventSlot> = options.events.iter().map(|event| event.slot).collect();
    let (links, refused) = programs.attach_probes(&to_attach, &plans)?;
    left_out.extend(refused.into_iter().map(|(event, reason)| LeftOut { event, reason }));
    Ok(links)
}

/// Attaches the events of the generic lane that have programs of their own. Where the kernel refuses one that
/// copies strings, the one without them takes its place.
fn attach_own(
    programs: &Programs,
    options: &mut ChannelOptions,
    slots: &Range<usize>,
    left_out: &mut Vec<LeftOut>,
) -> Result<HookLinks, ProbeError> {
    fn to_attach<'a>(
        (slot, event): (usize, &'a CaptureEvent),
        program: &'a HookProgram,
    ) -> ProbeToAttach<'a> {
        ProbeToAttach { event: &event.name, first_slot: slot as u32, program }
    }
    let plans: Vec<EventSlot> = options.events.iter().map(|event| event.slot).collect();
    let own: Vec<((usize, &CaptureEvent), &OwnProgram)> = of(options, slots)
        .filter(|(_, event)| matches!(event.lane, Lane::Generic))
        .filter_map(|at| Some((at, at.1.own.as_ref()?)))
        .collect();
    let wanted: Vec<_> = own.iter().map(|&(at, own)| to_attach(at, &own.program)).collect();
    let (mut links, mut notes) = (HookLinks::default(), Vec::new());
    for (&(at, own), attached) in own.iter().zip(programs.attach_each(&wanted, &plans)) {
        let (slot, event) = at;
        let attached = match (attached, &own.strings) {
            (Err(error), Some(strings)) => {
                notes.push((slot, error.to_string()));
                programs.attach_probes(&[to_attach(at, &strings.without)], &plans).map(|(links, _)| links)
            }
            (attached, _) => attached,
        };
        match attached {
            Ok(more) => links.append(more),
            Err(error) if event.required => return Err(error),
            Err(reason) => left_out.push(LeftOut { event: event.name.clone(), reason }),
        }
    }
    for (slot, note) in notes {
        options.events[slot].string_note = Some(note);
    }
    Ok(links)
}

/// Traces every thread of a process. The programs add what its traced threads create from now on; a thread
/// that one of the others creates while /proc is read shows in the next look.
pub(super) fn trace_process(tasks: &TaskTracker, process: u32) {
    let mut known = BTreeSet::new();
    loop {
        // A process that has ended has no threads; its pidfd ends the recording.
        let threads = proc::threads_of(process).unwrap_or_default();
        let before = known.len();
        for tid in threads {
            tasks.trace_thread(tid);
            known.insert(tid);
        }
        if known.len() == before {
            return;
        }
    }
}

fn padded(name: &[u8]) -> [u8; agent_ebpf::COMM_LEN] {
    let mut comm = [0; agent_ebpf::COMM_LEN];
    let len = name.len().min(comm.len() - 1);
    comm[..len].copy_from_slice(&name[..len]);
    comm
}
