//! From the options of `record` to a capture.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::Path, sync::Arc};

use clap::ArgMatches;
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{CliError, record::RecordArgs, record_scope::OptionRules, substitutes};
use crate::{
    attach::KernelLayout,
    capture::{
        CaptureOptions, EventPlan, KernelConstants, Lanes, Manifest, RING_PAGES_MIN, Symbols, TaskFilter,
        UnusableFormat, Wanted,
    },
    compile::{
        context::Counters,
        fast::{FastLane, LaneChoice},
        filter::Facts,
    },
    event::{Names, NoNames},
    kernel::{
        btf::Btf,
        clock::TraceClock,
        cpus::{CpuSet, Cpus},
        events::{Catalogue, EventName, EventSelector, Rule, Selection},
        proc,
        tracefs::Tracefs,
    },
    output::Output,
    tracedat::Compression,
};

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

/// Which programs record.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneArg {
    /// The specialized programs of events that have one, the generic one for the others.
    Auto,
    /// Specialized programs only; other events are not recorded.
    Fast,
    /// The generic program for all events.
    Generic,
}

impl From<LaneArg> for LaneChoice {
    fn from(lane: LaneArg) -> Self {
        match lane {
            LaneArg::Auto => Self::Auto,
            LaneArg::Fast => Self::Fast,
            LaneArg::Generic => Self::Generic,
        }
    }
}

/// `none`, `zstd` or `zstd:LEVEL`.
pub(super) fn parse_compression(text: &str) -> Result<Compression, String> {
    let level = match text.split_once(':') {
        None if text == "none" => return Ok(Compression::None),
        None if text == "zstd" => return Ok(Compression::default()),
        Some(("zstd", level)) => level,
        _ if text.starts_with("zlib") => {
            return Err("zlib is not written, because Debian's trace-cmd cannot read it; use zstd".to_owned());
        }
        _ => return Err("expected none, zstd or zstd:LEVEL".to_owned()),
    };
    match level.parse() {
        Ok(level @ 1..=19) => Ok(Compression::Zstd { level }),
        _ => Err("the level of zstd is a number from 1 (fastest) to 19 (smallest)".to_owned()),
    }
}

/// A recording that is ready to start.
pub(super) struct Plan {
    pub(super) options: CaptureOptions,
    /// Processes whose end ends the recording, as pidfds.
    pub(super) followed: Vec<OwnedFd>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

impl Plan {
    pub(super) fn make(args: &RecordArgs, matches: &ArgMatches) -> Result<Self, CliError> {
        let output = check_output(&args.output)?;
        let followed = open_processes(args)?;
        let sees_kernel_pids = proc::in_initial_pid_namespace();
        if !sees_kernel_pids
            && (args.only_command || !args.pids.is_empty() || !args.scope.exclude_pids.is_empty())
        {
            return Err(CliError::Kernel(
                "-P, -F and --exclude-pid need the process ids of the initial pid namespace, which are not visible in this one; \
                 run it outside of the container, or in one with the host's pid namespace"
                    .to_owned(),
            ));
        }
        let clock: TraceClock = args.clock.parse().map_err(CliError::usage)?;
        let ring_pages = ring_pages(args.ring_kb)?;
        let cpus = Cpus::read().map_err(CliError::kernel)?;
        let mut notes = Vec::new();
        let chosen = choose_cpus(args.cpu_mask.as_deref(), &cpus, &mut notes)?;
        let tasks = task_filter(args);
        let scope = args.scope.scope()?;

        let tracefs = Tracefs::open()?;
        let catalogue = Catalogue::read(&tracefs)?;
        let rules = rules(args, matches)?;
        let mut option_rules = OptionRules::read(&args.wanted, matches)?;
        let selection = catalogue.select(&rules, args.ignore_unknown)?;
        let exact = exact_names(args, &selection);
        let btf = Btf::of_kernel();
        let lanes = Lanes {
            choice: args.lane.into(),
            fast: match &btf {
                Ok(btf) => FastLane::new(btf).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        };
        let facts = Facts::new(clock, btf.as_ref().ok());
        let possible_cpus = cpus.possible.highest().map_or(1, |highest| highest + 1);
        let counters = Arc::new(Counters::new(cpus.online.iter().collect(), possible_cpus));
        option_rules.open_contexts(&facts, &counters)?;
        let constants = btf.as_ref().map(KernelConstants::new);
        let names: &dyn Names = constants.as_ref().map_or(&NoNames, |constants| constants);
        let rules = option_rules.of("events");
        let wanted = Wanted { rules, facts: &facts, names, strings: args.strings };
        let is_exact = |name: &EventName| exact.contains(name);
        let mut events = EventPlan::make(&tracefs, &selection, args.all_formats, lanes, wanted, is_exact)?;

        notes.extend(selection.unknown.iter().map(|unknown| format!("ignored: {unknown}")));
        let mut never = Vec::new();
        for (name, reason) in &events.unusable {
            if exact.contains(name) {
                return Err(CliError::Usage(format!("cannot record {name}: {reason}")));
            }
            match reason {
                UnusableFormat::NeverHolds(_) => never.push(name.to_string()),
                _ => notes.push(format!("not recorded: {name}: {reason}")),
            }
        }
        if !never.is_empty() {
            notes.push(format!(
                "not recorded: {} events whose filter can never match, because they lack its fields: {}",
                never.len(),
                never.join(", ")
            ));
        }
        notes.extend(args.probes.add_to(&mut events, (&option_rules, &facts), &tracefs, btf.as_ref())?);
        args.stacks.apply(&tracefs, &mut events)?;
        let layout = match &btf {
            Ok(btf) => KernelLayout::from_btf(btf),
            Err(error) => {
                without_btf(args, error, &mut notes)?;
                KernelLayout::default()
            }
        };
        let symbols = match args.kallsyms {
            KallsymsMode::Auto => Symbols::IfPrinted,
            KallsymsMode::Full => Symbols::Always,
            KallsymsMode::None => Symbols::Never,
        };
        if symbols.wanted(|| events.events.iter().any(|event| event.prints_symbols))
            && let Some(restriction) = crate::kernel::kallsyms::restriction()
        {
            notes.push(format!("no kernel symbols in the file: {restriction}"));
        }
        let compression = args.compression;
        let mut manifest = Manifest::of_kernel(&tracefs, clock, &output.path(), compression)?;
        manifest.cpu_count = possible_cpus;
        manifest.systems = events.systems;
        manifest.wall_time = args.date;
        if args.proc_map {
            manifest.proc_maps = args.pids.iter().filter_map(|&pid| proc::process_maps(pid).ok()).collect();
        }
        let options = CaptureOptions {
            events: events.events,
            probes: events.probes,
            counters,
            clock,
            cpus: chosen.iter().collect(),
            possible_cpus: manifest.cpu_count,
            ring_pages,
            overwrite: args.overwrite,
            tasks,
            scope,
            // Elsewhere our id is another process's.
            exclude_self: !args.with_self && sees_kernel_pids,
            poll_interval: args.poll_us.map(std::time::Duration::from_micros),
            cap: args.max_kb.map(|kb| kb.saturating_mul(1024)),
            layout,
            hooks: events.hooks,
            strings: args.strings,
            symbols,
            output,
            manifest,
        };
        Ok(Self { options, followed, notes })
    }
}

/// What the parser cannot tell.
pub(super) fn check_usage(args: &RecordArgs) -> Result<(), CliError> {
    // The command's own options are left alone, so that a misspelt one of ours looks like a command.
    if let Some(option) =
        args.command.first().and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
    {
        let instead = substitutes::of("record", option)
            .map_or_else(|| "see `tracer-agent record --help`".to_owned(), |text| format!("instead: {text}"));
        return Err(CliError::Usage(format!(
            "there is no option {option}; {instead} (a command of that name is run as ./{option})"
        )));
    }
    let problem = if args.events.is_empty() && args.probes.is_empty() {
        "no event to record: name one with -e, such as -e sched:sched_switch; `tracer-agent list` shows all of them"
    } else if args.only_command && args.command.is_empty() {
        "-F records only the command, but there is no command"
    } else if args.children && !args.only_command && args.pids.is_empty() {
        "-c follows the children of -P or -F; without one of them everything is recorded anyway"
    } else if args.poll_us == Some(0) {
        "-s 0 would poll the rings without a pause; use 1 or more"
    } else if args.max_kb.is_some_and(|kb| kb < 128) {
        "-m keeps two halves of at least 64 KB for each CPU; use 128 or more"
    } else if args.overwrite && args.max_kb.is_some() {
        "--overwrite keeps the newest -b KB in memory, -m the newest KB on disk: use one of them"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(problem.to_owned()))
}

/// Where the file goes. Symbolic links are followed, as other recorders do.
fn check_output(output: &Path) -> Result<Output, CliError> {
    if output.as_os_str() == "-" {
        return Err(CliError::Usage(
            "a trace.dat cannot be written to a pipe, because its header points to parts that are written last; use -o FILE"
                .to_owned(),
        ));
    }
    Output::at(output).map_err(|error| CliError::Output(error.to_string()))
}

/// The processes of -P, each held by a descriptor that tells when it ends.
fn open_processes(args: &RecordArgs) -> Result<Vec<OwnedFd>, CliError> {
    let open = |&pid: &u32| {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        process.and_then(|process| pidfd_open(process, PidfdFlags::empty())).map_err(|error| match error {
            Errno::SRCH => CliError::Usage(format!("-P {pid}: there is no such process")),
            // 6.18 says so of a thread; kernels before it give EINVAL.
            Errno::INVAL | Errno::NOENT => CliError::Usage(format!(
                "-P {pid} is a thread; give the id of its process, whose threads are all recorded"
            )),
            other => CliError::Usage(format!("-P {pid}: cannot watch the process: {other}")),
        })
    };
    args.pids.iter().map(open).collect()
}

/// The selected events that were asked for by name, with or without their system.
fn exact_names(args: &RecordArgs, selection: &Selection) -> BTreeSet<EventName> {
    let named = |event: &EventName| {
        args.events.iter().any(|text| text == event.name() || EventName::parse(text).as_ref() == Some(event))
    };
    selection.events.iter().map(|event| &event.name).filter(|event| named(event)).cloned().collect()
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

/// The CPUs that get a ring: those that are plugged in, because one that is offline may come online while
/// recording. Many more are possible in a virtual machine, most of which never come.
fn choose_cpus(mask: Option<&str>, cpus: &Cpus, notes: &mut Vec<String>) -> Result<CpuSet, CliError> {
    let plugged_in: CpuSet = cpus.present.iter().chain(cpus.online.iter()).collect();
    let Some(mask) = mask else { return Ok(plugged_in) };
    let wanted = CpuSet::parse_argument(mask, &cpus.possible)
        .map_err(|error| CliError::Usage(format!("-M {mask}: {error}{}", mask_hint(mask))))?;
    let chosen: CpuSet = wanted.iter().filter(|&cpu| plugged_in.contains(cpu)).collect();
    if chosen.is_empty() {
        return Err(CliError::Usage(format!(
            "-M {mask} has no CPU that is present; present are {}, online {}{}",
            cpus.present,
            cpus.online,
            mask_hint(mask)
        )));
    }
    if !chosen.iter().any(|cpu| cpus.online.contains(cpu)) {
        notes.push(format!("CPU {chosen} of -M is offline; its events are recorded when it comes online"));
    }
    Ok(chosen)
}

/// What a number means that may have been meant as a CPU.
fn mask_hint(mask: &str) -> String {
    match CpuSet::parse_hex(mask) {
        // Nobody takes a longer one for the number of a CPU.
        Ok(cpus) if mask.len() <= 4 && mask.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("; {mask} is the hexadecimal mask of CPU {cpus}: for CPU {mask} write {mask}-{mask}")
        }
        _ => String::new(),
    }
}

fn task_filter(args: &RecordArgs) -> Option<TaskFilter> {
    if args.pids.is_empty() && !args.only_command {
        return None;
    }
    Some(TaskFilter { processes: args.pids.clone(), follow_fork: args.children })
}

/// The rules in the order of the command line: every -e after the first -v excludes.
fn rules(args: &RecordArgs, matches: &ArgMatches) -> Result<Vec<Rule>, CliError> {
    let negated_from = matches.indices_of("exclude").filter(|_| args.exclude > 0).and_then(Iterator::min);
    let places = matches.indices_of("events").into_iter().flatten();
    let mut rules = Vec::new();
    for (text, place) in args.events.iter().zip(places) {
        let selector: EventSelector = text.parse()?;
        let exclude = negated_from.is_some_and(|first| place > first);
        rules.push(if exclude { Rule::exclude(selector) } else { Rule::include(selector) });
    }
    if !rules.is_empty() && rules.iter().all(|rule| rule.exclude) {
        return Err(CliError::Usage("-v precedes every -e, so no event is left to record".to_owned()));
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
        "{error}; without it, context flags are unknown, threads that start while recording are named only \
         from their first rename on, and -P and -F do not record them"
    ));
    Ok(())
}
