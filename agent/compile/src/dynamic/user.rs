//! Uprobes: functions of programs and shared libraries.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use agent_ebpf::slot_flags;

use super::{
    DynamicError, EVENTS_MAX, Environment, FreeNames, IsTaken, Planned, Processes, TooManyMatches,
    UPROBE_MULTI_SINCE,
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
use elf::{Machine, OpenBinary};

/// The system of events without one.
const GROUP: &str = "uprobes";
/// Where a library without a path is looked for, after where a program is.
const LIBRARIES: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The probes that `text` describes: `[[GROUP/]NAME=]PATH:FUNCTION[+OFFSET] [ARGUMENT...]`, or with
/// `0xOFFSET` in the file instead of the function. A pattern without a name is an event for each function,
/// named after it.
pub fn probes(
    text: &str,
    returns: bool,
    environment: &Environment,
    rule: &ProbeRule<'_>,
    is_taken: IsTaken<'_>,
) -> Result<Planned, DynamicError> {
    let spec = spec::parse(text, At { side: Side::User, returns }, rule.contexts)?;
    hook::check_uprobes()?;
    let (binary, point) = split_path(&spec)?;
    let functions = Functions::of_binary(&binary)?;
    if returns && functions.is_go() && !rule.force {
        return Err(DynamicError::Go(binary.path().to_owned()));
    }
    let Meant { points, left_out, notes } =
        environment.points(&spec, (&binary, &functions), &point, returns)?;
    let group = spec.group.as_deref().unwrap_or(GROUP);
    let chosen = if let AttachPoints::Chosen(offsets) = &points { &offsets[..] } else { &[] };
    let entries = if returns { HashSet::new() } else { at_entries(&functions, chosen) };
    let add = |name: &str, offsets: Vec<u64>, on_refusal: Option<OnRefusal>| {
        let layout = layout(&spec, group, name, (returns, false), rule)?;
        let at_entry = offsets.iter().all(|offset| entries.contains(offset));
        let mut programs = Vec::new();
        for (arguments, offsets) in by_arguments(&spec.arguments, offsets) {
            let hooks = environment.user_hooks(&binary, &offsets, &[], returns);
            let program = environment.program(&layout, rule, &arguments, hooks)?;
            programs.push(program.on_refusal(on_refusal));
        }
        let slot_flags = if at_entry { slot_flags::FUNCTION_ENTRY } else { 0 };
        Ok::<_, DynamicError>(ProbePlan { slot_flags, ..plan(&layout, programs) })
    };
    match points {
        AttachPoints::Matching(functions) if spec.name.is_none() => {
            check_count(&point, functions.len())?;
            let mut names = FreeNames::new(is_taken);
            let event = |function: Function| {
                let name = names.take(group, &name_of(&function, returns));
                add(&name, vec![function.offset], Some(OnRefusal::LeaveOutEvent))
            };
            let probes = functions.into_iter().map(event).collect::<Result<_, _>>()?;
            Ok(Planned { probes, left_out, notes })
        }
        points => {
            let offsets = points.offsets();
            let name =
                spec.name.clone().unwrap_or_else(|| default_name(binary.path(), &point, &offsets, returns));
            let probes = vec![add(&name, offsets, None)?];
            Ok(Planned { probes, left_out, notes })
        }
    }
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
    fn offsets(self) -> Vec<u64> {
        match self {
            Self::Named(offsets) | Self::Chosen(offsets) => offsets,
            Self::Matching(functions) => functions.into_iter().map(|function| function.offset).collect(),
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

/// Splits an attach point into its file and what follows the colon: the first colon before which there is a
/// path that exists, because paths and functions have colons too.
pub(super) fn split_path(spec: &Spec) -> Result<(OpenBinary, String), DynamicError> {
    if let Some(path) = &spec.path {
        let binary = match find(path) {
            Some(binary) => binary,
            // The reason why it cannot be opened.
            None => OpenBinary::open(Path::new(path))?,
        };
        return Ok((binary, spec.point.clone()));
    }
    let colons: Vec<usize> = spec.point.match_indices(':').map(|(at, _)| at).collect();
    let split = |at: usize| (&spec.point[..at], &spec.point[at + 1..]);
    let no_path = || spec.point_error(SpecErrorKind::NoPath);
    let Some(&first) = colons.first() else { return Err(no_path().into()) };
    let found = colons.iter().map(|&at| split(at)).find_map(|(path, rest)| Some((find(path)?, rest)));
    let (binary, rest) = match found {
        Some(found) => found,
        None => match split(first) {
            ("", _) | (_, "") => return Err(no_path().into()),
            // The reason why it cannot be opened.
            (path, rest) => (OpenBinary::open(Path::new(path))?, rest),
        },
    };
    if rest.is_empty() {
        return Err(no_path().into());
    }
    Ok((binary, rest.to_owned()))
}

/// The program or library that a name without a slash means to probes: in PATH, then where libraries are.
pub fn find_by_name(name: &str) -> Option<OpenBinary> {
    if name.contains('/') { None } else { find(name) }
}

/// The file that a path or a bare name means.
fn find(path: &str) -> Option<OpenBinary> {
    if path.contains('/') {
        return OpenBinary::open(Path::new(path)).ok();
    }
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&programs).chain(LIBRARIES.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(path)).find_map(|path| OpenBinary::open(&path).ok())
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
            let processes = match processes {
                Processes::All => kernel::proc::processes().unwrap_or_default(),
                Processes::Of(processes) => processes.clone(),
            };
            processes.into_iter().flat_map(|process| implementations.of_process(process)).collect()
        };
        let chosen = chosen_by(&self.processes);
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
fn default_name(path: &Path, point: &str, offsets: &[u64], returns: bool) -> String {
    let letter = if returns { 'r' } else { 'p' };
    let [offset] = offsets else {
        return name_from(&format!("{letter}_{point}"));
    };
    let file = path.file_name().unwrap_or_default().to_string_lossy();
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
