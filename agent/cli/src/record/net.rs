//! `record -N` and `-V`: the recording goes to a listener of trace-cmd while it is made.
//!
//! It is kept in a private directory meanwhile, as for `-o -`, and sent by a thread of its own.

use clap::Args;

use super::{super::CliError, OUTPUT};
use spec::{ChannelSpec, RecordingSpec};
use tracecmd::send::{Greeted, SendError};
use tracecmd::{Carrier, Peer};

/// Where the recording goes.
#[derive(Args, Debug)]
pub struct NetArgs {
    /// Send the recording to `trace-cmd listen` or `tracer-agent listen` on another machine, which writes the
    /// file. The way there is neither encrypted nor protected by a password; pages go as datagrams, which may
    /// be lost, unless -t is given. Addresses of IPv6 have brackets
    #[arg(
        short = 'N',
        long = "network",
        value_name = "HOST:PORT",
        value_parser = Peer::ip,
        conflicts_with_all = ["output", "vsock"],
        help_heading = OUTPUT
    )]
    pub network: Option<Peer>,

    /// With -N: send the pages through TCP connections, where none is lost
    #[arg(short = 't', long = "tcp", requires = "network", help_heading = OUTPUT)]
    pub tcp: bool,

    /// Send the recording to a listener on the host of this virtual machine (CID 2), or in one
    #[arg(
        short = 'V',
        long = "vsock",
        value_name = "CID:PORT",
        value_parser = Peer::vsock,
        conflicts_with_all = ["output"],
        help_heading = OUTPUT
    )]
    pub vsock: Option<Peer>,
}

impl NetArgs {
    /// Whether the recording goes to a listener.
    pub(super) fn is_wanted(&self) -> bool {
        self.network.is_some() || self.vsock.is_some()
    }

    /// Connects to the listener, if there is to be one.
    pub(super) fn connect(&self, spec: &RecordingSpec, is_live: bool) -> Result<Option<Greeted>, CliError> {
        let (peer, carrier) = match (&self.network, &self.vsock) {
            (Some(peer), _) => (peer, if self.tcp { Carrier::Tcp } else { Carrier::Udp }),
            (None, Some(peer)) => (peer, Carrier::Vsock),
            (None, None) => return Ok(None),
        };
        check(spec, is_live)?;
        Greeted::connect(peer, carrier).map(Some).map_err(|error| failed(&error))
    }
}

/// What an error is in the words of the option.
pub(super) fn failed(error: &SendError) -> CliError {
    CliError::Output(format!("-N: {error}"))
}

/// Refuses what does not go with it.
fn check(spec: &RecordingSpec, is_live: bool) -> Result<(), CliError> {
    let any = |is: fn(&ChannelSpec) -> bool| spec.channels.iter().any(is);
    let refused = [
        (spec.channels.is_empty(), "--count and --time alone have no events to send"),
        (spec.channels.len() > 1, "the protocol has one buffer; record without -B, or one of them"),
        (is_live, "--live reads the file that is recorded to; use -o FILE"),
        (any(|channel| channel.overwrite), "--overwrite has its events in memory until the end; use -o FILE"),
        (any(|channel| channel.keep_bytes.is_some()), "-m removes what may not have been sent; use -o FILE"),
    ];
    match refused.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, why)) => Err(CliError::Usage(format!("-N sends the recording to a listener: {why}"))),
        None => Ok(()),
    }
}
