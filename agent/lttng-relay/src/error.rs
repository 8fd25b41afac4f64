//! What goes wrong with a relay daemon.

use std::{io, net::SocketAddr, time::Duration};

/// Why something did not reach the relay daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The name of the host cannot be resolved.
    #[error("the address of {host} is not known: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The host has no address of this version of IP.
    #[error("{host} has no address of IPv{version}")]
    NoAddress {
        /// The host.
        host: String,
        /// 4 or 6.
        version: u8,
    },
    /// Nobody accepts the connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the relay daemon is lost: {0}")]
    Lost(#[from] io::Error),
    /// The relay daemon closed the connection.
    #[error("the relay daemon has closed the connection")]
    Closed,
    /// The relay daemon did not answer in this time.
    #[error("the relay daemon has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// The relay daemon speaks a version that this client does not.
    #[error("it speaks version {major}.{minor} of the relay daemon's protocol, where 2.4 or later is needed")]
    Version {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// The relay daemon refused a command, with this code.
    #[error("the relay daemon refuses to {what} (its code is {code})")]
    Refused {
        /// What was requested.
        what: &'static str,
        /// The code, of `enum lttcomm_return_code`.
        code: u32,
    },
    /// An answer does not follow the protocol.
    #[error("what answers is no relay daemon, or is damaged: {0}")]
    Nonsense(&'static str),
    /// A text is longer than the protocol's field.
    #[error("{what} is too long for the relay daemon's protocol: {text}")]
    TooLong {
        /// What was requested.
        what: &'static str,
        /// The text.
        text: String,
    },
}

impl RelayError {
    /// Whether it is of no use to try again with the same relay daemon.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::TooLong { .. })
    }
}
