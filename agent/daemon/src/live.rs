//! The live server of the daemon: it listens from the first session on that has viewers.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use super::{registry::log, user::Owner};
use api::{Code, ControlError};
use ctf_writer::PacketFile;
use lttng_live::{Offer, Server};

/// The server, if there is one by now.
#[derive(Debug)]
pub(super) struct Live {
    bind: SocketAddr,
    server: Mutex<Option<Server>>,
}

impl Live {
    pub(super) fn new(bind: SocketAddr) -> Self {
        Self { bind, server: Mutex::default() }
    }

    /// Offers a session of a user to viewers, under its name, or one like it if another user's is called so.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) fn offer(&self, owner: &Owner, name: &str, timer_us: u64) -> Result<Offer, ControlError> {
        let uid = owner.uid;
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match &mut *server {
            Some(server) => server,
            none => none.insert(self.start()?),
        };
        let sessions = server.sessions();
        let names = [name.to_owned(), format!("{name}-{uid}")];
        let own = names.into_iter().chain((2_u32..).map(|number| format!("{name}-{uid}-{number}")));
        let free = own.into_iter().find(|name| !sessions.is_taken(name));
        let (host, name) = (lttng_live::host_name(), free.as_deref().unwrap_or(name));
        let owner = owner.clone();
        // They are in a directory of the user.
        let opener = move |file: &PacketFile| owner.with_rights(|| file.open())?;
        Ok(sessions.offer((&host, name), timer_us, Box::new(opener)))
    }

    /// How a session is read that is offered.
    pub(super) fn address_of(&self, offer: &Offer) -> String {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let address = server.as_ref().map_or(self.bind, Server::address);
        lttng_live::url(address, offer)
    }

    fn start(&self) -> Result<Server, ControlError> {
        let server = Server::start(self.bind).map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::AddrInUse {
                ": a relay daemon may be there; `tracer-agent daemon --live-bind ADDR:PORT` takes another address"
            } else {
                ""
            };
            let why = format!("cannot listen for viewers at {}: {error}{hint}", self.bind);
            ControlError::new(Code::NotSupported, why)
        })?;
        if let Some(warning) = lttng_live::warning(server.address()) {
            log(&warning);
        }
        Ok(server)
    }
}
