//! The options of `record` for stacks.

use clap::{ArgAction, Args};

use spec::EventSelector;

/// Which events are followed by stacks.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stacks")]
pub struct StackArgs {
    /// Record the kernel stack of every event
    #[arg(short = 'T', action = ArgAction::Append, num_args = 0, default_missing_value = "true")]
    pub kernel_stacks: Vec<bool>,

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
    pub kernel_stack: Vec<EventSelector>,

    /// Record the user stack of every event, or of those named
    #[arg(
        long,
        value_name = "EVENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_delimiter = ','
    )]
    pub user_stack: Vec<EventSelector>,
}
