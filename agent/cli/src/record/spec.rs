//! From the options of `record` to a specification, and what to say of one in the words of the options.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, parser::ValueSource};

use super::{
    super::{CliError, substitutes},
    RecordArgs,
    buffers::channels,
    live, rotation,
    trace::{self, Format},
    wanted::{indices, start_of_buffer},
    when::When,
};
use ::spec::{
    ChannelSpec, Field, FileSpec, Kallsyms, LimitSpec, MapSpec, Problem, RecordingSpec, RuleSpec, ScopeSpec,
    TEXT_MAX, What, why,
};
use kernel::cpus::{CpuSet, Cpus};

/// Options that may stand beside --spec, by clap's ids: what they say is no part of a specification, or
/// replaces what it says.
const BESIDE_SPEC: [&str; 14] = [
    "spec",
    "print_spec",
    "debug_programs",
    "quiet",
    "command",
    "output",
    "mode",
    "network",
    "tcp",
    "vsock",
    "duration",
    "interval",
    "json",
    "live_bind",
];

/// Options that are about files and maps, by clap's ids.
const OF_FILES: [&str; 29] = [
    "output",
    "mode",
    "compression",
    "all_formats",
    "proc_map",
    "overwrite",
    "snapshot_when",
    "snapshot_delay",
    "snapshot_limit",
    "rotate_size",
    "rotate_time",
    "keep",
    "trace_format",
    "packet_size",
    "tracefile_size",
    "tracefile_count",
    "live",
    "live_bind",
    "network",
    "tcp",
    "vsock",
    "count",
    "time",
    "max_keys",
    "spec",
    "print_spec",
    "poll_us",
    "debug_programs",
    "kallsyms",
];

/// The name of the output of a recording that is streamed.
const STREAMED: &str = "-";

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

impl From<KallsymsMode> for Kallsyms {
    fn from(mode: KallsymsMode) -> Self {
        match mode {
            KallsymsMode::Auto => Self::Auto,
            KallsymsMode::Full => Self::Full,
            KallsymsMode::None => Self::None,
        }
    }
}

/// What is to be recorded: as the options say, or as the file of --spec does.
pub(super) fn make(args: &RecordArgs, matches: &ArgMatches) -> Result<RecordingSpec, CliError> {
    check_command(args)?;
    let Some(path) = &args.spec else {
        args.maps.check()?;
        return of_options(args, matches);
    };
    check_beside_spec(matches)?;
    let mut spec = read(path)?;
    if was_given(matches, "output") || args.net.is_wanted() {
        spec.file.path = output(args, matches);
    }
    if let Some(duration) = args.duration {
        spec.limits.duration_ns = Some(duration);
    }
    spec.check().map_err(|error| CliError::Usage(format!("--spec {}: {error}", path.display())))?;
    if spec.scope.only_command && args.command.is_empty() && !args.print_spec {
        return Err(CliError::Usage(format!(
            "{}: scope.only_command records only the command, but there is no command; add it at the end",
            path.display()
        )));
    }
    Ok(spec)
}

/// The specification of a command that has options of `record` among its own: of those that say which events
/// are wanted, and whose.
pub(crate) fn of_options(args: &RecordArgs, matches: &ArgMatches) -> Result<RecordingSpec, CliError> {
    check_command(args)?;
    let rules = rules(args, matches)?;
    let file = (output(args, matches), format(args, matches));
    of_parts(args, channels(args, matches, &rules)?, args.maps.specs(matches, args.probes.force)?, file)
}

/// The options that a command refuses which has others of `record` among its own and keeps no file, by clap's
/// ids: those that are about files and maps, and `more`.
pub(crate) fn refused<'m>(more: &'m [&'m str]) -> impl Iterator<Item = &'m str> {
    OF_FILES.iter().chain(more).copied()
}

/// If one of these was given, how it is written.
pub(crate) fn given_of(matches: &ArgMatches, more: &[&str]) -> Option<String> {
    refused(more).find(|id| was_given(matches, id)).map(option_name)
}

fn read(path: &Path) -> Result<RecordingSpec, CliError> {
    let wrong =
        |error: &dyn std::fmt::Display| CliError::Usage(format!("--spec {}: {error}", path.display()));
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(TEXT_MAX as u64 + 1).read_to_end(&mut text))
        .map_err(|error| wrong(&error))?;
    RecordingSpec::parse(&text).map_err(|error| wrong(&error))
}

/// The specification that the other options are short for, with these channels and maps.
pub(crate) fn of_parts(
    args: &RecordArgs,
    channels: Vec<ChannelSpec>,
    maps: Vec<MapSpec>,
    (path, format): (PathBuf, Format),
) -> Result<RecordingSpec, CliError> {
    if args.only_command && args.command.is_empty() && !args.print_spec {
        return Err(CliError::Usage("-F records only the command, but there is no command".to_owned()));
    }
    let mut scope = ScopeSpec {
        pids: args.pids.clone(),
        only_command: args.only_command,
        children: args.children,
        cpus: args.cpu_mask.as_deref().map(cpus).transpose()?,
        own_threads: args.with_self,
        ..ScopeSpec::default()
    };
    args.scope.put_into(&mut scope);
    let spec = RecordingSpec {
        channels,
        maps,
        scope,
        limits: LimitSpec {
            duration_ns: args.duration,
            max_lost: args.max_loss,
            start_on: args.edges.start_on.as_ref().map(When::spec),
            stop_on: args.edges.stop_on.as_ref().map(When::spec),
        },
        rotation: args.rotate.spec(),
        file: FileSpec {
            path,
            format: format.into(),
            live_ns: live::of_viewers(args),
            compression: args.compression,
            clock: args.clock,
            date: args.date,
            all_formats: args.all_formats,
            kallsyms: args.kallsyms.into(),
            proc_map: args.proc_map,
        },
        ..RecordingSpec::default()
    };
    spec.check().map_err(|problem| in_options(&problem))?;
    Ok(spec)
}

/// What viewers read is no trace.dat.
fn format(args: &RecordArgs, matches: &ArgMatches) -> Format {
    match args.trace.format {
        Format::Dat if live::of_viewers(args).is_some() && !was_given(matches, "trace_format") => {
            Format::Lttng
        }
        chosen => chosen,
    }
}

/// What needs a directory has a name of its own for it.
fn output(args: &RecordArgs, matches: &ArgMatches) -> PathBuf {
    match format(args, matches) {
        // It is streamed, as to standard output.
        _ if args.net.is_wanted() => STREAMED.into(),
        _ if was_given(matches, "output") => args.output.clone(),
        Format::Lttng | Format::Ctf | Format::Ctf2 => trace::DIRECTORY.into(),
        Format::Dat if args.rotate.spec().is_some() => rotation::DIRECTORY.into(),
        Format::Dat => args.output.clone(),
    }
}

fn was_given(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

fn check_beside_spec(matches: &ArgMatches) -> Result<(), CliError> {
    let given = |id: &&clap::Id| was_given(matches, id.as_str()) && !BESIDE_SPEC.contains(&id.as_str());
    let Some(id) = matches.ids().find(given) else { return Ok(()) };
    Err(CliError::Usage(format!(
        "--spec FILE says what is recorded, so {} cannot be added; change the file, or print a new one with --print-spec \
         (beside --spec there can be -q, -o, -N, -V, --duration and COMMAND)",
        option_name(id.as_str())
    )))
}

/// How the option of an id is written.
fn option_name(id: &str) -> String {
    let command = <RecordArgs as clap::Args>::augment_args(clap::Command::new("record"));
    let argument = command.get_arguments().find(|argument| argument.get_id() == id);
    match argument.map(|argument| (argument.get_long(), argument.get_short())) {
        Some((Some(long), _)) => format!("--{long}"),
        Some((None, Some(short))) => format!("-{short}"),
        _ => id.to_owned(),
    }
}

/// The command's own options are left alone, so that a misspelt one of ours looks like a command.
pub(crate) fn check_command(args: &RecordArgs) -> Result<(), CliError> {
    let Some(option) =
        args.command.first().and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
    else {
        return Ok(());
    };
    let instead = substitutes::of("record", option)
        .map_or_else(|| "see `tracer-agent record --help`".to_owned(), |text| format!("instead: {text}"));
    Err(CliError::Usage(format!(
        "there is no option {option}; {instead} (a command of that name is run as ./{option})"
    )))
}

/// What a specification of options is refused for, in their words.
fn in_options(problem: &Problem) -> CliError {
    let text = match problem.at {
        Field::Scope("children") => {
            "-c follows the children of -P or -F; without one of them everything is recorded anyway"
        }
        Field::OfChannel { name: "name", .. } if problem.why == why::SAME_NAME => {
            "two -B have the same name; what belongs to one buffer stands behind one -B"
        }
        Field::OfChannel { name: "name", .. } => {
            "-B: the name of a buffer has 200 bytes at most, no slash, no control character, and no blank at its ends"
        }
        Field::OfChannel { name: "ring_bytes", .. } => {
            "-b 0 leaves no room for events; the smallest ring is -b 8"
        }
        Field::OfChannel { name: "rules", .. } if problem.why == why::ALL_EXCLUDE => {
            "-v precedes every -e of a buffer, so no event of it is left to record"
        }
        Field::OfChannel { name: "switch_ns", .. } => {
            "--switch-timer would close pages without a pause; use 1ms or more, or off"
        }
        Field::OfChannel { name: "poll_ns", .. } => {
            "-s 0 would poll the rings without a pause; use 1 or more"
        }
        Field::Rotation("size_bytes") => "--rotate-size needs room for two pages; use 8 (KB) or more",
        Field::Rotation("period_ns") => "--rotate-time would make files without a pause; use 10ms or more",
        Field::Rotation("keep") if problem.why == why::NOTHING_CLOSES => {
            "--keep says how many files are kept; --rotate-size or --rotate-time says when one is closed"
        }
        Field::Rotation(_) => "--keep 0 would keep no file; use 1 or more",
        Field::OfChannel { name: "overwrite", .. } if problem.why == why::NOT_ROTATED => {
            "--overwrite stores nothing before the end, so there is nothing to rotate; use only one of them"
        }
        Field::OfChannel { name: "snapshot", .. } if problem.why == why::NO_SNAPSHOT => {
            "--snapshot-limit 0 takes no snapshot; use 1 or more"
        }
        Field::OfChannel { name: "snapshot", .. } => {
            "--snapshot-when is for a recording with --overwrite; others store all their events anyway"
        }
        Field::OfChannel { name: "keep_bytes", .. } if problem.why == why::KEPT_BY_ROTATION => {
            "-m keeps the newest data of one file; with --rotate-size and --rotate-time use --keep"
        }
        Field::OfChannel { name: "keep_bytes", .. } => {
            "-m keeps two halves of at least 64 KB for each CPU; use 128 or more"
        }
        Field::OfChannel { name: "overwrite", .. } if problem.why == why::NO_LIVE_OVERWRITE => {
            "--overwrite has its events in memory until the end, so that --live has nothing to show"
        }
        Field::File("live_ns") => {
            "--live shows one analysis (--for NAME), or lets viewers read a trace of --format lttng, ctf or ctf2"
        }
        Field::OfChannel { name: "overwrite", .. } => {
            "--overwrite keeps the newest -b KB in memory, -m the newest KB on disk: use one of them"
        }
        Field::OfChannel { .. } if problem.why == why::NO_STREAMS => {
            "--packet-size, --tracefile-size and --tracefile-count are for the streams of --format lttng, ctf or ctf2"
        }
        Field::OfChannel { name: "packet_bytes", .. } => {
            "--packet-size is a multiple of 4 KB, and less than 4 GB"
        }
        Field::OfChannel { name: "tracefile_bytes", .. } => {
            "--tracefile-size has room for one packet at least; use more, or a smaller --packet-size"
        }
        Field::OfChannel { name: "tracefile_count", .. } if problem.why == why::NO_FILE => {
            "--tracefile-count 0 would keep no file; use 1 or more"
        }
        Field::OfChannel { name: "tracefile_count", .. } => {
            "--tracefile-count says how many files are kept; --tracefile-size says how large one becomes"
        }
        Field::File("path") if problem.why == why::NO_PIPE_OF_TRACE => {
            "a trace is a directory and cannot be written to a pipe; use -o DIRECTORY"
        }
        Field::File("path") => {
            "--rotate-size and --rotate-time make several files, which cannot be written to a pipe; use -o DIRECTORY"
        }
        _ => return CliError::Usage(problem.to_string()),
    };
    CliError::Usage(text.to_owned())
}

/// The rules in the order of the command line, each with its index there: every -e after the first -v of its
/// buffer excludes.
pub(crate) fn rules(args: &RecordArgs, matches: &ArgMatches) -> Result<Vec<(usize, RuleSpec)>, CliError> {
    let mut indexed: Vec<(usize, RuleSpec)> = Vec::new();
    for (selector, index) in args.events.iter().cloned().zip(indices(matches, "events")) {
        let from = start_of_buffer(matches, index);
        let excludes = indices(matches, "exclude").any(|negates| (from..index).contains(&negates));
        let what = if excludes { What::Exclude(selector) } else { What::Events(selector) };
        indexed.push((index, RuleSpec::new(what)));
    }
    for (topic, index) in args.topics.iter().zip(indices(matches, "topics")) {
        for need in topic.needs() {
            for event in need.records {
                let what = What::Events(event.parse()?);
                let (optional, every_thread) = (!need.is_required, need.of_every_thread);
                indexed.push((index, RuleSpec { optional, every_thread, ..RuleSpec::new(what) }));
            }
        }
    }
    if !indexed.is_empty() && indexed.iter().all(|(_, rule)| matches!(rule.what, What::Exclude(_))) {
        return Err(CliError::Usage("-v precedes every -e, so no event is left to record".to_owned()));
    }
    let graphs: BTreeSet<usize> =
        indices(matches, "function_graph").map(|index| start_of_buffer(matches, index)).collect();
    if graphs.len() > 1 {
        return Err(CliError::Usage(
            "all --function-graph together are one graph, which is recorded into one buffer: put them behind one -B"
                .to_owned(),
        ));
    }
    indexed.extend(
        args.probes
            .selections(matches)
            .into_iter()
            .map(|(index, what)| (index, RuleSpec { force: args.probes.force, ..RuleSpec::new(what) })),
    );
    if indexed.is_empty() && args.maps.is_empty() {
        return Err(CliError::Usage(
            "no event to record: name one with -e, such as -e sched:sched_switch; `tracer-agent list` shows all of them"
                .to_owned(),
        ));
    }
    indexed.sort_by_key(|(index, _)| *index);
    args.wanted.put_into(&mut indexed, matches)?;
    Ok(indexed)
}

/// The CPUs of -M.
fn cpus(mask: &str) -> Result<CpuSet, CliError> {
    let known = Cpus::read().map_err(CliError::kernel)?;
    let wanted = CpuSet::parse_argument(mask, &known.possible)
        .map_err(|error| CliError::Usage(format!("-M {mask}: {error}{}", mask_hint(mask))))?;
    let is_there = |cpu| known.present.contains(cpu) || known.online.contains(cpu);
    if !wanted.iter().any(is_there) {
        return Err(CliError::Usage(format!(
            "-M {mask} has no CPU that is present; present are {}, online {}{}",
            known.present,
            known.online,
            mask_hint(mask)
        )));
    }
    Ok(wanted)
}

/// What a number means that may have been meant as a CPU.
fn mask_hint(mask: &str) -> String {
    match CpuSet::parse_hex(mask) {
        // Nobody takes a longer one for the number of a CPU.
        Ok(cpus) if mask.len() <= 4 && mask.bytes().all(|byte| byte.is_ascii_digit()) => {
            let of = if cpus.is_empty() { "no CPU".to_owned() } else { format!("CPU {cpus}") };
            format!("; {mask} is the hexadecimal mask of {of}: for CPU {mask} write {mask}-{mask}")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    /// Every option, with something to say.
    const OPTIONS: [&[&str]; 56] = [
        &["--for", "irq"],
        &["--for", "irq", "--live"],
        &["-e", "irq"],
        &["-v", "-e", "sched_wakeup"],
        &["-i"],
        &["-f", "next_pid == 1"],
        &["--sample", "1/10"],
        &["--rate", "5k/s"],
        &["--rate", "5k/s", "--rate-by", "cgroup"],
        &["--context", "uid,perf:cpu:cycles"],
        &["--strings", "9"],
        &["--lane", "fast"],
        &["--kprobe", "vfs_read"],
        &["--kretprobe", "vfs_read $retval"],
        &["--fentry", "vfs_read count"],
        &["--fexit", "vfs_read"],
        &["--function", "vfs_*"],
        &["--function-graph", "vfs_*"],
        &["--function-graph", "a", "--max-graph-depth", "3"],
        &["--function-graph", "a", "--graph-filter", "b"],
        &["--function-graph", "a", "--graph-hooks", "kprobes"],
        &["--uprobe", "libc.so.6:malloc"],
        &["--uretprobe", "libc.so.6:malloc"],
        &["--usdt", "libc.so.6:libc:*"],
        &["-T"],
        &["--kernel-stack=sched:*"],
        &["--user-stack"],
        &["-P", "1"],
        &["-P", "1", "-c"],
        &["-F", "true"],
        &["--comm", "rust*"],
        &["--uid", "7"],
        &["--gid", "7"],
        &["--vpid", "7"],
        &["--vuid", "7"],
        &["--vgid", "7"],
        &["--cgroup", "/a"],
        &["--container", "b"],
        &["--exclude-pid", "1"],
        &["--exclude-comm", "c"],
        &["--exclude-uid", "8"],
        &["--exclude-gid", "8"],
        &["--exclude-cgroup", "/d"],
        &["-M", "0-0"],
        &["--self"],
        &["-b", "1M"],
        &["-B", "x", "-e", "irq"],
        &["-T", "-B", "x", "-b", "8M", "-T", "-e", "irq", "-B", "y", "--overwrite", "-e", "sched"],
        &["--overwrite"],
        &["-s", "7"],
        &["--switch-timer", "50ms"],
        &["-o", "other.dat"],
        &["-m", "128"],
        &["--compression", "zstd:3"],
        &["-C", "boot"],
        &["--kallsyms", "full"],
    ];
    const MORE: [&[&str]; 26] = [
        &["--uretprobe", "libc.so.6:malloc", "--force"],
        &["--live=2s", "--live-bind", "127.0.0.1:0"],
        &["-N", "collector:12345", "-t"],
        &["-V", "2:12345"],
        &["--count", "sched_switch by next_pid"],
        &["--count", "sum(len) of net:net_dev_xmit: len > 9 by name", "--max-keys", "9"],
        &["--time", "lhist(0,9,3) of sched_waking -> sched_switch key pid=next_pid by next_comm"],
        &["--start-on", "sched_process_exec"],
        &["--stop-on", "irq:softirq_entry: vec == 3"],
        &["--date"],
        &["-a"],
        &["--proc-map"],
        &["--duration", "1.5s"],
        &["--max-loss", "9"],
        &["--rotate-size", "1M"],
        &["--rotate-time", "10s", "--keep", "3"],
        &["--rotate-time", "10s", "-o", "trace.dat"],
        &["--overwrite", "--snapshot-when", "irq:softirq_entry: vec == 3"],
        &["--overwrite", "--snapshot-when", "sched_switch", "--snapshot-delay", "50ms"],
        &["--overwrite", "--snapshot-when", "sched_switch", "--snapshot-limit", "2"],
        &["--format", "lttng"],
        &["--format", "ctf", "--packet-size", "64K"],
        &["--format", "ctf2", "--rotate-time", "1s"],
        &["--format", "lttng", "--tracefile-size", "2M", "--tracefile-count", "3"],
        &["--format", "lttng", "--rotate-time", "1s"],
        &["--format", "lttng", "-B", "x", "--packet-size", "8K", "-e", "irq"],
    ];
    /// What is the default, or says nothing about the recording.
    const SAY_NOTHING: [&str; 9] =
        ["quiet", "command", "no_self", "spec", "debug_programs", "print_spec", "interval", "json", "mode"];

    fn command() -> Command {
        RecordArgs::augment_args(Command::new("record"))
    }

    fn spec(args: &[&str]) -> (RecordingSpec, ArgMatches) {
        let line = ["record", "-e", "sched"].iter().chain(args);
        let matches = command().get_matches_from(line);
        let args = RecordArgs::from_arg_matches(&matches).unwrap();
        (make(&args, &matches).unwrap(), matches)
    }

    #[test]
    fn every_option_is_part_of_the_specification() {
        let (plain, _) = spec(&[]);
        let mut seen = BTreeSet::new();
        for args in OPTIONS.iter().chain(&MORE) {
            let (spec, matches) = spec(args);
            assert_ne!(spec, plain, "{args:?}");
            let json = spec.to_json().unwrap();
            assert_eq!(RecordingSpec::from_json(json.as_bytes()).unwrap(), spec, "{args:?}: {json}");
            let given = matches.ids().filter(|id| was_given(&matches, id.as_str()));
            seen.extend(given.map(|id| id.as_str().to_owned()));
        }
        let options = command();
        let options = options.get_arguments().map(|option| option.get_id().as_str());
        let missing: Vec<&str> =
            options.filter(|id| !seen.contains(*id) && !SAY_NOTHING.contains(id)).collect();
        assert!(missing.is_empty(), "not tried: {missing:?}");
    }

    #[test]
    fn what_is_wanted_of_a_graph_is_refused_wherever_its_options_stand() {
        let args = ["--function-graph", "a", "-f", "pid == 1", "--function-graph", "b"];
        let matches = command().get_matches_from(["record", "-e", "sched"].iter().chain(&args));
        let args = RecordArgs::from_arg_matches(&matches).unwrap();
        let refused = make(&args, &matches).unwrap_err().to_string();
        assert!(refused.contains("not to the records of a function tracer"), "{refused}");
    }

    #[test]
    fn what_is_excluded_is_so_from_the_first_v_of_its_buffer_on() {
        let (spec, _) = spec(&["-v", "-e", "a", "-v", "-e", "b", "-B", "x", "-e", "c", "-v", "-e", "d"]);
        let kinds = |index: usize| {
            let rules = spec.channels[index].rules.iter();
            rules.map(|rule| (rule.what.kind(), rule.what.text())).collect::<Vec<_>>()
        };
        let rule = |kind, text: &str| (kind, text.to_owned());
        assert_eq!(kinds(0), [rule("events", "sched"), rule("exclude", "a"), rule("exclude", "b")]);
        assert_eq!(kinds(1), [rule("events", "c"), rule("exclude", "d")]);
    }

    #[test]
    fn a_buffer_has_options_of_its_own() {
        let (spec, _) = spec(&[
            "-b",
            "8M",
            "-T",
            "-s",
            "5",
            "-B",
            "x",
            "-e",
            "a",
            "--overwrite",
            "--snapshot-when",
            "a",
            "-B",
            "y",
            "--switch-timer",
            "50ms",
            "-m",
            "1M",
            "--kernel-stack=b,c",
            "-e",
            "b",
        ]);
        let [top, x, y] = &spec.channels[..] else { panic!("{spec:?}") };
        assert_eq!((top.ring_bytes, top.kernel_stacks.len(), top.poll_ns), (8 << 20, 1, Some(5000)));
        assert_eq!((x.ring_bytes, x.overwrite, x.snapshot.is_some()), (spec::RING_BYTES, true, true));
        assert_eq!((x.kernel_stacks.len(), x.poll_ns, x.keep_bytes), (0, None, None));
        assert_eq!((y.switch_ns, y.keep_bytes, y.kernel_stacks.len()), (50_000_000, Some(1 << 20), 2));
        assert_eq!((y.overwrite, y.snapshot.is_none(), top.snapshot.is_none()), (false, true, true));
    }

    #[test]
    fn rules_are_in_the_order_of_the_options() {
        let (spec, _) = spec(&[
            "-f",
            "a",
            "--kprobe",
            "b",
            "-f",
            "c",
            "-f",
            "d",
            "-e",
            "irq",
            "--rate",
            "5",
            "--function-graph",
            "x",
            "-v",
            "-e",
            "e",
        ]);
        let rules: Vec<(String, Option<&str>)> = spec.channels[0]
            .rules
            .iter()
            .map(|rule| (format!("{} {}", rule.what.kind(), rule.what.text()), rule.filter.as_deref()))
            .collect();
        let expected = [
            ("events sched", Some("a")),
            ("kprobe b", Some("(c) && (d)")),
            ("events irq", None),
            ("function_graph x", None),
            ("exclude e", None),
        ];
        assert_eq!(rules, expected.map(|(rule, filter)| (rule.to_owned(), filter)));
        assert_eq!(spec.channels[0].rules[2].rate, Some(5));
    }
}
