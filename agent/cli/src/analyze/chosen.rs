//! The analyses by their names: each with what prints its answer. A file and a recording that goes on are
//! asked the same.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    calls, cpu, io, irqs, locks, memory, offcpu, sched,
    stacks::{self, StacksArgs},
    summary,
};
use crate::CliError;
use crate::exit::ExitCode;
use analysis::answers::{
    Analysis, Calls, Covered, Io, Irqs, Locks, Memory, OffCpu, Sched, Scope, Summary, Tid, Topic,
};
use report::TraceFile;
use tracedat::FileOption;
use tracedat::option::ProcMaps;
use tracedat::reader::Source;

/// The tables of an answer, with so many rows each.
pub(super) type Text<A> = fn(&<A as Analysis>::Answer, &Covered, usize) -> String;

/// What is done with an analysis.
pub(super) trait Ask {
    /// Does it.
    fn ask<A>(self, analysis: A, text: Text<A>) -> Result<ExitCode, CliError>
    where
        A: Analysis,
        A::Answer: Serialize;
}

/// Asks the analysis of this name about a part of a recording, which this file describes.
pub(super) fn ask<S: Source>(
    (topic, stacks): (Topic, &StacksArgs),
    scope: Scope,
    file: &TraceFile<S>,
    of: impl Ask,
) -> Result<ExitCode, CliError> {
    let syscalls = file.call_names();
    match topic {
        Topic::Sched => of.ask(Sched::new(scope), sched::text),
        Topic::Syscalls => of.ask(Calls::new(scope, syscalls), calls::text),
        Topic::Cpu => of.ask(stacks.cpu(file, &scope)?, cpu::text),
        Topic::Stacks => of.ask(stacks.stacks(file, &scope)?, stacks::text),
        Topic::Irq => of.ask(Irqs::new(scope), irqs::text),
        Topic::Offcpu => of.ask(OffCpu::new(scope), offcpu::text),
        Topic::Io => of.ask(Io::of(file, scope), io::text),
        Topic::Locks => {
            let locks = Locks::new(scope, syscalls, processes(file)).with_mappings(mappings(file));
            of.ask(locks, locks::text)
        }
        Topic::Memory => of.ask(Memory::new(scope), memory::text),
        Topic::Summary => of.ask(Summary::of(file, scope), summary::text),
    }
}

/// What processes have mapped, as far as the file says so: nothing, where it does not show which of them run
/// another program later.
fn mappings<S: Source>(file: &TraceFile<S>) -> impl Iterator<Item = ProcMaps> {
    let shows_execs =
        file.events().iter().any(|event| (event.system(), event.name()) == ("sched", "sched_process_exec"));
    file.reader().facts().filter(move |_| shows_execs).filter_map(|fact| match fact {
        FileOption::ProcMaps(maps) => Some(maps.clone()),
        _ => None,
    })
}

/// The threads that there were when the recording began, and when somebody asked for the state later, each
/// with its process, as far as the file says so. Of a number that was given out again the first one counts:
/// events tell of the others.
fn processes<S: Source>(file: &TraceFile<S>) -> Vec<(Tid, Tid)> {
    let mut processes = BTreeMap::new();
    for state in file.reader().states().filter_map(Result::ok) {
        for thread in state.threads {
            processes.entry(thread.tid).or_insert(thread.tgid);
        }
    }
    processes.into_iter().collect()
}
