//! Where a relay daemon is: `net://HOST[:CONTROL[:DATA]][/PATH]` (lttng-create(1), "URL format").
//!
//! LTTng shows and saves `tcp4://HOST:CONTROL/PATH` and `tcp4://HOST:DATA/`.

/// A relay daemon, with the ports that it listens on for commands and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    /// Of the Internet protocol.
    pub version: u8,
    /// A name or an address.
    pub host: String,
    /// Port of the control connection.
    pub control: u16,
    /// Port of the data connection.
    pub data: u16,
    /// Where its files go, below the directory of the host that sends them: empty, or from a `/` on.
    pub dir: String,
}

/// The port for commands if none is given.
const CONTROL: u16 = 5342;
/// The port for data.
const DATA: u16 = 5343;

impl RelayAddress {
    /// `None` if it is no such address.
    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, rest) = text.split_once("://")?;
        let version = match protocol {
            "net" | "net4" | "tcp" | "tcp4" => 4,
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
    pub fn of_both(control: &str, data: &str) -> Option<Self> {
        let (control, data) = (Self::parse(control)?, Self::parse(data)?);
        let same = (control.version, &control.host) == (data.version, &data.host);
        // The first port of an address for data is that of data.
        let data_port = if data.control == CONTROL { DATA } else { data.control };
        same.then_some(Self { data: data_port, ..control })
    }

    /// As requests have it.
    pub fn url(&self) -> String {
        let Self { version, host, control, data, dir } = self;
        match version {
            4 if host.contains(':') => format!("net://[{host}]:{control}:{data}{dir}"),
            4 => format!("net://{host}:{control}:{data}{dir}"),
            _ => format!("net6://[{host}]:{control}:{data}{dir}"),
        }
    }

    /// As LTTng shows it.
    pub fn shown(&self) -> String {
        format!("{} [data: {}]", self.shown_control(), self.data)
    }

    /// Where it takes commands, as LTTng shows it.
    pub fn shown_control(&self) -> String {
        let Self { version, host, control, dir, .. } = self;
        let dir = if dir.is_empty() { "/" } else { dir };
        match version {
            4 => format!("tcp4://{host}:{control}{dir}"),
            _ => format!("tcp6://[{host}]:{control}{dir}"),
        }
    }

    /// The directory as the relay daemon takes it: none, or a path that stays below.
    pub fn base_path(&self) -> Option<&str> {
        let path = self.dir.trim_matches('/');
        let is_below = !path.split('/').any(|part| part == "..");
        is_below.then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lttng_saves_is_what_it_was_made_of() {
        for (control, data, url) in [
            ("tcp4://127.0.0.1:15342/", "tcp4://127.0.0.1:15343/", "net://127.0.0.1:15342:15343/"),
            ("tcp4://127.0.0.1:1/a/b", "tcp4://127.0.0.1:2/", "net://127.0.0.1:1:2/a/b"),
            ("tcp6://[::1]:1/", "tcp6://[::1]:2/", "net6://[::1]:1:2/"),
        ] {
            let both = RelayAddress::of_both(control, data).unwrap();
            assert_eq!((both.url(), both.shown_control()), (url.to_owned(), control.to_owned()));
            assert_eq!(RelayAddress::parse(url).as_ref(), Some(&both));
        }
        assert_eq!(RelayAddress::parse("net4://h"), RelayAddress::parse("net://h"));
    }

    #[test]
    fn directories_stay_below() {
        let path = |text: &str| RelayAddress::parse(text).unwrap().base_path().map(str::to_owned);
        assert_eq!(path("net://h"), Some(String::new()));
        assert_eq!(path("net://h/a/b/"), Some("a/b".into()));
        assert_eq!((path("net://h/a/../b"), path("net://h/..")), (None, None));
    }
}
