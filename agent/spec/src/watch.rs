//! What is watched: events whose matches are told as they fire.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::{RuleSpec, text};

/// A rule of a watch (`capture::watch::Watch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchSpec {
    /// The events, as those of a recording; exclusions are among them. Samples and rates thin the matches.
    pub rules: Vec<RuleSpec>,
    /// What is told of each match.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "text::list")]
    pub captures: Vec<Capture>,
}

/// Something that is told of a match: `NAME`, `NAME[INDEX]`, `$ctx.NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Where it comes from.
    pub of: CaptureOf,
    /// Which element of an array.
    pub index: Option<u32>,
}

/// Where a captured value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureOf {
    /// A field of the event.
    Field(String),
    /// A context.
    Context(Context),
}

/// Why a text captures nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureSyntax {
    /// It is no field.
    #[error("write a field (NAME), an element of an array (NAME[INDEX]), or a context ($ctx.NAME)")]
    Form,
    /// There is no such context.
    #[error("{0}")]
    Context(String),
    /// Contexts of programs are not known here.
    #[error("contexts of applications ($app) are not known to the kernel")]
    Application,
    /// A stack is no value.
    #[error("a stack cannot be captured")]
    Stack,
}

impl Capture {
    /// The name of the field that has it in a record.
    pub fn field(&self) -> String {
        match &self.of {
            CaptureOf::Field(name) => name.clone(),
            CaptureOf::Context(context) => context.field().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            CaptureOf::Field(name) => f.write_str(name)?,
            CaptureOf::Context(context) => write!(f, "$ctx.{context}")?,
        }
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

impl FromStr for Capture {
    type Err = CaptureSyntax;

    fn from_str(text: &str) -> Result<Self, CaptureSyntax> {
        let text = text.trim();
        if text.starts_with("$app.") {
            return Err(CaptureSyntax::Application);
        }
        let (name, index) = match text.strip_suffix(']') {
            None => (text, None),
            Some(rest) => {
                let (name, index) = rest.split_once('[').ok_or(CaptureSyntax::Form)?;
                (name, Some(index.parse().map_err(|_| CaptureSyntax::Form)?))
            }
        };
        if let Some(context) = name.strip_prefix("$ctx.") {
            let context: Context = context.parse().map_err(CaptureSyntax::Context)?;
            return match context {
                Context::Stack(_) => Err(CaptureSyntax::Stack),
                context => Ok(Self { of: CaptureOf::Context(context), index }),
            };
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(CaptureSyntax::Form);
        }
        Ok(Self { of: CaptureOf::Field(name.to_owned()), index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_fields_elements_and_contexts() {
        for text in ["next_pid", "args[2]", "$ctx.vtid", "$ctx.comm", "$ctx.perf:cpu:page-faults"] {
            let capture: Capture = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let again: Capture = capture.to_string().parse().unwrap();
            assert_eq!(capture, again, "{text} is written as {capture}");
        }
        assert_eq!(
            "args[2]".parse(),
            Ok(Capture { of: CaptureOf::Field("args".to_owned()), index: Some(2) })
        );
        for text in
            ["", "a b", "a[", "a[x]", "a]", "[1]", "$ctx.", "$ctx.none", "$other.x", "a[-1]", "a[1][2]"]
        {
            assert!(text.parse::<Capture>().is_err(), "{text}");
        }
        assert_eq!("$app.x:y".parse::<Capture>(), Err(CaptureSyntax::Application));
        assert_eq!("$ctx.callstack-user".parse::<Capture>(), Err(CaptureSyntax::Stack));
    }
}
