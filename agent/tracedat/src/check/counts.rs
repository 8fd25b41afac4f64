//! The recorder's counts, compared with the data.

use super::super::layout::OptionId;
use super::super::ledger::{Ledger, in_buffer};
use super::super::reader::{Reader, Source};
use super::Check;
use super::data::CpuFound;
use super::options::RawOption;
use super::rule::Rule;

/// Compares the statistics and the ledger with the events that were found.
pub(super) fn check<S: Source>(
    check: &mut Check<'_>,
    reader: &Reader<S>,
    options: &[RawOption],
    found: &[CpuFound],
) {
    // Counts are of buffers by name; a named one may come in parts.
    let events = |buffer: &str, cpu: u32| -> Option<(u64, u64)> {
        let of = found.iter().filter(|found| found.cpu == cpu);
        let of =
            of.filter(|found| reader.buffers().get(found.buffer).is_some_and(|info| info.name == buffer));
        of.clone()
            .all(|found| found.whole)
            .then(|| (of.clone().map(|found| found.events).sum(), of.map(|found| found.pages).sum()))
    };
    let mut buffer = String::new();
    for option in options {
        let text = || {
            let text = String::from_utf8_lossy(&option.bytes);
            text.trim_end_matches('\0').trim().to_owned()
        };
        match option.id {
            OptionId::CPUSTAT => {
                let text = text();
                if let Some(name) = text.strip_prefix("Buffer:") {
                    name.trim().clone_into(&mut buffer);
                } else if let Some((cpu, counted)) = cpu_stat(&text)
                    && let Some((events, _)) = events(&buffer, cpu)
                    && events != counted
                {
                    let of = in_buffer(format_args!("CPU {cpu}"), &buffer);
                    let detail = || format!("it counts {counted} events of {of}, and there are {events}");
                    check.faults.add(Rule::CpuStatCount, option.at, || option.name(), detail);
                }
            }
            OptionId::LEDGER => {
                let Some(ledger) = Ledger::parse(&option.bytes) else {
                    let detail = || "it is no JSON object with a list of CPUs".to_owned();
                    check.faults.add(Rule::Ledger, option.at, || option.name(), detail);
                    continue;
                };
                if let Some(cut_short) = ledger.cut_short() {
                    for cpu in &ledger.cpus {
                        let detail = || {
                            let missing = cpu.missing.unwrap_or_default().text(|events| events.to_string());
                            format!("{}; {}: {missing}", cut_short.text(), cpu.title())
                        };
                        check.faults.add(Rule::CutShort, option.at, || option.name(), detail);
                    }
                }
                // That of a part counts what is in other parts as well.
                for cpu in ledger.cpus.iter().filter(|_| !ledger.part) {
                    let (Some(stored), Some((events, _))) = (cpu.stored, events(&cpu.channel, cpu.cpu))
                    else {
                        continue;
                    };
                    if stored != events {
                        let of = cpu.title();
                        let detail = || format!("it counts {stored} events of {of}, and there are {events}");
                        check.faults.add(Rule::LedgerCount, option.at, || option.name(), detail);
                    }
                }
            }
            _ => {}
        }
    }
}

/// CPU and number of events that tracefs' `per_cpu/cpu<id>/stats` has: those that were read, and those that
/// were still in the buffer when recording ended and were read then.
fn cpu_stat(text: &str) -> Option<(u32, u64)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line?.trim().parse::<u64>().ok()
    };
    let cpu = u32::try_from(value("CPU:")?).ok()?;
    Some((cpu, value("entries:")?.checked_add(value("read events:")?)?))
}
