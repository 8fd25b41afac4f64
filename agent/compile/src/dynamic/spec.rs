//! The text of a probe: `[[GROUP/]NAME=]ATTACH_POINT [ARGUMENT...]`.

use std::borrow::Cow;
use std::ops::Range;

use super::fetch::{Argument, parse_argument};
use crate::context::Contexts;
use crate::shape::{FieldClash, FieldNames};

/// How many arguments a probe has at most (`MAX_TRACE_ARGS`, kernel/trace/trace_probe.h).
const ARGUMENTS_MAX: usize = 128;
/// The longest name (`MAX_EVENT_NAME_LEN`).
pub(super) const NAME_MAX: usize = 64;

/// Whether a probe is in the kernel or in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Kernel,
    User,
    /// A marker in a program, whose arguments are known.
    Marker,
}

impl Side {
    pub(super) fn is_user(self) -> bool {
        self != Self::Kernel
    }
}

/// When a probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) side: Side,
    /// At the return of the function.
    pub(super) returns: bool,
}

/// A probe's text in its parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) text: String,
    pub(super) group: Option<String>,
    pub(super) name: Option<String>,
    /// The file, where the text has it in quotes.
    pub(super) path: Option<String>,
    /// What stands for the attach point, without a file in quotes, and where in the text.
    pub(super) point: String,
    pub(super) point_at: Range<usize>,
    pub(super) arguments: Vec<Argument>,
}

/// A probe's text that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", located(.text, .at))]
pub struct SpecError {
    /// The whole text.
    pub text: String,
    /// The bytes of it that are wrong.
    pub at: Range<usize>,
    /// Why.
    pub kind: SpecErrorKind,
}

/// What is wrong with a part of a probe's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecErrorKind {
    /// There is nothing.
    #[error("an attach point is missing: write [NAME=]FUNCTION, or [NAME=]PATH:FUNCTION for a program")]
    NoAttachPoint,
    /// It is no name.
    #[error("a name consists of at most {NAME_MAX} letters, digits and _, and does not begin with a digit")]
    Name,
    /// Another field has it.
    #[error(transparent)]
    Field(#[from] FieldClash),
    /// A word after `$`.
    #[error("there is no such variable; known are $argN, $retval, $stack, $stackN and $comm")]
    Variable,
    /// `$retval` where nothing returns.
    #[error("a return value exists only when the function returns: use --kretprobe or --uretprobe")]
    NotReturning,
    /// `$argN` where the function has ended.
    #[error(
        "arguments are no longer available when the function returns; record them at its entry with another probe"
    )]
    Returned,
    /// A register.
    #[error("there is no such register; known are %{}", .0.join(", %"))]
    Register(Vec<&'static str>),
    /// An argument's number.
    #[error("only arguments 1 to {0} are in registers; take others from the stack with $stackN")]
    ArgumentNumber(u32),
    /// A type.
    #[error(
        "there is no such type; known are u8 to u64, s8 to s64, x8 to x64, char, string, ustring, symbol, \
         bWIDTH@OFFSET/SIZE, and any of these followed by [COUNT] for an array"
    )]
    Type,
    /// A type of kprobes.
    #[error("{0} is a type for kernel probes only")]
    KernelOnly(&'static str),
    /// A bit field.
    #[error(
        "the bits do not fit: bWIDTH@OFFSET/SIZE, with WIDTH + OFFSET at most SIZE, which is 8, 16, 32 or 64"
    )]
    Bits,
    /// An array's length.
    #[error("an array has 1 to 64 elements")]
    Count,
    /// A value that has no address.
    #[error("a string or an array is in memory: give its address as +0(...)")]
    NoMemory,
    /// Strings in an array.
    #[error("arrays of strings are not recorded; give each string an argument: +0(+8(%si)):string")]
    TextArray,
    /// A type for a text.
    #[error("this is a string; the only type for it is string")]
    TextOnly,
    /// A bracket.
    #[error("a bracket is not closed, or something follows it")]
    Bracket,
    /// A number.
    #[error("a number is expected, such as 16 or 0x10")]
    Number,
    /// What to fetch.
    #[error(
        "this cannot be fetched; what can is %REGISTER, $VARIABLE, @ADDRESS, +OFFSET(...), \\VALUE or \\\"text"
    )]
    Fetch,
    /// What to fetch at a marker.
    #[error(
        "this cannot be fetched; what can is argN, %REGISTER, $VARIABLE, @+OFFSET, +OFFSET(...), \\VALUE or \\\"text"
    )]
    MarkerFetch,
    /// An argument that a marker has not.
    #[error("the marker {marker} has {count} arguments")]
    MarkerArgument {
        /// `PROVIDER:NAME`.
        marker: String,
        /// How many it has.
        count: usize,
    },
    /// One name for several markers.
    #[error("one name cannot be used for {0} markers: omit NAME=, and each event is named after its marker")]
    NameOfMany(usize),
    /// An attach point in a file.
    #[error("@+OFFSET is an offset in a program's file; for the kernel write @ADDRESS or @SYMBOL")]
    FileOffset,
    /// A path that begins with a quote and does not end with one.
    #[error("the quote is not closed, or no : follows it: a path with blanks is \"PATH\":FUNCTION")]
    Quote,
    /// A line of tracefs' `kprobe_events`, `uprobe_events` or `dynamic_events`.
    #[error("this is how tracefs has it; here it is {option} '{text}'")]
    Tracefs {
        /// The option for it.
        option: &'static str,
        /// What to give that.
        text: String,
    },
    /// A name in a program.
    #[error("names of a program's variables are not supported; write @+OFFSET, the offset in the file")]
    UserSymbol,
    /// Deeper than the kernel allows, too.
    #[error("it is nested too deep")]
    Depth,
    /// Too many arguments.
    #[error("a probe has at most {ARGUMENTS_MAX} arguments")]
    Arguments,
    /// The attach point has no path.
    #[error("an attach point in a program is PATH:FUNCTION[+OFFSET] or PATH:0xOFFSET")]
    NoPath,
    /// The attach point of a marker.
    #[error("a marker is PATH:PROVIDER:NAME; `tracer-agent list --usdt PATH` shows them")]
    NoMarker,
    /// A return probe inside of a function.
    #[error("a return probe is placed on the function's entry: omit the offset")]
    ReturnOffset,
    /// Offset and pattern.
    #[error("an offset needs a single function, and a pattern matches many")]
    PatternOffset,
    /// The machine's registers are unknown.
    #[error("registers are known on x86-64 only")]
    Machine,
}

fn located(text: &str, at: &Range<usize>) -> String {
    match text.get(at.clone()) {
        Some("") | None => format!("at the end of `{text}`"),
        Some(part) if part == text => format!("`{text}`"),
        Some(part) => format!("`{part}` (at character {} of `{text}`)", text[..at.start].chars().count() + 1),
    }
}

/// Reads the text of a probe whose records have these contexts.
pub(super) fn parse(text: &str, at: At, contexts: &Contexts) -> Result<Spec, SpecError> {
    let error = |at: Range<usize>, kind| SpecError { text: text.to_owned(), at, kind };
    let mut words = words(text, 0).into_iter();
    let Some(first) = words.next() else { return Err(error(0..text.len(), SpecErrorKind::NoAttachPoint)) };
    if let Some((option, text)) = of_tracefs(text, at.side.is_user()) {
        return Err(error(first, SpecErrorKind::Tracefs { option, text }));
    }
    let (group, name, mut point_at) =
        split_name(text, &first).map_err(|at| error(at, SpecErrorKind::Name))?;
    if point_at.is_empty() {
        return Err(error(first, SpecErrorKind::NoAttachPoint));
    }
    let mut path = None;
    if at.side.is_user() && text[point_at.start..].starts_with('"') {
        let unclosed = || error(point_at.start..text.len(), SpecErrorKind::Quote);
        let (unquoted, end) = unquoted(text, point_at.start).ok_or_else(unclosed)?;
        words = self::words(text, end).into_iter();
        let is_point = |rest: &Range<usize>| text[rest.clone()].starts_with(':') && rest.len() > 1;
        let rest = words.next().filter(|rest| rest.start == end && is_point(rest));
        point_at = rest.map(|rest| end + 1..rest.end).ok_or_else(unclosed)?;
        path = Some(unquoted);
    }
    let mut arguments: Vec<Argument> = Vec::new();
    let mut names = FieldNames::new(contexts);
    for word in words {
        if arguments.len() == ARGUMENTS_MAX {
            return Err(error(word, SpecErrorKind::Arguments));
        }
        let number = arguments.len() + 1;
        let argument =
            parse_argument(text, word.clone(), number, at).map_err(|(at, kind)| error(at, kind))?;
        names.give(&argument.name).map_err(|clash| error(word, clash.into()))?;
        arguments.push(argument);
    }
    Ok(Spec {
        text: text.to_owned(),
        group,
        name,
        path,
        point: text[point_at.clone()].to_owned(),
        point_at,
        arguments,
    })
}

impl Spec {
    /// An error about the attach point.
    pub(super) fn point_error(&self, kind: SpecErrorKind) -> SpecError {
        SpecError { text: self.text.clone(), at: self.point_at.clone(), kind }
    }
}

/// The words of a text from `from` on, separated by blanks that are not in brackets or angle brackets, as
/// demangled names have them.
fn words(text: &str, from: usize) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut depth = 0_u32;
    let mut start = None;
    for (at, character) in text[from..].char_indices().map(|(at, character)| (from + at, character)) {
        match character {
            '(' | '<' => depth += 1,
            ')' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character.is_whitespace() && depth == 0 {
            if let Some(start) = start.take() {
                words.push(start..at);
            }
        } else {
            start.get_or_insert(at);
        }
    }
    words.extend(start.map(|start| start..text.len()));
    words
}

/// What is in the quotes that begin at `from`, and where they end. A backslash takes the next character
/// literally.
fn unquoted(text: &str, from: usize) -> Option<(String, usize)> {
    let mut found = String::new();
    let mut characters = text[from..].char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((found, from + at + 1)),
            '\\' => found.push(characters.next()?.1),
            other => found.push(other),
        }
    }
    None
}

/// A path as the text of a probe has it: in quotes if it has characters that mean something there.
pub fn quoted(path: &str) -> Cow<'_, str> {
    let is_plain =
        |one: char| one.is_alphanumeric() || matches!(one, '/' | '.' | '_' | '-' | '+' | '~' | '@');
    if path.chars().all(is_plain) {
        return Cow::Borrowed(path);
    }
    let escaped: String = path
        .chars()
        .flat_map(|one| matches!(one, '"' | '\\').then_some('\\').into_iter().chain([one]))
        .collect();
    Cow::Owned(format!("\"{escaped}\""))
}

/// What follows the file of a marker without a name: `PROVIDER:MARKER [ARGUMENT...]`; `None` with a name.
pub fn behind_path(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if text.starts_with('"') {
        let (_, end) = unquoted(text, 0)?;
        return text[end..].strip_prefix(':');
    }
    let first = text.split_whitespace().next()?;
    // The last two parts, as a path may have colons.
    let (front, _) = first.rsplit_once(':')?;
    let (path, _) = front.rsplit_once(':')?;
    (!path.contains('=')).then(|| &text[path.len() + 1..])
}

/// The option and text for what is written as in tracefs' files:
/// `p[:[GROUP/]NAME] PLACE [ARGUMENT...]`, with `r` for returns and `f` for fprobes. `None` for anything
/// else, such as a function of a program called `p`.
pub(crate) fn of_tracefs(text: &str, is_user: bool) -> Option<(&'static str, String)> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    let (kind, name) = first.split_once(':').unwrap_or((first, ""));
    // Returns may be limited in number: `r5:name`.
    let kind = kind.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let place = words.next()?;
    let is_place = if is_user {
        let file = place.split_once(':').map(|(file, _)| file);
        file.is_some_and(|file| file.contains('/') && !file.contains(['=', '(', '%', '@', '\\']))
    } else {
        place.starts_with(|one: char| one.is_ascii_alphanumeric() || one == '_') && !place.contains('=')
    };
    if !is_place {
        return None;
    }
    let (place, returns) = match place.strip_suffix("%return") {
        Some(place) => (place, true),
        None => (place, kind == "r"),
    };
    let option = match (kind, is_user, returns) {
        ("p" | "r", true, false) => "--uprobe",
        ("p" | "r", true, true) => "--uretprobe",
        ("p" | "r", false, false) => "--kprobe",
        ("p" | "r", false, true) => "--kretprobe",
        ("f", false, false) => "--fentry",
        ("f", false, true) => "--fexit",
        _ => return None,
    };
    let name = name.replace('.', "/");
    let named = match name.as_str() {
        "" => String::new(),
        // A group alone.
        group if group.ends_with('/') => String::new(),
        name => format!("{name}="),
    };
    let words: Vec<&str> = std::iter::once(place).chain(words).collect();
    Some((option, format!("{named}{}", words.join(" "))))
}

type Named = (Option<String>, Option<String>, Range<usize>);

/// Splits `GROUP/NAME=` off. What is in front of a `=` that cannot be a name's belongs to the attach point:
/// file names may have one.
fn split_name(text: &str, word: &Range<usize>) -> Result<Named, Range<usize>> {
    let first = &text[word.clone()];
    let Some((front, _)) = first.split_once('=').filter(|(front, _)| !front.starts_with(['/', '.', '"']))
    else {
        return Ok((None, None, word.clone()));
    };
    let point = word.start + front.len() + 1..word.end;
    let (group, name, name_at) = match front.split_once('/') {
        Some((group, name)) => (Some(group), name, word.start + group.len() + 1),
        None => (None, front, word.start),
    };
    if let Some(group) = group.filter(|group| !is_name(group)) {
        return Err(word.start..word.start + group.len());
    }
    if !is_name(name) {
        return Err(name_at..name_at + name.len());
    }
    Ok((group.map(str::to_owned), Some(name.to_owned()), point))
}

/// Whether the kernel would take it for an event's or an argument's name (`is_good_name`,
/// kernel/trace/trace.h).
pub(super) fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name made of any text.
pub(super) fn name_from(text: &str) -> String {
    let mut name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(NAME_MAX).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
        name.truncate(NAME_MAX);
    }
    name
}

/// A decimal or hexadecimal number.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// Splits `+OFFSET` off a function's name.
pub(super) fn split_offset(point: &str) -> Option<(&str, u64)> {
    match point.rsplit_once('+') {
        Some((name, offset)) if !name.is_empty() && number(offset).is_some() => Some((name, number(offset)?)),
        _ => Some((point, 0)),
    }
}
