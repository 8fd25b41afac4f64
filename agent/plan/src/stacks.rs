//! Stacks that follow events: `ftrace:kernel_stack` and `ftrace:user_stack`, as records directly after those
//! of their events.

use agent_ebpf::{FRAMES, FRAMES_AT, slot_flags};

use super::{EventPlan, PlanError, UnusableFormat, Why, error::InChannel, rules::EventRule};
use capture::{Active, CaptureEvent, ChannelOptions};
use compile::fast::Lane;
use compile::slot::plan_slot;
use ftrace_event::Format;
use kernel::tracefs::{Tracefs, TracefsError};
use spec::Context;
use spec::EventName;
use spec::StackKind;
use spec::{ChannelSpec, RuleSpec, What};

/// Why stacks cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The stack's own event has no format that can be read.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// It has another one than expected.
    #[error("cannot record stacks: {event}: {reason}")]
    Format {
        /// The stack's event.
        event: &'static str,
        /// What is different.
        #[source]
        reason: UnusableFormat,
    },
    /// The record is laid out in another way than readers know it.
    #[error("cannot record stacks: the record layout of {0} on this kernel is not known to readers")]
    Layout(&'static str),
}

const fn flag(kind: StackKind) -> u32 {
    match kind {
        StackKind::Kernel => slot_flags::KERNEL_STACK,
        StackKind::User => slot_flags::USER_STACK,
    }
}

/// The flags of the stacks among the contexts of a rule.
pub(super) fn stack_flags(rule: &EventRule) -> u32 {
    rule.contexts.stacks().iter().fold(0, |flags, kind| flags | flag(*kind))
}

/// Marks the events of a plan that are followed by stacks. Those of rules with stacks among their contexts
/// are marked already.
pub(super) fn apply(
    channel: &ChannelSpec,
    at: InChannel,
    tracefs: &Tracefs,
    plan: &mut EventPlan,
) -> Result<(), PlanError> {
    for (field, kind, selectors) in [
        ("kernel_stacks", StackKind::Kernel, &channel.kernel_stacks),
        ("user_stacks", StackKind::User, &channel.user_stacks),
    ] {
        for selector in selectors {
            let mut names = plan.events.iter().filter_map(|event| EventName::parse(&event.name));
            let is_of_optional = |rule: &RuleSpec| {
                rule.optional && matches!(&rule.what, What::Events(events) if events == selector)
            };
            if !names.any(|name| selector.matches(&name)) && !channel.rules.iter().any(is_of_optional) {
                return Err(at.field(
                    field,
                    Why::Wrong(format!("{selector} matches none of the recorded events; record them too")),
                ));
            }
        }
        let wants = |name: &EventName| selectors.iter().any(|selector| selector.matches(name));
        plan.add_stacks(tracefs, kind, wants).map_err(|error| at.field(field, error))?;
    }
    Ok(())
}

/// Marks the events of a plan that are followed by stacks of the channel that they are added to.
pub(super) fn follow(of: &ChannelOptions, at: InChannel, plan: &mut EventPlan) -> Result<(), PlanError> {
    for (kind, selectors) in &of.stacks {
        for event in &mut plan.events {
            let name = EventName::parse(&event.name);
            if name.is_some_and(|name| selectors.iter().any(|selector| selector.matches(&name))) {
                event.slot.flags |= flag(*kind);
            }
        }
        let is_recorded = of.events.iter().any(|event| matches!(event.lane, Lane::Stack(of) if of == *kind));
        if !is_recorded && plan.events.iter().any(|event| event.slot.flags & flag(*kind) != 0) {
            let why = format!("{} is recorded only into buffers that began with it", Context::Stack(*kind));
            return Err(at.field("rules", Why::Wrong(why)));
        }
    }
    Ok(())
}

impl EventPlan {
    /// Lets stacks follow those of the planned events that `wants` chooses, beside the marked ones; returns
    /// how many that are. The stack's own event is one more of the plan's if there is any.
    fn add_stacks(
        &mut self,
        tracefs: &Tracefs,
        kind: StackKind,
        wants: impl Fn(&EventName) -> bool,
    ) -> Result<usize, StackError> {
        let event = kind.event();
        let mut chosen = 0;
        for planned in &mut self.events {
            if !matches!(planned.lane, Lane::Stack(_))
                && (planned.slot.flags & flag(kind) != 0
                    || EventName::parse(&planned.name).is_some_and(|name| wants(&name)))
            {
                planned.slot.flags |= flag(kind);
                chosen += 1;
            }
        }
        let Some(name) = EventName::parse(event).filter(|_| chosen != 0) else { return Ok(chosen) };
        let text = tracefs.event_format(&name)?.text;
        let format =
            Format::parse(&text).map_err(|error| StackError::Format { event, reason: error.into() })?;
        // What is before the frames is a number: how many they are, or the process.
        let first = format.fields.first().filter(|field| (field.offset, field.size) == (8, 4));
        let frames = format.field("caller").filter(|field| field.offset as usize == FRAMES_AT);
        // Some kernels describe an array without a length.
        if first.is_none() || frames.is_none_or(|field| field.size != 0 && field.size as usize != 8 * FRAMES)
        {
            return Err(StackError::Layout(event));
        }
        let slot = plan_slot(name.system(), name.name(), &format)
            .map_err(|error| StackError::Format { event, reason: error.into() })?;
        self.events.push(CaptureEvent {
            name: event.to_owned(),
            rule: None,
            slot,
            prints_symbols: true,
            required: false,
            lane: Lane::Stack(kind),
            lane_note: None,
            string_note: None,
            only_fast: false,
            filter: None,
            own: None,
            active: Active::default(),
        });
        Ok(chosen)
    }
}
