//! Data streams: packets of events, and the index that finds them.
//!
//! Layouts are those of LTTng 2.13 (lttng-modules `src/lttng-ring-buffer-client.h`, lttng-tools
//! `include/lttng/.../ctf-index.h`), which are CTF 1.8.3, section 5.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use super::super::ExportError;
use super::super::staging::create_file;
use crate::output::Directory;

/// First word of a data packet.
const MAGIC: u32 = 0xc1fc_1fc1;
/// First word of an index.
const INDEX_MAGIC: u32 = 0xc1f1_dcc1;
/// Bytes of an index entry: 9 words of 64 bits.
const INDEX_ENTRY: u32 = 72;
/// Packet header (32) and packet context (52).
pub(super) const PREFIX: usize = 84;
/// Packets end at multiples of this.
const PAGE: usize = 4096;
/// A packet ends when it has this many bytes, as LTTng's sub-buffers do by default. A longer record makes a
/// longer one.
const PACKET: usize = 1 << 20;

/// Which of LTTng's two event headers a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventHeader {
    /// 5 bits of id and 27 of time, for up to 31 events.
    Compact,
    /// 16 bits of id and 32 of time.
    Large,
}

/// Most events of a stream with compact headers: 5 bits, one value of which leads to the extended form.
pub(super) const COMPACT_EVENTS: usize = 31;

impl EventHeader {
    /// The header for a stream with so many events.
    pub(super) fn of(events: usize) -> Self {
        if events < COMPACT_EVENTS { Self::Compact } else { Self::Large }
    }
}

/// What the beginning of a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) stream: u32,
    pub(super) cpu: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Bytes, this included.
    pub(super) content: u64,
    /// Bytes with what is after the content.
    pub(super) size: u64,
    pub(super) discarded: u64,
}

impl Prefix {
    /// `None` if it is no packet in this layout.
    pub(super) fn parse(bytes: &[u8; PREFIX]) -> Option<Self> {
        let magic = bytes.first_chunk().map(|magic| u32::from_le_bytes(*magic));
        // Behind magic, UUID, stream and instance.
        let word = |index: usize| Some(u64::from_le_bytes(*bytes.get(32 + index * 8..)?.first_chunk()?));
        let (content, size) = (word(2)? / 8, word(3)? / 8);
        let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (stream, cpu) = (half(20)?, half(80)?);
        let prefix = Self { stream, cpu, begin: word(0)?, end: word(1)?, content, size, discarded: word(5)? };
        (magic == Some(MAGIC)).then_some(prefix)
    }
}

/// What all streams of a trace have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamOptions {
    pub(super) uuid: [u8; 16],
    pub(super) stream_id: u32,
    pub(super) instance_id: u64,
    pub(super) cpu: u32,
    pub(super) header: EventHeader,
    /// First and last time of the trace. All streams are open as long as LTTng's would be: readers that want
    /// to see only times in which they have all streams then see all.
    pub(super) span: (u64, u64),
}

/// The stream of one CPU in one channel.
#[derive(Debug)]
pub(super) struct StreamWriter {
    options: StreamOptions,
    path: PathBuf,
    file: File,
    index_path: PathBuf,
    index: BufWriter<File>,
    /// The packet that is being filled, or nothing.
    packet: Vec<u8>,
    begin: u64,
    /// Time of the last event or packet.
    last: u64,
    /// Bytes of packets that are written.
    written: u64,
    packets: u64,
    discarded: u64,
}

impl StreamWriter {
    /// Creates `dir/NAME` and `dir/index/NAME.idx`.
    pub(super) fn create(dir: &Directory, name: &str, options: StreamOptions) -> Result<Self, ExportError> {
        let (file, path) = create_file(dir, name)?;
        let index = dir.open_dir("index").map_err(ExportError::io("open", dir.join("index")))?;
        let (index, index_path) = create_file(&index, &format!("{name}.idx"))?;
        let mut stream = Self {
            options,
            path,
            file,
            index_path,
            index: BufWriter::new(index),
            packet: Vec::new(),
            begin: 0,
            last: 0,
            written: 0,
            packets: 0,
            discarded: 0,
        };
        let head = [INDEX_MAGIC, 1, 1, INDEX_ENTRY];
        stream.index(|index| head.iter().try_for_each(|word| index.write_all(&word.to_be_bytes())))?;
        Ok(stream)
    }

    fn index(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        write(&mut self.index).map_err(ExportError::io("write", &self.index_path))
    }

    /// Begins an event; the caller appends its context and fields. `time` is not before that of the previous
    /// event.
    pub(super) fn event(&mut self, id: u32, time: u64) -> Result<&mut Vec<u8>, ExportError> {
        if self.packet.len() >= PACKET {
            self.close_packet(self.last)?;
        }
        let first = self.packet.is_empty();
        if first {
            self.begin_packet(time);
        }
        let since = time - self.last;
        self.last = time;
        let packet = &mut self.packet;
        match self.options.header {
            EventHeader::Compact if !first && since < 1 << 27 && id < 31 => {
                packet.extend_from_slice(&((time as u32) << 5 | id).to_le_bytes());
            }
            EventHeader::Large if !first && since < 1 << 32 && id < 0xffff => {
                packet.extend_from_slice(&(id as u16).to_le_bytes());
                packet.extend_from_slice(&(time as u32).to_le_bytes());
            }
            extended => {
                match extended {
                    EventHeader::Compact => packet.push(31),
                    EventHeader::Large => packet.extend_from_slice(&0xffff_u16.to_le_bytes()),
                }
                packet.extend_from_slice(&id.to_le_bytes());
                packet.extend_from_slice(&time.to_le_bytes());
            }
        }
        Ok(packet)
    }

    /// Tells that events were lost since the last event, until `time`. An own packet without events says so:
    /// readers then know between which two events that was.
    pub(super) fn lost(&mut self, events: u64, time: u64) -> Result<(), ExportError> {
        if !self.packet.is_empty() {
            self.close_packet(self.last)?;
        }
        if self.packets == 0 {
            // Readers report losses since the packet before, so that there has to be one.
            self.begin_packet(self.options.span.0);
            self.close_packet(self.last)?;
        }
        self.begin_packet(self.last);
        self.discarded = self.discarded.saturating_add(events);
        self.close_packet(time.max(self.last))
    }

    /// Time of the last event, 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn begin_packet(&mut self, time: u64) {
        self.begin = if self.packets == 0 { time.min(self.options.span.0) } else { time };
        self.last = time.max(self.last);
        self.packet.clear();
        self.packet.resize(PREFIX, 0);
    }

    fn close_packet(&mut self, end: u64) -> Result<(), ExportError> {
        let StreamOptions { uuid, stream_id, instance_id, cpu, .. } = self.options;
        self.last = end;
        let content = self.packet.len();
        let size = content.next_multiple_of(PAGE);
        self.packet.resize(size, 0);
        let bits = |bytes: usize| bytes as u64 * 8;
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            self.packet[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&uuid);
        put(&stream_id.to_le_bytes());
        put(&instance_id.to_le_bytes());
        for word in [self.begin, end, bits(content), bits(size), self.packets, self.discarded] {
            put(&word.to_le_bytes());
        }
        put(&cpu.to_le_bytes());
        self.file.write_all(&self.packet).map_err(ExportError::io("write", &self.path))?;
        let entry = [
            self.written,
            bits(size),
            bits(content),
            self.begin,
            end,
            self.discarded,
            stream_id.into(),
            instance_id,
            self.packets,
        ];
        self.index(|index| entry.iter().try_for_each(|word| index.write_all(&word.to_be_bytes())))?;
        self.written += size as u64;
        self.packets += 1;
        self.packet.clear();
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> Result<(), ExportError> {
        let end = self.last.max(self.options.span.1);
        if self.packet.is_empty() && (self.packets == 0 || self.last < end) {
            // LTTng ends a stream with a packet without events, too.
            self.begin_packet(self.last);
        }
        if !self.packet.is_empty() {
            self.close_packet(end)?;
        }
        self.index(BufWriter::flush)
    }
}
