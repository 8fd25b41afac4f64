//! Uprobes: functions of programs and shared libraries.

use std::collections::{BTreeSet, HashMap, HashSet};

use agent_ebpf::slot_flags;

use super::{
    DynamicError, EVENTS_MAX, Environment, FreeNames, IsTaken, Planned, TooManyMatches, UPROBE_MULTI_SINCE,
    fetch::{Argument, Fetch},
    is_pattern,
    kernel::layout,
    plan,
    spec::{self, At, NAME_MAX, Side, Spec, SpecErrorKind, name_from, number, split_offset},
};
use crate::hook;
use crate::hook::{Hook, OnRefusal};
use crate::plan::ProbePlan;
use crate::probe_filter::ProbeRule;
use elf::indirect::Implementations;
use elf::symbols::{Function, Functions, LookupError};
use elf::{Machine, Named, OpenBinary, Processes};

/// The system of events without one.
const GROUP: &str = "uprobes";

/// The probes that `text` describes: `[[GROUP/]NAME=]PATH:FUNCTION[+OFFSET] [ARGUMENT...]`, or with
/// `0xOFFSET` in the file instead of the function. A pattern without a name is an event for each function,
/// named after it. A name of a file that means several, of different containers, makes no more events.
pub fn probes(
    text: &str,
    returns: bool,
    environment: &Environment,
    rule: &ProbeRule<'_>,
    is_taken: IsTaken<'_>,
) -> Result<Planned, DynamicError> {
    let spec = spec::parse(text, At { side: Side::User, returns }, rule.contexts)?;
    hook::check_uprobes()?;
    let AttachPoint { binaries, point, mut notes } = environment.attach_point(&spec)?;
    let mut left_out = Vec::new();
    let mut targets = Vec::new();
    for binary in binaries {
        let path = binary.path().display().to_string();
        match environment.target(&spec, binary, &point, (returns, rule.force)) {
            Ok(meant) => {
                left_out.extend(meant.left_out);
                notes.extend(meant.notes);
                targets.push(meant.target);
            }
            Err(error) => left_out.push((path, error)),
        }
    }
    if targets.is_empty() {
        // No file is another's reason.
        return Err(left_out.swap_remove(0).1);
    }
    let group = spec.group.as_deref().unwrap_or(GROUP);
    let add = |name: &str, places: Vec<Place<'_>>, on_refusal: Option<OnRefusal>| {
        let layout = layout(&spec, group, name, (returns, false), rule)?;
        let is_at_entry =
            |place: &Place<'_>| place.offsets.iter().all(|offset| place.target.entries.contains(offset));
        let at_entry = places.iter().all(is_at_entry);
        let mut programs = Vec::new();
        for Place { target, offsets } in places {
            for (arguments, offsets) in by_arguments(&spec.arguments, offsets) {
                let hooks = environment.user_hooks(&target.binary, &offsets, &[], returns);
                let program = environment.program(&layout, rule, &arguments, hooks)?;
                programs.push(program.on_refusal(on_refusal));
            }
        }
        let slot_flags = if at_entry { slot_flags::FUNCTION_ENTRY } else { 0 };
        Ok::<_, DynamicError>(ProbePlan { slot_flags, ..plan(&layout, programs) })
    };
    let events = by_function(&targets, returns).filter(|_| spec.name.is_none());
    let probes = if let Some(events) = events {
        check_count(&point, events.len())?;
        let mut names = FreeNames::new(is_taken);
        let event = |(name, places): (String, Vec<Place<'_>>)| {
            add(&names.take(group, &name), places, Some(OnRefusal::LeaveOutEvent))
        };
        events.into_iter().map(event).collect::<Result<_, _>>()?
    } else {
        let place = |target| Place { target, offsets: target.points.offsets() };
        let places: Vec<Place<'_>> = targets.iter().map(place).collect();
        let name = spec.name.clone().unwrap_or_else(|| default_name(&places, &point, returns));
        vec![add(&name, places, None)?]
    };
    Ok(Planned { probes, left_out, notes })
}

/// A file that an attach point means.
struct Target {
    binary: OpenBinary,
    points: AttachPoints,
    /// Where functions begin, as [`at_entries`].
    entries: HashSet<u64>,
}

/// Offsets in a file.
struct Place<'a> {
    target: &'a Target,
    offsets: Vec<u64>,
}

/// The functions that a pattern matches in all files, by the name of the event: the first of a name in one
/// file is one event with the first of that name in the others. `None` if it is no pattern.
fn by_function(targets: &[Target], returns: bool) -> Option<Vec<(String, Vec<Place<'_>>)>> {
    let mut events: Vec<(String, Vec<Place<'_>>)> = Vec::new();
    let mut known: HashMap<(String, u32), usize> = HashMap::new();
    for target in targets {
        let AttachPoints::Matching(functions) = &target.points else { return None };
        let mut seen: HashMap<String, u32> = HashMap::new();
        for function in functions {
            let name = name_of(function, returns);
            let number = seen.entry(name.clone()).or_default();
            *number += 1;
            let index = *known.entry((name.clone(), *number)).or_insert(events.len());
            if index == events.len() {
                events.push((name, Vec::new()));
            }
            let place = Place { target, offsets: vec![function.offset] };
            if let Some((_, places)) = events.get_mut(index) {
                places.push(place);
            }
        }
    }
    Some(events)
}

/// Where functions begin at which the address that they return to is at the stack pointer, as 8 bytes.
/// `chosen` are implementations, which may have no symbol.
fn at_entries(functions: &Functions, chosen: &[u64]) -> HashSet<u64> {
    if functions.machine() != Machine::X86_64 {
        return HashSet::new();
    }
    let mut entries = functions.entries();
    entries.extend(chosen);
    entries
}

fn check_count(pattern: &str, found: usize) -> Result<(), TooManyMatches> {
    if found <= EVENTS_MAX {
        return Ok(());
    }
    let advice = "narrow it, or record all of them as one event: NAME=PATH:PATTERN";
    Err(TooManyMatches { pattern: pattern.to_owned(), found, what: "functions", advice })
}

/// What an attach point means.
enum AttachPoints {
    /// One function, of which there may be several of the same name, or an offset in one.
    Named(Vec<u64>),
    /// The implementations of one function that processes have chosen, and functions of the same name.
    Chosen(Vec<u64>),
    /// Each function that a pattern matches.
    Matching(Vec<Function>),
}

impl AttachPoints {
    fn offsets(&self) -> Vec<u64> {
        match self {
            Self::Named(offsets) | Self::Chosen(offsets) => offsets.clone(),
            Self::Matching(functions) => functions.iter().map(|function| function.offset).collect(),
        }
    }
}

impl Environment {
    /// Hooks at these offsets of a file. The link for many offsets costs an event less than perf's uprobe
    /// does, also for one.
    pub(super) fn user_hooks(
        &self,
        binary: &OpenBinary,
        offsets: &[u64],
        reference_counters: &[u64],
        returns: bool,
    ) -> Vec<Hook> {
        let path = binary.clone();
        let (offsets, reference_counters) = (offsets.to_vec(), reference_counters.to_vec());
        if self.version >= UPROBE_MULTI_SINCE {
            return vec![Hook::UserOffsets { path, offsets, reference_counters, returns }];
        }
        let hook = |(index, offset)| Hook::User {
            path: path.clone(),
            offset,
            reference_counter: reference_counters.get(index).copied().unwrap_or(0),
            returns,
        };
        offsets.into_iter().enumerate().map(hook).collect()
    }
}

/// An attach point in its parts.
pub(super) struct AttachPoint {
    /// The files, of which there may be several in different containers.
    pub(super) binaries: Vec<OpenBinary>,
    /// What follows the colon.
    pub(super) point: String,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

impl Environment {
    /// Splits an attach point into its file and what follows the colon: the first colon before which there is
    /// a path that exists, because paths and functions have colons too.
    pub(super) fn attach_point(&self, spec: &Spec) -> Result<AttachPoint, DynamicError> {
        let of = |Named { binaries, notes }: Named, point: &str| AttachPoint {
            binaries,
            point: point.to_owned(),
            notes,
        };
        if let Some(path) = &spec.path {
            return Ok(of(self.resolver.find(path)?, &spec.point));
        }
        let no_path = || spec.point_error(SpecErrorKind::NoPath);
        let colons = spec.point.match_indices(':').map(|(at, _)| at);
        let mut first = None;
        for (path, rest) in colons.map(|at| (&spec.point[..at], &spec.point[at + 1..])) {
            if path.is_empty() || rest.is_empty() {
                first.get_or_insert(no_path().into());
                continue;
            }
            match self.resolver.find(path) {
                Ok(named) => return Ok(of(named, rest)),
                // The reason why the first cannot be opened.
                Err(error) => drop(first.get_or_insert(error.into())),
            }
        }
        Err(first.unwrap_or_else(|| no_path().into()))
    }

    /// What an attach point means in one of its files.
    fn target(
        &self,
        spec: &Spec,
        binary: OpenBinary,
        point: &str,
        (returns, force): (bool, bool),
    ) -> Result<MeantIn, DynamicError> {
        let functions = Functions::of_binary(&binary)?;
        if returns && functions.is_go() && !force {
            return Err(DynamicError::Go(binary.path().to_owned()));
        }
        let Meant { points, left_out, notes } = self.points(spec, (&binary, &functions), point, returns)?;
        let chosen = if let AttachPoints::Chosen(offsets) = &points { &offsets[..] } else { &[] };
        let entries = if returns { HashSet::new() } else { at_entries(&functions, chosen) };
        Ok(MeantIn { target: Target { binary, points, entries }, left_out, notes })
    }
}

/// What an attach point means in a file, for the user, too.
struct MeantIn {
    target: Target,
    left_out: Vec<(String, DynamicError)>,
    notes: Vec<String>,
}

/// What an attach point means in its file.
struct Meant {
    points: AttachPoints,
    left_out: Vec<(String, DynamicError)>,
    notes: Vec<String>,
}

impl From<AttachPoints> for Meant {
    fn from(points: AttachPoints) -> Self {
        Self { points, left_out: Vec::new(), notes: Vec::new() }
    }
}

impl Environment {
    fn points(
        &self,
        spec: &Spec,
        (binary, functions): (&OpenBinary, &Functions),
        point: &str,
        returns: bool,
    ) -> Result<Meant, DynamicError> {
        if let Some(offset) = number(point) {
            functions.check_offset(offset)?;
            return Ok(AttachPoints::Named(vec![offset]).into());
        }
        // A name may have a `+` of its own (`operator+`), or what looks like a pattern (`operator*`).
        if let Ok(found) = functions.find(point) {
            if is_pattern(point) && !found.iter().all(|function| function.is_called(point)) {
                return matching(&found);
            }
            return self.named((binary, functions), point, found);
        }
        let (name, offset) = split_offset(point).ok_or_else(|| spec.point_error(SpecErrorKind::Number))?;
        if returns && offset != 0 {
            return Err(spec.point_error(SpecErrorKind::ReturnOffset).into());
        }
        let found = functions.find(name)?;
        if offset == 0 {
            return self.named((binary, functions), name, found);
        }
        if found.len() > 1 {
            return Err(spec.point_error(SpecErrorKind::PatternOffset).into());
        }
        if found.iter().any(|function| function.indirect) {
            let path = binary.path().to_owned();
            return Err(LookupError::IndirectOffset { path, name: name.to_owned() }.into());
        }
        let point = |function: &Function| {
            let point = function.offset.saturating_add(offset);
            functions.check_offset(point).map(|()| point)
        };
        let offsets = found.into_iter().map(point).collect::<Result<_, _>>()?;
        Ok(AttachPoints::Named(offsets).into())
    }

    /// Functions of one name. Those that choose their implementation are what the recorded processes have
    /// chosen.
    fn named(
        &self,
        (binary, functions): (&OpenBinary, &Functions),
        name: &str,
        found: Vec<&Function>,
    ) -> Result<Meant, DynamicError> {
        let (choosing, others): (Vec<&Function>, Vec<&Function>) =
            found.into_iter().partition(|function| function.indirect);
        let mut offsets: BTreeSet<u64> = others.iter().map(|function| function.offset).collect();
        if choosing.is_empty() {
            return Ok(AttachPoints::Named(offsets.into_iter().collect()).into());
        }
        let mut implementations = Implementations::of(binary, functions, &choosing)?;
        let mut chosen_by = |processes: &Processes| -> BTreeSet<u64> {
            processes.ids().into_iter().flat_map(|process| implementations.of_process(process)).collect()
        };
        let chosen = chosen_by(self.resolver.processes());
        let names = |offsets: &BTreeSet<u64>| -> Vec<String> {
            offsets.iter().map(|offset| functions.name_at(*offset)).collect()
        };
        if chosen.is_empty() {
            let elsewhere = chosen_by(&Processes::All);
            return Err(LookupError::Indirect {
                path: binary.path().to_owned(),
                name: name.to_owned(),
                elsewhere: names(&elsewhere),
                implementations: names(implementations.mentioned()),
            }
            .into());
        }
        let note = format!("{name} is {}, which the processes have chosen", names(&chosen).join(", "));
        offsets.extend(chosen);
        let points = AttachPoints::Chosen(offsets.into_iter().collect());
        Ok(Meant { points, left_out: Vec::new(), notes: vec![note] })
    }
}

/// The functions that a pattern matches, but for those that choose their implementation.
fn matching(found: &[&Function]) -> Result<Meant, DynamicError> {
    let whole = |function: &&&Function| !function.is_cold_part();
    let mut matching: Vec<&Function> = found.iter().filter(whole).copied().collect();
    // Unless it is those that are meant.
    if matching.is_empty() {
        matching = found.to_vec();
    }
    let (choosing, others): (Vec<&Function>, Vec<&Function>) =
        matching.into_iter().partition(|function| function.indirect);
    let mut names: Vec<&str> = choosing.iter().map(|function| function.name.as_str()).collect();
    names.sort_unstable();
    let names = names.join(", ");
    if others.is_empty() {
        return Err(DynamicError::Indirect(names));
    }
    let left_out = if names.is_empty() { Vec::new() } else { vec![(names, DynamicError::IndirectOfPattern)] };
    let points = AttachPoints::Matching(others.into_iter().cloned().collect());
    Ok(Meant { points, left_out, notes: Vec::new() })
}

/// The event of a function that a pattern matches, as `perf probe` names it.
fn name_of(function: &Function, returns: bool) -> String {
    let suffix = if returns { "__return" } else { "" };
    let name: Vec<char> = function.plain_name().chars().collect();
    // The end of a path tells more than its beginning. One more may be needed before a digit.
    let tail = &name[name.len().saturating_sub(NAME_MAX - suffix.len() - 1)..];
    name_from(&format!("{}{suffix}", tail.iter().collect::<String>()))
}

/// As the kernel calls it where nobody has (`__trace_uprobe_create`, kernel/trace/trace_uprobe.c); after the
/// function where several have its name.
fn default_name(places: &[Place<'_>], point: &str, returns: bool) -> String {
    let letter = if returns { 'r' } else { 'p' };
    let [Place { target, offsets }] = places else {
        return name_from(&format!("{letter}_{point}"));
    };
    let [offset] = offsets[..] else {
        return name_from(&format!("{letter}_{point}"));
    };
    let file = target.binary.path().file_name().unwrap_or_default().to_string_lossy();
    let front = file.split(['.', '-', '_']).next().unwrap_or_default();
    name_from(&format!("{letter}_{front}_{offset:#x}"))
}

/// Offsets that a program suits: all of them, unless one in the file has to be found from the probe's own.
fn by_arguments(arguments: &[Argument], offsets: Vec<u64>) -> Vec<(Vec<Argument>, Vec<u64>)> {
    if !arguments.iter().any(|argument| has_file_offset(&argument.fetch)) {
        return vec![(arguments.to_vec(), offsets)];
    }
    let at = |offset: u64| {
        let mut arguments = arguments.to_vec();
        for argument in &mut arguments {
            relate(&mut argument.fetch, offset);
        }
        (arguments, vec![offset])
    };
    offsets.into_iter().map(at).collect()
}

pub(super) fn has_file_offset(fetch: &Fetch) -> bool {
    match fetch {
        Fetch::Memory { of, .. } => has_file_offset(of),
        other => matches!(other, Fetch::FileOffset(_)),
    }
}

/// Makes offsets in the file distances from the probe's.
pub(super) fn relate(fetch: &mut Fetch, probe: u64) {
    match fetch {
        Fetch::Memory { of, .. } => relate(of, probe),
        Fetch::FileOffset(offset) => *offset = offset.wrapping_sub(probe),
        _ => {}
    }
}
