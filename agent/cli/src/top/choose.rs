//! Which events are counted: those of the options, or a usual selection.

use std::collections::BTreeMap;

use clap::ArgMatches;

use super::super::{
    CliError,
    record::{RecordArgs, spec},
};
use ::spec::{EventName, EventSelector};
use ::spec::{MAPS_MAX, MapSpec, RecordingSpec, RuleSpec, What};
use kernel::cpus::Cpus;
use kernel::events::Catalogue;
use kernel::tracefs::Tracefs;

/// What is counted where nobody has named an event, as far as the kernel has it.
const USUAL: [&str; 20] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_migrate_task",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "raw_syscalls:sys_enter",
    "signal:signal_deliver",
    "exceptions:page_fault_user",
    "irq:irq_handler_entry",
    "irq:softirq_entry",
    "timer:hrtimer_expire_entry",
    "workqueue:workqueue_execute_start",
    "kmem:mm_page_alloc",
    "block:block_rq_issue",
    "block:block_rq_complete",
    "net:net_dev_queue",
    "net:netif_receive_skb",
    "tcp:tcp_retransmit_skb",
    "power:cpu_idle",
];

/// What keys are made of.
const KEYS: [&str; 2] = ["$pid", "$comm"];

/// Memory for the counts of all maps together.
const MEMORY: u64 = 64 << 20;
/// Bytes of a key's counts on a CPU.
const ENTRY: u64 = 32;
/// How many keys a map has.
const KEYS_MIN: u64 = 512;
const KEYS_MAX: u64 = 8192;

/// The maps that count what the options say.
pub(super) fn spec(args: &RecordArgs, matches: &ArgMatches) -> Result<RecordingSpec, CliError> {
    spec::check_command(args)?;
    let is_usual = args.events.is_empty() && args.probes.selections(matches).is_empty();
    let rules = if is_usual {
        usual()?
    } else {
        spec::rules(args, matches)?.into_iter().map(|(_, rule)| rule).collect()
    };
    let catalogue = Catalogue::read(&Tracefs::open()?)?;
    let counted = counted(&rules, &catalogue, is_usual || args.ignore_unknown)?;
    let cpus = Cpus::read().map_err(CliError::kernel)?.possible.highest().map_or(1, |highest| highest + 1);
    let room = MEMORY / (ENTRY * u64::from(cpus) * counted.len().max(1) as u64);
    let keys = room.clamp(KEYS_MIN, KEYS_MAX) as u32;
    let maps = counted.into_iter().map(|(name, rule)| map(&name, rule, keys)).collect();
    spec::of_parts(args, Vec::new(), maps, (args.output.clone(), args.trace.format))
}

fn usual() -> Result<Vec<RuleSpec>, CliError> {
    let rule = |event: &&str| {
        let selector: EventSelector = event.parse::<EventSelector>()?;
        Ok(RuleSpec::new(What::Events(selector)))
    };
    USUAL.iter().map(rule).collect()
}

fn map(name: &str, event: RuleSpec, keys: u32) -> MapSpec {
    MapSpec {
        name: format!("{name} by {}", KEYS.join(",")),
        event,
        from: None,
        pair: Vec::new(),
        by: KEYS.map(str::to_owned).to_vec(),
        function: ::spec::FunctionSpec::Count,
        field: None,
        max_keys: Some(keys),
    }
}

/// Each event that the rules select, with what they say of it.
fn counted(
    rules: &[RuleSpec],
    catalogue: &Catalogue,
    may_be_missing: bool,
) -> Result<Vec<(String, RuleSpec)>, CliError> {
    let excluded = |name: &EventName| {
        rules.iter().any(|rule| matches!(&rule.what, What::Exclude(selector) if selector.matches(name)))
    };
    let mut counted: BTreeMap<String, RuleSpec> = BTreeMap::new();
    let mut probes = Vec::new();
    for rule in rules {
        let selector = match &rule.what {
            What::Events(selector) => selector,
            What::Exclude(_) => continue,
            What::Kprobe(text)
            | What::Kretprobe(text)
            | What::Uprobe(text)
            | What::Uretprobe(text)
            | What::Usdt(text) => {
                probes.push((text.clone(), rule.clone()));
                continue;
            }
            other => return Err(CliError::Usage(format!("top cannot count {}", other.kind()))),
        };
        let mut is_there = false;
        for entry in catalogue.matching(selector).filter(|entry| entry.refusal_of(selector).is_none()) {
            is_there = true;
            if excluded(&entry.name) {
                continue;
            }
            let name = entry.name.to_string();
            let what = What::Events(name.parse::<EventSelector>()?);
            let rule = RuleSpec { what, ..rule.clone() };
            if counted.get(&name).is_some_and(|before| *before != rule) {
                return Err(CliError::Usage(format!(
                    "{name} is selected by more than one -e, with different filters; top counts it once"
                )));
            }
            counted.insert(name, rule);
        }
        if !is_there && !may_be_missing {
            let rule = kernel::events::Rule::include(selector.clone());
            catalogue.select(&[rule], false).map_err(CliError::Select)?;
            return Err(CliError::Usage(format!("this kernel has no event {selector} that can be counted")));
        }
    }
    let counted: Vec<_> = counted.into_iter().chain(probes).collect();
    match counted.len() {
        0 => Err(CliError::usage("no event to count is left; `tracer-agent list` shows all of them")),
        1..=MAPS_MAX => Ok(counted),
        more => Err(CliError::Usage(format!(
            "top counts {MAPS_MAX} events at most, and these are {more}; name fewer, or one that stands for many, as \
             raw_syscalls:sys_enter does for all system calls"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        let mut names: Vec<EventName> =
            ["sched_switch", "sched_waking", "sched_stat"].map(|name| EventName::new("sched", name)).to_vec();
        names.extend((0..70).map(|number| EventName::new("syscalls", &format!("sys_enter_{number}"))));
        names.push(EventName::new("kprobes", "made"));
        Catalogue::new(names, "", "", "")
    }

    fn rule(selector: &str) -> RuleSpec {
        RuleSpec::new(What::Events(selector.parse().unwrap()))
    }

    #[test]
    fn patterns_become_events_one_by_one() {
        let rules = [
            RuleSpec { filter: Some("pid > 1".to_owned()), ..rule("sched:*") },
            RuleSpec::new(What::Exclude("sched_stat".parse().unwrap())),
            RuleSpec::new(What::Uprobe("libc.so.6:malloc".to_owned())),
        ];
        let counted = counted(&rules, &catalogue(), false).unwrap();
        let names: Vec<&str> = counted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["sched:sched_switch", "sched:sched_waking", "libc.so.6:malloc"]);
        assert_eq!(counted[1].1.filter.as_deref(), Some("pid > 1"));
    }

    #[test]
    fn what_cannot_be_counted_is_told() {
        let error = |rules: &[RuleSpec]| counted(rules, &catalogue(), false).unwrap_err().to_string();
        assert!(error(&[rule("syscalls:*")]).contains("64 events at most, and these are 70"));
        assert!(error(&[rule("nothing_like_it")]).contains("nothing_like_it"));
        assert!(error(&[rule("kprobes:made")]).contains("kprobes"));
        let filtered = RuleSpec { filter: Some("pid > 1".to_owned()), ..rule("sched_switch") };
        assert!(error(&[rule("sched:*"), filtered]).contains("different filters"));
        let missing = counted(&[rule("none"), rule("sched_switch")], &catalogue(), true).unwrap();
        assert_eq!(missing.len(), 1);
    }
}
