//! What a program or shared library offers to probes, as text and as JSON.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use super::super::tell;
use super::{Args, ListError, json_string};
use crate::compile::dynamic::user::find_by_name;
use crate::elf::symbols::{Function, Functions};
use crate::elf::usdt::{Argument, Marker, Markers};
use crate::input::glob;

/// The file that an argument names: the one at that path, or, of a name without a slash, what
/// `record --uprobe` takes it for.
fn file(path: &Path) -> Cow<'_, Path> {
    let by_name = || path.to_str().and_then(find_by_name);
    if path.exists() { Cow::Borrowed(path) } else { by_name().map_or(Cow::Borrowed(path), Cow::Owned) }
}

/// `--symbols PATH`
pub(super) fn list_functions(path: &Path, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let functions = Functions::of(&file(path))?;
    let chosen: Vec<&Function> = match &args.pattern {
        Some(pattern) => functions.find(pattern)?,
        None => functions.all().iter().collect(),
    };
    if args.json {
        return json_array(out, &chosen, function_json);
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

fn function_json(function: &Function) -> String {
    let Function { name, address, offset, size, table, indirect } = function;
    format!(
        "{{\"name\":{},\"demangled\":{},\"address\":{address},\"offset\":{offset},\"size\":{size},\"table\":{},\
        \"indirect\":{indirect}}}",
        json_string(name),
        json_string(&function.demangled()),
        json_string(&table.to_string()),
    )
}

/// `--usdt PATH`
pub(super) fn list_markers(path: &Path, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let path = &*file(path);
    let markers = Markers::of(path)?;
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
            "{} has no marker {pattern}; it has {count} places of markers, see: tracer-agent list --usdt {0}",
            path.display()
        )));
    }
    if args.json {
        return json_array(out, &chosen, |marker| marker_json(marker, &markers));
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

fn marker_json(marker: &Marker, markers: &Markers) -> String {
    let Marker { provider, name, address, offset, semaphore, arguments } = marker;
    let semaphore = semaphore.map_or_else(
        || "null".to_owned(),
        |semaphore| format!("{{\"address\":{},\"offset\":{}}}", semaphore.address, semaphore.offset),
    );
    let types = match marker.parse_arguments(markers.machine()) {
        Ok(arguments) => {
            let types: Vec<String> =
                arguments.iter().map(|argument: &Argument| json_string(&argument.to_string())).collect();
            format!("[{}]", types.join(","))
        }
        Err(_) => "null".to_owned(),
    };
    format!(
        "{{\"provider\":{},\"name\":{},\"address\":{address},\"offset\":{offset},\"semaphore\":{semaphore},\
        \"arguments\":{},\"types\":{types}}}",
        json_string(provider),
        json_string(name),
        json_string(arguments),
    )
}

fn json_array<T>(out: &mut impl Write, items: &[&T], object: impl Fn(&T) -> String) -> Result<(), ListError> {
    out.write_all(b"[")?;
    for (place, item) in items.iter().enumerate() {
        write!(out, "{}\n{}", if place == 0 { "" } else { "," }, object(item))?;
    }
    out.write_all(b"\n]\n")?;
    Ok(())
}
