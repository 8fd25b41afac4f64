//! Values that are written to JSON as the texts that the command line takes.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes a value as its text.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Reads a value from its text.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    parse(&String::deserialize(deserializer)?)
}

fn parse<T: FromStr<Err: Display>, E: Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
}

/// The same of lists.
pub mod list {
    use serde::ser::SerializeSeq as _;

    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, parse};

    /// Writes values as their texts.
    pub fn serialize<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(values.len()))?;
        for value in values {
            list.serialize_element(&value.to_string())?;
        }
        list.end()
    }

    /// Reads values from their texts.
    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Vec::<String>::deserialize(deserializer)?.iter().map(|text| parse(text)).collect()
    }
}

/// The same of what need not be there.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, parse};

    #[expect(clippy::ref_option, reason = "this is how serde calls it")]
    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(deserializer)?.map(|text| parse(&text)).transpose()
    }
}
