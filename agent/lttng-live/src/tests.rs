//! A viewer that says what the tests tell it to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use super::Offer;
use super::{
    ADDRESS, Server, Sessions,
    connection::Connection,
    message::{self, Parsed},
    parse_bind, warning,
};
use ctf_writer::PacketFile;
use ctf_writer::sample::Sample;

fn offer(sessions: &Sessions, timer_us: u64) -> Offer {
    sessions.offer(("machine", "mine"), timer_us, Box::new(PacketFile::open))
}

/// The bytes of a request.
fn request(command: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u64).to_be_bytes().to_vec();
    bytes.extend(command.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A viewer without a socket.
struct Viewer {
    sessions: Sessions,
    connection: Connection,
    now: Duration,
}

/// A stream that it was told of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    id: u64,
    trace: u64,
    is_metadata: bool,
    path: String,
    channel: String,
}

impl Viewer {
    fn new(sessions: &Sessions) -> Self {
        let mut viewer = Self {
            sessions: sessions.clone(),
            connection: Connection::new(Duration::ZERO),
            now: Duration::ZERO,
        };
        let version = [&[0; 8][..], &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1]].concat();
        let answer = viewer.ask(1, &version);
        assert_eq!(answer[8..], [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1]);
        assert_eq!(viewer.ask(8, &[]), [0, 0, 0, 1]);
        viewer
    }

    fn ask(&mut self, command: u32, payload: &[u8]) -> Vec<u8> {
        self.connection.hear(&request(command, payload), self.now, &self.sessions).unwrap();
        let answer = self.connection.unsent().to_vec();
        self.connection.sent(answer.len(), self.now, &self.sessions).unwrap();
        assert!(self.connection.unsent().is_empty());
        answer
    }

    fn list(&mut self) -> Vec<(u64, u32, u32, u32, String, String)> {
        let answer = self.ask(2, &[]);
        assert_eq!(answer.len(), 4 + word(&answer, 0) as usize * 339);
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap()
        };
        let row = |of: &[u8]| {
            (long(of, 0), word(of, 8), word(of, 12), word(of, 16), text(&of[20..84]), text(&of[84..]))
        };
        answer[4..].chunks(339).map(row).collect()
    }

    fn attach(&mut self, session: u64, seek: u32) -> (u32, Vec<Stream>) {
        let payload = [&session.to_be_bytes()[..], &[0; 8], &seek.to_be_bytes()].concat();
        streams(&self.ask(3, &payload))
    }

    fn new_streams(&mut self, session: u64) -> (u32, Vec<Stream>) {
        streams(&self.ask(7, &session.to_be_bytes()))
    }

    /// The words of an index, its status, and flags.
    fn next(&mut self, stream: u64) -> ([u64; 7], u32, u32) {
        let answer = self.ask(4, &stream.to_be_bytes());
        assert_eq!(answer.len(), 64);
        (std::array::from_fn(|index| long(&answer, index * 8)), word(&answer, 56), word(&answer, 60))
    }

    /// Status, flags and bytes of a packet.
    fn packet(&mut self, stream: u64, offset: u64, bytes: u32) -> (u32, u32, Vec<u8>) {
        let payload = [&stream.to_be_bytes()[..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat();
        let answer = self.ask(5, &payload);
        assert_eq!(answer.len(), 12 + word(&answer, 4) as usize);
        (word(&answer, 0), word(&answer, 8), answer[12..].to_vec())
    }

    /// Status and bytes of metadata.
    fn metadata(&mut self, stream: u64) -> (u32, Vec<u8>) {
        let answer = self.ask(6, &stream.to_be_bytes());
        assert_eq!(answer.len() as u64, 12 + long(&answer, 0));
        (word(&answer, 8), answer[12..].to_vec())
    }
}

fn streams(answer: &[u8]) -> (u32, Vec<Stream>) {
    let text =
        |bytes: &[u8]| String::from_utf8(bytes.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap();
    let stream = |of: &[u8]| Stream {
        id: long(of, 0),
        trace: long(of, 8),
        is_metadata: word(of, 16) == 1,
        path: text(&of[20..4116]),
        channel: text(&of[4116..]),
    };
    assert_eq!(answer.len(), 8 + word(answer, 4) as usize * 4371);
    (word(answer, 0), answer[8..].chunks(4371).map(stream).collect())
}

const OK: u32 = 1;
const RETRY: u32 = 2;
const HUNG_UP: u32 = 3;
const INACTIVE: u32 = 5;
const NEW_METADATA: u32 = 1;
const NEW_STREAMS: u32 = 2;

#[test]
fn a_viewer_reads_what_comes() {
    let mut sample = Sample::new();
    let sessions = Sessions::default();
    let offer = offer(&sessions, 500_000);
    offer.add(sample.publication.clone());
    sample.declare(1, b'a');
    let stream = sample.stream();
    sample.packet(stream, 20, 0);

    let mut viewer = Viewer::new(&sessions);
    let id = viewer.list()[0].0;
    assert_eq!(viewer.list(), [(id, 500_000, 0, 1, "machine".into(), "mine".into())]);
    let (status, told) = viewer.attach(id, 2);
    assert_eq!((status, told.len()), (OK, 2));
    assert_eq!((told[0].is_metadata, told[0].channel.as_str()), (true, "metadata"));
    assert_eq!((told[1].is_metadata, told[1].channel.as_str()), (false, "channel0_0"));
    assert_eq!((told[1].path.as_str(), told[1].trace), ("machine/mine/kernel", told[0].trace));
    assert_eq!(viewer.list()[0].2, 1, "it is there");
    let (metadata, stream_id) = (told[0].id, told[1].id);

    // What was there before it came is behind it.
    assert_eq!(viewer.next(stream_id), ([0; 7], RETRY, NEW_METADATA));
    assert_eq!(viewer.metadata(metadata), (OK, vec![b'a'; 4096]));
    assert_eq!(viewer.metadata(metadata), (2, Vec::new()), "there is no more");
    assert_eq!(viewer.next(stream_id), ([0; 7], RETRY, 0));

    sample.packet(stream, 30, 10_000);
    let (index, status, flags) = viewer.next(stream_id);
    assert_eq!((index[0], index[1], status, flags), (4096, 12288 * 8, OK, 0));
    assert_eq!((index[3], index[4], index[5], index[6]), (30, 30, 0, 3));
    let (status, _, head) = viewer.packet(stream_id, 4096, 100);
    assert_eq!((status, head.len(), head[..4].to_vec()), (OK, 100, 0xc1fc_1fc1_u32.to_le_bytes().to_vec()));
    let (status, _, rest) = viewer.packet(stream_id, 4196, 1 << 20);
    assert_eq!((status, rest.len()), (OK, 12188), "not more than there is of the packet");
    assert_eq!(viewer.packet(stream_id, 4096, 100), (OK, 0, head), "again");
    for (offset, bytes) in [(0, 100), (4096, 0), (16384, 1), (u64::MAX, 1)] {
        assert_eq!(viewer.packet(stream_id, offset, bytes), (3, 0, Vec::new()), "{offset} {bytes}");
    }
    assert_eq!(viewer.next(metadata).1, HUNG_UP, "there is no index of metadata");
    assert_eq!((viewer.next(99).1, viewer.packet(99, 0, 1).0, viewer.metadata(99).0), (4, 3, 3));

    // It comes again, from the beginning.
    assert_eq!(viewer.attach(id, 1).0, 2, "it is there already");
    assert_eq!(viewer.ask(9, &id.to_be_bytes()), [0, 0, 0, 1]);
    assert_eq!(viewer.ask(9, &id.to_be_bytes()), [0, 0, 0, 2]);
    assert_eq!(viewer.new_streams(id).0, 3);
    assert_eq!((viewer.attach(id, 3).0, viewer.attach(77, 1).0), (5, 3));
    let (_, told) = viewer.attach(id, 1);
    let stream_id = told[1].id;
    assert_eq!((viewer.next(stream_id).0[3], viewer.next(stream_id).0[3]), (10, 30));
    assert!(viewer.connection.is_reading());

    // The session ends while it reads.
    sample.packet(stream, 40, 0);
    sample.publication.end();
    drop(offer);
    assert_eq!(viewer.list(), []);
    assert_eq!((viewer.next(stream_id).1, viewer.next(stream_id).1), (OK, HUNG_UP));
    assert_eq!(viewer.new_streams(id), (4, Vec::new()));
    assert!(!viewer.connection.is_reading());
}

#[test]
fn a_packet_waits_for_the_metadata_that_describe_it() {
    let mut sample = Sample::new();
    let sessions = Sessions::default();
    let offer = offer(&sessions, 1);
    offer.add(sample.publication.clone());
    let stream = sample.stream();
    sample.declare(1, b'a');
    let mut viewer = Viewer::new(&sessions);
    let (_, told) = viewer.attach(1, 1);
    let (metadata, id) = (told[0].id, told[1].id);
    viewer.metadata(metadata);
    sample.declare(300, b'b');
    sample.packet(stream, 20, 0);
    let (index, _, flags) = viewer.next(id);
    assert_eq!(flags, NEW_METADATA);
    assert_eq!(viewer.packet(id, index[0], 84), (3, NEW_METADATA, Vec::new()));
    // In pieces of whole packets.
    let (first, second) = (viewer.metadata(metadata).1.len(), viewer.metadata(metadata).1.len());
    assert_eq!((first % 4096, first + second), (0, 300 << 12));
    // What is declared meanwhile is not about this one.
    sample.declare(1, b'c');
    assert_eq!(viewer.packet(id, index[0], 84).0, OK);
    assert_eq!(viewer.next(id).2, NEW_METADATA);
}

#[test]
fn silence_is_told_once_and_not_before_new_streams() {
    let mut sample = Sample::new();
    let sessions = Sessions::default();
    let offer = offer(&sessions, 1);
    offer.add(sample.publication.clone());
    let stream = sample.stream();
    sample.packet(stream, 20, 0);
    let mut viewer = Viewer::new(&sessions);
    let (_, told) = viewer.attach(1, 2);
    let id = told[1].id;
    sample.silence(50);
    assert_eq!(viewer.next(id), ([0, 0, 0, 0, 50, 0, 3], INACTIVE, 0));
    assert_eq!(viewer.next(id).1, RETRY, "it knows that");
    sample.packet(stream, 70, 0);
    sample.silence(60);
    assert_eq!(viewer.next(id).1, OK);
    assert_eq!(viewer.next(id).1, RETRY, "it knows more");
    let other = sample.stream();
    sample.packet(other, 75, 0);
    sample.silence(80);
    assert_eq!(viewer.next(id), ([0; 7], RETRY, NEW_STREAMS), "no beacon of what it does not know");
    sample.packet(stream, 90, 0);
    assert_eq!((viewer.next(id).1, viewer.next(id).2), (OK, NEW_STREAMS));
    let (status, told) = viewer.new_streams(1);
    assert_eq!((status, told.len(), told[0].channel.as_str()), (OK, 1, "channel0_1"));
    assert_eq!(viewer.new_streams(1), (2, Vec::new()));
    assert_eq!((viewer.next(told[0].id).1, viewer.next(told[0].id).1), (OK, INACTIVE));
    sample.silence(100);
    assert_eq!((viewer.next(id).0[4], viewer.next(told[0].id).0[4]), (100, 99), "told apart by their times");
}

#[test]
fn the_next_recording_of_a_session_is_told_of_before_the_last_one_has_more() {
    let (mut first, mut second) = (Sample::new(), Sample::new());
    let sessions = Sessions::default();
    let offer = offer(&sessions, 1);
    let mut viewer = Viewer::new(&sessions);
    assert_eq!(viewer.attach(1, 2), (OK, Vec::new()), "nothing is recorded yet");
    assert_eq!(viewer.new_streams(1), (2, Vec::new()));
    let stream = first.stream();
    offer.add(first.publication.clone());
    let id = viewer.new_streams(1).1[1].id;
    first.packet(stream, 20, 0);
    offer.hold();
    assert_eq!(viewer.next(id).1, RETRY);
    offer.release();
    assert_eq!(viewer.next(id).1, OK, "it did not begin");
    offer.hold();
    first.packet(stream, 40, 0);
    first.silence(45);
    offer.add(second.publication.clone());
    let other = second.stream();
    assert_eq!(viewer.next(id).1, RETRY);
    second.silence(30);
    assert_eq!((viewer.next(id).1, viewer.next(id).2), (OK, NEW_STREAMS));
    let (status, told) = viewer.new_streams(1);
    assert_eq!((status, told.len()), (OK, 2), "a trace of its own");
    second.packet(other, 35, 0);
    assert_eq!((viewer.next(told[1].id).0[4], viewer.next(told[1].id).0[4]), (30, 35));
    first.publication.end();
    assert_eq!((viewer.next(id).1, viewer.new_streams(1).0), (HUNG_UP, 2));
    second.publication.end();
    assert_eq!((viewer.next(told[1].id).1, viewer.new_streams(1).0), (HUNG_UP, 2), "it may be started again");
    drop(offer);
    assert_eq!(viewer.new_streams(1).0, 4);
}

#[test]
fn chunks_are_one_stream_and_what_is_removed_is_passed_over() {
    let mut sample = Sample::new();
    let sessions = Sessions::default();
    let offer = offer(&sessions, 1);
    offer.add(sample.publication.clone());
    let stream = sample.stream();
    let mut viewer = Viewer::new(&sessions);
    let id = viewer.attach(1, 2).1[1].id;
    for chunk in 1..=4 {
        sample.packet(stream, chunk * 100, 0);
        sample.packet(stream, chunk * 100 + 50, 0);
        sample.rotate();
    }
    assert_eq!(viewer.next(id).0[4], 100);
    sample.remove(1);
    assert_eq!(viewer.packet(id, 0, 84).0, OK, "what it has begun to read stays");
    sample.remove(3);
    let times: Vec<u64> = (0..4).map(|_| viewer.next(id).0[4]).collect();
    assert_eq!(times, [200, 250, 400, 450]);
    assert_eq!(viewer.next(id).1, RETRY);
    let chunks = |sample: &Sample| sample.publication.read(|state| state.chunks.len());
    assert_eq!(chunks(&sample), 5);
    viewer.connection.viewer().look_after();
    assert_eq!(chunks(&sample), 1, "it needs no more");
    // One that does not read holds a few.
    let mut stopped = Viewer::new(&sessions);
    stopped.attach(1, 2);
    for chunk in 5..=40 {
        sample.packet(stream, chunk * 100, 0);
        sample.rotate();
    }
    viewer.connection.viewer().look_after();
    stopped.connection.viewer().look_after();
    assert!((2..20).contains(&chunks(&sample)), "{}", chunks(&sample));
}

#[test]
fn who_says_nothing_is_sent_away_in_the_end() {
    let sessions = Sessions::default();
    let seconds = Duration::from_secs;
    let mut silent = Connection::new(seconds(5));
    assert_eq!(silent.deadline(), seconds(15), "it has to say who it is");
    silent.hear(&[0], seconds(14), &sessions).unwrap();
    assert_eq!(silent.deadline(), seconds(15));

    let mut viewer = Viewer::new(&sessions);
    assert_eq!(viewer.connection.deadline(), seconds(3600));
    viewer.now = seconds(3000);
    viewer.list();
    assert_eq!(viewer.connection.deadline(), seconds(6600));
    // Half a request, byte by byte.
    let half = request(4, &[0; 8]);
    for (byte, now) in half.iter().zip(4000..) {
        assert!(viewer.connection.deadline() > seconds(now) || now >= 4010);
        viewer.connection.hear(&[*byte], seconds(now), &sessions).unwrap();
        if now < 4023 {
            assert_eq!(viewer.connection.deadline(), seconds(4010));
        }
    }
    assert_eq!(viewer.connection.deadline(), seconds(4023 + 3600));
    // One that takes its answer slowly is there.
    viewer.connection.sent(1, seconds(7000), &sessions).unwrap();
    assert_eq!(viewer.connection.deadline(), seconds(7000 + 3600));
}

#[test]
fn what_is_no_request_is_told_from_a_part_of_one() {
    for len in 0..36 {
        let whole = request(3, &[1; 20]);
        let expected = message::parse(&whole[..len]);
        assert_eq!(expected, Parsed::Part, "{len}");
    }
    assert!(matches!(message::parse(&request(3, &[1; 20])), Parsed::Whole(_, 36)));
    let mut swapped = request(4, &[0; 8]);
    swapped[..8].copy_from_slice(&8_u64.to_le_bytes());
    assert!(matches!(message::parse(&swapped), Parsed::Whole(_, 24)), "old viewers");
    for wrong in [request(0, &[]), request(10, &[]), request(2, &[0]), request(4, &[0; 20])] {
        assert_eq!(message::parse(&wrong), Parsed::Wrong);
    }
    let sessions = Sessions::default();
    let early = request(2, &[]);
    assert!(Connection::new(Duration::ZERO).hear(&early, Duration::ZERO, &sessions).is_err());
    let other = request(1, &[0; 20]);
    assert!(Connection::new(Duration::ZERO).hear(&other, Duration::ZERO, &sessions).is_err());
}

#[test]
fn hostile_clients_are_closed_and_others_are_served() {
    let server = Server::start(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
    let connect = || {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    };
    let is_closed = |mut stream: TcpStream| match stream.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    let version = [&[0; 8][..], &[0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1]].concat();
    let mut good = connect();
    good.write_all(&request(1, &version)).unwrap();
    good.read_exact(&mut [0; 20]).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 64], &request(7, &[0; 8])] {
        let mut stream = connect();
        stream.write_all(bytes).unwrap();
        assert!(is_closed(stream), "{bytes:?}");
    }
    let held: Vec<TcpStream> = (0..63).map(|_| connect()).collect();
    // Whoever answers last was let in after the others.
    good.write_all(&request(2, &[])).unwrap();
    good.read_exact(&mut [0; 4]).unwrap();
    assert!(is_closed(connect()), "there is no room");
    drop(held);
    good.write_all(&request(2, &[])).unwrap();
    good.read_exact(&mut [0; 4]).unwrap();
    assert!(server.drain(Duration::from_mins(1)));
}

#[test]
fn addresses_are_what_people_write() {
    assert_eq!(parse_bind("127.0.0.1"), Ok(ADDRESS));
    assert_eq!(parse_bind(":5000").unwrap().to_string(), "127.0.0.1:5000");
    assert_eq!(parse_bind("localhost:1").unwrap().to_string(), "127.0.0.1:1");
    assert_eq!(parse_bind("0.0.0.0").unwrap().to_string(), "0.0.0.0:5344");
    assert_eq!(parse_bind("::1").unwrap().to_string(), "[::1]:5344");
    assert_eq!(parse_bind("[::]:7").unwrap().to_string(), "[::]:7");
    for wrong in ["", "nowhere", "1.2.3.4:x", ":"] {
        assert!(parse_bind(wrong).is_err(), "{wrong}");
    }
    assert_eq!(warning(ADDRESS), None);
    assert!(warning("0.0.0.0:5344".parse().unwrap()).unwrap().contains("ssh -L 5344:localhost:5344"));
}
