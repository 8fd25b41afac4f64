//! What describes the events of a recording: a trace file without data.

use std::io::Cursor;

use agent_ebpf::PAGE_SIZE;

use crate::{
    capture::{Manifest, Stats},
    tracedat::{
        Buffer, Cmdlines, Compression, Endian, EventSystem, FileOption, OptionId, Section, Setup, WriteError,
        Writer, reader::ReadError,
    },
};

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// No trace file can say it.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No reader can read it.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The bytes of that file. Names and symbols are not in it: they become known later.
pub(super) fn bytes(manifest: &Manifest) -> Result<Vec<u8>, WriteError> {
    let endian = Endian::Little;
    let setup = Setup { endian, page_size: PAGE_SIZE as u32, compression: Compression::None };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup)?;
    writer.section(Section::header_info(endian, &manifest.header_page, &manifest.header_event)?)?;
    let ftrace: Vec<&str> = manifest.ftrace_events.iter().map(String::as_str).collect();
    writer.section(Section::ftrace_events(endian, &ftrace)?)?;
    let formats: Vec<(&str, Vec<&str>)> = (manifest.systems.iter())
        .map(|(name, formats)| (name.as_str(), formats.iter().map(String::as_str).collect()))
        .collect();
    let systems: Vec<EventSystem<'_>> =
        formats.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems)?)?;
    writer.section(Section::printk(endian, &manifest.printk_formats)?)?;
    writer.section(Section::cmdlines(endian, &Cmdlines::new()))?;
    writer.option(&FileOption::Uname(manifest.uname.clone()))?;
    writer.option(&FileOption::CpuCount(manifest.cpu_count))?;
    if !manifest.trace_clock.is_empty() {
        writer.option(&FileOption::TraceClock(manifest.trace_clock.clone()))?;
    }
    if manifest.wall_time {
        writer.option(&FileOption::Offset { nanos: manifest.realtime_offset })?;
    }
    // That there is a ledger says who recorded.
    let (clock, offset) = (&manifest.clock_name, manifest.realtime_offset);
    let ledger = Stats::default().ledger(clock, offset, manifest.realtime_uncertainty);
    writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() })?;
    let buffer = Buffer { name: "", clock: &manifest.clock_name, page_size: PAGE_SIZE as u32 };
    writer.begin_buffer(buffer)?.finish()?;
    Ok(writer.finish()?.into_inner())
}
