//! The options of `record` that make probes.

use clap::Args;

use super::{CliError, record_scope::OptionRules};
use crate::{
    capture::{EventPlan, EventRule},
    kernel::{
        btf::{Btf, BtfError},
        tracefs::Tracefs,
    },
    probe::{
        dynamic::{DynamicError, Environment, function, graph, kernel, usdt, user},
        filter::{Facts, ProbeRule},
        plan::ProbePlan,
        typed::{End, TypedError, Types},
    },
};

/// How the functions of a call graph are hooked.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphHooksArg {
    /// As it suits the kernel: the first of the following that it has.
    #[default]
    Auto,
    /// A program at entries and returns (Linux 6.10).
    Session,
    /// One at entries, and one at returns (5.18).
    Returns,
    /// Kprobes, for a few functions (6.0).
    Kprobes,
}

impl GraphHooksArg {
    fn asked(self) -> Option<graph::GraphHooks> {
        match self {
            Self::Auto => None,
            Self::Session => Some(graph::GraphHooks::Session),
            Self::Returns => Some(graph::GraphHooks::Returns),
            Self::Kprobes => Some(graph::GraphHooks::Kprobes),
        }
    }
}

/// Probes to record.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Probes")]
pub struct ProbeArgs {
    /// Record a place in a kernel function, or the entries of all that match: `[GRP/][NAME=]FUNC[+OFF] [ARG=]FETCH[:TYPE]...`
    #[arg(long, value_name = "PROBE")]
    pub kprobe: Vec<String>,

    /// Record the return of a kernel function, with $retval
    #[arg(long, value_name = "PROBE")]
    pub kretprobe: Vec<String>,

    /// Record calls of a kernel function with typed arguments: `[NAME=]FUNC [[FIELD=]EXPRESSION]...`, such as
    /// 'vfs_read file->f_inode->i_ino count'
    #[arg(long, value_name = "PROBE")]
    pub fentry: Vec<String>,

    /// Record returns of a kernel function with typed arguments and $retval
    #[arg(long, value_name = "PROBE")]
    pub fexit: Vec<String>,

    /// Record calls of all kernel functions that match, as ftrace's function tracer does
    #[arg(long, value_name = "GLOB")]
    pub function: Vec<String>,

    /// Record calls and returns of all kernel functions that match, and of what they call, as ftrace's function graph tracer does
    #[arg(long, value_name = "GLOB")]
    pub function_graph: Vec<String>,

    /// Record so many levels of the graph, the functions of --function-graph being the first; 0 is all
    #[arg(long, value_name = "N", requires = "function_graph")]
    pub max_graph_depth: Option<u32>,

    /// Below the functions of --function-graph record only those that match
    #[arg(long, value_name = "GLOB", requires = "function_graph")]
    pub graph_filter: Vec<String>,

    /// How to hook the functions of a graph
    #[arg(long, value_name = "HOW", default_value = "auto", requires = "function_graph")]
    pub graph_hooks: GraphHooksArg,

    /// Record a place in a program or library: `[NAME=]PATH:FUNC[+OFF] [ARG=]FETCH[:TYPE]...`
    #[arg(long, value_name = "PROBE")]
    pub uprobe: Vec<String>,

    /// Record the return of a function in a program or library, with $retval
    #[arg(long, value_name = "PROBE")]
    pub uretprobe: Vec<String>,

    /// Record a marker in a program or library: `[NAME=]PATH:PROVIDER:MARKER [[ARG=]FETCH[:TYPE]...]`
    #[arg(long, value_name = "PROBE")]
    pub usdt: Vec<String>,
}

impl ProbeArgs {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        // What else there is needs --function-graph.
        let Self {
            kprobe, kretprobe, fentry, fexit, function, function_graph, uprobe, uretprobe, usdt, ..
        } = self;
        [kprobe, kretprobe, fentry, fexit, function, function_graph, uprobe, uretprobe, usdt]
            .iter()
            .all(|probes| probes.is_empty())
    }

    /// Adds the probes to what is recorded; `rules` are what is wanted of them, with what filters need to know.
    pub(super) fn add_to(
        &self,
        events: &mut EventPlan,
        rules: (&OptionRules, &Facts),
        tracefs: &Tracefs,
        btf: Result<&Btf, &BtfError>,
    ) -> Result<(), CliError> {
        if self.is_empty() {
            return Ok(());
        }
        self.add_typed(events, rules, btf)?;
        let environment = Environment::of_kernel(btf);
        if !self.kprobe.is_empty() || !self.kretprobe.is_empty() {
            let option = if self.kprobe.is_empty() { "--kretprobe" } else { "--kprobe" };
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            for (option, texts, returns) in
                [("--kprobe", &self.kprobe, false), ("--kretprobe", &self.kretprobe, true)]
            {
                add(events, option, texts, rules, |text, rule| {
                    kernel::probe(text, returns, &environment, &functions, tracefs, rule)
                })?;
            }
        }
        if !self.function.is_empty() {
            let option = "--function";
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            add(events, option, &self.function, rules, |pattern, _| {
                function::calls(pattern, &environment, &functions, tracefs)
            })?;
        }
        if !self.function_graph.is_empty() {
            let option = "--function-graph";
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            let options = graph::GraphOptions {
                roots: self.function_graph.clone(),
                only: self.graph_filter.clone(),
                max_depth: self.max_graph_depth,
                hooks: self.graph_hooks.asked(),
            };
            let planned = graph::graph(&options, &environment, btf.ok(), &functions, tracefs)
                .map_err(|error| CliError::Probe { option, error })?;
            add_planned(events, option, &self.function_graph.join(" "), planned, &EventRule::default())?;
        }
        for (option, texts, returns) in
            [("--uprobe", &self.uprobe, false), ("--uretprobe", &self.uretprobe, true)]
        {
            add(events, option, texts, rules, |text, rule| user::probe(text, returns, &environment, rule))?;
        }
        add(events, "--usdt", &self.usdt, rules, |text, rule| usdt::probe(text, &environment, rule))
    }

    fn add_typed(
        &self,
        events: &mut EventPlan,
        (rules, facts): (&OptionRules, &Facts),
        btf: Result<&Btf, &BtfError>,
    ) -> Result<(), CliError> {
        let probes = [("--fentry", &self.fentry, End::Entry), ("--fexit", &self.fexit, End::Exit)];
        for (option, texts, end) in probes {
            for (text, rule) in with_rules(option, texts, rules) {
                let btf = btf.map_err(|error| CliError::Kernel(format!("{option} needs types: {error}")))?;
                let wanted = probe_rule(events, &rule, facts);
                let planned =
                    Types::of_kernel(btf).plan(text, end, &wanted).map_err(|error| match error {
                        TypedError::NoTrampolines => CliError::Kernel(format!("{option}: {error}")),
                        _ => CliError::Usage(format!("{option} '{text}': {error}")),
                    })?;
                add_planned(events, option, text, planned, &rule)?;
            }
        }
        Ok(())
    }
}

/// Adds the probes of one option.
fn add(
    events: &mut EventPlan,
    option: &'static str,
    texts: &[String],
    (rules, facts): (&OptionRules, &Facts),
    probe: impl Fn(&str, &ProbeRule<'_>) -> Result<ProbePlan, DynamicError>,
) -> Result<(), CliError> {
    for (text, rule) in with_rules(option, texts, rules) {
        let wanted = probe_rule(events, &rule, facts);
        let planned = probe(text, &wanted).map_err(|error| CliError::Probe { option, error })?;
        add_planned(events, option, text, planned, &rule)?;
    }
    Ok(())
}

fn add_planned(
    events: &mut EventPlan,
    option: &str,
    text: &str,
    planned: ProbePlan,
    rule: &EventRule,
) -> Result<(), CliError> {
    events.add_probe(planned, rule).map_err(|error| CliError::Usage(format!("{option} '{text}': {error}")))
}

/// The texts of an option, with what is wanted of their events.
fn with_rules<'a>(
    option: &str,
    texts: &'a [String],
    rules: &OptionRules,
) -> impl Iterator<Item = (&'a str, EventRule)> {
    let rules = rules.of(option.trim_start_matches('-')).iter().cloned();
    texts.iter().map(String::as_str).zip(rules.chain(std::iter::repeat(EventRule::default())))
}

/// What is wanted of the next probe.
fn probe_rule<'a>(events: &EventPlan, rule: &'a EventRule, facts: &'a Facts) -> ProbeRule<'a> {
    ProbeRule { filter: rule.filter.as_ref(), contexts: &rule.contexts, facts, id: events.free_id() }
}
