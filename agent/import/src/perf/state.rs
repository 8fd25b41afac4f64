//! What the records of a recording mean.

use std::collections::{BTreeMap, HashMap};

use super::attr::Attr;
use super::bytes::{Bytes, up_to_nul};
use super::header::FileHeader;
use super::input::{Input, Payload, Record, head, simpleperf};
use super::sample::{Sample, id_of_sample};
use super::threads::Threads;
use super::tracing::TracingData;
use super::unpack::Unpacker;
use super::{FORMAT, MAX_SECTION, damaged};
use crate::{At, BufferId, Common, EventId, ImportError, Sink, StackOf};
use ftrace_event::Endian;
use ftrace_event::Format;

/// `enum perf_event_type`, and from 64 on what perf adds to it (`enum perf_user_event_type`).
mod kind {
    pub(super) const MMAP: u32 = 1;
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const MMAP2: u32 = 10;
    pub(super) const AUX: u32 = 11;
    pub(super) const LOST_SAMPLES: u32 = 13;
    pub(super) const THROTTLE: u32 = 5;
    pub(super) const HEADER_ATTR: u32 = 64;
    pub(super) const HEADER_TRACING_DATA: u32 = 66;
    pub(super) const ID_INDEX: u32 = 69;
    pub(super) const AUXTRACE: u32 = 71;
    pub(super) const HEADER_FEATURE: u32 = 80;
    pub(super) const COMPRESSED: u32 = 81;
    pub(super) const COMPRESSED2: u32 = 83;
}

/// Features by number (`enum` of tools/perf/util/header.h).
mod feature {
    pub(super) const TRACING_DATA: u32 = 1;
    pub(super) const HOSTNAME: u32 = 3;
    pub(super) const OSRELEASE: u32 = 4;
    pub(super) const VERSION: u32 = 5;
    pub(super) const ARCH: u32 = 6;
    pub(super) const NRCPUS: u32 = 7;
    pub(super) const DIR_FORMAT: u32 = 24;
    pub(super) const CLOCK_DATA: u32 = 29;
    /// Of simpleperf: names and values, each with a NUL.
    pub(super) const META_INFO: u32 = 129;
}

/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: they were not wanted.
const MISC_FILTERED: u16 = 1 << 15;

/// Marks in call chains are the last 4096 addresses (`PERF_CONTEXT_MAX`); after this one come the kernel's.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;

/// What is known at a record.
#[derive(Debug)]
pub(super) struct State {
    endian: Endian,
    attrs: Vec<Attr>,
    /// The attr of each id.
    ids: HashMap<u64, usize>,
    /// The CPU of each id, where the recording tells.
    cpus: HashMap<u64, u32>,
    /// The event of each tracepoint.
    events: HashMap<u64, EventId>,
    unpacker: Option<Unpacker>,
    threads: Threads,
    /// A record whose pieces have not all come.
    split: Vec<u8>,
    payload: Option<(u64, Payload)>,
    /// By CPU: losses that were told when they were over, and by the counts at the end.
    lost: BTreeMap<u32, [u64; 2]>,
    /// The kernel's frames of a sample.
    scratch: Vec<u64>,
    /// What is counted often.
    counts: Counts,
}

/// What is not carried over, as far as it can be millions.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    others: u64,
    unknown: u64,
    no_format: u64,
    no_raw: u64,
    no_time: u64,
    no_cpu: u64,
    user_chains: u64,
    mappings: u64,
    aux: u64,
    aux_bytes: u64,
    throttled: u64,
}

impl State {
    pub(super) fn new(endian: Endian) -> Self {
        Self {
            endian,
            attrs: Vec::new(),
            ids: HashMap::new(),
            cpus: HashMap::new(),
            events: HashMap::new(),
            unpacker: None,
            threads: Threads::default(),
            split: Vec::new(),
            payload: None,
            lost: BTreeMap::new(),
            scratch: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Takes what the header of a file points at.
    pub(super) fn describe(
        &mut self,
        input: &Input,
        file: &FileHeader,
        sink: &mut Sink<'_>,
    ) -> Result<(), ImportError> {
        let attrs = input.section("the events' attributes", file.attrs)?;
        let entry = usize::try_from(file.attr_size).ok().filter(|len| (16 + 64..=attrs.len()).contains(len));
        let entry = entry.ok_or_else(|| {
            damaged(16, format!("{} bytes of an attribute in a section of {}", file.attr_size, attrs.len()))
        })?;
        for (index, bytes) in attrs.chunks_exact(entry).enumerate() {
            let at = file.attrs.offset + (index * entry) as u64;
            let (attr, ids) = bytes.split_at(entry - 16);
            let mut ids = Bytes::new(ids, self.endian);
            let section = ids.u64().zip(ids.u64());
            let Some(((attr, _), (offset, size))) = Attr::read(attr, self.endian).zip(section) else {
                return Err(damaged(at, "an attribute of an event is damaged"));
            };
            let ids = input.section("the ids of an event", super::header::Section { offset, size })?;
            self.attr(attr, &ids, sink);
        }
        for (number, section) in &file.features {
            let is_needed = matches!(
                *number,
                feature::TRACING_DATA
                    ..=feature::NRCPUS | feature::DIR_FORMAT | feature::CLOCK_DATA | feature::META_INFO
            );
            if is_needed && *number != 2 {
                let bytes = input.section("a feature", *section)?;
                self.feature(*number, &bytes, section.offset, sink)?;
            }
        }
        Ok(())
    }

    /// An event that was recorded, and the ids of its samples.
    fn attr(&mut self, attr: Attr, ids: &[u8], sink: &mut Sink<'_>) {
        let index = self.attrs.len();
        let mut bytes = Bytes::new(ids, self.endian);
        while let Some(id) = bytes.u64() {
            self.ids.insert(id, index);
        }
        self.attrs.push(attr);
        if sink.facts.clock.is_empty() || attr.tracepoint.is_some() {
            clock_name(attr.clock).clone_into(&mut sink.facts.clock);
        }
    }

    fn feature(&mut self, number: u32, body: &[u8], at: u64, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let mut bytes = Bytes::new(body, self.endian);
        // A string has u32 length, and NULs up to it.
        let text = || body.get(4..).map(|text| String::from_utf8_lossy(up_to_nul(text)).into_owned());
        let facts = &mut sink.facts;
        match number {
            feature::TRACING_DATA => return self.tracing_data(body, at, sink),
            feature::HOSTNAME => facts.uname.node = text().unwrap_or_default(),
            feature::OSRELEASE => {
                "Linux".clone_into(&mut facts.uname.system);
                facts.uname.release = text().unwrap_or_default();
            }
            feature::ARCH => facts.uname.machine = text().unwrap_or_default(),
            feature::VERSION => facts.recorder = format!("perf {}", text().unwrap_or_default()),
            feature::NRCPUS => {
                // Those that are online, and those that are there.
                facts.cpu_count =
                    bytes.u32().into_iter().chain(bytes.u32()).max().filter(|count| *count <= 1 << 16);
            }
            feature::CLOCK_DATA => {
                // u32 version, u32 clock, u64 nanoseconds of wall time, u64 of the clock at the same moment.
                bytes.skip_u64(1);
                if let Some((wall, clock)) = bytes.u64().zip(bytes.u64()) {
                    facts.wall_offset = Some(wall.wrapping_sub(clock).cast_signed());
                }
            }
            feature::META_INFO => {
                let mut words = body.split(|byte| *byte == 0);
                while let Some((name, value)) = words.next().zip(words.next()) {
                    if name == b"simpleperf_version" {
                        facts.recorder = format!("simpleperf {}", String::from_utf8_lossy(value));
                    }
                }
            }
            feature::DIR_FORMAT => {
                return Err(ImportError::Unsupported(format!(
                    "this {FORMAT} is one of several in a directory (perf record --threads), which are not read; record \
                     without --threads"
                )));
            }
            _ => {}
        }
        Ok(())
    }

    fn tracing_data(&mut self, body: &[u8], at: u64, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let data = TracingData::read(body, at)?;
        sink.facts.long_size = data.long_size;
        sink.facts.header_event = String::from_utf8_lossy(data.header_event).into_owned();
        sink.facts.kallsyms = data.kallsyms.to_vec();
        sink.facts.printk = data.printk.to_vec();
        for (system, text) in &data.formats {
            let text = String::from_utf8_lossy(text);
            let event = sink.event_with_format(system, &text)?;
            if let Ok(format) = Format::parse(&text) {
                self.events.insert(format.id.into(), event);
            }
        }
        for line in data.cmdlines.split(|byte| *byte == b'\n') {
            let mut words = line.splitn(2, |byte| *byte == b' ');
            let pid = words.next().and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
            if let (Some(pid), Some(name)) = (pid, words.next()) {
                sink.task(pid, name);
            }
        }
        Ok(())
    }

    /// What follows the record that was the last one, if anything does.
    pub(super) fn wants(&self) -> Option<Payload> {
        self.payload.map(|(_, payload)| payload)
    }

    /// Takes what follows the record that was the last one.
    pub(super) fn payload(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), ImportError> {
        match self.payload.take() {
            Some((at, Payload { keep: true, .. })) => self.tracing_data(bytes, at, sink),
            _ => Ok(()),
        }
    }

    /// Takes a record.
    pub(super) fn record(&mut self, record: Record<'_>, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let Record { at, kind, misc: _, body } = record;
        let mut bytes = Bytes::new(body, self.endian);
        let cut = || damaged(at, format!("a record of type {kind} is too short: {} bytes", body.len()));
        match kind {
            kind::COMPRESSED => self.compressed(at, body, sink),
            kind::COMPRESSED2 => {
                let len = bytes.u64().and_then(|len| usize::try_from(len).ok());
                let packed = len.and_then(|len| bytes.take(len)).ok_or_else(cut)?;
                self.compressed(at, packed, sink)
            }
            kind::HEADER_TRACING_DATA => {
                let len = bytes.u32().ok_or_else(cut)?;
                self.payload = Some((at, Payload { len: len.into(), keep: true }));
                Ok(())
            }
            kind::AUXTRACE => {
                let len = bytes.u64().ok_or_else(cut)?;
                self.counts.aux += 1;
                self.counts.aux_bytes = self.counts.aux_bytes.saturating_add(len);
                self.payload = Some((at, Payload { len, keep: false }));
                Ok(())
            }
            _ => self.plain(record, sink),
        }
    }

    fn compressed(&mut self, at: u64, packed: &[u8], sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new().map_err(|problem| damaged(at, problem))?,
        };
        let endian = self.endian;
        let result = unpacker
            .unpack(packed, endian, |kind, misc, body| self.plain(Record { at, kind, misc, body }, sink));
        self.unpacker = Some(unpacker);
        result.map_err(|problem| damaged(at, problem))?
    }

    /// A record that is neither compressed nor followed by anything.
    fn plain(&mut self, record: Record<'_>, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let Record { at, kind, misc, body } = record;
        let mut bytes = Bytes::new(body, self.endian);
        let cut = || damaged(at, format!("a record of type {kind} is too short: {} bytes", body.len()));
        match kind {
            kind::SAMPLE => return self.sample(at, body, sink),
            kind::COMM => {
                let thread = bytes.u32().zip(bytes.u32()).ok_or_else(cut)?;
                let time = self.end_of(body).time;
                self.threads.named(time, thread, up_to_nul(bytes.rest), sink);
            }
            kind::FORK => {
                // u32 pid, parent's pid, tid, parent's tid.
                let (process, _) = bytes.u32().zip(bytes.u32()).ok_or_else(cut)?;
                let (tid, parent) = bytes.u32().zip(bytes.u32()).ok_or_else(cut)?;
                // Names have no times where records have none: then the order of the file is all there is.
                let time = self.end_of(body).time.and_then(|_| bytes.u64());
                self.threads.made(time, (process, tid), parent, sink);
            }
            kind::LOST => {
                let (id, count) = bytes.u64().zip(bytes.u64()).ok_or_else(cut)?;
                let end = self.end_of(body);
                let cpu = end.cpu.or_else(|| self.cpus.get(&id).copied()).unwrap_or(0);
                let time = end.time.unwrap_or(0);
                let [told, _] = self.lost.entry(cpu).or_default();
                *told = told.saturating_add(count);
                return sink.lost(At { buffer: BufferId::TOP, cpu, time }, Some(count));
            }
            kind::LOST_SAMPLES if misc & MISC_FILTERED == 0 => {
                let count = bytes.u64().ok_or_else(cut)?;
                let end = self.end_of(body);
                // perf before 6.9 gives all of them the CPU 0; the id knows better.
                let of_id = end.id.and_then(|id| self.cpus.get(&id).copied());
                let [_, counted] = self.lost.entry(of_id.or(end.cpu).unwrap_or(0)).or_default();
                *counted = counted.saturating_add(count);
            }
            kind::HEADER_ATTR => {
                let (attr, len) = Attr::read(body, self.endian).ok_or_else(cut)?;
                self.attr(attr, body.get(len..).unwrap_or_default(), sink);
            }
            kind::HEADER_FEATURE => {
                let number = bytes.u64().ok_or_else(cut)?;
                // Formats are in a record of their own.
                if number != u64::from(feature::TRACING_DATA) {
                    return self.feature(u32::try_from(number).unwrap_or(u32::MAX), bytes.rest, at, sink);
                }
            }
            kind::ID_INDEX => {
                // u64 count, then u64 id, index, CPU, thread of each.
                let count = bytes.u64().ok_or_else(cut)?;
                for _ in 0..count {
                    let Some((id, _)) = bytes.u64().zip(bytes.u64()) else { break };
                    let Some((cpu, _)) = bytes.u64().zip(bytes.u64()) else { break };
                    if let Ok(cpu) = u32::try_from(cpu) {
                        self.cpus.insert(id, cpu);
                    }
                }
            }
            simpleperf::START.. => return self.simpleperf(record, sink),
            kind::MMAP | kind::MMAP2 => self.counts.mappings += 1,
            kind::AUX => self.counts.aux += 1,
            kind::THROTTLE => self.counts.throttled += 1,
            kind::HEADER_TRACING_DATA | kind::AUXTRACE | kind::COMPRESSED | kind::COMPRESSED2 => {
                return Err(damaged(at, format!("a compressed record of type {kind}, which cannot be")));
            }
            // Ends of rounds, maps of CPUs and threads, and whatever else says nothing of events.
            _ => {}
        }
        Ok(())
    }

    /// A record that only simpleperf writes.
    fn simpleperf(&mut self, record: Record<'_>, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let Record { at, kind, body, .. } = record;
        let mut bytes = Bytes::new(body, self.endian);
        let cut = || damaged(at, format!("a record of type {kind} is too short: {} bytes", body.len()));
        let mut counted = || bytes.u32().and_then(|len| bytes.take(len as usize)).ok_or_else(cut);
        match kind {
            simpleperf::TRACING_DATA => self.tracing_data(counted()?, at, sink),
            simpleperf::KERNEL_SYMBOL => {
                sink.facts.kallsyms = counted()?.to_vec();
                Ok(())
            }
            simpleperf::SPLIT => {
                if (self.split.len() + body.len()) as u64 > MAX_SECTION {
                    return Err(damaged(at, "a record in pieces is longer than is believed"));
                }
                self.split.extend_from_slice(body);
                Ok(())
            }
            simpleperf::SPLIT_END => {
                let whole = std::mem::take(&mut self.split);
                let Some((kind, misc, size)) = head(&whole, self.endian) else { return Err(cut()) };
                let is_piece = matches!(kind, simpleperf::SPLIT | simpleperf::SPLIT_END);
                if size as usize != whole.len() || is_piece {
                    return Err(damaged(at, "the pieces of a record are not what it should be"));
                }
                self.plain(Record { at, kind, misc, body: whole.get(8..).unwrap_or_default() }, sink)
            }
            simpleperf::EVENT_ID => {
                let count = bytes.u64().ok_or_else(cut)?;
                for _ in 0..count {
                    let Some((index, id)) = bytes.u64().zip(bytes.u64()) else { break };
                    if let Some(index) = usize::try_from(index).ok().filter(|index| *index < self.attrs.len())
                    {
                        self.ids.insert(id, index);
                    }
                }
                Ok(())
            }
            // Files, symbols and call chains of user space.
            _ => Ok(()),
        }
    }

    /// What a record that is no sample ends with.
    fn end_of<'b>(&self, body: &'b [u8]) -> Sample<'b> {
        let attr = self.attrs.first();
        attr.map_or_else(Sample::default, |attr| Sample::at_end_of(attr, body, self.endian))
    }

    fn sample(&mut self, at: u64, body: &[u8], sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let counts = &mut self.counts;
        let Some(first) = self.attrs.first() else {
            return Err(damaged(at, "a sample before anything says what samples have"));
        };
        let attr = match id_of_sample(first, body, self.endian) {
            Some(id) => self.ids.get(&id).and_then(|index| self.attrs.get(*index)),
            // Without ids there is one event only.
            None => Some(first),
        };
        let Some(attr) = attr else {
            counts.unknown += 1;
            return Ok(());
        };
        let Some(tracepoint) = attr.tracepoint else {
            counts.others += 1;
            return Ok(());
        };
        let sample = Sample::read(attr, body, self.endian).ok_or_else(|| {
            damaged(at, format!("a sample of {} bytes is shorter than what it should have", body.len()))
        })?;
        let Some(event) = self.events.get(&tracepoint) else {
            counts.no_format += 1;
            return Ok(());
        };
        let Some(raw) = sample.raw.filter(|raw| raw.len() >= 8) else {
            counts.no_raw += 1;
            return Ok(());
        };
        let Some(time) = sample.time else {
            counts.no_time += 1;
            return Ok(());
        };
        let cpu = sample.cpu.or_else(|| sample.id.and_then(|id| self.cpus.get(&id).copied()));
        counts.no_cpu += u64::from(cpu.is_none());
        if let Some(thread) = sample.thread {
            self.threads.seen(thread, sink);
        }
        let place = At { buffer: BufferId::TOP, cpu: cpu.unwrap_or(0), time };
        sink.record(place, *event, raw)?;
        if sample.chain.is_empty() { Ok(()) } else { self.chain(place, raw, sample.chain, sink) }
    }

    /// The kernel's part of a call chain becomes a stack as ftrace has it, right behind its record.
    fn chain(&mut self, at: At, raw: &[u8], chain: &[u8], sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let mut frames = std::mem::take(&mut self.scratch);
        frames.clear();
        let (mut in_kernel, mut has_user) = (false, false);
        let mut bytes = Bytes::new(chain, self.endian);
        while let Some(address) = bytes.u64() {
            if address >= CONTEXT_MAX {
                in_kernel = address == CONTEXT_KERNEL;
            } else if in_kernel {
                frames.push(address);
            } else {
                has_user = true;
            }
        }
        self.counts.user_chains += u64::from(has_user);
        // The common fields are those of the event.
        let pid =
            raw.get(4..8).and_then(|pid| pid.try_into().ok()).map_or(0, |pid| self.endian.read_u32(pid));
        let byte = |at| raw.get(at).copied().unwrap_or(0);
        let common = Common { pid, flags: byte(2), preempt_count: byte(3) };
        let result = sink.stack(at, common, StackOf::Kernel, &frames);
        self.scratch = frames;
        result
    }

    /// Counts what is left to be counted.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        self.threads.finish(sink);
        for (cpu, [told, counted]) in &self.lost {
            // Losses are told when the next record has room; those at the end are in the counts only.
            sink.lost_sometime(BufferId::TOP, *cpu, Some(counted.saturating_sub(*told)));
        }
        let Counts {
            others,
            unknown,
            no_format,
            no_raw,
            no_time,
            no_cpu,
            user_chains,
            mappings,
            aux,
            aux_bytes,
            throttled,
        } = self.counts;
        sink.not_carried("samples of events that are no tracepoints", others);
        sink.not_carried("samples with an id that no event has", unknown);
        sink.not_carried("samples of tracepoints whose format the recording does not have", no_format);
        sink.not_carried("samples without the fields of their events (perf record --no-raw)", no_raw);
        sink.not_carried("samples without a time", no_time);
        sink.not_carried("CPUs of samples, which say none: they are with CPU 0", no_cpu);
        sink.not_carried("call chains of user space", user_chains);
        sink.not_carried("mappings of processes", mappings);
        sink.not_carried("records of hardware traces (AUX)", aux);
        sink.not_carried("bytes of hardware traces (AUX)", aux_bytes);
        sink.not_carried("notes that an event was throttled", throttled);
        let left = self.unpacker.as_ref().map_or(0, Unpacker::left);
        if left > 0 {
            let problem = format!("the compressed records end within one, after {left} bytes of it");
            return Err(ImportError::Damaged { format: FORMAT, at: "its end".to_owned(), problem });
        }
        if self.events.is_empty() {
            return Err(ImportError::Unsupported(format!(
                "this {FORMAT} has no tracepoints, whose samples are what can be imported: record some with \
                 perf record -e 'sched:*', for example"
            )));
        }
        Ok(())
    }
}

/// The clock of a number of `clock_gettime` (include/uapi/linux/time.h), by the name that tracefs has for it.
fn clock_name(clock: Option<i32>) -> &'static str {
    match clock {
        // The scheduler's clock, which tracefs calls so.
        None => "perf",
        Some(0) => "realtime",
        Some(1) => "mono",
        Some(4) => "mono_raw",
        Some(7) => "boot",
        Some(11) => "tai",
        Some(_) => "unknown",
    }
}
