//! The state of the machine, collected while recording: neither the start nor the stop waits for it. More
//! states are collected when somebody asks for them, who waits.

mod collect;

pub(super) use collect::host;

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{Spool, SpoolError, spool::has_room_for};
use ftrace_event::Cmdlines;
use spec::TraceClock;
use stdx::output::Directory;
use tracedat::initial_state::InitialState;

/// Most that is read of a spool that may be another user's: many times what a machine has.
const MOST_BYTES: u64 = 256 << 20;

/// Name of the file in the spool.
pub(super) const NAME: &str = "state";

/// The most states of an archive beside the first one: each is an option of its file.
pub(super) const LATER_MAX: u32 = 1024;

/// Name of the file with a later state, which are counted from 1 on.
pub(super) fn later_name(number: u32) -> String {
    format!("{NAME}.{number}")
}

/// Why the state is not stored.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It does not record: it has not been started, or is paused.
    #[error("nothing is being recorded")]
    NotRecording,
    /// There are so many of them already.
    #[error("{LATER_MAX} states were stored since the last rotation; rotate to store more")]
    TooMany,
    /// All of the disk that is free is for the data.
    #[error("the disk has no room for the state of the machine beside what is recorded")]
    NoRoom,
    /// It cannot be stored.
    #[error("cannot store the state of the machine: {0}")]
    Store(#[from] SpoolError),
}

/// Collects the state in a thread of its own.
#[derive(Debug)]
pub(super) struct StateReader {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl StateReader {
    /// Starts collecting into `spool`. A failure leaves no file, and then the trace file has no initial
    /// state; so does a disk that is nearly full: all of it is the data's.
    pub(super) fn start(spool: &Spool, clock: TraceClock) -> Self {
        let files = spool.files().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("state".into()).spawn(move || {
            if let Ok(bytes) = collect::collect(clock, &stopped).encode()
                && has_room_for(&files, bytes.len() as u64)
            {
                // What could not be written whole is removed.
                let _ = files.write_whole(NAME, |file| file.write_all(&bytes));
            }
        });
        Self { thread: thread.ok(), stop }
    }

    /// Waits until it has collected everything.
    pub(super) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // As when it is dropped.
            let _ = thread.join();
        }
    }
}

/// Ends collecting. What is there by then is stored.
impl Drop for StateReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; the trace file then has no initial state.
            let _ = thread.join();
        }
    }
}

/// Collects the state as it is now, and stores it as the one of this number.
pub(super) fn store_later(spool: &Spool, number: u32, clock: TraceClock) -> Result<(), StateError> {
    if number > LATER_MAX {
        return Err(StateError::TooMany);
    }
    let name = later_name(number);
    let failed = SpoolError::io("write", spool.file(&name));
    let bytes = match collect::collect(clock, &AtomicBool::new(false)).encode() {
        Ok(bytes) => bytes,
        Err(error) => return Err(failed(error).into()),
    };
    if !has_room_for(spool.files(), bytes.len() as u64) {
        return Err(StateError::NoRoom);
    }
    Ok(spool.files().write_whole(&name, |file| file.write_all(&bytes)).map_err(failed)?)
}

/// The data of the option with the first one, if there are any.
pub(super) fn load(spool: &Spool) -> Option<Vec<u8>> {
    spool.files().read(NAME).ok()
}

/// Those of the later ones, in the order of time, up to the first that makes no sense or is too much.
pub(super) fn load_later(spool: &Spool) -> Vec<Vec<u8>> {
    let mut left = MOST_BYTES;
    let load = |number| {
        let bytes = named(spool.files(), &later_name(number))?;
        left = left.checked_sub(bytes.len() as u64)?;
        Some(bytes)
    };
    (1..=LATER_MAX).map_while(load).collect()
}

/// The data of the first one, of a spool that may be another user's: none if they make no sense.
pub(super) fn of(files: &Directory) -> Option<Vec<u8>> {
    named(files, NAME)
}

/// A later state, if it is there by now and makes sense.
pub(super) fn later(files: &Directory, number: u32) -> Option<InitialState> {
    let bytes = (number <= LATER_MAX).then(|| read(files, &later_name(number)))??;
    InitialState::decode(&bytes).ok()
}

fn named(files: &Directory, name: &str) -> Option<Vec<u8>> {
    read(files, name).filter(|bytes| InitialState::decode(bytes).is_ok())
}

fn read(files: &Directory, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    files.open_file(OsStr::new(name)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Names of threads that nothing else has told of: those that states have.
pub(super) fn add_names(states: &[Vec<u8>], names: &mut Cmdlines) {
    for state in states.iter().filter_map(|bytes| InitialState::decode(bytes).ok()) {
        for thread in state.threads {
            if thread.tid != 0 && names.get(thread.tid).is_none() {
                names.insert(thread.tid, thread.comm.as_bytes());
            }
        }
    }
}
