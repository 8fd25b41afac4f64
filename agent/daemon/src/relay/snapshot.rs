//! Snapshots for a relay daemon: they are taken here, and sent whole.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use super::{Answer, Target, unreachable};
use api::{Code, ControlError};
use lttng_relay::{
    ChunkBegin, ChunkClose, ChunkEnd, Hangup, METADATA, Packet, Patience, RelayError, Shipment, StreamLimits,
};
use stdx::utc;

/// Bytes of a packet's header, and of its context up to the size of the packet.
const HEAD: usize = 32 + 32;
/// Where the size of a packet is, in bits: behind its header, two times and the size of its content.
const PACKET_SIZE: usize = 32 + 24;
/// The largest packet.
const PACKET_MAX: u64 = 1 << 31;
/// The deepest directory of a trace: `ust/pid/NAME`.
const DEPTH_MAX: usize = 4;
/// How long packets are waited for to be stored, from the last one that was sent on.
const STORED_MAX: Duration = Duration::from_mins(1);
/// How often that is asked.
const STORED: Duration = Duration::from_millis(10);

/// Why a snapshot is not sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error("cannot read the snapshot: {0}")]
    Local(#[from] io::Error),
}

/// Sends the snapshot in a directory of the daemon's own, and removes it then. Gives where it is. Others can
/// end the connections by `hangup`.
pub(crate) fn send_snapshot(target: &Target, dir: &Path, hangup: &Hangup) -> Answer<PathBuf> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or("snapshot").to_owned();
    let new = target.new_session(true);
    let shipment =
        new.and_then(|new| Shipment::open(&target.address, &new, 0, (Patience::default(), hangup)));
    let sent = shipment.map_err(SendError::from).and_then(|shipment| send(shipment, dir, &name));
    // It is a copy of what is still in the rings.
    let _ = std::fs::remove_dir_all(dir);
    match sent {
        Ok(path) => Ok(target.place_of(&path)),
        Err(SendError::Relay(error)) => Err(unreachable(&target.address.url(), &error)),
        Err(error) => Err(ControlError::new(Code::SnapshotFailed, error.to_string())),
    }
}

fn send(mut shipment: Shipment, dir: &Path, name: &str) -> Result<String, SendError> {
    let at = utc::seconds_now();
    shipment.begin(&ChunkBegin { at, name: Some(name.to_owned()) }, None, &|_| false)?;
    send_tree(&mut shipment, dir, &mut Vec::new())?;
    let begun = Instant::now();
    while !shipment.confirm(&mut |_| ())? {
        if begun.elapsed() > STORED_MAX {
            return Err(RelayError::Silent(STORED_MAX).into());
        }
        thread::sleep(STORED);
    }
    let path = shipment.end(ChunkClose { at: utc::seconds_now(), end: ChunkEnd::Stay })?;
    let path = path.unwrap_or_else(|| shipment.session().path().to_owned());
    Ok(if path.ends_with(name) { path } else { format!("{}/{name}", path.trim_end_matches('/')) })
}

/// Sends the traces in a directory, whose path in the snapshot is `below`.
fn send_tree(shipment: &mut Shipment, dir: &Path, below: &mut Vec<String>) -> Result<(), SendError> {
    let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    // What describes packets comes before them.
    entries.sort_by_key(|entry| entry.file_name() != METADATA);
    let trace = below.join("/");
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "index" && below.len() < DEPTH_MAX {
            below.push(name);
            send_tree(shipment, &entry.path(), below)?;
            below.pop();
        } else if kind.is_file() && name == METADATA {
            let mut bytes = Vec::new();
            open(&entry.path())?.read_to_end(&mut bytes)?;
            shipment.send_metadata(&trace, &bytes)?;
        } else if kind.is_file() {
            let stream = (trace.clone(), name);
            shipment.add(&stream, StreamLimits::default())?;
            send_packets(shipment, &stream, &open(&entry.path())?)?;
        }
    }
    Ok(shipment.publish()?)
}

/// Opens a file that the user may have put something else in the place of.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn send_packets(shipment: &mut Shipment, stream: &(String, String), file: &File) -> Result<(), SendError> {
    use std::os::unix::fs::FileExt as _;
    let end = file.metadata()?.len();
    let (mut at, mut bytes) = (0, Vec::new());
    while at < end {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, at)?;
        let bits = head[PACKET_SIZE..].first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
        let size = (bits / 8).clamp(HEAD as u64, PACKET_MAX).min(end - at);
        bytes.resize(usize::try_from(size).unwrap_or_default(), 0);
        file.read_exact_at(&mut bytes, at)?;
        shipment.send_packet(stream, &Packet::default(), &bytes)?;
        at += size;
    }
    Ok(())
}
