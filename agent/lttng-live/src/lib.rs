//! A server of LTTng's live protocol (version 2.4), which `babeltrace2 --input-format=lttng-live` and others
//! read.
//!
//! **Data flow:** a recording publishes complete packets of its CTF trace
//! ([`Publication`](ctf_writer::Publication)); [`Sessions::offer`] offers them under a name; the [`Server`]
//! reads packets from the trace's files and sends them to the viewers that request them.
//!
//! **Guarantees**
//!
//! - Viewers cannot slow down a recording: a slow one misses packets that are removed in the meantime.
//! - Requests may be hostile: their length, their time and the number of connections are limited.
//! - Files are opened only by the function that the owner of the session passes ([`Opener`]), so with the
//!   owner's rights.
//!
//! **Must not know:** recorders, the running kernel. Only `server` knows sockets and time.
//!
//! The protocol has no authentication and no encryption: everyone who can connect reads all offered sessions.
//!
//! # Example
//!
//! ```no_run
//! let server = lttng_live::Server::start(lttng_live::parse_bind(":5344")?)?;
//! println!("babeltrace2 --input-format=lttng-live net://{}", server.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `message` | requests and replies as bytes |
//! | `sessions` | the offered sessions |
//! | `viewer` | the sessions that a viewer is attached to, and its progress |
//! | `attached` | one session of a viewer: a position in each stream |
//! | `connection` | a connection with its deadlines |
//! | `server` | sockets and threads |

#![forbid(unsafe_code)]

mod attached;
mod connection;
mod message;
mod server;
mod sessions;
mod viewer;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use self::{
    server::Server,
    sessions::{Offer, Offered, Opener, Sessions},
};

/// Where viewers look for a live server.
pub const PORT: u16 = 5344;

/// Where one listens unless it is told otherwise.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// An address to listen at: `ADDR`, `ADDR:PORT`, `[ADDR6]:PORT`, or `:PORT` on the loopback interface.
///
/// # Errors
/// It is none.
pub fn parse_bind(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(ADDRESS.ip(), port));
    }
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "an address is ADDR or ADDR:PORT, like 127.0.0.1:5344 or [::1]:5344".to_owned())
}

/// What is to be known of an address that others can reach; nothing of one that only this machine can.
pub fn warning(address: SocketAddr) -> Option<String> {
    if address.ip().is_loopback() {
        return None;
    }
    let port = address.port();
    Some(format!(
        "whoever can connect to {address} reads all live sessions: the protocol of viewers has no encryption and \
         no authentication. Without it, a viewer on another machine reads them through \
         `ssh -L {port}:localhost:{port} HOST`"
    ))
}

/// Where babeltrace2 reads a session of a server at this address, on this machine if it listens there.
pub fn url(address: SocketAddr, offer: &Offer) -> String {
    let at = match address.ip() {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let port = if address.port() == PORT { String::new() } else { format!(":{}", address.port()) };
    format!("net://{at}{port}/host/{}/{}", offer.host(), offer.name())
}

/// What viewers are told that this machine is called.
pub fn host_name() -> String {
    let name = stdx::host_name();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// For fuzzing: what a viewer that sends these bytes is answered, if it is answered at all.
///
/// # Panics
/// It does not.
#[cfg(any(test, fuzzing))]
pub fn fuzz(data: &[u8]) -> usize {
    connection::answered(data)
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
