//! The conversation until the listener has said its ports.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use super::{
    super::{
        AGREED, ASK_V3, Carrier, GREETING, KNOWS_V3, MAGIC_V3, Peer, Version,
        message::{Command, Message, Messages, message},
        socket::Socket,
    },
    SendError,
    lanes::Lanes,
};

/// How long a listener may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest list of ports as text.
const PORTS_MAX: usize = 1 << 16;

/// A listener that has said what it is, and waits to be told what comes.
#[derive(Debug)]
pub struct Greeted {
    control: Socket,
    /// Where it is, of a network.
    address: Option<SocketAddr>,
    peer: Peer,
    carrier: Carrier,
    version: Version,
}

/// A listener to which everything can go.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) control: Socket,
    pub(super) lanes: Lanes,
    pub(super) version: Version,
}

impl Greeted {
    /// Connects to a listener, and finds the latest version that both know.
    ///
    /// # Errors
    /// There is none.
    pub fn connect(peer: &Peer, carrier: Carrier) -> Result<Self, SendError> {
        let first = Self::greet(peer, carrier)?;
        let until = Instant::now() + PATIENCE;
        let asked =
            first.control.write_all(ASK_V3, PATIENCE).and_then(|()| first.read(KNOWS_V3.len(), until));
        match asked {
            Ok(answer) if answer == KNOWS_V3 => {}
            Ok(answer) => return Err(first.no_listener(&answer)),
            // A listener from before version 3 takes it for a bad number of CPUs, and closes the connection.
            Err(error) if is_closed(&error) => {
                return Ok(Self { version: Version::V1, ..Self::greet(peer, carrier)? });
            }
            Err(error) => return Err(first.broken(error)),
        }
        first.control.write_all(MAGIC_V3, PATIENCE).map_err(|error| first.broken(error))?;
        let agreed = first.read(AGREED.len(), until).map_err(|error| first.broken(error))?;
        if agreed == AGREED { Ok(first) } else { Err(first.no_listener(&agreed)) }
    }

    fn greet(peer: &Peer, carrier: Carrier) -> Result<Self, SendError> {
        let connected = Socket::connect(peer);
        let (control, address) =
            connected.map_err(|source| SendError::Connect { peer: peer.clone(), source })?;
        let greeted = Self { control, address, peer: peer.clone(), carrier, version: Version::V3 };
        let greeting =
            greeted.read(GREETING.len(), Instant::now() + PATIENCE).map_err(|error| greeted.broken(error))?;
        if greeting == GREETING { Ok(greeted) } else { Err(greeted.no_listener(&greeting)) }
    }

    /// Where it is.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Which version both know.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Tells what comes, and opens the data connections to the ports that the listener says.
    pub(super) fn begin(self, cpus: u32, page_size: u32) -> Result<Connected, SendError> {
        let ports = match self.version {
            Version::V3 => self.begin_v3(cpus, page_size)?,
            Version::V1 => self.begin_v1(cpus, page_size)?,
        };
        let Self { control, address, peer, carrier, version } = self;
        let lanes = Lanes::open(&ports, carrier, (&peer, address))?;
        Ok(Connected { control, lanes, version })
    }

    fn begin_v3(&self, cpus: u32, page_size: u32) -> Result<Vec<u32>, SendError> {
        let option: &[u8] = match self.carrier {
            Carrier::Udp => b"",
            Carrier::Tcp => b"tcp\0",
            Carrier::Vsock => b"vsock\0",
        };
        let numbers = [cpus, page_size, u32::from(!option.is_empty())].map(u32::to_be_bytes);
        let init = message(Command::TInit, numbers.as_flattened(), option);
        self.control.write_all(&init, PATIENCE).map_err(|error| self.broken(error))?;
        let answer = self.read_message()?;
        let ports = answer.texts().filter(|_| answer.command == Some(Command::RInit));
        let ports: Option<Vec<u32>> = ports.and_then(|ports| ports.map(number).collect());
        let ports = ports.filter(|ports| answer.number(0) == Some(cpus) && ports.len() == cpus as usize);
        ports.ok_or_else(|| self.no_listener(&answer.body))
    }

    fn begin_v1(&self, cpus: u32, page_size: u32) -> Result<Vec<u32>, SendError> {
        let mut said = format!("{cpus}\0{page_size}\0");
        said += match self.carrier {
            Carrier::Tcp => "1\x004\0TCP\0",
            Carrier::Udp | Carrier::Vsock => "0\0",
        };
        let broken = |error| self.broken(error);
        self.control.write_all(said.as_bytes(), PATIENCE).map_err(broken)?;
        let (mut ports, until) = (Vec::new(), Instant::now() + PATIENCE);
        while ports.last() != Some(&0) && ports.len() < PORTS_MAX {
            ports.extend(self.read(1, until).map_err(broken)?);
        }
        let text = ports.strip_suffix(b"\0").unwrap_or_default();
        let numbers: Option<Vec<u32>> = text.split(|byte| *byte == b',').map(number).collect();
        numbers.filter(|numbers| numbers.len() == cpus as usize).ok_or_else(|| self.no_listener(&ports))
    }

    fn read(&self, len: usize, until: Instant) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.control.read_exact(&mut bytes, until)?;
        Ok(bytes)
    }

    fn read_message(&self) -> Result<Message, SendError> {
        let (mut messages, until) = (Messages::default(), Instant::now() + PATIENCE);
        loop {
            // What follows it is not to be read with it.
            let byte = self.read(1, until).map_err(|error| self.broken(error))?;
            match messages.take(&mut &*byte) {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(_) => return Err(self.no_listener(b"an impossible message")),
            }
        }
    }

    fn broken(&self, source: io::Error) -> SendError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => self.says("it closed the connection".to_owned()),
            io::ErrorKind::TimedOut => self.says("it does not answer".to_owned()),
            _ => SendError::Connect { peer: self.peer.clone(), source },
        }
    }

    fn no_listener(&self, answer: &[u8]) -> SendError {
        let answer = String::from_utf8_lossy(answer.get(..40).unwrap_or(answer));
        self.says(format!("it answers {answer:?}"))
    }

    fn says(&self, what: String) -> SendError {
        SendError::NoListener { peer: self.peer.clone(), what }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|number| *number != 0)
}
