//! Recordings of the machine: of all that it made, or of a part, with the ledger that a recorder would write.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

use super::says::{EVENTS, SYMBOLS, format};
use super::{BEGIN, CPUS, Kind, Made, Says, World};
use ftrace_event::Endian;
use tracedat::ledger::{Ledger, LedgerCpu, LedgerEvent, LedgerSilent, Losses, Pause, VERSION};
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, Writer, layout};

const PAGE: u32 = 4096;
const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits
\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30
\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

/// How a recording is less than a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Some of the events that say whose numbers are were not asked for.
    Kinds,
    /// `-P 1 -c`.
    Process,
    /// `--cgroup`: the same threads, which the file does not name.
    Cgroup,
    /// `--comm`.
    Named,
    /// `--exclude-comm`.
    NotNamed,
    /// `-M`.
    Cpus,
    /// Events have filters.
    Filters,
    /// `--sample`.
    Sampled,
    /// `--rate`.
    Limited,
    /// Rings were full at times.
    Lost,
    /// And at the end.
    LostAtEnd,
    /// Several buffers have some events each, or both.
    Buffers,
    /// A flight recorder kept the last records.
    Ring,
    /// Another recorder, whose files do not say what was recorded, recorded some events.
    Untold,
    /// Some events were added, or removed, while it recorded.
    Changed,
    /// It was paused.
    Paused,
    /// A page cannot be read.
    Damaged,
}

/// Those in which all that is recorded goes by the same rules from the beginning to the end.
pub const HOWS: [How; 13] = [
    How::Kinds,
    How::Process,
    How::Cgroup,
    How::Named,
    How::NotNamed,
    How::Cpus,
    How::Filters,
    How::Sampled,
    How::Limited,
    How::Lost,
    How::LostAtEnd,
    How::Buffers,
    How::Ring,
];

/// The others.
pub const UNEVEN_HOWS: [How; 4] = [How::Untold, How::Changed, How::Paused, How::Damaged];

/// Events that say whose numbers are.
pub(crate) const OF_LIVES: [Kind; 6] =
    [Kind::NewTask, Kind::Fork, Kind::Renamed, Kind::Exec, Kind::Exit, Kind::Freed];

/// Filters, and whether they have a record.
type Filter = (Kind, &'static str, fn(&Says) -> bool);

const FILTERS: &[Filter] = &[
    (Kind::CallEnter, "id == 202", |says| matches!(says, Says::CallEnter { number: 202, .. })),
    (Kind::CallExit, "id == 202", |says| matches!(says, Says::CallExit { number: 202, .. })),
    (Kind::CallExit, "ret < 0", |says| matches!(says, Says::CallExit { result: ..0, .. })),
    (Kind::Issue, "bytes != 0", |says| !matches!(says, Says::Issue { bytes: 0, .. })),
    (Kind::Complete, "nr_sector == 0", |says| matches!(says, Says::Complete { sectors: 0, .. })),
    (Kind::LockBegin, "lock_addr == 0x1001", |says| matches!(says, Says::LockBegin { lock: 0x1001, .. })),
    (Kind::LockEnd, "lock_addr > 0x1001", |says| matches!(says, Says::LockEnd { lock: 0x1002.., .. })),
    (Kind::SoftirqRaise, "vec == 1", |says| matches!(says, Says::SoftirqRaise { vector: 1 })),
    (Kind::IrqExit, "irq == 4", |says| matches!(says, Says::IrqExit { irq: 4 })),
    (Kind::PageAlloc, "pfn > 0x104", |says| matches!(says, Says::PageAlloc { pfn: 0x105.. })),
    (Kind::PageFree, "pfn < 0x108", |says| matches!(says, Says::PageFree { pfn: ..0x108 })),
    (Kind::Kmalloc, "ptr > 0x5040", |says| matches!(says, Says::Kmalloc { address: 0x5041.. })),
    (Kind::Kfree, "ptr < 0x5080", |says| matches!(says, Says::Kfree { address: ..0x5080 })),
    (Kind::Switch, "next_pid == 3", |says| matches!(says, Says::Switch { next: 3, .. })),
];

/// What became of a record in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in the file.
    Kept,
    /// It was not asked for, and nobody counts it.
    NotAsked,
    Filtered,
    SampledOut,
    Lost(&'static str),
    Overwritten,
}

/// A recording.
pub struct Part {
    /// What a recorder would have said of threads and CPUs.
    pub(crate) only: Vec<String>,
    /// Which events have filters.
    pub(crate) filters: BTreeMap<Kind, &'static str>,
    /// Events that were recorded of every thread.
    every_thread: Vec<Kind>,
    /// By buffer, what became of each record.
    fates: Vec<Vec<Fate>>,
    /// Whether the file has a ledger.
    has_ledger: bool,
    /// When events were added and removed.
    changes: BTreeMap<Kind, (Option<u64>, Option<u64>)>,
    pauses: Vec<Pause>,
    /// A page of a CPU, by its place, that cannot be read.
    damaged: Option<(u32, u64)>,
}

impl Part {
    /// A whole recording.
    pub fn whole(world: &World) -> Self {
        Self::of(world, |_, _| Fate::Kept)
    }

    fn of(world: &World, mut fate: impl FnMut(usize, &Made) -> Fate) -> Self {
        let mut fates: Vec<Fate> = Vec::new();
        for (nth, made) in world.made.iter().enumerate() {
            let own = fate(nth, made);
            // Whoever leaves out an event leaves out its stack; a ring may be full for that alone.
            let of_event = fates.last().copied().filter(|of| made.kind() == Kind::Stack && *of != Fate::Kept);
            fates.push(of_event.unwrap_or(own));
        }
        Self {
            only: Vec::new(),
            filters: BTreeMap::new(),
            every_thread: Vec::new(),
            fates: vec![fates],
            has_ledger: true,
            changes: BTreeMap::new(),
            pauses: Vec::new(),
            damaged: None,
        }
    }

    /// One without an event.
    pub(crate) fn without(world: &World, kind: Kind) -> Self {
        Self::of(world, |_, made| if made.kind() == kind { Fate::NotAsked } else { Fate::Kept })
    }

    /// For each event but those that say whose numbers are, a recording without it.
    pub fn without_each(world: &World) -> impl Iterator<Item = (String, Self)> {
        let kinds: BTreeSet<Kind> = world.made.iter().map(Made::kind).collect();
        let kinds = kinds.into_iter().filter(|kind| !OF_LIVES.contains(kind));
        kinds.map(|kind| (kind.event(), Self::without(world, kind)))
    }

    /// One that is less, at random.
    pub fn less(world: &mut World, how: How) -> Self {
        match how {
            How::Kinds => {
                let left_out: Vec<Kind> = OF_LIVES.into_iter().filter(|_| world.below(2) == 0).collect();
                let is_out = |made: &Made| left_out.contains(&made.kind());
                Self::of(world, |_, made| if is_out(made) { Fate::NotAsked } else { Fate::Kept })
            }
            How::Process | How::Cgroup => {
                let every_thread = if world.below(2) == 0 { vec![Kind::Complete] } else { Vec::new() };
                let part = Self::of(world, |_, made| {
                    let is_kept = made.is_current_chosen
                        || made.kind().is_of_two() && made.is_other_chosen
                        || every_thread.contains(&made.kind());
                    if is_kept { Fate::Kept } else { Fate::Filtered }
                });
                let only = match how {
                    How::Process => "processes 1 with their children",
                    _ => "control groups /a",
                };
                Self { only: vec![only.to_owned()], every_thread, ..part }
            }
            How::Named => {
                let mut owed = [None; CPUS];
                let part = Self::of(world, |_, made| Self::named(made, &mut owed));
                Self { only: vec!["threads named c*".to_owned()], ..part }
            }
            How::NotNamed => {
                let is_out = |name: &str| name.starts_with('c');
                let part = Self::of(world, |_, made| {
                    let is_other_in = made.other.as_ref().map(|(_, name)| !is_out(name));
                    let is_idle_in = made.kind() == Kind::Switch && made.other.is_none();
                    let is_kept = made.flags != 0
                        || !is_out(&made.name)
                        || made.kind().is_of_two() && (is_other_in == Some(true) || is_idle_in);
                    if is_kept { Fate::Kept } else { Fate::Filtered }
                });
                Self { only: vec!["all but threads named c*".to_owned()], ..part }
            }
            How::Cpus => {
                let cpu = world.below(CPUS as u64) as u32;
                let part =
                    Self::of(world, |_, made| if made.cpu == cpu { Fate::Kept } else { Fate::NotAsked });
                Self { only: vec![format!("CPUs {cpu}")], ..part }
            }
            How::Filters => {
                let chosen: Vec<&Filter> = FILTERS.iter().filter(|_| world.below(3) == 0).collect();
                let filters = chosen.iter().map(|(kind, text, _)| (*kind, *text)).collect();
                let part = Self::of(world, |_, made| {
                    // Of several of one event the last one counts.
                    let own = chosen.iter().rev().find(|(kind, ..)| *kind == made.kind());
                    if own.is_none_or(|(.., has)| has(&made.says)) { Fate::Kept } else { Fate::Filtered }
                });
                Self { filters, ..part }
            }
            How::Sampled => {
                let sampled = Self::some_kinds(world, 4);
                let dice = Self::dice(world);
                Self::of(world, |nth, made| {
                    let is_out = sampled.contains(&made.kind()) && dice[nth].is_multiple_of(2);
                    if is_out { Fate::SampledOut } else { Fate::Kept }
                })
            }
            How::Limited => {
                let limited = Self::some_kinds(world, 4);
                let dice = Self::dice(world);
                Self::of(world, |nth, made| {
                    let is_out = limited.contains(&made.kind()) && dice[nth / 8].is_multiple_of(3);
                    if is_out && made.kind() != Kind::Stack { Fate::Lost("rate_limit") } else { Fate::Kept }
                })
            }
            How::Lost | How::LostAtEnd => {
                let dropped = 1 + world.below(20);
                let dice = Self::dice(world);
                let mut is_kept = [true; CPUS];
                let len = world.made.len();
                // Behind this one, each CPU loses all, or not.
                let ends: Vec<usize> =
                    (0..CPUS).map(|_| len - world.below(len as u64 / 3) as usize).collect();
                Self::of(world, |nth, made| {
                    let cpu = made.cpu as usize;
                    let chance = if is_kept[cpu] { 100 - dropped } else { 33 };
                    is_kept[cpu] = how == How::LostAtEnd || dice[nth] % 100 < chance;
                    let is_behind = how == How::LostAtEnd && nth >= ends[cpu];
                    if is_kept[cpu] && !is_behind { Fate::Kept } else { Fate::Lost("ring_full") }
                })
            }
            How::Buffers => {
                let (mut own, dice) = (Self::some_kinds(world, 2), Self::dice(world));
                let mut both = Self::some_kinds(world, 3);
                for kinds in [&mut own, &mut both] {
                    if kinds.contains(&Kind::Tick) {
                        kinds.push(Kind::Stack);
                    }
                }
                let is_lossy = world.below(2) == 0;
                let mut part =
                    Self::of(
                        world,
                        |_, made| {
                            if own.contains(&made.kind()) { Fate::NotAsked } else { Fate::Kept }
                        },
                    );
                let other = world.made.iter().enumerate().map(|(nth, made)| {
                    if !own.contains(&made.kind()) && !both.contains(&made.kind()) {
                        Fate::NotAsked
                    } else if is_lossy && dice[nth].is_multiple_of(9) {
                        Fate::Lost("ring_full")
                    } else {
                        Fate::Kept
                    }
                });
                part.fates.push(other.collect());
                part
            }
            How::Ring => {
                let len = world.made.len();
                let begins: Vec<usize> = (0..CPUS).map(|_| world.below(len as u64 / 2) as usize).collect();
                Self::of(
                    world,
                    |nth, made| {
                        if nth < begins[made.cpu as usize] { Fate::Overwritten } else { Fate::Kept }
                    },
                )
            }
            How::Untold => {
                let left_out = Self::some_kinds(world, 4);
                let is_out = |made: &Made| left_out.contains(&made.kind());
                let part = Self::of(world, |_, made| if is_out(made) { Fate::NotAsked } else { Fate::Kept });
                Self { has_ledger: false, ..part }
            }
            How::Changed => {
                let (kinds, last) =
                    (Self::some_kinds(world, 4), world.made.last().map_or(0, |made| made.time));
                let mut changes = BTreeMap::new();
                for kind in kinds {
                    let at = Some(world.below(last));
                    changes.insert(kind, if world.below(2) == 0 { (at, None) } else { (None, at) });
                }
                let part = Self::of(world, |_, made| {
                    let (since, until) = changes.get(&made.kind()).copied().unwrap_or_default();
                    let is_in = since.is_none_or(|since| made.time >= since)
                        && until.is_none_or(|until| made.time < until);
                    if is_in { Fate::Kept } else { Fate::NotAsked }
                });
                Self { changes, ..part }
            }
            How::Paused => {
                let last = world.made.last().map_or(0, |made| made.time);
                let from = world.below(last);
                let to = from + world.below(last / 4);
                // One CPU stops and goes on after the other.
                let borders: Vec<_> =
                    (0..CPUS).map(|_| (from + world.below(20), to.saturating_sub(world.below(20)))).collect();
                let part = Self::of(world, |_, made| {
                    let (stops, goes_on) = borders[made.cpu as usize];
                    let is_out = (stops..goes_on).contains(&made.time);
                    if is_out { Fate::NotAsked } else { Fate::Kept }
                });
                let pause = Pause { from_ns: BEGIN + from, to_ns: Some(BEGIN + to) };
                Self { pauses: vec![pause], ..part }
            }
            How::Damaged => {
                let damaged = Some((world.below(CPUS as u64) as u32, world.below(3)));
                Self { damaged, ..Self::whole(world) }
            }
        }
    }

    /// What a recorder of threads that are named `c*` does. It has the switch away from a thread, whatever
    /// its name is by then, if it had the switch to it.
    fn named(made: &Made, owed: &mut [Option<u32>; CPUS]) -> Fate {
        let is_in = |name: &str| name.starts_with('c');
        let is_other_in = made.other.as_ref().is_some_and(|(_, name)| is_in(name));
        let mut is_kept = is_in(&made.name) || made.kind().is_of_two() && is_other_in;
        if made.kind() == Kind::Switch {
            let next = made.other.as_ref().filter(|_| is_other_in).map(|(tid, _)| *tid);
            let owed = std::mem::replace(&mut owed[made.cpu as usize], next);
            is_kept |= owed == Some(made.tid);
        }
        if is_kept { Fate::Kept } else { Fate::Filtered }
    }

    fn some_kinds(world: &mut World, of: u64) -> Vec<Kind> {
        let all = world.made.iter().map(Made::kind).collect::<BTreeSet<_>>();
        // A stack goes where its event goes.
        all.into_iter().filter(|kind| *kind != Kind::Stack && world.below(of) == 0).collect()
    }

    /// A number for each record.
    fn dice(world: &mut World) -> Vec<u64> {
        (0..world.made.len()).map(|_| world.below(1 << 30)).collect()
    }

    /// How many records of a CPU are lost or overwritten, in all buffers.
    pub fn lost(&self, world: &World, cpu: u32) -> u64 {
        let of = |fates: &Vec<Fate>| {
            let its = world.made.iter().zip(fates).filter(|(made, _)| made.cpu == cpu);
            its.filter(|(_, fate)| matches!(fate, Fate::Lost(_) | Fate::Overwritten)).count() as u64
        };
        self.fates.iter().map(of).sum()
    }

    /// Whether some wakeups are missing without a mark.
    pub fn lacks_wakeups(&self, world: &World) -> bool {
        let is_out = |(made, fate): (&Made, &Fate)| {
            made.kind().is_of_two() && made.kind() != Kind::Switch && *fate == Fate::SampledOut
        };
        world.made.iter().zip(&self.fates[0]).any(is_out)
    }

    /// Whether it has no record of a thread that got another number as it ran another program. A recording by
    /// names does not have it where the new name is none of those, and takes who gets the former number then
    /// for that thread, until a record has a name.
    pub fn hides_exec(&self, world: &World) -> bool {
        let is_hidden = |(made, fate): (&Made, &Fate)| {
            matches!(made.says, Says::Exec { tid, from } if tid != from) && *fate == Fate::Filtered
        };
        !self.only.is_empty() && world.made.iter().zip(&self.fates[0]).any(is_hidden)
    }

    /// The file.
    pub fn file(&self, world: &World) -> Vec<u8> {
        let (endian, compression) = (Endian::Little, Compression::None);
        let setup = Setup { endian, compression, page_size: PAGE };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header_page = layout::header_page_text(PAGE);
        writer.section(Section::header_info(endian, &header_page, HEADER_EVENT).unwrap()).unwrap();
        let mut systems: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (index, (system, ..)) in EVENTS.iter().enumerate() {
            systems.entry(system).or_default().push(format(index));
        }
        let stack: Vec<&str> = systems["ftrace"].iter().map(String::as_str).collect();
        writer.section(Section::ftrace_events(endian, &stack).unwrap()).unwrap();
        let systems: Vec<(&str, Vec<&str>)> = (systems.iter().filter(|(name, _)| **name != "ftrace"))
            .map(|(name, formats)| (*name, formats.iter().map(String::as_str).collect()))
            .collect();
        let systems: Vec<_> = systems.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
        writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
        writer.section(Section::kallsyms(endian, SYMBOLS.as_bytes()).unwrap()).unwrap();
        writer.option(&FileOption::TraceClock("local [mono]".to_owned())).unwrap();
        writer.option(&FileOption::Uname("Linux made 6.12.0 x86_64".to_owned())).unwrap();
        if self.has_ledger {
            let bytes = self.ledger(world).to_bytes();
            writer.option(&FileOption::Unknown { id: OptionId::LEDGER, bytes }).unwrap();
        }
        let mut damaged = None;
        for (name, fates) in ["", "other"].into_iter().zip(&self.fates) {
            let buffer = Buffer { name, clock: "mono", page_size: PAGE };
            let mut buffer = writer.begin_buffer(buffer).unwrap();
            for cpu in 0..CPUS as u32 {
                let pages = pages(world, fates, cpu);
                if let Some((_, place)) = self.damaged.filter(|(of, _)| *of == cpu) {
                    let mut all = pages.chunks(PAGE as usize).cycle();
                    damaged = all.nth(place as usize).map(<[u8]>::to_vec);
                }
                if !pages.is_empty() {
                    buffer.write_cpu(cpu, pages.as_slice()).unwrap();
                }
            }
            buffer.finish().unwrap();
        }
        let mut bytes = writer.finish().unwrap().into_inner();
        if let Some(page) = damaged {
            let at = bytes.windows(page.len()).position(|of| of == page).unwrap();
            // Behind its time, its header says that it has more than a page.
            bytes[at + 8..at + 12].fill(0xff);
        }
        bytes
    }

    fn ledger(&self, world: &World) -> Ledger {
        let (mut cpus, mut events, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (channel, fates) in ["", "other"].into_iter().zip(&self.fates) {
            let channel = channel.to_owned();
            let count = |is_it: &dyn Fn(&Made) -> bool, of: Fate| {
                let all = world.made.iter().zip(fates);
                all.filter(|(made, fate)| **fate == of && is_it(made)).count() as u64
            };
            for cpu in 0..CPUS as u32 {
                let of = |fate| count(&|made| made.cpu == cpu, fate);
                let (stored, overwritten) = (of(Fate::Kept), of(Fate::Overwritten));
                let lost = ["ring_full", "rate_limit"].map(|cause| (cause.to_owned(), of(Fate::Lost(cause))));
                cpus.push(LedgerCpu {
                    channel: channel.clone(),
                    cpu,
                    recorded: Some(stored + overwritten),
                    stored: Some(stored),
                    overwritten: Some(overwritten),
                    unstored: Some(0),
                    filtered: Some(of(Fate::Filtered)),
                    lost: Losses(lost.to_vec()),
                    ..LedgerCpu::default()
                });
            }
            let mut not_fired = Vec::new();
            let kinds: BTreeMap<u16, Kind> =
                world.made.iter().map(|made| (made.kind().id(), made.kind())).collect();
            for kind in kinds.into_values() {
                let of = |fate| count(&|made| made.kind() == kind, fate);
                let lost = ["ring_full", "rate_limit"].map(|cause| (cause.to_owned(), of(Fate::Lost(cause))));
                let (since, until) = self.changes.get(&kind).copied().unwrap_or_default();
                let row = LedgerEvent {
                    channel: channel.clone(),
                    since_ns: since.map(|since| BEGIN + since),
                    until_ns: until.map(|until| BEGIN + until),
                    event: kind.event(),
                    id: kind.id(),
                    recorded: of(Fate::Kept) + of(Fate::Overwritten),
                    every_thread: self.every_thread.contains(&kind),
                    filter: self.filters.get(&kind).map(|text| (*text).to_owned()),
                    filtered: of(Fate::Filtered),
                    sampled_out: of(Fate::SampledOut),
                    lost: Losses(lost.to_vec()),
                    ..LedgerEvent::default()
                };
                let is_asked = of(Fate::NotAsked) == 0 || !self.only.is_empty();
                let has_fired = row.recorded + row.filtered + row.sampled_out + row.lost.total() != 0;
                match (is_asked, has_fired) {
                    (_, true) => events.push(row),
                    (true, false) => not_fired.push(row.event),
                    (false, false) => {}
                }
            }
            silent.push(LedgerSilent { channel, events: not_fired });
        }
        Ledger {
            version: VERSION,
            clock: Some("mono".to_owned()),
            only: self.only.clone(),
            cpus,
            events: Some(events),
            silent: Some(silent),
            pauses: self.pauses.clone(),
            ..Ledger::default()
        }
    }
}

/// The pages of a CPU, with marks where records are lost before others.
fn pages(world: &World, fates: &[Fate], cpu: u32) -> Vec<u8> {
    let mut builder = PageBuilder::new(PAGE as usize, Endian::Little).unwrap();
    let mut pages = Vec::new();
    for (made, fate) in world.made.iter().zip(fates).filter(|(made, _)| made.cpu == cpu) {
        match fate {
            Fate::Kept => {
                while builder.push(BEGIN + made.time, &made.data()).unwrap() == Push::Full {
                    pages.extend_from_slice(builder.finish().unwrap());
                }
            }
            Fate::Lost(_) => builder.missed(1),
            Fate::NotAsked | Fate::Filtered | Fate::SampledOut | Fate::Overwritten => {}
        }
    }
    pages.extend_from_slice(builder.finish().unwrap_or_default());
    pages
}
