//! Properties of JSON objects.

use serde_json::{Map, Value};

use super::error::FragmentProblem as Problem;

/// Bytes of a value that messages show.
const SHOWN: usize = 60;

/// An object, with what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'v> {
    of: &'static str,
    properties: &'v Map<String, Value>,
}

/// A value as messages show it.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

pub(super) fn wrong(name: &'static str, value: &Value, rule: &'static str) -> Problem {
    Problem::Value { name, value: shown(value), rule }
}

/// A number of 64 bits, with a sign or without.
pub(super) fn integer(value: &Value) -> Option<i128> {
    value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from))
}

impl<'v> Object<'v> {
    pub(super) fn new(of: &'static str, value: &'v Value) -> Result<Self, Problem> {
        let properties = value.as_object().ok_or_else(|| wrong(of, value, "an object"))?;
        Ok(Self { of, properties })
    }

    /// The same, of which more is known.
    pub(super) fn called(self, of: &'static str) -> Self {
        Self { of, ..self }
    }

    pub(super) fn value(self, name: &str) -> Option<&'v Value> {
        self.properties.get(name)
    }

    /// A property that must be there.
    pub(super) fn required(self, name: &'static str) -> Result<&'v Value, Problem> {
        self.value(name).ok_or(Problem::Missing { of: self.of, name })
    }

    pub(super) fn object(self, name: &'static str) -> Result<Option<Self>, Problem> {
        self.value(name).map(|value| Self::new(name, value)).transpose()
    }

    pub(super) fn text(self, name: &'static str) -> Result<Option<&'v str>, Problem> {
        let text = |value: &'v Value| value.as_str().ok_or_else(|| wrong(name, value, "a text"));
        self.value(name).map(text).transpose()
    }

    pub(super) fn number(self, name: &'static str) -> Result<Option<u64>, Problem> {
        let number = |value: &Value| {
            value.as_u64().ok_or_else(|| wrong(name, value, "a number of 64 bits without a sign"))
        };
        self.value(name).map(number).transpose()
    }

    pub(super) fn signed(self, name: &'static str) -> Result<Option<i64>, Problem> {
        let number = |value: &Value| {
            value.as_i64().ok_or_else(|| wrong(name, value, "a number of 64 bits with a sign"))
        };
        self.value(name).map(number).transpose()
    }

    pub(super) fn list(self, name: &'static str) -> Result<Option<&'v [Value]>, Problem> {
        let list = |value: &'v Value| {
            value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, value, "a list"))
        };
        self.value(name).map(list).transpose()
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'v String, &'v Value)> {
        self.properties.iter()
    }
}
