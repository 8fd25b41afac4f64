//! Parcels of documents and descriptors, between processes that need not live at the same time.
//!
//! A pair of connected sockets keeps what was sent, descriptors included, until it is received
//! (`SCM_RIGHTS`, unix(7)). Whoever has both ends may send, give them to a keeper such as systemd's
//! descriptor store, and end; whoever gets them next receives. So the keeper has two descriptors to keep,
//! however many are in the parcels.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair, sockopt,
    },
};

use super::Descriptors;

/// First bytes of a parcel.
const MAGIC: [u8; 8] = *b"TAPARCL1";
/// Bytes of what a parcel begins with: these, and how many bytes, parts and descriptors it has.
const HEAD: usize = 32;
/// Bytes that say of a part how long its document is, and how many descriptors it has.
const ENTRY: usize = 16;
/// Descriptors in a message: the kernel takes 253 (`SCM_MAX_FD`, include/net/scm.h).
const IN_MESSAGE: usize = 250;
/// The most bytes, and the most parts.
const BYTES_MAX: u64 = 1 << 30;
const PARTS_MAX: u64 = 1 << 16;
/// The most descriptors.
const DESCRIPTORS_MAX: u64 = 1 << 20;
/// Room for what is sent: a message takes about a kilobyte of the kernel's memory.
const ROOM: usize = 4 << 20;

/// A part of a parcel: a document, and the descriptors that it names.
pub type Part = (Vec<u8>, Descriptors);

/// A pair of sockets with what was sent and not received.
#[derive(Debug)]
pub struct Parcels {
    near: OwnedFd,
    far: OwnedFd,
}

impl Parcels {
    /// An empty one.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // The kernel gives what its limit allows (`net.core.wmem_max`).
        let _ = sockopt::set_socket_send_buffer_size(&near, ROOM);
        Ok(Self { near, far })
    }

    /// The one whose ends somebody has kept.
    pub fn of_kept([near, far]: [OwnedFd; 2]) -> Self {
        Self { near, far }
    }

    /// Its ends, for somebody to keep.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.near.as_fd(), self.far.as_fd()]
    }

    /// Sends a parcel of several parts. The descriptors stay open here, too.
    ///
    /// # Errors
    /// The kernel has no room for it, or some of the descriptors were taken. Half of it may have been sent:
    /// nothing that is in here then can be used.
    pub fn send(&self, parts: &[(&[u8], &Descriptors)]) -> io::Result<()> {
        let (mut table, mut documents, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for (document, descriptors) in parts {
            let of_part = descriptors.all().ok_or(io::ErrorKind::NotFound)?;
            table.extend((document.len() as u64).to_le_bytes());
            table.extend((of_part.len() as u64).to_le_bytes());
            documents.extend_from_slice(document);
            all.extend(of_part);
        }
        let file = memfd_create("tracer-agent", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(&table)?;
        file.write_all(&documents)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let bytes = table.len() + documents.len();
        let counts = [bytes, parts.len(), all.len()].map(|count| (count as u64).to_le_bytes());
        let head = [&MAGIC[..], counts.as_flattened()].concat();
        self.send_message(&head, &[file.as_fd()])?;
        all.chunks(IN_MESSAGE).try_for_each(|some| self.send_message(&[0], some))
    }

    fn send_message(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_MESSAGE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Nobody receives meanwhile: waiting for room would be for ever.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.near, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Receives the next parcel, by its parts; `None` if there is no more.
    ///
    /// # Errors
    /// What comes is none, or not all of it is there.
    pub fn receive(&self) -> io::Result<Option<Vec<Part>>> {
        let mut head = [0; HEAD];
        let (len, mut file) = match self.receive_message(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let (size, parts, count) = (number(&head, 8)?, number(&head, 16)?, number(&head, 24)?);
        let is_parcel = len == HEAD
            && head[..8] == MAGIC
            && size <= BYTES_MAX
            && parts <= PARTS_MAX
            && count <= DESCRIPTORS_MAX;
        let file = file.pop().filter(|_| is_parcel && file.is_empty()).ok_or_else(invalid)?;
        let mut bytes = vec![0; size as usize];
        File::from(file).read_exact_at(&mut bytes, 0)?;
        let descriptors = self.receive_descriptors(count)?;
        divide(&bytes, parts as usize, descriptors).map(Some)
    }

    fn receive_descriptors(&self, count: u64) -> io::Result<Vec<OwnedFd>> {
        let mut descriptors = Vec::new();
        while (descriptors.len() as u64) < count {
            let (_, some) = self.receive_message(&mut [0]).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::ErrorKind::UnexpectedEof.into(),
                _ => error,
            })?;
            if some.is_empty() {
                return Err(invalid());
            }
            descriptors.extend(some);
        }
        Ok(descriptors)
    }

    fn receive_message(&self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.far, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
        if received.bytes == 0 {
            // Both ends are here, and an empty message is none.
            return Err(Errno::WOULDBLOCK.into());
        }
        // Without room for a descriptor (`ulimit -n`) it is left out, and this says so.
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        Ok((received.bytes, descriptors))
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn number(bytes: &[u8], at: usize) -> io::Result<u64> {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or_else(invalid)
}

/// Gives each part its document and its descriptors: all of them belong to one.
fn divide(bytes: &[u8], parts: usize, descriptors: Vec<OwnedFd>) -> io::Result<Vec<Part>> {
    let (table, mut documents) = bytes.split_at_checked(parts * ENTRY).ok_or_else(invalid)?;
    let mut left = descriptors.into_iter();
    let mut divided = Vec::with_capacity(parts);
    for entry in table.chunks_exact(ENTRY) {
        let (len, count) = (number(entry, 0)? as usize, number(entry, 8)? as usize);
        let (document, rest) = documents.split_at_checked(len).ok_or_else(invalid)?;
        documents = rest;
        if count > left.len() {
            return Err(invalid());
        }
        divided.push((document.to_vec(), Descriptors::received(left.by_ref().take(count).collect())));
    }
    if documents.is_empty() && left.len() == 0 { Ok(divided) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn what_is_sent_is_received_when_the_sender_is_gone() {
        let parcels = Parcels::new().unwrap();
        let mut all = Descriptors::default();
        let numbers: Vec<_> = (0..=3 * IN_MESSAGE)
            .map(|number| {
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "{number}").unwrap();
                all.put(file)
            })
            .collect();
        let none = Descriptors::default();
        parcels.send(&[(&b"first"[..], &none), (&b""[..], &none), (&b"third"[..], &all)]).unwrap();
        parcels.send(&[(&vec![7; 100_000], &none)]).unwrap();
        drop(all);
        let kept = parcels.ends().map(|end| end.try_clone_to_owned().unwrap());
        drop(parcels);
        let parcels = Parcels::of_kept(kept);
        let mut parts = parcels.receive().unwrap().unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!([0, 1, 2].map(|part| parts[part].0.as_slice()), [&b"first"[..], b"", b"third"]);
        let mut all = parts.remove(2).1;
        for (index, number) in numbers.into_iter().enumerate() {
            let mut file = File::from(all.take(number).unwrap());
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, index.to_string());
        }
        assert_eq!(parcels.receive().unwrap().unwrap()[0].0, vec![7; 100_000]);
        assert!(parcels.receive().unwrap().is_none());
    }

    #[test]
    fn there_is_room_for_the_descriptors_of_many() {
        let parcels = Parcels::new().unwrap();
        let file = std::sync::Arc::new(tempfile::tempfile().unwrap());
        let mut all = Descriptors::default();
        for _ in 0..60_000 {
            all.put(std::sync::Arc::clone(&file));
        }
        parcels.send(&[(&b"x"[..], &all)]).unwrap();
    }

    #[test]
    fn what_is_no_parcel_is_refused() {
        let parcels = Parcels::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        parcels.send_message(&[0; HEAD], &[file.as_fd()]).unwrap();
        assert_eq!(parcels.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut all = Descriptors::default();
        all.put(file);
        parcels.send(&[(&b"x"[..], &all)]).unwrap();
        // Its head is gone, and the rest is no head.
        parcels.receive_message(&mut [0; HEAD]).unwrap();
        assert_eq!(parcels.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn parts_are_divided_as_the_table_says_or_not_at_all() {
        let entry = |len: u64, count: u64| [len.to_le_bytes(), count.to_le_bytes()].concat();
        let bytes = |entries: &[(u64, u64)], text: &str| {
            let table = entries.iter().flat_map(|&(len, count)| entry(len, count));
            table.chain(text.bytes()).collect::<Vec<u8>>()
        };
        let ok = |entries: &[(u64, u64)], text: &str| {
            divide(&bytes(entries, text), entries.len(), Vec::new()).is_ok()
        };
        assert!(ok(&[(1, 0), (2, 0)], "abc"));
        assert!(!ok(&[(1, 0), (2, 0)], "abcd") && !ok(&[(1, 0), (2, 0)], "ab"));
        assert!(!ok(&[(1, 1)], "a") && !ok(&[(u64::MAX, 0)], "a"));
        assert!(divide(&[0; 15], 1, Vec::new()).is_err());
        assert!(divide(&[], 0, vec![tempfile::tempfile().unwrap().into()]).is_err());
    }

    #[test]
    fn half_of_a_parcel_is_none() {
        let parcels = Parcels::new().unwrap();
        let document = memfd_create("", MemfdFlags::CLOEXEC).unwrap();
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[24] = 1;
        parcels.send_message(&head, &[document.as_fd()]).unwrap();
        assert_eq!(parcels.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
