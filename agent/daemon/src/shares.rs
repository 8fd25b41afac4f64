//! What the sessions and triggers of a user may take of the daemon, so that nobody takes what others need.

use std::{
    io::{self, Write},
    sync::Arc,
};

use super::{
    amounts::{Amount, Amounts},
    sessions::{Model, ring_sets},
};
use api::{Code, ControlError};

/// The most text of a user's sessions: names, patterns, filters, paths, as JSON.
const TEXT_MAX: u64 = 16 << 20;

/// What sessions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Bytes of the rings of all CPUs, and of maps.
    rings: u64,
    /// Bytes of the description.
    text: u64,
}

/// What the sessions of each user take, and how much that may be.
#[derive(Debug)]
pub(super) struct Shares {
    /// The most bytes of a user's rings.
    rings_max: u64,
    cpus: u64,
    used: Amounts<Share>,
}

/// Memory of a user that belongs to no session, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    shares: Arc<Shares>,
    uid: u32,
    share: Share,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shares.give_back(self.uid, self.share);
    }
}

/// What a session takes from now on, if what it is for can be done; else it is as before.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    shares: &'a Shares,
    uid: u32,
    /// What it took, which is what it takes again when this is dropped.
    before: Share,
    now: Share,
}

impl Shares {
    /// Shares of a machine with so many CPUs.
    pub(super) fn new(rings_max: u64, cpus: u64) -> Self {
        Self { rings_max, cpus, used: Amounts::default() }
    }

    /// Takes what a session needs that took something else before. Root may have all that there is.
    ///
    /// # Errors
    /// The user has too much already.
    pub(super) fn take(&self, uid: u32, before: Share, model: &Model) -> Result<Taken<'_>, ControlError> {
        let now = self.of(model);
        self.used.try_change(uid, |of_user| -> Result<Share, ControlError> {
            let after = of_user.less(before).more(now);
            if uid != 0 {
                self.check(uid, (of_user, after))?;
            }
            Ok(after)
        })?;
        Ok(Taken { shares: self, uid, before, now })
    }

    /// What is less than before is never too much.
    fn check(&self, uid: u32, (before, after): (Share, Share)) -> Result<(), ControlError> {
        let refused = |why: String| Err(ControlError::new(Code::NoMemory, why));
        if after.rings > before.rings && after.rings > self.rings_max {
            return refused(format!(
                "the rings and maps of user {uid}'s sessions and of the watch of its triggers would take \
                 {} KB of memory on {} CPUs, and may take {} KB: destroy a session, remove triggers about \
                 events, or choose smaller sub-buffers or fewer keys; root starts the daemon with \
                 --user-memory to allow more",
                after.rings >> 10,
                self.cpus,
                self.rings_max >> 10
            ));
        }
        if after.text > before.text && after.text > TEXT_MAX {
            return refused(format!(
                "the descriptions of user {uid}'s sessions take more than {} MB: destroy a session",
                TEXT_MAX >> 20
            ));
        }
        Ok(())
    }

    /// Takes memory that belongs to no session.
    ///
    /// # Errors
    /// The user has too much already.
    pub(super) fn take_memory(self: &Arc<Self>, uid: u32, bytes: u64) -> Result<Memory, ControlError> {
        let share = Share { rings: bytes, text: 0 };
        self.used.try_change(uid, |before| -> Result<Share, ControlError> {
            let after = before.more(share);
            if uid != 0 {
                self.check(uid, (before, after))?;
            }
            Ok(after)
        })?;
        Ok(Memory { shares: Arc::clone(self), uid, share })
    }

    /// Takes memory that another daemon has let the user have.
    pub(super) fn keep_memory(self: &Arc<Self>, uid: u32, bytes: u64) -> Memory {
        let share = Share { rings: bytes, text: 0 };
        self.used.change(uid, |used| used.more(share));
        Memory { shares: Arc::clone(self), uid, share }
    }

    /// What a session takes that another daemon has let have it.
    pub(super) fn keep(&self, uid: u32, model: &Model) -> Share {
        let share = self.of(model);
        self.used.change(uid, |used| used.more(share));
        share
    }

    /// Gives back what a session took.
    pub(super) fn give_back(&self, uid: u32, share: Share) {
        self.used.change(uid, |used| used.less(share));
    }

    /// What a session takes.
    fn of(&self, model: &Model) -> Share {
        let rings = model.channels().map(|(_, channel)| {
            let power = |size: Option<u64>| size.unwrap_or(1).checked_next_power_of_two().unwrap_or(u64::MAX);
            let attributes = &channel.attributes;
            power(attributes.subbuf_size)
                .saturating_mul(power(attributes.num_subbuf))
                .saturating_mul(self.cpus)
                .saturating_mul(ring_sets(attributes.buffers, self.cpus))
        });
        let mut text = Counter(0);
        // Nothing is written anywhere, so that nothing can fail.
        let _ = serde_json::to_writer(&mut text, model.session());
        Share { rings: rings.fold(model.bytes_of_maps(), u64::saturating_add), text: text.0 }
    }
}

impl Amount for Share {
    fn more(self, by: Self) -> Self {
        Self { rings: self.rings.more(by.rings), text: self.text.more(by.text) }
    }

    fn less(self, by: Self) -> Self {
        Self { rings: self.rings.less(by.rings), text: self.text.less(by.text) }
    }
}

impl Taken<'_> {
    /// It is done: gives what the session takes.
    pub(super) fn keep(mut self) -> Share {
        self.before = self.now;
        self.now
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Self { shares, uid, before, now } = *self;
        if before != now {
            shares.used.change(uid, |used| used.less(now).more(before));
        }
    }
}

/// Counts what is written.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::requests::NewChannel;
    use api::{ChannelAttributes, Domain, EventRule, Format, Instrumentation, NewSession, SessionMode};

    fn model(channels: usize) -> Model {
        let mode = SessionMode::Local { output: Some("/out".into()) };
        let new = NewSession {
            name: Some("one".into()),
            mode,
            snapshot_output: None,
            format: Format::default(),
            state_by_rule: false,
        };
        let mut model = Model::create(new, 1000, 0).unwrap();
        for number in 0..channels {
            let mut new = NewChannel {
                name: format!("c{number}"),
                attributes: ChannelAttributes::default(),
                rules: Vec::new(),
            };
            new.attributes.subbuf_size = Some(3 << 20);
            new.attributes.num_subbuf = Some(2);
            model.add_channel(Domain::Kernel, &new).unwrap();
        }
        model
    }

    #[test]
    fn what_is_not_kept_or_given_back_is_free_again() {
        // A channel takes twice 4 MB of each of two CPUs.
        let shares = Arc::new(Shares::new(32 << 20, 2));
        let none = Share::default();
        drop(shares.take(1000, none, &model(2)).unwrap());
        assert!(shares.used.is_empty());
        let first = shares.take(1000, none, &model(1)).unwrap().keep();
        let second = shares.take(1000, none, &model(1)).unwrap().keep();
        let refused = shares.take(1000, none, &model(1)).unwrap_err();
        let says = "would take 49152 KB of memory on 2 CPUs, and may take 32768 KB";
        assert!(refused.code == Code::NoMemory && refused.message.contains(says), "{refused}");
        assert!(shares.take(1000, second, &model(2)).is_err());
        // What a watch of triggers takes is of the same share.
        let watch = shares.take_memory(1000, 1 << 20).unwrap_err();
        assert_eq!(watch.code, Code::NoMemory);
        assert!(watch.message.contains("33792 KB") && watch.message.contains("32768 KB"), "{watch}");
        drop((shares.take_memory(1001, 1 << 20).unwrap(), shares.take_memory(0, 1 << 30).unwrap()));
        // Others have their own, and root what there is.
        drop((shares.take(1001, none, &model(2)).unwrap(), shares.take(0, none, &model(9)).unwrap()));
        shares.give_back(1000, first);
        let second = shares.take(1000, second, &model(2)).unwrap().keep();
        shares.give_back(1000, second);
        assert!(shares.used.is_empty());
    }

    #[test]
    fn the_text_of_descriptions_is_limited() {
        let shares = Shares::new(u64::MAX, 2);
        let mut model = model(1);
        let mut add = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let rule = EventRule {
                    name: "sched_switch".to_owned(),
                    instrumentation: Instrumentation::Tracepoint,
                    enabled: true,
                    filter: Some(format!("a == \"{number}{}\"", "x".repeat(60_000))),
                    exclusions: Vec::new(),
                    log_level: None,
                };
                model.add_rules(Domain::Kernel, "c0", &[rule]).unwrap();
            }
            model.clone()
        };
        let share = shares.take(1000, Share::default(), &add(0..270)).unwrap().keep();
        let more = add(270..280);
        let refused = shares.take(1000, share, &more).unwrap_err();
        assert!(refused.message.contains("more than 16 MB"), "{refused}");
        assert!(shares.take(0, Share::default(), &more).is_ok());
    }
}
