//! trace-cmd's network protocol: recordings sent (`record -N`) and received (`listen`).
//!
//! **Data flow:** a recorder connects to a listener, which writes the file. Metadata goes through that
//! connection, and the pages of each CPU through one of its own, or as datagrams. The listener chooses the
//! ports.
//!
//! **Guarantees**
//!
//! - Peers may be hostile: messages, times and numbers of connections are limited, and typed errors name the
//!   peer's fault.
//! - A received recording becomes a file even if the connection breaks; the missing part is reported.
//! - A slow listener costs disk space, not events: [`send`] follows the recording's spool.
//!
//! **Must not know:** command lines, eBPF. The protocol has no encryption and no password.
//!
//! # Example
//!
//! ```
//! use tracecmd::Peer;
//!
//! let Peer::Ip { host, port } = Peer::ip("collector.example:12345")? else { unreachable!() };
//! assert_eq!((host.as_str(), port), ("collector.example", 12345));
//! # Ok::<(), tracecmd::BadAddress>(())
//! ```
//!
//! # Version 3
//!
//! | who | what |
//! |---|---|
//! | listener | `tracecmd` |
//! | recorder | `-1V3` NUL |
//! | listener | `V3` NUL |
//! | recorder | `766679` NUL NUL |
//! | listener | `OK` |
//! | recorder | `TINIT`: number of CPUs, bytes of a page, how data come |
//! | listener | `RINIT`: a port for each CPU |
//! | recorder | `SEND_DATA`: a piece of the trace file without data, the next one within five seconds |
//! | recorder | `FIN_DATA`: that was all of it |
//! | recorder | `CLOSE`: all data were sent |
//!
//! What follows `OK` are messages: u32 length, u32 command, u32 length of the fixed part, fixed part, body;
//! 8192 bytes at most, numbers in big-endian order. The bodies of `TINIT` and `RINIT` are texts that end with
//! NUL: `tcp` or `vsock`, none for datagrams; the ports in decimal.
//!
//! # Version 1
//!
//! The recorder answers `tracecmd` with texts that end with NUL: the number of CPUs, the bytes of a page, the
//! number of options, and each option with its length before it, of which there is `TCP`. The listener says
//! the ports, with commas in between and a NUL at the end. What follows is the beginning of a file of version
//! 6, and where it ends the recording does. A listener that knows no other version closes the connection when
//! it reads `-1V3`, and the recorder connects again.
//!
//! | module | subject |
//! |---|---|
//! | `address` | hosts, ports and guests, as users write them |
//! | `message` | the messages of version 3 |
//! | `socket` | connections and datagrams |
//! | [`send`] | the recorder's side |
//! | [`receive`] | the listener's side |

mod address;
mod message;
pub mod receive;
pub mod send;
mod socket;

pub use address::{BadAddress, Peer, PortRange};

/// What a listener says first.
const GREETING: &[u8] = b"tracecmd";
/// What a recorder says that knows version 3.
const ASK_V3: &[u8] = b"-1V3\0";
/// What a listener answers that knows it, too.
const KNOWS_V3: &[u8] = b"V3\0";
/// What a recorder says then.
const MAGIC_V3: &[u8] = b"766679\0\0";
/// What a listener says before messages follow.
const AGREED: &[u8] = b"OK";

/// How the pages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Each page is a datagram, which may be lost.
    Udp,
    /// Through a TCP connection for each CPU.
    Tcp,
    /// Through a connection between a virtual machine and its host for each CPU.
    Vsock,
}

/// The versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Texts, and a file of version 6.
    V1,
    /// Messages.
    V3,
}
