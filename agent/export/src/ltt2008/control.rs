//! The control files: what events there are, and the state of the system at the start.
//!
//! Readers want `facilities_N` for every CPU number up to the highest, even of CPUs that do not exist, and no
//! file that ends with an empty block: a file without events has a heartbeat.

use std::fs::File;

use super::super::payload::Payload;
use super::block::Tracefile;
use super::layout::Start;
use super::marker::{CORE, CORE_FORMAT, CORE_HEARTBEAT, CORE_ID, Declaration, StateMarker};
use super::{PAGE, Trace};
use recording::error::ExportError;
use recording::snapshot::Snapshot;
use recording::staging::{create_dir, create_file};
use stdx::output::Directory;

/// The soft interrupts, by number (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Files beside `facilities`.
const FILES: [&str; 4] = ["processes", "interrupts", "modules", "network"];

/// The events of a control file.
struct ControlFile<'t> {
    trace: &'t Trace<'t>,
    payload: Payload,
    events: Vec<([u8; 2], Vec<u8>)>,
}

impl<'t> ControlFile<'t> {
    fn new(trace: &'t Trace<'t>) -> Self {
        let payload = Payload::new(trace.layout.endian, trace.layout.field_alignment);
        Self { trace, payload, events: Vec::new() }
    }

    fn add(&mut self, id: [u8; 2], fill: impl FnOnce(&mut Payload)) {
        fill(self.payload.clear());
        self.events.push((id, self.payload.bytes().to_vec()));
    }

    fn declare(&mut self, declarations: &[Declaration]) {
        let (id_id, format_id) = (self.trace.markers.core(CORE_ID), self.trace.markers.core(CORE_FORMAT));
        let (long, alignment) = (self.trace.layout.long_size, self.trace.layout.field_alignment as u8);
        let endian = self.trace.layout.endian;
        for Declaration { id, name, format } in declarations {
            self.add(id_id, |payload| {
                // int, long, pointer and size_t
                payload.text(name.as_bytes()).number(endian.read_u16(*id).into(), 2);
                payload.raw(&[4, long, long, long, alignment]);
            });
            self.add(format_id, |payload| {
                payload.text(name.as_bytes()).text(format.as_bytes());
            });
        }
    }

    /// Writes the file, its events at this time, in the smallest blocks that they fit into.
    fn write(self, cycles: u64, dir: &Directory, name: &str) -> Result<(), ExportError> {
        let Self { trace, mut events, .. } = self;
        let heartbeat = trace.markers.core(CORE_HEARTBEAT);
        if events.is_empty() {
            events.push((heartbeat, Vec::new()));
        }
        let longest = events.iter().map(|(_, payload)| payload.len()).max().unwrap_or(0);
        let block = Tracefile::<File>::block_of(trace.layout, longest).next_multiple_of(PAGE as usize);
        let (out, path) = create_file(dir, name)?;
        let mut file = Tracefile::new(trace.layout, std::io::BufWriter::new(out), block, heartbeat);
        for (id, payload) in &events {
            file.event(cycles, *id, payload).map_err(ExportError::io("write", &path))?;
        }
        file.finish().map(drop).map_err(ExportError::io("write", path))
    }
}

/// Writes the directory `control`.
pub(super) fn write(trace: &Trace<'_>, start: &Start, dir: &Directory) -> Result<(), ExportError> {
    let dir = create_dir(dir, "control")?;
    let highest = trace.recording.cpu_streams().iter().map(|cpu_stream| cpu_stream.cpu).max().unwrap_or(0);
    let declared = trace.markers.declared();
    let snapshot = Snapshot::of(trace.recording, trace.job);
    // Viewers take the state as that at the time of its events.
    let told = snapshot.as_ref().map_or(start.cycles, |snapshot| snapshot.time.max(start.cycles));
    for cpu in 0..=highest {
        let mut facilities = ControlFile::new(trace);
        // Markers are those of the trace, wherever they are declared.
        facilities.declare(if cpu == 0 { declared } else { &declared[..CORE.len().min(declared.len())] });
        facilities.write(start.cycles, &dir, &format!("facilities_{cpu}"))?;
        for name in FILES {
            let mut events = ControlFile::new(trace);
            if cpu == 0 {
                fill(&mut events, name, snapshot.as_ref());
            }
            let cycles = if events.events.is_empty() { start.cycles } else { told };
            events.write(cycles, &dir, &format!("{name}_{cpu}"))?;
        }
    }
    Ok(())
}

/// Adds what a control file holds.
fn fill(events: &mut ControlFile<'_>, name: &str, snapshot: Option<&Snapshot>) {
    let state = snapshot.map(|snapshot| &snapshot.state);
    let marker = |marker| events.trace.markers.state(marker);
    let (process, end) = (marker(StateMarker::ProcessState), marker(StateMarker::StatedumpEnd));
    let (interrupt, module) = (marker(StateMarker::Interrupt), marker(StateMarker::Module));
    let interface = marker(StateMarker::NetworkInterface);
    match name {
        "processes" => {
            for thread in state.iter().flat_map(|state| &state.threads) {
                events.add(process, |payload| {
                    payload.number(thread.tid.into(), 4).number(Snapshot::parent(thread).into(), 4);
                    payload.text(thread.comm.as_bytes()).number(u64::from(thread.kernel), 4);
                    // Mode and submode of what it executes: unknown.
                    payload.number(0, 4).number(0, 4);
                    payload.number(status(&thread.state), 4).number(thread.tgid.into(), 4);
                });
            }
            events.add(end, |_| ());
        }
        "interrupts" => {
            softirqs(events);
            for line in state.iter().flat_map(|state| &state.interrupts) {
                events.add(interrupt, |payload| {
                    payload.text(line.chip.as_bytes()).text(line.actions.join(",").as_bytes());
                    payload.number(line.irq.into(), 4);
                });
            }
        }
        "modules" => {
            for loaded in state.iter().flat_map(|state| &state.modules) {
                events.add(module, |payload| {
                    payload.text(loaded.name.as_bytes()).number(loaded.size, 8).number(loaded.references, 4);
                });
            }
        }
        _ => {
            for found in state.iter().flat_map(|state| &state.interfaces) {
                for address in &found.ipv4 {
                    events.add(interface, |payload| {
                        payload.text(found.name.as_bytes()).number(u32::from(*address).into(), 4);
                        payload.number(found.index.into(), 4);
                    });
                }
            }
        }
    }
}

/// What a task does, as the state dumps of LTTng number it: 1 waits for its first run, 2 waits for a CPU, 3
/// exits, 4 is a zombie, 5 waits, 6 runs, 7 is dead. The letters are those of /proc/PID/stat.
fn status(letter: &str) -> u64 {
    match letter {
        "R" => 2,
        "Z" => 4,
        "X" | "x" => 7,
        "" => 0,
        _ => 5,
    }
}

fn softirqs(events: &mut ControlFile<'_>) {
    for (number, name) in (0..).zip(SOFTIRQS) {
        events.add(events.trace.markers.state(StateMarker::SoftirqVector), |payload| {
            payload.number(number, 4).number(0, 8).text(name.as_bytes());
        });
    }
}
