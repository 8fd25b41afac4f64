//! Probes and tracers of a channel.

use super::{
    EventPlan, PlanError, Why,
    error::InChannel,
    rules::{EventRule, Rules},
};
use ::kernel::btf::{Btf, BtfError};
use ::kernel::tracefs::Tracefs;
use compile::dynamic::trace_marker;
use compile::dynamic::{DynamicError, Environment, Planned, function, graph, kernel, usdt, user};
use compile::filter::Facts;
use compile::plan::ProbePlan;
use compile::probe_filter::ProbeRule;
use compile::typed::{End, Types};
use elf::Processes;
use spec::{GraphHooks, GraphSpec, RuleSpec, What};

/// What probes are made of.
pub(super) struct Probes<'a> {
    pub(super) rules: &'a Rules<'a>,
    pub(super) facts: &'a Facts,
    pub(super) tracefs: &'a Tracefs,
    pub(super) btf: Result<&'a Btf, &'a BtfError>,
    pub(super) processes: &'a Processes,
}

/// What is found out when the first probe needs it.
struct Found<'a> {
    probes: &'a Probes<'a>,
    environment: Option<Environment>,
    functions: Option<kernel::KernelFunctions>,
}

/// A rule, and where it is from.
#[derive(Clone, Copy)]
struct Asked<'a> {
    at: InChannel,
    number: usize,
    spec: &'a RuleSpec,
    rule: &'a EventRule,
}

impl Asked<'_> {
    fn refuse(&self, why: impl Into<Why>) -> PlanError {
        self.at.rule(self.number, self.spec, why)
    }
}

impl Probes<'_> {
    fn environment(&self) -> Environment {
        Environment::of_kernel(self.btf, self.processes.clone())
    }

    /// Adds the probes to what is recorded, by kind, and those of a kind in the order of their rules. Gives
    /// what of the patterns cannot be recorded, for the user.
    pub(super) fn add_to(&self, events: &mut EventPlan) -> Result<Vec<String>, PlanError> {
        let mut notes = Vec::new();
        let mut found = Found { probes: self, environment: None, functions: None };
        let mut rules: Vec<_> = self.rules.iter().collect();
        rules.sort_by_key(|(_, spec, _)| rank(&spec.what));
        for (number, spec, rule) in rules {
            let asked = Asked { at: self.rules.at, number, spec, rule };
            match self.add_one(asked, events, &mut found) {
                Ok(left_out) => notes.extend(left_out),
                Err(error) if spec.optional => notes.push(format!("not recorded: {error}")),
                Err(error) => return Err(error),
            }
        }
        Ok(notes)
    }

    /// Adds the probes of a rule. Gives what of its pattern cannot be recorded.
    fn add_one(
        &self,
        asked: Asked<'_>,
        events: &mut EventPlan,
        found: &mut Found<'_>,
    ) -> Result<Vec<String>, PlanError> {
        let Asked { spec, rule, .. } = asked;
        let planned = self.plan(asked, events, found)?;
        let told = planned.told();
        for mut probe in planned.probes {
            if spec.optional {
                probe.leave_out_if_refused();
            }
            events.add_probe(probe, &spec.what, rule).map_err(|error| asked.refuse(error))?;
        }
        Ok(told)
    }

    fn plan(
        &self,
        asked: Asked<'_>,
        events: &EventPlan,
        found: &mut Found<'_>,
    ) -> Result<Planned, PlanError> {
        let EventRule { filter, contexts, .. } = asked.rule;
        // Made for probes only: a free id is looked for among all formats.
        let rule = || ProbeRule {
            filter: filter.as_ref(),
            question: None,
            contexts,
            facts: self.facts,
            id: events.free_id(),
            force: asked.spec.force,
        };
        let is_taken = |system: &str, name: &str| events.has_event(system, name);
        let one = |planned: Result<ProbePlan, DynamicError>| planned.map(Planned::from);
        let tracefs = self.tracefs;
        let planned = match &asked.spec.what {
            What::Events(_) if self.is_of_trace_marker(asked, events) => {
                let btf = self.btf(asked)?;
                one(trace_marker::writes(btf, tracefs, &rule()))
            }
            What::Events(_) | What::Exclude(_) => Ok(Planned::default()),
            What::Kprobe(text) | What::Kretprobe(text) => {
                let returns = matches!(asked.spec.what, What::Kretprobe(_));
                let (environment, functions) = found.functions(asked)?;
                one(kernel::probe(text, returns, environment, functions, tracefs, &rule()))
            }
            What::Fentry(text) => return self.typed(asked, text, End::Entry, &rule()),
            What::Fexit(text) => return self.typed(asked, text, End::Exit, &rule()),
            What::Function(pattern) => {
                let (environment, functions) = found.functions(asked)?;
                one(function::calls(pattern, environment, functions, tracefs))
            }
            What::FunctionGraph(spec) => {
                let (environment, functions) = found.functions(asked)?;
                one(graph::graph(&graph_options(spec), environment, self.btf.ok(), functions, tracefs))
            }
            What::Uprobe(text) => user::probes(text, false, found.environment(), &rule(), &is_taken),
            What::Uretprobe(text) => user::probes(text, true, found.environment(), &rule(), &is_taken),
            What::Usdt(text) => {
                usdt::probes(text, asked.spec.known.get(), found.environment(), &rule(), &is_taken)
            }
        };
        planned.map_err(|error| asked.refuse(error))
    }

    /// Whether the rule is the one that says what is wanted of the writes to trace_marker.
    fn is_of_trace_marker(&self, asked: Asked<'_>, events: &EventPlan) -> bool {
        events.trace_marker.last().is_some_and(|&index| self.rules.selecting(index).0 == asked.number)
    }

    fn btf(&self, asked: Asked<'_>) -> Result<&Btf, PlanError> {
        let why = |error: &BtfError| Why::Unsupported(format!("it needs the kernel's types: {error}"));
        self.btf.map_err(|error| asked.refuse(why(error)))
    }

    fn typed(
        &self,
        asked: Asked<'_>,
        text: &str,
        end: End,
        rule: &ProbeRule<'_>,
    ) -> Result<Planned, PlanError> {
        let btf = self.btf(asked)?;
        let planned = Types::of_kernel(btf).plan(text, end, rule).map_err(|error| asked.refuse(error))?;
        Ok(Planned::from(planned))
    }
}

impl Found<'_> {
    fn environment(&mut self) -> &Environment {
        let Self { probes, environment, .. } = self;
        environment.get_or_insert_with(|| probes.environment())
    }

    /// The kernel's functions. Reading them takes a while.
    fn functions(&mut self, asked: Asked<'_>) -> Result<(&Environment, &kernel::KernelFunctions), PlanError> {
        let Self { probes, environment, functions } = self;
        let environment = environment.get_or_insert_with(|| probes.environment());
        let functions = match functions {
            Some(read) => read,
            None => functions.insert(kernel::KernelFunctions::read().map_err(|error| asked.refuse(error))?),
        };
        Ok((environment, functions))
    }
}

/// The order of kinds. Returns come after entries: a return probe puts an address of its own on the stack, in
/// the place of the caller's, which programs at entries read.
fn rank(what: &What) -> u8 {
    match what {
        What::Events(_) | What::Exclude(_) => 0,
        What::Fentry(_) => 1,
        What::Fexit(_) => 2,
        What::Kprobe(_) => 3,
        What::Kretprobe(_) => 4,
        What::Function(_) => 5,
        What::FunctionGraph(_) => 6,
        What::Uprobe(_) => 7,
        What::Uretprobe(_) => 8,
        What::Usdt(_) => 9,
    }
}

fn graph_options(spec: &GraphSpec) -> graph::GraphOptions {
    let GraphSpec { roots, only, max_depth, hooks } = spec;
    graph::GraphOptions {
        roots: roots.clone(),
        only: only.clone(),
        max_depth: *max_depth,
        hooks: match hooks {
            GraphHooks::Auto => None,
            GraphHooks::Session => Some(graph::GraphHooks::Session),
            GraphHooks::Returns => Some(graph::GraphHooks::Returns),
            GraphHooks::Kprobes => Some(graph::GraphHooks::Kprobes),
        },
    }
}
