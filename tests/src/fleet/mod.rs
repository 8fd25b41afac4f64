//! Recordings of a fleet of hosts, made up: the same ones each time, of any size, and millions of events a
//! second, for whoever reads many of them.
//!
//! Nothing ran. Hosts are simulated: threads sleep, are woken, wait for CPUs and run; call the kernel, open
//! files, fork and execute; disks and interrupts are busy. Formats are those of a real kernel, so that
//! readers see no difference. Of a recording that is small enough, [`Truth`] says what happened.

mod host;
mod records;
mod tape;
mod truth;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use ftrace_event::{Cmdlines, Endian};
use tracedat::ledger::{Covered, Ledger, LedgerCpu, Losses, VERSION};
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout};

pub use self::truth::{Exec, Gap, Open, Span, Truth};

use self::host::Host;
use self::records::formats;
use self::tape::Tape;

/// Bytes of a page of trace data.
const PAGE: u32 = 4096;
/// Time between two things that happen on a host, on average, in nanoseconds.
const STEP: u64 = 20_000;
/// 2026-03-02 23:00:00 UTC, as nanoseconds since 1970: the middle of each host's first recording. That of the
/// second one is midnight.
pub const MIDDLE: u64 = 1_772_492_400_000_000_000;
/// From the beginning of a recording of a host to that of the next one.
const NEXT: u64 = 3_600_000_000_000;
/// When each host was started, by its own clock: recordings begin a day later.
const UP: u64 = 86_400_000_000_000;

/// A fleet.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// How many hosts there are.
    pub hosts: u32,
    /// How many recordings each host made.
    pub recordings: u32,
    /// Events of each recording.
    pub events: u64,
    /// CPUs of each host.
    pub cpus: u32,
}

/// A recording of a fleet.
#[derive(Debug)]
pub struct Recording {
    /// The file.
    pub path: PathBuf,
    /// The host's name.
    pub host: String,
    /// Nanoseconds to add to times of its clock for those since 1970.
    pub wall_offset: u64,
    /// Times of the first and the last record.
    pub span: (u64, u64),
    /// Events that were lost.
    pub lost: u64,
    /// Whether the file says how many were lost at each place.
    pub lost_is_exact: bool,
    /// What happened, if it was to be noted.
    pub truth: Option<Truth>,
}

impl Fleet {
    /// The numbers of its recordings: host, and which one of it.
    pub fn numbers(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.hosts).flat_map(move |host| (0..self.recordings).map(move |number| (host, number)))
    }

    /// Writes a recording as `HOST-NUMBER.dat`. Of four hosts, the second and the third lose events, and the
    /// third does not know how many.
    pub fn write(self, dir: &Path, (host, number): (u32, u32), noted: bool) -> Recording {
        let name = format!("{}-{host:02}", ["web", "db", "batch"][host as usize % 3]);
        let wall = MIDDLE - self.events * STEP / 2 + u64::from(number) * NEXT;
        let start = UP + u64::from(number) * NEXT + u64::from(host) * 1_000_003;
        let wall_offset = wall - UP - u64::from(number) * NEXT;
        let (loses, lost_is_exact) = (matches!(host % 4, 1 | 2), host % 4 != 2);
        let seed = (u64::from(host) << 32 | u64::from(number)) + 1;
        let mut simulated = Host::new(self.cpus, seed, Tape::new(self.cpus, start, lost_is_exact, noted));
        simulated.run(self.events, loses);
        let path = dir.join(format!("{name}-{number}.dat"));
        let span = simulated.tape.span();
        write(&path, &name, &Facts { wall_offset, seed, span }, &mut simulated);
        let lost = simulated.tape.lost().iter().sum();
        Recording { path, host: name, wall_offset, span, lost, lost_is_exact, truth: simulated.truth() }
    }
}

/// What a file says of its recording.
struct Facts {
    wall_offset: u64,
    seed: u64,
    span: (u64, u64),
}

fn write(path: &Path, name: &str, facts: &Facts, host: &mut Host) {
    let (endian, lost) = (Endian::Little, host.tape.lost());
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let setup = Setup { endian, page_size: PAGE, compression: Compression::default() };
    let mut writer = Writer::create(file, setup).unwrap();
    writer.section(Section::header_info(endian, &layout::header_page_text(PAGE), "").unwrap()).unwrap();
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    formats().for_each(|(system, text)| systems.entry(system).or_default().push(text));
    let systems: Vec<_> =
        systems.iter().map(|(name, formats)| EventSystem { name, formats: formats.as_slice() }).collect();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    let mut names = Cmdlines::new();
    for (tid, comm) in host.names() {
        names.insert(tid, comm.as_bytes());
    }
    writer.section(Section::cmdlines(endian, &names)).unwrap();
    writer.option(&FileOption::TraceClock("local [mono]".to_owned())).unwrap();
    writer.option(&FileOption::Uname(format!("Linux {name} 6.18.44 x86_64"))).unwrap();
    writer.option(&FileOption::TraceId(facts.seed)).unwrap();
    writer.option(&FileOption::CpuCount(lost.len() as u32)).unwrap();
    let cpus = lost.iter().zip(0..).map(|(lost, cpu)| LedgerCpu {
        cpu,
        lost: Losses(vec![("ring_full".to_owned(), *lost)]),
        ..LedgerCpu::default()
    });
    let ledger = Ledger {
        version: VERSION,
        clock: Some("mono".to_owned()),
        realtime_offset_ns: Some(facts.wall_offset.cast_signed()),
        covered: Some(Covered { from_ns: facts.span.0, to_ns: facts.span.1 }),
        cpus: cpus.collect(),
        ..Ledger::default()
    };
    writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes: ledger.to_bytes() }).unwrap();
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: PAGE }).unwrap();
    for (cpu, pages) in (0..).zip(host.tape.pages()) {
        buffer.write_cpu(cpu, pages.as_slice()).unwrap();
    }
    buffer.finish().unwrap();
    writer.finish().unwrap();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tracedat::check::check;
    use tracedat::reader::Reader;

    use super::*;

    #[test]
    fn recordings_are_whole_and_the_same_each_time() {
        let fleet = Fleet { hosts: 2, recordings: 2, events: 20_000, cpus: 3 };
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for which in fleet.numbers() {
            let [first, second] = [0, 1].map(|dir| fleet.write(dirs[dir].path(), which, dir == 1));
            let file = fs::read(&first.path).unwrap();
            assert!(file == fs::read(&second.path).unwrap(), "noting what happens changes nothing");
            let truth = second.truth.unwrap();
            let gaps: u64 = truth.gaps.iter().map(|gap| gap.missed).sum();
            assert_eq!((second.lost, second.lost > 0), (gaps, which.0 == 1));
            let report = check(&file.as_slice(), None);
            assert!(report.faults.is_empty(), "{:?}", report.faults);
            let reader = Reader::open(file.as_slice()).unwrap();
            let mut records = reader.records().unwrap();
            let (mut count, mut missed) = (0, 0);
            while let Some(record) = records.next_record().unwrap() {
                count += 1;
                missed += record.missed.unwrap_or(0);
            }
            assert_eq!((count, missed), (truth.recorded, gaps));
        }
    }
}
