//! The control files of the initial state.
//!
//! The document has two, for interrupts and for processes. Modules and network interfaces come with the
//! interrupts.

use super::super::payload::Payload;
use super::Trace;
use super::facilities::State;
use recording::error::ExportError;
use recording::snapshot::Snapshot;
use stdx::output::Directory;

/// Writes the files into the directory. Without a snapshot they have no events.
pub(super) fn write(trace: &Trace<'_>, first: u64, dir: &Directory) -> Result<(), ExportError> {
    let snapshot = Snapshot::of(trace.recording, trace.job);
    let told = snapshot.as_ref().map_or(first, |snapshot| snapshot.time.max(first));
    for (name, fill) in [("interrupts", devices as Fill), ("processes", processes)] {
        let (mut file, path) = trace.tracefile(dir, name)?;
        let mut result = Ok(true);
        if let Some(snapshot) = &snapshot {
            fill(snapshot, &mut Payload::new(trace.layout.endian, 0), &mut |state, payload| {
                if result.is_ok() {
                    result = file.event(told, trace.facilities.state(state), payload.bytes());
                }
            });
        }
        let result = result.and_then(|_| file.finish(first));
        result.map_err(ExportError::io("write", &path))?;
    }
    Ok(())
}

/// Hands out each event of a file.
type Fill = fn(&Snapshot, &mut Payload, &mut dyn FnMut(State, &Payload));

fn devices(snapshot: &Snapshot, payload: &mut Payload, out: &mut dyn FnMut(State, &Payload)) {
    for line in &snapshot.state.interrupts {
        // How often it came is not known.
        payload.clear().number(line.irq.into(), 4).number(0, 4);
        payload.text(line.chip.as_bytes()).text(line.actions.join(",").as_bytes());
        out(State::Interrupt, payload);
    }
    for module in &snapshot.state.modules {
        payload.clear().text(module.name.as_bytes()).number(module.size, 8).number(module.references, 4);
        out(State::Module, payload);
    }
    for interface in &snapshot.state.interfaces {
        for address in &interface.ipv4 {
            payload.clear().text(interface.name.as_bytes()).number(interface.index.into(), 4);
            payload.number(u32::from(*address).into(), 4);
            out(State::Interface, payload);
        }
    }
}

fn processes(snapshot: &Snapshot, payload: &mut Payload, out: &mut dyn FnMut(State, &Payload)) {
    for thread in &snapshot.state.threads {
        payload.clear().text(thread.comm.as_bytes());
        // Who traces it is not known.
        for number in [thread.tid, Snapshot::parent(thread), 0] {
            payload.number(number.into(), 4);
        }
        // Real, effective, saved and file system numbers: the real one is known.
        for number in [thread.uid, thread.gid] {
            for _ in 0..4 {
                payload.number(number.into(), 4);
            }
        }
        let state = match thread.state.as_str() {
            "R" => 0,
            "D" => 2,
            "Z" | "X" => 3,
            "t" | "T" => 4,
            _ => 1,
        };
        payload.number(state, 4);
        out(State::Process, payload);
    }
}
