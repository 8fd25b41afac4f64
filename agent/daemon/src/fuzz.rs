//! Requests of anybody: what they make of the description of a session, without recording.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::de::DeserializeOwned;

use super::{
    sessions::{KnownPrograms, Model, Program, World, spec},
    triggers,
};
use ::spec::EventName;
use ::spec::{CHANNELS_MAX, RecordingSpec};
use api::requests::{Enable, EnableRules, NewChannel, NewContexts, NewRules, TakeSnapshot, Track};
use api::{Code, ControlError, Domain, EventRule, NewSession, NewTrigger, Schedule, Session, SnapshotOutput};
use elf::Identity;
use kernel::events::Catalogue;

/// Requests that are looked at of one input.
const REQUESTS_MAX: usize = 64;

type Answer<T = ()> = Result<T, ControlError>;

/// For fuzzing: does what the requests in the lines ask for (`POST /v1/sessions/s/start`, with the body
/// behind a blank), and sees that a session stays within its limits, whatever they are. The sessions are
/// those of the user `uid`. Gives the last one.
///
/// # Panics
/// It does not.
pub fn fuzz(data: &[u8], uid: u32) -> Option<Session> {
    let mut model: Option<Model> = None;
    for line in data.split(|byte| *byte == b'\n').take(REQUESTS_MAX) {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let (Some(method), Some(path)) = (parts.next(), parts.next()) else { continue };
        let Ok(path) = std::str::from_utf8(path) else { continue };
        let path: Vec<&str> = path.split('/').skip(1).collect();
        let body = parts.next().unwrap_or_default();
        // As the registry does it: what is refused has changed nothing.
        let mut after = model.clone();
        match request(&mut after, uid, (method, &path, body)) {
            Ok(()) => {
                if let Some(after) = &after {
                    check(after);
                }
                model = after;
            }
            Err(error) => check_refusal(&error),
        }
    }
    let model = model?;
    check_specification(&model, &world());
    Some(model.session().clone())
}

/// A machine with a few events and a program.
fn world() -> World {
    let names = [("sched", "sched_switch"), ("irq", "softirq_entry"), ("syscalls", "sys_enter_openat")];
    let names = names.into_iter().map(|(system, name)| EventName::new(system, name));
    let markers = BTreeSet::from([("app".to_owned(), "one".to_owned())]);
    let program =
        Program { path: PathBuf::from("/bin/app"), identity: Identity::Inode(1, 2), markers, file: None };
    let known = KnownPrograms { programs: Arc::new(vec![Arc::new(program)]), generation: 1 };
    World::new(Arc::new(Catalogue::new(names.collect(), "", "", "")), known, Arc::default())
}

fn request(model: &mut Option<Model>, uid: u32, asked: (&[u8], &[&str], &[u8])) -> Answer {
    let (method, path, body) = asked;
    if (method, path) == (b"POST", &["v1", "sessions"]) {
        *model = Some(Model::create(parse::<NewSession>(body)?, uid, 1_700_000_000)?);
        return Ok(());
    }
    if (method, path) == (b"POST", &["v1", "triggers"]) {
        return triggers::check(uid, &parse::<NewTrigger>(body)?);
    }
    let ["v1", "sessions", _, path @ ..] = path else { return Err(Code::Undefined.into()) };
    let model = model.as_mut().ok_or_else(|| ControlError::from(Code::NoSession))?;
    match (method, path) {
        (b"POST", ["start"]) => model.start(),
        (b"POST", ["stop"]) => model.stop(),
        (b"POST", ["rotations"]) => model.check_rotation(),
        (b"POST", ["schedules"]) => model.add_schedule(parse(body)?),
        (b"DELETE", ["schedules"]) => model.remove_schedule(&parse::<Schedule>(body)?),
        (b"POST", ["snapshots"]) => model.check_snapshot(&parse::<TakeSnapshot>(body)?),
        (b"POST", ["snapshot-outputs"]) => {
            model.add_snapshot_output(parse::<SnapshotOutput>(body)?).map(drop)
        }
        (b"DELETE", ["snapshot-outputs", output]) => model.remove_snapshot_output(output),
        (method, ["domains", domain, path @ ..]) => {
            let domain = Domain::ALL.into_iter().find(|known| known.name() == *domain);
            let domain = domain.ok_or_else(|| ControlError::from(Code::Invalid))?;
            request_of_domain(model, domain, (method, path, body))
        }
        _ => Err(Code::Undefined.into()),
    }
}

fn request_of_domain(model: &mut Model, domain: Domain, asked: (&[u8], &[&str], &[u8])) -> Answer {
    let (method, path, body) = asked;
    match (method, path) {
        (b"POST", ["channels"]) => model.add_channel(domain, &parse::<NewChannel>(body)?).map(drop),
        (b"POST", ["trackers"]) => model.track(domain, &parse::<Track>(body)?).map(drop),
        (b"PATCH", ["channels", channel]) => {
            model.enable_channel(domain, channel, parse::<Enable>(body)?.enabled)
        }
        (b"POST", ["channels", channel, "rules"]) => {
            model.add_rules(domain, channel, &parse::<NewRules>(body)?.into_all())
        }
        (b"DELETE", ["channels", channel, "rules"]) => {
            model.remove_rule(domain, channel, &parse::<EventRule>(body)?)
        }
        (b"PATCH", ["channels", channel, "rules"]) => {
            model.enable_rules(domain, channel, &parse::<EnableRules>(body)?).map(drop)
        }
        (b"POST", ["channels", channel, "contexts"]) => {
            model.add_contexts(domain, channel, &parse::<NewContexts>(body)?.contexts)
        }
        _ => Err(Code::Undefined.into()),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    serde_json::from_slice(body).map_err(|error| ControlError::new(Code::Invalid, error.to_string()))
}

/// What a session is at any time.
///
/// # Panics
/// It is not so.
fn check(model: &Model) {
    let session = model.session();
    // A client understands what it is told.
    let told = serde_json::to_vec(session).and_then(|json| serde_json::from_slice::<Session>(&json));
    assert!(told.as_ref().is_ok_and(|told| told == session), "{told:?} of {session:?}");
    let mut buffers = BTreeSet::new();
    for (domain, channel) in model.channels() {
        assert!(buffers.insert(spec::buffer_name(domain, &channel.name)), "two buffers of one name");
        let attributes = &channel.attributes;
        let bytes =
            attributes.subbuf_size.zip(attributes.num_subbuf).map(|(size, count)| size.checked_mul(count));
        assert!(bytes.flatten().is_some_and(u64::is_power_of_two), "{attributes:?}");
    }
    assert!(buffers.len() <= CHANNELS_MAX);
}

/// What would be recorded of a session is a specification as everybody may write one.
///
/// # Panics
/// It is not.
fn check_specification(model: &Model, world: &World) {
    let _ = spec::schedule(model);
    let Ok(spec) = spec::of(model, world, Path::new("/output")) else { return };
    let _ = spec.check();
    let read = spec.to_json().map(|json| RecordingSpec::parse(json.as_bytes()));
    assert!(matches!(&read, Ok(Ok(read)) if *read == spec), "{read:?} of {spec:?}");
}

/// A refusal has a reason, and a status that says that it is one.
fn check_refusal(error: &ControlError) {
    assert!(!error.message.is_empty() && error.code.status() >= 400, "{error:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_make_a_session() {
        let requests = br#"POST /v1/sessions {"name":"s","mode":{"local":{"output":"/t"}},"format":"lttng"}
POST /v1/sessions/s/domains/kernel/channels {"name":"c","attributes":{"subbuf_size":5000}}
POST /v1/sessions/s/domains/kernel/channels {"name":"c"}
POST /v1/sessions/s/domains/kernel/channels/c/rules {"name":"sched_*","instrumentation":"tracepoint"}
POST /v1/sessions/s/domains/kernel/channels/c/contexts {"contexts":["pid"]}
POST /v1/sessions/s/domains/user/channels {"name":"u"}
POST /v1/sessions/s/domains/user/channels/u/rules {"name":"app:*","instrumentation":"tracepoint"}
POST /v1/sessions/s/domains/kernel/trackers {"attribute":"vpid","values":{"only":["7"]},"add":true}
POST /v1/sessions/s/schedules {"period_us":5}
POST /v1/sessions/s/start
GET /v1/nothing
"#;
        let session = fuzz(requests, 0).unwrap();
        assert!(session.summary.active);
        let channels: Vec<usize> = session.domains.iter().map(|of| of.channels.len()).collect();
        assert_eq!((channels, session.schedules.len()), (vec![1, 1], 1));
        let of_a_user = fuzz(requests, 1000).unwrap();
        assert_eq!(of_a_user.domains[1].channels[0].rules, [], "programs are root's");
    }

    #[test]
    fn rules_are_added_all_or_none() {
        let rule = |name: &str, filter: &str| serde_json::json!({"name": name, "instrumentation": "tracepoint", "filter": filter});
        let right = rule("sched_*", "prio == 1 && comm == \"a*\"");
        let wrong =
            ["prio ==", "prio + 1", "\"a\" < 3", "$ctx.nothing == 1", "a b", ""].map(|text| rule("a", text));
        let mut requests = "POST /v1/sessions {\"name\":\"s\",\"mode\":\"snapshot\"}\n\
                            POST /v1/sessions/s/domains/kernel/channels {\"name\":\"c\"}\n"
            .to_owned();
        let rules = "POST /v1/sessions/s/domains/kernel/channels/c/rules";
        for wrong in &wrong {
            requests += &format!("{rules} {wrong}\n{rules} [{right},{wrong}]\n");
            let channel = serde_json::json!({"name": "d", "rules": [right, wrong]});
            requests += &format!("POST /v1/sessions/s/domains/kernel/channels {channel}\n");
        }
        let session = fuzz(requests.as_bytes(), 0).unwrap();
        let [kernel] = &session.domains[..] else { panic!("{session:?}") };
        assert_eq!((kernel.channels.len(), kernel.channels[0].rules.len()), (1, 0));
        let channel = serde_json::json!({"name": "d", "rules": [right]});
        requests += &format!("{rules} [{right},{}]\n", rule("other", "a == 1"));
        requests += &format!("POST /v1/sessions/s/domains/kernel/channels {channel}\n");
        let session = fuzz(requests.as_bytes(), 0).unwrap();
        let rules: Vec<usize> =
            session.domains[0].channels.iter().map(|channel| channel.rules.len()).collect();
        assert_eq!(rules, [2, 1]);
    }

    #[test]
    fn probes_of_a_channel_have_names_of_their_own() {
        let count = |rules: &[(&str, &str)]| {
            let mut requests = "POST /v1/sessions {\"name\":\"s\",\"mode\":\"snapshot\"}\n\
                                POST /v1/sessions/s/domains/kernel/channels {\"name\":\"c\"}\n"
                .to_owned();
            for (name, kind) in rules {
                let place = serde_json::json!({*kind: {"location": "do_exit"}});
                let rule = serde_json::json!({"name": name, "instrumentation": place});
                requests += &format!("POST /v1/sessions/s/domains/kernel/channels/c/rules {rule}\n");
            }
            fuzz(requests.as_bytes(), 0).unwrap().domains[0].channels[0].rules.len()
        };
        // The first two have one place, and are one probe.
        assert_eq!(count(&[("a-b", "kprobe"), ("a_b", "kprobe"), ("c", "function"), ("c", "kprobe")]), 4);
        assert_eq!(count(&[("c", "function"), ("c_exit", "kprobe")]), 1);
        let longest = "x".repeat(64);
        assert_eq!(count(&[(&longest, "kprobe"), (&format!("{longest}x"), "kprobe")]), 1);
        assert_eq!(count(&[(&longest, "function"), (&longest[..58], "function")]), 1);
    }

    #[test]
    fn places_in_the_kernel_are_symbols_and_numbers() {
        let accepted = |location: &str| {
            let rule =
                format!(r#"{{"name":"k","instrumentation":{{"kprobe":{{"location":"{location}"}}}}}}"#);
            let requests = format!(
                "POST /v1/sessions {{\"name\":\"s\",\"mode\":\"snapshot\"}}\n\
                 POST /v1/sessions/s/domains/kernel/channels {{\"name\":\"c\"}}\n\
                 POST /v1/sessions/s/domains/kernel/channels/c/rules {rule}\n"
            );
            let session = fuzz(requests.as_bytes(), 0).unwrap();
            !session.domains[0].channels[0].rules.is_empty()
        };
        for right in ["do_exit", "a.b$c+0x10", "do_exit+16", "0xff00", "123"] {
            assert!(accepted(right), "{right}");
        }
        for wrong in [
            "",
            "a+",
            "a+zz",
            "a+-1",
            "a+0x",
            "9abc",
            "0x",
            "0x1z",
            "0x10+1",
            "18446744073709551616",
            "a b",
            "%ax",
        ] {
            assert!(!accepted(wrong), "{wrong}");
        }
    }
}
