//! `add-trigger`, `list-triggers`, `remove-trigger`, and `listen`.

mod nodes;
mod parse;
mod rule;
mod text;
mod words;

use std::ffi::OsString;

use clap::Args;

use super::super::at::{At, Done, Failure};
use super::super::document::Node;
use api::Code;
use parse::Wanted;
use words::{Item, Opt, Words};

/// Add a trigger: what is done when a condition is satisfied
///
/// [--name=NAME] [--owner-uid=UID] [--cool-down=TIME] [--per-day=COUNT] --condition=CONDITION [OPTIONS]
/// --action=ACTION [OPTIONS]...
///
/// Where an option stands says what it is about: behind --condition it is of the condition, behind --action
/// of that action, and what neither knows is of the trigger.
///
/// Conditions:
///
///   event-rule-matches  an event fires that a rule matches: --type=TYPE and, depending on it,
///                       --name=PATTERN, --exclude-name=PATTERN, --filter=EXPR, --location=LOC,
///                       --event-name=NAME. Types are kernel:tracepoint,
///                       kernel:syscall[:entry|:exit|:entry+exit], kernel:kprobe, kernel:uprobe and
///                       user:tracepoint. --capture=FIELD (NAME, NAME[INDEX] or $ctx.NAME) tells a field;
///                       repeatable
///   event-rate          more than --above=COUNT events of a rule fire in a second: with the rule's options
///   buffer-usage-high, buffer-usage-low
///                       the fullest ring of a channel holds so much or more, so little or less:
///                       --session=SESSION, --channel=CHANNEL, --domain=kernel|user,
///                       --threshold=SIZE|PERCENT%
///   session-consumed-size
///                       a session has stored so much: --session=SESSION, --threshold=SIZE
///   session-rotation-ongoing, session-rotation-completed
///                       a trace chunk of a session begins to be archived, or is: --session=SESSION
///   pressure            tasks wait for more than a share of ten seconds: --resource=cpu|io|memory,
///                       --share=some|full, --above=PERCENT
///   unit-failed         a unit of systemd has failed: --unit=NAME (a service's without a type) or a pattern
///   signal              the daemon is sent SIGUSR1
///
/// Actions, which are done in this order:
///
///   notify              tell those who listen (listen)
///   start-session, stop-session, rotate-session SESSION
///   snapshot-session SESSION [--path=DIR [--name=NAME] [--max-size=SIZE]]
///                       [--before=TIME] [--after=TIME]: of so long before and after
///   count               count into a map (show-maps), of an event of the kernel in the kernel:
///                       [--by=KEY,...] [--function=FUNCTION] [--max-keys=N], as record --count
///   post SOCKET         HTTP with JSON to a service on a Unix socket
///
/// Each has --rate-policy=every:COUNT (each of so many times) or once-after:COUNT (only at that time).
#[allow(rustdoc::broken_intra_doc_links, reason = "it is the text of --help")]
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct AddTrigger {
    /// Options of the trigger, its condition and its actions
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// List the triggers of the user; of all users for root
#[derive(Args, Debug)]
pub struct ListTriggers {
    /// None
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub words: Vec<OsString>,
}

/// Remove a trigger
///
/// [--owner-uid=UID] NAME
#[derive(Args, Debug)]
pub struct RemoveTrigger {
    /// Its name; before it, --owner-uid=UID names another user's
    #[arg(value_name = "NAME", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Show what the daemon tells as it happens: triggers that fire, rotations, starts and stops
///
/// Each is a line of JSON, until the daemon ends or the command is interrupted.
#[derive(Args, Debug)]
pub struct Listen {
    /// End after so many
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,

    /// Show only what this trigger tells
    #[arg(long, value_name = "NAME")]
    pub trigger: Option<String>,
}

/// The options of a command that reads its words itself, for `--list-options`.
pub(crate) fn options(verb: &str) -> Option<&'static str> {
    match verb {
        "add-trigger" => Some("--help\n-h\n--list-options\n--condition\n--action\n--name\n--owner-uid\n"),
        "list-triggers" => Some("--help\n-h\n--list-options\n"),
        "remove-trigger" => Some("--help\n-h\n--list-options\n--owner-uid\n"),
        _ => None,
    }
}

fn words(all: &[OsString]) -> Vec<String> {
    all.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

impl AddTrigger {
    pub fn run(&self, at: &mut At) -> Done {
        let (owner, new) = match parse::parse(at, &words(&self.words))? {
            Wanted::Add { owner, new } => (owner, new),
            Wanted::Help => return Err(Failure::new("--help comes first: add-trigger --help")),
        };
        let added = at.client()?.add_trigger(owner, &new).map_err(|error| {
            Failure::new(match error.code() {
                Code::Permission => "Failed to set trigger's user identity.".to_owned(),
                _ => format!("Failed to register trigger: {}.", error.text()),
            })
        })?;
        at.say.line(&format!("Added trigger `{}`.", added.name));
        at.output.push(nodes::trigger(&added, false));
        Ok(())
    }
}

impl ListTriggers {
    pub fn run(&self, at: &mut At) -> Done {
        let all = words(&self.words);
        let mut words = Words::new(&all);
        let unexpected = words.next(&[])?;
        words.end()?;
        let triggers = at.client()?.triggers()?;
        for trigger in &triggers {
            at.say.print(&text::trigger(trigger));
        }
        let nodes = triggers.iter().map(|trigger| nodes::trigger(trigger, true)).collect();
        at.output.push(Node::Items("triggers", nodes));
        // LTTng says so, and lists them nevertheless.
        if let Some(Item::Word(word)) = unexpected {
            at.say.error(&format!("Unexpected argument: {word}"));
        }
        Ok(())
    }
}

impl RemoveTrigger {
    pub fn run(&self, at: &mut At) -> Done {
        let all = words(&self.words);
        let mut words = Words::new(&all);
        let (mut name, mut owner) = (None, None);
        while let Some(item) = words.next(&[Opt::with_value("owner-uid")])? {
            match item {
                Item::Word(word) if name.is_some() => {
                    return Err(Failure::new(format!("Unexpected argument '{word}'")));
                }
                Item::Word(word) => name = Some(word),
                Item::Option(_, text) => {
                    let number = text.parse::<u32>();
                    let wrong = |_| Failure::new(format!("Failed to parse `{text}` as an integer."));
                    owner = Some(number.map_err(wrong)?);
                }
            }
        }
        words.end()?;
        let name = name.ok_or_else(|| Failure::new("Missing `name` argument."))?;
        let removed = at.client()?.remove_trigger(owner, &name).map_err(|error| match error.code() {
            // Nobody is told of triggers of others.
            Code::NoTrigger | Code::Permission => {
                Failure::new(format!("Couldn't find trigger with name `{name}`."))
            }
            _ => error.into(),
        })?;
        at.say.line(&format!("Removed trigger `{name}`."));
        at.output.push(nodes::trigger(&removed, false));
        Ok(())
    }
}

impl Listen {
    pub fn run(&self, at: &mut At) -> Done {
        let mut left = self.count.unwrap_or(u64::MAX);
        let is_meant = |line: &str| {
            let Some(wanted) = &self.trigger else { return true };
            serde_json::from_str::<serde_json::Value>(line)
                .is_ok_and(|told| told.get("trigger").and_then(|name| name.as_str()) == Some(wanted))
        };
        let (client, say) = at.client_and_say()?;
        if left == 0 {
            return Ok(());
        }
        client.listen(&mut |line| {
            if is_meant(line) {
                say.told(line);
                left -= 1;
            }
            left > 0
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
