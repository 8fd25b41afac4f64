//! The text of a probe: `[[GROUP/]NAME=]ATTACH_POINT [ARGUMENT...]`.

use std::ops::Range;

use super::fetch::{Argument, parse_argument};

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
    /// What stands for the attach point, and where in the text.
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
    /// Two arguments have it.
    #[error("there is another argument with this name")]
    SameName,
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

/// Reads the text of a probe.
pub(super) fn parse(text: &str, at: At) -> Result<Spec, SpecError> {
    let error = |at: Range<usize>, kind| SpecError { text: text.to_owned(), at, kind };
    let mut words = words(text).into_iter();
    let Some(first) = words.next() else { return Err(error(0..text.len(), SpecErrorKind::NoAttachPoint)) };
    let (group, name, point_at) = split_name(text, &first).map_err(|at| error(at, SpecErrorKind::Name))?;
    if point_at.is_empty() {
        return Err(error(first, SpecErrorKind::NoAttachPoint));
    }
    let mut arguments: Vec<Argument> = Vec::new();
    for word in words {
        if arguments.len() == ARGUMENTS_MAX {
            return Err(error(word, SpecErrorKind::Arguments));
        }
        let number = arguments.len() + 1;
        let argument =
            parse_argument(text, word.clone(), number, at).map_err(|(at, kind)| error(at, kind))?;
        if arguments.iter().any(|other| other.name == argument.name) {
            return Err(error(word, SpecErrorKind::SameName));
        }
        arguments.push(argument);
    }
    Ok(Spec {
        text: text.to_owned(),
        group,
        name,
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

/// The words of a text, separated by blanks that are not in brackets or angle brackets, as demangled names
/// have them.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut depth = 0_u32;
    let mut start = None;
    for (at, character) in text.char_indices() {
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

type Named = (Option<String>, Option<String>, Range<usize>);

/// Splits `GROUP/NAME=` off. What is in front of a `=` that cannot be a name's belongs to the attach point:
/// file names may have one.
fn split_name(text: &str, word: &Range<usize>) -> Result<Named, Range<usize>> {
    let first = &text[word.clone()];
    let Some((front, _)) = first.split_once('=').filter(|(front, _)| !front.starts_with(['/', '.'])) else {
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
