//! What contradicts itself in a configuration whose parts are right.

use std::{fmt, ops::Range};

use toml::{Spanned, de::DeValue};

use super::{Config, budget, decode::Keys, merge::Tree, source::Found};
use spec::Field;

/// A step of the way to a part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The way to a part of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way(Vec<Step>);

impl Way {
    pub(super) fn of<const N: usize>(keys: [&str; N]) -> Self {
        Self(keys.into_iter().map(|key| Step::Key(key.to_owned())).collect())
    }

    pub(super) fn key(mut self, key: &str) -> Self {
        self.0.push(Step::Key(key.to_owned()));
        self
    }

    pub(super) fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }

    /// The way to what a specification has in a session.
    pub(super) fn field(self, field: &Field) -> Self {
        match field {
            Field::Whole => self,
            Field::Rule { channel, rule, .. } => {
                self.key("channels").index(*channel).key("rules").index(*rule)
            }
            Field::OfRule { channel, rule, name } => {
                self.key("channels").index(*channel).key("rules").index(*rule).key(name)
            }
            Field::OfChannel { channel, name } => self.key("channels").index(*channel).key(name),
            Field::OfMap { map, name, .. } => self.key("maps").index(*map).key(name),
            Field::Scope(name) => self.key("scope").key(name),
            Field::Limits(name) => self.key("limits").key(name),
            Field::File(name) => self.key(name),
            Field::Rotation(name) => self.key("rotate").key(name),
        }
    }

    /// Where it leads to in a tree, or to the nearest part on the way that is there.
    fn span(&self, tree: &Tree<'_>) -> Range<usize> {
        let Some((Step::Key(first), rest)) = self.0.split_first() else { return 0..0 };
        let Some((key, value)) = tree.get_key_value(first.as_str()) else { return 0..0 };
        let (mut span, mut value) = (key.span(), value.get_ref());
        for step in rest {
            let next: Option<(Range<usize>, &Spanned<DeValue<'_>>)> = match (step, value) {
                (Step::Key(key), DeValue::Table(table)) => {
                    table.get_key_value(key.as_str()).map(|(key, value)| (key.span(), value))
                }
                (Step::Index(index), DeValue::Array(array)) => {
                    array.get(*index).map(|value| (value.span(), value))
                }
                _ => None,
            };
            let Some((place, inner)) = next else { return span };
            (span, value) = (place, inner.get_ref());
        }
        span
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if number == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Something wrong, and the way to it.
pub(super) type Wrong = (Way, String);

/// Looks for what contradicts itself, but in sessions and triggers of which something was left out.
pub(super) fn check(config: &Config, tree: &Tree<'_>, left_out: &[Keys], mistakes: &mut Vec<Found>) {
    let mut wrong: Vec<Wrong> = Vec::new();
    let is_whole = |of: &str, name: &str| {
        !left_out.iter().any(|keys| matches!(&keys[..], [first, second, ..] if first == of && second == name))
    };
    check_labels(config, &mut wrong);
    // What rules there are is not known where some were left out.
    if left_out.is_empty() {
        budget::check(config, &mut wrong);
    }
    let is_partly = |of: &str| left_out.iter().any(|keys| keys.first().is_some_and(|first| first == of));
    if !is_partly("upload") && !is_partly("retention") {
        check_archives(config, &mut wrong);
    }
    for (name, session) in config.sessions.iter().filter(|(name, _)| is_whole("sessions", name)) {
        session.check(&Way::of(["sessions", name]), name, &mut wrong);
    }
    for (name, trigger) in config.triggers.iter().filter(|(name, _)| is_whole("triggers", name)) {
        trigger.check(&Way::of(["triggers", name]), name, &mut wrong);
    }
    mistakes.extend(
        wrong.into_iter().map(|(way, why)| Found { span: way.span(tree), what: format!("{way}: {why}") }),
    );
}

fn check_archives(config: &Config, wrong: &mut Vec<Wrong>) {
    let mut say = |of: &str, field: &str, why: String| wrong.push((Way::of([of, field]), why));
    if let Some(upload) = &config.upload {
        if let Err(error) = upload.check() {
            say("upload", error.field, error.why);
        }
        // A daemon in the background has another directory than who has started it.
        if upload.credentials_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            say("upload", "credentials_file", "the path of a file with credentials is absolute".to_owned());
        }
    }
    if let Err(error) = config.retention.check() {
        say("retention", error.field, error.why);
    }
}

/// The most bytes of a host's name (RFC 1035, section 2.3.4, without the dot at its end).
const HOST_NAME_MAX: usize = 253;

/// Whether a text can be the name of a host: names of archives have it between slashes, and trace files
/// between blanks.
pub fn is_host_name(text: &str) -> bool {
    let is_path = |one: char| one == '/' || one.is_whitespace() || one.is_control();
    (1..=HOST_NAME_MAX).contains(&text.len()) && !text.contains(is_path) && !matches!(text, "." | "..")
}

fn check_labels(config: &Config, wrong: &mut Vec<Wrong>) {
    if config.host.as_ref().is_some_and(|host| !is_host_name(host)) {
        wrong.push((
            Way::of(["host"]),
            "the name of a host has 1 to 253 bytes, and no slash, blank or control character".to_owned(),
        ));
    }
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    for name in config.labels.keys() {
        let is_name = name.as_bytes().first().is_some_and(is_first) && name.bytes().all(is_part);
        if !is_name || name.starts_with("__") || name == "host" {
            let why = "the name of a label has letters, digits and `_`, and begins with no digit and no `__`; \
                       `host` has its own key";
            wrong.push((Way::of(["labels", name]), why.to_owned()));
        }
    }
}
