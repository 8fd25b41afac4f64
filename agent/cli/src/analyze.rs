//! `tracer-agent analyze`: what threads, CPUs, system calls and interrupts did.

mod calls;
mod chosen;
mod cpu;
mod flame;
mod io;
mod irqs;
pub(super) mod live;
mod locks;
mod memory;
mod offcpu;
mod sched;
pub(super) mod stacks;
mod summary;
mod table;

use std::{
    collections::BTreeSet,
    io::{IsTerminal as _, Write},
    path::PathBuf,
};

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser as _};
use serde::Serialize;

use self::{
    chosen::{Ask, Text},
    table::{Side::Left, Table, seconds},
};
use super::{
    error::{CliError, repair_hint},
    examples,
    exit::ExitCode,
    input::{self, Opened},
    json_line,
    new_files::NewFileArgs,
    progress::ReadingLine,
    remote::AccessArgs,
    tell,
    units::count,
    write_all,
};
use analysis::answers;
use analysis::answers::{Analysis, Covered, Partly, Scope, Topic};
use report::TraceFile;
use stdx::input::cpus::CpuSet;
use stdx::input::glob;
use stdx::terminal;
use tracedat::ledger::{Ledger, in_buffer};
use tracedat::reader::Source;

/// Answer a question about a recording
///
/// `sched`: how long threads ran, waited for a CPU and slept, and how long it took from a wakeup to the CPU.
/// `offcpu`: where threads slept and what for, in which stacks, and who woke them. `cpu`: what CPUs did, by
/// their ticks. `stacks`: the stacks of any event. `syscalls`: how often system calls were made, how long
/// they took, with which errors, and how much of that their threads slept. `io`: how long requests to block
/// devices took, how many there were at a time, and who made them; which files were opened, read and
/// written, how much, how fast, and by which threads. `irq`: how long interrupts and soft interrupts took,
/// and how late soft interrupts were. `locks`: how long threads waited for locks of the kernel and for
/// futexes, and who held them up. `memory`: who allocated pages and memory of the kernel, what is still
/// there, and reclaim. `summary`: the busiest, the slowest and the oddest, in one screen.
///
/// `record --for NAME` records the events that an analysis uses. What it cannot know because events are
/// missing or were lost is told, and counted as unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::ANALYZE)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Args {
    /// The analysis
    #[arg(
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(Topic::NAMES.map(|(name, _)| name)).try_map(|name| name.parse::<Topic>())
    )]
    pub topic: Topic,

    /// The file to read, or an object in a store (s3://BUCKET/NAME and others), of which only what is needed
    /// is fetched
    #[arg(value_name = "FILE", default_value = "trace.dat")]
    pub file: PathBuf,

    /// From this time on, as `report` prints times: 1234.567890123. What came before is still looked at
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<u64>,

    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<u64>,

    /// Only on these CPUs, a list such as 0-3,8. A time belongs to the CPU on which it ends
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse_list)]
    pub cpu: Option<CpuSet>,

    /// Only these threads; repeatable, or a list: 12,34
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Only threads whose name matches GLOB; repeatable
    #[arg(long, value_name = "GLOB", value_parser = OsStringValueParser::new().map(glob::argument))]
    pub comm: Vec<String>,

    /// Also threads that were not to be recorded, and are there as ones that switched with those that were,
    /// or were woken by them
    #[arg(long)]
    pub all: bool,

    /// Only events of this buffer. Without it, an event is taken from the first buffer that has it
    #[arg(short = 'B', long, value_name = "NAME")]
    pub buffer: Option<String>,

    /// Answer each second, or TIME (from 100ms on), while the recording goes on; on a terminal in place
    ///
    /// FILE is the name that the recording will have. Each answer is about the interval that has passed, by
    /// the recording's clock. Ctrl-C ends it. Without a recording of that name, FILE is answered for once.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = live::interval
    )]
    pub live: Option<u64>,

    /// With --live, answer each time about all from the beginning of the recording on
    #[arg(long, requires = "live")]
    pub cumulative: bool,

    /// Print so many rows of each table
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// Print JSON: one object, with all rows; with --live one on each line
    #[arg(long)]
    pub json: bool,

    /// Print which events the analysis uses, and the command that records them; no file is read
    #[arg(long, conflicts_with_all = ["file", "json", "live"])]
    pub events: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its option is documented")]
    pub new_files: NewFileArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub stacks: stacks::StacksArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub flame: flame::FlameArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: AccessArgs,
}

/// The file does not count in nanoseconds, so that nothing can be told of durations.
const NO_NANOSECONDS: &str = "the clock of this recording does not count nanoseconds, so there are no durations; record \
                              with the clock mono, boot or tai (`record -C`)";

/// Nanoseconds of a time that was written as `report` prints it.
fn time(text: &str) -> Result<u64, String> {
    let wrong = || "expected seconds, such as 1234.5".to_owned();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > 9 || !is_number(seconds) || !is_number(fraction) || seconds.is_empty() {
        return Err(wrong());
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    seconds.checked_mul(1_000_000_000).and_then(|found| found.checked_add(nanoseconds)).ok_or_else(wrong)
}

/// An answer as JSON.
#[derive(Serialize)]
struct Json<'a, A> {
    analysis: &'static str,
    covered: &'a Covered,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<live::Lateness>,
    #[serde(flatten)]
    answer: &'a A,
}

/// Analyses.
///
/// # Errors
/// No such file or buffer, a clock that counts no nanoseconds, none of the events, or the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    if args.events {
        write_all(out, &needs(args.topic))?;
        return Ok(ExitCode::Ok);
    }
    args.stacks.check(args.topic)?;
    let name = args.file.display().to_string();
    if let Some(interval) = args.live {
        return match live::run(args, interval)? {
            live::Shown::NotThere => live::once(args, &name, out),
            live::Shown::Finished(file) => whole(args, &name, Box::new(file), out),
            live::Shown::Ended(code) => Ok(code),
        };
    }
    let file = input::open_source(&args.file, &args.access).map_err(input::not_opened(&args.file))?;
    whole(args, &name, file, out)
}

/// Answers about a file.
fn whole(args: &Args, name: &str, file: Opened, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let file = TraceFile::open(name, file)
        .map_err(|error| CliError::Failed(format!("cannot read {name}: {error}{}", repair_hint(&error))))?;
    if !file.counts_nanoseconds() {
        return Err(CliError::Failed(format!("{name}: {NO_NANOSECONDS}")));
    }
    let scope = scope(args)?;
    check_buffer(&scope, &file)?;
    if let Some(path) = &args.flame.flame {
        return flame::run(args, path, &file, &scope, out);
    }
    let whole = Whole { args, file: &file, scope: &scope, out };
    chosen::ask((args.topic, &args.stacks), scope.clone(), &file, whole)
}

fn scope(args: &Args) -> Result<Scope, CliError> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        return Err(CliError::usage("--from is not before --to"));
    }
    let tids: BTreeSet<u32> = args.pid.iter().copied().collect();
    Ok(Scope {
        from: args.from,
        to: args.to,
        cpus: args.cpu.as_ref().map(|cpus| cpus.iter().collect()),
        tids: (!tids.is_empty()).then_some(tids),
        names: args.comm.clone(),
        others: args.all,
        buffer: args.buffer.clone(),
    })
}

/// Whether a file has the buffer that is asked about.
fn check_buffer<S: Source>(scope: &Scope, file: &TraceFile<S>) -> Result<(), CliError> {
    let buffers = file.reader().buffers();
    if let Some(name) =
        scope.buffer.as_ref().filter(|name| buffers.iter().all(|buffer| buffer.name != **name))
    {
        let names: Vec<&str> =
            buffers.iter().map(|buffer| buffer.name.as_str()).filter(|name| !name.is_empty()).collect();
        let there = if names.is_empty() { "it has none with a name".to_owned() } else { names.join(", ") };
        return Err(CliError::usage(format!("-B {name}: the file has no such buffer ({there})")));
    }
    Ok(())
}

/// The answer of an analysis.
fn ask<A: Analysis>(
    args: &Args,
    file: &TraceFile<Opened>,
    scope: &Scope,
    analysis: A,
) -> Result<(A::Answer, Covered), CliError> {
    let mut line = ReadingLine::new(std::io::stderr().is_terminal(), file.reader().span());
    let answered = answers::answer(file, args.topic, scope, analysis, &mut |now| line.show(now));
    let (answer, covered) = answered.map_err(|error| {
        CliError::Failed(format!("cannot read {}: {error}{}", file.name(), repair_hint(&error)))
    })?;
    drop(line);
    check_needs(file, args.topic, (scope, &covered))?;
    Ok((answer, covered))
}

/// Whether there is an answer without what is missing.
fn check_needs<S: Source>(
    file: &TraceFile<S>,
    topic: Topic,
    (scope, covered): (&Scope, &Covered),
) -> Result<(), CliError> {
    let name = file.name();
    let mut lacks = covered.missing.iter().chain(&covered.unseen);
    let Some(need) = lacks.find(|need| need.is_required) else { return Ok(()) };
    let (events, needs) =
        (need.events.join(" or "), format!("which {} needs to tell {}", topic.name(), need.tells));
    let is_part =
        scope.to.is_some() || scope.buffer.is_some() || Ledger::all_of(file.reader()).any(|of| of.part);
    Err(CliError::Failed(if let Some(event) = covered.foreign.first() {
        format!("the fields of {} in {name} are not those of the kernel, {needs}", terminal::name(event))
    } else if is_part && !covered.missing.contains(need) {
        format!("there is no {events} in what is asked about of {name}, {needs}")
    } else {
        format!("{name} has no {events}, {needs}; record with: {}", record_line(topic))
    }))
}

/// A finished recording.
struct Whole<'a> {
    args: &'a Args,
    file: &'a TraceFile<Opened>,
    scope: &'a Scope,
    out: &'a mut dyn Write,
}

impl Ask for Whole<'_> {
    fn ask<A>(self, analysis: A, text: Text<A>) -> Result<ExitCode, CliError>
    where
        A: Analysis,
        A::Answer: Serialize,
    {
        let Self { args, file, scope, out } = self;
        let (answer, covered) = ask(args, file, scope, analysis)?;
        if args.json {
            let json = Json { analysis: args.topic.name(), covered: &covered, live: None, answer: &answer };
            write_all(out, &json_line(&json)?)?;
        } else {
            let head = head(file.name(), file, &covered) + &gaps(args.topic, &covered, NOT_SEEN);
            write_all(out, &(head + &text(&answer, &covered, args.limit)))?;
        }
        Ok(damage(file.name(), covered.damaged))
    }
}

/// Says what could not be read.
fn damage(name: &str, damaged: u64) -> ExitCode {
    if damaged == 0 {
        return ExitCode::Ok;
    }
    tell(&format!(
        "tracer-agent: {damaged} pages of {name} are damaged and not part of the answer; `tracer-agent check` shows \
         where"
    ));
    ExitCode::Failure
}

/// What was not recorded of an event.
fn left_out(partly: &Partly) -> String {
    let Partly { event, buffer, filter, filtered, sampled_out, since_ns, until_ns, .. } = partly;
    let mut reasons = Vec::new();
    reasons
        .extend(filter.as_ref().map(|filter| format!("its filter ({filter}) left out {}", count(*filtered))));
    if partly.without_interrupts {
        let why = "it is missing of interrupts that came while a thread had the CPU that was left out, such as the recorder's";
        reasons.push(why.to_owned());
    }
    if *sampled_out != 0 {
        reasons.push(format!("sampling left out {}", count(*sampled_out)));
    }
    reasons.extend(since_ns.map(|time| format!("it was added at {}", seconds(time))));
    reasons.extend(until_ns.map(|time| format!("it was removed at {}", seconds(time))));
    format!("unknown: what {} tells each time; {}", in_buffer(event, buffer), reasons.join(", "))
}

/// The events that an analysis uses, and how they are recorded.
fn needs(topic: Topic) -> String {
    let mut table = Table::new("", &[&[("TELLS", Left), ("NEEDED", Left), ("EVENTS", Left)]]);
    for need in topic.needs() {
        let needed = if need.is_required { "yes" } else { "no" };
        table.row(&[&[need.tells.to_owned(), needed.to_owned(), need.events.join(" or ")]]);
    }
    let text = table.text(usize::MAX);
    format!("{}\nRecord with: {}\n", text.trim_start_matches('\n'), record_line(topic))
}

/// The command that records what an analysis uses. One that uses no events of its own takes any.
fn record_line(topic: Topic) -> String {
    if topic.needs().is_empty() {
        return "tracer-agent record -e EVENT -T --user-stack".to_owned();
    }
    format!("tracer-agent record --for {}", topic.name())
}

/// Why it is not known what an event tells of which there is none.
const NOT_SEEN: &str = "there are no {}, and the file does not say whether they were recorded";

/// What the answer is about.
fn head<S: Source>(name: &str, file: &TraceFile<S>, covered: &Covered) -> String {
    format!(
        "{name}: {} from {} to {}, {} events used\n",
        table::duration(covered.to_ns.saturating_sub(covered.from_ns)),
        file.time_text(covered.from_ns, true),
        file.time_text(covered.to_ns, true),
        count(covered.events)
    )
}

/// What the answer does not know. `unseen` says it of events that it needs and of which there are none, which
/// stand for `{}`.
fn gaps(topic: Topic, covered: &Covered, unseen: &str) -> String {
    let mut text = String::new();
    if covered.losses != 0 {
        let (lost, places) = (count(covered.lost_events), count(covered.losses));
        let lost = match (covered.lost_events, covered.losses_uncounted) {
            (_, 0) => format!("{lost} events were lost"),
            (0, _) => "events were lost, it is not known how many,".to_owned(),
            _ => format!("{lost} events or more were lost"),
        };
        let places = if covered.losses == 1 { "once".to_owned() } else { format!("at {places} places") };
        text += &format!("{lost} {places}; what lasted over such a loss is unknown, and not in the counts\n");
    }
    if covered.pauses != 0 {
        let times =
            if covered.pauses == 1 { "once".to_owned() } else { format!("{} times", count(covered.pauses)) };
        let paused = table::duration(covered.paused_ns);
        text += &format!(
            "paused {times}, for {paused}; what lasted over a pause is unknown, and not in the counts\n"
        );
    }
    for event in &covered.foreign {
        text += &format!("not used: {}; its fields are not those of the kernel\n", terminal::name(event));
    }
    if covered.unread != 0 {
        text += &format!(
            "{} records have values that are not understood; what lasted over one is unknown\n",
            count(covered.unread)
        );
    }
    if covered.lacks_contexts {
        text += "unknown: what interrupts did, which counts for the threads that they interrupted; \
            the recording does not tell them apart\n";
    }
    for need in &covered.missing {
        text += &format!("unknown: {}; the recording has no {}\n", need.tells, need.events.join(" or "));
    }
    for need in &covered.unseen {
        text += &format!("unknown: {}; {}\n", need.tells, unseen.replace("{}", &need.events.join(" or ")));
    }
    for only in &covered.only {
        text += &format!("unknown: what others did; recorded were only {}\n", terminal::name(only));
    }
    if let Some(calls @ 1..) = covered.compat_calls_of_all {
        let of_all = if covered.compat_calls.is_some() { "" } else { " in the whole recording" };
        text += &format!(
            "unknown: what 32-bit programs did in system calls; syscalls:* left out {} of them{of_all}; record raw_syscalls to have them\n",
            count(calls)
        );
    }
    text += match covered.compat_unmarked {
        Some(false) => "",
        Some(true) => {
            "unknown: which system calls are those of 32-bit programs; this kernel does not say, and they have the names of 64-bit calls with the same numbers\n"
        }
        None => {
            "unknown: whether 32-bit programs made any of the system calls; if so, they have the names of 64-bit calls with the same numbers\n"
        }
    };
    for event in &covered.unjoined {
        text += &format!(
            "unknown: when what {} begins has ended; filters, sampling or a choice of threads or CPUs left out others than of its end\n",
            terminal::name(event)
        );
    }
    for partly in &covered.partly {
        text += &terminal::name(&left_out(partly));
        text.push('\n');
    }
    if !covered.missing.is_empty() {
        text += &format!("all of it is recorded by: {}\n", record_line(topic));
    }
    if covered.of_other_buffers != 0 {
        text += &format!(
            "{} records are in another buffer as well, and not counted twice; -B chooses a buffer\n",
            count(covered.of_other_buffers)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_report_prints_them() {
        assert_eq!(time("12.5"), Ok(12_500_000_000));
        assert_eq!(time("7"), Ok(7_000_000_000));
        assert_eq!(time("0.000000001"), Ok(1));
        for bad in ["", ".5", "1.0000000001", "-1", "1e3", "1.x", "99999999999999"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
