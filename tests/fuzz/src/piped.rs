//! Streamed recordings, made of frames whose checksums are right: an input is a sequence of frames, each a
//! byte with its kind, two bytes with its length, and its body. Of a text it has the subject and the text
//! itself.

use std::fs::File;

use capture::piped::{MAGIC, PipedError, PipedRecording, Scratch, Step, whole};
use ftrace_event::Endian;
use tracedat::reader::{LiveRecords, Reader};
use tracedat::{ChunkCompressor, Compression};

/// The kind of frames with texts.
const TEXT: u8 = 1;
/// The kind of the last frame.
const END: u8 = 7;

/// A frame as inputs have it.
pub(crate) fn frame(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    [&[kind][..], &(body.len() as u16).to_le_bytes(), &body].concat()
}

/// Whatever comes: what is printed is known to be complete, and a file that is made of it can be opened.
pub(crate) fn target(data: &[u8]) {
    let Some(stream) = stream(data) else { return };
    report(&stream);
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let Ok(dir) = dir else { return };
    let Ok(scratch) = Scratch::in_directory(dir.path()) else { return };
    let made = whole(&*stream, scratch.limit(1 << 22), &|| false);
    assert!(std::fs::read_dir(dir.path()).is_ok_and(|left| left.count() == 0), "files are left");
    // The pieces of a finished file may be anything.
    if let Ok(made) = made
        && made.is_cut_off
    {
        let file: File = made.file;
        Reader::open(file).expect("what was recovered can be opened");
    }
}

fn report(stream: &[u8]) {
    let Ok(mut recording) = PipedRecording::open(stream) else { return };
    let Ok(head) = recording.head("fuzz") else { return };
    loop {
        let step = recording.read();
        let clock = head.reader().clock();
        let mut records = recording.records(clock);
        let mut damaged = 0;
        loop {
            match records.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => damaged += 1,
            }
            assert!(damaged <= stream.len(), "damage without an end");
        }
        let _ = (recording.take_names(), recording.take_symbols());
        match step {
            Ok(Step::GoesOn) => {}
            Ok(Step::Ended(_) | Step::CutOff) => {
                assert_eq!(recording.waiting(), 0, "records that are not given");
                return;
            }
            Err(PipedError::Read(error)) => panic!("{error}"),
            Err(_) => return,
        }
    }
}

/// The stream of these frames. The last one says how many there are.
fn stream(data: &[u8]) -> Option<Vec<u8>> {
    let mut stream = [&MAGIC[..], &1_u32.to_le_bytes(), &4096_u32.to_le_bytes()].concat();
    let mut rest = data;
    let mut frames = 0_u64;
    while let Some((&[kind, l0, l1], behind)) = rest.split_first_chunk() {
        let (body, behind) = behind.split_at(usize::from(u16::from_le_bytes([l0, l1])).min(behind.len()));
        rest = behind;
        let mut body = body.to_vec();
        if kind == TEXT {
            let (subject, text) = body.split_first()?;
            body = [&[*subject, 1][..], &packed(text)?].concat();
        }
        if kind == END && body.len() >= 8 {
            body[..8].copy_from_slice(&frames.to_le_bytes());
        }
        let begin = [u32::from(kind).to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        let checksum = crc32([&*begin, &*body].concat().as_slice());
        stream.extend([&*begin, &checksum.to_le_bytes(), &body].concat());
        frames += 1;
    }
    Some(stream)
}

/// A zstd frame.
fn packed(text: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = ChunkCompressor::new(Compression::zstd(1), Endian::Little).ok()?;
    // Behind the two sizes of a chunk.
    compressor.compress(text).ok()?.get(8..).map(<[u8]>::to_vec)
}

/// IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}
