//! The options of `record` that make probes.

use clap::Args;

use super::{CliError, record_scope::OptionRules};
use crate::{
    capture::{EventPlan, EventRule},
    compile::{
        dynamic::{DynamicError, Environment, IsTaken, Planned, function, graph, kernel, usdt, user},
        filter::Facts,
        plan::ProbePlan,
        probe_filter::ProbeRule,
        typed::{End, TypedError, Types},
    },
    kernel::{
        btf::{Btf, BtfError},
        tracefs::Tracefs,
    },
};

/// How the functions of a call graph are hooked.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphHooksArg {
    /// The first of the following that the kernel supports.
    #[default]
    Auto,
    /// One program at entries and returns (Linux 6.10).
    Session,
    /// One program at entries, one at returns (5.18).
    Returns,
    /// A kprobe for each entry and return, for few functions (6.0).
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
    /// Record a kernel function, a place in it, or all functions that match, as one event:
    /// `[GRP/][NAME=]FUNC[+OFF] [ARG=]FETCH[:TYPE]...`
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

    /// Record calls and returns of all kernel functions that match, and of what they call, as ftrace's
    /// function graph tracer does
    #[arg(long, value_name = "GLOB")]
    pub function_graph: Vec<String>,

    /// Maximum depth of the graph, counted from the functions of --function-graph; 0 means unlimited
    #[arg(long, value_name = "N", requires = "function_graph")]
    pub max_graph_depth: Option<u32>,

    /// Record only matching functions below those of --function-graph
    #[arg(long, value_name = "GLOB", requires = "function_graph")]
    pub graph_filter: Vec<String>,

    /// How to attach to the functions of a graph
    #[arg(long, value_name = "HOW", default_value = "auto", requires = "function_graph")]
    pub graph_hooks: GraphHooksArg,

    /// Record a function of a program or library, or a place in it: `[NAME=]PATH:FUNC[+OFF]
    /// [ARG=]FETCH[:TYPE]...`. A pattern makes an event of each function that matches, named after it
    /// ('libc.so.6:pthread_mutex_*'); with NAME= all of them are one event
    #[arg(long, value_name = "PROBE")]
    pub uprobe: Vec<String>,

    /// Record the return of a function of a program or library, with $retval
    #[arg(long, value_name = "PROBE")]
    pub uretprobe: Vec<String>,

    /// Record a USDT marker of a program or library: `[NAME=]PATH:PROVIDER:MARKER [[ARG=]FETCH[:TYPE]...]`.
    /// With a pattern, such as PROVIDER:*, each marker that matches is an event, named after it
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

    /// Adds the probes to what is recorded; `rules` are what is wanted of them, with what filters need to
    /// know. Gives what of the patterns cannot be recorded, for the user.
    pub(super) fn add_to(
        &self,
        events: &mut EventPlan,
        rules: (&OptionRules, &Facts),
        tracefs: &Tracefs,
        btf: Result<&Btf, &BtfError>,
    ) -> Result<Vec<String>, CliError> {
        let mut notes = Vec::new();
        if self.is_empty() {
            return Ok(notes);
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
                notes.extend(add(events, option, texts, rules, |text, rule, _| {
                    kernel::probe(text, returns, &environment, &functions, tracefs, rule).map(Planned::from)
                })?);
            }
        }
        if !self.function.is_empty() {
            let option = "--function";
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            notes.extend(add(events, option, &self.function, rules, |pattern, _, _| {
                function::calls(pattern, &environment, &functions, tracefs).map(Planned::from)
            })?);
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
            notes.extend(add(events, option, texts, rules, |text, rule, is_taken| {
                user::probes(text, returns, &environment, rule, is_taken)
            })?);
        }
        notes.extend(add(events, "--usdt", &self.usdt, rules, |text, rule, is_taken| {
            usdt::probes(text, &environment, rule, is_taken)
        })?);
        Ok(notes)
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

/// Adds the probes of one option. Gives what of the patterns cannot be recorded.
fn add(
    events: &mut EventPlan,
    option: &'static str,
    texts: &[String],
    (rules, facts): (&OptionRules, &Facts),
    probe: impl Fn(&str, &ProbeRule<'_>, IsTaken<'_>) -> Result<Planned, DynamicError>,
) -> Result<Vec<String>, CliError> {
    let mut notes = Vec::new();
    for (text, rule) in with_rules(option, texts, rules) {
        let wanted = probe_rule(events, &rule, facts);
        let is_taken = |system: &str, name: &str| events.has_event(system, name);
        let Planned { probes, left_out } =
            probe(text, &wanted, &is_taken).map_err(|error| CliError::Probe { option, error })?;
        for planned in probes {
            add_planned(events, option, text, planned, &rule)?;
        }
        notes.extend(left_out.into_iter().map(|(name, error)| format!("not recorded: {name}: {error}")));
    }
    Ok(notes)
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
