//! Which events of this machine a rule means.

use std::sync::Arc;

use super::programs::Program;
use api::{Code, ControlError, Domain, EventRule, Instrumentation, SyscallPart, UserProbe};
use compile::dynamic::quoted;
use ctf_writer::lttng_name;
use kernel::events::Catalogue;
use spec::EventName;
use spec::{FilterLanguage, Known, RuleSpec, What};
use stdx::input::glob;

/// The system of system calls.
const SYSCALLS: &str = "syscalls";

/// What rules are about.
#[derive(Debug)]
pub(crate) struct World {
    /// The events of the kernel.
    pub catalogue: Catalogue,
    /// The programs and libraries that have markers.
    pub programs: Arc<Vec<Arc<Program>>>,
    /// The number of their state, which is another one when there are other markers.
    pub generation: u64,
}

/// What a rule of a recording is about: the kind, and a text. That of a program's marker has the program's
/// identity, as what leads to the program may change while it is recorded.
pub(crate) type Key = (&'static str, String);

/// The rules of a recording that have the events of an event rule, with what they are about.
///
/// Names of tracepoints are LTTng's (`irq_softirq_entry`), the kernel's (`softirq_entry`), or the kernel's
/// with their system (`irq:softirq_entry`); in the user domain, `PROVIDER:MARKER`. A rule of the user domain
/// may have no event yet: it waits for programs that will.
pub(crate) fn rules_of(
    world: &World,
    domain: Domain,
    rule: &EventRule,
) -> Result<Vec<(Key, RuleSpec)>, ControlError> {
    let EventRule { name, instrumentation, enabled: _, filter, exclusions, log_level: _ } = rule;
    let World { catalogue, programs, generation: _ } = world;
    let markers = || -> Vec<(Key, What, Known)> {
        let is_meant = |name: &str| !exclusions.iter().any(|pattern| matches(pattern, name));
        let of = |program: &Arc<Program>| {
            let path = program.path.display().to_string();
            let path = quoted(&path);
            let named = program.markers.iter().map(|(provider, marker)| format!("{provider}:{marker}"));
            let meant = named.filter(|marker| matches(name, marker) && is_meant(marker));
            let by_identity = |marker: String| {
                let what = What::Usdt(format!("{path}:{marker}"));
                let known = program.file.clone().map(Known::new).unwrap_or_default();
                ((what.kind(), format!("{:?}:{marker}", program.identity)), what, known)
            };
            meant.map(by_identity).collect::<Vec<_>>()
        };
        programs.iter().flat_map(of).collect()
    };
    let events = |wanted: &dyn Fn(&EventName) -> Option<String>| {
        let excluded = |name: &str| exclusions.iter().any(|pattern| matches(pattern, name));
        let recordable = catalogue.entries().iter().filter(|entry| entry.refusal.is_none());
        let all = recordable.filter(|entry| wanted(&entry.name).is_some_and(|name| !excluded(&name)));
        all.map(|entry| Ok(by_text(What::Events(entry.name.to_string().parse().map_err(refused)?))))
            .collect::<Result<Vec<_>, ControlError>>()
    };
    let whats: Vec<(Key, What, Known)> = match instrumentation {
        Instrumentation::Tracepoint if domain == Domain::User => markers(),
        Instrumentation::Tracepoint => events(&|event| {
            if event.system() == SYSCALLS {
                return None;
            }
            let names =
                [lttng_name(event.system(), event.name()), event.name().to_owned(), event.to_string()];
            // What makes other writes slower is recorded where it is named, and not by a pattern.
            let is_meant =
                |one: &String| if event.is_trace_marker() { one == name } else { matches(name, one) };
            names.into_iter().find(is_meant)
        })?,
        Instrumentation::Syscall(part) => {
            let prefixes: &[&str] = match part {
                SyscallPart::Both => &["sys_enter_", "sys_exit_"],
                SyscallPart::Entry => &["sys_enter_"],
                SyscallPart::Exit => &["sys_exit_"],
            };
            events(&|event| {
                let call = prefixes.iter().find_map(|prefix| event.name().strip_prefix(prefix));
                call.filter(|call| event.system() == SYSCALLS && matches(name, call)).map(str::to_owned)
            })?
        }
        Instrumentation::Kprobe { location } => vec![by_text(What::Kprobe(format!("{name}={location}")))],
        Instrumentation::Function { location } => vec![
            by_text(What::Kprobe(format!("{name}_entry={location}"))),
            by_text(What::Kretprobe(format!("{name}_exit={location}"))),
        ],
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => {
            vec![by_text(What::Uprobe(format!("{name}={}:{symbol}", quoted(path))))]
        }
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name: marker }) => {
            vec![by_text(What::Usdt(format!("{name}={}:{provider}:{marker}", quoted(path))))]
        }
    };
    if whats.is_empty() && domain == Domain::Kernel {
        return Err(ControlError::new(
            Code::NoEvent,
            format!("no event of this kernel is named {name}; `lttng list --kernel` lists them"),
        ));
    }
    // One of many may be one that cannot be recorded; what is named must be: a function with both of its ends.
    // A rule's author cannot list every program's markers.
    let is_pattern = matches!(instrumentation, Instrumentation::Tracepoint | Instrumentation::Syscall(_));
    let optional = domain == Domain::User || is_pattern && whats.len() > 1;
    Ok(whats
        .into_iter()
        .map(|(key, what, known)| {
            let language = FilterLanguage::Lttng;
            (key, RuleSpec { optional, filter: filter.clone(), language, known, ..RuleSpec::new(what) })
        })
        .collect())
}

/// Whether a rule of the kernel is about events of the state dump, which a trace of LTTng's begins with. Its
/// filter does not choose among them.
pub(crate) fn is_about_state(rule: &EventRule) -> bool {
    let is_excluded = |name: &str| rule.exclusions.iter().any(|pattern| matches(pattern, name));
    let is_meant = |name: &str| matches(&rule.name, name) && !is_excluded(name);
    rule.instrumentation == Instrumentation::Tracepoint
        && ctf_writer::state_events().any(|name| is_meant(&name))
}

fn by_text(what: What) -> (Key, What, Known) {
    ((what.kind(), what.text()), what, Known::default())
}

fn refused(error: impl std::fmt::Display) -> ControlError {
    ControlError::new(Code::EventName, error.to_string())
}

/// Whether a name matches a pattern of LTTng: `*` is anything, `\` takes the next character literally.
fn matches(pattern: &str, name: &str) -> bool {
    // What else is special in patterns of the kernel is nothing special here.
    let escaped: String = pattern
        .chars()
        .flat_map(|one| matches!(one, '?' | '[').then_some('\\').into_iter().chain([one]))
        .collect();
    glob::matches(&escaped, name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use elf::Identity;

    /// What every recording that is made of a rule must be: one that can be planned.
    #[test]
    fn rules_of_all_kinds_can_be_recorded() {
        let events = ["one", "two"].map(|name| EventName::new("a", name)).to_vec();
        let catalogue = Catalogue::new(events, "", "", "");
        let world = World { catalogue, programs: Arc::default(), generation: 1 };
        for (instrumentation, count, optional) in [
            (serde_json::json!({"function": {"location": "do_exit"}}), 2, false),
            (serde_json::json!({"kprobe": {"location": "do_exit"}}), 1, false),
            (serde_json::json!("tracepoint"), 2, true),
        ] {
            let name = if instrumentation == "tracepoint" { "a:*" } else { "one" };
            let rule = serde_json::json!({"name": name, "instrumentation": instrumentation});
            let rules = rules_of(&world, Domain::Kernel, &serde_json::from_value(rule).unwrap()).unwrap();
            let rules: Vec<_> = rules.into_iter().map(|(_, rule)| rule).collect();
            assert_eq!((rules.len(), rules[0].optional), (count, optional), "{instrumentation}");
            let channels = vec![spec::ChannelSpec { rules, ..Default::default() }];
            let spec = spec::RecordingSpec { channels, ..Default::default() };
            assert_eq!(spec.check().map_err(|problem| problem.to_string()), Ok(()), "{instrumentation}");
        }
    }

    #[test]
    fn the_state_is_recorded_where_a_rule_names_it() {
        let rule = |name: &str, instrumentation| -> EventRule {
            let rule = serde_json::json!({"name": name, "instrumentation": instrumentation});
            serde_json::from_value(rule).unwrap()
        };
        for name in ["*", "lttng_*", "lttng_statedump_*", "lttng_statedump_process_state"] {
            assert!(is_about_state(&rule(name, serde_json::json!("tracepoint"))), "{name}");
        }
        assert!(!is_about_state(&rule("sched_*", serde_json::json!("tracepoint"))));
        let mut excluding = rule("*", serde_json::json!("tracepoint"));
        excluding.exclusions = vec!["lttng_statedump_*".to_owned()];
        assert!(!is_about_state(&excluding));
        assert!(!is_about_state(&rule("*", serde_json::json!({"syscall": "both"}))));
        let world = World {
            catalogue: Catalogue::new(Vec::new(), "", "", ""),
            programs: Arc::default(),
            generation: 1,
        };
        // Triggers and maps have no state.
        let of_triggers =
            rules_of(&world, Domain::Kernel, &rule("lttng_statedump_*", serde_json::json!("tracepoint")));
        assert_eq!(of_triggers.unwrap_err().code, Code::NoEvent);
        let recorded = |name: &str, format| {
            let rules = vec![rule(name, serde_json::json!("tracepoint"))];
            let channel = api::Channel {
                name: "one".to_owned(),
                enabled: true,
                attributes: api::ChannelAttributes::default(),
                discarded: 0,
                lost_packets: 0,
                contexts: Vec::new(),
                rules,
            };
            let rules = super::super::spec::rules(&world, (Domain::Kernel, &channel), format);
            rules.map(|rules| rules.len()).map_err(|error| error.code)
        };
        assert_eq!(recorded("lttng_statedump_*", api::Format::Lttng), Ok(0));
        assert_eq!(recorded("lttng_statedump_*", api::Format::TraceDat), Err(Code::NoEvent));
        assert_eq!(recorded("nothing", api::Format::Lttng), Err(Code::NoEvent));
    }

    /// What leads to a program of a container changes when the process ends that has led to it.
    #[test]
    fn a_marker_is_the_same_wherever_its_program_is() {
        let rules = |path: &str, identity| {
            let markers = BTreeSet::from([("app".to_owned(), "one".to_owned())]);
            let program = Program { path: PathBuf::from(path), identity, markers, file: None };
            let catalogue = Catalogue::new(Vec::new(), "", "", "");
            let world = World { catalogue, programs: Arc::new(vec![Arc::new(program)]), generation: 1 };
            let rule = serde_json::json!({"name": "app:*", "instrumentation": "tracepoint"});
            let rule: EventRule = serde_json::from_value(rule).unwrap();
            let mut rules = rules_of(&world, Domain::User, &rule).unwrap();
            assert_eq!(rules.len(), 1);
            rules.remove(0)
        };
        let (one, other) = (Identity::Inode(1, 2), Identity::Inode(1, 3));
        let (key, first) = rules("/proc/7/root/opt/app", one);
        let (same, second) = rules("/proc/8/root/opt/app", one);
        assert_eq!(key, same);
        assert_ne!(first.what, second.what);
        assert_ne!(rules("/proc/7/root/opt/app", other).0, key);
    }
}
