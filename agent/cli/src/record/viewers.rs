//! `record --live` without an analysis: the trace that is written is read by viewers meanwhile.

use std::{io, net::SocketAddr, path::Path, time::Duration};

use super::super::{CliError, tell};
use capture::Session;
use ctf_writer::PacketFile;
use lttng_live::{Offer, Server};
use spec::RecordingSpec;

/// How long viewers may take to read the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those who read the trace while it is written.
pub(super) struct Viewers {
    server: Server,
    timer_us: u64,
    /// Until the recording ends.
    offer: Option<Offer>,
}

impl Viewers {
    /// Listens for viewers, if a recording has any: where the user says, or where they look first, or
    /// elsewhere if another program is there.
    pub(super) fn listen(spec: &RecordingSpec, bind: Option<SocketAddr>) -> Result<Option<Self>, CliError> {
        let Some(live_ns) = spec.file.live_ns else { return Ok(None) };
        let server = match (bind, Server::start(bind.unwrap_or(lttng_live::ADDRESS))) {
            (None, Err(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                Server::start(SocketAddr::new(lttng_live::ADDRESS.ip(), 0))
            }
            (_, started) => started,
        };
        let address = bind.unwrap_or(lttng_live::ADDRESS);
        let server = server.map_err(|error| {
            CliError::Usage(format!("--live: cannot listen for viewers at {address}: {error}"))
        })?;
        Ok(Some(Self { server, timer_us: live_ns / 1000, offer: None }))
    }

    /// Lets them read a recording, and tells how.
    pub(super) fn offer(&mut self, session: &Session, path: &Path, quiet: bool) {
        let Some(publication) = session.publication() else { return };
        let names = (lttng_live::host_name(), session_name(path));
        let names = (names.0.as_str(), names.1.as_str());
        let offer = self.server.sessions().offer(names, self.timer_us, Box::new(PacketFile::open));
        let address = self.server.address();
        if let Some(warning) = lttng_live::warning(address) {
            tell(&format!("tracer-agent: {warning}"));
        }
        if !quiet {
            let url = lttng_live::url(address, &offer);
            // Without the parameter it would wait for another recording of the name.
            tell(&format!(
                "tracer-agent: read it meanwhile with\n  babeltrace2 --input-format=lttng-live {url} \
                 --params='session-not-found-action=\"end\"'"
            ));
        }
        offer.add(publication.clone());
        self.offer = Some(offer);
    }

    /// Lets them read the end of a recording that is written, which no one else may begin to read.
    pub(super) fn end(mut self) {
        drop(self.offer.take());
        if !self.server.drain(PATIENCE) {
            tell("tracer-agent: --live: a viewer has not read all of it; it is in the trace");
        }
    }
}

/// The name of a recording for viewers, who write it in addresses: that of its directory.
fn session_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = name.chars().map(plain).take(200).collect();
    if name.is_empty() { super::trace::DIRECTORY.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_written_in_addresses() {
        assert_eq!(session_name("/tmp/my trace/?".as_ref()), "_");
        assert_eq!(session_name("a/b.ctf/".as_ref()), "b.ctf");
        assert_eq!(session_name("/".as_ref()), "trace");
    }
}
