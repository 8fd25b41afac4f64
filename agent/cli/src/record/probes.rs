//! The options of `record` that make probes.

use clap::{ArgMatches, Args};

use super::wanted::indices;
use spec::{GraphHooks, GraphSpec, What};

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

impl From<GraphHooksArg> for GraphHooks {
    fn from(hooks: GraphHooksArg) -> Self {
        match hooks {
            GraphHooksArg::Auto => Self::Auto,
            GraphHooksArg::Session => Self::Session,
            GraphHooksArg::Returns => Self::Returns,
            GraphHooksArg::Kprobes => Self::Kprobes,
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

    /// Record the return of a function of a program or library, with $retval; in Go programs at its return
    /// instructions
    #[arg(long, value_name = "PROBE")]
    pub uretprobe: Vec<String>,

    /// Make the kernel's own return probes in Go programs, which may end their processes. Without it,
    /// --uretprobe puts its probes on their return instructions
    #[arg(long)]
    pub force: bool,

    /// Record a USDT marker of a program or library: `[NAME=]PATH:PROVIDER:MARKER [[ARG=]FETCH[:TYPE]...]`.
    /// With a pattern, such as PROVIDER:*, each marker that matches is an event, named after it
    #[arg(long, value_name = "PROBE")]
    pub usdt: Vec<String>,
}

/// An option, what it was given, and what that selects.
type OfOption<'a> = (&'static str, &'a [String], fn(String) -> What);

impl ProbeArgs {
    /// What they select, each with its index on the command line.
    pub(crate) fn selections(&self, matches: &ArgMatches) -> Vec<(usize, What)> {
        let Self {
            kprobe,
            kretprobe,
            fentry,
            fexit,
            function,
            function_graph,
            max_graph_depth,
            graph_filter,
            graph_hooks,
            uprobe,
            uretprobe,
            force: _,
            usdt,
        } = self;
        let options: [OfOption<'_>; 8] = [
            ("kprobe", kprobe, What::Kprobe),
            ("kretprobe", kretprobe, What::Kretprobe),
            ("fentry", fentry, What::Fentry),
            ("fexit", fexit, What::Fexit),
            ("function", function, What::Function),
            ("uprobe", uprobe, What::Uprobe),
            ("uretprobe", uretprobe, What::Uretprobe),
            ("usdt", usdt, What::Usdt),
        ];
        let mut found = Vec::new();
        for (option, texts, what) in options {
            found.extend(indices(matches, option).zip(texts.iter().cloned().map(what)));
        }
        // One graph has all roots.
        if let Some(last) = indices(matches, "function_graph").last() {
            let graph = GraphSpec {
                roots: function_graph.clone(),
                only: graph_filter.clone(),
                max_depth: *max_graph_depth,
                hooks: (*graph_hooks).into(),
            };
            found.push((last, What::FunctionGraph(graph)));
        }
        found
    }
}
