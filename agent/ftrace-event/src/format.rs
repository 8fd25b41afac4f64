//! Parser of the event format text of tracefs.
//!
//! ```text
//! name: sched_wakeup
//! ID: 374
//! format:
//! <TAB>field:unsigned short common_type;<TAB>offset:0;<TAB>size:2;<TAB>signed:0;
//! ...                                               (the fields that all events have)
//!
//! <TAB>field:char comm[16];<TAB>offset:8;<TAB>size:16;<TAB>signed:0;
//! ...                                               (the event's own fields)
//!
//! print fmt: "comm=%s ...", REC->comm, ...
//! ```
//!
//! The text can come from an untrusted file, so nothing in it is trusted: every number is checked, and a
//! [`Format`] never holds more than the text.

use std::collections::HashMap;
use std::fmt;

/// Farthest that a field may reach into a record: `__data_loc` addresses no more.
const MAX_RECORD: u32 = 65536;

/// The field that has all bytes of a record whose event has no usable format, behind the common fields.
pub const RAW_FIELD: &str = "raw";

/// Type of [`RAW_FIELD`], which is none of C's.
const RAW_TYPE: &str = "byte";

/// What the last part of the text starts with.
const PRINT_FMT: &str = "print fmt:";

/// An event: its name, number and fields, and how to print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The event's name, without its system.
    pub name: String,
    /// The number that the first field of every record of this event holds.
    pub id: u16,
    /// The fields that every event of the kernel starts with.
    pub common: Vec<Field>,
    /// The event's own fields.
    pub fields: Vec<Field>,
    /// What follows `print fmt:`: a format string and its arguments as C expressions. Empty if there is none.
    pub print_fmt: String,
}

/// A member of an event's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The member's name. A second field of one name has a number behind it: `type_2`.
    pub name: String,
    /// Its C type as text; for an array and for dynamic data that of one element: `char`, `unsigned long`,
    /// `void *`. Of an array of strings, as probes have it, `char[]`.
    pub type_text: String,
    /// Whether it is an array.
    pub array: Array,
    /// Where its value is.
    pub location: Location,
    /// Bytes from the start of the record.
    pub offset: u32,
    /// Bytes in the fixed part of the record: 4 for dynamic data, 0 for an array of open length at the end.
    pub size: u32,
    /// Whether the kernel says that the type is signed.
    pub signed: bool,
    /// The name that the text has, where an earlier field has it as well.
    pub shared_name: Option<String>,
}

/// How many elements a field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Array {
    /// One: it is no array.
    Single,
    /// `[16]`.
    Fixed(u32),
    /// `[TASK_COMM_LEN]`, `[32 + 2]`: a constant or an expression, which the field's size has the value of.
    Constant(String),
    /// `[]`: as many as there are.
    Open,
}

/// Where a field's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// At the field's offset.
    Inline,
    /// `__data_loc`: the field is a u32; its low 16 bits are an offset from the start of the record, its high
    /// 16 bits a length in bytes.
    DataLoc,
    /// `__rel_loc`: as `DataLoc`, but the offset counts from the end of the field.
    RelLoc,
}

/// A format text that cannot be understood, and the line (from 1) where that showed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
#[non_exhaustive]
pub struct FormatError {
    /// Line of the text, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub kind: FormatErrorKind,
}

/// What is wrong with a line of a format text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The text ended, or went on, without a part that every format has.
    #[error("no `{0}` before this line")]
    Missing(&'static str),
    /// A line that starts like none of a format's lines.
    #[error("unexpected text `{0}`")]
    Unexpected(String),
    /// A name that is not made of letters, digits and `_`.
    #[error("`{0}` is no name")]
    Name(String),
    /// The number after a keyword is missing, malformed or too big.
    #[error("no usable number behind `{keyword}`: `{text}`")]
    Number {
        /// The word before the number.
        keyword: &'static str,
        /// What stands in its place.
        text: String,
    },
    /// A field's declaration without a type or a name.
    #[error("`{0}` declares no field")]
    Declaration(String),
    /// A field that ends past the longest possible record.
    #[error("field `{0}` ends behind the longest possible record")]
    FieldEnd(String),
}

impl Format {
    /// Parses the text of one event.
    ///
    /// # Errors
    /// The line and what is wrong with it. Keywords that are not known are an error as well: skipping a field
    /// line that is written in a new way would yield a wrong layout.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut name = None;
        let mut id = None;
        let mut in_format = false;
        // Fields stand in blocks that empty lines divide; the first block is the common one.
        let mut block = 0;
        let mut common = Vec::new();
        let mut fields: Vec<Field> = Vec::new();
        let mut names = FieldNames::default();
        let mut rest = text;
        let mut line_number = 0;
        while !rest.is_empty() {
            line_number += 1;
            let fail = |kind| FormatError { line: line_number, kind };
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            let trimmed = line.trim();
            if trimmed.starts_with(PRINT_FMT) {
                // It is the last part and may go over several lines.
                let print_fmt = rest.split_once(PRINT_FMT).map_or("", |(_, text)| text.trim());
                return finish(line_number, name, id, in_format, common, fields, print_fmt);
            }
            if let Some(value) = trimmed.strip_prefix("name:") {
                name = Some(identifier(value.trim()).map_err(fail)?.to_owned());
            } else if let Some(value) = trimmed.strip_prefix("ID:") {
                id = Some(number("ID:", value).map_err(fail)?);
            } else if trimmed == "format:" {
                in_format = true;
            } else if trimmed.is_empty() {
                block += usize::from(!common.is_empty());
            } else if let Some(declaration) =
                trimmed.strip_prefix("field:").or_else(|| trimmed.strip_prefix("field special:"))
            {
                if !in_format {
                    return Err(fail(FormatErrorKind::Missing("format:")));
                }
                let mut field = Field::parse(declaration).map_err(fail)?;
                if field.offset.checked_add(field.size).is_none_or(|end| end > MAX_RECORD) {
                    return Err(fail(FormatErrorKind::FieldEnd(field.name)));
                }
                names.make_unique(&mut field);
                if block == 0 { common.push(field) } else { fields.push(field) }
            } else {
                return Err(fail(FormatErrorKind::Unexpected(shorten(trimmed))));
            }
            rest = after;
        }
        finish(line_number, name, id, in_format, common, fields, "")
    }

    /// The field of that name, common or own; of several the first.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().chain(&self.common).find(|field| field.name == name)
    }

    /// The format of records of which only the fields that all events have are known: the bytes behind those
    /// are the field [`RAW_FIELD`].
    pub fn raw(name: &str, id: u16, common: &[Field]) -> Self {
        let offset = common.iter().map(Field::end).max().unwrap_or(0);
        let raw = Field {
            name: RAW_FIELD.to_owned(),
            type_text: RAW_TYPE.to_owned(),
            array: Array::Open,
            location: Location::Inline,
            offset,
            size: 0,
            signed: false,
            shared_name: None,
        };
        let (name, common) = (name.to_owned(), common.to_vec());
        Self { name, id, common, fields: vec![raw], print_fmt: String::new() }
    }

    /// The fields that the events of all kernels since 2.6.32 begin with.
    pub(crate) fn usual_common() -> Vec<Field> {
        let field = |name: &str, type_text: &str, offset, size, signed| Field {
            name: name.to_owned(),
            type_text: type_text.to_owned(),
            array: Array::Single,
            location: Location::Inline,
            offset,
            size,
            signed,
            shared_name: None,
        };
        vec![
            field("common_type", "unsigned short", 0, 2, false),
            field("common_flags", "unsigned char", 2, 1, false),
            field("common_preempt_count", "unsigned char", 3, 1, false),
            field("common_pid", "int", 4, 4, true),
        ]
    }

    /// The field that an argument of a `print fmt` means: of two with one name, C has the dynamic one as
    /// `__data_loc_name`, and of two inline ones of a system call the first is the call's number, which
    /// no argument means.
    pub(crate) fn member(&self, name: &str, dynamic: bool) -> Option<&Field> {
        let is_same = |field: &&Field| field.declared_name() == name;
        let is_meant = |field: &&Field| is_same(field) && (field.location != Location::Inline) == dynamic;
        let found = self.fields.iter().rfind(is_meant).or_else(|| self.fields.iter().find(is_same));
        found.or_else(|| self.common.iter().find(is_same))
    }

    /// Whether printing the event turns addresses into function names, so that a file needs the kernel's
    /// symbols to show it: the format string has one of `%pS %ps %pB %pF %pf`.
    pub fn prints_symbols(&self) -> bool {
        let mut in_string = false;
        let mut chars = self.print_fmt.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => in_string = !in_string,
                '\\' if in_string => {
                    chars.next();
                }
                '%' if in_string => {
                    let mut spec =
                        chars.clone().skip_while(|c| matches!(c, '-' | '+' | '#' | '0'..='9' | '.' | '*'));
                    match (spec.next(), spec.next()) {
                        (Some('%'), _) => {
                            chars.next();
                        }
                        (Some('p'), Some('S' | 's' | 'B' | 'F' | 'f')) => return true,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        false
    }
}

/// Name and number of the event that `text` describes, by its first lines alone.
///
/// For a writer that stores texts without having to understand them.
pub fn name_and_id(text: &str) -> Option<(&str, u32)> {
    let mut name = None;
    let mut id = None;
    for line in text.lines().take_while(|line| line.trim() != "format:") {
        if let Some(value) = line.strip_prefix("name:") {
            name = Some(value.trim());
        } else if let Some(value) = line.strip_prefix("ID:") {
            id = value.trim().parse().ok();
        }
    }
    Some((name?, id?))
}

/// The names of the fields so far, and the number that the next one of that name gets.
#[derive(Default)]
struct FieldNames(HashMap<String, u32>);

impl FieldNames {
    fn make_unique(&mut self, field: &mut Field) {
        let Some(next) = self.0.get(&field.name).copied() else {
            self.0.insert(field.name.clone(), 2);
            return;
        };
        let mut number = next;
        let unique = loop {
            let unique = format!("{}_{number}", field.name);
            number += 1;
            if !self.0.contains_key(&unique) {
                break unique;
            }
        };
        self.0.insert(unique.clone(), 2);
        let shared = std::mem::replace(&mut field.name, unique);
        self.0.insert(shared.clone(), number);
        field.shared_name = Some(shared);
    }
}

impl Field {
    /// Parses what follows `field:`, as in `pid_t pid;<TAB>offset:24;<TAB>size:4;<TAB>signed:1;`.
    ///
    /// The lines of tracefs' `events/header_page` have the same form, and its field `data` is as long as a
    /// page of data: how far a field may reach is for the caller to say.
    ///
    /// # Errors
    /// What is wrong with the declaration.
    pub fn parse(text: &str) -> Result<Self, FormatErrorKind> {
        let mut parts = text.split(';').map(str::trim);
        let declaration = parts.next().unwrap_or_default();
        let mut value = |keyword| match parts.next().and_then(|part| part.strip_prefix(keyword)) {
            Some(text) => number(keyword, text),
            None => Err(FormatErrorKind::Missing(keyword)),
        };
        let offset = value("offset:")?;
        let size = value("size:")?;
        // Kernels before 2.6.38 do not state the sign.
        let signed = match value("signed:") {
            Ok(signed) => signed != 0,
            Err(FormatErrorKind::Missing(_)) => false,
            Err(error) => return Err(error),
        };
        let mut field = Self::declared(declaration)?;
        field.offset = offset;
        field.size = size;
        field.signed = signed;
        Ok(field)
    }

    /// The name that the text has for it, which an earlier field may have as well.
    pub fn declared_name(&self) -> &str {
        self.shared_name.as_deref().unwrap_or(&self.name)
    }

    /// Whether it is an array that goes on to the end of the record. Older kernels write `char buf` for
    /// `char buf[]`.
    pub fn is_open(&self) -> bool {
        self.location == Location::Inline && self.size == 0
    }

    /// Whether it is the field of [`Format::raw`].
    pub(crate) fn is_raw(&self) -> bool {
        self.is_open() && self.name == RAW_FIELD && self.type_text == RAW_TYPE
    }

    /// How many strings the field is an array of; each has a word of offset and length. `None` for other
    /// fields.
    pub fn strings(&self) -> Option<u32> {
        match self.array {
            Array::Fixed(count) if self.type_text == "char[]" => Some(count.min(self.size / 4)),
            _ => None,
        }
    }

    /// Offset of the first byte after the field's fixed part.
    pub fn end(&self) -> u32 {
        // Checked when parsed; a field that was made by hand gets no wrong sum either.
        self.offset.saturating_add(self.size)
    }

    /// The field of a C declaration, offset and size still unknown.
    fn declared(declaration: &str) -> Result<Self, FormatErrorKind> {
        let wrong = || FormatErrorKind::Declaration(shorten(declaration));
        let (location, rest) = if let Some(rest) = declaration.strip_prefix("__data_loc ") {
            (Location::DataLoc, rest)
        } else if let Some(rest) = declaration.strip_prefix("__rel_loc ") {
            (Location::RelLoc, rest)
        } else {
            (Location::Inline, declaration)
        };
        let rest = rest.trim();
        // `char comm[16]`: the brackets follow the name.
        let (rest, mut array) = match rest.strip_suffix(']') {
            Some(inner) => {
                let (before, length) = inner.rsplit_once('[').ok_or_else(wrong)?;
                (before.trim_end(), array_length(length)?)
            }
            None => (rest, Array::Single),
        };
        let name_at = rest.rfind(|c: char| !is_name_char(c)).map_or(0, |at| at + last_char_len(&rest[at..]));
        let (type_text, name) = rest.split_at(name_at);
        let mut type_text = type_text.trim();
        // `__data_loc char[] name`: the brackets follow the type.
        if array == Array::Single
            && let Some(inner) = type_text.strip_suffix(']')
        {
            let (before, length) = inner.rsplit_once('[').ok_or_else(wrong)?;
            type_text = before.trim_end();
            array = array_length(length)?;
        }
        // `__data_loc char[][2] name`: probes have arrays of strings, one word of offset and length for each.
        let strings =
            matches!(array, Array::Fixed(_)) && location != Location::Inline && type_text == "char[]";
        if type_text.is_empty() || name.is_empty() || (type_text.contains(['[', ']']) && !strings) {
            return Err(wrong());
        }
        let (type_text, name) = (type_text.to_owned(), name.to_owned());
        Ok(Self { name, type_text, array, location, offset: 0, size: 0, signed: false, shared_name: None })
    }
}

impl fmt::Display for Field {
    /// The declaration as tracefs writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { type_text, array, location, .. } = self;
        let name = self.declared_name();
        match location {
            Location::DataLoc => write!(f, "__data_loc {type_text}{array} {name}"),
            Location::RelLoc => write!(f, "__rel_loc {type_text}{array} {name}"),
            Location::Inline => write!(f, "{type_text} {name}{array}"),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => Ok(()),
            Self::Fixed(length) => write!(f, "[{length}]"),
            Self::Constant(name) => write!(f, "[{name}]"),
            Self::Open => f.write_str("[]"),
        }
    }
}

fn finish(
    line: usize,
    name: Option<String>,
    id: Option<u16>,
    in_format: bool,
    common: Vec<Field>,
    fields: Vec<Field>,
    print_fmt: &str,
) -> Result<Format, FormatError> {
    let missing = |what| FormatError { line, kind: FormatErrorKind::Missing(what) };
    let name = name.ok_or_else(|| missing("name:"))?;
    let id = id.ok_or_else(|| missing("ID:"))?;
    if !in_format {
        return Err(missing("format:"));
    }
    Ok(Format { name, id, common, fields, print_fmt: print_fmt.to_owned() })
}

fn array_length(text: &str) -> Result<Array, FormatErrorKind> {
    let text = text.trim();
    if text.is_empty() {
        Ok(Array::Open)
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        number("[", text).map(Array::Fixed)
    } else if text.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        // Kernels before 6.2 write what stands in their source.
        Ok(Array::Constant(text.to_owned()))
    } else {
        Err(FormatErrorKind::Number { keyword: "[", text: shorten(text) })
    }
}

fn number<T: std::str::FromStr>(keyword: &'static str, text: &str) -> Result<T, FormatErrorKind> {
    let text = text.trim();
    text.parse().map_err(|_| FormatErrorKind::Number { keyword, text: shorten(text) })
}

fn identifier(text: &str) -> Result<&str, FormatErrorKind> {
    // Names of user events and of probes are C identifiers as well; tracefs makes sure of that.
    if !text.is_empty() && text.chars().all(|c| is_name_char(c) || c == '-' || c == '.') {
        Ok(text)
    } else {
        Err(FormatErrorKind::Name(shorten(text)))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn last_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// The start of a text, for an error message: what comes from a file may be of any length.
fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
