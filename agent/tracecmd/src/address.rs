//! Hosts, ports and guests, as users write them.

use std::{fmt, str::FromStr};

/// Why a text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadAddress(String);

/// Where a listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A port of a host.
    Ip {
        /// Its name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A port of a virtual machine, or of its host.
    Vsock {
        /// The number of the machine: 2 is the host.
        cid: u32,
        /// The port.
        port: u32,
    },
}

impl Peer {
    /// Reads `HOST:PORT`, `[IPV6]:PORT`, or `PORT` of this machine.
    ///
    /// # Errors
    /// It is none of them.
    pub fn ip(text: &str) -> Result<Self, BadAddress> {
        let wrong =
            |what: &str| BadAddress(format!("{text:?}: {what}; write HOST:PORT, or [ADDRESS]:PORT for IPv6"));
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(|| wrong("no port behind ]:"))?,
            None => text.rsplit_once(':').unwrap_or(("localhost", text)),
        };
        if host.contains(':') && !text.starts_with('[') {
            return Err(wrong("an address of IPv6 needs brackets"));
        }
        if host.is_empty() {
            return Err(wrong("no host"));
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(|| wrong("no port"))?;
        Ok(Self::Ip { host: host.to_owned(), port })
    }

    /// Reads `CID:PORT`.
    ///
    /// # Errors
    /// It is none.
    pub fn vsock(text: &str) -> Result<Self, BadAddress> {
        let numbers =
            text.split_once(':').and_then(|(cid, port)| Some((cid.parse().ok()?, port.parse().ok()?)));
        let (cid, port) = numbers.ok_or_else(|| {
            BadAddress(format!(
                "{text:?}: write CID:PORT, both numbers; the host of a virtual machine is CID 2"
            ))
        })?;
        Ok(Self::Vsock { cid, port })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Ip { host, port } => write!(f, "{host}:{port}"),
            Self::Vsock { cid, port } => write!(f, "V{cid}:{port}"),
        }
    }
}

/// Ports from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl FromStr for PortRange {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = first.parse().ok().zip(last.parse().ok());
        let range = range.filter(|(first, last)| *first > 0 && first <= last);
        let (first, last) = range
            .ok_or_else(|| BadAddress(format!("{text:?} is no range of ports: write it like 1500-1599")))?;
        Ok(Self { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let ip = |host: &str, port| Ok(Peer::Ip { host: host.to_owned(), port });
        assert_eq!(Peer::ip("box:12345"), ip("box", 12345));
        assert_eq!(Peer::ip("12345"), ip("localhost", 12345));
        assert_eq!(Peer::ip("[::1]:12345"), ip("::1", 12345));
        assert_eq!(Peer::ip("[fe80::1%eth0]:7").unwrap().to_string(), "[fe80::1%eth0]:7");
        for wrong in ["", "box:", "box:0", "box:x", "box:65536", ":7", "::1:7", "[::1]", "[::1:7", "box"] {
            assert!(Peer::ip(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn guests_and_ranges() {
        assert_eq!(Peer::vsock("2:823"), Ok(Peer::Vsock { cid: 2, port: 823 }));
        for wrong in ["", "2", "2:", ":823", "host:823", "2:823:1"] {
            assert!(Peer::vsock(wrong).is_err(), "{wrong}");
        }
        assert_eq!("1500-1600".parse(), Ok(PortRange { first: 1500, last: 1600 }));
        assert_eq!("1500".parse(), Ok(PortRange { first: 1500, last: 1500 }));
        for wrong in ["", "0-7", "9-8", "1500-", "1-70000"] {
            assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
        }
    }
}
