//! The language that fast events are described in: an event, its tracepoint's arguments, and what each field
//! of its record is in terms of them, in C's expressions.
//!
//! ```text
//! sched_wakeup(p, prio, success)
//!     about p->pid
//!     let cpu = p->thread_info.cpu
//!     comm = p->comm
//!     prio, success
//!     target_cpu = cpu
//!
//! def letter(flags, name) = flags & 1 << enum(req_flag_bits, name)
//!         ? 'F' : 0
//! ```
//!
//! `about` names another thread that a process filter looks at, and `switches to` one that gets the CPU;
//! `let` names a value for the lines below. A line of names only has fields that are the arguments of these
//! names. An event may be described several times, for kernels that differ: the first description that fits
//! is used. `needs` has an expression without a use: the description fits only where its members exist.
//! `only` has one that is not 0 where a tracepoint of several events fires for this one. `def` gives an
//! expression with parameters a name, for all events of the file below it. A line with a deeper indentation
//! than that of fields goes on with the line before it, be it one of fields or of an event's names.
//! `container(TYPE, MEMBER, POINTER)` is the structure of which the pointer's target is a member, and
//! `string(POINTER, "TEXT")` a string with another text for a null pointer than the kernel's `(null)`; so is
//! `text(POINTER, "TEXT")` in an array. `pfn(POINTER)` is the number of the frame of a `struct page`, or of
//! the folio that begins with it, as `page_to_pfn` and `folio_pfn` give it, and `blk_error(NUMBER)` what
//! `blk_status_to_errno` gives for a `blk_status_t` (`memory`).
//!
//! The texts are part of the agent, so an error in one is a defect, which a test finds. Expressions of probes
//! come from users (`compile::typed`).

mod expression;
#[cfg(test)]
mod tests;

pub(crate) use self::expression::{Expr, Op, expression};
use self::expression::{Macro, joined};

/// An event's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition<'t> {
    /// Events that are alike, by their names, which are those of their tracepoints too.
    pub(crate) names: Vec<&'t str>,
    /// Names of the tracepoint's arguments.
    pub(crate) args: Vec<&'t str>,
    /// The other thread.
    pub(crate) about: Option<Expr<'t>>,
    /// Whether the CPU goes from the current thread to the other one.
    pub(crate) is_switch: bool,
    /// What must exist.
    pub(crate) needs: Vec<Expr<'t>>,
    /// What is not 0 where the tracepoint fires for the event, and not for another one.
    pub(crate) only: Vec<Expr<'t>>,
    /// Named values, in order.
    pub(crate) lets: Vec<(&'t str, Expr<'t>)>,
    /// Fields.
    pub(crate) fields: Vec<(&'t str, Expr<'t>)>,
}

/// What is wrong with a description, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) what: String,
}

/// A line with its continuations.
struct Line<'t> {
    number: usize,
    indented: bool,
    parts: Vec<&'t str>,
}

/// The indentation from which on a line goes on with the one before it.
const CONTINUED: usize = 8;

fn lines(text: &str) -> Result<Vec<Line<'_>>, SyntaxError> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let content = line.split('#').next().unwrap_or_default().trim_end();
        let part = content.trim_start();
        match content.len() - part.len() {
            _ if part.is_empty() => {}
            CONTINUED.. => match lines.last_mut() {
                Some(last) => last.parts.push(part),
                None => return Err(SyntaxError { line: number, what: "nothing to go on with".to_owned() }),
            },
            indentation => lines.push(Line { number, indented: indentation != 0, parts: vec![part] }),
        }
    }
    Ok(lines)
}

/// Reads the descriptions of a file.
pub(super) fn parse(text: &str) -> Result<Vec<Definition<'_>>, SyntaxError> {
    let mut definitions: Vec<Definition<'_>> = Vec::new();
    let mut macros: Vec<Macro<'_>> = Vec::new();
    for Line { number, indented, mut parts } in lines(text)? {
        let error = |what: String| SyntaxError { line: number, what };
        let first = parts[0];
        if !indented {
            match first.strip_prefix("def ") {
                None => definitions.push(header(&parts).map_err(error)?),
                Some(rest) => {
                    let (head, body) = named(rest).map_err(error)?;
                    let Definition { names, args: params, .. } = header(&[head]).map_err(error)?;
                    parts[0] = body;
                    let body = joined(&parts, &macros).map_err(|e| error(e.what))?;
                    macros.push(Macro { name: names[0], params, body });
                }
            }
            continue;
        }
        let definition =
            definitions.last_mut().ok_or_else(|| error("a field without an event".to_owned()))?;
        let mut rest = |text| {
            parts[0] = text;
            joined(&parts, &macros).map_err(|e| error(e.what))
        };
        if let Some(text) = first.strip_prefix("about ") {
            definition.about = Some(rest(text)?);
        } else if let Some(text) = first.strip_prefix("switches to ") {
            definition.about = Some(rest(text)?);
            definition.is_switch = true;
        } else if let Some(text) = first.strip_prefix("needs ") {
            let needed = rest(text)?;
            definition.needs.push(needed);
        } else if let Some(text) = first.strip_prefix("only ") {
            let only = rest(text)?;
            definition.only.push(only);
        } else if let Some(text) = first.strip_prefix("let ") {
            let (name, text) = named(text).map_err(error)?;
            definition.lets.push((name, rest(text)?));
        } else if !first.contains('=') {
            let names = first.split(',').map(str::trim);
            definition.fields.extend(names.map(|name| (name, Expr::Name(name))));
        } else {
            let (name, text) = named(first).map_err(error)?;
            definition.fields.push((name, rest(text)?));
        }
    }
    Ok(definitions)
}

/// `NAME = TEXT`.
fn named(text: &str) -> Result<(&str, &str), String> {
    let (name, text) = text.split_once(" =").ok_or("expected NAME = EXPRESSION")?;
    Ok((name.trim(), text.trim_start()))
}

/// Names with commas between them and perhaps behind the last.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// `NAME, NAME(ARGUMENT, ARGUMENT)`, over one line or several.
fn header<'t>(parts: &[&'t str]) -> Result<Definition<'t>, String> {
    let (mut names, mut args) = (Vec::new(), Vec::new());
    let (mut is_open, mut is_closed) = (false, false);
    for part in parts {
        let (before, behind) = match part.split_once('(') {
            _ if is_open => ("", *part),
            None => (*part, ""),
            Some((before, behind)) => {
                is_open = true;
                (before, behind)
            }
        };
        is_closed = is_open && behind.ends_with(')');
        names.extend(listed(before));
        args.extend(listed(behind.strip_suffix(')').unwrap_or(behind)));
    }
    if names.is_empty() || !is_open {
        return Err("expected NAME(ARGUMENTS)".to_owned());
    }
    if !is_closed {
        return Err("expected )".to_owned());
    }
    let (needs, only, lets, fields) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Ok(Definition { names, args, about: None, is_switch: false, needs, only, lets, fields })
}
