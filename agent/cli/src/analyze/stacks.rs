//! `analyze stacks`: its options, and its answer as text.

use super::table::{Side::Left, Side::Right, Table, duration, percent};
use crate::error::CliError;
use crate::units::count;
use analysis::answers::{
    Covered, Cpu, FunctionWeight, Pick, Scope, StackWeight, Stacks, StacksAnswer, ThreadWeight, Topic, Weight,
};
use flame::Unit;
use report::TraceFile;
use tracedat::reader::Source;

/// Most functions of a stack that a table shows.
const SHOWN: usize = 8;

/// Which events `stacks` and `cpu` look at.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Stacks")]
pub struct StacksArgs {
    /// The events whose stacks are counted, as a filter: `sched:sched_switch: prev_state == 2`
    ///
    /// `stacks` needs it. `cpu` takes these events for samples instead of the ticks of CPUs.
    #[arg(long, value_name = "EVENT[: FILTER]")]
    pub event: Option<String>,

    /// What each event of `stacks` weighs: `count` (1), `time` (until the thread's next event of these), or a
    /// field
    #[arg(long, value_name = "count|time|FIELD")]
    pub weight: Option<String>,
}

impl StacksArgs {
    /// Refuses what an analysis does not take.
    pub(super) fn check(&self, topic: Topic) -> Result<(), CliError> {
        let is_about_events = matches!(topic, Topic::Stacks | Topic::Cpu);
        if self.event.is_some() && !is_about_events {
            return Err(CliError::usage(format!(
                "--event is for stacks and cpu; {} knows its events",
                topic.name()
            )));
        }
        if self.weight.is_some() && topic != Topic::Stacks {
            return Err(CliError::usage(format!(
                "--weight is for stacks; {} has weights of its own",
                topic.name()
            )));
        }
        Ok(())
    }

    pub(super) fn cpu<S: Source>(&self, file: &TraceFile<S>, scope: &Scope) -> Result<Cpu, CliError> {
        Ok(match &self.event {
            None => Cpu::of_ticks(file, scope.clone()),
            Some(event) => Cpu::of_samples(scope.clone(), Pick::of(file, event, &Weight::Count)?),
        })
    }

    pub(super) fn stacks<S: Source>(&self, file: &TraceFile<S>, scope: &Scope) -> Result<Stacks, CliError> {
        let event = self.event.as_ref().ok_or_else(|| {
            CliError::usage(
                "stacks needs --event EVENT; `tracer-agent record -e EVENT -T --user-stack` records one with its stacks",
            )
        })?;
        let Ok(weight) = self.weight.as_deref().unwrap_or("count").parse::<Weight>();
        Ok(Stacks::new(scope.clone(), Pick::of(file, event, &weight)?))
    }
}

/// Tables of threads, functions and stacks.
pub(super) fn text(answer: &StacksAnswer, _: &Covered, limit: usize) -> String {
    let of = Of { unit: &answer.unit, all: answer.all.weight };
    let mut text = format!("{} events, {}\n", count(answer.all.count), of.amount(answer.all.weight));
    if answer.without_stack.count != 0 {
        text += &format!("{} of them have no stack\n", count(answer.without_stack.count));
    }
    if answer.without_weight != 0 {
        text += &match &answer.unit {
            Unit::Field(field) => {
                format!(
                    "{} events have no positive {field} and are not counted\n",
                    count(answer.without_weight)
                )
            }
            _ => format!(
                "{} events are not counted: the last ones of their threads, or before a loss\n",
                count(answer.without_weight)
            ),
        };
    }
    text += &no_room(answer.others.count);
    text + &of.tables(&answer.threads, &answer.functions, &answer.stacks, limit)
}

/// Says what found no room.
pub(super) fn no_room(events: u64) -> String {
    if events == 0 {
        String::new()
    } else {
        format!("{} more found no room for their stacks\n", count(events))
    }
}

/// Weights, and what they are a part of.
pub(super) struct Of<'u> {
    pub(super) unit: &'u Unit,
    pub(super) all: u64,
}

impl Of<'_> {
    /// A weight with its unit.
    fn amount(&self, weight: u64) -> String {
        match self.unit {
            Unit::Nanoseconds => duration(weight),
            Unit::Field(field) => format!("{field} {}", count(weight)),
            unit => format!("{} {}", count(weight), unit.name()),
        }
    }

    fn cell(&self, weight: u64) -> String {
        if *self.unit == Unit::Nanoseconds { duration(weight) } else { count(weight) }
    }

    /// What the column of weights is called.
    fn head(&self) -> &'static str {
        match self.unit {
            Unit::Nanoseconds => "TIME",
            Unit::Samples => "SAMPLES",
            Unit::Events => "EVENTS",
            Unit::Field(_) => "WEIGHT",
        }
    }

    /// Whether weights are more than numbers of events.
    fn is_weighed(&self) -> bool {
        matches!(self.unit, Unit::Nanoseconds | Unit::Field(_))
    }

    pub(super) fn tables(
        &self,
        threads: &[ThreadWeight],
        functions: &[FunctionWeight],
        stacks: &[StackWeight],
        limit: usize,
    ) -> String {
        let head = self.head();
        let mut of_threads = Table::new(
            "Threads",
            &[&[("THREAD", Left), ("TID", Right), ("COUNT", Right), (head, Right), ("%", Right)]],
        );
        if !self.is_weighed() {
            of_threads =
                Table::new("Threads", &[&[("THREAD", Left), ("TID", Right), (head, Right), ("%", Right)]]);
        }
        for of in threads {
            let mut cells = vec![of.comm.clone(), of.tid.to_string()];
            cells.extend(self.is_weighed().then(|| count(of.sum.count)));
            cells.extend([self.cell(of.sum.weight), percent(of.sum.weight, self.all)]);
            of_threads.row(&[&cells]);
        }
        let heads =
            [("OWN", Right), ("%", Right), ("TOTAL", Right), ("%", Right), ("OF", Left), ("FUNCTION", Left)];
        let mut of_functions = Table::new(
            "Functions, by where they are the innermost one; TOTAL: with what they call",
            &[&heads],
        );
        for of in functions {
            of_functions.row(&[&[
                self.cell(of.own_weight),
                percent(of.own_weight, self.all),
                self.cell(of.total_weight),
                percent(of.total_weight, self.all),
                if of.is_kernel { "kernel" } else { "user" }.to_owned(),
                of.name.to_string(),
            ]]);
        }
        let heads = [(head, Right), ("%", Right), ("THREAD", Left), ("TID", Right), ("STACK", Left)];
        let mut of_stacks = Table::new("Stacks, from the innermost function", &[&heads]);
        for of in stacks {
            of_stacks.row(&[&[
                self.cell(of.sum.weight),
                percent(of.sum.weight, self.all),
                of.comm.clone(),
                of.tid.to_string(),
                stack(of),
            ]]);
        }
        of_threads.text(limit) + &of_functions.text(limit) + &of_stacks.text(limit)
    }
}

/// The innermost functions of a stack.
fn stack(of: &StackWeight) -> String {
    let names: Vec<&str> = of.kernel.iter().chain(&of.user).map(AsRef::as_ref).collect();
    let shown = names.get(..SHOWN).unwrap_or(&names).join(" < ");
    if names.len() > SHOWN { shown + " < ..." } else { shown }
}
