//! What to say when a recording cannot be planned: in the words of the options where they said what to
//! record.

use super::super::{CliError, error::of_probe, exit::ExitCode};
use compile::typed::TypedError;
use kernel::events::SelectError;
use plan::{PlanError, StackError, Why};
use spec::Field;

/// Why there is no plan, for the user.
#[derive(Debug)]
pub struct Refused {
    error: PlanError,
    /// Whether options said what to record, rather than a file.
    by_options: bool,
}

impl Refused {
    pub(crate) fn error(PlanError { at, why }: PlanError, by_options: bool) -> CliError {
        // These have words of their own, wherever they come from.
        match *why {
            Why::Tracefs(source) | Why::Stack(StackError::Tracefs(source)) => CliError::Tracefs { source },
            Why::Output(error) => CliError::Output(error.to_string()),
            why => CliError::Plan(Self { error: PlanError { at, why: Box::new(why) }, by_options }),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match &*self.error.why {
            Why::Select(SelectError::Malformed(_)) => ExitCode::Usage,
            Why::Select(_) => ExitCode::NoSuchEvent,
            Why::Probe(error) => of_probe(error),
            Why::Typed(TypedError::NoTrampolines) => ExitCode::Unsupported,
            Why::Count(_) => ExitCode::Usage,
            Why::Unsupported(_) | Why::Stack(_) | Why::Context(_) => ExitCode::Unsupported,
            Why::Tracefs(_) => ExitCode::Unsupported,
            Why::Output(_) => ExitCode::OutputNotWritable,
            Why::Wrong(_)
            | Why::Unusable { .. }
            | Why::Filter(_)
            | Why::Cgroup(_)
            | Why::Container(_)
            | Why::Typed(_)
            | Why::NameTaken(_) => ExitCode::Usage,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PlanError { at, why } = &self.error;
        if self.by_options { write!(f, "{}{why}", option(at, why)) } else { write!(f, "{at}: {why}") }
    }
}

/// The option that a field is from, with what stands between it and the reason; nothing where that says all.
fn option(at: &Field, why: &Why) -> String {
    let long = |name: &str| format!("--{}", name.replace('_', "-"));
    let name = match at {
        Field::Whole | Field::Rule { kind: "events" | "exclude", .. } => return String::new(),
        _ if matches!(why, Why::Stack(_)) => return String::new(),
        Field::OfMap { text, name: "field" | "by" | "pair" | "event" | "from", .. } => {
            return format!("'{text}': ");
        }
        Field::OfMap { text, .. } => return format!("'{text}': --max-keys: "),
        // The reason quotes the text.
        Field::Rule { kind, .. } if matches!(why, Why::Probe(_)) => return long(kind) + ": ",
        Field::Rule { kind, text, .. } => return format!("{} '{text}': ", long(kind)),
        Field::OfRule { name, .. }
        | Field::OfChannel { name, .. }
        | Field::Scope(name)
        | Field::Limits(name)
        | Field::Rotation(name)
        | Field::File(name) => *name,
    };
    match name {
        "filter" => "-f: ".to_owned(),
        "contexts" => "--context: ".to_owned(),
        "start_on" => "--start-on: ".to_owned(),
        "stop_on" => "--stop-on: ".to_owned(),
        "snapshot" => "--snapshot-when: ".to_owned(),
        "only_command" => "-F: ".to_owned(),
        "children" => "-c: ".to_owned(),
        "cpus" => "-M: ".to_owned(),
        "ring_bytes" => "-b: ".to_owned(),
        "pids" | "track" | "exclude" if matches!(why, Why::Unsupported(_)) => String::new(),
        // The reason begins with the value.
        "pids" => "-P ".to_owned(),
        // The reason begins with the attribute, which the option is named after.
        "track" => "--".to_owned(),
        "containers" => "--container: ".to_owned(),
        "exclude" => "--exclude-".to_owned(),
        "kernel_stacks" => "--kernel-stack=".to_owned(),
        "user_stacks" => "--user-stack=".to_owned(),
        _ => String::new(),
    }
}
