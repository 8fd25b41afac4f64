//! Data streams: packets of events.
//!
//! Layouts are those of LTTng 2.13 (lttng-modules `src/lttng-ring-buffer-client.h`, lttng-tools
//! `include/lttng/.../ctf-index.h`), which are CTF 1.8.3, section 5.

use serde::{Deserialize, Serialize};

use super::files::{Entry, FileLimits, StreamFiles, TraceDirectory};
use recording::ExportError;

/// First word of a data packet.
const MAGIC: u32 = 0xc1fc_1fc1;
/// Packet header (32) and packet context (52).
pub(super) const PREFIX: usize = 84;
/// Packets end at multiples of this.
pub(super) const PAGE: usize = 4096;
/// What a packet has at most unless something else is said, as LTTng's sub-buffers by default.
pub const PACKET: usize = 1 << 20;

/// Which of LTTng's two event headers a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// First time of the trace. All streams are open as long as LTTng's would be: readers that want to see
    /// only times in which they have all streams then see all.
    pub(super) begin: u64,
    /// Bytes of a packet, at most, if no record alone has more.
    pub(super) packet: usize,
    pub(super) limits: FileLimits,
    /// Whether events have the times that they are given, also where packets then begin at the same time.
    pub(super) exact: bool,
}

/// How far a stream is at the border of two chunks: what its next packet goes on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamState {
    /// Packets before, which are counted over all chunks.
    packets: u64,
    /// Losses that packets tell of.
    discarded: u64,
    /// Those that marks among the records tell of.
    marked: u64,
    /// When the last packet begins and ends.
    begin: u64,
    last: u64,
}

/// The stream of one CPU in one channel.
#[derive(Debug)]
pub(super) struct StreamWriter {
    options: StreamOptions,
    files: StreamFiles,
    /// The packet that is being filled, or nothing.
    packet: Vec<u8>,
    begin: u64,
    /// Time of the last event or packet.
    last: u64,
    /// The last event, which may turn out to be too long for the packet.
    open: OpenEvent,
    packets: u64,
    /// Losses that packets tell of.
    discarded: u64,
    /// Those that marks among the records tell of.
    marked: u64,
    /// Pauses that are behind.
    pauses: usize,
    /// When the last of them began.
    last_pause: Option<u64>,
}

/// An event whose fields are being written.
#[derive(Clone, Copy, Debug, Default)]
struct OpenEvent {
    id: u32,
    /// Time of the event before.
    before: u64,
    start: usize,
    /// Where its context begins.
    body: usize,
}

impl StreamWriter {
    /// Creates the file NAME, and its index.
    pub(super) fn create(
        dir: &TraceDirectory,
        name: &str,
        options: StreamOptions,
    ) -> Result<Self, ExportError> {
        Ok(Self {
            options,
            files: StreamFiles::create(
                dir,
                (name, (options.stream_id, options.instance_id)),
                options.limits,
            )?,
            packet: Vec::new(),
            begin: 0,
            last: 0,
            open: OpenEvent::default(),
            packets: 0,
            discarded: 0,
            marked: 0,
            pauses: 0,
            last_pause: None,
        })
    }

    /// How far it is, after [`StreamWriter::finish`].
    pub(super) fn state(&self) -> StreamState {
        let Self { packets, discarded, marked, begin, last, .. } = *self;
        StreamState { packets, discarded, marked, begin, last }
    }

    /// Goes on from where a stream was, before anything is written.
    pub(super) fn go_on_from(&mut self, state: StreamState) {
        let StreamState { packets, discarded, marked, begin, last } = state;
        (self.packets, self.discarded, self.marked) = (packets, discarded, marked);
        (self.begin, self.last) = (begin, last);
    }

    /// Goes on in another directory, after [`StreamWriter::finish`].
    pub(super) fn move_to(&mut self, dir: &TraceDirectory) -> Result<(), ExportError> {
        (self.pauses, self.last_pause) = (0, None);
        self.files.move_to(dir)
    }

    /// Begins an event; the caller appends its context and fields. One from before the last event or packet
    /// has the time of that.
    #[inline]
    pub(super) fn event(&mut self, id: u32, time: u64) -> Result<&mut Vec<u8>, ExportError> {
        let time = time.max(self.last);
        if self.packet.len() >= self.options.packet {
            self.close_full()?;
        }
        let before = self.last;
        let first = self.packet.is_empty();
        if first {
            self.begin_packet(time, self.latest(time));
        }
        let time = time.max(self.last);
        let since = time - self.last;
        self.last = time;
        self.open = OpenEvent { id, before, start: self.packet.len(), body: 0 };
        let packet = &mut self.packet;
        match self.options.header {
            EventHeader::Compact if !first && since < 1 << 27 && id < 31 => {
                packet.extend_from_slice(&((time as u32) << 5 | id).to_le_bytes());
            }
            EventHeader::Large if !first && since < 1 << 32 && id < 0xffff => {
                packet.extend_from_slice(&(id as u16).to_le_bytes());
                packet.extend_from_slice(&(time as u32).to_le_bytes());
            }
            _ => self.extended_header(id, time),
        }
        self.open.body = self.packet.len();
        Ok(&mut self.packet)
    }

    /// The latest time at which the packet of an event of this time begins.
    fn latest(&self, time: u64) -> u64 {
        if self.options.exact { time } else { u64::MAX }
    }

    fn extended_header(&mut self, id: u32, time: u64) {
        match self.options.header {
            EventHeader::Compact => self.packet.push(31),
            EventHeader::Large => self.packet.extend_from_slice(&0xffff_u16.to_le_bytes()),
        }
        self.packet.extend_from_slice(&id.to_le_bytes());
        self.packet.extend_from_slice(&time.to_le_bytes());
    }

    /// Ends a packet that has as much as it may have, or too much: then its last event is the first of the
    /// next one.
    fn close_full(&mut self) -> Result<(), ExportError> {
        let OpenEvent { id, before, start, body } = self.open;
        if self.packet.len() <= self.options.packet || start <= PREFIX {
            return self.close_packet(self.last);
        }
        let fields = self.packet.split_off(body);
        self.packet.truncate(start);
        let time = self.last;
        self.close_packet(before)?;
        self.begin_packet(time, self.latest(time));
        let time = self.last;
        self.extended_header(id, time);
        self.open = OpenEvent { id, before: time, start: PREFIX, body: self.packet.len() };
        self.packet.extend_from_slice(&fields);
        Ok(())
    }

    /// Ends the packet with the last event, if one is open.
    pub(super) fn flush(&mut self) -> Result<(), ExportError> {
        if self.packet.len() > self.options.packet {
            self.close_full()?;
        }
        if self.packet.is_empty() { Ok(()) } else { self.close_packet(self.last) }
    }

    /// Ends the packet where a pause begins, as LTTng does when a session is stopped: from there to the next
    /// packet nothing is known. `pauses` are the times when all of them began, of which those before `time`
    /// are behind then.
    #[inline]
    pub(super) fn pass_pauses(&mut self, pauses: &[u64], time: u64) -> Result<(), ExportError> {
        while let Some(from) = pauses.get(self.pauses).filter(|from| **from < time) {
            self.pauses += 1;
            self.last_pause = Some(*from);
            self.finish(*from)?;
        }
        Ok(())
    }

    /// The pauses are told in another way: earlier ones together.
    pub(super) fn find_pauses(&mut self, pauses: &[u64]) {
        self.pauses = pauses.partition_point(|from| Some(*from) <= self.last_pause);
    }

    /// Tells that events were lost since the last event, until `time`. An own packet without events says so:
    /// readers then know between which two events that was.
    pub(super) fn lost(&mut self, events: u64, time: u64) -> Result<(), ExportError> {
        self.marked = self.marked.saturating_add(events);
        self.lost_in_all(self.marked, time)
    }

    /// Tells that so many events were lost since the beginning, until `time`. Marks that come later may tell
    /// of the same losses.
    pub(super) fn lost_in_all(&mut self, events: u64, time: u64) -> Result<(), ExportError> {
        if events <= self.discarded {
            return Ok(());
        }
        self.flush()?;
        if self.packets == 0 {
            // Readers report losses since the packet before, so that there has to be one.
            self.begin_packet(self.options.begin, self.options.begin);
            self.close_packet(self.last)?;
        }
        let end = time.max(self.last);
        self.begin_packet(self.last, end);
        self.discarded = events;
        self.close_packet(end)
    }

    /// Tells those who read meanwhile that no event from before this time comes any more, after what was
    /// written, and keeps to it: what comes later is from then, whatever it says. A stream without packets
    /// gets one without events, so that it is known from its begin on; one that is to be `marked` gets
    /// another one in any case.
    pub(super) fn tell_silence(&mut self, until: u64, marked: bool) -> Result<(), ExportError> {
        self.flush()?;
        let until = until.max(self.last);
        if self.packets == 0 {
            self.begin_packet(self.options.begin, self.options.begin);
            self.close_packet(until.max(self.last))?;
        } else if marked {
            self.begin_packet(self.last, until);
            self.close_packet(until)?;
        }
        self.last = self.last.max(until);
        self.files.tell_silence(self.last);
        Ok(())
    }

    /// Time of the last event, 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Losses that packets tell of.
    pub(super) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Begins a packet with an event, or one without, which ends at a later time.
    ///
    /// It begins after the begin of the one before, as LTTng's do, unless that would be after what is in it:
    /// babeltrace2 puts packets of a stream that is in several directories into the order of when they begin,
    /// and those that begin at the same time into the opposite one.
    fn begin_packet(&mut self, time: u64, latest: u64) {
        self.begin = match self.packets {
            0 => time.min(self.options.begin),
            _ => time.max(self.begin.saturating_add(1).min(latest)),
        };
        self.last = time.max(self.begin).max(self.last);
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
        let entry = Entry {
            content_bits: bits(content),
            begin: self.begin,
            end,
            discarded: self.discarded,
            stream: stream_id.into(),
            instance: instance_id,
            sequence: self.packets,
        };
        self.files.put(&self.packet, entry)?;
        self.packets += 1;
        self.packet.clear();
        Ok(())
    }

    /// Writes what is left, with an end not before `end`.
    pub(super) fn finish(&mut self, end: u64) -> Result<(), ExportError> {
        if self.packet.len() > self.options.packet {
            self.close_full()?;
        }
        let end = self.last.max(end);
        if self.packet.is_empty() && (self.packets == 0 || self.last < end) {
            // LTTng ends a stream with a packet without events, too.
            self.begin_packet(self.last.max(self.options.begin.min(end)), end);
        }
        if self.packet.is_empty() { Ok(()) } else { self.close_packet(end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::output::Directory;

    /// A stream of a trace that begins at this time, in a directory.
    fn stream(dir: &std::path::Path, begin: u64) -> StreamWriter {
        let dir = TraceDirectory::create(&Directory::open(dir).unwrap(), "kernel", true).unwrap();
        let options = StreamOptions {
            uuid: [1; 16],
            stream_id: 0,
            instance_id: 0,
            cpu: 0,
            header: EventHeader::Compact,
            begin,
            packet: PACKET,
            limits: FileLimits::default(),
            exact: true,
        };
        StreamWriter::create(&dir, "a", options).unwrap()
    }

    /// Begin, end and lost events of each packet.
    fn packets(dir: &std::path::Path) -> Vec<(u64, u64, u64)> {
        let bytes = std::fs::read(dir.join("kernel/a")).unwrap();
        let mut rest = bytes.as_slice();
        let mut packets = Vec::new();
        while let Some(prefix) = rest.first_chunk() {
            let prefix = Prefix::parse(prefix).unwrap();
            packets.push((prefix.begin, prefix.end, prefix.discarded));
            rest = &rest[prefix.size as usize..];
        }
        packets
    }

    #[test]
    fn times_never_go_back_whatever_comes() {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = stream(dir.path(), 1000);
        // From before the time at which the trace is said to begin.
        stream.lost(3, 500).unwrap();
        stream.event(1, 400).unwrap();
        stream.event(1, 2000).unwrap();
        stream.event(1, 1500).unwrap();
        stream.finish(1800).unwrap();
        assert_eq!(packets(dir.path()), [(1000, 1000, 0), (1000, 1000, 3), (1000, 2000, 3)]);
    }

    #[test]
    fn no_two_packets_begin_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = stream(dir.path(), 10);
        (stream.options.packet, stream.options.exact) = (200, false);
        for _ in 0..40 {
            stream.event(1, 50).unwrap().extend_from_slice(&[0; 20]);
        }
        stream.finish(50).unwrap();
        stream.lost(1, 60).unwrap();
        stream.finish(70).unwrap();
        let found = packets(dir.path());
        assert!(found.len() > 8, "{found:?}");
        assert_eq!(found[0].0, 10);
        for (index, &(begin, end, _)) in found.iter().enumerate().skip(1) {
            assert!(begin > found[index - 1].0 && begin >= found[index - 1].1 && end >= begin, "{found:?}");
        }
    }

    #[test]
    fn no_packet_is_from_both_sides_of_a_pause() {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = stream(dir.path(), 10);
        let pauses = [100, 300];
        for time in [20, 50, 200, 250, 400] {
            stream.pass_pauses(&pauses, time).unwrap();
            stream.event(1, time).unwrap();
        }
        let merged = [100, 450];
        stream.find_pauses(&merged);
        stream.pass_pauses(&merged, 460).unwrap();
        stream.event(1, 470).unwrap();
        stream.finish(500).unwrap();
        assert_eq!(packets(dir.path()), [(10, 100, 0), (200, 300, 0), (400, 450, 0), (470, 500, 0)]);
    }
}
