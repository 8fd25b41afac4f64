//! Uprobes: functions of programs and shared libraries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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
use crate::hook::{Hook, HookProgram, OnRefusal};
use crate::plan::ProbePlan;
use crate::probe_filter::ProbeRule;
use bpf::preemption::Preemption;
use elf::indirect::Implementations;
use elf::returns::{Finder, Returns, ReturnsError};
use elf::symbols::{Function, Functions, LookupError};
use elf::{BinaryError, Machine, Named, OpenBinary, Processes};

/// The system of events without one.
const GROUP: &str = "uprobes";

/// For the user, where the kernel does not show how many calls of a thread it watches.
const NESTED_UNCOUNTED: &str =
    "returns of calls that are nested more deeply than 64 are missing and not counted: the kernel has no BTF";

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
    let is_watched = |target: &Target| returns && target.returns.is_none();
    if environment.depth.is_none() && targets.iter().any(is_watched) {
        notes.push(NESTED_UNCOUNTED.to_owned());
    }
    let group = spec.group.as_deref().unwrap_or(GROUP);
    let add = |name: &str, places: Vec<Place<'_>>, on_refusal: Option<OnRefusal>| {
        let layout = layout(&spec, group, name, (returns, false), rule)?;
        let has_no_frame = places.iter().all(Place::has_no_frame);
        let mut programs = Vec::new();
        for place in places {
            for (arguments, sites) in by_arguments(&spec.arguments, place.sites()) {
                let hooks = environment.hooks_of(place.target, &sites, returns);
                let program = environment.program(&layout, rule, &arguments, hooks)?;
                programs.push(program.on_refusal(on_refusal));
            }
            if is_watched(place.target) {
                programs.extend(environment.missed_returns(name, &place));
            }
        }
        let slot_flags = if has_no_frame { slot_flags::FUNCTION_ENTRY } else { 0 };
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
    /// The return instructions of the functions that begin at these offsets, as distances from there, if the
    /// probe is on those.
    returns: Option<HashMap<u64, Vec<u64>>>,
}

/// Offsets in a file.
struct Place<'a> {
    target: &'a Target,
    offsets: Vec<u64>,
}

/// Where a program of an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Site {
    /// Offset in the file.
    offset: u64,
    /// How many bytes behind the beginning of its function that is, if it is a return instruction.
    distance: u64,
}

impl Place<'_> {
    fn sites(&self) -> Vec<Site> {
        let Some(returns) = &self.target.returns else {
            return self.offsets.iter().map(|&offset| Site { offset, distance: 0 }).collect();
        };
        // Functions may overlap; a return is the nearest one's.
        let mut sites = BTreeMap::new();
        for (function, distances) in self.offsets.iter().filter_map(|offset| returns.get_key_value(offset)) {
            for &distance in distances {
                let nearest = sites.entry(function + distance).or_insert(distance);
                *nearest = distance.min(*nearest);
            }
        }
        sites.into_iter().map(|(offset, distance)| Site { offset, distance }).collect()
    }

    /// Whether the address that the function returns to is at the stack pointer.
    fn has_no_frame(&self) -> bool {
        self.target.returns.is_some()
            || self.offsets.iter().all(|offset| self.target.entries.contains(offset))
    }
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

    /// Leaves out the others.
    fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        match self {
            Self::Named(offsets) | Self::Chosen(offsets) => offsets.retain(|offset| is_kept(*offset)),
            Self::Matching(functions) => functions.retain(|function| is_kept(function.offset)),
        }
    }
}

impl Environment {
    /// Hooks at these offsets of a file, where the program is given these cookies, if there are any. The link
    /// for many offsets costs an event less than perf's uprobe does, also for one.
    pub(super) fn user_hooks(
        &self,
        binary: &OpenBinary,
        (offsets, cookies): (&[u64], &[u64]),
        reference_counters: &[u64],
        returns: bool,
    ) -> Vec<Hook> {
        let path = binary.clone();
        if self.version >= UPROBE_MULTI_SINCE {
            let (offsets, cookies) = (offsets.to_vec(), cookies.to_vec());
            let reference_counters = reference_counters.to_vec();
            return vec![Hook::UserOffsets { path, offsets, cookies, reference_counters, returns }];
        }
        let at = |numbers: &[u64], index: usize| numbers.get(index).copied().unwrap_or(0);
        let hook = |(index, &offset)| Hook::User {
            path: path.clone(),
            offset,
            cookie: at(cookies, index),
            reference_counter: at(reference_counters, index),
            returns,
        };
        offsets.iter().enumerate().map(hook).collect()
    }

    /// Hooks at these sites, which are return instructions, or where functions begin whose calls are meant,
    /// or with `returns` their returns.
    fn hooks_of(&self, target: &Target, sites: &[Site], returns: bool) -> Vec<Hook> {
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        if target.returns.is_none() {
            return self.user_hooks(&target.binary, (&offsets, &[]), &[], returns);
        }
        let distances: Vec<u64> = sites.iter().map(|site| site.distance).collect();
        self.user_hooks(&target.binary, (&offsets, &distances), &[], false)
    }

    /// A program at the entries of functions that counts which of their returns the kernel does not report,
    /// if this kernel shows it.
    fn missed_returns(&self, event: &str, place: &Place<'_>) -> Option<HookProgram> {
        let hooks = self.user_hooks(&place.target.binary, (&place.offsets, &[]), &[], false);
        let preemption = Preemption::at(hooks.first().is_some_and(Hook::is_preemptible), self.guard);
        let body = self.depth?.body(preemption)?;
        let (name, on_refusal) = (event.to_owned(), OnRefusal::Forgo);
        Some(HookProgram { name, body, hooks, preemption, sleepable: false, on_refusal })
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
        let read = || {
            let of_binary = |source| BinaryError::Io { path: binary.path().to_owned(), source };
            binary.state().map_err(of_binary)
        };
        let before = read()?;
        let functions = Functions::of_binary(&binary)?;
        let Meant { mut points, mut left_out, mut notes } =
            self.points(spec, (&binary, &functions), point, returns)?;
        let chosen = if let AttachPoints::Chosen(offsets) = &points { &offsets[..] } else { &[] };
        let entries = if returns { HashSet::new() } else { at_entries(&functions, chosen) };
        let returns = match functions.go().filter(|_| returns && !force) {
            Some(go) => {
                let asks = |argument: &Argument| argument.fetch.is_of_return_value();
                if !go.returns_in_registers && spec.arguments.iter().any(asks) {
                    return Err(DynamicError::GoResult);
                }
                let found = return_instructions((&binary, &functions), &points.offsets())?;
                if read()? != before {
                    return Err(ReturnsError::Changed { path: binary.path().to_owned() }.into());
                }
                points.retain(|offset| found.returns.contains_key(&offset));
                left_out.extend(found.left_out);
                notes.extend(found.notes);
                Some(found.returns)
            }
            None => None,
        };
        Ok(MeantIn { target: Target { binary, points, entries, returns }, left_out, notes })
    }
}

/// The return instructions of functions, for the user, too.
struct FoundReturns {
    /// As [`Target::returns`].
    returns: HashMap<u64, Vec<u64>>,
    /// Some functions whose returns are not found.
    left_out: Vec<(String, DynamicError)>,
    /// The number of the others, and functions that may return in another way.
    notes: Vec<String>,
}

/// Finds the return instructions of the functions at these offsets, of one at least.
fn return_instructions(
    (binary, functions): (&OpenBinary, &Functions),
    offsets: &[u64],
) -> Result<FoundReturns, DynamicError> {
    /// Functions that notes name.
    const SHOWN: usize = 5;
    let mut finder = Finder::new(binary, functions)?;
    let (mut returns, mut left_out, mut jumping) = (HashMap::new(), Vec::new(), Vec::new());
    let mut unknown = 0;
    for &offset in offsets {
        match finder.at(offset) {
            Ok(Returns { distances, jumps_out, computed_jumps }) => {
                if jumps_out + computed_jumps != 0 {
                    jumping.push(finder.name_at(offset));
                }
                returns.insert(offset, distances);
            }
            Err(error @ ReturnsError::TooMuch { .. }) => return Err(error.into()),
            Err(error) => {
                unknown += 1;
                if left_out.len() < SHOWN {
                    left_out.push((finder.name_at(offset), DynamicError::Go(error)));
                }
            }
        }
    }
    if returns.is_empty()
        && let Some((_, error)) = left_out.pop()
    {
        return Err(error);
    }
    let mut notes = Vec::new();
    if unknown > left_out.len() {
        notes.push(format!(
            "not recorded: {} other functions of {}, whose returns are not found",
            unknown - left_out.len(),
            binary.path().display()
        ));
    }
    let (first, others) = jumping.split_at(jumping.len().min(SHOWN));
    if !first.is_empty() {
        let others = if others.is_empty() { String::new() } else { format!(" and {} others", others.len()) };
        notes.push(format!(
            "no returns by jumps to other functions are recorded, of which there may be some in {}{others}",
            first.join(", ")
        ));
    }
    Ok(FoundReturns { returns, left_out, notes })
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

/// Sites that a program suits: all of them, unless an offset in the file has to be found from that of the
/// site's function: then those of one function.
fn by_arguments(arguments: &[Argument], sites: Vec<Site>) -> Vec<(Vec<Argument>, Vec<Site>)> {
    if !arguments.iter().any(|argument| has_file_offset(&argument.fetch)) {
        return vec![(arguments.to_vec(), sites)];
    }
    let mut by_function: BTreeMap<u64, Vec<Site>> = BTreeMap::new();
    for site in sites {
        by_function.entry(site.offset - site.distance).or_default().push(site);
    }
    let of = |(function, sites)| {
        let mut arguments = arguments.to_vec();
        for argument in &mut arguments {
            relate(&mut argument.fetch, function);
        }
        (arguments, sites)
    };
    by_function.into_iter().map(of).collect()
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
