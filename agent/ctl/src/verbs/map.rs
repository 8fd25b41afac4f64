//! `add-map`, `remove-map` and `show-maps`, which LTTng 2.13 does not have.

use clap::{Args, ValueEnum};

use super::super::at::{At, Done, Failure};
use super::super::document::Node;
use super::InSession;
use api::map::{Bucket, CountedMap, KeyPart, MapEntry, MapFunction, MapOwner, NewMap, Number, Question};
use api::maps::{metrics, table};

/// Count events in the kernel, without records of them, while a session is active
#[derive(Args, Debug)]
#[group(id = "question", required = true, multiple = false)]
pub struct AddMap {
    #[command(flatten)]
    pub of: InSession,

    /// Count events: '[FUNCTION of] EVENT[: FILTER] [by KEY,...]', as record --count
    #[arg(long, value_name = "MAP", group = "question")]
    pub count: Option<String>,

    /// Measure the time between two events: '[FUNCTION of] EVENT[: FILTER] -> EVENT[: FILTER] key
    /// FIELD[=FIELD],... [by KEY,...]', as record --time
    #[arg(long, value_name = "MAP", group = "question")]
    pub time: Option<String>,

    /// Maximum number of different keys [default: 4096, of histograms 512]
    #[arg(long, value_name = "N")]
    pub max_keys: Option<u32>,

    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Remove a map from a session, and show what it had
#[derive(Args, Debug)]
pub struct RemoveMap {
    #[command(flatten)]
    pub of: InSession,

    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Show what maps have counted: those of the user's sessions and triggers
#[derive(Args, Debug)]
pub struct ShowMaps {
    /// Only those of this session
    #[arg(short, long, value_name = "SESSION")]
    pub session: Option<String>,

    /// How
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = MapFormat::Table)]
    pub format: MapFormat,

    /// Maximum number of keys to show of each map, those with the largest values
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub keys: u32,

    /// Only the map of this name
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// How maps are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MapFormat {
    /// Tables, and histograms as bars
    Table,
    /// An object of JSON in each line
    Json,
    /// OpenMetrics, for Prometheus
    Metrics,
}

impl AddMap {
    pub fn run(&self, at: &mut At) -> Done {
        let session = at.session(self.of.session.as_deref())?;
        let question = match (&self.count, &self.time) {
            (Some(count), _) => Question::Count(count.clone()),
            (None, Some(time)) => Question::Time(time.clone()),
            (None, None) => return Err(Failure::new("--count or --time says what is counted")),
        };
        let new = NewMap { name: self.name.clone(), question, max_keys: self.max_keys };
        let added = at.client()?.add_map(&session, &new).map_err(|error| Failure::numbered(&error))?;
        at.say.line(&format!("Map {} added to session {session}", added.name));
        at.output.push(Node::Parts("map", described(&added)));
        Ok(())
    }
}

impl RemoveMap {
    pub fn run(&self, at: &mut At) -> Done {
        let session = at.session(self.of.session.as_deref())?;
        let removed =
            at.client()?.remove_map(&session, &self.name).map_err(|error| Failure::numbered(&error))?;
        at.say.line(&format!("Map {} removed from session {session}", self.name));
        at.say.print(&table(&removed));
        at.output.push(counted(&removed));
        Ok(())
    }
}

impl ShowMaps {
    pub fn run(&self, at: &mut At) -> Done {
        let maps = at
            .client()?
            .maps(self.session.as_deref(), self.name.as_deref(), self.keys)
            .map_err(|error| Failure::numbered(&error))?;
        match self.format {
            MapFormat::Table => maps.iter().for_each(|map| at.say.print(&table(map))),
            MapFormat::Json => {
                for map in &maps {
                    let line = serde_json::to_string(map);
                    at.say.told(&line.map_err(|error| Failure::new(error.to_string()))?);
                }
            }
            MapFormat::Metrics => at.say.print(&metrics(&maps)),
        }
        at.output.push(Node::Items("maps", maps.iter().map(counted).collect()));
        Ok(())
    }
}

fn described(new: &NewMap) -> Vec<Node> {
    let kind = match new.question {
        Question::Count(_) => "count",
        Question::Time(_) => "time",
    };
    let mut parts = vec![Node::text("name", &new.name), Node::text(kind, new.question.text())];
    parts.extend(new.max_keys.map(|keys| Node::number("max_keys", keys)));
    parts
}

/// A map with what it has, as a part of a document.
fn counted(map: &CountedMap) -> Node {
    let mut parts = vec![Node::text("name", &map.map)];
    parts.extend(map.of.as_ref().map(|of| match of {
        MapOwner::Session(name) => Node::text("session_name", name),
        MapOwner::Trigger(name) => Node::text("trigger_name", name),
    }));
    parts.extend(map.question.as_ref().map(|question| Node::text("question", question)));
    parts.push(Node::text("function", name_of(map.function)));
    parts.extend(map.unit.as_ref().map(|unit| Node::text("unit", unit)));
    parts.push(Node::Items("keys", map.by.iter().map(|by| Node::text("key", by)).collect()));
    parts.push(Node::number("elapsed_ns", map.elapsed_ns));
    parts.push(Node::Items("entries", map.entries.iter().map(entry).collect()));
    let losses = [
        ("more", Some(map.more)),
        ("overflow", Some(map.overflow)),
        ("unreadable", Some(map.unreadable)),
        ("unmatched", Some(map.unmatched)),
        ("restarted", Some(map.restarted)),
        ("forgotten", Some(map.forgotten)),
        ("open", Some(map.open)),
        ("filtered", Some(map.filtered)),
        ("own_threads", Some(map.own_threads)),
        ("rate_limited", Some(map.rate_limited)),
        ("skipped", map.skipped),
    ];
    parts.extend(losses.into_iter().filter_map(|(name, number)| Some(Node::number(name, number?))));
    Node::Parts("map", parts)
}

fn name_of(function: MapFunction) -> &'static str {
    match function {
        MapFunction::Count => "count",
        MapFunction::Sum => "sum",
        MapFunction::Min => "min",
        MapFunction::Max => "max",
        MapFunction::Avg => "avg",
        MapFunction::Stats => "stats",
        MapFunction::Hist => "hist",
        MapFunction::Lhist => "lhist",
    }
}

fn entry(of: &MapEntry) -> Node {
    let value = |part: &KeyPart| match part {
        KeyPart::Number(Number(number)) => Node::number("value", *number),
        KeyPart::Text(text) => Node::text("value", text),
    };
    let mut parts =
        vec![Node::Items("key", of.key.iter().map(value).collect()), Node::number("count", of.count)];
    let numbers = [("sum", of.sum), ("avg", of.avg), ("min", of.min), ("max", of.max)];
    parts.extend(numbers.into_iter().filter_map(|(name, number)| Some(Node::number(name, number?.0))));
    if !of.buckets.is_empty() {
        parts.push(Node::Items("buckets", of.buckets.iter().map(bucket).collect()));
    }
    Node::Parts("entry", parts)
}

fn bucket(of: &Bucket) -> Node {
    let ends = [("from", of.from), ("to", of.to)];
    let mut parts: Vec<Node> =
        ends.into_iter().filter_map(|(name, end)| Some(Node::number(name, end?.0))).collect();
    parts.push(Node::number("count", of.count));
    Node::Parts("bucket", parts)
}
