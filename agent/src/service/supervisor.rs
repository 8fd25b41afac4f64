//! What systemd is told: that the daemon is ready, that it is alive, and that it ends (sd_notify(3)).

use std::{os::unix::net::UnixDatagram, time::Duration};

/// The way to systemd, if it started this process.
#[derive(Debug)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
}

impl Supervisor {
    /// The socket that the environment names.
    pub(super) fn of_environment() -> Self {
        Self { socket: connect() }
    }

    /// Tells something, such as `READY=1`.
    pub(super) fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // Who does not listen does not want to know.
            let _ = socket.send(state.as_bytes());
        }
    }

    /// How often systemd wants to be told that the process is alive: twice in the time after which it would
    /// end it.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.socket.as_ref()?;
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
            return None;
        }
        number("WATCHDOG_USEC").filter(|period| *period > 1).map(|period| Duration::from_micros(period / 2))
    }
}

fn connect() -> Option<UnixDatagram> {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};

    let name = std::env::var("NOTIFY_SOCKET").ok()?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(&name).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    Some(socket)
}
