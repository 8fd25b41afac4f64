//! The producer's side of the protocol of LTTng's relay daemon (`lttng-relayd`), minor versions 4 to 13.
//!
//! A connection for commands, a connection for the packets of streams; all integers are big-endian. The
//! protocol has neither encryption nor authentication, and what comes back is not trusted: answers have a
//! fixed or a limited length, and a time by which they are there.
//!
//! | file | subject |
//! |---|---|
//! | `address` | where a relay daemon is: `net://HOST:CONTROL:DATA/PATH` |
//! | `wire` | commands and answers as bytes |
//! | `connection` | both connections, with their deadlines |
//! | `session` | a session at the relay daemon: its chunks, streams, packets |
//! | `shipment` | what goes to a relay daemon: chunks, streams, packets, by name |
//! | `error` | what goes wrong |
//! | `fuzz` | answers of anybody, without a network |

mod address;
mod connection;
mod error;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod session;
mod shipment;
mod wire;

#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::{
    address::RelayAddress,
    connection::{Hangup, Patience},
    error::RelayError,
    session::{ChunkEnd, NewSession, Packet, StreamLimits},
    shipment::{ChunkBegin, ChunkClose, METADATA, Shipment, StreamName},
};
