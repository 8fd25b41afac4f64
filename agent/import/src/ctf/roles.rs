//! What fields of headers and packet contexts are for. CTF 2 declares it; in CTF 1.8 it goes by their names.

use std::collections::HashMap;
use std::sync::Arc;

use super::types::{Enumeration, Field, Integer, Options, Scope, Struct, Type, Variant};
use super::value::Value;

/// What a field is for (CTF2-SPEC-2.0, section 5.3: roles).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The word that packets begin with.
    Magic,
    /// The UUID of the metadata.
    Uuid,
    /// The kind of streams.
    StreamClass,
    /// Bits of all of a packet.
    PacketSize,
    /// Bits of it that are used.
    ContentSize,
    /// The time of an event, or of a packet's begin.
    Time,
    /// The time of a packet's end.
    EndTime,
    /// How many events the stream has lost.
    Discarded,
    /// The number of a packet in its stream.
    Sequence,
    /// The kind of events.
    EventClass,
}

/// Roles with the words of CTF 2 for them, and the parts and names of fields that have them in CTF 1.8.
const ROLES: [(Role, &str, Scope, &str); 11] = [
    (Role::Magic, "packet-magic-number", Scope::PacketHeader, "magic"),
    (Role::Uuid, "metadata-stream-uuid", Scope::PacketHeader, "uuid"),
    (Role::StreamClass, "data-stream-class-id", Scope::PacketHeader, "stream_id"),
    (Role::PacketSize, "packet-total-length", Scope::PacketContext, "packet_size"),
    (Role::ContentSize, "packet-content-length", Scope::PacketContext, "content_size"),
    (Role::Time, "default-clock-timestamp", Scope::PacketContext, "timestamp_begin"),
    (Role::EndTime, "packet-end-default-clock-timestamp", Scope::PacketContext, "timestamp_end"),
    (Role::Discarded, "discarded-event-record-counter-snapshot", Scope::PacketContext, "events_discarded"),
    (Role::Sequence, "packet-sequence-number", Scope::PacketContext, "packet_seq_num"),
    (Role::EventClass, "event-record-class-id", Scope::EventHeader, "id"),
    (Role::Time, "default-clock-timestamp", Scope::EventHeader, "timestamp"),
];

/// The roles of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(u16);

impl Roles {
    /// Whether this is one of them.
    pub(crate) fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }

    /// Adds the one with this word of CTF 2. Words that are not known say nothing that is needed here.
    pub(crate) fn add(&mut self, word: &str) {
        if let Some((role, ..)) = ROLES.iter().find(|(_, known, ..)| *known == word) {
            self.0 |= 1 << *role as u16;
        }
    }

    /// Those that a field of CTF 1.8 has.
    fn named(scope: Scope, name: &str) -> Self {
        let of = ROLES.iter().find(|(_, _, part, known)| *part == scope && *known == name);
        Self(of.map_or(0, |(role, ..)| 1 << *role as u16))
    }
}

/// The most fields that are made for all parts of streams together. One alias can be the part of any number
/// of streams, each of which has fields by itself then.
pub(crate) const MOST_COPIED: usize = 1 << 20;

impl Struct {
    /// The same part of CTF 1.8, whose fields have the roles of their names. In the headers of events, fields
    /// within structures and variants have them, too.
    ///
    /// `copied` counts fields that are made.
    pub(crate) fn with_roles(self: &Arc<Self>, scope: Scope, copied: &mut usize) -> Arc<Self> {
        let named = |field: &Field| Field { roles: Roles::named(scope, field.shown()), ..field.clone() };
        let mut change = Change { of: &named, nested: scope == Scope::EventHeader, ..Change::default() };
        let changed = change.structure(self);
        *copied = copied.saturating_add(change.copied);
        changed
    }

    /// The same, whose times are of a clock. `copied` counts fields that are made.
    pub(crate) fn with_clock(self: &Arc<Self>, clock: &Arc<str>, copied: &mut usize) -> Arc<Self> {
        let of_clock = |of: &Integer| Arc::new(Integer { clock: Some(clock.clone()), ..of.clone() });
        let timed = |field: &Field| {
            let is_time = field.roles.has(Role::Time) || field.roles.has(Role::EndTime);
            let ty = match &field.ty {
                Type::Integer(integer) if is_time => Type::Integer(of_clock(integer)),
                Type::Enum(of) if is_time => {
                    let labels = of.labels.clone();
                    Type::Enum(Arc::new(Enumeration { of: of_clock(&of.of), labels }))
                }
                ty => ty.clone(),
            };
            Field { ty, ..field.clone() }
        };
        let mut change = Change { of: &timed, nested: true, ..Change::default() };
        let changed = change.structure(self);
        *copied = copied.saturating_add(change.copied);
        changed
    }
}

/// A change of all fields of a structure. What is there once and used several times stays so.
struct Change<'c> {
    of: &'c dyn Fn(&Field) -> Field,
    /// Whether fields within structures and variants change, too.
    nested: bool,
    copied: usize,
    structures: HashMap<*const Struct, Arc<Struct>>,
    options: HashMap<*const Options, Arc<Options>>,
}

impl Default for Change<'_> {
    fn default() -> Self {
        let (structures, options) = (HashMap::new(), HashMap::new());
        Self { of: &Field::clone, nested: false, copied: 0, structures, options }
    }
}

impl Change<'_> {
    fn structure(&mut self, of: &Arc<Struct>) -> Arc<Struct> {
        if let Some(known) = self.structures.get(&Arc::as_ptr(of)) {
            return known.clone();
        }
        self.copied = self.copied.saturating_add(of.fields.len());
        let fields = of.fields.iter().map(|field| self.field(field)).collect();
        let new = Arc::new(Struct { fields, align: of.align, depth: of.depth });
        self.structures.insert(Arc::as_ptr(of), new.clone());
        new
    }

    fn options(&mut self, of: &Arc<Options>) -> Arc<Options> {
        if let Some(known) = self.options.get(&Arc::as_ptr(of)) {
            return known.clone();
        }
        self.copied = self.copied.saturating_add(of.fields.len());
        let fields = of.fields.iter().map(|field| self.field(field)).collect();
        let Options { ranges, is_optional, depth, .. } = &**of;
        let (ranges, is_optional, depth) = (ranges.clone(), *is_optional, *depth);
        let new = Arc::new(Options { fields, ranges, is_optional, depth });
        self.options.insert(Arc::as_ptr(of), new.clone());
        new
    }

    fn field(&mut self, field: &Field) -> Field {
        let field = (self.of)(field);
        let ty = match &field.ty {
            Type::Struct(of) if self.nested => Type::Struct(self.structure(of)),
            Type::Variant(of) if self.nested => {
                Type::Variant(Variant { tag: of.tag.clone(), options: self.options(&of.options) })
            }
            _ => return field,
        };
        Field { ty, ..field }
    }
}

/// The last value with a role in a structure and in what is in it, with the most bits of its numbers: of
/// LTTng's event headers, a variant's number is in the place of the structure's.
pub(crate) fn last<'v, 'w>(of: &Struct, values: &'v [Value<'w>], role: Role) -> Option<(&'v Value<'w>, u8)> {
    let mut found = None;
    for (field, value) in of.fields.iter().zip(values) {
        found = last_in(field, value, role).or(found);
    }
    found
}

fn last_in<'v, 'w>(field: &Field, value: &'v Value<'w>, role: Role) -> Option<(&'v Value<'w>, u8)> {
    match (&field.ty, value) {
        (Type::Struct(of), Value::Fields(values)) => last(of, values, role),
        (Type::Variant(variant), Value::Chosen(place, value)) => {
            last_in(variant.options.fields.get(*place)?, value, role)
        }
        (ty, value) if field.roles.has(role) => Some((value, ty.as_integer().map_or(0, |of| of.bits))),
        _ => None,
    }
}
