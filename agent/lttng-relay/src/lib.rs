//! A client of LTTng's relay daemon (`lttng-relayd`): the producer's side of its protocol, minor versions 4
//! to 13.
//!
//! **Data flow:** [`RelayAddress`] → [`Shipment`], which sends chunks, streams and packets of a CTF trace
//! over one connection for commands and one for data. All integers are big-endian.
//!
//! **Guarantees**
//!
//! - Replies are not trusted: they have a fixed or limited length, and a deadline ([`Patience`]).
//! - Another thread can end a blocked connection at any time ([`Hangup`]).
//!
//! **Must not know:** trace formats, files, recorders. It sends bytes by name.
//!
//! The protocol has no encryption and no authentication.
//!
//! # Example
//!
//! ```
//! use lttng_relay::RelayAddress;
//!
//! let address = RelayAddress::parse("net://relay.example/traces").ok_or("not an address")?;
//! assert_eq!((address.host.as_str(), address.control, address.data), ("relay.example", 5342, 5343));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `address` | addresses: `net://HOST:CONTROL:DATA/PATH` |
//! | `wire` | commands and replies as bytes |
//! | `connection` | both connections, with their deadlines |
//! | `session` | a session at the relay daemon: its chunks, streams, packets |
//! | `shipment` | chunks, streams and packets by name |
//! | `error` | reasons of failures |
//! | `fuzz` | arbitrary replies, without a network |

#![forbid(unsafe_code)]

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

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
