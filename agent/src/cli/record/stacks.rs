//! The options of `record` for stacks.

use clap::Args;

use crate::{kernel::events::EventSelector, spec::ChannelSpec};

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

impl StackArgs {
    /// Puts them into a channel.
    pub(super) fn put_into(&self, channel: &mut ChannelSpec) {
        channel.kernel_stacks.clone_from(&self.kernel_stack);
        channel.kernel_stacks.extend(self.kernel_stacks.then_some(EventSelector::all()));
        channel.user_stacks.clone_from(&self.user_stack);
    }
}
