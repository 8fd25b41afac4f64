//! Options of `record` that say what is wanted: of the events, by filters, samples and rates; of threads, by
//! what they are.

use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgMatches, Args};

use super::super::CliError;
use ftrace_event::filter::{Dialect, Filter};
use spec::Attribute;
use spec::Context;
use spec::{RateBy, RuleSpec, ScopeSpec, TraitSpec, What};
use stdx::input::glob;

/// What is wanted of the events.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters (each applies to the -e, --for or probe before it)")]
pub struct WantedArgs {
    /// Record only events that match FILTER; multiple filters are ANDed
    #[arg(short = 'f', long = "filter", value_name = "FILTER")]
    pub filters: Vec<String>,

    /// Record every Nth event on each CPU: 1/N
    #[arg(long = "sample", value_name = "1/N")]
    pub samples: Vec<Sample>,

    /// Record at most N of each event per second: 500/s, 10k/s
    #[arg(long = "rate", value_name = "N/s")]
    pub rates: Vec<Rate>,

    /// Let each control group (version 2) have the --rate for itself, so that one with too many events takes
    /// no room from the others; by default all share it
    #[arg(long = "rate-by", value_name = "WHO")]
    pub rates_by: Vec<RateByArg>,

    /// Add facts about thread and CPU to the events: comm, vpid, uid, container, mnt_ns, callstack-kernel,
    /// perf:cpu:COUNTER and others, a list; an unknown name shows all
    #[arg(long = "context", value_name = "LIST")]
    pub contexts: Vec<ContextList>,
}

/// Which threads are recorded. Options of different kinds are ANDed, those of the same kind are ORed.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tasks and CPUs")]
pub struct ScopeArgs {
    /// Record only threads whose name matches GLOB: *, ?, [a-z], [!a-z]; a backslash takes the next character
    /// literally: `\[kworker]`; \xHH is the byte HH. Repeatable
    #[arg(long = "comm", value_name = "GLOB", value_parser = OsStringValueParser::new().map(glob::argument))]
    pub comms: Vec<String>,

    /// Record only threads of this user, a number or a name of /etc/passwd; repeatable, or a list: 0,www-data
    #[arg(long = "uid", value_name = "USER", value_delimiter = ',')]
    pub uids: Vec<String>,

    /// Record only threads of this group, a number or a name of /etc/group; repeatable, or a list
    #[arg(long = "gid", value_name = "GROUP", value_delimiter = ',')]
    pub gids: Vec<String>,

    /// Record only processes with this number in their own pid namespace; repeatable, or a list
    #[arg(long = "vpid", value_name = "PID", value_delimiter = ',')]
    pub vpids: Vec<String>,

    /// Record only threads of the user that is this one in their own user namespace; repeatable, or a list
    #[arg(long = "vuid", value_name = "USER", value_delimiter = ',')]
    pub vuids: Vec<String>,

    /// Record only threads of the group that is this one in their own user namespace; repeatable, or a list
    #[arg(long = "vgid", value_name = "GROUP", value_delimiter = ',')]
    pub vgids: Vec<String>,

    /// Record only threads in this control group (version 2) or below it; repeatable
    #[arg(long = "cgroup", value_name = "PATH")]
    pub cgroups: Vec<String>,

    /// Record only this container of docker, podman, containerd or LXC, machine or systemd unit; repeatable
    #[arg(long = "container", value_name = "ID|NAME")]
    pub containers: Vec<String>,

    /// Do not record this process; repeatable, or a list: 12,34
    #[arg(long = "exclude-pid", value_name = "PID", value_delimiter = ',')]
    pub exclude_pids: Vec<String>,

    /// Do not record threads whose name matches GLOB
    #[arg(long = "exclude-comm", value_name = "GLOB", value_parser = OsStringValueParser::new().map(glob::argument))]
    pub exclude_comms: Vec<String>,

    /// Do not record threads of this user; repeatable, or a list
    #[arg(long = "exclude-uid", value_name = "USER", value_delimiter = ',')]
    pub exclude_uids: Vec<String>,

    /// Do not record threads of this group; repeatable, or a list
    #[arg(long = "exclude-gid", value_name = "GROUP", value_delimiter = ',')]
    pub exclude_gids: Vec<String>,

    /// Do not record threads in this control group or below it
    #[arg(long = "exclude-cgroup", value_name = "PATH")]
    pub exclude_cgroups: Vec<String>,
}

impl ScopeArgs {
    /// Puts them into a scope.
    pub(super) fn put_into(&self, scope: &mut ScopeSpec) {
        let Self {
            comms,
            vpids,
            uids,
            vuids,
            gids,
            vgids,
            cgroups,
            containers,
            exclude_pids,
            exclude_comms,
            exclude_uids,
            exclude_gids,
            exclude_cgroups,
        } = self;
        scope.track = traits([
            (Attribute::Vpid, vpids),
            (Attribute::Uid, uids),
            (Attribute::Vuid, vuids),
            (Attribute::Gid, gids),
            (Attribute::Vgid, vgids),
            (Attribute::Cgroup, cgroups),
            (Attribute::Comm, comms),
        ]);
        scope.containers.clone_from(containers);
        scope.exclude = traits([
            (Attribute::Pid, exclude_pids),
            (Attribute::Uid, exclude_uids),
            (Attribute::Gid, exclude_gids),
            (Attribute::Cgroup, exclude_cgroups),
            (Attribute::Comm, exclude_comms),
        ]);
    }
}

/// Those of the options that are given.
fn traits<const N: usize>(options: [(Attribute, &Vec<String>); N]) -> TraitSpec {
    let given = options.into_iter().filter(|(_, values)| !values.is_empty());
    given.map(|(attribute, values)| (attribute, values.clone())).collect()
}

/// Contexts that events carry.
#[derive(Clone, Debug)]
pub struct ContextList(Vec<Context>);

impl FromStr for ContextList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// One of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u32);

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of = text.trim().strip_prefix("1/").and_then(|of| of.trim().parse().ok()).filter(|of| *of != 0);
        of.map(Self).ok_or_else(|| "expected 1/N, such as 1/100 for every hundredth event".to_owned())
    }
}

/// So many in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix("/s").unwrap_or(text.trim());
        let (digits, scale) = match number.as_bytes().last() {
            Some(b'k' | b'K') => (&number[..number.len() - 1], 1000),
            Some(b'M') => (&number[..number.len() - 1], 1_000_000),
            _ => (number, 1),
        };
        let rate = digits.parse::<u32>().ok().and_then(|digits| digits.checked_mul(scale));
        rate.filter(|rate| *rate != 0)
            .map(Self)
            .ok_or_else(|| "expected a number of events per second, such as 500/s, 10k/s or 2M/s".to_owned())
    }
}

/// Who shares the limit of a rate.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateByArg {
    /// Everyone: it is the event's.
    Event,
    /// The threads of a control group: each group has its own.
    Cgroup,
}

impl From<RateByArg> for RateBy {
    fn from(by: RateByArg) -> Self {
        match by {
            RateByArg::Event => Self::Event,
            RateByArg::Cgroup => Self::Cgroup,
        }
    }
}

impl WantedArgs {
    /// Puts what is wanted into the rule before each of these options. The rules have their indices on the
    /// command line, and are in that order.
    pub(super) fn put_into(
        &self,
        rules: &mut [(usize, RuleSpec)],
        matches: &ArgMatches,
    ) -> Result<(), CliError> {
        let Self { filters, samples, rates, rates_by, contexts } = self;
        for (text, index) in filters.iter().zip(indices(matches, "filters")) {
            // By itself, so that a mistake is shown where it was made.
            Filter::parse_expression(text, Dialect::Ftrace)
                .map_err(|error| CliError::Usage(format!("-f: {error}")))?;
            for rule in rules_before(rules, matches, ("-f", index))? {
                rule.filter = Some(match &rule.filter {
                    None => text.clone(),
                    Some(other) => format!("({other}) && ({text})"),
                });
            }
        }
        for (Sample(of), index) in samples.iter().zip(indices(matches, "samples")) {
            for rule in rules_before(rules, matches, ("--sample", index))? {
                rule.sample = Some(*of);
            }
        }
        for (Rate(rate), index) in rates.iter().zip(indices(matches, "rates")) {
            for rule in rules_before(rules, matches, ("--rate", index))? {
                rule.rate = Some(*rate);
            }
        }
        for (by, index) in rates_by.iter().zip(indices(matches, "rates_by")) {
            for rule in rules_before(rules, matches, ("--rate-by", index))? {
                if rule.rate.is_none() {
                    return Err(CliError::Usage(
                        "--rate-by says who shares the limit of a --rate of the same -e, --for or probe, and \
                         there is none"
                            .to_owned(),
                    ));
                }
                rule.rate_by = (*by).into();
            }
        }
        for (ContextList(contexts), index) in contexts.iter().zip(indices(matches, "contexts")) {
            for rule in rules_before(rules, matches, ("--context", index))? {
                rule.contexts.extend(contexts.iter().cloned());
            }
        }
        Ok(())
    }
}

fn of_a_tracer(option: &str) -> CliError {
    CliError::Usage(format!(
        "{option} applies to the events of an -e or of a probe, not to the records of a function tracer, which belong together"
    ))
}

/// The rules of the last option with events before an index of the command line; of a `--for` there are
/// several.
fn rules_before<'r>(
    rules: &'r mut [(usize, RuleSpec)],
    matches: &ArgMatches,
    (option, index): (&str, usize),
) -> Result<impl Iterator<Item = &'r mut RuleSpec>, CliError> {
    let from = start_of_buffer(matches, index);
    let found = rules.iter().rfind(|(at, _)| (from..index).contains(at));
    // Several of these options are one rule, which stands at the last of them.
    let graph = indices(matches, "function_graph").filter(|at| (from..index).contains(at)).last();
    let is_of_graph = graph > found.map(|(at, _)| *at);
    let (at, rule) = found.filter(|_| !is_of_graph).ok_or_else(|| {
        if is_of_graph {
            return of_a_tracer(option);
        }
        let of_buffer = if from == 0 { "" } else { " in its buffer (-B)" };
        CliError::Usage(format!(
            "{option} applies to the -e, --for or probe before it, and there is none before it{of_buffer}"
        ))
    })?;
    if rule.what.is_tracer() {
        return Err(of_a_tracer(option));
    }
    if let What::Exclude(selector) = &rule.what {
        return Err(CliError::Usage(format!(
            "{option} applies to the -e before it, but the events of -e {selector} are excluded by -v"
        )));
    }
    let at = *at;
    Ok(rules.iter_mut().filter(move |(other, _)| *other == at).map(|(_, rule)| rule))
}

/// Where an option stands on the command line, each time.
pub(super) fn indices<'m>(matches: &'m ArgMatches, option: &str) -> impl Iterator<Item = usize> + use<'m> {
    matches.indices_of(option).into_iter().flatten()
}

/// Where the options of the buffer begin that an option at this index belongs to.
pub(super) fn start_of_buffer(matches: &ArgMatches, index: usize) -> usize {
    indices(matches, "buffers").filter(|at| *at < index).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_any_bytes() {
        use clap::Parser as _;
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        use super::super::super::{Cli, Command};

        let parse = |words: &[&[u8]]| {
            let words = words.iter().map(|word| OsStr::from_bytes(word));
            Cli::try_parse_from([OsStr::new("tracer-agent")].into_iter().chain(words)).unwrap().command
        };
        let name = &b"caf\xe9*"[..];
        match parse(&[b"record", b"--comm", name, b"--exclude-comm", b"[\xff]", b"true"]) {
            Command::Record(args) => {
                let mut scope = ScopeSpec::default();
                args.scope.put_into(&mut scope);
                assert_eq!(scope.track[&Attribute::Comm], [r"caf\xe9*"]);
                assert_eq!(scope.exclude[&Attribute::Comm], [r"[\xff]"]);
            }
            other => panic!("{other:?}"),
        }
        match parse(&[b"analyze", b"sched", b"--comm", name, b"trace.dat"]) {
            Command::Analyze(args) => assert_eq!(args.comm, [r"caf\xe9*"]),
            other => panic!("{other:?}"),
        }
        match parse(&[b"report", b"--comm", b"a,\xe9", b"trace.dat"]) {
            Command::Report(args) => assert_eq!(args.comm, ["a", r"\xe9"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn samples_and_rates() {
        assert_eq!("1/100".parse(), Ok(Sample(100)));
        for bad in ["", "100", "2/3", "1/0", "1/-1", "1/x"] {
            assert!(bad.parse::<Sample>().is_err(), "{bad}");
        }
        for (text, rate) in [("500/s", 500), ("10k/s", 10_000), ("2M/s", 2_000_000), ("7", 7)] {
            assert_eq!(text.parse(), Ok(Rate(rate)));
        }
        for bad in ["", "k", "0/s", "-1/s", "1/m", "1.5k/s", "9999999k/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
