//! The keys of a configuration, for who writes one: what the schema says of them.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A table of a configuration, or another type of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// What it is called; `Config` is the whole configuration.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Its keys; of a type that is one of several, those: each is a text, or a table with that key alone.
    pub keys: Vec<Key>,
    /// Whether it is one of several.
    pub is_choice: bool,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: String,
    /// Whether it has to be there.
    pub is_required: bool,
    /// What it is about.
    pub about: String,
}

/// All types, the whole configuration first and each after one that has values of it.
pub fn reference() -> Vec<Type> {
    // It is JSON, as a test sees.
    let schema: Value = serde_json::from_str(crate::config_schema()).unwrap_or_default();
    let none = Map::new();
    let types = schema["$defs"].as_object().unwrap_or(&none);
    let mut waiting = vec!["Config".to_owned()];
    let mut done: Vec<Type> = Vec::new();
    while !waiting.is_empty() {
        let name = waiting.remove(0);
        let of = if name == "Config" { &schema } else { types.get(&name).unwrap_or(&Value::Null) };
        let of = of_type(&name, of);
        for key in &of.keys {
            for used in types
                .keys()
                .filter(|one| key.kind.split(|c: char| !c.is_alphanumeric()).any(|word| word == *one))
            {
                if *used != name && !waiting.contains(used) && done.iter().all(|there| there.name != *used) {
                    waiting.push(used.clone());
                }
            }
        }
        done.push(of);
    }
    done
}

/// What a schema says that something is; of what may be left out, it says so of the type within.
fn text(value: &Value) -> String {
    let within = ["oneOf", "anyOf"].into_iter().filter_map(|several| value[several].as_array()).flatten();
    let mut all = std::iter::once(value).chain(within).filter_map(|of| of["description"].as_str());
    plain(&all.next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A text without its links, which lead into the library: `[text](Item)` and ``[`Item`]``.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, (inner, behind))) =
        rest.split_once('[').and_then(|(before, link)| Some((before, link.split_once(']')?)))
    {
        out.push_str(before);
        let target = behind.strip_prefix('(').and_then(|target| target.split_once(')'));
        match target {
            Some((_, after)) => {
                out.push_str(inner);
                rest = after;
            }
            None if inner.starts_with('`') => {
                let name = inner.trim_matches('`').rsplit("::").next().unwrap_or_default();
                out.push_str(&format!("`{}`", name.to_lowercase()));
                rest = behind;
            }
            None => {
                out.push_str(&format!("[{inner}]"));
                rest = behind;
            }
        }
    }
    out + rest
}

fn of_type(name: &str, schema: &Value) -> Type {
    let mut of = Type { name: name.to_owned(), about: text(schema), keys: Vec::new(), is_choice: false };
    let required = |name: &str, of: &Value| {
        of["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    if let Some(variants) = schema["oneOf"].as_array() {
        of.is_choice = true;
        for variant in variants {
            let about = text(variant);
            for name in variant["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                of.keys.push(Key {
                    name: name.to_owned(),
                    kind: String::new(),
                    is_required: false,
                    about: about.clone(),
                });
            }
            for (name, value) in variant["properties"].as_object().into_iter().flatten() {
                of.keys.push(Key {
                    name: name.clone(),
                    kind: kind(value),
                    is_required: false,
                    about: about.clone(),
                });
            }
        }
        return of;
    }
    for name in schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        of.is_choice = true;
        of.keys.push(Key {
            name: name.to_owned(),
            kind: String::new(),
            is_required: false,
            about: String::new(),
        });
    }
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        of.keys.push(Key {
            name: name.clone(),
            kind: kind(value),
            is_required: required(name, schema),
            about: text(value),
        });
    }
    of
}

/// What values are, in words. Types that have a description of their own are named.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(all) = schema[several].as_array() {
            let all: Vec<String> = all.iter().map(kind).filter(|one| one != "null").collect();
            return all.join(" or ");
        }
    }
    let of_one = |of: &str| match of {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("table of {}", kind(&schema["additionalProperties"]))
        }
        "object" => {
            let mut keys = String::new();
            for (name, value) in schema["properties"].as_object().into_iter().flatten() {
                let _ = write!(keys, "{}{name}: {}", if keys.is_empty() { "" } else { ", " }, kind(value));
            }
            format!("table {{{keys}}}")
        }
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(of) => of_one(of),
        Value::Array(all) => {
            let all = all.iter().filter_map(Value::as_str).filter(|one| *one != "null");
            all.map(of_one).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}
