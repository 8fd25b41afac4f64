//! Files of sessions that anybody wrote, and sessions that become files.

use super::{NewChannel, Saved, SavedChannel, read, write};
use api::requests::Track;
use api::session::SessionDomain;
use api::track::Attribute;
use api::{
    Channel, Domain, EventRule, Instrumentation, Session, SessionMode, SnapshotOutput, Summary, Tracked,
    Tracker,
};

/// For fuzzing: reads a file of sessions, and sees that what is written of them is read as the same.
///
/// # Panics
/// It is not.
pub fn fuzz_saved(text: &str) {
    let Ok(all) = read::sessions(text) else { return };
    for saved in all {
        fuzz_session(&session_of(saved));
    }
}

/// For fuzzing: sees that a session is what is read of its file.
///
/// # Panics
/// It is not.
pub fn fuzz_session(session: &Session) {
    let Ok(text) = write::file(session) else { return };
    let read = read::sessions(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let [read] = read.try_into().unwrap_or_else(|read| panic!("{read:?} of\n{text}"));
    let read = session_of(read);
    let told = |session: &Session| {
        let mut session = session.clone();
        normalise(&mut session);
        session
    };
    assert_eq!(told(&read), told(session), "{text}");
}

/// Leaves out what a file does not say.
fn normalise(session: &mut Session) {
    let Session { summary, domains, schedules: _, snapshot_outputs, last_rotation, notes, maps } = session;
    (summary.created_at, summary.uid, *last_rotation) = (0, 0, None);
    notes.clear();
    maps.clear();
    for (place, output) in (1..).zip(snapshot_outputs) {
        output.id = place;
    }
    // The order of schedules, domains and trackers means nothing, and a domain without anything is none.
    session.schedules.sort_unstable_by_key(|schedule| format!("{schedule:?}"));
    domains.retain(|of| {
        !of.channels.is_empty() || of.trackers.iter().any(|tracker| tracker.tracked != Tracked::All)
    });
    domains.sort_by_key(|of| of.domain);
    for domain in domains.iter_mut() {
        domain.trackers.retain(|tracker| tracker.tracked != Tracked::All);
        domain.trackers.sort_by_key(|tracker| tracker.attribute);
        for tracker in &mut domain.trackers {
            normalise_tracker(tracker);
        }
        for channel in &mut domain.channels {
            (channel.discarded, channel.lost_packets) = (0, 0);
            for rule in &mut channel.rules {
                normalise_rule(rule);
            }
            let attributes = &mut channel.attributes;
            attributes.buffers = None;
            for number in [
                &mut attributes.subbuf_size,
                &mut attributes.num_subbuf,
                &mut attributes.switch_timer_us,
                &mut attributes.read_timer_us,
                &mut attributes.monitor_timer_us,
                &mut attributes.tracefile_size,
                &mut attributes.tracefile_count,
            ] {
                number.get_or_insert_default();
            }
            attributes.event_loss.get_or_insert_default();
            attributes.output.get_or_insert_default();
            if domain.domain == Domain::Kernel {
                attributes.blocking_timeout_us = None;
            }
            attributes.blocking_timeout_us.get_or_insert_default();
        }
    }
}

/// Writes ids as files have them.
fn normalise_tracker(tracker: &mut Tracker) {
    let Tracked::Only(values) = &mut tracker.tracked else { return };
    if matches!(tracker.attribute, Attribute::Cgroup | Attribute::Comm) {
        return;
    }
    for value in values {
        if let Ok(id) = value.parse::<u32>() {
            *value = id.to_string();
        }
    }
}

/// Writes places as files lead to.
fn normalise_rule(rule: &mut EventRule) {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (Instrumentation::Kprobe { location } | Instrumentation::Function { location }) =
        &mut rule.instrumentation
    else {
        return;
    };
    if let Some(address) = number(location) {
        *location = format!("{address:#x}");
    } else if let Some((symbol, offset)) = location.split_once('+') {
        *location = match number(offset) {
            None | Some(0) => symbol.to_owned(),
            Some(offset) => format!("{symbol}+{offset:#x}"),
        };
    }
}

/// The session that is made of what was read.
fn session_of(saved: Saved) -> Session {
    let Saved { session, channels, trackers, schedules, mut snapshot_outputs, started } = saved;
    if let Some(path) = session.snapshot_output {
        let first = SnapshotOutput { id: 1, name: Some("snapshot-1".to_owned()), path, max_size: None };
        snapshot_outputs.insert(0, first);
    }
    if session.mode != SessionMode::Snapshot {
        snapshot_outputs.clear();
    }
    let mut domains: Vec<SessionDomain> = Vec::new();
    for saved in channels {
        let SavedChannel { domain, new: NewChannel { name, attributes, rules: _ }, enabled, contexts, rules } =
            saved;
        let channel = Channel { name, enabled, attributes, discarded: 0, lost_packets: 0, contexts, rules };
        domain_of(&mut domains, domain).channels.push(channel);
    }
    for (domain, Track { attribute, values, .. }) in trackers {
        let trackers = &mut domain_of(&mut domains, domain).trackers;
        // All are removed first, then those of the file are added.
        let tracked = if values == Tracked::All { Tracked::Only(Vec::new()) } else { values };
        match trackers.iter_mut().find(|tracker| tracker.attribute == attribute) {
            Some(tracker) => tracker.tracked = tracked,
            None => trackers.push(Tracker { attribute, tracked }),
        }
    }
    let summary = Summary {
        name: session.name.unwrap_or_default(),
        active: started,
        mode: session.mode,
        format: session.format,
        created_at: 0,
        uid: 0,
    };
    Session {
        summary,
        domains,
        schedules,
        snapshot_outputs,
        last_rotation: None,
        maps: Vec::new(),
        notes: Vec::new(),
    }
}

fn domain_of(domains: &mut Vec<SessionDomain>, domain: Domain) -> &mut SessionDomain {
    let place = domains.iter().position(|of| of.domain == domain).unwrap_or_else(|| {
        domains.push(SessionDomain { domain, trackers: Vec::new(), channels: Vec::new() });
        domains.len() - 1
    });
    &mut domains[place]
}
