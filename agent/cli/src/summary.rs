//! The table at the end of a recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use agent_ebpf::LossCause;

use super::units::{bytes, count};
use capture::{CpuStats, EventStats, Finished, Recovered, Stats, cause_name};
use tracedat::ledger::in_buffer;

/// More CPUs than this are shown only where something was lost.
const ALL_CPUS: usize = 16;

/// Most events of a kind that are named.
const NAMED: usize = 3;

/// The summary of a finished file. `filtered` says whether the user left anything out; the agent leaves out
/// itself.
pub(super) fn text(finished: &Finished, filtered: bool) -> String {
    let Finished { path, file_bytes, stats, notes } = finished;
    let mut text = String::new();
    let pages: u64 = stats.cpus.iter().map(|cpu| cpu.stored.pages).sum();
    let span = match stats.recovered {
        None => seconds(stats),
        Some(_) => "recovered".to_owned(),
    };
    let _ = writeln!(
        text,
        "{}: {} events {span}, {} ({} of trace pages)",
        path.display(),
        count(stats.stored_events()),
        bytes(*file_bytes),
        bytes(pages * agent_ebpf::PAGE_SIZE as u64),
    );
    table(&mut text, stats, Sizes::Stored);
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    if let Some(recovered) = stats.recovered {
        how_it_ended(&mut text, stats, recovered);
        return text;
    }
    remarks(&mut text, stats, filtered);
    text
}

/// The summary of events that were printed, and not kept. Of the table's columns, sizes say nothing, and what
/// was given up to have room was recorded as the others.
pub(super) fn of_stream(stats: &Stats, printed: u64, filtered: bool) -> String {
    let mut stats = stats.clone();
    for cpu in &mut stats.cpus {
        cpu.stored.events += std::mem::take(&mut cpu.stored.capped_events);
    }
    let recorded = stats.stored_events();
    let mut text = format!("{} events {}", count(recorded), seconds(&stats));
    text += &match recorded.saturating_sub(printed) {
        0 => ", all printed\n".to_owned(),
        left => format!(", {} printed, {} NOT PRINTED\n", count(printed), count(left)),
    };
    table(&mut text, &stats, Sizes::None);
    remarks(&mut text, &stats, filtered);
    text
}

fn seconds(stats: &Stats) -> String {
    format!("in {:.3} s", stats.duration.as_secs_f64())
}

/// What is to be said of a recording's counts beside the table.
fn remarks(text: &mut String, stats: &Stats, filtered: bool) {
    unstored(text, stats);
    match stats.recursion_misses() {
        Some(0) => {}
        Some(misses) => {
            let _ = writeln!(
                text,
                "{} events were skipped by the kernel because the same or another tracing program was running on the CPU (at \
                 returns of the kernel's functions, also because too many calls were open)",
                count(misses)
            );
        }
        None => text.push_str(
            "events skipped by the kernel's recursion guard: unknown (counted from Linux 6.7 on)\n",
        ),
    }
    if stats.skips_uncounted {
        text.push_str(
            "events that this kernel fires at the end of interrupts may be missing: in the generic lane it skips some without counting them\n",
        );
    }
    if let Some(names @ 1..) = stats.names_lost {
        let _ = writeln!(text, "{} thread names may be missing", count(names));
    }
    if let Some(calls @ 1..) = stats.compat_calls {
        let _ = writeln!(
            text,
            "syscalls:* left out {} system calls of 32-bit programs, which only raw_syscalls has",
            count(calls)
        );
    }
    left_out(text, stats, filtered);
    for group in &stats.vanished_cgroups {
        let _ = writeln!(
            text,
            "the control group {group} was removed during the recording; a new one of the same name is not recorded"
        );
    }
    most_lost(text, stats);
    let cut: u64 = stats.events.iter().map(|event| event.cut).sum();
    if cut != 0 {
        let of =
            named(stats.events.iter().filter(|event| event.cut != 0).map(|event| event_of(stats, event)));
        let _ = writeln!(text, "strings are truncated in {} records of {of}", count(cut));
    }
    generic(text, stats);
    without_strings(text, stats);
}

/// One of several files, on a line.
pub(super) fn line(finished: &Finished) -> String {
    let Finished { path, file_bytes, stats, notes } = finished;
    let lost = match stats.missing_total() {
        0 => "none lost".to_owned(),
        missing => format!("{} LOST", count(missing)),
    };
    let mut text = format!(
        "{}: {} events in {:.3} s, {}, {lost}\n",
        path.display(),
        count(stats.stored_events()),
        stats.duration.as_secs_f64(),
        bytes(*file_bytes),
    );
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// All files of a recording.
pub(super) fn of_files(dir: &std::path::Path, files: u64, events: u64, missing: u64) -> String {
    let lost = match missing {
        0 => "none lost".to_owned(),
        missing => format!("{} LOST; `tracer-agent info FILE` tells where and why", count(missing)),
    };
    let plural = if files == 1 { "" } else { "s" };
    format!("{}: {} file{plural}, {} events, {lost}\n", dir.display(), count(files), count(events))
}

fn unstored(text: &mut String, stats: &Stats) {
    if stats.unstored() != 0 {
        let _ = writeln!(
            text,
            "{} more events were in the rings and could not be stored",
            count(stats.unstored())
        );
    }
}

/// What is known of a recording whose file was not made at its end, and what is not.
fn how_it_ended(text: &mut String, stats: &Stats, recovered: Recovered) {
    let Recovered { unreadable_bytes, ended: end, overwrite } = recovered;
    match end.cut_short() {
        None => {
            text.push_str(
                "the recording had ended and only its file was not finished: the counts are exact\n",
            );
            unstored(text, stats);
        }
        Some(cut_short) => {
            let lost = match overwrite {
                Some(true) => {
                    "the events of a flight recorder stay in the rings until it ends, and they are gone"
                }
                _ => "what was in the rings is missing, and what was lost since the last count is not known",
            };
            let _ = writeln!(text, "{}: {lost}", cut_short.text());
        }
    }
    for cpu in &stats.cpus {
        let Some(missing) = cpu.missing() else { continue };
        if stats.cpus.len() <= ALL_CPUS || missing.at_least != Some(0) {
            let _ = writeln!(text, "{}: {}", cpu_of(stats, cpu), missing.text(count));
        }
    }
    let capped: Vec<_> =
        stats.cpus.iter().filter(|cpu| cpu.capped_unknown).map(|cpu| cpu_of(stats, cpu)).collect();
    if !capped.is_empty() {
        let _ =
            writeln!(text, "how many events the size limit removed is not known of {}", capped.join(", "));
    }
    if unreadable_bytes != 0 {
        let _ = writeln!(
            text,
            "{} of the data were not readable; an interrupted write leaves some at the end",
            bytes(unreadable_bytes)
        );
    }
}

/// A CPU, and the buffer that its counts are of if that has a name.
fn cpu_of(stats: &Stats, CpuStats { channel, cpu, .. }: &CpuStats) -> String {
    in_buffer(format_args!("CPU {cpu}"), stats.name_of(*channel))
}

/// An event, and the buffer that its counts are of if that has a name.
fn event_of(stats: &Stats, EventStats { channel, name, .. }: &EventStats) -> String {
    in_buffer(name, stats.name_of(*channel))
}

/// Which events took the generic lane.
fn generic(text: &mut String, stats: &Stats) {
    let notes = stats.events.iter().filter_map(|event| Some((&*event.name, event.lane_note.as_ref()?)));
    // An event may be in several buffers.
    let mut seen = BTreeSet::new();
    let notes: Vec<(&str, &String)> = notes.filter(|(name, _)| seen.insert(*name)).collect();
    let _ = match &*notes {
        [] => Ok(()),
        [(name, reason)] => writeln!(text, "{name} took the generic lane: {reason}"),
        _ => writeln!(
            text,
            "{} kinds of events took the generic lane ({}); `tracer-agent doctor` shows why",
            count(notes.len() as u64),
            named(notes.iter().map(|(name, _)| (*name).to_owned()))
        ),
    };
}

/// Which events of system calls have no strings, although they were wanted; each reason once.
fn without_strings(text: &mut String, stats: &Stats) {
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for event in &stats.events {
        if let Some(reason) = &event.string_note {
            reasons.entry(reason).or_default().insert(&event.name);
        }
    }
    for (reason, names) in reasons {
        let names = named(names.into_iter().map(str::to_owned));
        let _ = writeln!(text, "no strings of system calls are in {names}: {reason}");
    }
}

/// The first of these names, and how many more there are.
fn named(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {} more", count(more as u64)) };
    names.join(", ") + &more
}

/// Whether a table has a column with sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// Of what is stored.
    Stored,
    /// There is none.
    None,
}

fn table(text: &mut String, stats: &Stats, sizes: Sizes) {
    let causes: Vec<LossCause> = LossCause::ALL
        .into_iter()
        .filter(|&cause| stats.cpus.iter().any(|cpu| cpu.lost[cause as usize] != 0))
        .collect();
    let overwritten = stats.cpus.iter().any(|cpu| cpu.overwritten + cpu.stored.capped_events != 0);
    // The buffer that every file has has no name.
    let titles: Vec<String> = (stats.channels.iter())
        .map(|channel| if channel.name.is_empty() { "(top)".to_owned() } else { channel.name.clone() })
        .collect();
    let has_names = stats.channels.iter().any(|channel| !channel.name.is_empty());
    let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0).max("buffer".len());
    let mut header = if has_names { format!("{:<width$} ", "buffer") } else { String::new() };
    header += &format!("{:>5} {:>14}", "CPU", "events");
    if sizes == Sizes::Stored {
        header += &format!(" {:>12}", "size");
    }
    if overwritten {
        header += &format!(" {:>14}", "overwritten");
    }
    header += &format!(" {:>14}", "lost");
    for cause in &causes {
        header += &format!(" {:>14}", cause_name(*cause));
    }
    let _ = writeln!(text, "{header}");
    let row = |text: &mut String, buffer: &str, name: &str, cpu: &CpuStats| {
        if has_names {
            let _ = write!(text, "{buffer:<width$} ");
        }
        let _ = write!(text, "{name:>5} {:>14}", count(cpu.stored.events));
        if sizes == Sizes::Stored {
            let _ = write!(text, " {:>12}", bytes(cpu.stored.bytes));
        }
        if overwritten {
            let _ = write!(text, " {:>14}", count(cpu.overwritten + cpu.stored.capped_events));
        }
        let _ = write!(text, " {:>14}", count(cpu.lost_total()));
        for cause in &causes {
            let _ = write!(text, " {:>14}", count(cpu.lost[*cause as usize]));
        }
        text.push('\n');
    };
    for (channel, title) in stats.channels.iter().zip(&titles) {
        let cpus = || stats.cpus.iter().filter(|cpu| cpu.channel == channel.number);
        for cpu in cpus().filter(|cpu| cpus().count() <= ALL_CPUS || cpu.lost_total() != 0) {
            row(text, title, &cpu.cpu.to_string(), cpu);
        }
        if cpus().count() > 1 {
            row(text, title, "all", &total(cpus()));
        }
    }
    if stats.channels.len() > 1 {
        row(text, "all", "all", &total(&stats.cpus));
    }
}

fn total<'s>(cpus: impl IntoIterator<Item = &'s CpuStats>) -> CpuStats {
    let mut sum = CpuStats::default();
    for cpu in cpus {
        sum.stored.events += cpu.stored.events;
        sum.stored.bytes += cpu.stored.bytes;
        sum.stored.capped_events += cpu.stored.capped_events;
        sum.overwritten += cpu.overwritten;
        for (total, lost) in sum.lost.iter_mut().zip(cpu.lost) {
            *total += lost;
        }
    }
    sum
}

/// Says that more was lost than the user allows: where, and of what.
pub(super) fn too_much_lost(missing: u64, max: u64, stats: Option<&Stats>) -> String {
    let mut text =
        format!("tracer-agent: {} events were lost, --max-loss allows {}\n", count(missing), count(max));
    let Some(stats) = stats else { return text };
    for cpu in stats.cpus.iter().filter(|cpu| cpu.lost_total() + cpu.unstored() != 0) {
        let _ = write!(text, "tracer-agent: {}:", cpu_of(stats, cpu));
        for cause in LossCause::ALL.into_iter().filter(|&cause| cpu.lost[cause as usize] != 0) {
            let _ = write!(text, " {} {}", count(cpu.lost[cause as usize]), cause_name(cause));
        }
        if cpu.unstored() != 0 {
            let _ = write!(text, " {} not stored", count(cpu.unstored()));
        }
        text.push('\n');
    }
    if let Some(misses) = stats.recursion_misses().filter(|&misses| misses != 0) {
        let _ = writeln!(text, "tracer-agent: {} skipped by the kernel's recursion guard", count(misses));
    }
    for event in stats.events.iter().filter(|event| event.lost_total() != 0) {
        let cpus: Vec<String> = event
            .lost_on
            .iter()
            .map(|(cpu, lost)| format!("{} on CPU {cpu}", count(lost.iter().sum::<u64>())))
            .collect();
        let _ = writeln!(text, "tracer-agent: {}: {}", event_of(stats, event), cpus.join(", "));
    }
    text
}

/// What is to be said of a recording of threads with certain names that has no event.
pub(super) fn no_name_matched(stats: &Stats, names: &[String]) -> Option<String> {
    let is_empty = stats.events.iter().all(|event| event.recorded == 0 && event.lost_total() == 0);
    if names.is_empty() || !is_empty {
        return None;
    }
    let hint = if names.iter().any(|name| name.contains('[')) {
        "; [ begins a set of characters, and \\[ is the character"
    } else {
        ""
    };
    Some(format!("no event of a thread whose name matches --comm {}{hint}", names.join(" or ")))
}

/// What filters, samples and rates left out, and what the recorder did itself.
fn left_out(text: &mut String, stats: &Stats, filtered: bool) {
    let by_filter: u64 = stats.events.iter().map(|event| event.filtered).filter(|_| filtered).sum();
    let by_sampling: u64 = stats.events.iter().map(|event| event.sampled_out).sum();
    let own: u64 = stats.events.iter().map(|event| event.own_threads).sum();
    for (sum, why) in
        [(by_filter, "by filters"), (by_sampling, "by sampling"), (own, "as the recorder's own")]
    {
        if sum != 0 {
            let _ = writeln!(text, "{} events were left out {why}", count(sum));
        }
    }
    if stats.leaves_out_interrupts {
        text.push_str(
            "events of interrupts are left out while one of the recorder's own threads or an excluded one has the CPU: programs cannot tell them apart on this kernel\n",
        );
    }
    if stats.rate_limited() != 0 {
        let _ = writeln!(
            text,
            "{} events exceeded their rate limits (--rate); they are counted as lost",
            count(stats.rate_limited())
        );
    }
}

/// The events that lost most, so that a user knows what to leave out or which ring to enlarge.
fn most_lost(text: &mut String, stats: &Stats) {
    let mut lost: Vec<(u64, String)> = stats
        .events
        .iter()
        .map(|event| (event.lost_total(), event_of(stats, event)))
        .filter(|(sum, _)| *sum != 0)
        .collect();
    lost.sort_by(|a, b| b.cmp(a));
    for (sum, name) in lost.iter().take(5) {
        let _ = writeln!(text, "lost {} of {name}", count(*sum));
    }
    let nested: u64 = stats.cpus.iter().map(|cpu| cpu.lost[LossCause::Nested as usize]).sum();
    if nested != 0 {
        let _ = writeln!(
            text,
            "{} of them, at most, were nested too deeply: inside other events, or returns of more than 64 open calls of a thread",
            count(nested)
        );
    }
    if stats.cpus.iter().any(|cpu| cpu.lost[LossCause::RingFull as usize] != 0) {
        text.push_str("larger rings (-b) or fewer events reduce losses\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, filtered: u64, cut: u64, note: Option<&str>) -> EventStats {
        let lane_note = note.map(str::to_owned);
        EventStats { name: name.to_owned(), filtered, cut, lane_note, ..EventStats::default() }
    }

    #[test]
    fn events_without_strings_stand_with_the_reason() {
        let without = |name, reason: Option<&str>| EventStats {
            string_note: reason.map(str::to_owned),
            ..event(name, 0, 0, None)
        };
        let events =
            vec![without("s:a", Some("too long")), without("s:b", None), without("s:c", Some("too long"))];
        let mut text = String::new();
        without_strings(&mut text, &Stats { events, ..Stats::default() });
        assert_eq!(text, "no strings of system calls are in s:a, s:c: too long\n");
    }

    #[test]
    fn names_that_no_thread_has_are_told() {
        let stats = |recorded| Stats {
            events: vec![EventStats { recorded, ..event("sched:sched_switch", 7, 0, None) }],
            ..Stats::default()
        };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(no_name_matched(&stats(1), &names(&["x"])), None);
        assert_eq!(no_name_matched(&stats(0), &[]), None);
        assert!(!no_name_matched(&stats(0), &names(&["x"])).unwrap().contains('['));
        assert!(no_name_matched(&stats(0), &names(&["x", "[kworker]"])).unwrap().contains("\\["));
    }

    fn summary(events: Vec<EventStats>, filtered: bool) -> String {
        let stats = Stats { events, ..Stats::default() };
        let notes = Vec::new();
        text(&Finished { path: "t.dat".into(), file_bytes: 0, stats, notes }, filtered)
    }

    #[test]
    fn thousands_of_events_are_a_line() {
        let named = |number: i32| event(&format!("a:e{number}"), 1, 2, Some("it has another layout"));
        let text = summary((0..1500).map(named).collect(), true);
        assert!(text.lines().count() < 10, "{text}");
        for line in [
            "1 500 kinds of events took the generic lane (a:e0, a:e1, a:e2 and 1 497 more); `tracer-agent doctor` shows why",
            "strings are truncated in 3 000 records of a:e0, a:e1, a:e2 and 1 497 more",
            "1 500 events were left out by filters",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn of_one_event_all_is_told() {
        let text = summary(vec![event("a:b", 5, 0, Some("it has another layout"))], false);
        assert!(text.contains("a:b took the generic lane: it has another layout\n"), "{text}");
        assert!(!text.contains("filters"), "nobody filtered: {text}");
    }
}
