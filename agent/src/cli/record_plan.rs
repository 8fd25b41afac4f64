//! From the options of `record` to a capture.

use std::{collections::BTreeSet, path::Path};

use clap::ArgMatches;

use super::{CliError, record::RecordArgs};
use crate::{
    capture::{CaptureOptions, EventPlan, Manifest, RING_PAGES_MIN, Symbols, TaskFilter},
    kernel::{
        btf::Btf,
        clock::TraceClock,
        cpus::{CpuSet, Cpus},
        events::{Catalogue, EventName, EventSelector, Rule},
        proc,
        tracefs::Tracefs,
    },
    probe::KernelLayout,
    tracedat::Compression,
};

/// The default level: the fastest, and on trace pages hardly larger than the next ones.
const ZSTD_LEVEL: i32 = 1;

/// When the kernel's symbols are stored.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum KallsymsMode {
    /// When a recorded event prints a symbol.
    Auto,
    /// Always.
    Full,
    /// Never.
    None,
}

/// `none`, `zstd` or `zstd:LEVEL`.
pub(super) fn parse_compression(text: &str) -> Result<Compression, String> {
    let level = match text.split_once(':') {
        None if text == "none" => return Ok(Compression::None),
        None if text == "zstd" => return Ok(Compression::Zstd { level: ZSTD_LEVEL }),
        Some(("zstd", level)) => level,
        _ if text.starts_with("zlib") => {
            return Err("zlib is not written, because Debian's trace-cmd cannot read it; use zstd".to_owned());
        }
        _ => return Err("expected none, zstd or zstd:LEVEL".to_owned()),
    };
    match level.parse() {
        Ok(level @ 1..=19) => Ok(Compression::Zstd { level }),
        _ => Err("the level of zstd is a number from 1 (fast) to 19 (small)".to_owned()),
    }
}

/// A recording that is ready to start.
pub(super) struct Plan {
    pub(super) options: CaptureOptions,
    /// Processes whose end ends the recording.
    pub(super) followed: Vec<u32>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

impl Plan {
    pub(super) fn make(args: &RecordArgs, matches: &ArgMatches) -> Result<Self, CliError> {
        check_output(&args.output)?;
        let clock: TraceClock = args.clock.parse().map_err(CliError::usage)?;
        let ring_pages = ring_pages(args.ring_kb)?;
        let cpus = Cpus::read().map_err(CliError::kernel)?;
        let chosen = choose_cpus(args.cpu_mask.as_deref(), &cpus)?;
        let tasks = task_filter(args)?;

        let tracefs = Tracefs::open()?;
        let catalogue = Catalogue::read(&tracefs)?;
        let rules = rules(args, matches)?;
        let selection = catalogue.select(&rules, args.ignore_unknown)?;
        let exact: BTreeSet<EventName> =
            args.events.iter().filter_map(|text| EventName::parse(text)).collect();
        let events = EventPlan::make(&tracefs, &selection, args.all_formats, |name| exact.contains(name))?;

        let mut notes: Vec<String> =
            selection.unknown.iter().map(|unknown| format!("ignored: {unknown}")).collect();
        for (name, reason) in &events.unusable {
            if exact.contains(name) {
                return Err(CliError::Usage(format!("cannot record {name}: {reason}")));
            }
            notes.push(format!("not recorded: {name}: {reason}"));
        }
        let layout = match Btf::of_kernel() {
            Ok(btf) => KernelLayout::from_btf(&btf),
            Err(error) => {
                without_btf(args, &error, &mut notes)?;
                KernelLayout::default()
            }
        };
        let symbols = match args.kallsyms {
            KallsymsMode::Auto => Symbols::IfPrinted,
            KallsymsMode::Full => Symbols::Always,
            KallsymsMode::None => Symbols::Never,
        };
        let wanted = match symbols {
            Symbols::IfPrinted => events.events.iter().any(|event| event.prints_symbols),
            Symbols::Always => true,
            Symbols::Never => false,
        };
        if wanted && let Some(restriction) = crate::kernel::kallsyms::restriction() {
            notes.push(format!("no kernel symbols in the file: {restriction}"));
        }
        let compression = args.compression;
        let mut manifest = Manifest::of_kernel(&tracefs, clock, &args.output, compression)?;
        manifest.cpu_count = cpus.possible.highest().map_or(1, |highest| highest + 1);
        manifest.systems = events.systems;
        manifest.wall_time = args.date;
        if args.proc_map {
            manifest.proc_maps = args.pids.iter().filter_map(|&pid| proc::process_maps(pid).ok()).collect();
        }
        let options = CaptureOptions {
            events: events.events,
            clock,
            cpus: chosen.iter().collect(),
            possible_cpus: manifest.cpu_count,
            ring_pages,
            overwrite: args.overwrite,
            tasks,
            exclude_self: !args.with_self,
            poll_interval: args.poll_us.map(std::time::Duration::from_micros),
            cap: args.max_kb.map(|kb| kb.saturating_mul(1024)),
            layout,
            symbols,
            manifest,
        };
        Ok(Self { options, followed: args.pids.clone(), notes })
    }
}

/// What the parser cannot tell.
pub(super) fn check_usage(args: &RecordArgs) -> Result<(), CliError> {
    // The command's own options are left alone, so that a misspelt one of ours looks like a command.
    if let Some(option) =
        args.command.first().and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
    {
        return Err(CliError::Usage(format!(
            "there is no option {option}; see `tracer-agent record --help` (a command of that name is run as ./{option})"
        )));
    }
    let problem = if args.events.is_empty() {
        "no event to record: name one with -e, such as -e sched:sched_switch; `tracer-agent list` has all of them"
    } else if args.only_command && args.command.is_empty() {
        "-F records only the command, but there is no command"
    } else if args.children && !args.only_command && args.pids.is_empty() {
        "-c follows the children of -P or -F; without one of them everything is recorded anyway"
    } else if args.poll_us == Some(0) {
        "-s 0 would read the rings without a pause; use 1 or more"
    } else if args.max_kb.is_some_and(|kb| kb < 128) {
        "-m keeps two halves of at least 64 KB for each CPU; use 128 or more"
    } else if args.overwrite && args.max_kb.is_some() {
        "--overwrite keeps the newest -b KB in memory, -m the newest KB on disk: use one of them"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(problem.to_owned()))
}

fn check_output(output: &Path) -> Result<(), CliError> {
    if output.as_os_str() == "-" {
        return Err(CliError::Usage(
            "a trace.dat cannot be written to a pipe: its header points to parts that are written last; use -o FILE"
                .to_owned(),
        ));
    }
    if output.is_dir() {
        return Err(CliError::Output(format!(
            "{} is a directory; name a file in it with -o",
            output.display()
        )));
    }
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(CliError::Output(format!(
            "the directory {} does not exist; create it, or name another file with -o",
            parent.display()
        )));
    }
    Ok(())
}

fn ring_pages(kb: u64) -> Result<u32, CliError> {
    let page = agent_ebpf::PAGE_SIZE as u64;
    if kb == 0 {
        return Err(CliError::Usage("-b 0 leaves no room for events; the smallest ring is -b 8".to_owned()));
    }
    let pages = kb.saturating_mul(1024).div_ceil(page);
    u32::try_from(pages.max(RING_PAGES_MIN.into())).map_err(|_| {
        CliError::Usage(format!(
            "a ring of {kb} KB for each CPU is more than an eBPF map can hold; choose a smaller -b"
        ))
    })
}

fn choose_cpus(mask: Option<&str>, cpus: &Cpus) -> Result<CpuSet, CliError> {
    let Some(mask) = mask else { return Ok(cpus.online.clone()) };
    let wanted = CpuSet::parse_argument(mask, &cpus.possible)
        .map_err(|error| CliError::Usage(format!("-M {error}")))?;
    let online: CpuSet = wanted.iter().filter(|&cpu| cpus.online.contains(cpu)).collect();
    if online.is_empty() {
        return Err(CliError::Usage(format!("-M names no CPU that is online; online are {}", cpus.online)));
    }
    Ok(online)
}

fn task_filter(args: &RecordArgs) -> Result<Option<TaskFilter>, CliError> {
    if args.pids.is_empty() && !args.only_command {
        return Ok(None);
    }
    let mut tids = Vec::new();
    for &pid in &args.pids {
        let threads = proc::threads_of(pid).unwrap_or_default();
        if threads.is_empty() {
            return Err(CliError::Usage(format!("-P {pid}: there is no such process")));
        }
        tids.extend(threads);
    }
    Ok(Some(TaskFilter { tids, follow_fork: args.children }))
}

/// The rules in the order of the command line: every -e behind the first -v excludes.
fn rules(args: &RecordArgs, matches: &ArgMatches) -> Result<Vec<Rule>, CliError> {
    let negated_from = matches.indices_of("exclude").filter(|_| args.exclude > 0).and_then(Iterator::min);
    let places = matches.indices_of("events").into_iter().flatten();
    let mut rules = Vec::new();
    for (text, place) in args.events.iter().zip(places) {
        let selector: EventSelector = text.parse()?;
        let exclude = negated_from.is_some_and(|first| place > first);
        rules.push(if exclude { Rule::exclude(selector) } else { Rule::include(selector) });
    }
    if rules.iter().all(|rule| rule.exclude) {
        return Err(CliError::Usage("-v stands before every -e, so no event is left to record".to_owned()));
    }
    Ok(rules)
}

fn without_btf(
    args: &RecordArgs,
    error: &crate::kernel::btf::BtfError,
    notes: &mut Vec<String>,
) -> Result<(), CliError> {
    if args.children {
        return Err(CliError::Kernel(format!(
            "-c needs the kernel's type information to follow child processes: {error}"
        )));
    }
    notes.push(format!(
        "{error}; without it, context flags are unknown, threads that start while recording are followed and named \
         only from their first exec or rename on"
    ));
    Ok(())
}
