//! Which events of this machine a rule means.

use std::sync::Arc;

use super::programs::Program;
use api::{Code, ControlError, Domain, EventRule, Instrumentation, SyscallPart, UserProbe};
use compile::dynamic::quoted;
use ctf_writer::lttng_name;
use kernel::events::Catalogue;
use spec::EventName;
use spec::{FilterLanguage, RuleSpec, What};
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

/// The rules of a recording that have the events of an event rule.
///
/// Names of tracepoints are LTTng's (`irq_softirq_entry`), the kernel's (`softirq_entry`), or the kernel's
/// with their system (`irq:softirq_entry`); in the user domain, `PROVIDER:MARKER`. A rule of the user domain
/// may have no event yet: it waits for programs that will.
pub(crate) fn rules_of(
    world: &World,
    domain: Domain,
    rule: &EventRule,
) -> Result<Vec<RuleSpec>, ControlError> {
    let EventRule { name, instrumentation, enabled: _, filter, exclusions, log_level: _ } = rule;
    let World { catalogue, programs, generation: _ } = world;
    let markers = || -> Vec<What> {
        let is_meant = |name: &str| !exclusions.iter().any(|pattern| matches(pattern, name));
        let of = |program: &Arc<Program>| {
            let path = program.path.display().to_string();
            let path = quoted(&path);
            let named = program.markers.iter().map(|(provider, marker)| format!("{provider}:{marker}"));
            let meant = named.filter(|marker| matches(name, marker) && is_meant(marker));
            meant.map(|marker| What::Usdt(format!("{path}:{marker}"))).collect::<Vec<_>>()
        };
        programs.iter().flat_map(of).collect()
    };
    let events = |wanted: &dyn Fn(&EventName) -> Option<String>| {
        let excluded = |name: &str| exclusions.iter().any(|pattern| matches(pattern, name));
        let recordable = catalogue.entries().iter().filter(|entry| entry.refusal.is_none());
        let all = recordable.filter(|entry| wanted(&entry.name).is_some_and(|name| !excluded(&name)));
        all.map(|entry| Ok(What::Events(entry.name.to_string().parse().map_err(refused)?)))
            .collect::<Result<Vec<_>, ControlError>>()
    };
    let whats: Vec<What> = match instrumentation {
        Instrumentation::Tracepoint if domain == Domain::User => markers(),
        Instrumentation::Tracepoint => events(&|event| {
            if event.system() == SYSCALLS {
                return None;
            }
            let names =
                [lttng_name(event.system(), event.name()), event.name().to_owned(), event.to_string()];
            names.into_iter().find(|one| matches(name, one))
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
        Instrumentation::Kprobe { location } => vec![What::Kprobe(format!("{name}={location}"))],
        Instrumentation::Function { location } => vec![
            What::Kprobe(format!("{name}_entry={location}")),
            What::Kretprobe(format!("{name}_exit={location}")),
        ],
        Instrumentation::UserProbe(UserProbe::Elf { path, symbol }) => {
            vec![What::Uprobe(format!("{name}={}:{symbol}", quoted(path)))]
        }
        Instrumentation::UserProbe(UserProbe::Sdt { path, provider, name: marker }) => {
            vec![What::Usdt(format!("{name}={}:{provider}:{marker}", quoted(path)))]
        }
    };
    if whats.is_empty() && domain == Domain::Kernel {
        return Err(ControlError::new(
            Code::NoEvent,
            format!("no event of this kernel is named {name}; `lttng list --kernel` lists them"),
        ));
    }
    // One of many may be one that cannot be recorded; the one that is named must be. Which markers programs
    // have, nobody knows who writes a rule.
    let optional = whats.len() > 1 || domain == Domain::User;
    Ok(whats
        .into_iter()
        .map(|what| RuleSpec {
            optional,
            filter: filter.clone(),
            language: FilterLanguage::Lttng,
            ..RuleSpec::new(what)
        })
        .collect())
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
