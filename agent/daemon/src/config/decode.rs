//! A tree as a type, and everything that the type does not have.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue, Deserializer},
};

use super::{merge::Tree, source::Found};

/// The most mistakes that are told.
const MISTAKES_MAX: usize = 64;

/// Keys of tables, from the outermost on, and places of values in lists.
pub(super) type Keys = Vec<String>;

/// Makes a value of a tree. Of what it cannot be made of, the part is left out and the rest looked at again,
/// so that all mistakes are found, and the value is what the rest says. Gives what was left out, too.
pub(super) fn decode<T: DeserializeOwned>(
    tree: &Tree<'_>,
    mistakes: &mut Vec<Found>,
) -> Option<(T, Vec<Keys>)> {
    let mut rest = tree.clone();
    let mut removed: Vec<Range<usize>> = Vec::new();
    let mut ways: Vec<Keys> = Vec::new();
    while removed.len() < MISTAKES_MAX {
        let error = match T::deserialize(Deserializer::from(Spanned::new(0..0, rest.clone()))) {
            Ok(value) => return Some((value, ways)),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let mut way = Keys::new();
        let is_removed = remove(&mut rest, &span, &mut way);
        // What lacks something because that was left out is no mistake of its own. The place of a table is
        // that of its heading.
        let lacks = removed.iter().any(|part| span.start <= part.start && part.end <= span.end)
            || is_removed && ways.iter().any(|part| part.len() > way.len() && part.starts_with(&way));
        if !lacks {
            mistakes.push(Found { span: span.clone(), what: first_line(error.message()) });
        }
        if !is_removed {
            return None;
        }
        ways.push(way);
        removed.push(span);
    }
    None
}

/// The rest of a message shows the text, which the place says already.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

/// Leaves out the smallest part that a span is in. Gives the way to it.
fn remove(table: &mut DeTable<'_>, span: &Range<usize>, way: &mut Keys) -> bool {
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let is_key = covers(&key.span(), span);
        let is_value = covers(&value.span(), span);
        way.push(key.get_ref().clone().into_owned());
        if !is_key && remove_in(value.get_mut(), span, way) {
            return true;
        }
        if !is_key && !is_value {
            way.pop();
        } else {
            found = Some(key.get_ref().clone());
            break;
        }
    }
    found.is_some_and(|key| table.remove(key.as_ref()).is_some())
}

fn remove_in<'t>(value: &mut DeValue<'t>, span: &Range<usize>, way: &mut Keys) -> bool {
    match value {
        DeValue::Table(table) => remove(table, span, way),
        DeValue::Array(array) => {
            for value in array.iter_mut() {
                way.push(format!("[{}]", value.span().start));
                if remove_in(value.get_mut(), span, way) {
                    return true;
                }
                way.pop();
            }
            let removed = array.iter().map(Spanned::span).find(|value| covers(value, span));
            way.extend(removed.map(|value| format!("[{}]", value.start)));
            let kept: DeArray<'t> =
                array.iter().filter(|value| !covers(&value.span(), span)).cloned().collect();
            let is_less = kept.len() < array.len();
            *array = kept;
            is_less
        }
        _ => false,
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && outer.start < outer.end
}
