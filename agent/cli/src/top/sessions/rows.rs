//! What the daemon tells of sessions, from one look to the next, as rows of tables.

use std::collections::HashMap;

use serde::Serialize;

use api::usage::{ChannelUsage, Counts, EventUsage, Lost, RingUsage};
use api::{Domain, Usage};
use stdx::terminal;

/// What is shown of a session, a channel, a CPU in one, or an event. What is `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// What it is of. Safe for a terminal.
    pub(super) name: String,
    /// Whether the session is started.
    pub(super) active: bool,
    /// Whether newer events are written over the oldest ones, in a channel at least.
    pub(super) overwrites: bool,
    /// The rings, if there are some.
    pub(super) rings: Option<RingUsage>,
    /// Records written.
    pub(super) events: u64,
    /// The same a second.
    pub(super) events_per_second: Option<f64>,
    /// Lost events, by cause.
    pub(super) lost: Lost,
    /// Lost events a second.
    pub(super) lost_per_second: Option<f64>,
    /// Bytes of overwritten pages; of an event nobody knows them.
    pub(super) overwritten_bytes: Option<u64>,
    /// Bytes that were stored.
    pub(super) stored_bytes: Option<u64>,
    /// The same a second.
    pub(super) stored_per_second: Option<f64>,
}

/// What was seen at a look.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Table {
    /// Whether it is the last one.
    pub(super) last: bool,
    /// Each session.
    pub(super) sessions: Vec<Row>,
    /// The channels of a session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) channels: Vec<Row>,
    /// Its rings, by channel and CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cpus: Vec<Row>,
    /// Its events, by channel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<Row>,
}

/// What a row is of: the session with its user, and a channel of it, a CPU or an event.
type Key = (u32, String, Option<(Domain, String)>, Option<u32>, Option<String>);

/// What was known of a row at a time in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Before {
    time_ns: u64,
    events: u64,
    lost: u64,
    stored: Option<u64>,
}

/// Makes rows of what the daemon tells, with rates since the look before.
#[derive(Debug, Default)]
pub(super) struct Rows {
    before: HashMap<Key, Before>,
    now: HashMap<Key, Before>,
}

impl Rows {
    /// The rows of sessions; of all of them, only sums.
    pub(super) fn look(&mut self, usages: &[Usage], is_sums: bool) -> Table {
        let mut table = Table::default();
        for usage in usages {
            self.add(&mut table, usage, is_sums);
        }
        self.before = std::mem::take(&mut self.now);
        table
    }

    fn add(&mut self, table: &mut Table, usage: &Usage, is_sums: bool) {
        let key = || (usage.uid, usage.session.clone());
        let of_session = |name: String| Row { name, active: usage.active, ..Row::default() };
        let rings = |channels: &[&ChannelUsage]| {
            let cpus = channels.iter().flat_map(|channel| &channel.cpus);
            sum_of_rings(cpus.filter_map(|cpu| cpu.rings.as_ref()))
        };
        let all: Vec<&ChannelUsage> = usage.channels.iter().collect();
        let name = if is_sums {
            format!("{} (user {})", terminal::name(&usage.session), usage.uid)
        } else {
            terminal::name(&usage.session)
        };
        let row = Row {
            overwrites: all.iter().any(|channel| channel.overwrites),
            rings: rings(&all),
            ..of_session(name)
        };
        let counts = Counts { stored_bytes: usage.stored_bytes, ..usage.counts() };
        let (uid, session) = key();
        table.sessions.push(self.counted(row, (uid, session, None, None, None), usage.time_ns, &counts));
        if is_sums {
            return;
        }
        for channel in &usage.channels {
            let name = match channel.domain {
                Domain::Kernel => terminal::name(&channel.channel),
                Domain::User => format!("{} (user space)", terminal::name(&channel.channel)),
            };
            let of_channel = Some((channel.domain, channel.channel.clone()));
            let of = |name: String| Row { overwrites: channel.overwrites, ..of_session(name) };
            let row = Row { rings: rings(&[channel]), ..of(name.clone()) };
            let (uid, session) = key();
            let of_row = (uid, session, of_channel.clone(), None, None);
            table.channels.push(self.counted(row, of_row, usage.time_ns, &channel.counts()));
            for cpu in &channel.cpus {
                let row = Row { rings: cpu.rings, ..of(format!("{name} CPU {}", cpu.cpu)) };
                let (uid, session) = key();
                let of_row = (uid, session, of_channel.clone(), Some(cpu.cpu), None);
                table.cpus.push(self.counted(row, of_row, usage.time_ns, &cpu.counts));
            }
            for EventUsage { name: event, recorded, lost } in channel.events.iter().flatten() {
                let row = of(format!("{} in {name}", terminal::name(event)));
                let counts = Counts { events: *recorded, lost: *lost, ..Counts::default() };
                let (uid, session) = key();
                let of_row = (uid, session, of_channel.clone(), None, Some(event.clone()));
                let row = self.counted(row, of_row, usage.time_ns, &counts);
                table.events.push(Row { overwritten_bytes: None, ..row });
            }
        }
    }

    /// A row with these counts, and their rates.
    fn counted(&mut self, row: Row, key: Key, time_ns: u64, counts: &Counts) -> Row {
        let lost = counts.lost.total();
        let now = Before { time_ns, events: counts.events, lost, stored: counts.stored_bytes };
        let before = self.before.get(&key).copied();
        // What is told again, as something long is done with the session, has no rate; nor have counts of
        // another session of the same name, which are smaller.
        let rate = |now: u64, of: fn(&Before) -> Option<u64>| {
            let before = before.as_ref()?;
            let seconds = time_ns.checked_sub(before.time_ns).filter(|time| *time != 0)? as f64 / 1e9;
            Some(now.checked_sub(of(before)?)? as f64 / seconds)
        };
        let row = Row {
            events: counts.events,
            events_per_second: rate(counts.events, |before| Some(before.events)),
            lost: counts.lost,
            lost_per_second: rate(lost, |before| Some(before.lost)),
            overwritten_bytes: Some(counts.overwritten_bytes),
            stored_bytes: counts.stored_bytes,
            stored_per_second: counts.stored_bytes.and_then(|bytes| rate(bytes, |before| before.stored)),
            ..row
        };
        self.now.insert(key, now);
        row
    }
}

fn sum_of_rings<'r>(all: impl Iterator<Item = &'r RingUsage>) -> Option<RingUsage> {
    all.copied().reduce(|mut sum, ring| {
        sum.join(&ring);
        sum
    })
}
