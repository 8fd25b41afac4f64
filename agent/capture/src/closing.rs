//! Closing an archive: what was stored in it, and what was counted meanwhile.

use std::time::Instant;

use super::{
    LeftOut, Manifest, Recorded, SetOwner, SpoolError,
    archive::{Archive, Opened},
    counts::Stage,
    ctf::CtfOutput,
    options::CaptureOptions,
    readers::Border,
    session::Part,
    sets,
    stats::{Counted, EventStats, Stats, cpu_stats, event_stats, program_stats},
    stream::index_of,
};
use attach::Misses;
use compile::scope::Scope;
use ftrace_event::Cmdlines;

/// What all archives of a recording have in common.
pub(super) struct Common<'a> {
    pub(super) options: &'a CaptureOptions,
    pub(super) left_out: &'a [LeftOut],
    /// Names of events that were refused later.
    pub(super) refused: &'a [String],
    pub(super) destination: &'a Opened,
    pub(super) trace: Option<&'a CtfOutput>,
    pub(super) skips_uncounted: bool,
    /// Whose a set of rings is, by its number among channels.
    pub(super) owner: &'a dyn Fn(u32) -> Option<SetOwner>,
}

impl Common<'_> {
    /// How many calls of 32-bit programs the programs of events of single calls left out; `None` if there
    /// were no such programs, or the archive has not all channels that have some.
    fn compat_calls(&self, cpus: &[Counted]) -> Option<u64> {
        let mut channels = self.options.without_compat(self.left_out).map(|(channel, ..)| channel).peekable();
        channels.peek()?;
        let has = |channel| cpus.iter().any(|cpu| index_of(cpu.stored.stream.channel) == channel);
        channels.all(has).then(|| cpus.iter().map(|cpu| cpu.since_begin.compat_calls).sum())
    }

    /// Gives what was stored in an archive.
    pub(super) fn close(&self, archive: Archive, closing: Closing) -> Recorded {
        let Archive { writers, spool, counts, mut manifest, output, began, covered_from, pauses, .. } =
            archive;
        drop(writers);
        let Closing { ended, covered_to, ended_ns, mut cpus, cmdlines, misses, failure, part } = closing;
        let compat_calls = self.compat_calls(&cpus);
        // Whoever follows or recovers it knows the sets of rings by their numbers.
        let numbered = manifest.channels.clone();
        sets::resolve(&mut manifest.channels, self.owner);
        sets::leave_out_others(&mut manifest.channels, |number| {
            let mut its = cpus.iter().filter(|cpu| cpu.stored.stream.channel == number).map(cpu_stats);
            its.any(|of| {
                of.events != 0
                    || of.filtered != 0
                    || of.own_threads != 0
                    || of.lost.iter().any(|lost| *lost != 0)
            })
        });
        // Sets of rings that nobody has taken have counted nothing.
        cpus.retain(|of| manifest.channel(of.stored.stream.channel).is_some());
        let channels = manifest
            .channels
            .iter()
            .filter_map(|of| Some((of.number, self.options.channels.get(index_of(of.number))?)));
        let channels: Vec<_> = channels.collect();
        let events: Vec<EventStats> =
            channels.iter().flat_map(|&(number, channel)| event_stats(&cpus, number, channel)).collect();
        let with_symbols = self.options.symbols.wanted(|| {
            let mut recorded = channels.iter().flat_map(|(_, channel)| channel.current()).zip(&events);
            recorded.any(|(event, stats)| event.prints_symbols && stats.recorded != 0)
        });
        let names_lost: u64 = cpus.iter().map(|cpu| cpu.since_begin.names_lost).sum();
        let stats = Stats {
            duration: began
                .map(|began| ended.saturating_duration_since(began).saturating_sub(pauses.duration(ended)))
                .unwrap_or_default(),
            covered: covered_from.zip(covered_to),
            pauses: pauses.spans().to_vec(),
            not_attached: self.left_out.iter().map(|of| &of.event).chain(self.refused).cloned().collect(),
            channels: manifest.channels.clone(),
            cpus: cpus.iter().map(cpu_stats).collect(),
            events,
            recursion_misses: program_stats(&manifest.channels, &misses),
            skips_uncounted: self.skips_uncounted,
            leaves_out_interrupts: self.options.leaves_out_interrupts(),
            names_lost: Some(names_lost.saturating_add(misses.iter().map(|of| of.names).sum())),
            compat_calls,
            marks_compat: self.options.marks_compat(),
            vanished_cgroups: self.options.scope.as_ref().map(Scope::vanished).unwrap_or_default(),
            recovered: None,
        };
        counts.set_stage(Stage::Counted);
        let mut output = output;
        if let (Some(name), Opened::Directory(dir)) = (&mut manifest.archive, self.destination) {
            name.end_ns = Some(ended_ns);
            // Else it keeps the name that it was recorded under.
            if let Ok(named) = name.output_in(dir) {
                output = named;
            }
            // Who recovers it knows the name, too. If this cannot be written, the end is that of the data.
            let _ = Manifest { channels: numbered, ..manifest.clone() }.store(&spool);
        }
        Recorded {
            spool,
            output,
            manifest,
            cmdlines,
            with_symbols,
            stats,
            failure,
            part,
            trace: self.trace.cloned(),
        }
    }
}

pub(super) fn counted_at(Border { stored, end }: Border) -> Counted {
    Counted::new(stored, end)
}

/// What is known of an archive when it is closed.
pub(super) struct Closing {
    pub(super) ended: Instant,
    /// Up to when everything that fires is in it: behind the beginning of a pause that goes on nothing is.
    pub(super) covered_to: Option<u64>,
    /// By the wall clock, in nanoseconds since 1970.
    pub(super) ended_ns: u64,
    pub(super) cpus: Vec<Counted>,
    pub(super) cmdlines: Cmdlines,
    /// By channel. Their names are those that no stream has counted.
    pub(super) misses: Vec<Misses>,
    pub(super) failure: Option<SpoolError>,
    pub(super) part: Part,
}
