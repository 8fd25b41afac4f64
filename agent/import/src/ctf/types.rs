//! Types of fields (CTF 1.8.2, section 4; CTF2-SPEC-2.0, section 5.3), as the metadata declare them.
//!
//! Types are shared, not copied: a structure that is named once and used in a thousand events is there once.
//! A type can only have types in it that were declared before, so none is in itself; how deep they are nested
//! is limited where they are made ([`DEPTH_MAX`]).

use std::sync::Arc;

use super::roles::Roles;
use ftrace_event::Endian;

/// How deep types are in types at most. LTTng's have six levels.
pub(crate) const DEPTH_MAX: u32 = 32;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// An integer of any number of bits.
    Integer(Arc<Integer>),
    /// An integer some of whose values have names.
    Enum(Arc<Enumeration>),
    /// A number of IEEE 754.
    Float(Float),
    /// Characters up to a NUL.
    String,
    /// Fields one after the other.
    Struct(Arc<Struct>),
    /// One of several fields.
    Variant(Variant),
    /// As many elements as the metadata say.
    Array(Arc<Array>),
    /// As many elements as a field before says.
    Sequence(Arc<Sequence>),
}

/// The longest name of a field or a value: each becomes names of columns and texts of events.
pub(crate) const NAME_MAX: usize = 1024;
/// The most ranges of values by which the fields of a variant are chosen: they are searched for each value.
pub(crate) const RANGES_MAX: usize = 4096;

/// An integer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Integer {
    /// Its size: 1 to 64. One of any length has 64 bits at most.
    pub(crate) bits: u8,
    /// Whether it has as many bytes as its writer needs, seven bits in each (LEB128).
    pub(crate) is_variable: bool,
    /// Its alignment in bits, a power of two.
    pub(crate) align: u64,
    pub(crate) signed: bool,
    /// Its byte order; `None` for the trace's own.
    pub(crate) order: Option<Endian>,
    /// The base that it is shown in: 2, 8, 10 or 16.
    pub(crate) base: u8,
    /// Whether it is a character, so that an array of them is a text.
    pub(crate) character: bool,
    /// The clock whose low bits it is.
    pub(crate) clock: Option<Arc<str>>,
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enumeration {
    pub(crate) of: Arc<Integer>,
    pub(crate) labels: Vec<Label>,
}

/// A name of values of an enumeration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Label {
    pub(crate) name: Arc<str>,
    pub(crate) first: i128,
    pub(crate) last: i128,
}

impl Enumeration {
    /// The first name of a value.
    pub(crate) fn label(&self, value: i128) -> Option<&Arc<str>> {
        let label = self.labels.iter().find(|label| (label.first..=label.last).contains(&value));
        label.map(|label| &label.name)
    }
}

/// A floating-point number, of 32 or of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Float {
    pub(crate) bits: u8,
    pub(crate) align: u64,
    pub(crate) order: Option<Endian>,
}

/// A structure.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Struct {
    pub(crate) fields: Vec<Field>,
    /// The largest alignment of its fields, or that which it asks for.
    pub(crate) align: u64,
    pub(crate) depth: u32,
}

/// A field of a structure or a variant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// As the metadata have it, in CTF 1.8 with the underscore that writers put before it.
    pub(crate) name: Arc<str>,
    /// Whether the first character can be that underscore.
    pub(crate) is_escaped: bool,
    pub(crate) ty: Type,
    pub(crate) roles: Roles,
}

impl Field {
    /// The name without the underscore that keeps it apart from the words of the language.
    pub(crate) fn shown(&self) -> &str {
        self.name.strip_prefix('_').filter(|_| self.is_escaped).unwrap_or(&self.name)
    }
}

/// A choice of fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    /// The field that says which one there is.
    pub(crate) tag: FieldPath,
    pub(crate) options: Arc<Options>,
}

/// What a variant is a choice of.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) fields: Vec<Field>,
    /// The values that choose each of them, in CTF 2. In CTF 1.8, the names of an enumeration do.
    pub(crate) ranges: Option<Vec<Vec<(i128, i128)>>>,
    /// Whether no field may be chosen.
    pub(crate) is_optional: bool,
    pub(crate) depth: u32,
}

/// An array.
#[derive(Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) element: Type,
    pub(crate) count: u64,
    /// The least alignment in bits.
    pub(crate) align: u64,
}

/// A sequence.
#[derive(Debug, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) element: Type,
    /// The unsigned integer that has the number of elements.
    pub(crate) length: FieldPath,
    /// The least alignment in bits.
    pub(crate) align: u64,
}

/// Where a field is that another one depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath {
    pub(crate) start: Start,
    /// Names of structures or variants, then the field's. Never empty.
    pub(crate) names: Vec<Arc<str>>,
}

/// Where the path of a field begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A part of a packet or an event.
    Scope(Scope),
    /// The structures around the field that depends on it, and what comes before them.
    Outwards,
    /// So many structures further out than that around the field that depends on it.
    Parent(usize),
}

/// The parts of a packet and of an event, in the order in which they come (section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamContext,
    EventContext,
    Fields,
}

impl Scope {
    /// All, in their order.
    pub(crate) const ALL: [Self; 6] = [
        Self::PacketHeader,
        Self::PacketContext,
        Self::EventHeader,
        Self::StreamContext,
        Self::EventContext,
        Self::Fields,
    ];

    /// The name that paths begin with.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PacketHeader => "trace.packet.header",
            Self::PacketContext => "stream.packet.context",
            Self::EventHeader => "stream.event.header",
            Self::StreamContext => "stream.event.context",
            Self::EventContext => "event.context",
            Self::Fields => "event.fields",
        }
    }
}

impl FieldPath {
    /// The path that the metadata write.
    pub(crate) fn text(&self) -> String {
        let scope = match self.start {
            Start::Scope(scope) => Some(scope.name()),
            Start::Outwards | Start::Parent(_) => None,
        };
        scope.into_iter().chain(self.names.iter().map(|name| &**name)).collect::<Vec<_>>().join(".")
    }
}

impl Type {
    /// The alignment in bits.
    pub(crate) fn align(&self) -> u64 {
        match self {
            Self::Integer(integer) => integer.align,
            Self::Enum(enumeration) => enumeration.of.align,
            Self::Float(float) => float.align,
            Self::String => 8,
            Self::Struct(of) => of.align,
            // That of the field that is chosen.
            Self::Variant(_) => 1,
            Self::Array(array) => array.element.align().max(array.align),
            Self::Sequence(sequence) => sequence.element.align().max(sequence.align),
        }
    }

    /// How many levels of types are in it.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Integer(_) | Self::Enum(_) | Self::Float(_) | Self::String => 0,
            Self::Struct(of) => of.depth,
            Self::Variant(variant) => variant.options.depth,
            Self::Array(array) => array.element.depth() + 1,
            Self::Sequence(sequence) => sequence.element.depth() + 1,
        }
    }

    /// Whether an array of it is a text.
    pub(crate) fn is_character(&self) -> bool {
        matches!(self, Self::Integer(of) if of.character && of.bits == 8 && !of.is_variable)
    }

    /// The integer that it is, an enumeration's included.
    pub(crate) fn as_integer(&self) -> Option<&Arc<Integer>> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Enum(enumeration) => Some(&enumeration.of),
            _ => None,
        }
    }
}

impl Struct {
    /// A structure of these fields.
    pub(crate) fn new(fields: Vec<Field>, least_align: u64) -> Self {
        let align = fields.iter().map(|field| field.ty.align()).fold(least_align.max(1), u64::max);
        let depth = depth_of(&fields);
        Self { fields, align, depth }
    }

    /// The place of a field.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| *field.name == *name)
    }
}

impl Options {
    pub(crate) fn new(fields: Vec<Field>) -> Self {
        let depth = depth_of(&fields);
        Self { fields, ranges: None, is_optional: false, depth }
    }

    /// The place of the field that a value of the tag chooses.
    pub(crate) fn chosen(&self, tag: &Type, value: i128) -> Option<usize> {
        let is_in = |(first, last): &(i128, i128)| (*first..=*last).contains(&value);
        if let Some(ranges) = &self.ranges {
            return ranges.iter().position(|ranges| ranges.iter().any(is_in));
        }
        let Type::Enum(of) = tag else { return None };
        let labels = of.labels.iter().filter(|label| is_in(&(label.first, label.last)));
        labels.into_iter().find_map(|label| self.position(&label.name))
    }

    /// The place of a field. Tags name it without the underscore that it may have.
    pub(crate) fn position(&self, label: &str) -> Option<usize> {
        let exact = self.fields.iter().position(|field| *field.name == *label);
        exact.or_else(|| self.fields.iter().position(|field| field.shown() == label))
    }
}

fn depth_of(fields: &[Field]) -> u32 {
    fields.iter().map(|field| field.ty.depth()).max().unwrap_or(0) + 1
}
