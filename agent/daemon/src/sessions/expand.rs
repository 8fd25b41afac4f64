//! Which events of this machine a rule means.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{
    finder::KnownPrograms,
    model::Model,
    pattern::{Pattern, Patterns},
    programs::Program,
    spec::Rules,
};
use crate::lock;
use api::{Channel, Code, ControlError, Domain, EventRule, Format, Instrumentation, SyscallPart, UserProbe};
use compile::dynamic::quoted;
use ctf_writer::lttng_name;
use kernel::events::{Catalogue, Entry};
use spec::EventName;
use spec::{FilterLanguage, Known, RuleSpec, What};

/// The system of system calls.
const SYSCALLS: &str = "syscalls";

/// What rules are about.
#[derive(Debug)]
pub(crate) struct World {
    /// The events of the kernel.
    pub catalogue: Arc<Catalogue>,
    /// The programs and libraries that have markers.
    pub programs: Arc<Vec<Arc<Program>>>,
    /// The number of their state, which is another one when there are other markers.
    pub generation: u64,
    /// The events that the rules of a session select.
    selections: Arc<Selections>,
    /// The channels whose rules are expanded.
    expanded: Mutex<Vec<Expanded>>,
}

/// The rules of a channel, and those of the recording that they become.
#[derive(Debug)]
struct Expanded {
    domain: Domain,
    enabled: bool,
    rules: Vec<EventRule>,
    recorded: Result<Rules, ControlError>,
}

impl World {
    /// The world of a session, whose selections are known.
    pub(crate) fn new(
        catalogue: Arc<Catalogue>,
        KnownPrograms { programs, generation }: KnownPrograms,
        selections: Arc<Selections>,
    ) -> Self {
        Self { catalogue, programs, generation, selections, expanded: Mutex::default() }
    }

    /// Keeps the rules of a recording that a channel becomes: for the same rules they are there at once.
    pub(super) fn keep(&self, domain: Domain, channel: &Channel, recorded: Result<Rules, ControlError>) {
        let Channel { enabled, rules, .. } = channel;
        let expanded = Expanded { domain, enabled: *enabled, rules: rules.clone(), recorded };
        lock(&self.expanded).push(expanded);
    }

    /// The rules of a recording that a channel becomes, if they are kept.
    pub(super) fn kept(&self, domain: Domain, channel: &Channel) -> Option<Result<Rules, ControlError>> {
        let all = lock(&self.expanded);
        let is_same = |of: &&Expanded| {
            (of.domain, of.enabled) == (domain, channel.enabled) && of.rules == channel.rules
        };
        all.iter().find(is_same).map(|of| of.recorded.clone())
    }
}

/// The events of the kernel that the rules of a session select: patterns are compiled and compared with all
/// events once for each rule, and not at each change of the session.
#[derive(Debug, Default)]
pub(crate) struct Selections(Mutex<BTreeMap<String, Selection>>);

/// The events of a rule.
#[derive(Clone, Debug)]
struct Selection {
    /// Among which events.
    catalogue: Arc<Catalogue>,
    /// A bit for each of them.
    events: Arc<[u64]>,
}

impl Selections {
    /// The events of a rule. `is_meant` makes the test for them where they are not known.
    fn of<'c>(
        &self,
        catalogue: &'c Arc<Catalogue>,
        rule: &EventRule,
        is_meant: &dyn Fn() -> Box<dyn Fn(&Entry) -> bool>,
    ) -> impl Iterator<Item = &'c Entry> + use<'c> {
        let key = key_of(rule);
        let known = lock(&self.0).get(&key).cloned();
        let known = known.filter(|known| Arc::ptr_eq(&known.catalogue, catalogue));
        let Selection { events, .. } = known.unwrap_or_else(|| {
            let is_meant = is_meant();
            let entries = catalogue.entries();
            let mut events = vec![0_u64; entries.len().div_ceil(64)];
            for (index, _) in entries.iter().enumerate().filter(|(_, entry)| is_meant(entry)) {
                events[index / 64] |= 1 << (index % 64);
            }
            let selection = Selection { catalogue: Arc::clone(catalogue), events: events.into() };
            lock(&self.0).insert(key, selection.clone());
            selection
        });
        let all = catalogue.entries().iter().enumerate();
        all.filter(move |(index, _)| events[index / 64] >> (index % 64) & 1 != 0).map(|(_, entry)| entry)
    }

    /// Forgets rules that a session does not have.
    pub(crate) fn retain(&self, model: &Model) {
        let rules = || model.channels().flat_map(|(_, channel)| &channel.rules);
        if lock(&self.0).len() <= rules().count() {
            return;
        }
        let keys: BTreeSet<String> = rules().map(key_of).collect();
        lock(&self.0).retain(|key, _| keys.contains(key));
    }
}

/// All that selects the events of a rule, as a text.
fn key_of(rule: &EventRule) -> String {
    // Plain data.
    serde_json::to_string(&(&rule.name, &rule.instrumentation, &rule.exclusions)).unwrap_or_default()
}

/// What a rule of a recording is about: the kind, and a text. That of a program's marker has the program's
/// identity, as what leads to the program may change while it is recorded.
pub(crate) type Key = (&'static str, String);

/// As [`rules_of`], for a session of this format: an event rule may be about nothing but the state of the
/// machine, which LTTng's traces have.
pub(crate) fn rules_of_session(
    world: &World,
    (domain, rule): (Domain, &EventRule),
    format: Format,
) -> Result<Vec<(Key, RuleSpec)>, ControlError> {
    let has_state = (domain, format) == (Domain::Kernel, Format::Lttng);
    match rules_of(world, domain, rule) {
        Err(error) if error.code == Code::NoEvent && has_state && is_about_state(rule) => Ok(Vec::new()),
        rules => rules,
    }
}

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
    let World { catalogue, programs, selections, .. } = world;
    let markers = || -> Vec<(Key, What, Known)> {
        let (pattern, excluded) = (Pattern::new(name), Patterns::new(exclusions));
        let of = |program: &Arc<Program>| {
            let path = program.path.display().to_string();
            let path = quoted(&path);
            let named = program.markers.iter().map(|(provider, marker)| format!("{provider}:{marker}"));
            let meant = named.filter(|marker| pattern.matches(marker) && !excluded.matches(marker));
            let by_identity = |marker: String| {
                let what = What::Usdt(format!("{path}:{marker}"));
                let known = program.file.clone().map(Known::new).unwrap_or_default();
                ((what.kind(), format!("{:?}:{marker}", program.identity)), what, known)
            };
            meant.map(by_identity).collect::<Vec<_>>()
        };
        programs.iter().flat_map(of).collect()
    };
    let whats: Vec<(Key, What, Known)> = match instrumentation {
        Instrumentation::Tracepoint if domain == Domain::User => markers(),
        Instrumentation::Tracepoint | Instrumentation::Syscall(_) => selections
            .of(catalogue, rule, &|| selector_of(rule))
            .map(|entry| Ok(by_text(What::Events(entry.name.to_string().parse().map_err(refused)?))))
            .collect::<Result<Vec<_>, ControlError>>()?,
        Instrumentation::Kprobe { location } => {
            vec![by_text(What::Kprobe(format!("{}={location}", recorded_name(name))))]
        }
        Instrumentation::Function { location } => {
            let [entry, exit] = function_events(name);
            vec![
                by_text(What::Kprobe(format!("{entry}={location}"))),
                by_text(What::Kretprobe(format!("{exit}={location}"))),
            ]
        }
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => {
            vec![by_text(What::Uprobe(format!("{}={}:{symbol}", recorded_name(name), quoted(path))))]
        }
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name: marker }) => {
            let (name, path) = (recorded_name(name), quoted(path));
            vec![by_text(What::Usdt(format!("{name}={path}:{provider}:{marker}")))]
        }
    };
    if whats.is_empty() && domain == Domain::Kernel {
        return Err(ControlError::new(
            Code::NoEvent,
            format!("no event of this kernel is named {name}; `lttng list --kernel` lists them"),
        ));
    }
    // One of many may be one that cannot be recorded; what is named must be: a function with both of its
    // ends. A rule's author cannot list every program's markers.
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

/// The test whether a rule of tracepoints or system calls selects an event of the kernel.
fn selector_of(rule: &EventRule) -> Box<dyn Fn(&Entry) -> bool> {
    let (name, pattern) = (rule.name.clone(), Pattern::new(&rule.name));
    let excluded = Patterns::new(&rule.exclusions);
    let prefixes: Option<&[&str]> = match rule.instrumentation {
        Instrumentation::Syscall(SyscallPart::Both) => Some(&["sys_enter_", "sys_exit_"]),
        Instrumentation::Syscall(SyscallPart::Entry) => Some(&["sys_enter_"]),
        Instrumentation::Syscall(SyscallPart::Exit) => Some(&["sys_exit_"]),
        _ => None,
    };
    let wanted = move |event: &EventName| match prefixes {
        Some(prefixes) => {
            let call = prefixes.iter().find_map(|prefix| event.name().strip_prefix(prefix));
            call.filter(|call| event.system() == SYSCALLS && pattern.matches(call)).map(str::to_owned)
        }
        None if event.system() == SYSCALLS => None,
        None => {
            let names =
                [lttng_name(event.system(), event.name()), event.name().to_owned(), event.to_string()];
            // What makes other writes slower is recorded where it is named, and not by a pattern.
            let is_meant =
                |one: &String| if event.is_trace_marker() { *one == name } else { pattern.matches(one) };
            names.into_iter().find(is_meant)
        }
    };
    Box::new(move |entry| {
        entry.refusal.is_none() && wanted(&entry.name).is_some_and(|name| !excluded.matches(&name))
    })
}

/// The events of a probe, each with its system.
pub(crate) fn probe_events(rule: &EventRule) -> Vec<(String, String)> {
    let EventRule { name, instrumentation, .. } = rule;
    let (system, names) = match instrumentation {
        Instrumentation::Tracepoint | Instrumentation::Syscall(_) => return Vec::new(),
        Instrumentation::Kprobe { .. } => ("kprobes", vec![recorded_name(name)]),
        Instrumentation::Function { .. } => ("kprobes", function_events(name).into()),
        Instrumentation::UserProbe(UserProbe::Elf { .. }) => ("uprobes", vec![recorded_name(name)]),
        Instrumentation::UserProbe(UserProbe::Sdt { provider, .. }) => {
            (provider.as_str(), vec![recorded_name(name)])
        }
    };
    names.into_iter().map(|name| (system.to_owned(), name)).collect()
}

fn function_events(name: &str) -> [String; 2] {
    ["entry", "exit"].map(|end| format!("{}_{end}", recorded_name(name)))
}

/// The name that records have for the event of a probe: names of the kernel's events have letters, digits and
/// `_` only, and LTTng's any characters.
fn recorded_name(name: &str) -> String {
    let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let first = name.starts_with(|one: char| one.is_ascii_digit()).then_some('_');
    first.into_iter().chain(name.chars().map(|one| if is_part(one) { one } else { '_' })).collect()
}

/// Whether a rule of the kernel is about events of the state dump, which a trace of LTTng's begins with. Its
/// filter does not choose among them.
pub(crate) fn is_about_state(rule: &EventRule) -> bool {
    let (pattern, excluded) = (Pattern::new(&rule.name), Patterns::new(&rule.exclusions));
    rule.instrumentation == Instrumentation::Tracepoint
        && ctf_writer::state_events().any(|name| pattern.matches(&name) && !excluded.matches(&name))
}

fn by_text(what: What) -> (Key, What, Known) {
    ((what.kind(), what.text()), what, Known::default())
}

fn refused(error: impl std::fmt::Display) -> ControlError {
    ControlError::new(Code::EventName, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::path::PathBuf;

    use super::*;
    use elf::Identity;

    /// A rule of this name and these exclusions.
    fn rule(name: &str, exclusions: &[&str]) -> EventRule {
        let rule =
            serde_json::json!({"name": name, "instrumentation": "tracepoint", "exclusions": exclusions});
        serde_json::from_value(rule).unwrap()
    }

    /// The events of a rule.
    fn events(world: &World, rule: &EventRule) -> Vec<String> {
        let rules = rules_of(world, Domain::Kernel, rule).unwrap();
        rules.into_iter().map(|((_, text), _)| text).collect()
    }

    #[test]
    fn events_of_a_rule_are_selected_once_and_again_where_others_have_come() {
        let catalogue = |names: &[&str]| {
            let names = names.iter().map(|name| EventName::new("a", name)).collect();
            Arc::new(Catalogue::new(names, "", "", ""))
        };
        let selections = Arc::<Selections>::default();
        let world = |catalogue: &Arc<Catalogue>| {
            World::new(Arc::clone(catalogue), KnownPrograms::default(), Arc::clone(&selections))
        };
        let (first, second) = (catalogue(&["one", "other", "two"]), catalogue(&["oh", "one", "two"]));
        let (with_o, all) = (rule("o*", &["oth*"]), rule("*", &["one"]));
        let count = || lock(&selections.0).len();
        for _ in 0..2 {
            assert_eq!(events(&world(&first), &with_o), ["a:one"]);
            assert_eq!(events(&world(&first), &all), ["a:other", "a:two"]);
            assert_eq!(count(), 2);
        }
        // Nothing is compared again: what is known counts.
        let known = Selection { catalogue: Arc::clone(&first), events: [0b100].into() };
        lock(&selections.0).insert(key_of(&with_o), known);
        assert_eq!(events(&world(&first), &with_o), ["a:two"]);
        // Filters and switches select no events.
        let other = EventRule { filter: Some("x == 1".to_owned()), enabled: false, ..with_o.clone() };
        assert_eq!(events(&world(&first), &other), ["a:two"]);
        assert_eq!(events(&world(&second), &with_o), ["a:oh", "a:one"]);
        assert_eq!(count(), 2);
    }

    #[test]
    fn kept_rules_of_a_channel_are_those_of_equal_rules() {
        let names = ["one", "two"].map(|name| EventName::new("a", name)).to_vec();
        let catalogue = Arc::new(Catalogue::new(names, "", "", ""));
        let world = World::new(catalogue, KnownPrograms::default(), Arc::default());
        let channel = |rules: Vec<EventRule>, enabled| Channel {
            name: "c".to_owned(),
            enabled,
            attributes: api::ChannelAttributes::default(),
            discarded: 0,
            lost_packets: 0,
            contexts: Vec::new(),
            rules,
        };
        let one = channel(vec![rule("one", &[])], true);
        world.keep(Domain::Kernel, &one, Err(Code::NoEvent.into()));
        let code = |of: &Channel| {
            let kept = world.kept(Domain::Kernel, of);
            kept.map(|kept| kept.map(|rules| rules.len()).map_err(|error| error.code))
        };
        assert_eq!(code(&one), Some(Err(Code::NoEvent)));
        // Counts are no rules.
        assert_eq!(code(&Channel { discarded: 7, ..one.clone() }), Some(Err(Code::NoEvent)));
        assert_eq!(code(&channel(one.rules.clone(), false)), None);
        assert_eq!(code(&channel(vec![rule("one", &["x"])], true)), None);
    }

    /// What every recording that is made of a rule must be: one that can be planned.
    #[test]
    fn rules_of_all_kinds_can_be_recorded() {
        let events = ["one", "two"].map(|name| EventName::new("a", name)).to_vec();
        let catalogue = Catalogue::new(events, "", "", "");
        let world = World::new(Arc::new(catalogue), KnownPrograms::default(), Arc::default());
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
    fn probes_may_have_any_name() {
        let rule = |name: &str, instrumentation| -> EventRule {
            let rule = serde_json::json!({"name": name, "instrumentation": instrumentation});
            serde_json::from_value(rule).unwrap()
        };
        let events = |name, instrumentation| {
            let events = probe_events(&rule(name, instrumentation)).into_iter();
            events.map(|(system, name)| format!("{system}:{name}")).collect::<Vec<_>>()
        };
        let location = serde_json::json!({"location": "do_exit"});
        let elf = serde_json::json!({"user_probe": {"elf": {"path": "/a", "symbol": "f"}}});
        let sdt = serde_json::json!({"user_probe": {"sdt": {"path": "/a", "provider": "p", "name": "m"}}});
        assert_eq!(events("ma-probe", serde_json::json!({"kprobe": location})), ["kprobes:ma_probe"]);
        assert_eq!(
            events("a.b", serde_json::json!({"function": location})),
            ["kprobes:a_b_entry", "kprobes:a_b_exit"]
        );
        assert_eq!(events("1=2 3", elf), ["uprobes:_1_2_3"]);
        assert_eq!(events("\u{e4}", sdt), ["p:_"]);
        assert!(events("*", serde_json::json!("tracepoint")).is_empty());
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
        let world = World::new(Arc::default(), KnownPrograms::default(), Arc::default());
        // Triggers and maps have no state.
        let of_triggers =
            rules_of(&world, Domain::Kernel, &rule("lttng_statedump_*", serde_json::json!("tracepoint")));
        assert_eq!(of_triggers.unwrap_err().code, Code::NoEvent);
        let recorded = |name: &str, format| {
            let rules = vec![rule(name, serde_json::json!("tracepoint"))];
            let channel = Channel {
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
        assert_eq!(recorded("lttng_statedump_*", Format::Lttng), Ok(0));
        assert_eq!(recorded("lttng_statedump_*", Format::TraceDat), Err(Code::NoEvent));
        assert_eq!(recorded("nothing", Format::Lttng), Err(Code::NoEvent));
    }

    /// What leads to a program of a container changes when the process ends that has led to it.
    #[test]
    fn a_marker_is_the_same_wherever_its_program_is() {
        let rules = |path: &str, identity| {
            let markers = BTreeSet::from([("app".to_owned(), "one".to_owned())]);
            let program = Program { path: PathBuf::from(path), identity, markers, file: None };
            let known = KnownPrograms { programs: Arc::new(vec![Arc::new(program)]), generation: 1 };
            let world = World::new(Arc::default(), known, Arc::default());
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
