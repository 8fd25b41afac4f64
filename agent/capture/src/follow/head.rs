//! What describes the events of a recording: a trace file without data.

use std::io::Cursor;

use agent_ebpf::PAGE_SIZE;

use crate::finish::{describe, host, options};
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

/// The bytes of that file, with the initial state if that is known, or else with the host. Names and symbols
/// are not in it: they become known later.
pub(crate) fn bytes(manifest: &Manifest, state: Option<Vec<u8>>) -> Result<Vec<u8>, WriteError> {
    let compression = Compression::None;
    let setup = Setup { endian: Endian::Little, page_size: PAGE_SIZE as u32, compression };
    let mut writer = Writer::create(Cursor::new(Vec::new()), setup)?;
    describe(&mut writer, manifest, &[], &Cmdlines::new())?;
    let state = state.map(|bytes| FileOption::Unknown { id: InitialState::OPTION, bytes });
    let state = state.map_or_else(|| host(manifest), Ok)?;
    for option in options(manifest, &Stats::default()).into_iter().chain([state]) {
        writer.option(&option)?;
    }
    for (name, _) in manifest.buffers() {
        let buffer = Buffer { name, clock: &manifest.clock_name, page_size: PAGE_SIZE as u32 };
        writer.begin_buffer(buffer)?.finish()?;
    }
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use tracedat::initial_state::Host;
    use tracedat::layout;
    use tracedat::reader::Reader;

    use super::*;

    #[test]
    fn a_head_has_the_host_before_the_state_is_known() {
        let of = |boot_id: &str| Host {
            boot_id: boot_id.to_owned(),
            version: "#1 SMP".to_owned(),
            ..Host::default()
        };
        let manifest = Manifest {
            host: of("at the start"),
            header_page: layout::header_page_text(PAGE_SIZE as u32),
            clock_name: "mono".to_owned(),
            cpu_count: 1,
            ..Manifest::default()
        };
        let host = |state: Option<InitialState>| {
            let state = state.map(|state| state.encode().unwrap());
            Reader::open(bytes(&manifest, state).unwrap().as_slice()).unwrap().host().unwrap()
        };
        assert_eq!(host(None), Some(of("at the start")));
        let state = InitialState { host: of("in the state"), ..InitialState::default() };
        assert_eq!(host(Some(state)), Some(of("in the state")));
    }
}
