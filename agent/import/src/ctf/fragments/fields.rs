//! Field classes (CTF2-SPEC-2.0, section 5.3).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::error::FragmentProblem as Problem;
use super::object::{Object, integer, shown, wrong};
use crate::ctf::roles::Roles;
use crate::ctf::types::{
    Array, DEPTH_MAX, Enumeration, Field, FieldPath, Float, Integer, Label, Options, Scope, Sequence, Start,
    Struct, Type, Variant,
};
use crate::ctf::types::{NAME_MAX, RANGES_MAX};
use ftrace_event::Endian;

/// The largest alignment: that of a page.
const ALIGN_MAX: u64 = 4096 * 8;

/// A type, and what fields of it are for.
pub(super) type FieldClass = (Type, Roles);

/// The field classes that have names.
#[derive(Debug, Default)]
pub(super) struct FieldClasses(HashMap<String, FieldClass>);

impl FieldClasses {
    /// Names one.
    pub(super) fn name(&mut self, alias: Object<'_>) -> Result<(), Problem> {
        let of = "field class alias";
        let name = alias.text("name")?.ok_or(Problem::Missing { of, name: "name" })?;
        let class = self.class(alias.required("field-class")?)?;
        match self.0.insert(name.to_owned(), class) {
            None => Ok(()),
            Some(_) => Err(Problem::Twice(format!("field class {}", shown(&Value::from(name))))),
        }
    }

    /// The structure that a property has.
    pub(super) fn structure(
        &self,
        of: Object<'_>,
        name: &'static str,
    ) -> Result<Option<Arc<Struct>>, Problem> {
        let Some(value) = of.value(name) else { return Ok(None) };
        match self.class(value)? {
            (Type::Struct(structure), _) => Ok(Some(structure)),
            _ => Err(wrong(name, value, "a structure")),
        }
    }

    /// A field class, or the name of one.
    fn class(&self, value: &Value) -> Result<FieldClass, Problem> {
        if let Some(name) = value.as_str() {
            let known = self.0.get(name).cloned();
            return known.ok_or_else(|| Problem::UnknownAlias(shown(value)));
        }
        let class = Object::new("field class", value)?;
        let kind = class.required("type")?;
        let ty = self.ty(class, kind)?;
        if ty.depth() > DEPTH_MAX {
            return Err(Problem::Deep);
        }
        let mut roles = Roles::default();
        for role in class.list("roles")?.unwrap_or_default() {
            roles.add(role.as_str().ok_or_else(|| wrong("roles", role, "texts"))?);
        }
        Ok((ty, roles))
    }

    fn ty(&self, class: Object<'_>, kind: &Value) -> Result<Type, Problem> {
        let (text, byte) = (character(), byte());
        Ok(match kind.as_str().unwrap_or_default() {
            "fixed-length-unsigned-integer" => numbered(class, fixed(class, false)?)?,
            "fixed-length-signed-integer" => numbered(class, fixed(class, true)?)?,
            "fixed-length-boolean" => Type::Integer(Arc::new(fixed(class, false)?)),
            // Their bits have no order of value that anybody has said.
            "fixed-length-bit-array" | "fixed-length-bit-map" => {
                Type::Integer(Arc::new(Integer { base: 16, ..fixed(class, false)? }))
            }
            "variable-length-unsigned-integer" => numbered(class, variable(class, false)?)?,
            "variable-length-signed-integer" => numbered(class, variable(class, true)?)?,
            "fixed-length-floating-point-number" => {
                let Integer { align, order, .. } = fixed(class, false)?;
                match bits(class)? {
                    bits @ (32 | 64) => Type::Float(Float { bits, align, order }),
                    other => {
                        return Err(Problem::Unsupported(format!("a floating point number of {other} bits")));
                    }
                }
            }
            "null-terminated-string" => encoded(class).map(|()| Type::String)?,
            "static-length-string" => encoded(class).and_then(|()| array(class, text, 8))?,
            "dynamic-length-string" => encoded(class).and_then(|()| sequence(class, text, 8))?,
            "static-length-blob" => array(class, byte, 8)?,
            "dynamic-length-blob" => sequence(class, byte, 8)?,
            "static-length-array" => {
                array(class, self.element(class)?, alignment(class, "minimum-alignment")?)?
            }
            "dynamic-length-array" => {
                sequence(class, self.element(class)?, alignment(class, "minimum-alignment")?)?
            }
            "structure" => self.members(class)?,
            "variant" => self.variant(class)?,
            "optional" => self.optional(class)?,
            _ => return Err(Problem::Unsupported(format!("a field class of the type {}", shown(kind)))),
        })
    }

    fn element(&self, class: Object<'_>) -> Result<Type, Problem> {
        self.class(class.required("element-field-class")?).map(|(ty, _)| ty)
    }

    fn members(&self, class: Object<'_>) -> Result<Type, Problem> {
        let (mut fields, mut names) = (Vec::new(), HashSet::new());
        for member in class.list("member-classes")?.unwrap_or_default() {
            let member = Object::new("member class", member)?;
            let of = "member class";
            let name = member.text("name")?.ok_or(Problem::Missing { of, name: "name" })?;
            if !names.insert(name) {
                return Err(Problem::Twice(format!("field {}", shown(&Value::from(name)))));
            }
            fields.push(self.field(name, member)?);
        }
        Ok(Type::Struct(Arc::new(Struct::new(fields, alignment(class, "minimum-alignment")?))))
    }

    fn field(&self, name: &str, of: Object<'_>) -> Result<Field, Problem> {
        let name = bounded(name)?;
        let (ty, roles) = self.class(of.required("field-class")?)?;
        Ok(Field { name: name.into(), is_escaped: false, ty, roles })
    }

    fn variant(&self, class: Object<'_>) -> Result<Type, Problem> {
        let tag = location(class, "selector-field-location")?;
        let (mut fields, mut ranges) = (Vec::new(), Vec::new());
        for (index, option) in class.list("options")?.unwrap_or_default().iter().enumerate() {
            let option = Object::new("option", option)?;
            let name = option.text("name")?.map_or_else(|| format!("option_{index}"), str::to_owned);
            fields.push(self.field(&name, option)?);
            let of = "option";
            let missing = Problem::Missing { of, name: "selector-field-ranges" };
            ranges.push(self::ranges(option)?.ok_or(missing)?);
        }
        if ranges.iter().map(Vec::len).sum::<usize>() > RANGES_MAX {
            return Err(Problem::Many);
        }
        let options = Options { ranges: Some(ranges), ..Options::new(fields) };
        Ok(Type::Variant(Variant { tag, options: Arc::new(options) }))
    }

    /// A variant of one field without a name, or none.
    fn optional(&self, class: Object<'_>) -> Result<Type, Problem> {
        let tag = location(class, "selector-field-location")?;
        let fields = vec![self.field("", class)?];
        // Without ranges, the selector is a boolean: true is what is not 0.
        let truth = || vec![(i128::MIN, -1), (1, i128::MAX)];
        let ranges = Some(vec![ranges(class)?.unwrap_or_else(truth)]);
        let options = Options { ranges, is_optional: true, ..Options::new(fields) };
        Ok(Type::Variant(Variant { tag, options: Arc::new(options) }))
    }
}

fn bits(class: Object<'_>) -> Result<u8, Problem> {
    let value = class.required("length")?;
    let bits = value.as_u64().filter(|bits| (1..=64).contains(bits));
    bits.map(|bits| bits as u8).ok_or_else(|| wrong("length", value, "1 to 64 bits"))
}

fn alignment(class: Object<'_>, name: &'static str) -> Result<u64, Problem> {
    let Some(value) = class.value(name) else { return Ok(1) };
    let align = value.as_u64().filter(|align| (1..=ALIGN_MAX).contains(align) && align.is_power_of_two());
    align.ok_or_else(|| wrong(name, value, "a power of two, up to 32768"))
}

/// A number of a fixed length.
fn fixed(class: Object<'_>, signed: bool) -> Result<Integer, Problem> {
    let value = class.required("byte-order")?;
    let order = match value.as_str() {
        Some("little-endian") => Endian::Little,
        Some("big-endian") => Endian::Big,
        _ => return Err(wrong("byte-order", value, "little-endian or big-endian")),
    };
    // The first bit is the lowest one in little-endian order, unless something else is said.
    match (class.text("bit-order")?, order) {
        (None, _) | (Some("first-to-last"), Endian::Little) | (Some("last-to-first"), Endian::Big) => {}
        (Some(other), _) => {
            return Err(Problem::Unsupported(format!("the bit order {}", shown(&Value::from(other)))));
        }
    }
    Ok(Integer {
        bits: bits(class)?,
        is_variable: false,
        align: alignment(class, "alignment")?,
        signed,
        order: Some(order),
        base: base(class)?,
        character: false,
        clock: None,
    })
}

fn variable(class: Object<'_>, signed: bool) -> Result<Integer, Problem> {
    let base = base(class)?;
    Ok(Integer { bits: 64, is_variable: true, signed, base, ..byte_integer() })
}

fn base(class: Object<'_>) -> Result<u8, Problem> {
    let Some(value) = class.value("preferred-display-base") else { return Ok(10) };
    let base = value.as_u64().filter(|base| matches!(base, 2 | 8 | 10 | 16));
    base.map(|base| base as u8).ok_or_else(|| wrong("preferred-display-base", value, "2, 8, 10 or 16"))
}

/// An integer, whose values may have names.
fn numbered(class: Object<'_>, integer: Integer) -> Result<Type, Problem> {
    let of = Arc::new(integer);
    let Some(mappings) = class.object("mappings")? else { return Ok(Type::Integer(of)) };
    let mut labels = Vec::new();
    for (name, of_name) in mappings.properties() {
        let name: Arc<str> = bounded(name)?.into();
        for (first, last) in range_set("mappings", of_name)? {
            labels.push(Label { name: name.clone(), first, last });
        }
    }
    Ok(Type::Enum(Arc::new(Enumeration { of, labels })))
}

/// Fails for texts whose characters have more than a byte's codes.
fn encoded(class: Object<'_>) -> Result<(), Problem> {
    match class.text("encoding")? {
        None | Some("utf-8") => Ok(()),
        Some(other) => Err(Problem::Unsupported(format!("the encoding {}", shown(&Value::from(other))))),
    }
}

const fn byte_integer() -> Integer {
    Integer {
        bits: 8,
        is_variable: false,
        align: 8,
        signed: false,
        order: None,
        base: 16,
        character: false,
        clock: None,
    }
}

fn byte() -> Type {
    Type::Integer(Arc::new(byte_integer()))
}

fn character() -> Type {
    Type::Integer(Arc::new(Integer { character: true, ..byte_integer() }))
}

fn array(class: Object<'_>, element: Type, align: u64) -> Result<Type, Problem> {
    let missing = Problem::Missing { of: "field class", name: "length" };
    let count = class.number("length")?.ok_or(missing)?;
    Ok(Type::Array(Arc::new(Array { element, count, align })))
}

fn sequence(class: Object<'_>, element: Type, align: u64) -> Result<Type, Problem> {
    let length = location(class, "length-field-location")?;
    Ok(Type::Sequence(Arc::new(Sequence { element, length, align })))
}

/// Values of a selector: pairs of the first and the last.
/// A name that is not too long.
fn bounded(name: &str) -> Result<&str, Problem> {
    let rule = "at most 1024 bytes";
    let too_long = || Problem::Value { name: "name", value: shown(&Value::from(name)), rule };
    if name.len() > NAME_MAX { Err(too_long()) } else { Ok(name) }
}

fn ranges(of: Object<'_>) -> Result<Option<Vec<(i128, i128)>>, Problem> {
    let name = "selector-field-ranges";
    of.value(name).map(|value| range_set(name, value)).transpose()
}

fn range_set(name: &'static str, value: &Value) -> Result<Vec<(i128, i128)>, Problem> {
    let range = |range: &Value| match range.as_array()?.as_slice() {
        [first, last] => Some((integer(first)?, integer(last)?)).filter(|(first, last)| first <= last),
        _ => None,
    };
    let all = value.as_array().and_then(|all| all.iter().map(range).collect());
    all.ok_or_else(|| wrong(name, value, "pairs of numbers, the larger one last"))
}

/// Where a field is that another one depends on.
fn location(class: Object<'_>, name: &'static str) -> Result<FieldPath, Problem> {
    let value = class.required(name)?;
    let location = Object::new(name, value)?;
    let scope = match location.text("origin")? {
        None => None,
        Some("packet-header") => Some(Scope::PacketHeader),
        Some("packet-context") => Some(Scope::PacketContext),
        Some("event-record-header") => Some(Scope::EventHeader),
        Some("event-record-common-context") => Some(Scope::StreamContext),
        Some("event-record-specific-context") => Some(Scope::EventContext),
        Some("event-record-payload") => Some(Scope::Fields),
        Some(_) => return Err(wrong(name, value, "an origin that is a part of a packet or an event")),
    };
    let path = location.list("path")?.unwrap_or_default();
    let up = path.iter().take_while(|step| step.is_null()).count();
    let names = path.get(up..).unwrap_or_default().iter();
    let names: Option<Vec<Arc<str>>> = names.map(|step| step.as_str().map(Arc::from)).collect();
    match names.filter(|names| !names.is_empty() && (scope.is_none() || up == 0)) {
        Some(names) => Ok(FieldPath { start: scope.map_or(Start::Parent(up), Start::Scope), names }),
        None => Err(wrong(name, value, "names, before which null leads outwards from a relative location")),
    }
}
