//! The options of `record` for stacks.

use clap::Args;

use super::CliError;
use crate::{
    capture::{EventPlan, StackError},
    compile::fast::StackKind,
    kernel::{
        events::{EventName, EventSelector},
        tracefs::Tracefs,
    },
};

/// Which events are followed by stacks.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stacks")]
pub struct StackArgs {
    /// Record the kernel stack of every event
    #[arg(short = 'T')]
    pub kernel_stacks: bool,

    /// Record the kernel stack of every event, or of those named:
    /// --kernel-stack=sched:sched_switch,sys_enter_*
    #[arg(
        long,
        value_name = "EVENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_delimiter = ','
    )]
    pub kernel_stack: Vec<String>,

    /// Record the user stack of every event, or of those named
    #[arg(
        long,
        value_name = "EVENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_delimiter = ','
    )]
    pub user_stack: Vec<String>,
}

impl StackArgs {
    /// Marks the events of `plan` that are followed by stacks.
    pub(super) fn apply(&self, tracefs: &Tracefs, plan: &mut EventPlan) -> Result<(), CliError> {
        let everything = self.kernel_stacks.then_some("all");
        for (option, kind, texts, everything) in [
            ("--kernel-stack", StackKind::Kernel, &self.kernel_stack, everything),
            ("--user-stack", StackKind::User, &self.user_stack, None),
        ] {
            let selectors = (texts.iter().map(String::as_str).chain(everything))
                .map(str::parse)
                .collect::<Result<Vec<EventSelector>, _>>()?;
            for selector in &selectors {
                let meant = plan.events.iter().filter_map(|event| EventName::parse(&event.name));
                if !meant.into_iter().any(|name| selector.matches(&name)) {
                    return Err(CliError::Usage(format!(
                        "{option}={selector} matches none of the recorded events; record them too: -e {selector}"
                    )));
                }
            }
            plan.add_stacks(tracefs, kind, |name| selectors.iter().any(|selector| selector.matches(name)))?;
        }
        Ok(())
    }
}

impl From<StackError> for CliError {
    fn from(error: StackError) -> Self {
        match error {
            StackError::Tracefs(source) => source.into(),
            other => Self::Kernel(other.to_string()),
        }
    }
}
