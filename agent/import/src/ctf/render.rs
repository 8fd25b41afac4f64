//! Values as text, where a trace.dat has no field for them: numbers of IEEE 754, and lists of structures.

use std::fmt::Write as _;

use super::types::{Struct, Type};
use super::value::Value;

/// Appends the text of a value: `{ fd = 3, name = "x" }`, `[ 1, 2 ]`, `1.5`.
pub(super) fn render(ty: &Type, value: &Value<'_>, out: &mut String) {
    match (ty, value) {
        (Type::Enum(of), value) => {
            let number = value.number().unwrap_or_default();
            match of.label(number) {
                Some(label) => out.push_str(label),
                None => drop(write!(out, "{number}")),
            }
        }
        (Type::Struct(of), Value::Fields(values)) => fields(of, values, out),
        (Type::Variant(variant), Value::Chosen(place, value)) => {
            if let Some(field) = variant.options.fields.get(*place) {
                render(&field.ty, value, out);
            }
        }
        (Type::Array(array), value) => elements(&array.element, value, out),
        (Type::Sequence(sequence), value) => elements(&sequence.element, value, out),
        (_, Value::Float(number)) => drop(write!(out, "{number}")),
        (_, Value::Text(text)) => drop(write!(out, "{:?}", String::from_utf8_lossy(text))),
        (_, value) => drop(write!(out, "{}", value.number().unwrap_or_default())),
    }
}

fn fields(of: &Struct, values: &[Value<'_>], out: &mut String) {
    out.push_str("{ ");
    for (index, (field, value)) in of.fields.iter().zip(values).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(out, "{comma}{} = ", field.shown());
        render(&field.ty, value, out);
    }
    out.push_str(" }");
}

fn elements(element: &Type, value: &Value<'_>, out: &mut String) {
    let signed = element.as_integer().is_some_and(|integer| integer.signed);
    let number =
        |number: &u64| if signed { Value::Signed(number.cast_signed()) } else { Value::Unsigned(*number) };
    out.push('[');
    match value {
        Value::Numbers(numbers) => {
            for (index, of) in numbers.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { " " });
                render(element, &number(of), out);
            }
        }
        Value::List(values) => {
            for (index, of) in values.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { " " });
                render(element, of, out);
            }
        }
        other => {
            out.push(' ');
            render(&Type::String, other, out);
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
        fields(&of, &values, &mut out);
        let expected = "{ s = [ { a = -1, b = \"x\\\"\", c = yes } ], n = [ 1, -1 ], f = 0.25, m = [ ], d = [ yes, 7 ] }";
        assert_eq!(out, expected);
    }
}
