//! What is wanted of events, made ready for the compiler: filters parsed, control groups by number, counters
//! open.

use std::sync::Arc;

use agent_ebpf::slot_flags;

use super::{PlanError, error::InChannel};
use compile::context::{Contexts, Counters};
use compile::filter::Facts;
use ftrace_event::filter::{Dialect, Filter};
use kernel::cgroup::Hierarchy;
use kernel::events::Rule;
use spec::Context;
use spec::EventName;
use spec::{FilterLanguage, RateBy, RuleSpec, What};

/// What is wanted of the events that a rule selects.
#[derive(Clone, Debug, Default)]
pub(super) struct EventRule {
    /// Which of their records.
    pub(super) filter: Option<Filter>,
    /// One of so many on each CPU.
    pub(super) sample: Option<u32>,
    /// At most so many of each event in a second.
    pub(super) rate: Option<u32>,
    /// Of which threads they are, and who shares that limit: [flags](agent_ebpf::slot_flags) of an event.
    pub(super) flags: u32,
    /// What they carry beside their own fields.
    pub(super) contexts: Contexts,
}

/// Of which threads events are recorded, and who shares the limit of their rate, in
/// [flags](agent_ebpf::slot_flags) of an event.
pub(super) fn rule_flags(spec: &RuleSpec) -> u32 {
    let of_rate = match spec.rate_by {
        RateBy::Event => 0,
        RateBy::Cgroup => slot_flags::RATE_BY_GROUP,
    };
    if spec.every_thread { of_rate | slot_flags::EVERY_THREAD } else { of_rate }
}

/// The rules of a channel.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    /// Where they are from.
    pub(super) at: InChannel,
    all: Vec<(&'a RuleSpec, EventRule)>,
    /// What the events of all of them carry, whatever they say.
    of_channel: Contexts,
    /// Those that select events of the kernel, or take some away, by their indices.
    selecting: Vec<usize>,
}

impl<'a> Rules<'a> {
    /// Makes them ready. `shared` are the contexts of the channel.
    ///
    /// # Errors
    /// A filter is none, a control group is not there, or this kernel lacks a context.
    pub(super) fn make(
        at: InChannel,
        (shared, specs): (&[Context], &'a [RuleSpec]),
        (facts, counters): (&Facts, &Arc<Counters>),
    ) -> Result<Self, PlanError> {
        let mut of_channel = Contexts::default();
        of_channel.add(shared);
        of_channel.open(facts, counters).map_err(|error| at.field("contexts", error))?;
        let mut groups = Groups::default();
        let ready = |(number, spec): (usize, &'a RuleSpec)| {
            let RuleSpec { what: _, optional: _, every_thread: _, force: _, filter, language, .. } = spec;
            let RuleSpec { sample, rate, rate_by: _, contexts: named, .. } = spec;
            let mut contexts = of_channel.clone();
            contexts.add(named);
            contexts.open(facts, counters).map_err(|error| at.of_rule(number, "contexts", error))?;
            let filter =
                filter.as_ref().map(|text| groups.filter(at, number, (text, *language))).transpose()?;
            let rule = EventRule { filter, sample: *sample, rate: *rate, flags: rule_flags(spec), contexts };
            Ok::<_, PlanError>((spec, rule))
        };
        let all = specs.iter().enumerate().map(ready).collect::<Result<Vec<_>, _>>()?;
        let selecting = (0..specs.len()).filter(|&number| selected_by(&specs[number]).is_some()).collect();
        Ok(Self { at, all, of_channel, selecting })
    }

    /// The contexts of the channel.
    pub(super) fn of_channel(&self) -> Contexts {
        self.of_channel.clone()
    }

    /// The contexts of all rules that select something.
    pub(super) fn in_all(&self) -> Contexts {
        let selecting = self.all.iter().filter(|(spec, _)| !matches!(spec.what, What::Exclude(_)));
        let common = selecting.map(|(_, rule)| rule.contexts.clone()).reduce(|mut common, other| {
            common.keep_common(&other);
            common
        });
        common.unwrap_or_else(|| self.of_channel())
    }

    /// All of them, with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &'a RuleSpec, &EventRule)> {
        self.all.iter().enumerate().map(|(number, (spec, rule))| (number, *spec, rule))
    }

    /// What the [catalogue](kernel::events::Catalogue) is asked to select.
    pub(super) fn selection(&self) -> Vec<Rule> {
        self.selecting.iter().filter_map(|&number| selected_by(self.all[number].0)).collect()
    }

    /// The index among all rules, and what is wanted, of a rule by its index in the
    /// [selection](Self::selection).
    pub(super) fn selecting(&self, index: usize) -> (usize, &'a RuleSpec, &EventRule) {
        let number = self.selecting[index];
        let (spec, rule) = &self.all[number];
        (number, spec, rule)
    }

    /// The rule that names an event itself, rather than a set that has it, and does not do without it, among
    /// some by their indices in the selection.
    pub(super) fn naming(&self, indices: &[usize], event: &EventName) -> Option<usize> {
        let names = |index: &usize| {
            let spec = self.selecting(*index).1;
            matches!(&spec.what, What::Events(selector) if !spec.optional && selector.names(event))
        };
        indices.iter().copied().find(names)
    }
}

/// What a rule says to the [catalogue](kernel::events::Catalogue), if it is about events of the
/// kernel.
pub(super) fn selected_by(spec: &RuleSpec) -> Option<Rule> {
    match &spec.what {
        What::Events(selector) => Some(Rule { optional: spec.optional, ..Rule::include(selector.clone()) }),
        What::Exclude(selector) => Some(Rule::exclude(selector.clone())),
        _ => None,
    }
}

/// The control groups that filters name.
#[derive(Default)]
pub(super) struct Groups {
    hierarchy: Option<Hierarchy>,
}

impl Groups {
    /// Reads a filter, and puts the numbers of control groups in the place of their paths.
    pub(super) fn filter(
        &mut self,
        at: InChannel,
        rule: usize,
        (text, language): (&str, FilterLanguage),
    ) -> Result<Filter, PlanError> {
        let dialect = match language {
            FilterLanguage::Ftrace => Dialect::Ftrace,
            FilterLanguage::Lttng => Dialect::Lttng,
        };
        let mut filter =
            Filter::parse_expression(text, dialect).map_err(|error| at.of_rule(rule, "filter", error))?;
        let mut number = |path: &str| -> Result<u64, String> {
            let hierarchy = match &self.hierarchy {
                Some(found) => found,
                None => self.hierarchy.insert(Hierarchy::find().map_err(|error| error.to_string())?),
            };
            hierarchy.group(path).map(|group| group.id).map_err(|error| error.to_string())
        };
        filter.name_groups(&mut number).map_err(|error| at.of_rule(rule, "filter", error))?;
        Ok(filter)
    }
}
