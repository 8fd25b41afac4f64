//! `tracer-agent hist`: counts, sums, latencies and distributions.

mod text;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::{CliError, repair_hint};
use super::examples;
use super::exit::ExitCode;
use super::progress::ReadingLine;
use super::units::count;
use super::{sorted_json_line, tell, write_all};
use analysis::Watch;
use analysis::groups::Limits;
use analysis::histogram;
use analysis::histogram::{Histogram, Order};
use analysis::json::{HistogramJson, LatencyByJson, SpreadJson, StacksJson};
use analysis::key::Key;
use analysis::latency;
use analysis::latency::{Latency, LatencyBy};
use analysis::spread;
use analysis::spread::Spread;
use analysis::stack_tree;
use analysis::stack_tree::StackCounts;
use ftrace_event::filter::Filter;
use report::TraceFile;

/// Count events by their fields or stacks, or measure the time between two events
///
/// `hist EVENT FIELD...` counts how often each combination of values occurs. EVENT is a filter as in `report
/// -F`: names, patterns, several with commas, and a condition if wanted (`sched_switch: prev_pid != 0`).
/// FIELD is a field of the event, COMM, CPU, event (the event's name), a context as in `record --count`
/// ($tid, $comm, $cpu, and those of `record --context`), arithmetic with fields (`ret >> 10`,
/// `(addr & ~0xfff).hex`), or stacktrace, which prints the stacks of the events as a tree.
///
/// `hist EVENT FIELD --by KEY` prints the distribution of a field's values for each value of KEY.
///
/// `hist --from EVENT --to EVENT --key FIELD` prints the distribution of the time from each first event to
/// the next second one with the same FIELD; with --by KEY, one distribution for each value of KEY.
///
/// A modifier after a field selects how its values are shown or grouped: FIELD.hex (hexadecimal), .sym (the
/// function at the address), .sym-offset (function and offset), .syscall (name of the system call), .execname
/// (name and number of the thread), .log2 (powers of two), .buckets=N (ranges of N), .name (the name that the
/// event's format has for the value, or those of the flags that are set). --by shows system calls, threads
/// and values with names by name without a modifier.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::HIST)]
pub struct Args {
    /// The file to read (trace.dat if the first word is not the name of a file), the events, and the fields
    /// to count by [default: event]
    #[arg(value_name = "[FILE] [EVENT [FIELD]...]", num_args = 0..)]
    pub words: Vec<OsString>,

    /// The file to read, as trace-cmd takes it; then all words are EVENT and FIELDs
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Print a distribution for each value of this field: of the times, or of the values of FIELD
    ///
    /// With --from and --to it is a field of the first event, or of the second if the first does not have it.
    /// Can be given more than once, or with commas, for combinations of values.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub by: Vec<String>,

    /// With --by, print so many distributions, those with the largest totals, and all others as one
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        requires = "by",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub top: u16,

    /// Add this field up: sum, minimum, average and maximum; can be given more than once
    #[arg(short = 'a', long = "value", value_name = "FIELD", conflicts_with_all = ["from", "by"])]
    pub values: Vec<String>,

    /// Sort by count, key, or a field of --value, or its .avg or .max
    #[arg(long, value_name = "ORDER", default_value = "count", conflicts_with_all = ["from", "by"])]
    pub sort: String,

    /// Sort in ascending order
    #[arg(long, conflicts_with_all = ["from", "by"])]
    pub reverse: bool,

    /// Print only the first N rows; of stacks, the N most frequent ones
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["from", "by"])]
    pub limit: Option<usize>,

    /// Limit memory: keep at most so many combinations of keys, or so many pending first events; the rest is
    /// counted together
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub max_keys: usize,

    /// Measure the time from this event
    #[arg(long, value_name = "EVENT", requires = "to")]
    pub from: Option<String>,

    /// Measure the time to this event
    #[arg(long, value_name = "EVENT", requires = "from")]
    pub to: Option<String>,

    /// Pair events with the same value of this field, or of the first field in the first event and the second
    /// in the second; can be given more than once
    #[arg(short, long = "key", value_name = "FIELD[=FIELD]", requires = "from")]
    pub keys: Vec<String>,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// What the words of the command line say.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    file: PathBuf,
    event: Option<String>,
    fields: Vec<String>,
}

/// What is printed, and how many pages or chunks could not be read.
type Answer = (Printed, u64);

/// What is printed.
enum Printed {
    Text(String),
    /// The first so many stacks as a tree.
    Tree(Box<(stack_tree::Question, StackCounts)>, usize),
}

/// Counts or measures.
///
/// # Errors
/// No such file, event or field, or the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let words = Words::of(args)?;
    if words.event.is_none() && args.from.is_none() {
        return Err(CliError::usage(
            "hist needs an EVENT to count, or --from and --to; `tracer-agent info` lists the events of a \
             file",
        ));
    }
    let name = words.file.display().to_string();
    let open = super::input::open(&words.file).map_err(|error| match words.hint(args) {
        hint if hint.is_empty() => super::input::not_opened(&words.file)(error),
        hint => CliError::Failed(format!("cannot open {name}: {error}{hint}")),
    })?;
    let file = TraceFile::open(&name, open)
        .map_err(|error| CliError::Failed(format!("cannot read {name}: {error}{}", repair_hint(&error))))?;
    let mut line = ReadingLine::new(std::io::stderr().is_terminal(), file.reader().span());
    let watch = &mut |now| line.show(now);
    let (text, damaged) = match (&args.from, &args.to) {
        (Some(from), Some(to)) => measure(args, &file, from, to, watch)?,
        _ => count_events(args, &file, &words, watch)?,
    };
    drop(line);
    match text {
        Printed::Text(text) => write_all(out, &text)?,
        Printed::Tree(answer, limit) => {
            let (question, answer) = &*answer;
            let mut out = BufWriter::new(out);
            match tree::write(&mut out, question, answer, limit).and_then(|()| out.flush()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                result => result.map_err(CliError::system("write the report"))?,
            }
        }
    }
    if damaged == 0 {
        return Ok(ExitCode::Ok);
    }
    tell(&format!(
        "tracer-agent: {damaged} pages of {name} are damaged and not counted; `tracer-agent check` shows where, `tracer-agent \
         repair` writes a file without them"
    ));
    Ok(ExitCode::Failure)
}

impl Words {
    fn of(args: &Args) -> Result<Self, CliError> {
        let mut words = args.words.as_slice();
        let file = match (&args.input, words) {
            (Some(file), _) => file.clone(),
            (None, [first, rest @ ..]) if args.from.is_some() || is_file(first) => {
                words = rest;
                first.into()
            }
            (None, _) => "trace.dat".into(),
        };
        let mut words = words.iter().map(|word| {
            let text = word.to_str().map(str::to_owned);
            text.ok_or_else(|| CliError::usage(format!("{}: events and fields are UTF-8", word.display())))
        });
        let event = words.next().transpose()?;
        let fields = words.collect::<Result<_, _>>()?;
        if let Some(event) = event.as_ref().filter(|_| args.from.is_some()) {
            return Err(CliError::usage(format!(
                "{event}: --from and --to name the events; --key pairs them, --by tells their times apart"
            )));
        }
        Ok(Self { file, event, fields })
    }

    /// What to do if the file that nobody named is not there.
    fn hint(&self, args: &Args) -> String {
        match args.words.first() {
            Some(first) if args.input.is_none() && *first != *self.file.as_os_str() => {
                format!("; {} is taken for an EVENT, as there is no such file", first.display())
            }
            _ => String::new(),
        }
    }
}

/// Whether a word is the name of a file, and not an event: because there is one, or because it looks like
/// one.
fn is_file(word: &OsStr) -> bool {
    let path = Path::new(word);
    let bytes = word.as_bytes();
    let looks = [&b"/"[..], b"./", b"../"].iter().any(|start| bytes.starts_with(start));
    looks || path.extension() == Some(OsStr::new("dat")) || path.metadata().is_ok_and(|found| !found.is_dir())
}

/// Fields, several in a text with commas.
fn keys(texts: &[String]) -> Result<Vec<Key>, CliError> {
    let fields = texts.iter().flat_map(|text| text.split(',')).filter(|field| !field.is_empty());
    Ok(fields.map(Key::parse).collect::<Result<_, _>>()?)
}

/// Keys of --by, none of which can be a stack.
fn by(args: &Args) -> Result<Vec<Key>, CliError> {
    let by = keys(&args.by)?;
    match by.iter().find(|key| key.is_stack()) {
        Some(key) => Err(CliError::usage(format!(
            "--by {}: stacks are counted as a tree: `hist EVENT {}`, or `report --folded`",
            key.text(),
            key.text()
        ))),
        None => Ok(by),
    }
}

fn limits(args: &Args) -> Limits {
    Limits { top: args.top.into(), most_keys: args.max_keys }
}

/// Counts the events that the words name.
fn count_events(
    args: &Args,
    file: &TraceFile<File>,
    words: &Words,
    watch: Watch<'_>,
) -> Result<Answer, CliError> {
    let events = histogram::events(words.event.as_deref().unwrap_or_default())?;
    let fields = keys(&words.fields)?;
    if !args.by.is_empty() {
        return spread(args, file, events, fields, watch);
    }
    for (index, field) in fields.iter().enumerate() {
        if stack_tree::wants(file, &events, field)? {
            return stacks(args, file, events, fields, index, watch);
        }
    }
    table(args, file, events, fields, watch)
}

/// Counts combinations of fields.
fn table(
    args: &Args,
    file: &TraceFile<File>,
    events: Filter,
    mut keys: Vec<Key>,
    watch: Watch<'_>,
) -> Result<Answer, CliError> {
    if keys.is_empty() {
        keys.push(Key::parse("event")?);
    }
    let values = self::keys(&args.values)?;
    let order = order(&args.sort, &values)?;
    let question = histogram::Question { events, keys, values, most_rows: args.max_keys };
    let mut answer = Histogram::of(file, &question, watch)?;
    answer.sort(order, args.reverse);
    let rows = args.limit.unwrap_or(usize::MAX).min(answer.rows.len());
    let text = if args.json {
        sorted_json_line(&HistogramJson::new(&question, &answer, rows))?
    } else {
        text::histogram(&question, &answer, rows)
    };
    Ok((Printed::Text(text), answer.damaged))
}

/// Counts stacks. The key with that `index` stands for them.
fn stacks(
    args: &Args,
    file: &TraceFile<File>,
    events: Filter,
    mut keys: Vec<Key>,
    index: usize,
    watch: Watch<'_>,
) -> Result<Answer, CliError> {
    let stack = keys.remove(index);
    if keys.iter().any(Key::is_stack) {
        return Err(CliError::usage(format!("{}: one stack is enough", stack.text())));
    }
    let mut values = self::keys(&args.values)?;
    if values.len() > 1 || args.sort != "count" || args.reverse {
        return Err(CliError::usage(
            "a tree of stacks counts events, or adds one field of --value up, and is sorted by that",
        ));
    }
    let question = stack_tree::Question { events, keys, value: values.pop(), most_stacks: args.max_keys };
    let answer = StackCounts::of(file, &question, watch)?;
    if answer.stacks.is_empty() && answer.without_stack != 0 {
        tell("tracer-agent: no event has a stack; `record -T` and `record --user-stack` record them");
    }
    let limit = args.limit.unwrap_or(usize::MAX);
    let damaged = answer.damaged;
    let printed = if args.json {
        Printed::Text(sorted_json_line(&StacksJson::new(&question, &answer, limit))?)
    } else {
        Printed::Tree(Box::new((question, answer)), limit)
    };
    Ok((printed, damaged))
}

/// Counts the values of a field for each value of others.
fn spread(
    args: &Args,
    file: &TraceFile<File>,
    events: Filter,
    mut fields: Vec<Key>,
    watch: Watch<'_>,
) -> Result<Answer, CliError> {
    let (Some(value), true) = (fields.pop(), fields.is_empty()) else {
        return Err(CliError::usage(
            "--by prints the distribution of one FIELD, `hist EVENT FIELD --by KEY`, or of the time between \
             --from and --to",
        ));
    };
    if value.is_stack() {
        return Err(CliError::usage(format!(
            "{}: stacks have no distribution; name the keys before it, without --by: `hist EVENT {} {}`",
            value.text(),
            args.by.join(" "),
            value.text()
        )));
    }
    let question = spread::Question { events, value, by: by(args)? };
    let answer = Spread::of(file, &question, limits(args), watch)?;
    let text = if args.json {
        sorted_json_line(&SpreadJson::new(&question, &answer))?
    } else {
        text::spread(&answer)
    };
    Ok((Printed::Text(text), answer.damaged))
}

fn order(text: &str, values: &[Key]) -> Result<Order, CliError> {
    let index = |field: &str| values.iter().position(|value| value.field == field);
    match text {
        "count" | "hitcount" => return Ok(Order::Count),
        "key" | "keys" => return Ok(Order::Keys),
        _ => {}
    }
    let (field, order): (&str, fn(usize) -> Order) = match text.rsplit_once('.') {
        Some((field, "avg")) => (field, Order::Average),
        Some((field, "max")) => (field, Order::Most),
        _ => (text, Order::Sum),
    };
    index(field).map(order).ok_or_else(|| {
        CliError::usage(format!(
            "--sort {text}: sort by count, by key, or by a field that --value names, or its .avg or .max"
        ))
    })
}

/// Measures times between events.
fn measure(
    args: &Args,
    file: &TraceFile<File>,
    from: &str,
    to: &str,
    watch: Watch<'_>,
) -> Result<Answer, CliError> {
    let pairs: Result<Vec<_>, CliError> = args
        .keys
        .iter()
        .map(|key| {
            // A modifier has a `=` of its own.
            let split = key.match_indices('=').find(|(at, _)| !key[..*at].ends_with(".buckets"));
            let (first, second) =
                split.map_or((key.as_str(), key.as_str()), |(at, _)| (&key[..at], &key[at + 1..]));
            Ok((Key::parse(first)?, Key::parse(second)?))
        })
        .collect();
    let question = latency::Question {
        from: histogram::events(from)?,
        to: histogram::events(to)?,
        keys: pairs?,
        most_open: args.max_keys,
    };
    if question.keys.is_empty() {
        let (keys, same) = latency::likely_keys(file.events(), &question.from, &question.to)?;
        let keys: Vec<_> = keys.iter().map(|key| format!("--key {key}")).collect();
        tell(&format!(
            "tracer-agent: without --key every {to} ends the last {from}, whatever thread or object it is of; \
             {} pairs events of {same}",
            keys.join(" ")
        ));
    }
    let nanoseconds = file.counts_nanoseconds();
    if args.by.is_empty() {
        let answer = Latency::of(file, &question, watch)?;
        let text = if args.json { sorted_json_line(&answer)? } else { text::latency(&answer, nanoseconds) };
        return Ok((Printed::Text(text), answer.damaged));
    }
    let answer = LatencyBy::of(file, &question, &by(args)?, limits(args), watch)?;
    let text = if args.json {
        sorted_json_line(&LatencyByJson::new(&answer, nanoseconds))?
    } else {
        text::latency_by(&answer, nanoseconds)
    };
    Ok((Printed::Text(text), answer.damaged))
}

/// What the output leaves out, one line for each number that is not 0.
fn notes(text: &mut String, notes: &[(u64, &str)]) {
    for (number, what) in notes.iter().filter(|(number, _)| *number > 0) {
        *text += &format!("{} {what}\n", count(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_files_are_told_from_events() {
        for file in ["/nowhere", "./x", "other.dat", "/proc/self/exe"] {
            assert!(is_file(OsStr::new(file)), "{file}");
        }
        for event in ["sched_switch", "sched/sched_switch", "sched:*", "sched_switch: prev_pid != 0", "."] {
            assert!(!is_file(OsStr::new(event)), "{event}");
        }
    }
}
