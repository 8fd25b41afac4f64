//! USDT markers: their arguments are what the compiler wrote down.

use std::borrow::Cow;
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
use elf::usdt::{ArgumentError, Marked, Marker, Markers, Operand};
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
    /// It has another number of arguments than in the first file.
    #[error(
        "{name} has {here} arguments here and {first} in {}; name this file by its path to record it as another \
         event",
        first_path.display()
    )]
    OtherCount {
        /// `PROVIDER:NAME`.
        name: String,
        /// In this file.
        here: usize,
        /// In the first file.
        first: usize,
        /// The first file.
        first_path: PathBuf,
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
/// be recorded is left out as long as there is another. A binary that is `known` is the one that is meant,
/// whatever is at its path.
pub fn probes(
    text: &str,
    known: Option<&Marked>,
    environment: &Environment,
    rule: &ProbeRule<'_>,
    is_taken: IsTaken<'_>,
) -> Result<Planned, DynamicError> {
    let spec = spec::parse(text, At { side: Side::Marker, returns: false }, rule.contexts)?;
    hook::check_uprobes()?;
    let AttachPoint { binaries, point: marker, notes } = match known {
        Some(Marked { binary, .. }) => {
            // A path without quotes has no colon.
            let point = match &spec.path {
                Some(_) => Some(spec.point.as_str()),
                None => spec.point.split_once(':').map(|(_, point)| point),
            };
            let point = point.unwrap_or_default().to_owned();
            AttachPoint { binaries: vec![binary.clone()], point, notes: Vec::new() }
        }
        None => environment.attach_point(&spec)?,
    };
    let Some((provider, name)) = marker.split_once(':') else {
        return Err(spec.point_error(SpecErrorKind::NoMarker).into());
    };
    let mut planned = Planned { notes, ..Planned::default() };
    let mut read: Vec<Read<'_>> = Vec::new();
    for binary in binaries {
        let markers = known.map(|known| Ok(Cow::Borrowed(&known.markers)));
        match markers.unwrap_or_else(|| Markers::of_binary(&binary).map(Cow::Owned)) {
            Ok(markers) => read.push((binary, markers)),
            Err(error) => planned.left_out.push((binary.path().display().to_string(), error.into())),
        }
    }
    let target = Target { spec: &spec, environment, rule };
    let found = find(&read, provider, name);
    let is_pattern = is_pattern(&marker);
    // No file is another's reason.
    for (binary, markers) in &read {
        let is_in = |of: &InFile<'_>| std::ptr::eq(of.binary, binary);
        if !found.values().flatten().any(is_in) {
            let path = binary.path().to_owned();
            let told = path.display().to_string();
            let error = if is_pattern {
                MarkerError::NoMatch { path, pattern: marker.clone() }
            } else {
                not_found(markers, path, &marker)
            };
            planned.left_out.push((told, error.into()));
        }
    }
    if found.is_empty() {
        return Err(planned.left_out.swap_remove(0).1);
    }
    if !is_pattern {
        let files = found.into_values().next().unwrap_or_default();
        let event = spec.name.clone().unwrap_or_else(|| name_from(name));
        let Made { probe, left_out } = target.probe(&files, &event, None)?;
        planned.probes.push(probe);
        planned.left_out.extend(left_out);
        return Ok(planned);
    }
    check_count(&spec, &marker, found.len())?;
    let mut names = FreeNames::new(is_taken);
    // Why a file is left out does not say why a marker is.
    let mut refused = Vec::new();
    for ((provider, name), files) in &found {
        let group = target.group(files);
        let event = spec.name.clone().unwrap_or_else(|| names.take(&group, &name_from(name)));
        match target.probe(files, &event, Some(OnRefusal::LeaveOutEvent)) {
            Ok(Made { probe, left_out }) => {
                planned.probes.push(probe);
                planned.left_out.extend(left_out);
            }
            Err(error) => refused.push((format!("{provider}:{name}"), error)),
        }
    }
    match refused.pop() {
        Some((_, error)) if planned.probes.is_empty() => return Err(error),
        last => refused.extend(last),
    }
    planned.left_out.extend(refused);
    Ok(planned)
}

/// A file and its markers.
type Read<'a> = (OpenBinary, Cow<'a, Markers>);

/// The sites of a marker in a file.
struct InFile<'a> {
    binary: &'a OpenBinary,
    machine: Machine,
    sites: Vec<&'a Marker>,
}

/// Markers by provider and name, with the files that have them.
type Found<'a> = BTreeMap<(&'a str, &'a str), Vec<InFile<'a>>>;

/// The markers whose provider and name are, or match, these.
fn find<'a>(read: &'a [Read<'_>], provider: &str, name: &str) -> Found<'a> {
    let mut found = Found::new();
    for (binary, markers) in read {
        let is_meant =
            |marker: &&Marker| glob::matches(provider, &marker.provider) && glob::matches(name, &marker.name);
        for marker in markers.all().iter().filter(is_meant) {
            let files = found.entry((marker.provider.as_str(), marker.name.as_str())).or_default();
            match files.last_mut().filter(|file| std::ptr::eq(file.binary, binary)) {
                Some(file) => file.sites.push(marker),
                None => files.push(InFile { binary, machine: markers.machine(), sites: vec![marker] }),
            }
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
fn check_count(spec: &Spec, pattern: &str, found: usize) -> Result<(), DynamicError> {
    match found {
        2.. if spec.name.is_some() => Err(spec.point_error(SpecErrorKind::NameOfMany(found)).into()),
        0..=EVENTS_MAX => Ok(()),
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

/// A probe, without what some of the files do not allow.
struct Made {
    probe: ProbePlan,
    /// Files with the reasons.
    left_out: Vec<(String, DynamicError)>,
}

impl Target<'_> {
    /// The system of a marker's event.
    fn group(&self, files: &[InFile<'_>]) -> String {
        let of_provider = || Some(name_from(&files.first()?.sites.first()?.provider));
        self.spec.group.clone().or_else(of_provider).unwrap_or_default()
    }

    /// The probe of the marker that these files have.
    fn probe(
        &self,
        files: &[InFile<'_>],
        event: &str,
        on_refusal: Option<OnRefusal>,
    ) -> Result<Made, DynamicError> {
        let Self { environment, rule, .. } = *self;
        let name = |site: &&Marker| format!("{}:{}", site.provider, site.name);
        let marker = files.first().and_then(|file| file.sites.first()).map(name).unwrap_or_default();
        let Alike { files: alike, types, mut left_out } = alike(&marker, files);
        if alike.is_empty() {
            // No file is another's reason.
            return Err(left_out.swap_remove(0).1);
        }
        let mut spec = self.spec.clone();
        if spec.arguments.is_empty() {
            spec.arguments = types.iter().enumerate().map(whole_argument).collect();
        }
        for argument in &spec.arguments {
            check(&spec.text, &marker, argument, &types)?;
        }
        let mut layout = layout(&spec, &self.group(files), event, (false, false), rule)?;
        layout.of_anyone = is_own(files);
        let mut programs = Vec::new();
        for (file, by_site) in alike {
            let groups = match groups(&spec, &marker, (file, by_site.as_slice()), &types) {
                Ok(groups) => groups,
                Err(error) => {
                    left_out.push((file.binary.path().display().to_string(), error.into()));
                    continue;
                }
            };
            for Group { arguments, offsets, counters } in groups {
                let hooks = environment.user_hooks(file.binary, (&offsets, &[]), &counters, false);
                let program = environment.program(&layout, rule, &arguments, hooks)?;
                programs.push(program.on_refusal(on_refusal));
            }
        }
        if programs.is_empty() {
            return Err(left_out.swap_remove(0).1);
        }
        Ok(Made { probe: plan(&layout, programs), left_out })
    }
}

/// The arguments of a marker, by site.
type BySite = Vec<Vec<usdt::Argument>>;

/// The files in which a marker has the same number of arguments.
struct Alike<'a, 'b> {
    files: Vec<(&'b InFile<'a>, BySite)>,
    /// Of all these.
    types: Vec<ArgumentType>,
    /// The other files, with the reasons.
    left_out: Vec<(String, DynamicError)>,
}

/// Reads the arguments of a marker. A file whose notes are not understood, or that has more or fewer
/// arguments than the first one, is left out.
fn alike<'a, 'b>(name: &str, files: &'b [InFile<'a>]) -> Alike<'a, 'b> {
    let mut found = Alike { files: Vec::new(), types: Vec::new(), left_out: Vec::new() };
    for file in files {
        let read = arguments(name, file).and_then(|(by_site, types)| {
            let Some((first, _)) = found.files.first() else { return Ok((by_site, types)) };
            if types.len() == found.types.len() {
                return Ok((by_site, types));
            }
            Err(MarkerError::OtherCount {
                name: name.to_owned(),
                here: types.len(),
                first: found.types.len(),
                first_path: first.binary.path().to_owned(),
            })
        });
        match read {
            Ok((by_site, types)) => {
                found.files.push((file, by_site));
                found.types = if found.files.len() == 1 { types } else { widest(&found.types, &types) };
            }
            Err(error) => found.left_out.push((file.binary.path().display().to_string(), error.into())),
        }
    }
    found
}

/// The arguments of a marker in a file, and their types there.
fn arguments(name: &str, file: &InFile<'_>) -> Result<(BySite, Vec<ArgumentType>), MarkerError> {
    let parse = |site: &&Marker| site.parse_arguments(file.machine);
    let by_site = file.sites.iter().map(parse).collect::<Result<BySite, _>>();
    let by_site = by_site.map_err(|error| MarkerError::Argument { name: name.to_owned(), error })?;
    let types = types(name, &by_site)?;
    Ok((by_site, types))
}

/// Whether a marker is one of this program's own, which report its work in traces: they are recorded whatever
/// the scope is.
fn is_own(files: &[InFile<'_>]) -> bool {
    files.first().is_some_and(|file| {
        file.sites.first().is_some_and(|site| site.provider == OWN_PROVIDER)
            && OpenBinary::open(Path::new(OWN_BINARY)).is_ok_and(|own| own == *file.binary)
    })
}

/// Size and sign of a marker's argument.
type ArgumentType = (u32, bool);

/// The types of a marker's arguments: sites may have them in different sizes, of which the largest holds
/// all.
fn types(name: &str, by_site: &[Vec<usdt::Argument>]) -> Result<Vec<ArgumentType>, MarkerError> {
    let of_site = |arguments: &Vec<usdt::Argument>| -> Vec<ArgumentType> {
        arguments.iter().map(|argument| (argument.size.into(), argument.signed)).collect()
    };
    let mut sites = by_site.iter().map(of_site);
    let first = sites.next().unwrap_or_default();
    sites.try_fold(first, |known, here| {
        if here.len() != known.len() {
            let (first, other) = (known.len(), here.len());
            return Err(MarkerError::Counts { name: name.to_owned(), first, other });
        }
        Ok(widest(&known, &here))
    })
}

/// Types that hold the arguments of both.
fn widest(one: &[ArgumentType], other: &[ArgumentType]) -> Vec<ArgumentType> {
    one.iter().zip(other).map(|(one, other)| (one.0.max(other.0), one.1 || other.1)).collect()
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
struct Group {
    arguments: Vec<Argument>,
    offsets: Vec<u64>,
    counters: Vec<u64>,
}

fn groups(
    spec: &Spec,
    name: &str,
    (file, by_site): (&InFile<'_>, &[Vec<usdt::Argument>]),
    types: &[ArgumentType],
) -> Result<Vec<Group>, MarkerError> {
    let mut groups: Vec<Group> = Vec::new();
    for (site, site_arguments) in file.sites.iter().zip(by_site) {
        let mut arguments = spec.arguments.clone();
        for argument in &mut arguments {
            at_site(argument, name, site_arguments, types)?;
            if has_file_offset(&argument.fetch) {
                relate(&mut argument.fetch, site.offset);
            }
        }
        let counter = site.semaphore.map_or(0, |semaphore| semaphore.offset);
        match groups.iter_mut().find(|group| group.arguments == arguments) {
            Some(group) => {
                group.offsets.push(site.offset);
                group.counters.push(counter);
            }
            None => groups.push(Group { arguments, offsets: vec![site.offset], counters: vec![counter] }),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn marker(name: &str, arguments: &str) -> Marker {
        let (provider, arguments) = ("app".to_owned(), arguments.to_owned());
        Marker { provider, name: name.to_owned(), address: 0x10, offset: 0x10, semaphore: None, arguments }
    }

    /// Files with a marker at sites with these arguments.
    fn alike_of(files: &[&[&str]]) -> (Vec<usize>, Vec<ArgumentType>, Vec<String>) {
        // Any files serve: paths tell them apart.
        let open = |path: &&str| OpenBinary::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let all = ["Cargo.toml", "src/lib.rs", "src/hook.rs", "src/dynamic/mod.rs"];
        let binaries: Vec<OpenBinary> = all.iter().take(files.len()).map(open).collect();
        let of = |sites: &&[&str]| -> Vec<Marker> {
            sites.iter().map(|arguments| marker("one", arguments)).collect()
        };
        let markers: Vec<Vec<Marker>> = files.iter().map(of).collect();
        let in_file = |(binary, sites)| {
            let sites: &Vec<Marker> = sites;
            InFile { binary, machine: Machine::X86_64, sites: sites.iter().collect() }
        };
        let all: Vec<InFile<'_>> = binaries.iter().zip(&markers).map(in_file).collect();
        let Alike { files: alike, types, left_out } = alike("app:one", &all);
        let number = |binary: &OpenBinary| binaries.iter().position(|one| one == binary).unwrap();
        let taken = alike.iter().map(|(file, _)| number(file.binary)).collect();
        let told = |(path, error): &(String, DynamicError)| {
            let number = binaries.iter().position(|one| one.path().display().to_string() == *path).unwrap();
            format!("{number} {error}")
        };
        (taken, types, left_out.iter().map(told).collect())
    }

    #[test]
    fn files_are_read_one_by_one() {
        let (taken, types, left_out) = alike_of(&[&["-4@%edi"], &["8@%rdi", "-2@$1"]]);
        assert_eq!((taken, types, left_out.len()), (vec![0, 1], vec![(8, true)], 0));
        // Another version, one whose sites disagree, and one that is not understood, also if it comes first.
        for first in [&["3@%edi"][..], &["4@%edi", "4@%edi 4@%esi"]] {
            let (taken, types, left_out) = alike_of(&[first, &["4@%edi"], &["4@%edi 4@%esi"], &["4@$1"]]);
            assert_eq!((taken, types), (vec![1, 3], vec![(4, false)]));
            let [one, other] = &left_out[..] else { panic!("{left_out:?}") };
            assert!(one.starts_with("0 "), "{one}");
            assert!(other.starts_with("2 app:one has 2 arguments here and 1 in "), "{other}");
        }
    }
}
