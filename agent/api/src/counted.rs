//! A map with what it has counted, as JSON has it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a map belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MapOwner {
    /// A session: it counts while the session is active.
    Session(String),
    /// A trigger, one of whose actions it is: it counts as long as there is the trigger.
    Trigger(String),
}

/// What is kept of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MapFunction {
    /// How many events.
    Count,
    /// And their sum.
    Sum,
    /// And the smallest.
    Min,
    /// And the largest.
    Max,
    /// And the average.
    Avg,
    /// All of these.
    Stats,
    /// How many by power of two.
    Hist,
    /// How many by ranges of equal width.
    Lhist,
}

impl MapFunction {
    /// Whether entries have buckets.
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::Hist | Self::Lhist)
    }
}

/// A map, with what it has counted so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CountedMap {
    /// Its name; what it counts, where nobody has given it one.
    pub map: String,
    /// What it counts, where it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The user it belongs to, in a daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// What it belongs to, in a daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<MapOwner>,
    /// What is kept of each key.
    pub function: MapFunction,
    /// The unit of values: `ns` of times.
    pub unit: Option<String>,
    /// What keys are made of.
    pub by: Vec<String>,
    /// For how long it has counted, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether what it has is final.
    pub last: bool,
    /// The keys with their values, the largest value first.
    pub entries: Vec<MapEntry>,
    /// How many more keys there are than those that are told.
    pub more: u64,
    /// Events with keys that there was no room for.
    pub overflow: u64,
    /// Events with a key or value that could not be read.
    pub unreadable: u64,
    /// Second events of a time without a first one.
    pub unmatched: u64,
    /// First events of a time that were followed by another first event with the same key.
    pub restarted: u64,
    /// First events of a time that were forgotten, as too many were pending or there was a pause.
    pub forgotten: u64,
    /// First events of a time without a second one so far.
    pub open: u64,
    /// Events that the filter, or the choice of threads, leaves out.
    pub filtered: u64,
    /// Events of the recorder's own threads, which are not counted.
    #[serde(default)]
    pub own_threads: u64,
    /// Events beyond the rate.
    pub rate_limited: u64,
    /// Events for which the kernel did not call the program; `null` where it does not count that.
    pub skipped: Option<u64>,
}

/// A key with its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MapEntry {
    /// The key, in the order of [`CountedMap::by`].
    pub key: Vec<KeyPart>,
    /// How many events.
    pub count: u64,
    /// The sum of their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<Number>,
    /// The average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avg: Option<Number>,
    /// The smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// The largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// Of a histogram, how many values are within which numbers: all buckets from the first that has some to
    /// the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Bucket>,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// Its first number; `null` where it has all smaller ones.
    pub from: Option<Number>,
    /// The first number after it; `null` where it has all larger ones.
    pub to: Option<Number>,
    /// How many values.
    pub count: u64,
}

/// A number: one of JSON, or the digits of one that has more than 64 bits as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(value_type = i64))]
pub struct Number(pub i128);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (i64::try_from(self.0), u64::try_from(self.0)) {
            (Ok(number), _) => serializer.serialize_i64(number),
            (_, Ok(number)) => serializer.serialize_u64(number),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match KeyPart::deserialize(deserializer)? {
            KeyPart::Number(number) => Ok(number),
            KeyPart::Text(text) => text.parse().map(Self).map_err(de::Error::custom),
        }
    }
}

/// A part of a key: a number, or a text in which what is no UTF-8 is replaced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum KeyPart {
    /// A number of 64 bits.
    Number(Number),
    /// A text.
    Text(String),
}

impl<'de> Deserialize<'de> for KeyPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = KeyPart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a text")
            }

            fn visit_i64<E>(self, number: i64) -> Result<KeyPart, E> {
                Ok(KeyPart::Number(Number(number.into())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<KeyPart, E> {
                Ok(KeyPart::Number(Number(number.into())))
            }

            fn visit_str<E>(self, text: &str) -> Result<KeyPart, E> {
                Ok(KeyPart::Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_json() {
        for number in [0, -1, i64::MIN.into(), u64::MAX.into(), i128::MAX, i128::MIN] {
            let text = serde_json::to_string(&Number(number)).unwrap();
            assert_eq!(serde_json::from_str::<Number>(&text).unwrap(), Number(number), "{text}");
        }
        assert!(serde_json::from_str::<Number>("\"x\"").is_err());
        assert!(serde_json::from_str::<Number>("1.5").is_err());
    }

    #[test]
    fn texts_of_digits_are_texts() {
        let key = vec![KeyPart::Text("12".to_owned()), KeyPart::Number(Number(12))];
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, r#"["12",12]"#);
        assert_eq!(serde_json::from_str::<Vec<KeyPart>>(&text).unwrap(), key);
    }
}
