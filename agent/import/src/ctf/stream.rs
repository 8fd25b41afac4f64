//! The files of a stream, read window by window.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::decode::Window;
use super::error::CtfError;
use super::packet::{Decoder, Event, Packet, PacketError, PacketStop};
use super::schema::Trace;

/// Bytes of a window, if no event needs more.
const WINDOW: usize = 1 << 18;
/// Bytes that are read of a packet's header and context, if they do not need more.
const HEAD: usize = 1 << 10;
/// The most bytes of an event. The kernel's have less than a page.
const EVENT_MAX: usize = 16 << 20;

/// A file of a stream.
#[derive(Debug)]
pub(crate) struct StreamFile {
    file: File,
    /// For messages.
    path: PathBuf,
    len: u64,
}

/// What is in a file of a stream.
#[derive(Debug)]
pub(crate) enum Item<'i, 't, 'w> {
    /// A packet begins.
    Packet(&'i Packet),
    /// An event of the packet.
    Event(&'i Packet, Event<'t, 'w>),
    /// The packet has no more events.
    End(&'i Packet),
}

impl StreamFile {
    pub(crate) fn new(file: File, path: PathBuf) -> Result<Self, CtfError> {
        let len = file.metadata().map_err(CtfError::io("look at", &path))?.len();
        Ok(Self { file, path, len })
    }

    /// Bytes of it.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What its first packet says. The file must not be empty.
    pub(crate) fn first_packet(&self, trace: &Trace, takes_foreign: bool) -> Result<Packet, CtfError> {
        self.packet(&mut Decoder::new(trace, takes_foreign), 0, &mut Vec::new())
    }

    /// Gives all that is in it to `take`, in its order.
    pub(crate) fn read<E: From<CtfError>>(
        &self,
        (trace, takes_foreign): (&Trace, bool),
        take: &mut dyn FnMut(Item<'_, '_, '_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut decoder = Decoder::new(trace, takes_foreign);
        let (mut at, mut bytes) = (0, Vec::new());
        while at < self.len {
            let mut packet = self.packet(&mut decoder, at, &mut bytes)?;
            take(Item::Packet(&packet))?;
            self.events(&mut decoder, (at, &mut packet), &mut bytes, take)?;
            take(Item::End(&packet))?;
            at += packet.len;
        }
        Ok(())
    }

    /// Decodes header and context of the packet at byte `at`.
    fn packet(&self, decoder: &mut Decoder<'_>, at: u64, bytes: &mut Vec<u8>) -> Result<Packet, CtfError> {
        let left = self.len.saturating_sub(at);
        let mut len = HEAD;
        loop {
            self.fill(bytes, at, (len as u64).min(left))?;
            match decoder.packet(bytes, left) {
                Ok(packet) => return Ok(packet),
                Err(stop) => len = self.larger(stop, at, 0, len)?,
            }
        }
    }

    fn events<E: From<CtfError>>(
        &self,
        decoder: &mut Decoder<'_>,
        (at, packet): (u64, &mut Packet),
        bytes: &mut Vec<u8>,
        take: &mut dyn FnMut(Item<'_, '_, '_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut len = WINDOW;
        let mut start = packet.position();
        self.fill(bytes, at + start, (len as u64).min(packet.content_len() - start))?;
        while packet.has_more() {
            match decoder.event(packet, Window { bytes, start }) {
                Ok(event) => take(Item::Event(packet, event))?,
                Err(stop) => {
                    // All of the window is before the event, or it is too long for one.
                    let is_moved = packet.position() > start;
                    let larger = self.larger(stop, at, packet.position(), len)?;
                    len = if is_moved { len } else { larger };
                    start = packet.position();
                    self.fill(bytes, at + start, (len as u64).min(packet.content_len() - start))?;
                }
            }
        }
        Ok(())
    }

    /// The length of a window that is larger.
    fn larger(&self, stop: PacketStop, at: u64, position: u64, len: usize) -> Result<usize, CtfError> {
        let (source, position) = match stop {
            PacketStop::Short if len < EVENT_MAX => return Ok(len * 4),
            PacketStop::Short => (PacketError::Long(EVENT_MAX as u64), position),
            PacketStop::Error(error, position) => (error, position),
        };
        Err(CtfError::Packet { path: self.path.clone(), packet: at, at: at + position, source })
    }

    fn fill(&self, bytes: &mut Vec<u8>, at: u64, len: u64) -> Result<(), CtfError> {
        bytes.resize(len as usize, 0);
        self.file.read_exact_at(bytes, at).map_err(CtfError::io("read", &self.path))
    }
}
