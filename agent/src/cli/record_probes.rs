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
        dynamic::{DynamicError, Environment, kernel, usdt, user},
        plan::ProbePlan,
    },
};

/// Probes to record.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Probes")]
pub struct ProbeArgs {
    /// Record a place in a kernel function, or the entries of all that match: [GRP/][NAME=]FUNC[+OFF] [ARG=]FETCH[:TYPE]...
    #[arg(long, value_name = "PROBE")]
    pub kprobe: Vec<String>,

    /// Record the return of a kernel function, with $retval
    #[arg(long, value_name = "PROBE")]
    pub kretprobe: Vec<String>,

    /// Record a place in a program or library: [NAME=]PATH:FUNC[+OFF] [ARG=]FETCH[:TYPE]...
    #[arg(long, value_name = "PROBE")]
    pub uprobe: Vec<String>,

    /// Record the return of a function in a program or library, with $retval
    #[arg(long, value_name = "PROBE")]
    pub uretprobe: Vec<String>,

    /// Record a marker in a program or library: [NAME=]PATH:PROVIDER:MARKER [[ARG=]FETCH[:TYPE]...]
    #[arg(long, value_name = "PROBE")]
    pub usdt: Vec<String>,
}

impl ProbeArgs {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        let Self { kprobe, kretprobe, uprobe, uretprobe, usdt } = self;
        [kprobe, kretprobe, uprobe, uretprobe, usdt].iter().all(|probes| probes.is_empty())
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
}
