//! Fuzzing: a session that is sent to a relay daemon which answers anything, in any pieces.

use std::{
    io::{self, ErrorKind, Read, Write},
    time::Duration,
};

use super::{
    ChunkBegin, ChunkClose, ChunkEnd, Hangup, NewSession, Packet, RelayError, StreamLimits, StreamName,
    connection::{Connection, Socket},
    session::RelaySession,
    shipment::Shipment,
};

/// How long an answer is waited for. All of it is there, so that this is never over.
const PATIENCE: Duration = Duration::from_mins(10);
/// Rounds of what a session does, unless an answer ends it.
const ROUNDS: u64 = 8;

/// The answers of a relay daemon.
struct Answers<'a> {
    left: &'a [u8],
    /// How many bytes come at once.
    piece: usize,
    /// How many are taken at once; 0 for none any more.
    takes: usize,
}

impl Read for Answers<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let size = self.left.len().min(self.piece).min(bytes.len());
        let (read, left) = self.left.split_at_checked(size).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.get_mut(..size).ok_or(ErrorKind::UnexpectedEof)?.copy_from_slice(read);
        self.left = left;
        Ok(size)
    }
}

impl Write for Answers<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.takes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(bytes.len().min(self.takes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Answers<'_> {
    fn set_read_timeout(&self, _time: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn set_write_timeout(&self, _time: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a session to a relay daemon that answers with these bytes. The first three say how it is sent and in
/// what pieces answers come and packets are taken. Gives how many bytes of the answers are kept.
///
/// # Panics
/// An error has no text.
pub fn fuzz(data: &[u8]) -> usize {
    let Some((&[how, piece, takes], answers)) = data.split_first_chunk() else { return 0 };
    let mut kept = 0;
    if let Err(error) = send(how, (piece, takes), answers, &mut kept) {
        assert!(!error.to_string().is_empty(), "{error:?}");
        let _ = error.is_final();
    }
    kept
}

fn send(how: u8, (piece, takes): (u8, u8), answers: &[u8], kept: &mut usize) -> Result<(), RelayError> {
    let socket = |left| Answers { left, piece: usize::from(piece).max(1), takes: usize::from(takes) * 16 };
    let new = NewSession {
        name: "auto-20260102-030405".to_owned(),
        host: "host".to_owned(),
        base_path: if how & 4 == 0 { String::new() } else { "base".to_owned() },
        created_at: 1,
        has_time_in_name: how & 8 == 0,
        is_snapshot: how & 1 != 0,
        live_timer_us: 1000,
        sender: [1; 16],
        id: 1,
    };
    let connection = Connection::of(socket(answers), socket(&[]), (PATIENCE, &Hangup::default()));
    let session = RelaySession::begin(connection, &new)?;
    let first_chunk = u64::from(how >> 1 & 1);
    let mut shipment = Shipment::begin_in(session, (&new, first_chunk), Duration::ZERO)?;
    *kept = shipment.session().path().len();
    let streams: [StreamName; 2] =
        ["channel0_0", "channel0_1"].map(|name| ("kernel".to_owned(), name.to_owned()));
    for round in 0..ROUNDS {
        let begin = ChunkBegin { at: round, name: (round % 2 == 1).then(|| "chunk".to_owned()) };
        let ends = [ChunkEnd::Archive, ChunkEnd::Stay, ChunkEnd::Remove];
        let end = ends.into_iter().cycle().nth(round as usize).unwrap_or(ChunkEnd::Stay);
        let close = ChunkClose { at: round, end };
        let path = shipment.begin(&begin, Some(close), &|name| name.1 != "channel0_1")?;
        *kept = (*kept).max(path.map_or(0, |path| path.len()));
        for name in &streams {
            shipment.add(name, StreamLimits::default())?;
        }
        shipment.send_metadata("kernel", b"/* CTF 1.8 */")?;
        for (sequence, name) in (0..).zip(&streams) {
            let packet = Packet { size_bits: 8 * 64, content_bits: 8 * 64, sequence, ..Packet::default() };
            shipment.send_packet(name, &packet, &[0; 64])?;
        }
        shipment.confirm(&mut |_| ())?;
        for name in &streams {
            shipment.send_beacon(name, (0, round))?;
        }
        if shipment.session().may_reset_metadata() {
            shipment.reset_metadata("kernel", round)?;
        }
        shipment.publish()?;
        if round % 3 == 2 {
            let path = shipment.end(close)?;
            *kept = (*kept).max(path.map_or(0, |path| path.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_ends_early_is_an_error() {
        for answers in [&b""[..], b"\0\xff\xff", &[0; 64], &[0xff; 4096]] {
            let sent = send(0, (1, 255), answers, &mut 0);
            assert!(sent.is_err(), "{answers:?}");
        }
        assert!(matches!(send(0, (1, 0), &[], &mut 0), Err(RelayError::Silent(_))));
    }
}
