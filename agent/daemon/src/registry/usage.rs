//! How full the rings of sessions are, and what they have counted.

use ::spec::TraceClock;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Answer, Entry, Registry, lock};
use crate::sessions::{Moment, spec};
use api::usage::{ChannelUsage, CpuUsage};
use api::{Channel, Domain, EventLoss, Usage};
use kernel::clock::ReadClock as _;

/// Whether events are told one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Only sums over them.
    Sums,
    /// Each of them.
    Events,
}

/// What was known at a time, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    time_ns: u64,
    moment: Moment,
}

impl Registry {
    /// What a session has counted, and how full its rings are.
    pub(crate) fn usage(&self, uid: u32, name: &str) -> Answer<Usage> {
        Ok(self.find(uid, name)?.usage(Detail::Events))
    }

    /// The same of all sessions of a user; of all users where none is named.
    pub(crate) fn usages(&self, of: Option<u32>, detail: Detail) -> Vec<Usage> {
        let sessions = lock(&self.sessions);
        let own = sessions.iter().filter(|((uid, _), _)| of.is_none_or(|of| of == *uid));
        let entries: Vec<Arc<Entry>> = own.map(|(_, entry)| Arc::clone(entry)).collect();
        drop(sessions);
        entries.iter().map(|entry| entry.usage(detail)).collect()
    }
}

impl Entry {
    fn usage(&self, detail: Detail) -> Usage {
        let Known { time_ns, moment } = self.known();
        let model = lock(&self.model);
        let channel = |(domain, channel): (Domain, &Channel)| of_channel(&moment, (domain, channel), detail);
        Usage {
            session: model.name().to_owned(),
            uid: self.owner.uid,
            active: model.is_active(),
            time_ns,
            stored_bytes: moment.stored,
            channels: model.channels().map(channel).collect(),
        }
    }

    /// What is known now. If something is done with it, that is what was known before.
    pub(super) fn known(&self) -> Known {
        if let Ok(recording) = self.recording.try_lock() {
            let moment = recording.as_ref().and_then(|recording| recording.recorder.moment().ok());
            let mut known = lock(&self.usage);
            known.time_ns = TraceClock::Mono.now_ns();
            if let Some(moment) = moment {
                known.moment = moment;
            }
        }
        lock(&self.usage).clone()
    }
}

fn of_channel(moment: &Moment, (domain, channel): (Domain, &Channel), detail: Detail) -> ChannelUsage {
    let buffer = spec::buffer_name(domain, &channel.name);
    let (tally, rings) = (moment.tallies.get(&buffer), moment.rings.get(&buffer));
    let cpus = tally.into_iter().flat_map(|tally| &tally.cpus).map(|(cpu, counts)| CpuUsage {
        cpu: *cpu,
        rings: rings.and_then(|rings| rings.get(cpu)).copied(),
        counts: *counts,
    });
    ChannelUsage {
        domain,
        channel: channel.name.clone(),
        overwrites: channel.attributes.event_loss == Some(EventLoss::Overwrite),
        cpus: cpus.collect(),
        events: (detail == Detail::Events)
            .then(|| tally.map(crate::sessions::Tally::events).unwrap_or_default()),
    }
}
