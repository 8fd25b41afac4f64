//! What a command tells programs: a tree that is printed as XML (LTTng's machine interface, schema 4.1) or
//! as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A text.
    Text(&'static str, String),
    /// A number.
    Number(&'static str, i128),
    /// Whether something is so.
    Flag(&'static str, bool),
    /// Parts of which each has its own name.
    Parts(&'static str, Vec<Node>),
    /// Any number of parts of the same kind. In JSON they have no names.
    Items(&'static str, Vec<Node>),
    /// Any number of parts whose names say of what kind they are.
    Kinds(&'static str, Vec<Node>),
}

impl Node {
    pub(super) fn text(name: &'static str, text: impl Into<String>) -> Self {
        Self::Text(name, text.into())
    }

    pub(super) fn number(name: &'static str, number: impl Into<i128>) -> Self {
        Self::Number(name, number.into())
    }

    pub(crate) fn success(success: bool) -> Self {
        Self::Flag("success", success)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Text(name, _)
            | Self::Number(name, _)
            | Self::Flag(name, _)
            | Self::Parts(name, _)
            | Self::Items(name, _)
            | Self::Kinds(name, _) => name,
        }
    }

    fn write_xml(&self, out: &mut String) {
        let name = self.name();
        // Writing to a string does not fail.
        let _ = match self {
            Self::Text(_, text) => write!(out, "<{name}>{}</{name}>", escaped(text)),
            Self::Number(_, number) => write!(out, "<{name}>{number}</{name}>"),
            Self::Flag(_, flag) => write!(out, "<{name}>{flag}</{name}>"),
            Self::Parts(_, parts) | Self::Items(_, parts) | Self::Kinds(_, parts) if parts.is_empty() => {
                write!(out, "<{name}/>")
            }
            Self::Parts(_, parts) | Self::Items(_, parts) | Self::Kinds(_, parts) => {
                let _ = write!(out, "<{name}>");
                for part in parts {
                    part.write_xml(out);
                }
                write!(out, "</{name}>")
            }
        };
    }

    /// The same with an element a line, indented by tabs, as LTTng writes files.
    pub(super) fn write_lines(&self, depth: usize, out: &mut String) {
        let name = self.name();
        let indent = "\t".repeat(depth);
        match self {
            Self::Parts(_, parts) | Self::Items(_, parts) | Self::Kinds(_, parts) if !parts.is_empty() => {
                let _ = writeln!(out, "{indent}<{name}>");
                for part in parts {
                    part.write_lines(depth + 1, out);
                }
                let _ = writeln!(out, "{indent}</{name}>");
            }
            _ => {
                *out += &indent;
                self.write_xml(out);
                out.push('\n');
            }
        }
    }

    /// A text in it that has a character which XML does not have.
    pub(super) fn find_unwritable(&self) -> Option<&str> {
        match self {
            Self::Text(_, text) => text.contains(|c| !is_xml(c)).then_some(text),
            Self::Number(..) | Self::Flag(..) => None,
            Self::Parts(_, parts) | Self::Items(_, parts) | Self::Kinds(_, parts) => {
                parts.iter().find_map(Self::find_unwritable)
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(_, text) => Value::String(text.clone()),
            Self::Number(_, number) => serde_json::Number::from_i128(*number)
                .map_or_else(|| Value::String(number.to_string()), Value::Number),
            Self::Flag(_, flag) => Value::Bool(*flag),
            Self::Parts(_, parts) => object(parts),
            Self::Items(_, items) => Value::Array(items.iter().map(Self::json).collect()),
            Self::Kinds(_, parts) => {
                Value::Array(parts.iter().map(|part| object(std::slice::from_ref(part))).collect())
            }
        }
    }
}

fn object(parts: &[Node]) -> Value {
    Value::Object(parts.iter().map(|part| (part.name().to_owned(), part.json())).collect::<Map<_, _>>())
}

/// Whether XML 1.0 has a character (section 2.2).
fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// A text in XML 1.0 (section 2.4). Characters that XML does not have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '\r' => safe += "&#13;",
            c if is_xml(c) => safe.push(c),
            _ => safe.push('\u{fffd}'),
        }
    }
    safe
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// The command.
    pub(super) name: &'static str,
    /// What it has to say.
    pub(super) output: Vec<Node>,
    /// Whether all was done, for commands that do something.
    pub(super) success: Option<bool>,
}

/// The begin of each document of LTTng 2.13.
const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<command xmlns="https://lttng.org/xml/ns/lttng-mi" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="https://lttng.org/xml/ns/lttng-mi https://lttng.org/xml/schemas/lttng-mi/4/lttng-mi-4.1.xsd" schemaVersion="4.1">"#;

impl Document {
    fn parts(&self) -> Vec<Node> {
        let output = Node::Parts("output", self.output.clone());
        let parts = [Node::text("name", self.name), output];
        parts.into_iter().chain(self.success.map(Node::success)).collect()
    }

    /// LTTng's machine interface.
    pub(crate) fn xml(&self) -> String {
        let mut text = HEAD.to_owned();
        for part in self.parts() {
            part.write_xml(&mut text);
        }
        text + "</command>\n"
    }

    /// The same as one line of JSON.
    pub(crate) fn json(&self) -> String {
        format!("{}\n", object(&self.parts()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let session = Node::Parts("session", vec![Node::text("name", "a<b"), Node::Flag("enabled", true)]);
        Document { name: "list", output: vec![Node::Items("sessions", vec![session])], success: None }
    }

    #[test]
    fn documents_are_xml() {
        let xml = document().xml();
        let parsed = roxmltree::Document::parse(&xml).unwrap();
        assert_eq!(parsed.root_element().attribute("schemaVersion"), Some("4.1"));
        assert!(xml.ends_with(
            "<name>list</name><output><sessions><session><name>a&lt;b</name><enabled>true</enabled></session>\
             </sessions></output></command>\n"
        ));
        let none =
            Document { output: vec![Node::Items("sessions", vec![])], success: Some(false), ..document() };
        assert!(none.xml().ends_with("<output><sessions/></output><success>false</success></command>\n"));
    }

    #[test]
    fn documents_are_json() {
        assert_eq!(
            document().json(),
            "{\"name\":\"list\",\"output\":{\"sessions\":[{\"enabled\":true,\"name\":\"a<b\"}]}}\n"
        );
    }

    #[test]
    fn texts_have_only_what_xml_has() {
        let node = Node::text("name", "a\u{1}\r\u{1b}&é\u{fffe}");
        let mut xml = String::new();
        node.write_xml(&mut xml);
        assert_eq!(xml, "<name>a\u{fffd}&#13;\u{fffd}&amp;é\u{fffd}</name>");
        assert!(roxmltree::Document::parse(&xml).is_ok());
    }
}
