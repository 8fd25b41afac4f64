//! What goes wrong with a relay daemon.

use std::{io, net::SocketAddr, time::Duration};

/// Why something did not reach the relay daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the address of {host} is not known: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("{host} has no address of IPv{version}")]
    NoAddress { host: String, version: u8 },
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("the connection to the relay daemon is lost: {0}")]
    Lost(#[from] io::Error),
    #[error("the relay daemon has closed the connection")]
    Closed,
    #[error("the relay daemon has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it speaks version {major}.{minor} of the relay daemon's protocol, where 2.4 or later is needed")]
    Version { major: u32, minor: u32 },
    #[error("the relay daemon refuses to {what} (its code is {code})")]
    Refused { what: &'static str, code: u32 },
    #[error("what answers is no relay daemon, or is damaged: {0}")]
    Nonsense(&'static str),
    #[error("{what} is too long for the relay daemon's protocol: {text}")]
    TooLong { what: &'static str, text: String },
}

impl RelayError {
    /// Whether it is of no use to try again with the same relay daemon.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::TooLong { .. })
    }
}
