//! Where sessions write to: `file://DIR`, `net://HOST[:CONTROL[:DATA]][/DIR]` (lttng-create(1), "URL
//! format").

use std::path::PathBuf;

/// Where a session writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A directory.
    Local(PathBuf),
    /// A relay daemon.
    Relay(Relay),
}

/// A relay daemon, with the ports that it listens on for commands and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relay {
    version: u8,
    host: String,
    control: u16,
    data: u16,
    dir: String,
}

/// The port for commands if none is given.
const CONTROL: u16 = 5342;
/// The port for data.
const DATA: u16 = 5343;

impl Address {
    /// `None` if it is no such address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(dir) = text.strip_prefix("file://") {
            return dir.starts_with('/').then(|| Self::Local(dir.into()));
        }
        if text.starts_with('/') {
            return Some(Self::Local(text.into()));
        }
        Relay::parse(text).map(Self::Relay)
    }
}

impl Relay {
    fn parse(text: &str) -> Option<Self> {
        let (protocol, rest) = text.split_once("://")?;
        let version = match protocol {
            "net" | "tcp" => 4,
            "net6" | "tcp6" => 6,
            _ => return None,
        };
        let (place, dir) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, ports) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
        };
        let mut ports = ports.split(':').skip(1).map(|port| port.parse::<u16>().ok());
        let (control, data) = (ports.next().unwrap_or(Some(CONTROL))?, ports.next().unwrap_or(Some(DATA))?);
        if host.is_empty() || host.contains(['[', ']']) || ports.next().is_some() {
            return None;
        }
        Some(Self { version, host: host.to_owned(), control, data, dir: dir.to_owned() })
    }

    /// What the addresses of commands and of data come to together.
    pub(super) fn of_both(control: &str, data: &str) -> Option<Self> {
        let (control, data) = (Self::parse(control)?, Self::parse(data)?);
        let same = (control.version, &control.host) == (data.version, &data.host);
        // The first port of an address for data is that of data.
        let data_port = if data.control == CONTROL { DATA } else { data.control };
        same.then_some(Self { data: data_port, ..control })
    }

    /// As requests have it.
    pub(super) fn url(&self) -> String {
        let Self { version, host, control, data, dir } = self;
        match version {
            4 if host.contains(':') => format!("net://[{host}]:{control}:{data}{dir}"),
            4 => format!("net://{host}:{control}:{data}{dir}"),
            _ => format!("net6://[{host}]:{control}:{data}{dir}"),
        }
    }

    /// As LTTng shows it.
    pub(super) fn shown(&self) -> String {
        let Self { version, host, control, data, dir } = self;
        let dir = if dir.is_empty() { "/" } else { dir };
        match version {
            4 => format!("tcp4://{host}:{control}{dir} [data: {data}]"),
            _ => format!("tcp6://[{host}]:{control}{dir} [data: {data}]"),
        }
    }
}

/// An address as LTTng shows it; what is no address as it is.
pub(super) fn shown(url: &str) -> String {
    match Address::parse(url) {
        Some(Address::Relay(relay)) => relay.shown(),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_shown_as_lttng_shows_them() {
        for (url, text) in [
            ("net://127.0.0.1:5350", "tcp4://127.0.0.1:5350/ [data: 5343]"),
            ("tcp://host:1:2/dir", "tcp4://host:1/dir [data: 2]"),
            ("net6://[::1]", "tcp6://[::1]:5342/ [data: 5343]"),
            ("net://[a:b]:1:2", "tcp4://a:b:1/ [data: 2]"),
        ] {
            assert_eq!(shown(url), text);
        }
        let Some(Address::Relay(relay)) = Address::parse("net://[a:b]:1:2/d") else { panic!() };
        assert_eq!(Address::parse(&relay.url()), Some(Address::Relay(relay)), "it is the same again");
        for wrong in
            ["net6://[a", "net6://a]b", "net://", "net://h:x", "net://h:1:2:3", "http://h", "file://a", "h"]
        {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn two_addresses_of_a_host_are_one() {
        let both = Relay::of_both("tcp://h:1/d", "tcp://h:9").unwrap();
        assert_eq!(both.url(), "net://h:1:9/d");
        assert_eq!(Relay::of_both("tcp://h", "tcp://h").unwrap().url(), "net://h:5342:5343");
        assert_eq!(Relay::of_both("tcp://h", "tcp://other"), None);
    }
}
