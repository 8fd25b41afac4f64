//! Filters: which records of which events are selected.
//!
//! ```text
//! sched_switch, sched_waking: prio < 100 && !(comm =~ "^kworker" || CPU == 3)
//! ```
//!
//! The events come first, then a colon, then an expression over their fields; without a colon all records of
//! the events are meant. [`Filter::parse`] makes the text an expression tree ([`Expr`]) that knows nothing of
//! any kernel; [`Filter::resolve`] makes that a [`ResolvedFilter`] for the events of a file or a kernel;
//! [`ResolvedFilter::matches`] looks at records. A [`Selection`] is several filters as `trace-cmd report` has
//! them.
//!
//! # The grammar
//!
//! ```text
//! filter     = events [":" any]
//! events     = pattern {"," pattern}
//! pattern    = name | system ("/" | ":") event
//! any        = all {"||" all}            all = term {"&&" term}
//! term       = "!" term | arithmetic [compare arithmetic | match text]
//! compare    = "==" | "!=" | "<" | "<=" | ">" | ">="
//! match      = "~" (wildcards) | "=~" | "!~" (regular expressions)
//! arithmetic = operands with "|" "^" "&" "<<" ">>" "+" "-" "*" "/" "%", of C's precedence among themselves
//! operand    = number | text | word ["." ("ustring" | "function")] | "$" context | "CPUS{" list "}"
//!            | "(" any ")" | ("-" | "~") operand
//! ```
//!
//! It is libtraceevent's (parse-filter.c, trace-cmd-report(1)) and that of ftrace's `filter` files
//! (kernel/trace/trace_events_filter.c, Documentation/trace/events.rst) in one. Where the two differ, or one
//! of them does what nobody can want:
//!
//! | subject | libtraceevent | ftrace | here |
//! |---|---|---|---|
//! | `a \|\| b && c` | `(a \|\| b) && c`: from left to right | `a \|\| (b && c)` | by [`Dialect`] |
//! | `sys:event: ...` | an error, `sys/event` is written | no events | both |
//! | names of events | basic regular expressions for the whole name, any case | - | these; wildcards if none is described by them |
//! | `comm`, `cpu` without a field of the name | false | thread and CPU, as `COMM` and `CPU` | by dialect |
//! | a field that an event lacks | the comparison is false | an error | false in this event, an error if no event has it |
//! | signed fields with `<` and `>` | compared without sign | with sign | with sign |
//! | `-1` | a syntax error | a number | a number |
//! | `int` field `== 0xffffffff` | -1 is extended to 64 bits and differs | cut to 32 bits and equal | as libtraceevent |
//! | `a == b` of two fields | "Syntax error", although documented | an error | compared, numbers and texts |
//! | `(flags & 3) == 1` | a syntax error | an error | arithmetic binds stronger than comparisons |
//! | `'x'` and a number | compares a pointer of the program | an error | the character's code |
//! | `"text"` and a number | compares with the number as `0x...` | an error | a name that the format gives the value, else an error |
//! | `"text"` and an address | name of the function, else `0x...` | an error | as libtraceevent |
//! | text without quotes | an error | an error (5.x: a text) | a text, a value's name or a function |
//! | `a == 1 b == 2` | `b == 2` | an error | an error |
//! | ends early | the program crashes | an error | an error |
//! | `x / 0` | the program crashes | - | no value: the comparison is false |
//! | a dynamic text without NUL | its first 4 bytes | whole | whole |
//! | a string that a system call is given, and a text | name of a function | an error | the record's copy of it (`__filename_val`); while recording, the string itself |

pub mod ast;
mod error;
mod lttng;
mod parse;
mod posix;
pub mod program;
mod resolve;
mod selection;
#[cfg(test)]
mod tests;
mod token;

pub use super::context::Context;
pub use ast::{EventPattern, Expr, ExprKind, MatchOp, Modifier, Span};
pub use error::{FilterError, FilterErrorKind};
pub use resolve::ResolveOptions;
pub use selection::{Selection, Shown};

use super::record::Machine;
use super::symbols::Symbols;
use super::table::EventTable;
use crate::Cmdlines;
use program::Test;

/// Longest text of a filter, bytes.
pub const MAX_TEXT: usize = 64 << 10;

/// How deep parentheses and operators can be nested.
pub const MAX_DEPTH: usize = 64;

/// Whose rules count where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// trace-cmd's and libtraceevent's: `&&` and `||` from left to right.
    #[default]
    TraceCmd,
    /// ftrace's: `&&` before `||`, as in C.
    Ftrace,
    /// LTTng's: operators of bits before comparisons, `!` before all, wildcards in texts, `$ctx.procname`.
    Lttng,
}

/// A filter as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    dialect: Dialect,
    events: Vec<EventPattern>,
    expr: Option<Expr>,
}

/// A filter made for the events of a file or a kernel.
#[derive(Clone, Debug)]
pub struct ResolvedFilter {
    machine: Machine,
    /// By event number, ascending.
    tests: Box<[(u16, Test)]>,
}

/// What is known of threads.
pub trait Tasks {
    /// The name of a thread.
    fn comm(&self, tid: u32) -> Option<&[u8]>;

    /// Something else about a thread; `None` if it is not known.
    fn number(&self, tid: u32, context: Context) -> Option<u64> {
        let _ = (tid, context);
        None
    }

    /// The text at an address of the thread's memory, where that can be read.
    fn user_text(&self, address: u64) -> Option<&[u8]> {
        let _ = address;
        None
    }
}

impl Tasks for Cmdlines {
    /// As stock readers show it: `<idle>` for 0, `<...>` for a thread without a name.
    fn comm(&self, tid: u32) -> Option<&[u8]> {
        Some(if tid == 0 { b"<idle>" } else { self.get(tid).unwrap_or(b"<...>") })
    }
}

/// What a filter can ask of a record that is not in its bytes.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The CPU.
    pub cpu: u32,
    /// The time.
    pub timestamp: u64,
    /// What is known of threads.
    pub tasks: &'a dyn Tasks,
    /// Names of addresses.
    pub symbols: &'a dyn Symbols,
}

impl Filter {
    /// Parses a filter with its events: `sched_switch: next_pid == 1`.
    ///
    /// # Errors
    /// What is not understood, and where.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, FilterError> {
        let fail = |error| FilterError::new(text, error);
        check_length(text)?;
        let (events, body) = parse::head(text).map_err(fail)?;
        let expr = body.map(|at| parse::expression(text, at, dialect)).transpose().map_err(fail)?;
        Ok(Self { text: text.to_owned(), dialect, events, expr })
    }

    /// Parses an expression alone: `next_pid == 1`. It is for all events that it is resolved with.
    ///
    /// # Errors
    /// What is not understood, and where.
    pub fn parse_expression(text: &str, dialect: Dialect) -> Result<Self, FilterError> {
        check_length(text)?;
        let expr = parse::expression(text, 0, dialect).map_err(|error| FilterError::new(text, error))?;
        Ok(Self { text: text.to_owned(), dialect, events: Vec::new(), expr: Some(expr) })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The events that it is for; none if it was parsed without, and is for all.
    pub fn events(&self) -> &[EventPattern] {
        &self.events
    }

    /// The expression; `None` if all records of the events are meant.
    pub fn expr(&self) -> Option<&Expr> {
        self.expr.as_ref()
    }

    /// Puts numbers in the place of the paths that control groups are compared with: `$cgroup ==
    /// "/system.slice"`. `number` knows them.
    ///
    /// # Errors
    /// What `number` says of a path.
    pub fn name_groups(
        &mut self,
        number: &mut dyn FnMut(&str) -> Result<u64, String>,
    ) -> Result<(), FilterError> {
        let Self { text, expr, .. } = self;
        let Some(expr) = expr else { return Ok(()) };
        expr.name_groups(number).map_err(|error| FilterError::new(text, error))
    }

    /// Makes the filter for these events.
    ///
    /// # Errors
    /// No such event, a field that none of the events has, or a comparison that makes sense in none of them.
    pub fn resolve(
        &self,
        events: &EventTable,
        options: ResolveOptions,
    ) -> Result<ResolvedFilter, FilterError> {
        resolve::resolve(self, events, options)
    }
}

impl Filter {
    /// What its expression is worth in the records of the event number `event`, while they are made: a number
    /// or a text.
    ///
    /// # Errors
    /// It is a condition, or the event lacks a field.
    pub fn value(&self, events: &EventTable, event: u16) -> Result<program::Value, FilterError> {
        resolve::value(self, events, event, ResolveOptions { live: true, ..ResolveOptions::default() })
    }
}

/// A number that an expression makes of the records of one event: `ret >> 10`.
#[derive(Clone, Debug)]
pub struct Computed {
    number: program::Number,
    is_signed: bool,
    machine: Machine,
}

impl Filter {
    /// The number that its expression makes of stored records of the event number `event`.
    ///
    /// # Errors
    /// It is a condition or a text, or the event lacks a field.
    pub fn computed(&self, events: &EventTable, event: u16) -> Result<Computed, FilterError> {
        match resolve::value(self, events, event, ResolveOptions::default())? {
            program::Value::Number { number, signed } => {
                Ok(Computed { number, is_signed: signed, machine: events.machine() })
            }
            program::Value::Text(_) => {
                let what = "a text, which is no number".to_owned();
                Err(FilterError::new(&self.text, (Span::default(), FilterErrorKind::Mismatch(what))))
            }
        }
    }
}

impl Computed {
    /// The number of a record of the event; `None` if it has none, as of a division by 0.
    pub fn of(&self, record: &[u8], origin: &Origin<'_>) -> Option<i128> {
        let number = self.number.value(record, self.machine, origin)?;
        Some(if self.is_signed { number.cast_signed().into() } else { number.into() })
    }
}

impl ResolvedFilter {
    /// Whether a record is wanted. The records of other events are not. Allocates nothing.
    #[inline]
    pub fn matches(&self, event: u16, record: &[u8], origin: &Origin<'_>) -> bool {
        self.test(event).is_some_and(|test| test.holds(record, self.machine, origin))
    }

    /// What is asked of the records of an event; `None` if they are not wanted.
    pub fn test(&self, event: u16) -> Option<&Test> {
        let at = self.tests.binary_search_by_key(&event, |(id, _)| *id).ok()?;
        self.tests.get(at).map(|(_, test)| test)
    }

    /// The numbers of the events that it is for, ascending.
    pub fn events(&self) -> impl ExactSizeIterator<Item = u16> {
        self.tests.iter().map(|(id, _)| *id)
    }
}

/// For fuzzing: takes the first line as a filter, and the rest as a record, and sees that nothing panics. The
/// events are those of `events`.
#[cfg(any(test, fuzzing))]
pub fn fuzz(data: &[u8], events: &EventTable) {
    let (text, record) = data
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or((data, &[][..]), |at| (&data[..at], &data[at + 1..]));
    let text = String::from_utf8_lossy(text);
    let cmdlines = Cmdlines::new();
    let origin = Origin { cpu: 1, timestamp: 2, tasks: &cmdlines, symbols: &super::symbols::NoSymbols };
    for dialect in [Dialect::TraceCmd, Dialect::Ftrace, Dialect::Lttng] {
        for filter in [Filter::parse(&text, dialect), Filter::parse_expression(&text, dialect)] {
            let lenient = ResolveOptions { unknown_fields: true, mismatches: true, live: true };
            let resolved = filter.and_then(|filter| {
                let strict = filter.resolve(events, ResolveOptions::default());
                let lenient = filter.resolve(events, lenient);
                strict.or(lenient)
            });
            match resolved {
                Ok(resolved) => {
                    for id in resolved.events().collect::<Vec<_>>() {
                        let _ = resolved.matches(id, record, &origin);
                    }
                }
                Err(error) => drop(error.to_string()),
            }
        }
    }
}

fn check_length(text: &str) -> Result<(), FilterError> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    Err(FilterError::new(text, (Span::default(), FilterErrorKind::TooLong { limit: MAX_TEXT })))
}
