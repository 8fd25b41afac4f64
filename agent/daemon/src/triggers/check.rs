//! Which triggers are accepted: descriptions come from anybody who may have some.

use std::path::PathBuf;
use std::time::Duration;

use super::units::is_pattern;
use crate::sessions::{check_name, check_network, check_path, check_rule_of, check_snapshot_name};
use api::trigger::{
    Action, ActionKind, BufferUsage, Capture, Condition, RatePolicy, SnapshotTarget, Threshold,
};
use api::{Code, ControlError, Domain, Format, NewTrigger};
use lttng_relay::RelayAddress;
use spec::KEYS_MAX;

/// The most actions of a trigger.
const ACTIONS_MAX: usize = 64;
/// The most fields that are captured.
const CAPTURES_MAX: usize = 64;
/// The longest description of a field.
const CAPTURE_MAX: usize = 512;
/// The longest time that a snapshot waits for what comes after its trigger.
const AFTER_MAX: Duration = Duration::from_hours(1);
/// The longest path of a socket (unix(7)).
const SOCKET_MAX: usize = 107;

type Checked<T = ()> = Result<T, ControlError>;

/// Whether a user may have such a trigger, whatever the machine is.
pub(crate) fn check(uid: u32, new: &NewTrigger) -> Checked {
    let NewTrigger { name, condition, actions, pace, configured: _ } = new;
    if pace.per_day == Some(0) {
        return Err(refused("a trigger whose actions are done 0 times a day does nothing; use 1 or more"));
    }
    if let Some(name) = name {
        check_name(name, Code::InvalidTrigger)?;
    }
    check_condition(uid, condition)?;
    if actions.is_empty() || actions.len() > ACTIONS_MAX {
        return Err(refused(format!("a trigger has 1 to {ACTIONS_MAX} actions")));
    }
    for action in actions {
        check_count(condition, action)?;
        if matches!(action.rate_policy, RatePolicy::Every(0) | RatePolicy::OnceAfter(0)) {
            return Err(refused("the number of a rate policy is 1 at least"));
        }
        check_action(&action.kind)?;
    }
    Ok(())
}

fn check_condition(uid: u32, condition: &Condition) -> Checked {
    match condition {
        Condition::EventRuleMatches { domain, rule, captures } => {
            check_rule_of(uid, *domain, rule)?;
            if captures.len() > CAPTURES_MAX {
                return Err(refused(format!("a trigger captures at most {CAPTURES_MAX} fields")));
            }
            captures.iter().try_for_each(|text| check_capture(text))
        }
        Condition::EventRate { domain, rule, above: _ } => check_rule_of(uid, *domain, rule),
        Condition::BufferUsageHigh(usage) | Condition::BufferUsageLow(usage) => {
            let BufferUsage { session, domain: _, channel, threshold } = usage;
            check_name(session, Code::SessionName)?;
            check_name(channel, Code::ChannelName)?;
            if matches!(threshold, Threshold::Percent(101..)) {
                return Err(refused("a ring holds at most 100 percent"));
            }
            Ok(())
        }
        Condition::ConsumedSize { session, bytes: _ }
        | Condition::RotationOngoing { session }
        | Condition::RotationCompleted { session } => check_name(session, Code::SessionName),
        Condition::Pressure { above, .. } if *above >= 10_000 => {
            Err(refused("tasks wait for at most 100 percent of the time: nothing is above"))
        }
        Condition::Pressure { .. } => Ok(()),
        Condition::UnitFailed { unit } if !is_pattern(unit) => {
            Err(refused("the name of a unit, or its pattern, has 1 to 255 letters, digits and :-_.\\@"))
        }
        Condition::UnitFailed { .. } | Condition::Signal => Ok(()),
    }
}

fn check_capture(text: &str) -> Checked {
    if text.len() > CAPTURE_MAX {
        return Err(refused(format!("the description of a field is longer than {CAPTURE_MAX} bytes")));
    }
    match text.parse::<Capture>() {
        Ok(Capture::AppContext { .. }) => Err(ControlError::new(
            Code::NotSupported,
            format!("{text}: there are no contexts of applications"),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(refused(format!("{text}: {error}"))),
    }
}

/// Whether what an action counts can be counted where the condition is looked at.
fn check_count(condition: &Condition, action: &Action) -> Checked {
    let ActionKind::Count { by, function, max_keys } = &action.kind else { return Ok(()) };
    if by.is_empty() && function.is_none() {
        if max_keys.is_some() {
            return Err(refused("a count without keys has no number of keys"));
        }
        return Ok(());
    }
    let is_of_kernel = matches!(condition, Condition::EventRuleMatches { domain: Domain::Kernel, .. });
    if !is_of_kernel || action.rate_policy != RatePolicy::default() {
        return Err(refused(
            "keys and functions are for counting each match of a rule for an event of the kernel, without a rate \
             policy",
        ));
    }
    if by.len() > KEYS_MAX {
        return Err(refused(format!("a map has at most {KEYS_MAX} keys")));
    }
    let is_long = |text: &String| text.len() > CAPTURE_MAX;
    if by.iter().chain(function).any(is_long) {
        return Err(refused(format!("the description of a field is longer than {CAPTURE_MAX} bytes")));
    }
    Ok(())
}

fn check_action(kind: &ActionKind) -> Checked {
    match kind {
        ActionKind::Notify | ActionKind::Count { .. } => Ok(()),
        ActionKind::StartSession { session }
        | ActionKind::StopSession { session }
        | ActionKind::RotateSession { session } => check_name(session, Code::SessionName),
        ActionKind::SnapshotSession { session, output, window } => {
            if window.after() > AFTER_MAX {
                return Err(refused("a snapshot waits for an hour at most"));
            }
            check_name(session, Code::SessionName)?;
            let Some(target) = output else { return Ok(()) };
            let SnapshotTarget { path: _, data_url: _, name, max_size } = target;
            let path = place_of(target)?;
            match path.to_str().filter(|url| url.contains("://")) {
                Some(url) => check_network(session, url, Format::Lttng)?,
                None => check_path(&path)?,
            }
            if *max_size == Some(0) {
                return Err(Code::SnapshotSize.into());
            }
            name.iter().try_for_each(|name| check_snapshot_name(name))
        }
        ActionKind::Post { socket } => {
            check_path(socket)?;
            if socket.as_os_str().len() > SOCKET_MAX {
                return Err(refused(format!("the path of a socket has at most {SOCKET_MAX} bytes")));
            }
            Ok(())
        }
    }
}

/// Where a snapshot of a trigger goes: a directory, or the address of a relay daemon in one text.
pub(super) fn place_of(target: &SnapshotTarget) -> Checked<PathBuf> {
    let SnapshotTarget { path, data_url, .. } = target;
    let Some(data) = data_url else { return Ok(path.clone()) };
    let relay = path.to_str().and_then(|control| RelayAddress::of_both(control, data));
    let wrong = || refused(format!("{} and {data} are no addresses of one relay daemon", path.display()));
    Ok(relay.ok_or_else(wrong)?.url().into())
}

fn refused(why: impl Into<String>) -> ControlError {
    ControlError::new(Code::InvalidTrigger, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(uid: u32, text: &str) -> Option<Code> {
        check(uid, &serde_json::from_str(text).unwrap()).err().map(|error| error.code)
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |condition: &str, action: &str| {
            answer(1000, &format!(r#"{{"condition":{condition},"actions":[{action}]}}"#))
        };
        let (notify, rotation) = (r#"{"do":"notify"}"#, r#"{"rotation_ongoing":{"session":"s"}}"#);
        let rule = |rest: &str| {
            format!(
                r#"{{"event_rule_matches":{{"domain":"kernel","rule":{{"name":"a","instrumentation":"tracepoint"}}{rest}}}}}"#
            )
        };
        assert_eq!(of(rotation, notify), None);
        assert_eq!(of(&rule(r#","captures":["a","a[3]","$ctx.comm"]"#), notify), None);
        for captures in [r#"["a["]"#, r#"["$x.y"]"#, r#"[""]"#, r#"["a b"]"#] {
            let condition = rule(&format!(r#","captures":{captures}"#));
            assert_eq!(of(&condition, notify), Some(Code::InvalidTrigger), "{captures}");
        }
        assert_eq!(of(&rule(r#","captures":["$app.p:c"]"#), notify), Some(Code::NotSupported));
        for action in [
            r#"{"do":"notify","rate_policy":{"every":0}}"#,
            r#"{"do":{"post":{"socket":"/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}}"#,
        ] {
            assert_eq!(of(rotation, action), Some(Code::InvalidTrigger), "{action}");
        }
        assert_eq!(of(rotation, r#"{"do":{"post":{"socket":"x"}}}"#), Some(Code::Invalid));
        assert_eq!(of(rotation, r#"{"do":{"start_session":{"session":""}}}"#), Some(Code::SessionName));
        let snapshot = r#"{"do":{"snapshot_session":{"session":"s","output":{"path":"/a/../b"}}}}"#;
        assert_eq!(of(rotation, snapshot), Some(Code::Invalid));
        let sent = |control: &str, data: &str| {
            let to = format!(r#"{{"path":"{control}","data_url":"{data}"}}"#);
            of(rotation, &format!(r#"{{"do":{{"snapshot_session":{{"session":"s","output":{to}}}}}}}"#))
        };
        assert_eq!(sent("tcp://h:1", "tcp://h:2"), None);
        assert_eq!(sent("tcp://h:1", "tcp://other:2"), Some(Code::InvalidTrigger));
        assert_eq!(sent("/a", "tcp://h:2"), Some(Code::InvalidTrigger));
        let pressure = r#"{"pressure":{"resource":"io","share":"full","above":10000}}"#;
        assert_eq!(of(pressure, notify), Some(Code::InvalidTrigger));
        for unit in ["", "a b", "a/b", "\u{e4}.service", "a\\u0000"] {
            let condition = format!(r#"{{"unit_failed":{{"unit":"{unit}"}}}}"#);
            assert_eq!(of(&condition, notify), Some(Code::InvalidTrigger), "{unit}");
        }
        assert_eq!(of(r#"{"unit_failed":{"unit":"getty@*.service"}}"#, notify), None);
        assert_eq!(
            answer(0, &format!(r#"{{"condition":{rotation},"actions":[]}}"#)),
            Some(Code::InvalidTrigger)
        );
    }

    #[test]
    fn programs_are_roots() {
        let text = r#"{"condition":{"event_rule_matches":{"domain":"user","rule":{"name":"a:*","instrumentation":
            "tracepoint"}}},"actions":[{"do":"notify"}]}"#;
        assert_eq!((answer(0, text), answer(1000, text)), (None, Some(Code::NotSupported)));
    }
}
