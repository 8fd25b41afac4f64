//! Options of `record` that say what is wanted: of the events, by filters, samples and rates; of threads, by
//! what they are.

use std::{collections::BTreeMap, str::FromStr, sync::Arc};

use clap::{ArgMatches, Args};

use super::CliError;
use crate::{
    capture::EventRule,
    compile::{
        context::{Context, Counters},
        filter::Facts,
        scope::{Scope, Traits},
    },
    event::filter::{Dialect, Filter},
    kernel::cgroup::{Cgroup, CgroupError, Hierarchy},
};

/// What is wanted of the events.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters (each applies to the -e or probe before it)")]
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

    /// Add fields to the events: pid, tid, ppid, comm, cgroup, uid, prio, perf:cpu:COUNTER
    #[arg(long = "context", value_name = "LIST")]
    pub contexts: Vec<ContextList>,
}

/// Which threads are recorded. Options of different kinds are ANDed, those of the same kind are ORed.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tasks and CPUs")]
pub struct ScopeArgs {
    /// Record only threads whose name matches GLOB; repeatable
    #[arg(long = "comm", value_name = "GLOB")]
    pub comms: Vec<String>,

    /// Record only threads of this user, a number or a name of /etc/passwd; repeatable
    #[arg(long = "uid", value_name = "USER")]
    pub uids: Vec<User>,

    /// Record only threads in this control group (version 2) or below it; repeatable
    #[arg(long = "cgroup", value_name = "PATH")]
    pub cgroups: Vec<String>,

    /// Record only this container of docker, podman, containerd or LXC, machine or systemd unit; repeatable
    #[arg(long = "container", value_name = "ID|NAME")]
    pub containers: Vec<String>,

    /// Do not record this process; repeatable, or a list: 12,34
    #[arg(long = "exclude-pid", value_name = "PID", value_delimiter = ',')]
    pub exclude_pids: Vec<u32>,

    /// Do not record threads whose name matches GLOB
    #[arg(long = "exclude-comm", value_name = "GLOB")]
    pub exclude_comms: Vec<String>,

    /// Do not record threads of this user
    #[arg(long = "exclude-uid", value_name = "USER")]
    pub exclude_uids: Vec<User>,

    /// Do not record threads in this control group or below it
    #[arg(long = "exclude-cgroup", value_name = "PATH")]
    pub exclude_cgroups: Vec<String>,
}

/// A user's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(u32);

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(uid) = text.parse() {
            return Ok(Self(uid));
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut lines = users.lines().map(|line| line.split(':'));
        let found =
            lines.find_map(|mut fields| (fields.next() == Some(text)).then(|| fields.nth(1)).flatten());
        found
            .and_then(|uid| uid.parse().ok())
            .map(Self)
            .ok_or_else(|| format!("/etc/passwd has no user {text}; give the number"))
    }
}

impl ScopeArgs {
    /// Whether any of the options is given.
    pub(super) fn is_given(&self) -> bool {
        let texts =
            [&self.comms, &self.cgroups, &self.containers, &self.exclude_comms, &self.exclude_cgroups];
        let users = [&self.uids, &self.exclude_uids];
        texts.iter().any(|of| !of.is_empty())
            || users.iter().any(|of| !of.is_empty())
            || !self.exclude_pids.is_empty()
    }

    /// The scope; `None` if every thread is meant.
    pub(super) fn scope(&self) -> Result<Option<Scope>, CliError> {
        let uids = |users: &[User]| users.iter().map(|user| user.0).collect();
        let needs_groups =
            [&self.cgroups, &self.containers, &self.exclude_cgroups].iter().any(|of| !of.is_empty());
        let (mut only, mut except) = (Vec::new(), Vec::new());
        if needs_groups {
            let hierarchy = Hierarchy::find().map_err(CliError::kernel)?;
            only = find(&self.cgroups, "--cgroup", |path| hierarchy.group(path))?;
            only.extend(find(&self.containers, "--container", |name| hierarchy.container(name))?);
            except = find(&self.exclude_cgroups, "--exclude-cgroup", |path| hierarchy.group(path))?;
        }
        for pid in &self.exclude_pids {
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                return Err(CliError::Usage(format!("--exclude-pid {pid}: there is no such process")));
            }
        }
        let scope = Scope {
            only: Traits {
                comms: self.comms.clone(),
                uids: uids(&self.uids),
                cgroups: only,
                processes: Vec::new(),
            },
            except: Traits {
                comms: self.exclude_comms.clone(),
                uids: uids(&self.exclude_uids),
                cgroups: except,
                processes: self.exclude_pids.clone(),
            },
        };
        Ok((!scope.is_everything()).then_some(scope))
    }
}

/// The groups that options name.
fn find(
    texts: &[String],
    option: &str,
    group: impl Fn(&str) -> Result<Cgroup, CgroupError>,
) -> Result<Vec<Cgroup>, CliError> {
    let find = |text: &String| group(text).map_err(|error| CliError::Usage(format!("{option}: {error}")));
    texts.iter().map(find).collect()
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

/// Options whose events filters, samples and rates are for: clap's ids.
const SELECTING: [&str; 8] =
    ["events", "kprobe", "kretprobe", "fentry", "fexit", "uprobe", "uretprobe", "usdt"];
/// Options whose records belong together, as a tracer's do.
const WHOLE: [&str; 2] = ["function", "function_graph"];

/// What is wanted of the events that options select.
#[derive(Debug)]
pub(super) struct OptionRules(BTreeMap<&'static str, Vec<EventRule>>);

impl OptionRules {
    /// The rules of each time that `option` (an id) is there, in their order.
    pub(super) fn of(&self, option: &str) -> &[EventRule] {
        self.0.get(option).map_or(&[], Vec::as_slice)
    }

    /// Reads the options in the order of the command line.
    pub(super) fn read(args: &WantedArgs, matches: &ArgMatches) -> Result<Self, CliError> {
        let mut rules = Self(BTreeMap::new());
        // Where each is, and which of its kind; `None` for those that have no rules.
        let mut places: Vec<(usize, Option<(&'static str, usize)>)> = Vec::new();
        for option in SELECTING {
            let here = indices(matches, option).enumerate();
            places.extend(here.map(|(number, place)| (place, Some((option, number)))));
            rules.0.insert(option, vec![EventRule::default(); indices(matches, option).count()]);
        }
        for option in WHOLE {
            places.extend(indices(matches, option).map(|place| (place, None)));
        }
        places.sort_unstable();
        for (text, place) in args.filters.iter().zip(indices(matches, "filters")) {
            let rule = rules.before(&places, place, "-f")?;
            let parse = |text: &str| {
                Filter::parse_expression(text, Dialect::Ftrace)
                    .map_err(|error| CliError::Usage(format!("-f: {error}")))
            };
            let filter = parse(text)?;
            rule.filter = Some(match &rule.filter {
                None => filter,
                Some(other) => parse(&format!("({}) && ({text})", other.text()))?,
            });
        }
        for (Sample(of), place) in args.samples.iter().zip(indices(matches, "samples")) {
            rules.before(&places, place, "--sample")?.sample = Some(*of);
        }
        for (Rate(rate), place) in args.rates.iter().zip(indices(matches, "rates")) {
            rules.before(&places, place, "--rate")?.rate = Some(*rate);
        }
        for (ContextList(contexts), place) in args.contexts.iter().zip(indices(matches, "contexts")) {
            rules.before(&places, place, "--context")?.contexts.add(contexts);
        }
        rules.name_groups()?;
        Ok(rules)
    }

    /// Opens what contexts need, with the recording's counters.
    pub(super) fn open_contexts(&mut self, facts: &Facts, counters: &Arc<Counters>) -> Result<(), CliError> {
        for rule in self.0.values_mut().flatten() {
            rule.contexts
                .open(facts, counters)
                .map_err(|error| CliError::Kernel(format!("--context: {error}")))?;
        }
        Ok(())
    }

    /// Puts the numbers of control groups in the place of their paths.
    fn name_groups(&mut self) -> Result<(), CliError> {
        let mut hierarchy = None;
        let mut number = |path: &str| -> Result<u64, String> {
            let hierarchy = match &hierarchy {
                Some(found) => found,
                None => hierarchy.insert(Hierarchy::find().map_err(|error| error.to_string())?),
            };
            hierarchy.group(path).map(|group| group.id).map_err(|error| error.to_string())
        };
        for filter in self.0.values_mut().flatten().filter_map(|rule| rule.filter.as_mut()) {
            filter.name_groups(&mut number).map_err(|error| CliError::Usage(format!("-f: {error}")))?;
        }
        Ok(())
    }

    /// The rule of the last option before a place that selects events.
    fn before(
        &mut self,
        places: &[(usize, Option<(&'static str, usize)>)],
        place: usize,
        option: &str,
    ) -> Result<&mut EventRule, CliError> {
        let found = places.iter().rfind(|(event, _)| *event < place).map(|(_, rule)| *rule);
        if found == Some(None) {
            return Err(CliError::Usage(format!(
                "{option} applies to the events of an -e or of a probe, not to the records of a function tracer, which belong together"
            )));
        }
        let rule = found.flatten().and_then(|(of, number)| self.0.get_mut(of)?.get_mut(number));
        rule.ok_or_else(|| {
            CliError::Usage(format!(
                "{option} applies to the -e or probe before it, and there is none before it"
            ))
        })
    }
}

/// Where an option stands on the command line, each time.
fn indices<'m>(matches: &'m ArgMatches, option: &str) -> impl Iterator<Item = usize> + use<'m> {
    matches.indices_of(option).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

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
