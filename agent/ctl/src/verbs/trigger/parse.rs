//! Conditions and actions as lttng-add-trigger(1) specifies them, and those that it does not have.

use std::path::PathBuf;

use super::super::super::address::{Address, Relay};
use super::super::super::at::{At, Failure};
use super::super::super::units;
use super::rule::Written;
use super::words::{Item, Opt, Words};
use api::trigger::{
    Action, ActionKind, BufferUsage, Condition, Pace, RatePolicy, Resource, Share, SnapshotTarget, Threshold,
    Window,
};
use api::{Domain, NewTrigger};
use spec::MapSpec;

/// The options of the command itself.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag("help", Some('h')),
    Opt::flag("list-options", None),
    Opt::with_value("condition"),
    Opt::with_value("action"),
    Opt::with_value("name"),
    Opt::with_value("owner-uid"),
    Opt::with_value("cool-down"),
    Opt::with_value("per-day"),
];

const CONDITIONS: &[&str] = &[
    "event-rule-matches",
    "event-rate",
    "buffer-usage-high",
    "buffer-usage-low",
    "session-consumed-size",
    "session-rotation-ongoing",
    "session-rotation-completed",
    "pressure",
    "unit-failed",
    "signal",
];

const ACTIONS: &[&str] =
    &["notify", "start-session", "stop-session", "rotate-session", "snapshot-session", "post", "count"];

const OF_COUNT: &[Opt] =
    &[Opt::with_value("by"), Opt::with_value("function"), Opt::with_value("max-keys"), RATE];
const CAPTURE: &[Opt] = &[Opt::with_value("capture")];
const ABOVE: &[Opt] = &[Opt::with_value("above")];
const OF_SESSION: &[Opt] = &[
    Opt::short("session", 's'),
    Opt::short("channel", 'c'),
    Opt::with_value("domain"),
    Opt::with_value("threshold"),
];
const OF_PRESSURE: &[Opt] =
    &[Opt::with_value("resource"), Opt::with_value("share"), Opt::with_value("above")];
const OF_UNIT: &[Opt] = &[Opt::with_value("unit")];
const RATE: Opt = Opt::with_value("rate-policy");
const OF_SNAPSHOT: &[Opt] = &[
    Opt::short("name", 'n'),
    Opt::short("max-size", 'm'),
    Opt::short("ctrl-url", 'C'),
    Opt::short("data-url", 'D'),
    Opt::with_value("url"),
    Opt::with_value("path"),
    Opt::with_value("before"),
    Opt::with_value("after"),
    RATE,
];

/// What a command line says.
#[derive(Debug)]
pub(crate) enum Wanted {
    Help,
    Add { owner: Option<u32>, new: Box<NewTrigger> },
}

/// Reads the words behind the command.
pub(crate) fn parse(at: &mut At, all: &[String]) -> Result<Wanted, Failure> {
    let mut words = Words::new(all);
    let (mut condition, mut actions) = (None, Vec::new());
    let (mut name, mut owner, mut pace) = (None, None, Pace::default());
    loop {
        let item = match words.next(OPTIONS) {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(failure) => return Err(missing(at, all, failure)),
        };
        match item {
            Item::Word(word) => return Err(Failure::new(format!("Unexpected argument `{word}`."))),
            Item::Option("help" | "list-options", _) => return Ok(Wanted::Help),
            Item::Option("condition", _) if condition.is_some() => {
                return Err(Failure::new("A --condition was already given."));
            }
            Item::Option("condition", kind) => condition = Some(read_condition(at, &mut words, &kind)?),
            Item::Option("action", kind) => actions.push(action(at, &mut words, &kind)?),
            Item::Option("name", value) => {
                if name.replace(value).is_some() {
                    return Err(Failure::new("Duplicate '--name' given."));
                }
            }
            Item::Option("cool-down", text) => pace.cool_down_ms = Some(milliseconds(&text)?),
            Item::Option("per-day", text) => {
                let wrong = || Failure::new(format!("Failed to parse `{text}` as an integer."));
                pace.per_day = Some(text.parse().map_err(|_| wrong())?);
            }
            Item::Option(_, value) => {
                if owner.replace(value).is_some() {
                    return Err(Failure::new("Duplicate '--owner-uid' given."));
                }
            }
        }
    }
    words.end()?;
    let condition = condition.ok_or_else(|| Failure::new("Missing --condition."))?;
    if actions.is_empty() {
        return Err(Failure::new("Need at least one --action."));
    }
    let owner = owner.map(|text| self::owner(&text)).transpose()?;
    Ok(Wanted::Add { owner, new: Box::new(NewTrigger { name, condition, actions, pace, configured: false }) })
}

/// What is missing for an option of the command itself says what there is.
fn missing(at: &mut At, all: &[String], failure: Failure) -> Failure {
    match all.last().map(String::as_str) {
        Some("--condition") => names(at, &failure, "condition", CONDITIONS),
        Some("--action") => names(at, &failure, "action", ACTIONS),
        _ => failure,
    }
}

/// A user by its number.
fn owner(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::new(format!("Failed to parse `{text}` as a user id.")))
}

/// Says which names there are.
fn names(at: &mut At, failure: &Failure, what: &str, names: &[&str]) -> Failure {
    if let Some(text) = &failure.text {
        at.say.error(text);
    }
    at.say.error(&format!("Valid {what} names are:"));
    for name in names {
        at.say.error(&format!("  {name}"));
    }
    Failure::said(failure.code)
}

fn read_condition(at: &mut At, words: &mut Words<'_>, kind: &str) -> Result<Condition, Failure> {
    match kind {
        "event-rule-matches" => {
            let written = Written::read(words, CAPTURE)?;
            let (domain, rule) = written.rule(at)?;
            Ok(Condition::EventRuleMatches { domain, rule, captures: written.captures })
        }
        "event-rate" => {
            let written = Written::read(words, ABOVE)?;
            let (domain, rule) = written.rule(at)?;
            let above = Values { of: kind, all: written.others }.needed("above")?;
            let number = || wrong("above", &above);
            Ok(Condition::EventRate { domain, rule, above: above.parse().map_err(|_| number())? })
        }
        "buffer-usage-high" | "buffer-usage-low" => {
            let values = Values::read(words, kind, OF_SESSION)?;
            let text = values.needed("threshold")?;
            let threshold = match text.strip_suffix('%') {
                Some(percent) => percent.parse().ok().map(Threshold::Percent),
                None => units::bytes(&text).map(Threshold::Bytes),
            };
            let domain = match values.get("domain").as_deref() {
                None | Some("kernel") => Domain::Kernel,
                Some("user") => Domain::User,
                Some(other) => return Err(wrong("domain", other)),
            };
            let usage = BufferUsage {
                session: values.needed("session")?,
                domain,
                channel: values.needed("channel")?,
                threshold: threshold.ok_or_else(|| wrong("threshold", &text))?,
            };
            Ok(if kind == "buffer-usage-high" {
                Condition::BufferUsageHigh(usage)
            } else {
                Condition::BufferUsageLow(usage)
            })
        }
        "session-consumed-size" => {
            let values = Values::read(words, kind, OF_SESSION)?;
            let text = values.needed("threshold")?;
            let bytes = units::bytes(&text).ok_or_else(|| wrong("threshold", &text))?;
            Ok(Condition::ConsumedSize { session: values.needed("session")?, bytes })
        }
        "session-rotation-ongoing" => {
            let session = Values::read(words, kind, OF_SESSION)?.needed("session")?;
            Ok(Condition::RotationOngoing { session })
        }
        "session-rotation-completed" => {
            let session = Values::read(words, kind, OF_SESSION)?.needed("session")?;
            Ok(Condition::RotationCompleted { session })
        }
        "pressure" => pressure(&Values::read(words, kind, OF_PRESSURE)?),
        "unit-failed" => {
            let unit = Values::read(words, kind, OF_UNIT)?.needed("unit")?;
            Ok(Condition::UnitFailed { unit: unit_name(unit) })
        }
        "signal" => Ok(Condition::Signal),
        _ => {
            let failure = words.wrong(&format!("Unknown condition name '{kind}'"));
            Err(names(at, &failure, "condition", CONDITIONS))
        }
    }
}

fn pressure(values: &Values<'_>) -> Result<Condition, Failure> {
    let text = values.needed("resource")?;
    let resource = Resource::ALL.into_iter().find(|of| of.name() == text);
    let resource = resource.ok_or_else(|| wrong("resource", &text))?;
    let share = match values.get("share").as_deref() {
        None | Some("some") => Share::Some,
        Some("full") => Share::Full,
        Some(other) => return Err(wrong("share", other)),
    };
    let text = values.needed("above")?;
    let above = hundredths(text.strip_suffix('%').unwrap_or(&text)).ok_or_else(|| wrong("above", &text))?;
    Ok(Condition::Pressure { resource, share, above })
}

/// A name without the type of the unit is that of a service, as with systemctl(1).
fn unit_name(text: String) -> String {
    /// Those of systemd.unit(5).
    const TYPES: [&str; 11] = [
        "service",
        "socket",
        "device",
        "mount",
        "automount",
        "swap",
        "target",
        "path",
        "timer",
        "slice",
        "scope",
    ];
    let has_type = text.rsplit_once('.').is_some_and(|(_, of)| TYPES.contains(&of));
    if has_type || text.contains(['*', '?', '[']) { text } else { text + ".service" }
}

/// `12.5` is 1250.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_short = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let part: u16 = is_short.then(|| format!("{part:0<2}").parse().ok())??;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(part)
}

fn wrong(option: &str, value: &str) -> Failure {
    Failure::new(format!("Invalid value for --{option}: {value}"))
}

/// The values of a condition's options.
struct Values<'a> {
    of: &'a str,
    all: Vec<(&'static str, String)>,
}

impl<'a> Values<'a> {
    fn read(words: &mut Words<'_>, of: &'a str, known: &[Opt]) -> Result<Self, Failure> {
        let mut all = Vec::new();
        while let Some(item) = words.next(known)? {
            match item {
                Item::Word(word) => return Err(Failure::new(format!("Unexpected argument '{word}'"))),
                Item::Option(option, value) => all.push((option, value)),
            }
        }
        Ok(Self { of, all })
    }

    /// The last one counts.
    fn get(&self, option: &str) -> Option<String> {
        self.all.iter().rev().find(|(of, _)| *of == option).map(|(_, value)| value.clone())
    }

    fn needed(&self, option: &str) -> Result<String, Failure> {
        let missing = || Failure::new(format!("Condition {} requires a --{option}.", self.of));
        self.get(option).ok_or_else(missing)
    }
}

fn action(at: &mut At, words: &mut Words<'_>, kind: &str) -> Result<Action, Failure> {
    let session = |words: &mut Words<'_>, what: &str| read_simple(words, what, "session name");
    let (kind, rate_policy) = match kind {
        "notify" => {
            let mut policy = None;
            while let Some(item) = within("notify", words.next(&[RATE]))? {
                match item {
                    Item::Word(word) => return Err(Failure::new(format!("Unexpected argument `{word}`."))),
                    Item::Option(_, text) => policy = Some(rate_policy(&text)?),
                }
            }
            (ActionKind::Notify, policy)
        }
        "start-session" => {
            let (session, policy) = session(words, "start")?;
            (ActionKind::StartSession { session }, policy)
        }
        "stop-session" => {
            let (session, policy) = session(words, "stop")?;
            (ActionKind::StopSession { session }, policy)
        }
        "rotate-session" => {
            let (session, policy) = session(words, "rotate")?;
            (ActionKind::RotateSession { session }, policy)
        }
        "snapshot-session" => snapshot(words)?,
        "post" => {
            let (socket, policy) = read_simple(words, "post", "socket")?;
            (ActionKind::Post { socket: PathBuf::from(socket) }, policy)
        }
        "count" => count(words)?,
        _ => {
            let failure = words.wrong(&format!("Unknown action name '{kind}'"));
            return Err(names(at, &failure, "action", ACTIONS));
        }
    };
    Ok(Action { kind, rate_policy: rate_policy.unwrap_or_default() })
}

fn count(words: &mut Words<'_>) -> Result<(ActionKind, Option<RatePolicy>), Failure> {
    let (mut by, mut function, mut max_keys, mut policy) = (Vec::new(), None, None, None);
    while let Some(item) = within("count", words.next(OF_COUNT))? {
        match item {
            Item::Word(word) => return Err(Failure::new(format!("Unexpected argument `{word}`."))),
            Item::Option("by", text) => {
                by.extend(MapSpec::keys_of(&text).map_err(|error| Failure::new(error.to_string()))?);
            }
            Item::Option("function", text) => function = Some(text),
            Item::Option("max-keys", text) => {
                let number = text.parse::<u32>();
                let wrong = |_| Failure::new(format!("Failed to parse `{text}` as an integer."));
                max_keys = Some(number.map_err(wrong)?);
            }
            Item::Option(_, text) => policy = Some(rate_policy(&text)?),
        }
    }
    Ok((ActionKind::Count { by, function, max_keys }, policy))
}

/// What is wrong within an action says which.
fn within<T>(action: &str, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|failure| {
        let text = failure.text.unwrap_or_default();
        Failure::new(format!("While parsing `{action}` action:: {text}"))
    })
}

/// An action with one argument.
fn read_simple(
    words: &mut Words<'_>,
    action: &str,
    argument: &str,
) -> Result<(String, Option<RatePolicy>), Failure> {
    let (mut value, mut policy) = (None, None);
    while let Some(item) = within(action, words.next(&[RATE]))? {
        match item {
            Item::Word(word) if value.is_some() => {
                return Err(Failure::new(format!("Unexpected argument `{word}`.")));
            }
            Item::Word(word) => value = Some(word),
            Item::Option(_, text) => policy = Some(rate_policy(&text)?),
        }
    }
    let value = value.ok_or_else(|| Failure::new(format!("Missing {argument}.")))?;
    Ok((value, policy))
}

fn snapshot(words: &mut Words<'_>) -> Result<(ActionKind, Option<RatePolicy>), Failure> {
    let (mut session, mut policy) = (None, None);
    let mut values = Values { of: "snapshot-session", all: Vec::new() };
    while let Some(item) = within("snapshot", words.next(OF_SNAPSHOT))? {
        match item {
            Item::Word(word) if session.is_some() => {
                return Err(Failure::new(format!("Unexpected argument `{word}`.")));
            }
            Item::Word(word) => session = Some(word),
            Item::Option("rate-policy", text) => policy = Some(rate_policy(&text)?),
            Item::Option(option, value) => values.all.push((option, value)),
        }
    }
    let session = session.ok_or_else(|| Failure::new("Missing session name."))?;
    let window = window(&values)?;
    Ok((ActionKind::SnapshotSession { session, output: target(&values)?, window }, policy))
}

/// Where a snapshot goes.
fn target(values: &Values<'_>) -> Result<Option<SnapshotTarget>, Failure> {
    let [control, data, url, path] = ["ctrl-url", "data-url", "url", "path"].map(|of| values.get(of));
    match (&control, &data) {
        (Some(_), None) => {
            return Err(Failure::new("--ctrl-url is specified, but --data-url is missing."));
        }
        (None, Some(_)) => {
            return Err(Failure::new("--data-url is specified, but --ctrl-url is missing."));
        }
        _ => {}
    }
    if [&control, &url, &path].iter().filter(|given| given.is_some()).count() > 1 {
        return Err(Failure::new(
            "The --ctrl-url/--data-url, --url, and --path options can't be used together.",
        ));
    }
    let place = match (control, url, path) {
        (None, None, None) => None,
        (Some(control), ..) => {
            let data = data.as_deref().unwrap_or_default();
            let wrong = || {
                Failure::new(format!("Failed to parse `{control}` and `{data}` as control and data URLs."))
            };
            // Kept as it was given, as LTTng keeps it.
            Relay::of_both(&control, data).ok_or_else(wrong)?;
            Some(control.into())
        }
        (_, Some(url), _) => match Address::parse(&url).filter(|_| url.contains("://")) {
            Some(Address::Local(path)) => Some(path),
            Some(Address::Relay(_)) => Some(url.into()),
            None => return Err(Failure::new(format!("Failed to parse '{url}' as an URL."))),
        },
        (_, _, Some(path)) => match Address::parse(&path) {
            Some(Address::Local(path)) => Some(path),
            _ => return Err(Failure::new(format!("Failed to parse '{path}' as a local path."))),
        },
    };
    let (name, size) = (values.get("name"), values.get("max-size"));
    let Some(path) = place else {
        let without = |what| {
            let text =
                format!("Can't provide a snapshot output {what} without a snapshot output destination.");
            Err(Failure::new(text))
        };
        return match (name, size) {
            (Some(_), _) => without("name"),
            (None, Some(_)) => without("max size"),
            (None, None) => Ok(None),
        };
    };
    let size = size.map(|text| {
        units::bytes(&text).ok_or_else(|| Failure::new(format!("Failed to parse `{text}` as a size.")))
    });
    let data_url = data.filter(|data| !data.is_empty());
    Ok(Some(SnapshotTarget { path, data_url, name, max_size: size.transpose()?.filter(|size| *size != 0) }))
}

/// The part of time that a snapshot is of.
fn window(values: &Values<'_>) -> Result<Window, Failure> {
    let of = |name: &str| values.get(name).map(|text| milliseconds(&text)).transpose();
    Ok(Window { before_ms: of("before")?, after_ms: of("after")? })
}

fn milliseconds(text: &str) -> Result<u64, Failure> {
    let wrong = || Failure::new(format!("Failed to parse `{text}` as a time."));
    units::microseconds(text).map(|us| us.div_ceil(1000)).ok_or_else(wrong)
}

fn rate_policy(text: &str) -> Result<RatePolicy, Failure> {
    let (kind, value) = text.split_once(':').ok_or_else(|| Failure::new("Rate policy format is invalid."))?;
    let make = match kind {
        "every" => RatePolicy::Every,
        "once-after" => RatePolicy::OnceAfter,
        _ => return Err(Failure::new(format!("Rate policy type `{kind}` unknown."))),
    };
    match value.parse::<u64>() {
        Ok(0) => Err(Failure::new(format!("Rate policy value `{value}` must be > 0."))),
        Ok(value) => Ok(make(value)),
        Err(_) => Err(Failure::new(format!("Failed to parse rate policy value `{value}` as an integer."))),
    }
}
