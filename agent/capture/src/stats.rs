//! The loss ledger: what was recorded, what was lost, where and why.

use std::collections::BTreeMap;
use std::{sync::Arc, time::Duration};

use agent_ebpf::{EventLedger, LossCause, slot_flags};

use super::{
    RecordedChannel,
    options::{Active, CaptureEvent, ChannelOptions},
    readers::Stored,
    spool::SpoolTotals,
    stream::index_of,
};
use attach::ring::CpuCounts;
use attach::{Misses, RecursionMisses};
use tracedat::ledger;
use tracedat::ledger::{
    Covered, Ledger, LedgerCpu, LedgerEvent, LedgerProgram, LedgerSilent, Losses, Missing, Pause, Recovered,
};

/// A finished capture's counts.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// From opening the gates to closing them, without pauses.
    pub duration: Duration,
    /// The time, by the recording's clock in nanoseconds, in which every firing of a recorded event is in the
    /// file or counted as lost, but for the pauses: from the moment when all gates were open, with everything
    /// attached, to the one when the first was closed. What fires before or after it on a CPU may be there.
    pub covered: Option<(u64, u64)>,
    /// Pauses, within which nothing was recorded or counted.
    pub pauses: Vec<Pause>,
    /// Events that were asked for by a pattern and that the kernel refused to attach: none of their firings
    /// is recorded or counted.
    pub not_attached: Vec<String>,
    /// The channels that the counts are of.
    pub channels: Vec<RecordedChannel>,
    /// By channel and CPU.
    pub cpus: Vec<CpuStats>,
    /// By channel and event.
    pub events: Vec<EventStats>,
    /// Events that fired while another tracing program ran on their CPU, or the same one, so that the kernel
    /// skipped ours; by program, over all CPUs.
    pub recursion_misses: Vec<ProgramStats>,
    /// Whether there may be more of them, which the kernel does not count.
    pub skips_uncounted: bool,
    /// Whether what threads leave out, the recorder's own and those that were excluded, includes events of
    /// interrupts that came while they had a CPU: where programs cannot read the kernel's preempt count.
    pub leaves_out_interrupts: bool,
    /// Thread names that could not be noted when they changed. `None` if that is not known.
    pub names_lost: Option<u64>,
    /// System calls of 32-bit programs that the fast lane's programs of single calls left out, whichever
    /// calls they are of. `None` without such programs.
    pub compat_calls: Option<u64>,
    /// Whether events of all system calls have marks in the numbers of 32-bit ones. `None` without such
    /// events, and on machines other than x86-64.
    pub marks_compat: Option<bool>,
    /// Control groups of the recording's scope that were removed meanwhile.
    pub vanished_cgroups: Vec<String>,
    /// Set for a recording whose file was not made at its end. Counts by event are then not known, nor what
    /// filters left out.
    pub recovered: Option<Recovered>,
}

/// What is not known of a CPU whose ring was not emptied. Its counts are those of the moment `counted`: there
/// are at least as many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenEnd {
    /// Time of the last event that is stored, by the recording's clock: what came after it is missing. `None`
    /// if none is stored.
    pub since: Option<u64>,
    /// When the counts were noted, by the recording's clock. `None` if they were not: then they are those
    /// found in the data.
    pub counted: Option<u64>,
    /// Whether what is counted and not stored is missing from that time on: not where data are damaged in the
    /// middle.
    pub is_comparable: bool,
}

/// A program's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStats {
    /// The channel that it writes to.
    pub channel: u32,
    /// The event that it is for, or the name of a program for many events.
    pub program: String,
    /// How often the kernel skipped it. `None` where the kernel does not say.
    pub misses: Option<u64>,
}

/// One CPU's counts in a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// The channel, by its number.
    pub channel: u32,
    /// CPU id.
    pub cpu: u32,
    /// Events written to the ring.
    pub events: u64,
    /// What is stored.
    pub stored: SpoolTotals,
    /// Events lost, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// Events lost for a cause that is not known: marks in the data of a recording that was killed have none.
    pub lost_unexplained: u64,
    /// Events that the first page marks as lost, and that the archive before has counted.
    pub marked_before: u64,
    /// Events in ring pages that overwrite mode reused.
    pub overwritten: u64,
    /// Events that filters left out.
    pub filtered: u64,
    /// Events of the recorder's own threads, which were left out.
    pub own_threads: u64,
    /// Whether a size cap removed events whose number is unknown.
    pub capped_unknown: bool,
    /// Set if the ring was not emptied.
    pub open_end: Option<OpenEnd>,
}

/// One event's counts in a channel, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// The channel, by its number.
    pub channel: u32,
    /// `system:name`.
    pub name: String,
    /// The kernel's id.
    pub id: u16,
    /// Records written to the rings.
    pub recorded: u64,
    /// Events that a filter of threads or its own left out: not a loss.
    pub filtered: u64,
    /// Events of the recorder's own threads, which were left out: not a loss.
    pub own_threads: u64,
    /// Events that sampling left out: not a loss.
    pub sampled_out: u64,
    /// Whether it was recorded of every thread, whatever the scope.
    pub every_thread: bool,
    /// Its own filter.
    pub filter: Option<String>,
    /// Events lost, by [`LossCause`].
    pub lost: [u64; LossCause::COUNT],
    /// The same by CPU, for the CPUs that lost any.
    pub lost_on: Vec<(u32, [u64; LossCause::COUNT])>,
    /// Records in which a text was longer than its room, and was cut.
    pub cut: u64,
    /// The lane that it took ([`compile::fast::Lane::name`]).
    pub lane: &'static str,
    /// Why not, though there is one.
    pub lane_note: Option<String>,
    /// Why its records lack the strings that its system call is given, though they were wanted.
    pub string_note: Option<String>,
    /// When it was recorded.
    pub active: Active,
}

impl EventStats {
    /// Events lost for any cause.
    pub fn lost_total(&self) -> u64 {
        total(self.lost)
    }

    /// Events that were not wanted.
    pub fn left_out(&self) -> u64 {
        total([self.filtered, self.own_threads, self.sampled_out])
    }

    fn row(&self, channel: &str) -> LedgerEvent {
        LedgerEvent {
            channel: channel.to_owned(),
            event: self.name.clone(),
            id: self.id,
            lane: self.lane.to_owned(),
            recorded: self.recorded,
            cut: self.cut,
            every_thread: self.every_thread,
            filter: self.filter.clone(),
            filtered: self.filtered,
            own_threads: self.own_threads,
            sampled_out: self.sampled_out,
            lost: losses(&self.lost),
            lost_on: self.lost_on.iter().map(|(cpu, lost)| (*cpu, lost.to_vec())).collect(),
            since_ns: self.active.since,
            until_ns: self.active.until,
        }
    }
}

/// A sum that a hostile spool cannot make overflow.
fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// The name of a loss cause in tables and files.
pub fn cause_name(cause: LossCause) -> &'static str {
    match cause {
        LossCause::RingFull => "ring_full",
        LossCause::Oversize => "oversize",
        LossCause::ReadFault => "read_fault",
        LossCause::Nested => "nested",
        LossCause::RateLimit => "rate_limit",
    }
}

impl CpuStats {
    /// Events lost for any cause.
    pub fn lost_total(&self) -> u64 {
        total(self.lost).saturating_add(self.lost_unexplained)
    }

    /// Events that were in the ring and could not be stored, because the disk was full. Of a CPU whose end is
    /// open, how many there are at least.
    pub fn unstored(&self) -> u64 {
        let Self { events, stored, overwritten, .. } = self;
        if self.capped_unknown {
            // Some or all of them were removed on demand.
            return 0;
        }
        events.saturating_sub(total([stored.events, stored.capped_events, *overwritten]))
    }

    /// What is missing at the end, if the ring was not emptied.
    pub fn missing(&self) -> Option<Missing> {
        let OpenEnd { since, counted, is_comparable } = self.open_end?;
        let at_least = counted.filter(|_| is_comparable && !self.capped_unknown);
        Some(Missing { at_least: at_least.map(|_| self.unstored()), since, counted })
    }

    /// Content of the CPUSTAT option of a CPU: the lines of tracefs' `per_cpu/cpuN/stats`, with our counts in
    /// their places.
    ///
    /// `entries` are events left in the kernel's buffer, which are none; `overrun` are events that overwrite
    /// mode or a size cap gave up; `dropped events` those lost.
    pub fn cpustat(&self) -> String {
        let Self { cpu, stored, overwritten, .. } = self;
        let overrun = overwritten.saturating_add(stored.capped_events);
        format!(
            "CPU: {cpu}\nentries: 0\noverrun: {overrun}\ncommit overrun: 0\nbytes: 0\n\
             dropped events: {}\nread events: {}\n",
            self.lost_total().saturating_add(self.unstored()),
            stored.events,
        )
    }
}

impl Stats {
    /// Events stored.
    pub fn stored_events(&self) -> u64 {
        total(self.cpus.iter().map(|cpu| cpu.stored.events))
    }

    /// Events that were in the rings and could not be stored.
    pub fn unstored(&self) -> u64 {
        total(self.cpus.iter().map(CpuStats::unstored))
    }

    /// Events lost for any cause that is counted exactly.
    pub fn lost_total(&self) -> u64 {
        total(self.cpus.iter().map(CpuStats::lost_total))
    }

    /// Everything that fired and is not in the file, as far as this kernel counts it: what was lost, what was
    /// in the rings and could not be stored, and what the recursion guard kept from the programs. What was
    /// given up on demand is not among it: by a flight recorder, a size cap or a rate limit.
    pub fn missing_total(&self) -> u64 {
        let lost = self.lost_total().saturating_sub(self.rate_limited());
        total([lost, self.unstored(), self.recursion_misses().unwrap_or(0)])
    }

    /// Events that the kernel's recursion guard kept from the programs. `None` where the kernel does not
    /// count them for all programs (before 6.7), and for a recovered recording.
    pub fn recursion_misses(&self) -> Option<u64> {
        if self.recovered.is_some() {
            return None;
        }
        self.recursion_misses.iter().map(|program| program.misses).sum()
    }

    /// Events beyond the limits of their rates, which are among the lost ones.
    pub fn rate_limited(&self) -> u64 {
        total(self.cpus.iter().map(|cpu| cpu.lost[LossCause::RateLimit as usize]))
    }

    /// The ledger, for the file: the counts, and how the clock stood to wall time (nanoseconds to add, and
    /// how wrong they can be).
    pub fn ledger(&self, clock: &str, realtime_offset: i64, realtime_uncertainty: u64) -> Ledger {
        // Counts by event are kept in the recorder, and gone with it.
        let is_complete = self.recovered.is_none();
        let (fired, silent): (Vec<_>, Vec<_>) = self.events.iter().partition(|event| {
            let came_or_went = event.active != Active::default();
            came_or_went || event.recorded + event.lost_total() + event.left_out() != 0
        });
        let row = |event: &EventStats| event.row(self.name_of(event.channel));
        let program = |of: &ProgramStats| LedgerProgram {
            channel: self.name_of(of.channel).to_owned(),
            program: of.program.clone(),
            recursion_misses: of.misses,
        };
        let nanos = || u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        Ledger {
            version: ledger::VERSION,
            imported: None,
            part: false,
            clock: Some(clock.to_owned()),
            realtime_offset_ns: Some(realtime_offset),
            realtime_uncertainty_ns: Some(realtime_uncertainty),
            duration_ns: is_complete.then(nanos),
            covered: self.covered.map(|(from_ns, to_ns)| Covered { from_ns, to_ns }),
            pauses: self.pauses.clone(),
            not_attached: self.not_attached.clone(),
            recursion_misses: self.recursion_misses(),
            skips_uncounted: self.skips_uncounted,
            leaves_out_interrupts: self.leaves_out_interrupts,
            lacks_contexts: false,
            vanished_cgroups: self.vanished_cgroups.clone(),
            recovered: self.recovered,
            names_lost: self.names_lost,
            compat_calls: self.compat_calls,
            marks_compat: self.marks_compat,
            cpus: self.cpus.iter().map(|cpu| self.row(cpu)).collect(),
            only: Vec::new(),
            choices: Vec::new(),
            events: is_complete.then(|| fired.into_iter().map(row).collect()),
            silent: is_complete.then(|| self.silent(&silent)),
            programs: is_complete.then(|| self.recursion_misses.iter().map(program).collect()),
        }
    }

    /// Events that did not fire, by buffer.
    fn silent(&self, events: &[&EventStats]) -> Vec<LedgerSilent> {
        let mut of_channels: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for event in events.iter().filter(|event| !self.not_attached.contains(&event.name)) {
            of_channels.entry(event.channel).or_default().push(event.name.clone());
        }
        let of_channel =
            |(channel, events)| LedgerSilent { channel: self.name_of(channel).to_owned(), events };
        of_channels.into_iter().map(of_channel).collect()
    }

    /// The name of a channel; empty for that of the buffer that every file has.
    pub fn name_of(&self, channel: u32) -> &str {
        let found = self.channels.iter().find(|of| of.number == channel);
        found.map_or("", |of| &of.name)
    }

    /// A CPU's counts. Where `missing` is known, the others are those of the moment `counted`.
    fn row(&self, cpu: &CpuStats) -> LedgerCpu {
        let CpuStats { stored, overwritten, filtered, own_threads, open_end, .. } = *cpu;
        let is_exact = open_end.is_none();
        let is_counted = open_end.is_none_or(|end| end.counted.is_some());
        let mut lost = if is_counted { losses(&cpu.lost) } else { Losses::default() };
        if cpu.lost_unexplained != 0 || !is_counted {
            lost.0.push(("unexplained".to_owned(), cpu.lost_unexplained));
        }
        LedgerCpu {
            channel: self.name_of(cpu.channel).to_owned(),
            cpu: cpu.cpu,
            recorded: is_exact.then_some(cpu.events),
            stored: Some(stored.events),
            pages: Some(stored.pages),
            overwritten: is_counted.then_some(overwritten),
            capped: Some((!cpu.capped_unknown).then_some(stored.capped_events)),
            unstored: (is_exact && !cpu.capped_unknown).then(|| cpu.unstored()),
            filtered: self.recovered.is_none().then_some(filtered),
            own_threads: self.recovered.is_none().then_some(own_threads),
            lost,
            marked_before: cpu.marked_before,
            missing: cpu.missing(),
        }
    }
}

/// Counts by cause.
fn losses(lost: &[u64; LossCause::COUNT]) -> Losses {
    let of = |cause: LossCause| (cause_name(cause).to_owned(), lost[cause as usize]);
    Losses(LossCause::ALL.into_iter().map(of).collect())
}

/// What a CPU has stored in an archive, and what it has counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) stored: Stored,
    /// Since the start of the recording.
    pub(super) end: Arc<CpuCounts>,
    /// Since the archive began.
    pub(super) since_begin: CpuCounts,
}

impl Counted {
    pub(super) fn new(stored: Stored, end: Arc<CpuCounts>) -> Self {
        let since_begin = end.since(&stored.begin);
        Self { stored, end, since_begin }
    }
}

/// What the events of a channel have counted, over all CPUs, since the archive of each CPU began.
pub(super) fn event_stats(cpus: &[Counted], number: u32, channel: &ChannelOptions) -> Vec<EventStats> {
    let cpus: Vec<&Counted> = cpus.iter().filter(|cpu| cpu.stored.stream.channel == number).collect();
    let mut stats = Vec::with_capacity(channel.events.len());
    // What is over is in the ledger of an archive before, and another event will have its slot.
    let current = |(_, event): &(usize, &CaptureEvent)| !event.active.is_over;
    for (index, event) in channel.events.iter().enumerate().filter(current) {
        let mut sum = EventLedger::default();
        let mut sampled_out = 0;
        let mut lost_on = Vec::new();
        for Counted { stored, since_begin, .. } in &cpus {
            let row = since_begin.rows.get(index).copied().unwrap_or_default();
            sum.recorded += row.recorded;
            sum.cut += row.cut;
            sum.filtered += row.filtered;
            sum.own += row.own;
            if row.lost.iter().any(|&lost| lost != 0) {
                lost_on.push((stored.stream.cpu, row.lost));
            }
            for (total, lost) in sum.lost.iter_mut().zip(row.lost) {
                *total += lost;
            }
        }
        // One of each group is kept, the first; groups do not end with the archives.
        let group = u64::from(event.slot.sample.max(1));
        let left = |counts: &CpuCounts| {
            let arrived = counts.rows.get(index).map_or(0, |row| row.arrived);
            arrived - arrived.div_ceil(group)
        };
        for Counted { stored, end, .. } in &cpus {
            sampled_out += left(end).saturating_sub(left(&stored.begin));
        }
        stats.push(EventStats {
            channel: number,
            name: event.name.clone(),
            id: event.slot.id,
            recorded: sum.recorded,
            filtered: sum.filtered,
            own_threads: sum.own,
            sampled_out,
            every_thread: event.slot.flags & slot_flags::EVERY_THREAD != 0,
            filter: event.filter.as_ref().map(|filter| filter.text.clone()),
            lost: sum.lost,
            lost_on,
            cut: sum.cut,
            lane: event.lane.name(),
            lane_note: event.lane_note.clone(),
            string_note: event.string_note.clone(),
            active: event.active,
        });
    }
    stats
}

/// What a CPU has counted since its archive began.
pub(super) fn cpu_stats(Counted { stored, since_begin: counts, .. }: &Counted) -> CpuStats {
    CpuStats {
        channel: stored.stream.channel,
        cpu: stored.stream.cpu,
        events: counts.events,
        stored: stored.totals,
        lost: counts.lost,
        marked_before: stored.begin.unmarked,
        overwritten: counts.overwritten,
        filtered: counts.rows.iter().map(|row| row.filtered).sum(),
        own_threads: counts.rows.iter().map(|row| row.own).sum(),
        ..CpuStats::default()
    }
}

/// How often the kernel has skipped the programs of these channels; `misses` are those of all channels.
pub(super) fn program_stats(channels: &[RecordedChannel], misses: &[Misses]) -> Vec<ProgramStats> {
    // Those of a channel with several sets of rings are told of its first.
    let is_first = |channel: &&RecordedChannel| {
        let first = channels.iter().find(|other| index_of(other.number) == index_of(channel.number));
        first.is_some_and(|first| first.number == channel.number)
    };
    let of_channel = |channel: &RecordedChannel| {
        let number = channel.number;
        let programs = misses.get(index_of(number)).map_or(&[][..], |misses| &misses.programs);
        programs.iter().map(move |RecursionMisses { program, misses }| ProgramStats {
            channel: number,
            program: program.clone(),
            misses: *misses,
        })
    };
    channels.iter().filter(is_first).flat_map(of_channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracedat::ledger::End;

    fn json(stats: &Stats) -> String {
        serde_json::to_string(&stats.ledger("mono", 5, 1)).unwrap()
    }

    #[test]
    fn cpustat_has_the_kernels_lines() {
        let stats = CpuStats {
            cpu: 3,
            events: 20,
            stored: SpoolTotals { events: 10, pages: 1, bytes: 4096, capped_events: 2 },
            lost: [5, 0, 1, 0, 0],
            overwritten: 7,
            ..CpuStats::default()
        };
        assert_eq!(
            stats.cpustat(),
            "CPU: 3\nentries: 0\noverrun: 9\ncommit overrun: 0\nbytes: 0\ndropped events: 7\nread events: 10\n"
        );
    }

    #[test]
    fn json_names_every_cause_and_which_events_fired() {
        let mut losses = [0; LossCause::COUNT];
        losses[LossCause::Nested as usize] = 1;
        let event = |name: &str, recorded| EventStats {
            name: name.into(),
            id: 7,
            recorded,
            lost: losses,
            lost_on: vec![(3, losses)],
            lane: "generic",
            ..EventStats::default()
        };
        let stats = Stats {
            channels: [(0, ""), (1, "x")]
                .map(|(number, name)| RecordedChannel { number, name: name.into(), ..Default::default() })
                .into(),
            cpus: vec![CpuStats::default()],
            covered: Some((5, 9)),
            not_attached: vec!["c:d".into(), "c:e".into()],
            events: vec![
                event("a:b", 2),
                EventStats { name: "e:f".into(), ..EventStats::default() },
                EventStats { name: "c:d".into(), ..EventStats::default() },
            ],
            recursion_misses: vec![
                ProgramStats { channel: 0, program: "a:b".into(), misses: Some(2) },
                ProgramStats { channel: 1, program: "generic_event".into(), misses: None },
            ],
            ..Stats::default()
        };
        let text = json(&stats);
        assert!(text.contains(
            "\"events\":[{\"event\":\"a:b\",\"id\":7,\"lane\":\"generic\",\"recorded\":2,\
             \"lost\":{\"ring_full\":0,\"oversize\":0,\"read_fault\":0,\"nested\":1,\"rate_limit\":0},\"lost_on\":{\"3\":[0,0,0,1,0]}}],\"silent\":[{\"events\":[\"e:f\"]}]"
        ));
        assert!(text.contains("\"covered\":{\"from_ns\":5,\"to_ns\":9},\"not_attached\":[\"c:d\",\"c:e\"]"));
        // One that is not known makes the sum unknown.
        assert!(text.contains(",\"recursion_misses\":null,\"names_lost\""), "{text}");
        let json_of_more = json(&Stats { skips_uncounted: true, ..Stats::default() });
        assert!(
            json_of_more.contains(",\"recursion_misses\":0,\"skips_uncounted\":true,\"names_lost\":null"),
            "{json_of_more}"
        );
        assert!(
            text.ends_with(
                "\"programs\":[{\"program\":\"a:b\",\"recursion_misses\":2},\
                 {\"channel\":\"x\",\"program\":\"generic_event\",\"recursion_misses\":null}]}"
            ),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_known_is_null() {
        let stored = SpoolTotals { events: 10, pages: 2, bytes: 99, capped_events: 0 };
        let end = OpenEnd { since: Some(70), counted: Some(80), is_comparable: true };
        let counted = CpuStats { cpu: 1, events: 14, stored, open_end: Some(end), ..CpuStats::default() };
        let unknown = CpuStats {
            cpu: 2,
            events: 10,
            stored,
            lost_unexplained: 3,
            capped_unknown: true,
            open_end: Some(OpenEnd::default()),
            ..CpuStats::default()
        };
        let recovered = Recovered { unreadable_bytes: 5, ended: End::Killed, overwrite: Some(false) };
        let stats = Stats { cpus: vec![counted, unknown], recovered: Some(recovered), ..Stats::default() };
        let text = json(&stats);
        for part in [
            "\"duration_ns\":null,\"recursion_misses\":null,\"recovered\":{\"ended\":\"killed\",\"overwrite\":false,\
             \"unreadable_bytes\":5},\"names_lost\":null,",
            "{\"cpu\":1,\"recorded\":null,\"stored\":10,\"pages\":2,\"overwritten\":0,\"capped\":0,\"unstored\":null,\
             \"filtered\":null,\"own_threads\":null,\"lost\":{\"ring_full\":0,\"oversize\":0,\"read_fault\":0,\"nested\":0,\"rate_limit\":0},\
             \"missing\":{\"at_least\":4,\"since_ns\":70,\"counted_ns\":80}}",
            "{\"cpu\":2,\"recorded\":null,\"stored\":10,\"pages\":2,\"overwritten\":null,\"capped\":null,\"unstored\":null,\
             \"filtered\":null,\"own_threads\":null,\"lost\":{\"unexplained\":3},\
             \"missing\":{\"at_least\":null,\"since_ns\":null,\"counted_ns\":null}}",
            "],\"events\":null,\"silent\":null,\"programs\":null}",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
