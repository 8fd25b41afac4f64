//! Values as text, where a trace.dat has no field for them: numbers of IEEE 754, and lists of structures.

use std::fmt::Write as _;

use super::types::{Struct, Type};
use super::value::Value;

/// Bytes of a value's text from which on nothing more is appended: more than a field of a record holds, so
/// that what is cut off is counted where it is stored.
const MOST: usize = 128 << 10;

/// Appends the text of a value: `{ fd = 3, name = "x" }`, `[ 1, 2 ]`, `1.5`.
pub(super) fn render(ty: &Type, value: &Value<'_>, out: &mut String) {
    let end = out.len().saturating_add(MOST);
    render_until(ty, value, out, end);
}

fn render_until(ty: &Type, value: &Value<'_>, out: &mut String, end: usize) {
    match (ty, value) {
        (Type::Enum(of), value) => {
            let number = value.number().unwrap_or_default();
            match of.label(number) {
                Some(label) => out.push_str(label),
                None => drop(write!(out, "{number}")),
            }
        }
        (Type::Struct(of), Value::Fields(values)) => fields(of, values, out, end),
        (Type::Variant(variant), Value::Chosen(place, value)) => {
            if let Some(field) = variant.options.fields.get(*place) {
                render_until(&field.ty, value, out, end);
            }
        }
        (Type::Array(array), value) => elements(&array.element, value, out, end),
        (Type::Sequence(sequence), value) => elements(&sequence.element, value, out, end),
        (_, Value::Absent) => out.push_str("none"),
        (_, Value::Float(number)) => drop(write!(out, "{number}")),
        (_, Value::Text(text)) => drop(write!(out, "{:?}", String::from_utf8_lossy(text))),
        (_, value) => drop(write!(out, "{}", value.number().unwrap_or_default())),
    }
}

fn fields(of: &Struct, values: &[Value<'_>], out: &mut String, end: usize) {
    out.push_str("{ ");
    for (index, (field, value)) in of.fields.iter().zip(values).enumerate() {
        if out.len() > end {
            break;
        }
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(out, "{comma}{} = ", field.shown());
        render_until(&field.ty, value, out, end);
    }
    out.push_str(" }");
}

fn elements(element: &Type, value: &Value<'_>, out: &mut String, end: usize) {
    let signed = element.as_integer().is_some_and(|integer| integer.signed);
    let number =
        |number: &u64| if signed { Value::Signed(number.cast_signed()) } else { Value::Unsigned(*number) };
    out.push('[');
    match value {
        Value::Numbers(numbers) => {
            for (index, of) in numbers.iter().enumerate() {
                if out.len() > end {
                    break;
                }
                out.push_str(if index > 0 { ", " } else { " " });
                render_until(element, &number(of), out, end);
            }
        }
        Value::List(values) => {
            for (index, of) in values.iter().enumerate() {
                if out.len() > end {
                    break;
                }
                out.push_str(if index > 0 { ", " } else { " " });
                render_until(element, of, out, end);
            }
        }
        other => {
            out.push(' ');
            render_until(&Type::String, other, out, end);
        }
    }
    out.push_str(" ]");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::tsdl;
    use super::*;

    #[test]
    fn values_of_all_kinds() {
        let text = "trace { major = 1; minor = 8; byte_order = le; };
            typealias integer { size = 8; signed = true; } := int;
            event { name = e; fields := struct { struct { int a; string b; enum { no, yes } c; } s[1]; int n[2];
            floating_point { exp_dig = 11; mant_dig = 53; } f; int m[0]; enum { no, yes } d[2]; }; };";
        let trace = tsdl::parse(text).unwrap();
        let of = trace.streams[&0].events[0].fields.clone().unwrap();
        let element = vec![Value::Signed(-1), Value::Text(b"x\"".into()), Value::Signed(1)];
        let values = [
            Value::List(vec![Value::Fields(element)]),
            Value::Numbers(vec![1, u64::MAX]),
            Value::Float(0.25),
            Value::Numbers(vec![]),
            Value::Numbers(vec![1, 7]),
        ];
        let mut out = String::new();
        fields(&of, &values, &mut out, usize::MAX);
        let expected = "{ s = [ { a = -1, b = \"x\\\"\", c = yes } ], n = [ 1, -1 ], f = 0.25, m = [ ], d = [ yes, 7 ] }";
        assert_eq!(out, expected);
        // An array of structures without bits takes no bytes of a packet.
        let list = Value::List(vec![Value::Fields(vec![Value::Unsigned(1)]); 100_000]);
        out.clear();
        render(&of.fields[0].ty, &list, &mut out);
        assert!((MOST..MOST + 1024).contains(&out.len()), "{}", out.len());
    }
}
