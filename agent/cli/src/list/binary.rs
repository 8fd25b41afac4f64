//! What a program or shared library offers to probes, as text and as JSON.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::super::tell;
use super::{Args, Lines, ListError, array};
use elf::symbols::{Function, Functions};
use elf::usdt::{Argument, Marker, Markers, Semaphore};
use elf::{BinaryError, OpenBinary, find_by_name};
use stdx::input::glob;

/// The file that an argument names: the one at that path, or, of a name without a slash, what
/// `record --uprobe` takes it for.
fn open(path: &Path) -> Result<OpenBinary, BinaryError> {
    let by_name = || path.to_str().and_then(find_by_name);
    OpenBinary::open(path).or_else(|error| by_name().ok_or(error))
}

/// `--symbols PATH`
pub(super) fn list_functions(path: &Path, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let functions = Functions::of_binary(&open(path)?)?;
    let chosen: Vec<&Function> = match &args.pattern {
        Some(pattern) => functions.find(pattern)?,
        None => functions.all().iter().collect(),
    };
    if args.json {
        return array(out, Lines::Rows, chosen.into_iter().map(|function| Ok(ListedFunction::of(function))));
    }
    for function in chosen {
        let Function { name, offset, size, indirect, .. } = function;
        write!(out, "{offset:#012x} {size:>8} {name}")?;
        let demangled = function.demangled();
        if demangled != *name {
            write!(out, "  {demangled}")?;
        }
        writeln!(out, "{}", if *indirect { "  (chooses one of several at start)" } else { "" })?;
    }
    Ok(())
}

/// A function as JSON has it.
#[derive(Serialize)]
struct ListedFunction<'a> {
    name: &'a str,
    demangled: String,
    address: u64,
    offset: u64,
    size: u64,
    table: String,
    indirect: bool,
}

impl<'a> ListedFunction<'a> {
    fn of(function: &'a Function) -> Self {
        let Function { name, address, offset, size, table, indirect } = function;
        Self {
            name,
            demangled: function.demangled(),
            address: *address,
            offset: *offset,
            size: *size,
            table: table.to_string(),
            indirect: *indirect,
        }
    }
}

/// `--usdt PATH`
pub(super) fn list_markers(path: &Path, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let binary = open(path)?;
    let (path, markers) = (binary.path(), Markers::of_binary(&binary)?);
    if markers.all().is_empty() {
        tell(&format!("tracer-agent: {} has no USDT markers", path.display()));
    }
    let wanted = |marker: &&Marker| match &args.pattern {
        None => true,
        Some(pattern) => {
            glob::matches(pattern, &format!("{}:{}", marker.provider, marker.name))
                || glob::matches(pattern, &marker.name)
        }
    };
    let chosen: Vec<&Marker> = markers.all().iter().filter(wanted).collect();
    if let (Some(pattern), true) = (&args.pattern, chosen.is_empty()) {
        let count = markers.all().len();
        return Err(ListError::Usage(format!(
            "{} has no marker {pattern}; it has {count} markers, see: tracer-agent list --usdt {0}",
            path.display()
        )));
    }
    if args.json {
        return array(
            out,
            Lines::Rows,
            chosen.into_iter().map(|marker| Ok(ListedMarker::of(marker, &markers))),
        );
    }
    for marker in chosen {
        let Marker { provider, name, offset, semaphore, arguments, .. } = marker;
        write!(out, "{offset:#012x} {provider}:{name}")?;
        if !arguments.is_empty() {
            write!(out, "  {arguments}")?;
        }
        if let Some(semaphore) = semaphore {
            write!(out, "  semaphore={:#x}", semaphore.offset)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A marker as JSON has it.
#[derive(Serialize)]
struct ListedMarker<'a> {
    provider: &'a str,
    name: &'a str,
    address: u64,
    offset: u64,
    semaphore: Option<ListedSemaphore>,
    arguments: &'a str,
    /// `None` if the arguments are not understood.
    types: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ListedSemaphore {
    address: u64,
    offset: u64,
}

impl<'a> ListedMarker<'a> {
    fn of(marker: &'a Marker, markers: &Markers) -> Self {
        let Marker { provider, name, address, offset, semaphore, arguments } = marker;
        let types = marker.parse_arguments(markers.machine());
        Self {
            provider,
            name,
            address: *address,
            offset: *offset,
            semaphore: semaphore.map(|Semaphore { address, offset }| ListedSemaphore { address, offset }),
            arguments,
            types: types.ok().map(|types| types.iter().map(Argument::to_string).collect()),
        }
    }
}
