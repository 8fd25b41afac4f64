//! `tracer-agent list`: what can be recorded.

mod binary;
mod kernel;
mod types;

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use ::kernel::btf::BtfError;
use ::kernel::events::{Catalogue, Entry, Rule, SelectError};
use ::kernel::tracefs::{Tracefs, TracefsError};
use elf::BinaryError;
use elf::symbols::LookupError;
use spec::EventSelector;

use super::exit::ExitCode;
use super::json_writer::{Lines, array};
use compile::dynamic::DynamicError;

/// List the events of this kernel, or what can be probed in it and in binaries
///
/// Prints one event per line, as system:event. Events of tracefs that cannot be recorded are listed with the
/// reason. With --functions it prints functions of the kernel, with --types its types, with --symbols or
/// --usdt the functions or markers of a program or shared library.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// List only matching events: sched:sched_switch, sched:*, sched, sys_enter_open*
    ///
    /// Without an argument, and without -e at all, every event is listed.
    #[arg(short = 'e', long = "event", value_name = "EVENT", num_args = 0..=1, default_missing_value = "all")]
    pub events: Vec<String>,

    /// Print the fields of each event: type, name, offset and size in the record
    #[arg(short = 'F', long)]
    pub fields: bool,

    /// List the functions of a program or shared library: file offset, size, name
    ///
    /// A name without a slash is searched for in the current directory, then like `record --uprobe` does: in
    /// PATH and in the library directories. Functions are those of its symbol table, its dynamic symbols, its
    /// separate debug file and its .gnu_debugdata. Mangled names are followed by their demangled form.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["events", "fields", "usdt"])]
    pub symbols: Option<PathBuf>,

    /// List the USDT markers of a program or shared library: file offset, provider:name, arguments
    #[arg(long, value_name = "PATH", conflicts_with_all = ["events", "fields"])]
    pub usdt: Option<PathBuf>,

    /// List the kernel's types (BTF): structures, unions, enumerations, and functions with their arguments
    ///
    /// A structure that is named without a wildcard is shown with its members and their byte offsets.
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", conflicts_with_all = ["events", "fields", "usdt", "symbols", "functions"])]
    pub types: Option<String>,

    /// List the kernel's functions that can be traced, all or those that match: 'tcp_*'
    #[arg(
        long,
        value_name = "PATTERN",
        num_args = 0..=1,
        default_missing_value = "*",
        conflicts_with_all = ["events", "fields", "symbols", "usdt", "pattern"]
    )]
    pub functions: Option<String>,

    /// With --symbols or --usdt, list only what matches: 'read*', 'std::io::*', 'libc:setjmp'
    #[arg(long = "match", value_name = "PATTERN")]
    pub pattern: Option<String>,

    /// Print JSON: an array of objects, one for each event, function or marker
    #[arg(long)]
    pub json: bool,
}

/// Why nothing, or not everything, was listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// tracefs cannot be read.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// A selector is malformed, or means no event of this kernel.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The binary cannot be probed.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// The binary has nothing under that name.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The kernel has no type information.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The kernel's functions cannot be read.
    #[error(transparent)]
    Functions(#[from] DynamicError),
    /// Options that mean nothing together, or nothing that matches.
    #[error("{0}")]
    Usage(String),
    /// The list cannot be written.
    #[error("cannot write the list: {0}")]
    Write(#[from] io::Error),
}

impl ListError {
    /// The code to exit with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Tracefs(error) if error.is_permission() => ExitCode::NotPermitted,
            Self::Tracefs(_) | Self::Types(_) => ExitCode::Unsupported,
            Self::Select(SelectError::Malformed(_)) | Self::Usage(_) => ExitCode::Usage,
            Self::Select(_) | Self::Lookup(_) => ExitCode::NoSuchEvent,
            Self::Binary(_) => ExitCode::Failure,
            Self::Functions(DynamicError::Function(_)) => ExitCode::NoSuchEvent,
            Self::Functions(_) => ExitCode::NotPermitted,
            Self::Write(_) => ExitCode::OutputNotWritable,
        }
    }
}

/// Lists what the arguments ask for.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), ListError> {
    if let Some(pattern) = &args.functions {
        return written(out, |out| kernel::list_functions(pattern, args.json, out));
    }
    if let Some(pattern) = &args.types {
        return written(out, |out| types::list_types(pattern, args, out));
    }
    match (&args.symbols, &args.usdt, &args.pattern) {
        (Some(path), ..) => written(out, |out| binary::list_functions(path, args, out)),
        (_, Some(path), _) => written(out, |out| binary::list_markers(path, args, out)),
        (None, None, Some(_)) => {
            let advice =
                "--match applies to --symbols and --usdt; events are selected with -e, which takes patterns";
            Err(ListError::Usage(advice.to_owned()))
        }
        (None, None, None) => list(&Tracefs::open()?, args, out),
    }
}

/// Lists the events that a tracefs has.
pub fn list(tracefs: &Tracefs, args: &Args, out: &mut dyn Write) -> Result<(), ListError> {
    written(out, |out| list_all(tracefs, args, out))
}

/// Writes a list through a buffer. A reader that has seen enough and closed its end is no error.
fn written(
    out: &mut dyn Write,
    list: impl FnOnce(&mut io::BufWriter<&mut dyn Write>) -> Result<(), ListError>,
) -> Result<(), ListError> {
    let mut out = io::BufWriter::new(out);
    match list(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(ListError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is still in the buffer has nobody to go to.
            let _ = out.into_parts();
            Ok(())
        }
        other => other,
    }
}

fn list_all(tracefs: &Tracefs, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let catalogue = Catalogue::read(tracefs)?;
    let entries = chosen(&catalogue, &args.events)?;
    if args.json {
        let entries = entries.into_iter();
        return array(out, Lines::Rows, entries.map(|entry| ListedEvent::of(tracefs, entry, args.fields)));
    }
    for Entry { name, refusal } in entries {
        match refusal {
            None => writeln!(out, "{name}")?,
            Some(reason) => writeln!(out, "{name}  (cannot be recorded: {reason})")?,
        }
        if args.fields {
            for field in fields_of(tracefs, name)? {
                let Field { declaration, offset, size } = field;
                writeln!(out, "\t{declaration};\toffset:{offset};\tsize:{size};")?;
            }
        }
    }
    Ok(())
}

/// The events that the selectors mean, the ones that cannot be recorded among them. No selector means all.
fn chosen<'a>(catalogue: &'a Catalogue, selectors: &[String]) -> Result<Vec<&'a Entry>, SelectError> {
    if selectors.is_empty() {
        return Ok(catalogue.entries().iter().collect());
    }
    let selectors = selectors.iter().map(|text| text.parse()).collect::<Result<Vec<EventSelector>, _>>()?;
    for selector in &selectors {
        if catalogue.matching(selector).next().is_none() {
            // It fails, and with the names that may have been meant.
            catalogue.select(&[Rule::include(selector.clone())], false)?;
        }
    }
    let wanted = |entry: &&Entry| selectors.iter().any(|selector| selector.matches(&entry.name));
    Ok(catalogue.entries().iter().filter(wanted).collect())
}

/// An event as JSON has it.
#[derive(Serialize)]
struct ListedEvent<'a> {
    system: &'a str,
    event: &'a str,
    recordable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<Field>>,
}

impl<'a> ListedEvent<'a> {
    fn of(
        tracefs: &Tracefs,
        Entry { name, refusal }: &'a Entry,
        with_fields: bool,
    ) -> Result<Self, ListError> {
        Ok(Self {
            system: name.system(),
            event: name.name(),
            recordable: refusal.is_none(),
            reason: refusal.map(::kernel::events::Refusal::code),
            detail: refusal.map(|reason| reason.to_string()),
            fields: with_fields.then(|| fields_of(tracefs, name)).transpose()?,
        })
    }
}

/// A field as a format describes it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Field {
    declaration: String,
    offset: u32,
    size: u32,
}

/// The fields of an event; none when the event has gone meanwhile.
fn fields_of(tracefs: &Tracefs, name: &spec::EventName) -> Result<Vec<Field>, TracefsError> {
    match tracefs.event_format(name) {
        Ok(format) => Ok(format_fields(&format.text)),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the lines `field:type name; offset:0; size:2; signed:0;` of a format.
fn format_fields(format: &str) -> Vec<Field> {
    let field = |line: &str| -> Option<Field> {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declaration = parts.next()?.to_owned();
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        Some(Field { declaration, offset, size })
    };
    format.lines().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn tracefs() -> (tempfile::TempDir, Tracefs) {
        let dir = tempfile::tempdir().unwrap();
        let event = |system: &str, name: &str, fields: &str| {
            let path = dir.path().join("events").join(system).join(name);
            std::fs::create_dir_all(&path).unwrap();
            let format = format!("name: {name}\nID: 7\nformat:\n{fields}\nprint fmt: \"\"\n");
            std::fs::write(path.join("format"), format).unwrap();
        };
        let fields = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n";
        event("sched", "sched_switch", fields);
        event("sched", "sched_wakeup", "");
        event("irq", "softirq_entry", "");
        event("ftrace", "function", "");
        let tracefs = Tracefs::open_at(dir.path()).unwrap();
        (dir, tracefs)
    }

    fn listed(arguments: &[&str]) -> Result<String, ListError> {
        let (_dir, tracefs) = tracefs();
        let args = Cli::parse_from([&["list"], arguments].concat()).args;
        let mut out = Vec::new();
        list(&tracefs, &args, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn events_are_listed_with_the_reason_of_those_that_cannot_be_recorded() {
        let all = "ftrace:function  (cannot be recorded: ftrace writes it itself and no program can see it)\n\
            irq:softirq_entry\nsched:sched_switch\nsched:sched_wakeup\n";
        assert_eq!(listed(&[]).unwrap(), all);
        assert_eq!(listed(&["-e"]).unwrap(), all);
        assert_eq!(listed(&["-e", "sched_w*"]).unwrap(), "sched:sched_wakeup\n");
        assert_eq!(
            listed(&["-e", "irq", "-e", "sched:sched_switch"]).unwrap(),
            "irq:softirq_entry\nsched:sched_switch\n"
        );
    }

    #[test]
    fn fields_are_printed_as_the_format_has_them() {
        assert_eq!(
            listed(&["-e", "sched_switch", "--fields"]).unwrap(),
            "sched:sched_switch\n\
            \tunsigned short common_type;\toffset:0;\tsize:2;\n\
            \tchar prev_comm[16];\toffset:8;\tsize:16;\n\
            \t__data_loc char[] name;\toffset:24;\tsize:4;\n"
        );
    }

    #[test]
    fn json_has_the_same() {
        assert_eq!(
            listed(&["-e", "sched_switch", "-e", "ftrace", "--fields", "--json"]).unwrap(),
            "[\n{\"system\":\"ftrace\",\"event\":\"function\",\"recordable\":false,\"reason\":\"ftrace-internal\",\
            \"detail\":\"ftrace writes it itself and no program can see it\",\"fields\":[]},\n\
            {\"system\":\"sched\",\"event\":\"sched_switch\",\"recordable\":true,\"fields\":[\
            {\"declaration\":\"unsigned short common_type\",\"offset\":0,\"size\":2},\
            {\"declaration\":\"char prev_comm[16]\",\"offset\":8,\"size\":16},\
            {\"declaration\":\"__data_loc char[] name\",\"offset\":24,\"size\":4}]}\n]\n"
        );
        assert_eq!(
            listed(&["-e", "irq", "--json"]).unwrap(),
            "[\n{\"system\":\"irq\",\"event\":\"softirq_entry\",\"recordable\":true}\n]\n"
        );
    }

    #[test]
    fn unknown_events_are_errors_with_a_guess() {
        let error = listed(&["-e", "sched:sched_swich"]).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::NoSuchEvent);
        assert!(error.to_string().contains("did you mean sched:sched_switch?"), "{error}");
        assert_eq!(listed(&["-e", "a:b:c"]).unwrap_err().exit_code(), ExitCode::Usage);
    }

    #[test]
    fn a_pipe_that_closes_is_no_error_and_a_full_disk_is() {
        struct Failing(i32);
        impl Write for Failing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(self.0))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (_dir, tracefs) = tracefs();
        list(&tracefs, &Args::default(), &mut Failing(libc::EPIPE)).unwrap();
        let error = list(&tracefs, &Args::default(), &mut Failing(libc::ENOSPC)).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::OutputNotWritable);
    }

    #[test]
    fn missing_rights_and_missing_kernels_have_codes_of_their_own() {
        let denied = ListError::from(TracefsError::NotPermitted("/x".into()));
        assert_eq!(denied.exit_code(), ExitCode::NotPermitted);
        assert_eq!(ListError::from(TracefsError::NotInKernel).exit_code(), ExitCode::Unsupported);
    }
}
