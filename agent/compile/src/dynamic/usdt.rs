//! USDT markers: their arguments are what the compiler wrote down.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{
    DynamicError, EVENTS_MAX, Environment, FreeNames, IsTaken, Planned, ProbePlan, TooManyMatches,
    fetch::{Argument, Fetch, Kind, Style},
    is_pattern,
    kernel::layout,
    plan, registers,
    spec::{self, At, Side, Spec, SpecErrorKind, name_from},
    user::{AttachPoint, has_file_offset, relate},
};
use crate::hook;
use crate::hook::OnRefusal;
use crate::probe_filter::ProbeRule;
use elf::symbols::nearest_names;
use elf::usdt::{ArgumentError, Marker, Markers, Operand};
use elf::{Machine, OpenBinary, usdt};
use stdx::input::glob;

/// The provider of this program's own markers.
pub const OWN_PROVIDER: &str = "tracer_agent";
/// The binary that runs, wherever it was installed.
pub const OWN_BINARY: &str = "/proc/self/exe";

/// Why a marker cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// There is none of this name.
    #[error("{} has no marker {name}{}", path.display(), guess(.nearest))]
    NotFound {
        /// The binary.
        path: PathBuf,
        /// `PROVIDER:NAME`, as it was asked for.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
    },
    /// There is none that a pattern matches.
    #[error("no marker of {} matches {pattern}; `tracer-agent list --usdt {}` shows all of them", path.display(), path.display())]
    NoMatch {
        /// The binary.
        path: PathBuf,
        /// `PROVIDER:NAME`, as it was asked for.
        pattern: String,
    },
    /// Its note is not understood.
    #[error("{name}: {error}")]
    Argument {
        /// `PROVIDER:NAME`.
        name: String,
        /// Which argument and why.
        error: ArgumentError,
    },
    /// An argument is a number that no field holds.
    #[error(
        "{name}: argument {number} is a floating-point number, which is not recorded; name the others: argN..."
    )]
    Float {
        /// `PROVIDER:NAME`.
        name: String,
        /// Which, from 1.
        number: usize,
    },
    /// An argument is where no program gets it.
    #[error(
        "{name}: argument {number} is in `{operand}`, which eBPF programs cannot read; name the others: argN..."
    )]
    Unreadable {
        /// `PROVIDER:NAME`.
        name: String,
        /// Which, from 1.
        number: usize,
        /// Where it is.
        operand: String,
    },
    /// Sites of one marker disagree.
    #[error("{name} has {first} arguments at one site and {other} at another; its notes are inconsistent")]
    Counts {
        /// `PROVIDER:NAME`.
        name: String,
        /// At its first site.
        first: usize,
        /// At another.
        other: usize,
    },
}

fn guess(nearest: &[String]) -> String {
    match nearest {
        [] => "; `tracer-agent list --usdt PATH` shows all of them".to_owned(),
        _ => format!("; did you mean {}?", nearest.join(", ")),
    }
}

/// The probes that `text` describes: `[[GROUP/]NAME=]PATH:PROVIDER:NAME [ARGUMENT...]`. Arguments are those
/// of uprobes, and `argN` for what the marker hands over; without any, all of these are recorded. Provider
/// and name may be patterns: then each marker that matches is an event of its own name, and one that cannot
/// be recorded is left out as long as there is another.
pub fn probes(
    text: &str,
    environment: &Environment,
    rule: &ProbeRule<'_>,
    is_taken: IsTaken<'_>,
) -> Result<Planned, DynamicError> {
    let spec = spec::parse(text, At { side: Side::Marker, returns: false }, rule.contexts)?;
    hook::check_uprobes()?;
    let AttachPoint { binaries, point: marker, notes } = environment.attach_point(&spec)?;
    let Some((provider, name)) = marker.split_once(':') else {
        return Err(spec.point_error(SpecErrorKind::NoMarker).into());
    };
    let mut planned = Planned { notes, ..Planned::default() };
    let mut read = Vec::new();
    for binary in binaries {
        match Markers::of_binary(&binary) {
            Ok(markers) => read.push((binary, markers)),
            Err(error) => planned.left_out.push((binary.path().display().to_string(), error.into())),
        }
    }
    let Some((first, of_first)) = read.first() else {
        return Err(planned.left_out.swap_remove(0).1);
    };
    let target = Target { spec: &spec, environment, rule };
    let found = find(&read, provider, name);
    if !is_pattern(&marker) {
        let sites = found.values().next();
        let sites = sites.ok_or_else(|| not_found(of_first, first.path().to_owned(), &marker))?;
        let name = spec.name.clone().unwrap_or_else(|| name_from(name));
        planned.probes.push(target.probe(sites, &name, None)?);
        return Ok(planned);
    }
    check_count(&spec, first.path(), &marker, found.len())?;
    let mut names = FreeNames::new(is_taken);
    for ((provider, name), sites) in &found {
        let group = target.group(sites);
        let event = spec.name.clone().unwrap_or_else(|| names.take(&group, &name_from(name)));
        match target.probe(sites, &event, Some(OnRefusal::LeaveOutEvent)) {
            Ok(probe) => planned.probes.push(probe),
            Err(error) => planned.left_out.push((format!("{provider}:{name}"), error)),
        }
    }
    match planned.left_out.pop() {
        Some((_, error)) if planned.probes.is_empty() => return Err(error),
        last => planned.left_out.extend(last),
    }
    Ok(planned)
}

/// A site of a marker in one of the files.
struct Site<'a> {
    binary: &'a OpenBinary,
    machine: Machine,
    marker: &'a Marker,
}

/// Markers by provider and name, with their sites in all files.
type Found<'a> = BTreeMap<(&'a str, &'a str), Vec<Site<'a>>>;

/// The markers whose provider and name are, or match, these.
fn find<'a>(read: &'a [(OpenBinary, Markers)], provider: &str, name: &str) -> Found<'a> {
    let mut found = Found::new();
    for (binary, markers) in read {
        let is_meant =
            |marker: &&Marker| glob::matches(provider, &marker.provider) && glob::matches(name, &marker.name);
        for marker in markers.all().iter().filter(is_meant) {
            let site = Site { binary, machine: markers.machine(), marker };
            found.entry((&marker.provider, &marker.name)).or_default().push(site);
        }
    }
    found
}

fn not_found(markers: &Markers, path: PathBuf, name: &str) -> MarkerError {
    let names: Vec<String> =
        markers.all().iter().map(|site| format!("{}:{}", site.provider, site.name)).collect();
    let nearest = nearest_names(name, names.iter().map(String::as_str));
    MarkerError::NotFound { path, name: name.to_owned(), nearest }
}

/// Checks the number of markers that a pattern matches.
fn check_count(spec: &Spec, path: &Path, pattern: &str, found: usize) -> Result<(), DynamicError> {
    match found {
        0 => Err(MarkerError::NoMatch { path: path.to_owned(), pattern: pattern.to_owned() }.into()),
        2.. if spec.name.is_some() => Err(spec.point_error(SpecErrorKind::NameOfMany(found)).into()),
        1..=EVENTS_MAX => Ok(()),
        _ => {
            let advice = "narrow it";
            Err(TooManyMatches { pattern: pattern.to_owned(), found, what: "markers", advice }.into())
        }
    }
}

/// What the probes of one text have in common.
struct Target<'a> {
    spec: &'a Spec,
    environment: &'a Environment,
    rule: &'a ProbeRule<'a>,
}

impl Target<'_> {
    /// The system of a marker's event.
    fn group(&self, sites: &[Site<'_>]) -> String {
        let of_provider = || sites.first().map(|site| name_from(&site.marker.provider));
        self.spec.group.clone().or_else(of_provider).unwrap_or_default()
    }

    /// The probe of the marker that has these sites.
    fn probe(
        &self,
        sites: &[Site<'_>],
        event: &str,
        on_refusal: Option<OnRefusal>,
    ) -> Result<ProbePlan, DynamicError> {
        let Self { environment, rule, .. } = *self;
        let name = |site: &Site<'_>| format!("{}:{}", site.marker.provider, site.marker.name);
        let marker = sites.first().map(name).unwrap_or_default();
        let by_site = sites
            .iter()
            .map(|site| site.marker.parse_arguments(site.machine))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| MarkerError::Argument { name: marker.clone(), error })?;
        let types = types(&marker, &by_site)?;
        let mut spec = self.spec.clone();
        if spec.arguments.is_empty() {
            spec.arguments = types.iter().enumerate().map(whole_argument).collect();
        }
        for argument in &spec.arguments {
            check(&spec.text, &marker, argument, &types)?;
        }
        let mut layout = layout(&spec, &self.group(sites), event, (false, false), rule)?;
        layout.of_anyone = is_own(sites);
        let mut programs = Vec::new();
        for Group { binary, arguments, offsets, counters } in groups(&spec, &marker, sites, &by_site, &types)?
        {
            let hooks = environment.user_hooks(binary, &offsets, &counters, false);
            let program = environment.program(&layout, rule, &arguments, hooks)?;
            programs.push(program.on_refusal(on_refusal));
        }
        Ok(plan(&layout, programs))
    }
}

/// Whether a marker is one of this program's own, by which it says in traces what it does: those are of
/// interest whoever's events are recorded.
fn is_own(sites: &[Site<'_>]) -> bool {
    sites.first().is_some_and(|site| {
        site.marker.provider == OWN_PROVIDER
            && OpenBinary::open(Path::new(OWN_BINARY)).is_ok_and(|own| own == *site.binary)
    })
}

/// Size and sign of a marker's argument.
type ArgumentType = (u32, bool);

/// The types of a marker's arguments: sites may have them in different sizes, of which the largest holds
/// all.
fn types(name: &str, by_site: &[Vec<usdt::Argument>]) -> Result<Vec<ArgumentType>, MarkerError> {
    let mut types: Vec<ArgumentType> = Vec::new();
    for (index, arguments) in by_site.iter().enumerate() {
        if index == 0 {
            types = arguments.iter().map(|argument| (argument.size.into(), argument.signed)).collect();
        }
        if arguments.len() != types.len() {
            let (first, other) = (types.len(), arguments.len());
            return Err(MarkerError::Counts { name: name.to_owned(), first, other });
        }
        for (known, argument) in types.iter_mut().zip(arguments) {
            *known = (known.0.max(argument.size.into()), known.1 || argument.signed);
        }
    }
    Ok(types)
}

fn whole_argument((index, &(size, signed)): (usize, &ArgumentType)) -> Argument {
    let style = if signed { Style::Signed } else { Style::Unsigned };
    let number = index as u32 + 1;
    Argument {
        name: format!("arg{number}"),
        fetch: Fetch::Marker(number),
        kind: Kind::Number { size, style },
        count: None,
    }
}

/// Checks that an argument names only what the marker has.
fn check(text: &str, marker: &str, argument: &Argument, types: &[ArgumentType]) -> Result<(), DynamicError> {
    let mut fetch = &argument.fetch;
    while let Fetch::Memory { of, .. } = fetch {
        fetch = of;
    }
    match fetch {
        Fetch::Marker(number) if !(1..=types.len()).contains(&(*number as usize)) => {
            let at = text.rfind(&format!("arg{number}")).map_or(0..text.len(), |at| at..text.len());
            let kind = SpecErrorKind::MarkerArgument { marker: marker.to_owned(), count: types.len() };
            Err(spec::SpecError { text: text.to_owned(), at, kind }.into())
        }
        _ => Ok(()),
    }
}

/// Sites in a file that one program suits.
struct Group<'a> {
    binary: &'a OpenBinary,
    arguments: Vec<Argument>,
    offsets: Vec<u64>,
    counters: Vec<u64>,
}

fn groups<'a>(
    spec: &Spec,
    name: &str,
    sites: &[Site<'a>],
    by_site: &[Vec<usdt::Argument>],
    types: &[ArgumentType],
) -> Result<Vec<Group<'a>>, DynamicError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (&Site { binary, marker: site, .. }, site_arguments) in sites.iter().zip(by_site) {
        let mut arguments = spec.arguments.clone();
        for argument in &mut arguments {
            at_site(argument, name, site_arguments, types)?;
            if has_file_offset(&argument.fetch) {
                relate(&mut argument.fetch, site.offset);
            }
        }
        let counter = site.semaphore.map_or(0, |semaphore| semaphore.offset);
        match groups.iter_mut().find(|group| group.binary == binary && group.arguments == arguments) {
            Some(group) => {
                group.offsets.push(site.offset);
                group.counters.push(counter);
            }
            None => {
                groups.push(Group { binary, arguments, offsets: vec![site.offset], counters: vec![counter] })
            }
        }
    }
    Ok(groups)
}

/// Puts the operand at a site where the argument names it.
fn at_site(
    argument: &mut Argument,
    name: &str,
    site_arguments: &[usdt::Argument],
    types: &[ArgumentType],
) -> Result<(), MarkerError> {
    if let (Fetch::Marker(number), Kind::Number { size, style }) = (&argument.fetch, argument.kind)
        && let Some(here) = site_arguments.get(*number as usize - 1)
        && u32::from(here.size) < size
    {
        // Narrower here than elsewhere: what is above it is not part of it.
        let signed = types.get(*number as usize - 1).is_some_and(|known| known.1) && style == Style::Signed;
        argument.kind = Kind::Bits { width: u32::from(here.size) * 8, offset: 0, size, signed };
    }
    substitute(&mut argument.fetch, name, site_arguments)
}

fn substitute(fetch: &mut Fetch, name: &str, site_arguments: &[usdt::Argument]) -> Result<(), MarkerError> {
    match fetch {
        Fetch::Memory { of, .. } => substitute(of, name, site_arguments),
        Fetch::Marker(number) => {
            let number = *number as usize;
            // The number was checked.
            let Some(argument) = number.checked_sub(1).and_then(|index| site_arguments.get(index)) else {
                return Ok(());
            };
            if argument.float {
                return Err(MarkerError::Float { name: name.to_owned(), number });
            }
            *fetch = operand(&argument.operand).ok_or_else(|| MarkerError::Unreadable {
                name: name.to_owned(),
                number,
                operand: argument.operand.to_string(),
            })?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn operand(operand: &Operand) -> Option<Fetch> {
    match operand {
        Operand::Constant(value) => Some(Fetch::Constant(value.cast_unsigned())),
        Operand::Register(name) => registers::of_assembler(name).map(Fetch::Register),
        Operand::Memory { symbol: Some(_), .. } => None,
        Operand::Memory { base, index, displacement, symbol: None } => {
            let base = match base {
                Some(name) => Some(registers::of_assembler(name)?),
                None => None,
            };
            let of = match (base, index) {
                (_, Some((index, scale))) => {
                    Fetch::Indexed { base, index: registers::of_assembler(index)?, scale: *scale }
                }
                (Some(base), None) => Fetch::Register(base),
                (None, None) => Fetch::Constant(0),
            };
            let offset = i64::from(i32::try_from(*displacement).ok()?);
            Some(Fetch::Memory { offset, user: true, of: Box::new(of) })
        }
    }
}
