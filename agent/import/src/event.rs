//! Events of sources that have no format text: the text that is made of their fields, and values as a record.
//!
//! A record is laid out as the kernel lays out the C struct of a tracepoint: the common fields, the event's
//! own fields each at a multiple of its size, then the values of dynamic fields (`__data_loc`), each of which
//! has a word of offset and length among the fields (`include/trace/stages/` of the kernel).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{ImportError, ftrace};
use ftrace_event::Endian;
use ftrace_event::Format;

/// The fields that the events of all kernels since 2.6.38 begin with.
pub(super) const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/// Where the first field after the common ones is.
const COMMON_LEN: u32 = 8;

/// The most bytes that the word of a dynamic field can tell of, and the farthest place of them.
const MAX_DYNAMIC: usize = u16::MAX as usize;

/// Where the fixed fields of an event must end, so that its dynamic values can be reached.
const MAX_FIXED: u32 = 32 << 10;

/// Most labels of a value that are printed: texts of tens of thousands make readers slow.
const MAX_LABELS: usize = 1024;

/// An event of a source that has no format text of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSpec {
    /// The system that it belongs to. What cannot stand in a name of tracefs becomes `_`.
    pub system: String,
    /// Its name, in the same way.
    pub name: String,
    /// Its fields, in the order in which they are printed. Names in the same way; equal ones get numbers.
    pub fields: Vec<FieldSpec>,
    /// What follows `print fmt:` in its format. `None`: all fields as `name=value`.
    pub print_fmt: Option<String>,
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: FieldType,
}

/// What the values of a field are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A number: [`Value::Signed`] or [`Value::Unsigned`].
    Integer(Integer),
    /// A text of any length ([`Value::Text`]), `__data_loc char[]`. What is beyond 64 KiB is cut.
    Text,
    /// A text of at most this many bytes ([`Value::Text`]), `char[N]`, as names of tasks have it.
    TextArray(u32),
    /// So many numbers: [`Value::Numbers`], or of one byte each [`Value::Text`].
    Array(Integer, u32),
    /// Numbers, as many as a record has, `__data_loc u8[]`: [`Value::Numbers`], or of one byte each
    /// [`Value::Text`].
    Sequence(Integer),
}

/// A number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Integer {
    /// Its bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it can be negative.
    pub signed: bool,
    /// How it is printed.
    pub show: Show,
}

/// How a number is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// Decimal.
    #[default]
    Decimal,
    /// Hexadecimal, with `0x`.
    Hex,
    /// As an address: hexadecimal, and a pointer for readers. Only of numbers of 8 bytes.
    Address,
    /// By name, where it has one.
    Labels(Vec<(i64, String)>),
}

/// The value of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Signed(i64),
    /// A number.
    Unsigned(u64),
    /// Bytes of a text, up to the first NUL if it has one; or of an array of bytes.
    Text(&'a [u8]),
    /// Numbers, negative ones in two's complement.
    Numbers(&'a [u64]),
    /// None: 0, or an empty text or list.
    Absent,
}

/// How the records of an event are laid out, and its format text without its number.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) system: String,
    pub(super) name: String,
    /// The text after the line `format:`.
    pub(super) body: String,
    fields: Vec<Place>,
    /// Where dynamic values begin.
    fixed: u32,
    /// What the length of a record without dynamic values is a multiple of.
    align: u32,
    /// The number that the event has in all kernels.
    pub(super) id: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    kind: PlaceKind,
}

#[derive(Clone, Copy, Debug)]
enum PlaceKind {
    /// So many numbers of so many bytes.
    Fixed { size: u8, count: u32 },
    /// Bytes that end with NUL.
    Chars(u32),
    /// A word; the bytes end with NUL.
    DynamicText,
    /// A word; so many bytes each.
    Dynamic(u8),
    /// Up to the record's end: numbers of so many bytes, at least so many. Where there are not so many, and
    /// where something else follows, all ones end them.
    Open { size: u8, least: u32 },
    /// Up to the record's end: bytes that end with NUL.
    OpenText,
}

impl Integer {
    /// A number that is printed in decimal. Sizes that are none become the next one that is.
    pub fn new(size: u8, signed: bool) -> Self {
        Self { size: bytes_of(size), signed, show: Show::Decimal }
    }

    fn c_type(&self) -> &'static str {
        if self.show == Show::Address && self.size == 8 {
            return "void *";
        }
        match (bytes_of(self.size), self.signed) {
            (1, false) => "u8",
            (1, true) => "s8",
            (2, false) => "u16",
            (2, true) => "s16",
            (4, false) => "u32",
            (4, true) => "s32",
            (_, false) => "u64",
            (_, true) => "s64",
        }
    }

    fn conversion(&self) -> &'static str {
        match (&self.show, self.size > 4, self.signed) {
            (Show::Labels(labels), ..) if !labels.is_empty() => "%s",
            (Show::Hex | Show::Address, false, _) => "0x%x",
            (Show::Hex | Show::Address, true, _) => "0x%llx",
            (_, false, false) => "%u",
            (_, false, true) => "%d",
            (_, true, false) => "%llu",
            (_, true, true) => "%lld",
        }
    }

    fn argument(&self, name: &str) -> String {
        match &self.show {
            Show::Labels(labels) if !labels.is_empty() => {
                let mut text = format!("__print_symbolic(REC->{name}");
                for (value, label) in labels.iter().take(MAX_LABELS) {
                    let _ = write!(text, ", {{ {value}, \"{}\" }}", in_quotes(label));
                }
                text + ")"
            }
            _ => format!("REC->{name}"),
        }
    }
}

fn bytes_of(size: u8) -> u8 {
    match size {
        0 | 1 => 1,
        2 => 2,
        3 | 4 => 4,
        _ => 8,
    }
}

/// A name as tracefs has them: letters, digits and `_`, the first no digit.
pub fn identifier(text: &str) -> String {
    let mut name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if name.chars().next().is_none_or(|c| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// Text as it stands between quotes of a `print fmt`, and is printed there as it is.
pub fn in_quotes(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push('?'),
            c => quoted.push(c),
        }
    }
    quoted
}

impl Layout {
    /// For a machine with longs of so many bytes.
    pub(super) fn of(spec: &EventSpec, long_size: u8) -> Result<Self, ImportError> {
        let (system, mut name) = (identifier(&spec.system), identifier(&spec.name));
        let mut own = ftrace::named(&system, &name);
        if own.is_some_and(|own| !own.has(&spec.fields, long_size)) {
            // Readers would take it for ftrace's.
            own = None;
            name.push_str("_2");
        }
        let unsupported = |why| ImportError::Unsupported(format!("the event {system}:{name} {why}"));
        let mut taken = BTreeSet::new();
        let mut fields = vec![Place { at: 0, kind: PlaceKind::OpenText }; spec.fields.len()];
        let (mut lines, mut texts, mut arguments) = (String::new(), Vec::new(), String::new());
        let mut end = COMMON_LEN;
        let kind_in_ftrace = |field: &FieldSpec| own?.kind(&identifier(&field.name));
        let mut order: Vec<_> = (0..).zip(&spec.fields).collect();
        order.sort_by_key(|(_, field)| kind_in_ftrace(field).is_some_and(ftrace::Kind::is_open));
        for (index, field) in order {
            let name = free_name(&field.name, &mut taken);
            let (kind, size, align, declaration) = match kind_in_ftrace(field) {
                Some(kind) => declared_as(kind, &field.kind, &name, long_size),
                None => declared(&field.kind, &name),
            };
            let at = end.next_multiple_of(align);
            end = at.saturating_add(size);
            if end > MAX_FIXED {
                return Err(unsupported("has fields of more than 32 KiB"));
            }
            let signed = u8::from(declaration.signed);
            let _ = writeln!(
                lines,
                "\tfield:{};\toffset:{at};\tsize:{size};\tsigned:{signed};",
                declaration.text
            );
            texts.push(format!("{name}={}", declaration.conversion));
            arguments.push_str(", ");
            arguments.push_str(&declaration.argument);
            let index: usize = index;
            if let Some(place) = fields.get_mut(index) {
                *place = Place { at, kind };
            }
        }
        let print_fmt = match (own.and_then(|own| own.print_fmt), &spec.print_fmt) {
            (Some(text), _) => text.to_owned(),
            (None, Some(text)) => text.clone(),
            (None, None) => format!("\"{}\"{arguments}", texts.join(" ")),
        };
        let body = format!("{COMMON}{lines}\nprint fmt: {print_fmt}\n");
        let parsed = Format::parse(&text(&name, 1, &body)).map_err(|source| {
            let event = format!("{system}:{name}");
            ImportError::EventFormat { event, source }
        })?;
        let layout = parsed.record_layout();
        let id = own.and_then(|own| own.id);
        Ok(Self { system, name, body, fields, fixed: layout.fields_end, align: layout.align, id })
    }

    /// Appends the record of these values; what there are less of than fields is absent. The number of the
    /// event is left 0. Returns whether a value had to be cut.
    pub(super) fn encode(
        &self,
        endian: Endian,
        common: super::Common,
        values: &[Value<'_>],
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        out.extend_from_slice(&[0, 0, common.flags, common.preempt_count]);
        out.extend_from_slice(&endian.u32(common.pid));
        out.resize(start + self.fixed as usize, 0);
        let value_of = |index: usize| values.get(index).copied().unwrap_or(Value::Absent);
        let mut cut = self.encode_open(endian, &value_of, start, out);
        for (index, place) in self.fields.iter().enumerate() {
            let value = value_of(index);
            let at = start + place.at as usize;
            match place.kind {
                PlaceKind::Fixed { size, count } => {
                    for (index, number) in numbers(value).take(count as usize).enumerate() {
                        put(out, at + index * usize::from(size), endian, size, number);
                    }
                }
                PlaceKind::Chars(size) => {
                    let text = up_to_nul(value);
                    // One that fills it has no NUL, as in the kernel's records.
                    let kept = text.len().min(size as usize);
                    cut |= kept < text.len();
                    if let (Some(into), Some(text)) = (out.get_mut(at..at + kept), text.get(..kept)) {
                        into.copy_from_slice(text);
                    }
                }
                PlaceKind::DynamicText => {
                    let from = out.len();
                    let text = up_to_nul(value);
                    let room = MAX_DYNAMIC.saturating_sub(from - start);
                    let kept = text.len().min(room.saturating_sub(1));
                    cut |= kept < text.len();
                    out.extend_from_slice(text.get(..kept).unwrap_or_default());
                    out.push(0);
                    put_word(out, endian, start, at, from);
                }
                PlaceKind::Dynamic(size) => {
                    // As the kernel aligns the elements of nothing, they follow what was before.
                    let from = out.len();
                    let room = MAX_DYNAMIC.saturating_sub(from - start) / usize::from(size);
                    for (index, number) in numbers(value).enumerate() {
                        if index >= room {
                            cut = true;
                            break;
                        }
                        let end = out.len();
                        out.resize(end + usize::from(size), 0);
                        put(out, end, endian, size, number);
                    }
                    put_word(out, endian, start, at, from);
                }
                PlaceKind::Open { .. } | PlaceKind::OpenText => {}
            }
        }
        let len = (out.len() - start).next_multiple_of(self.align as usize);
        out.resize(start + len, 0);
        cut
    }
}

impl Layout {
    /// Appends the value that goes on to the record's end, if there is one. Returns whether it had to be cut.
    fn encode_open<'v>(
        &self,
        endian: Endian,
        value_of: &dyn Fn(usize) -> Value<'v>,
        start: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let is_open = |place: &Place| matches!(place.kind, PlaceKind::Open { .. } | PlaceKind::OpenText);
        let Some(index) = self.fields.iter().position(is_open) else { return false };
        let Some(Place { at, kind }) = self.fields.get(index).copied() else { return false };
        let room = MAX_DYNAMIC.saturating_sub(at as usize);
        out.truncate(start + at as usize);
        let PlaceKind::Open { size, least } = kind else {
            let text = up_to_nul(value_of(index));
            let kept = text.len().min(room.saturating_sub(1));
            out.extend_from_slice(text.get(..kept).unwrap_or_default());
            out.push(0);
            return kept < text.len();
        };
        let is_dynamic = |place: &Place| matches!(place.kind, PlaceKind::Dynamic(_) | PlaceKind::DynamicText);
        let (most, mut count) = (room / usize::from(size.max(1)), 0);
        let push = |number, out: &mut Vec<u8>| {
            let end = out.len();
            out.resize(end + usize::from(size), 0);
            put(out, end, endian, size, number);
        };
        let mut cut = false;
        for number in numbers(value_of(index)) {
            cut = count + 1 >= most;
            if cut {
                break;
            }
            push(number, out);
            count += 1;
        }
        let end = usize::from(least > 0 && self.fields.iter().any(is_dynamic));
        for _ in count..(count + end).max(least as usize) {
            push(u64::MAX, out);
        }
        cut
    }
}

/// Writes the word of a dynamic field whose bytes are from `from` to the end.
fn put_word(out: &mut [u8], endian: Endian, start: usize, at: usize, from: usize) {
    let word = (((out.len() - from) as u32) << 16) | (from - start) as u32;
    if let Some(into) = out.get_mut(at..at + 4) {
        into.copy_from_slice(&endian.u32(word));
    }
}

/// The text of a format.
pub(super) fn text(name: &str, id: u16, body: &str) -> String {
    format!("name: {name}\nID: {id}\nformat:\n{body}")
}

/// A name that no field before has, and no common one.
fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name = identifier(name);
    if name.starts_with("common_") {
        name.insert(0, '_');
    }
    let mut number = 2;
    let mut free = name.clone();
    while !taken.insert(free.clone()) {
        free = format!("{name}_{number}");
        number += 1;
    }
    free
}

/// What a format text says of a field.
struct Declaration {
    text: String,
    signed: bool,
    conversion: &'static str,
    argument: String,
}

/// Where a field's value goes, its size and alignment, and what is said of it.
fn declared(kind: &FieldType, name: &str) -> (PlaceKind, u32, u32, Declaration) {
    let say = |text, signed, conversion, argument| Declaration { text, signed, conversion, argument };
    match kind {
        FieldType::Integer(integer) => {
            let size = bytes_of(integer.size);
            let text = format!("{} {name}", integer.c_type());
            let said = say(text, integer.signed, integer.conversion(), integer.argument(name));
            (PlaceKind::Fixed { size, count: 1 }, size.into(), size.into(), said)
        }
        FieldType::Text => {
            let argument = format!("__get_str({name})");
            (PlaceKind::DynamicText, 4, 4, say(format!("__data_loc char[] {name}"), false, "%s", argument))
        }
        FieldType::TextArray(size) => {
            let size = (*size).max(1);
            let said = say(format!("char {name}[{size}]"), false, "%s", format!("REC->{name}"));
            (PlaceKind::Chars(size), size, 1, said)
        }
        FieldType::Array(integer, count) => {
            let (size, count) = (bytes_of(integer.size), (*count).max(1));
            let text = format!("{} {name}[{count}]", integer.c_type());
            let argument = format!("__print_array(REC->{name}, {count}, {size})");
            let whole = count.saturating_mul(size.into());
            (PlaceKind::Fixed { size, count }, whole, size.into(), say(text, integer.signed, "%s", argument))
        }
        FieldType::Sequence(integer) => {
            let size = bytes_of(integer.size);
            let text = format!("__data_loc {}[] {name}", integer.c_type());
            let argument = format!(
                "__print_array(__get_dynamic_array({name}), __get_dynamic_array_len({name}) / {size}, {size})"
            );
            (PlaceKind::Dynamic(size), 4, 4, say(text, integer.signed, "%s", argument))
        }
    }
}

/// The same of a field that ftrace lays out in its own way.
fn declared_as(
    kind: ftrace::Kind,
    of: &FieldType,
    name: &str,
    long_size: u8,
) -> (PlaceKind, u32, u32, Declaration) {
    let said = |text, conversion, argument| Declaration { text, signed: false, conversion, argument };
    let frames = ftrace::FRAMES as u32;
    let longs = || said(format!("unsigned long {name}[{frames}]"), "%s", String::new());
    let open = |of| said(format!("{of} {name}[]"), "%s", format!("REC->{name}"));
    let (long, whole) = (u32::from(long_size), frames * u32::from(long_size));
    match kind {
        ftrace::Kind::Long | ftrace::Kind::Number => declared(of, name),
        ftrace::Kind::Frames => (PlaceKind::Open { size: long_size, least: frames }, whole, long, longs()),
        ftrace::Kind::FramesOfPart => {
            (PlaceKind::Fixed { size: long_size, count: frames }, whole, long, longs())
        }
        ftrace::Kind::Words => (PlaceKind::Open { size: 4, least: 0 }, 0, 4, open("u32")),
        ftrace::Kind::Text => (PlaceKind::OpenText, 0, 1, open("char")),
        ftrace::Kind::Bytes => (PlaceKind::Open { size: 1, least: 0 }, 0, 1, open("char")),
    }
}

/// The numbers of a value, in two's complement.
fn numbers(value: Value<'_>) -> impl Iterator<Item = u64> {
    let (one, bytes, many): (_, &[u8], &[u64]) = match value {
        Value::Signed(number) => (Some(number.cast_unsigned()), &[], &[]),
        Value::Unsigned(number) => (Some(number), &[], &[]),
        Value::Text(bytes) => (None, bytes, &[]),
        Value::Numbers(numbers) => (None, &[], numbers),
        Value::Absent => (None, &[], &[]),
    };
    one.into_iter().chain(bytes.iter().map(|byte| u64::from(*byte))).chain(many.iter().copied())
}

fn up_to_nul(value: Value<'_>) -> &[u8] {
    match value {
        Value::Text(text) => text.split(|byte| *byte == 0).next().unwrap_or_default(),
        _ => &[],
    }
}

/// Writes the lowest bytes of a number.
fn put(out: &mut [u8], at: usize, endian: Endian, size: u8, number: u64) {
    let size = usize::from(size);
    let Some(into) = out.get_mut(at..at + size) else { return };
    let bytes = endian.u64(number);
    let bytes = match endian {
        Endian::Little => bytes.get(..size),
        Endian::Big => bytes.get(8 - size..),
    };
    into.copy_from_slice(bytes.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::Common;
    use super::*;
    use ftrace_event::{EventTable, Machine, NoNames, NoSymbols};

    fn spec() -> EventSpec {
        let integer = |size, signed, show| FieldType::Integer(Integer { size, signed, show });
        let labels = vec![(-1, "none".to_owned()), (7, "se\"ven".to_owned())];
        let fields = [
            ("pid", integer(4, true, Show::Decimal)),
            ("small", integer(1, false, Show::Decimal)),
            ("addr", integer(8, false, Show::Hex)),
            ("file name", FieldType::Text),
            ("comm", FieldType::TextArray(8)),
            ("state", integer(2, true, Show::Labels(labels))),
            ("xs", FieldType::Array(Integer::new(2, false), 3)),
            ("ys", FieldType::Sequence(Integer::new(4, false))),
            ("pid", integer(8, true, Show::Decimal)),
            ("common_pid", integer(4, false, Show::Decimal)),
        ];
        let fields = fields.map(|(name, kind)| FieldSpec { name: name.to_owned(), kind }).to_vec();
        EventSpec { system: "my-app".to_owned(), name: "8th:event".to_owned(), fields, print_fmt: None }
    }

    fn printed(endian: Endian, values: &[Value<'_>]) -> (String, bool) {
        let layout = Layout::of(&spec(), 8).unwrap();
        assert_eq!((layout.system.as_str(), layout.name.as_str()), ("my_app", "_8th_event"));
        let mut table = EventTable::new(Machine { endian, long_size: 8 });
        table.add(&layout.system, &text(&layout.name, 0x1234, &layout.body), &NoNames).unwrap();
        let mut record = Vec::new();
        let common = Common { pid: 42, flags: 1, preempt_count: 2 };
        let cut = layout.encode(endian, common, values, &mut record);
        assert_eq!(record.len() % 8, 0);
        record[..2].copy_from_slice(&endian.u16(0x1234));
        let mut out = Vec::new();
        table.print(&record, &NoSymbols, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), cut)
    }

    #[test]
    fn values_are_printed_as_they_were_given() {
        let values = [
            Value::Signed(-5),
            Value::Unsigned(200),
            Value::Unsigned(0xffff_8888_0000_1234),
            Value::Text(b"/etc/pass wd\0rest"),
            Value::Text(b"bash"),
            Value::Signed(7),
            Value::Numbers(&[1, 2, 65535]),
            Value::Numbers(&[10, 20]),
            Value::Signed(i64::MIN),
            Value::Unsigned(9),
        ];
        for endian in [Endian::Little, Endian::Big] {
            let (text, cut) = printed(endian, &values);
            assert_eq!(
                text,
                "pid=-5 small=200 addr=0xffff888800001234 file_name=/etc/pass wd comm=bash state=se\"ven \
                 xs={0x1,0x2,0xffff} ys={0xa,0x14} pid_2=-9223372036854775808 _common_pid=9"
            );
            assert!(!cut);
        }
    }

    #[test]
    fn absent_and_long_values() {
        let (text, cut) = printed(Endian::Little, &[]);
        assert_eq!(
            text,
            "pid=0 small=0 addr=0x0 file_name= comm= state=0x0 xs={0x0,0x0,0x0} ys={} pid_2=0 _common_pid=0"
        );
        assert!(!cut);
        let long = vec![b'x'; 70_000];
        let (text, cut) =
            printed(Endian::Little, &[Value::Absent, Value::Absent, Value::Absent, Value::Text(&long)]);
        assert!(text.len() > 3000 && cut, "{}", text.len());
        let values =
            [Value::Absent, Value::Absent, Value::Absent, Value::Absent, Value::Text(b"longer-than-8")];
        let (text, cut) = printed(Endian::Little, &values);
        assert!(text.contains("comm=longer-t ") && cut, "{text}");
    }
}
