//! The options of `record` that make probes.

use clap::Args;

use super::CliError;
use crate::{
    capture::EventPlan,
    kernel::{
        btf::{Btf, BtfError},
        tracefs::Tracefs,
    },
    probe::{
        dynamic::{DynamicError, Environment, function, kernel, usdt, user},
        plan::ProbePlan,
        typed::{End, TypedError, Types},
    },
};

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
        let Self { kprobe, kretprobe, fentry, fexit, function, uprobe, uretprobe, usdt } = self;
        [kprobe, kretprobe, fentry, fexit, function, uprobe, uretprobe, usdt]
            .iter()
            .all(|probes| probes.is_empty())
    }

    /// Adds the probes to what is recorded.
    pub(super) fn add_to(
        &self,
        events: &mut EventPlan,
        tracefs: &Tracefs,
        btf: Result<&Btf, &BtfError>,
    ) -> Result<(), CliError> {
        if self.is_empty() {
            return Ok(());
        }
        self.add_typed(events, btf)?;
        let environment = Environment::of_kernel(btf);
        let mut add = |option, text: &str, planned: Result<ProbePlan, DynamicError>| {
            let error = |error| CliError::Probe { option, error };
            events
                .add_probe(planned.map_err(error)?)
                .map_err(|error| CliError::Usage(format!("{option} '{text}': {error}")))
        };
        if !self.kprobe.is_empty() || !self.kretprobe.is_empty() {
            let option = if self.kprobe.is_empty() { "--kretprobe" } else { "--kprobe" };
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            for (option, texts, returns) in
                [("--kprobe", &self.kprobe, false), ("--kretprobe", &self.kretprobe, true)]
            {
                for text in texts {
                    add(option, text, kernel::probe(text, returns, &environment, &functions, tracefs))?;
                }
            }
        }
        if !self.function.is_empty() {
            let option = "--function";
            let functions =
                kernel::KernelFunctions::read().map_err(|error| CliError::Probe { option, error })?;
            for pattern in &self.function {
                add(option, pattern, function::calls(pattern, &environment, &functions, tracefs))?;
            }
        }
        for (option, texts, returns) in
            [("--uprobe", &self.uprobe, false), ("--uretprobe", &self.uretprobe, true)]
        {
            for text in texts {
                add(option, text, user::probe(text, returns, &environment))?;
            }
        }
        for text in &self.usdt {
            add("--usdt", text, usdt::probe(text, &environment))?;
        }
        Ok(())
    }

    fn add_typed(&self, events: &mut EventPlan, btf: Result<&Btf, &BtfError>) -> Result<(), CliError> {
        let probes = [("--fentry", &self.fentry, End::Entry), ("--fexit", &self.fexit, End::Exit)];
        for (option, texts, end) in probes {
            for text in texts {
                let btf = btf.map_err(|error| CliError::Kernel(format!("{option} needs types: {error}")))?;
                let planned = Types::of_kernel(btf).plan(text, end).map_err(|error| match error {
                    TypedError::NoTrampolines => CliError::Kernel(format!("{option}: {error}")),
                    _ => CliError::Usage(format!("{option} '{text}': {error}")),
                })?;
                events
                    .add_probe(planned)
                    .map_err(|error| CliError::Usage(format!("{option} '{text}': {error}")))?;
            }
        }
        Ok(())
    }
}
