//! Where sessions write to: `file://DIR`, `net://HOST[:CONTROL[:DATA]][/DIR]` (lttng-create(1), "URL
//! format").

use std::path::{Path, PathBuf};

pub(super) use lttng_relay::RelayAddress as Relay;

/// Where a session writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A directory.
    Local(PathBuf),
    /// A relay daemon.
    Relay(Relay),
}

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

    /// As requests have a place for snapshots.
    pub(super) fn place(self) -> PathBuf {
        match self {
            Self::Local(path) => path,
            Self::Relay(relay) => relay.url().into(),
        }
    }
}

/// Whether a place for snapshots is a relay daemon.
pub(super) fn is_relay(place: &Path) -> bool {
    place.to_str().is_some_and(|place| matches!(Address::parse(place), Some(Address::Relay(_))))
}

/// A place for snapshots as LTTng shows it: of a relay daemon where it takes commands.
pub(crate) fn shown_place(place: &Path) -> String {
    match place.to_str().and_then(Address::parse) {
        Some(Address::Relay(relay)) => relay.shown_control(),
        _ => place.display().to_string(),
    }
}

/// Where the relay daemon of a place takes data, as LTTng shows it; nothing for a directory.
pub(crate) fn shown_data(place: &Path) -> String {
    match place.to_str().and_then(Address::parse) {
        Some(Address::Relay(relay)) => Relay { control: relay.data, ..relay }.shown_control(),
        _ => String::new(),
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
