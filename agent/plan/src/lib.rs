//! Plans a capture on this kernel from a specification.
//!
//! **Data flow:** [`RecordingSpec`] and the running kernel → [`Plan::make`] →
//! [`CaptureOptions`], ready for [`capture::Session`]. [`addition`](addition()) does
//! the same for events that join a running recording.
//!
//! **Guarantees**
//!
//! - Planning changes nothing: it attaches no program and writes no file.
//! - An error names the field of the specification ([`PlanError`]).
//! - Everything that a recording will lack is in [`Plan::notes`].
//!
//! **Must not know:** command lines, the daemon, the rings.
//!
//! # Example
//!
//! ```no_run
//! use plan::Plan;
//! use spec::RecordingSpec;
//!
//! let spec = RecordingSpec::from_json(
//!     br#"{"version": 1, "channels": [{"rules": [{"what": {"events": "sched:*"}}]}], "file": {"path": "trace.dat"}}"#,
//! )?;
//! let plan = Plan::make(&spec)?;
//! println!("{} events", plan.options.channels[0].events.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `rules` | the rules of a channel |
//! | `events` | the selected events, and the formats to store |
//! | `formats` | the formats of several channels, in one file |
//! | `addition` | more events for a running recording |
//! | `probes` | probes and tracers |
//! | `maps` | counting |
//! | `snapshot` | the event that requests snapshots |
//! | `stacks` | stacks that follow events |
//! | `edges` | the events at which a recording begins and ends |
//! | `scope` | whose events are recorded |
//! | `buffers` | rings and their CPUs |
//! | `constants` | values of the names in formats |
//! | `check` | rules that are checked before there is a recording of them |
//! | `watch` | watched events, without a recording |
//! | `error` | reasons why there is no plan |

#![forbid(unsafe_code)]

mod addition;
mod buffers;
mod check;
mod constants;
mod edges;
mod error;
mod events;
mod formats;
mod maps;
mod probes;
mod rules;
mod scope;
mod snapshot;
mod stacks;
mod watch;

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

pub use addition::addition;
pub use check::check_rules;
pub use edges::Edges;
pub use error::{PlanError, Why};
pub use events::{EventPlan, NameTaken, UnusableFormat};
pub use scope::tracking;
pub use stacks::StackError;
pub use watch::{Watched, watch_options, watch_parts, watch_rule};

use self::{
    constants::KernelConstants,
    error::{InChannel, InMap},
    events::{Lanes, Recorded, Wanted},
    formats::{Earlier, Formats},
    probes::Probes,
    rules::Rules,
};
use attach::KernelLayout;
use capture::{
    CaptureOptions, ChannelOptions, CtfOptions, Destination, Manifest, ProgramFacts, Rotation, SetOptions,
};
use compile::context::Counters;
use compile::fast::FastLane;
use compile::filter::Facts;
use ctf_writer::{Ctf, FileLimits, Shape};
use elf::Processes;
use ftrace_event::{Names, NoNames};
use kernel::btf::{Btf, BtfError};
use kernel::cpus::Cpus;
use kernel::events::Catalogue;
use kernel::tracefs::Tracefs;
use spec::EventSelector;
use spec::StackKind;
use spec::{
    ChannelSpec, Field, FileSpec, Kallsyms, MapSpec, Problem, RecordingSpec, RotationSpec, SWITCH_NS_MIN,
    ScopeSpec, TraceFormat, why,
};
use stdx::output::Output;

// The specification knows neither the programs nor the layout of traces.
const _: () = assert!(spec::ROTATION_BYTES_MIN == 2 * agent_ebpf::PAGE_SIZE as u64);
const _: () = assert!(spec::PACKET_BYTES == ctf_writer::PACKET_BYTES as u64);

/// A recording that is ready to start.
#[derive(Debug)]
pub struct Plan {
    /// What the capture does.
    pub options: CaptureOptions,
    /// The processes of [`ScopeSpec::pids`], as pidfds: when all of them have ended, nothing more comes.
    pub followed: Vec<OwnedFd>,
    /// The events at which it begins and ends, if there are any.
    pub edges: Edges,
    /// What the user should know: events that are left out, and what the file will lack.
    pub notes: Vec<String>,
}

impl Plan {
    /// Plans a recording on the running kernel.
    ///
    /// # Errors
    /// The specification contradicts itself, names what this kernel does not have, or asks for what it or
    /// this process cannot do.
    pub fn make(spec: &RecordingSpec) -> Result<Self, PlanError> {
        spec.check()?;
        let RecordingSpec { version: _, channels, maps, scope, limits: _, file, rotation } = spec;
        if file.path.as_os_str() == "-" {
            return Err(Problem { at: Field::File("path"), why: why::STANDARD_OUTPUT }.into());
        }
        let destination = match (rotation, file.format) {
            (None, TraceFormat::Dat) => Output::at(&file.path)
                .map(Destination::File)
                .map_err(|error| PlanError::file("path", error))?,
            _ => Destination::Directory(file.path.clone()),
        };
        let followed = scope::open_processes(scope)?;
        let sees_kernel_pids = scope::check_pid_namespace(scope)?;
        let cpus = Cpus::read().map_err(|error| PlanError::whole(Why::Unsupported(error.to_string())))?;
        let mut notes = Vec::new();
        let chosen = buffers::choose_cpus(scope.cpus.as_ref(), &cpus, &mut notes)?;
        let tasks = scope::task_filter(scope);
        let traits = scope::traits(scope)?;

        let possible_cpus = cpus.possible.highest().map_or(1, |highest| highest + 1);
        let counters = Arc::new(Counters::new(cpus.online.iter().collect(), possible_cpus));
        let tracefs = Tracefs::open().map_err(PlanError::whole)?;
        let btf = Btf::of_kernel();
        let processes = scope::processes(tasks.as_ref(), scope.only_command, traits.as_ref());
        let kernel = Kernel::look_at(&tracefs, btf.as_ref(), &counters, processes)?;
        let mut formats = Formats::default();
        let mut planned = Vec::with_capacity(channels.len());
        for (number, channel) in channels.iter().enumerate() {
            let before = Before { earlier: formats.earlier(), ..Before::default() };
            let mut events = kernel.events_of(InChannel(number), before, channel, file, &mut notes)?;
            formats.add(InChannel(number), channel, &mut events)?;
            planned.push(channel_options(
                InChannel(number),
                channel,
                events,
                (chosen.iter().count(), file.live_ns),
            )?);
        }
        let facts = Facts::new(file.clock, kernel.btf.ok());
        let map = |(number, map): (usize, &MapSpec)| {
            kernel.map(InMap(number, &map.name), map, &facts, possible_cpus, &mut notes)
        };
        let maps = maps.iter().enumerate().map(map).collect::<Result<Vec<_>, _>>()?;
        let counted = maps.iter().map(|map| &map.channel);
        let taken: Vec<_> = planned.iter().chain(counted).flat_map(|channel| &channel.events).collect();
        let edges = edges::plan(&kernel, spec, &taken)?;
        let layout = match &btf {
            Ok(btf) => KernelLayout::from_btf(btf),
            Err(error) => {
                without_btf(scope, error, &mut notes)?;
                KernelLayout::default()
            }
        };
        scope::check_ids(scope, &layout)?;
        note_symbols(file.kallsyms, &planned, &mut notes);
        let mut manifest = Manifest::of_kernel(&tracefs, file.clock, &file.path, file.compression)
            .map_err(PlanError::whole)?;
        manifest.cpu_count = possible_cpus;
        manifest.systems = formats.into_systems();
        manifest.wall_time = file.date;
        manifest.only = scope.told();
        if file.proc_map {
            manifest.proc_maps = scope::process_maps(scope);
        }
        let options = CaptureOptions {
            channels: planned,
            maps,
            counters,
            clock: file.clock,
            cpus: chosen.iter().collect(),
            possible_cpus: manifest.cpu_count,
            tasks,
            scope: traits,
            // Elsewhere our id is another process's.
            exclude_self: !scope.own_threads && sees_kernel_pids,
            layout,
            symbols: file.kallsyms,
            destination,
            rotation: rotation.map(rotation_of),
            first_archive: 1,
            trace: trace_of(spec),
            manifest,
        };
        Ok(Self { options, followed, edges, notes })
    }
}

/// A channel whose events are planned.
fn channel_options(
    at: InChannel,
    spec: &ChannelSpec,
    plan: EventPlan,
    (cpus, live_ns): (usize, Option<u64>),
) -> Result<ChannelOptions, PlanError> {
    let trace_name = if spec.trace_name.is_empty() { &spec.name } else { &spec.trace_name };
    Ok(ChannelOptions {
        sets: spec.own_rings.map(|of| SetOptions::new(of, cpus, trace_name)),
        name: spec.name.clone(),
        snapshot: snapshot::rule(at, spec, &plan)?,
        events: plan.events,
        probes: plan.probes,
        ring_pages: buffers::ring_pages(at, spec.ring_bytes)?,
        overwrite: spec.overwrite,
        poll_interval: spec.poll_ns.map(Duration::from_nanos),
        switch_period: switch_period(spec, live_ns),
        cap: spec.keep_bytes,
        hooks: plan.hooks,
        strings: spec.strings,
        spare_events: spec.spare_events.try_into().unwrap_or(usize::MAX),
        lane: spec.lane,
        contexts: spec.contexts.clone(),
        shared_contexts: plan.shared_contexts,
        inherited: ProgramFacts::default(),
        stacks: [
            (StackKind::Kernel, spec.kernel_stacks.clone()),
            (StackKind::User, spec.user_stacks.clone()),
        ],
        map: None,
    })
}

/// What part of a live timer an event waits for at each place on its way: in the open page of its ring, until
/// somebody looks for what is stored, and in the open packet. Together they are less than the timer.
const LIVE_WAITS: u64 = 4;

/// How late the events of a channel are stored at most. Viewers wait for that, and for their packets.
fn switch_period(spec: &ChannelSpec, live_ns: Option<u64>) -> Option<Duration> {
    let chosen = Some(spec.switch_ns).filter(|ns| *ns != 0);
    let for_viewers = live_ns.map(|ns| (ns / LIVE_WAITS).max(SWITCH_NS_MIN));
    chosen.into_iter().chain(for_viewers).min().map(Duration::from_nanos)
}

/// How it is written as a trace, if it is.
fn trace_of(spec: &RecordingSpec) -> Option<CtfOptions> {
    let naming = match spec.file.format {
        TraceFormat::Dat => return None,
        TraceFormat::Lttng => Ctf::Lttng,
        TraceFormat::Ctf => Ctf::Kernel,
        TraceFormat::Ctf2 => Ctf::Kernel2,
    };
    let of_channel = |channel: &ChannelSpec| {
        let packet = channel.packet_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let (size, count) = (channel.tracefile_bytes, channel.tracefile_count);
        let files = FileLimits { size, count, is_elsewhere: false };
        (channel.name.clone(), Shape { packet: packet.unwrap_or(Shape::default().packet), files })
    };
    let stored = spec.channels.iter().filter(|channel| !channel.overwrite);
    Some(CtfOptions {
        naming,
        shapes: spec.channels.iter().map(of_channel).collect(),
        flush: stored.filter_map(|channel| switch_period(channel, spec.file.live_ns)).min(),
        keep: spec.rotation.map(rotation_of).and_then(|rotation| rotation.keep),
        live: spec.file.live_ns.is_some(),
        session: None,
    })
}

fn rotation_of(spec: RotationSpec) -> Rotation {
    let RotationSpec { size_bytes, period_ns, keep } = spec;
    Rotation {
        bytes: size_bytes,
        period: period_ns.map(Duration::from_nanos),
        keep: keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX)),
    }
}

/// What there is before the events of a plan.
#[derive(Default)]
struct Before<'a> {
    /// The events of other channels.
    earlier: Earlier,
    /// Events that are recorded into the channel already.
    recorded: Recorded,
    /// The channel, if it is recorded to already.
    running: Option<&'a ChannelOptions>,
}

/// What plans of channels need of the running kernel.
struct Kernel<'a> {
    tracefs: &'a Tracefs,
    catalogue: Catalogue,
    btf: Result<&'a Btf, &'a BtfError>,
    counters: &'a Arc<Counters>,
    /// The processes that are recorded.
    processes: Processes,
}

impl<'a> Kernel<'a> {
    fn look_at(
        tracefs: &'a Tracefs,
        btf: Result<&'a Btf, &'a BtfError>,
        counters: &'a Arc<Counters>,
        processes: Processes,
    ) -> Result<Self, PlanError> {
        let catalogue = Catalogue::read(tracefs).map_err(PlanError::whole)?;
        Ok(Self { tracefs, catalogue, btf, counters, processes })
    }

    /// The events, probes and stacks of a channel, after those that there are.
    fn events_of(
        &self,
        at: InChannel,
        before: Before<'_>,
        channel: &ChannelSpec,
        file: &FileSpec,
        notes: &mut Vec<String>,
    ) -> Result<EventPlan, PlanError> {
        let facts = Facts::new(file.clock, self.btf.ok());
        let specs = snapshot::with_its_event(at, channel, &self.catalogue)?;
        let of_snapshot = |error| snapshot::of_its_rule(channel, error);
        let rules = Rules::make(at, (&channel.contexts, &specs), (&facts, self.counters));
        let rules = rules.map_err(of_snapshot)?;
        let constants = self.btf.map(KernelConstants::new);
        let names: &dyn Names = constants.as_ref().map_or(&NoNames, |constants| constants);
        let wanted = Wanted { rules: &rules, facts: &facts, names, strings: channel.strings };
        let selection = self
            .catalogue
            .select(&rules.selection(), channel.ignore_unknown)
            .map_err(|error| at.field("rules", error))?;
        let lanes = Lanes {
            choice: channel.lane,
            fast: match self.btf {
                Ok(btf) => FastLane::new(btf).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            },
        };
        let mut events = EventPlan::make(self.tracefs, &selection, file.all_formats, lanes, wanted)
            .map_err(of_snapshot)?;
        // What is added later has those of the channel, and perhaps no others.
        let shared = if channel.spare_events == 0 { rules.in_all() } else { rules.of_channel() };
        events.shared_contexts = shared.format(&facts);
        let Before { earlier, recorded, running } = before;
        events.earlier = earlier;
        events.leave_out(recorded, &rules)?;
        notes.extend(selection.unknown.iter().map(|unknown| format!("ignored: {unknown}")));
        note_absent(&selection.absent, notes);
        note_unusable(&events, notes);
        let Self { tracefs, btf, processes, .. } = self;
        let probes = Probes { rules: &rules, facts: &facts, tracefs, btf: *btf, processes };
        notes.extend(probes.add_to(&mut events)?);
        match running {
            None => stacks::apply(channel, at, self.tracefs, &mut events)?,
            Some(running) => stacks::follow(running, at, &mut events)?,
        }
        Ok(events)
    }
}

/// Says which optional events this kernel lacks.
fn note_absent(absent: &[EventSelector], notes: &mut Vec<String>) {
    if !absent.is_empty() {
        let names: Vec<_> = absent.iter().map(ToString::to_string).collect();
        notes.push(format!("not recorded, as this kernel does not have them: {}", names.join(", ")));
    }
}

/// Says which events of wildcards are left out.
fn note_unusable(events: &EventPlan, notes: &mut Vec<String>) {
    let mut never = Vec::new();
    for (name, reason) in &events.unusable {
        match reason {
            UnusableFormat::NeverHolds(_) => never.push(name.to_string()),
            _ => notes.push(format!("not recorded: {name}: {reason}")),
        }
    }
    if !never.is_empty() {
        notes.push(format!(
            "not recorded: {} events whose filter can never match, because they lack its fields, or have others of \
             these names: {}",
            never.len(),
            never.join(", ")
        ));
    }
}

fn note_symbols(when: Kallsyms, channels: &[ChannelOptions], notes: &mut Vec<String>) {
    let mut events = channels.iter().flat_map(|channel| &channel.events);
    if when.wanted(|| events.any(|event| event.prints_symbols))
        && let Some(restriction) = kernel::kallsyms::restriction()
    {
        notes.push(format!("no kernel symbols in the file: {restriction}"));
    }
}

fn without_btf(scope: &ScopeSpec, error: &BtfError, notes: &mut Vec<String>) -> Result<(), PlanError> {
    if scope.children {
        let why = format!("the kernel's type information is needed to follow child processes: {error}");
        return Err(PlanError::scope("children", Why::Unsupported(why)));
    }
    notes.push(format!(
        "{error}; without it, context flags are unknown, events of interrupts are left out while one of the \
         recorder's own threads or an excluded one has the CPU, threads that start while recording are named only \
         from their first rename on, and threads of chosen processes that start then are not recorded"
    ));
    Ok(())
}
