//! What describes the events of a recording: a trace file without data.

use std::io::Cursor;

use agent_ebpf::PAGE_SIZE;

use crate::finish::{describe, options};
use crate::{Manifest, Stats};
use ftrace_event::{Cmdlines, Endian};
use tracedat::initial_state::InitialState;
use tracedat::reader::ReadError;
use tracedat::{Buffer, Compression, FileOption, Setup, WriteError, Writer};

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

/// The bytes of that file, with the initial state if that is known. Names and symbols are not in it: they
/// become known later.
pub(crate) fn bytes(manifest: &Manifest, state: Option<Vec<u8>>) -> Result<Vec<u8>, WriteError> {
    let compression = Compression::None;
    let setup = Setup { endian: Endian::Little, page_size: PAGE_SIZE as u32, compression };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup)?;
    describe(&mut writer, manifest, &[], &Cmdlines::new())?;
    let state = state.map(|bytes| FileOption::Unknown { id: InitialState::OPTION, bytes });
    for option in options(manifest, &Stats::default()).into_iter().chain(state) {
        writer.option(&option)?;
    }
    for (name, _) in manifest.buffers() {
        let buffer = Buffer { name, clock: &manifest.clock_name, page_size: PAGE_SIZE as u32 };
        writer.begin_buffer(buffer)?.finish()?;
    }
    Ok(writer.finish()?.into_inner())
}
