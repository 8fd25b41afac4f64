//! What a file tells besides its events.

use std::io::{self, Write};

use super::super::exit::ExitCode;
use super::super::input::Opened;
use super::Args;
use ftrace_event::{Endian, Printer};
use report::TraceFile;
use tracedat::FileOption;
use tracedat::reader::CpuRecords;

/// Prints all that was asked for.
pub(super) fn print(args: &Args, files: &[TraceFile<Opened>], out: &mut dyn Write) -> io::Result<ExitCode> {
    let mut code = ExitCode::Ok;
    for file in files {
        let facts = args.facts;
        if facts.stat || facts.uname || facts.version {
            writeln!(out, "cpus={}", file.reader().cpu_count())?;
        }
        if facts.stat {
            statistics(file, out)?;
        }
        if facts.uname {
            told(
                file,
                out,
                "uname",
                |fact| if let FileOption::Uname(text) = fact { Some(text) } else { None },
            )?;
        }
        if facts.version {
            told(
                file,
                out,
                "version",
                |fact| {
                    if let FileOption::Version(text) = fact { Some(text) } else { None }
                },
            )?;
        }
        if facts.cpus || facts.first_event || facts.last_event {
            cpus(args, file, out)?;
        }
        if facts.endian {
            let endian = if file.reader().header().endian == Endian::Little { "little" } else { "big" };
            let host = if cfg!(target_endian = "little") { "little" } else { "big" };
            writeln!(out, "file is {endian} endian and host is {host} endian")?;
        }
        if facts.events {
            for system in &file.reader().metadata().systems {
                for text in &system.formats {
                    writeln!(out, "system: {}\n{}", system.name, text.trim_end())?;
                }
            }
        }
        if facts.event_names {
            let mut names: Vec<_> = file
                .reader()
                .metadata()
                .events()
                .map(|event| format!("{}:{}", event.system, event.name))
                .collect();
            names.sort();
            names.iter().try_for_each(|name| writeln!(out, "{name}"))?;
        }
        if facts.functions {
            file.symbols().iter().try_for_each(|(address, name)| writeln!(out, "{address:016x} {name}"))?;
        }
        if facts.printk {
            let texts = &file.reader().metadata().printk;
            texts.iter().try_for_each(|(address, text)| writeln!(out, "{address:016x} {text}"))?;
        }
        if facts.check_events && !check(file, out)? {
            code = ExitCode::Failure;
        }
    }
    out.flush()?;
    Ok(code)
}

fn told<'f>(
    file: &'f TraceFile<Opened>,
    out: &mut dyn Write,
    what: &str,
    fact: impl Fn(&'f FileOption) -> Option<&'f String>,
) -> io::Result<()> {
    match file.reader().facts().find_map(fact) {
        Some(text) => writeln!(out, "{text}"),
        None => writeln!(out, " {what} was not recorded in this file"),
    }
}

fn statistics(file: &TraceFile<Opened>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\nKernel buffer statistics:\n  Note: \"entries\" are the entries left in the kernel ring buffer and are not\n        \
         recorded in the trace data. They should all be zero.\n"
    )?;
    let mut any = false;
    for fact in file.reader().facts() {
        if let FileOption::CpuStat(text) = fact {
            any = true;
            writeln!(out, "{text}")?;
        }
    }
    writeln!(out, "{}", if any { "" } else { " No stats in this file" })?;
    for buffer in file.reader().buffers().iter().filter(|buffer| buffer.name.is_empty()) {
        for cpu in &buffer.cpus {
            writeln!(
                out,
                "CPU{} data recorded at offset=0x{:x}\n    {} bytes in size",
                cpu.cpu, cpu.offset, cpu.size
            )?;
        }
    }
    Ok(())
}

fn cpus(args: &Args, file: &TraceFile<Opened>, out: &mut dyn Write) -> io::Result<()> {
    let reader = file.reader();
    writeln!(out, "List of CPUs in {} with data:", file.name())?;
    let time = |records: &mut CpuRecords<'_>, last: bool| {
        // A damaged page is passed over.
        let found = loop {
            let found = if last { records.prev_record() } else { records.next_record() };
            if let Ok(found) = found {
                break found.map(|record| record.timestamp);
            }
        };
        found.map(|time| file.time_text(time, args.full_time))
    };
    for (index, buffer) in reader.buffers().iter().enumerate().filter(|(_, buffer)| buffer.name.is_empty()) {
        for extent in &buffer.cpus {
            let Ok(mut records) = reader.cpu_records(index, extent.cpu) else { continue };
            let Some(first) = time(&mut records, false) else { continue };
            write!(out, "  {}", extent.cpu)?;
            if args.facts.first_event {
                write!(out, "\tFirst event:{first}")?;
            }
            records.fast_forward();
            if args.facts.last_event
                && let Some(last) = time(&mut records, true)
            {
                write!(out, "\tLast event:{last}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Whether every format is understood.
fn check(file: &TraceFile<Opened>, out: &mut dyn Write) -> io::Result<bool> {
    let mut bad = 0;
    for (system, error) in file.unparsed() {
        bad += 1;
        writeln!(out, "{system}: a format cannot be parsed: {error}")?;
    }
    // The others are among those that cannot be parsed.
    let has_fields = |printer: &&Printer| printer.format_error().is_none();
    for printer in file.events().iter().filter(has_fields) {
        if let Some(error) = printer.error() {
            bad += 1;
            let (system, name) = (printer.system(), printer.name());
            writeln!(out, "{system}:{name}: shown as its fields: {error}")?;
        } else if !printer.unresolved().is_empty() {
            // Parts of the text are a number or a question mark.
            let (system, name, names) = (printer.system(), printer.name(), printer.unresolved().join(", "));
            writeln!(out, "{system}:{name}: the file does not tell the value of {names}")?;
        }
    }
    let count = file.events().iter().filter(has_fields).count() + file.unparsed().len();
    writeln!(out, "{count} formats, {bad} not understood")?;
    Ok(bad == 0)
}
