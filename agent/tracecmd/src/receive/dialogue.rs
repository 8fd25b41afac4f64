//! What the recorder says, and the answers.
//!
//! Bytes go in, in whatever pieces they come, and what they mean comes out. What is kept of them is a text or
//! a message at most.

use super::super::{
    AGREED, ASK_V3, Carrier, GREETING, KNOWS_V3, MAGIC_V3, Version,
    message::{Command, Impossible, Message, Messages, message},
};
use tracedat::layout::is_page_size;

/// The longest text that a recorder says.
const TEXT_MAX: usize = 64;
/// Most CPUs: their ports must fit in a message.
const CPUS_MAX: u32 = 1024;
/// Most options.
const OPTIONS_MAX: u32 = 16;
/// The largest page that a datagram holds (udp(7)).
const DATAGRAM_MAX: u32 = 32 << 10;
/// How often a recorder may ask for versions that are not known.
const QUESTIONS_MAX: u32 = 4;

/// Why a recorder is not listened to any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialogueError {
    /// It is none.
    #[error("it is no recorder of trace-cmd: it says {0:?}")]
    NoRecorder(String),
    /// It wants a version that is not known here.
    #[error("it wants version {0:?} of the protocol, and here 1 and 3 are known")]
    Version(String),
    /// A message with lengths that cannot be.
    #[error("it sent a message of {size} bytes with impossible lengths")]
    Message {
        /// How long the message says that it is.
        size: u32,
    },
    /// A message that is not due.
    #[error("it sent a message that is not due: {0}")]
    NotDue(&'static str),
    /// It has an impossible number of CPUs.
    #[error("it says that it has {0:?} CPUs")]
    Cpus(String),
    /// Its pages have an impossible size.
    #[error("it says that its pages have {0:?} bytes")]
    PageSize(String),
    /// It wants what is not known here.
    #[error("it wants {0:?}, which is not known here")]
    Option(String),
    /// What describes the events is too long.
    #[error("what describes its events has more than {limit} bytes, which is the limit")]
    Metadata {
        /// How many bytes it may have.
        limit: u64,
    },
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This is to be answered.
    Answer(Vec<u8>),
    /// What comes: ports are to be opened, and [said](Dialogue::ports).
    Begin {
        /// Number of CPUs.
        cpus: u32,
        /// Bytes of a page.
        page_size: u32,
        /// How the pages come.
        carrier: Carrier,
    },
    /// More of what describes the events.
    Metadata(Vec<u8>),
    /// That was all of it.
    MetadataEnd,
    /// All data were sent.
    Close,
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct Dialogue {
    state: State,
    messages: Messages,
    text: Vec<u8>,
    questions: u32,
    metadata: u64,
    metadata_max: u64,
    /// Whether pages come through vsock when nothing else is said.
    is_vsock: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// A version, or a number of CPUs.
    Version,
    Magic,
    Init,
    V1PageSize {
        cpus: u32,
    },
    V1Options {
        cpus: u32,
        page_size: u32,
    },
    V1Option {
        cpus: u32,
        page_size: u32,
        left: u32,
        len: Option<usize>,
        carrier: Carrier,
    },
    /// The ports are to be said.
    Ports {
        cpus: u32,
        version: Version,
    },
    Metadata,
    /// A file until the connection ends.
    V1Metadata,
    Closing,
    Closed,
}

impl Dialogue {
    /// A conversation that begins: what is to be said first, too. What describes the events may have so many
    /// bytes.
    pub fn begin(metadata_max: u64, is_vsock: bool) -> (Self, &'static [u8]) {
        let (state, messages) = (State::Version, Messages::default());
        let dialogue =
            Self { state, messages, text: Vec::new(), questions: 0, metadata: 0, metadata_max, is_vsock };
        (dialogue, GREETING)
    }

    /// Which version is spoken, once that is known.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            State::Version | State::Magic | State::Init => None,
            State::V1PageSize { .. }
            | State::V1Options { .. }
            | State::V1Option { .. }
            | State::V1Metadata => Some(Version::V1),
            State::Ports { version, .. } => Some(version),
            State::Metadata | State::Closing | State::Closed => Some(Version::V3),
        }
    }

    /// Whether the recorder has not said yet what comes.
    pub fn is_greeting(&self) -> bool {
        !matches!(self.state, State::Metadata | State::V1Metadata | State::Closing | State::Closed)
    }

    /// Takes bytes from the beginning of `input`, and gives what they mean. Without a meaning all of them are
    /// taken.
    ///
    /// # Errors
    /// They mean nothing. Nothing more is to be taken then.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<Said>, DialogueError> {
        loop {
            match &self.state {
                State::Closed | State::Ports { .. } if input.is_empty() => return Ok(None),
                State::Closed => return Err(DialogueError::NotDue("after the end")),
                State::Ports { .. } => return Err(DialogueError::NotDue("before the ports were said")),
                State::V1Metadata => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    return self.metadata(std::mem::take(input).to_vec()).map(Some);
                }
                State::Init | State::Metadata | State::Closing => {
                    let message = self.messages.take(input);
                    let message = message.map_err(|Impossible { size }| DialogueError::Message { size })?;
                    let Some(message) = message else { return Ok(None) };
                    if let Some(said) = self.message(message)? {
                        return Ok(Some(said));
                    }
                }
                State::Magic => {
                    let Some(()) = self.fill(input, |text| text.len() == MAGIC_V3.len()) else {
                        return Ok(None);
                    };
                    let text = std::mem::take(&mut self.text);
                    if text != MAGIC_V3 {
                        return Err(DialogueError::NoRecorder(words(&text)));
                    }
                    self.state = State::Init;
                    return Ok(Some(Said::Answer(AGREED.to_vec())));
                }
                State::V1Option { len: Some(len), .. } => {
                    let len = *len;
                    let Some(()) = self.fill(input, |text| text.len() == len) else { return Ok(None) };
                    let text = std::mem::take(&mut self.text);
                    if let Some(said) = self.v1_option(&text)? {
                        return Ok(Some(said));
                    }
                }
                _ => {
                    let Some(()) = self.fill(input, |text| text.ends_with(&[0])) else { return Ok(None) };
                    let text = std::mem::take(&mut self.text);
                    if let Some(said) = self.text(&text)? {
                        return Ok(Some(said));
                    }
                }
            }
            if self.text.len() > TEXT_MAX {
                return Err(DialogueError::NoRecorder(words(&self.text)));
            }
        }
    }

    /// What to answer when the ports are open, that of CPU 0 first.
    pub fn ports(&mut self, ports: &[u32]) -> Vec<u8> {
        let State::Ports { cpus, version } = self.state else { return Vec::new() };
        let texts: Vec<String> = ports.iter().map(u32::to_string).collect();
        match version {
            Version::V3 => {
                self.state = State::Metadata;
                let body: Vec<u8> = texts.iter().flat_map(|text| text.bytes().chain([0])).collect();
                message(Command::RInit, &cpus.to_be_bytes(), &body)
            }
            Version::V1 => {
                self.state = State::V1Metadata;
                let mut answer = texts.join(",").into_bytes();
                answer.push(0);
                answer
            }
        }
    }

    /// Takes bytes for a text until it is complete; `None` if it is not. It stops at one that is too long.
    fn fill(&mut self, input: &mut &[u8], is_complete: impl Fn(&[u8]) -> bool) -> Option<()> {
        while !is_complete(&self.text) {
            if self.text.len() > TEXT_MAX {
                // Whoever takes it for what it is finds that it makes no sense.
                return Some(());
            }
            let (first, rest) = input.split_first()?;
            self.text.push(*first);
            *input = rest;
        }
        Some(())
    }

    fn text(&mut self, text: &[u8]) -> Result<Option<Said>, DialogueError> {
        let word = words(text);
        let number = word.parse::<u32>().ok();
        match self.state {
            State::Version if text == ASK_V3 => {
                self.state = State::Magic;
                Ok(Some(Said::Answer(KNOWS_V3.to_vec())))
            }
            State::Version if word.starts_with("-1V") => {
                self.questions += 1;
                if self.questions == QUESTIONS_MAX {
                    return Err(DialogueError::Version(word.trim_start_matches("-1").to_owned()));
                }
                Ok(Some(Said::Answer(KNOWS_V3.to_vec())))
            }
            State::Version => match number {
                None => Err(DialogueError::NoRecorder(word)),
                Some(cpus) => {
                    self.state = State::V1PageSize { cpus: possible_cpus(cpus)? };
                    Ok(None)
                }
            },
            State::V1PageSize { cpus } => {
                let page_size = number.filter(|size| is_page_size(*size));
                let page_size = page_size.ok_or(DialogueError::PageSize(word))?;
                self.state = State::V1Options { cpus, page_size };
                Ok(None)
            }
            State::V1Options { cpus, page_size } => {
                let left = number.filter(|count| *count <= OPTIONS_MAX).ok_or(DialogueError::Option(word))?;
                let carrier = Carrier::Udp;
                self.state = State::V1Option { cpus, page_size, left, len: None, carrier };
                self.v1_begin()
            }
            State::V1Option { cpus, page_size, left, len: None, carrier } => {
                let len = number.map(|len| len as usize).filter(|len| (1..=TEXT_MAX).contains(len));
                let len = Some(len.ok_or(DialogueError::Option(word))?);
                self.state = State::V1Option { cpus, page_size, left, len, carrier };
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn v1_option(&mut self, text: &[u8]) -> Result<Option<Said>, DialogueError> {
        let State::V1Option { cpus, page_size, left, .. } = self.state else { return Ok(None) };
        if text != b"TCP\0" {
            return Err(DialogueError::Option(words(text)));
        }
        let (left, carrier) = (left.saturating_sub(1), Carrier::Tcp);
        self.state = State::V1Option { cpus, page_size, left, len: None, carrier };
        self.v1_begin()
    }

    /// Begins if there are no more options.
    fn v1_begin(&mut self) -> Result<Option<Said>, DialogueError> {
        match self.state {
            State::V1Option { cpus, page_size, left: 0, carrier, .. } => {
                self.begin_data(cpus, page_size, carrier, Version::V1).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn begin_data(
        &mut self,
        cpus: u32,
        page_size: u32,
        carrier: Carrier,
        version: Version,
    ) -> Result<Said, DialogueError> {
        if carrier == Carrier::Udp && page_size > DATAGRAM_MAX {
            return Err(DialogueError::PageSize(page_size.to_string()));
        }
        // There are no datagrams between a virtual machine and its host.
        let carrier = if self.is_vsock { Carrier::Vsock } else { carrier };
        if carrier == Carrier::Vsock && !self.is_vsock {
            return Err(DialogueError::Option("vsock".to_owned()));
        }
        self.state = State::Ports { cpus, version };
        Ok(Said::Begin { cpus, page_size, carrier })
    }

    fn message(&mut self, came: Message) -> Result<Option<Said>, DialogueError> {
        match (&self.state, came.command) {
            (State::Init, Some(Command::TInit)) => self.init(&came).map(Some),
            (State::Init, _) => Err(DialogueError::NotDue("before it said what comes")),
            // There is nothing in it.
            (State::Metadata, Some(Command::SendData)) if came.body.is_empty() => Ok(None),
            (State::Metadata, Some(Command::SendData)) => self.metadata(came.body).map(Some),
            (State::Metadata, Some(Command::FinData)) => {
                self.state = State::Closing;
                Ok(Some(Said::MetadataEnd))
            }
            (State::Metadata | State::Closing, Some(Command::Close)) => {
                self.state = State::Closed;
                Ok(Some(Said::Close))
            }
            (State::Closing, Some(Command::SendData | Command::FinData)) => {
                Err(DialogueError::NotDue("more of what describes the events, after its end"))
            }
            // It may not know better.
            (_, Some(Command::NotSupported)) => Ok(None),
            (_, _) => Ok(Some(Said::Answer(message(Command::NotSupported, &[], &[])))),
        }
    }

    fn init(&mut self, message: &Message) -> Result<Said, DialogueError> {
        let number = |index| message.number(index).ok_or(DialogueError::NotDue("one without numbers"));
        let (cpus, page_size, options) = (number(0)?, number(1)?, number(2)?);
        let cpus = possible_cpus(cpus)?;
        if !is_page_size(page_size) {
            return Err(DialogueError::PageSize(page_size.to_string()));
        }
        let texts = message.texts().filter(|_| options <= OPTIONS_MAX);
        let texts = texts.ok_or_else(|| DialogueError::Option(words(&message.body)))?;
        let mut carrier = Carrier::Udp;
        for text in texts.take(options as usize) {
            match text {
                b"tcp" => carrier = Carrier::Tcp,
                b"vsock" => carrier = Carrier::Vsock,
                // trace-cmd passes over what it does not know.
                _ => {}
            }
        }
        self.begin_data(cpus, page_size, carrier, Version::V3)
    }

    fn metadata(&mut self, bytes: Vec<u8>) -> Result<Said, DialogueError> {
        self.metadata += bytes.len() as u64;
        if self.metadata > self.metadata_max {
            return Err(DialogueError::Metadata { limit: self.metadata_max });
        }
        Ok(Said::Metadata(bytes))
    }
}

fn possible_cpus(cpus: u32) -> Result<u32, DialogueError> {
    Some(cpus)
        .filter(|cpus| (1..=CPUS_MAX).contains(cpus))
        .ok_or_else(|| DialogueError::Cpus(cpus.to_string()))
}

/// A text for a message, without the NUL at its end.
fn words(text: &[u8]) -> String {
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    String::from_utf8_lossy(text.get(..TEXT_MAX).unwrap_or(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100;

    /// What is said to a recorder that says this in pieces of `step` bytes.
    fn said(bytes: &[u8], step: usize) -> (Vec<Said>, Result<(), DialogueError>) {
        let (mut dialogue, greeting) = Dialogue::begin(LIMIT, false);
        assert_eq!(greeting, b"tracecmd");
        let mut all: Vec<Said> = Vec::new();
        for mut piece in bytes.chunks(step) {
            loop {
                match dialogue.take(&mut piece) {
                    Err(error) => return (all, Err(error)),
                    Ok(None) => break,
                    Ok(Some(Said::Begin { cpus, page_size, carrier })) => {
                        all.push(Said::Begin { cpus, page_size, carrier });
                        assert!(dialogue.is_greeting());
                        let ports: Vec<u32> = (1500..).take(cpus as usize).collect();
                        all.push(Said::Answer(dialogue.ports(&ports)));
                        assert!(!dialogue.is_greeting());
                    }
                    // However it comes.
                    Ok(Some(Said::Metadata(more))) => match all.last_mut() {
                        Some(Said::Metadata(before)) => before.extend(more),
                        _ => all.push(Said::Metadata(more)),
                    },
                    Ok(Some(said)) => all.push(said),
                }
            }
            assert!(piece.is_empty());
        }
        (all, Ok(()))
    }

    fn init(cpus: u32, page_size: u32, options: u32, texts: &[u8]) -> Vec<u8> {
        message(Command::TInit, [cpus, page_size, options].map(u32::to_be_bytes).as_flattened(), texts)
    }

    fn v3(messages: &[&[u8]]) -> Vec<u8> {
        [ASK_V3, MAGIC_V3, &messages.concat()].concat()
    }

    fn data(bytes: &[u8]) -> Vec<u8> {
        message(Command::SendData, &[], bytes)
    }

    #[test]
    fn version_3_in_whatever_pieces() {
        let bytes = v3(&[
            &init(2, 4096, 1, b"tcp\0"),
            &data(b"abc"),
            &data(b""),
            &data(b"def"),
            &message(Command::FinData, &[], &[]),
            &message(Command::Close, &[], &[]),
        ]);
        let expected = [
            Said::Answer(b"V3\0".to_vec()),
            Said::Answer(b"OK".to_vec()),
            Said::Begin { cpus: 2, page_size: 4096, carrier: Carrier::Tcp },
            Said::Answer(b"\0\0\0\x1a\0\0\0\x02\0\0\0\x04\0\0\0\x021500\x001501\0".to_vec()),
            Said::Metadata(b"abcdef".to_vec()),
            Said::MetadataEnd,
            Said::Close,
        ];
        for step in 1..=bytes.len() {
            assert_eq!(said(&bytes, step), (expected.to_vec(), Ok(())), "{step}");
        }
    }

    #[test]
    fn version_1_in_whatever_pieces() {
        let bytes = b"3\08192\x001\x004\0TCP\0a file";
        let expected = [
            Said::Begin { cpus: 3, page_size: 8192, carrier: Carrier::Tcp },
            Said::Answer(b"1500,1501,1502\0".to_vec()),
            Said::Metadata(b"a file".to_vec()),
        ];
        for step in 1..=bytes.len() {
            assert_eq!(said(bytes, step), (expected.to_vec(), Ok(())), "{step}");
        }
        let (datagrams, _) = said(b"1\x004096\x000\0", 1);
        assert_eq!(datagrams[0], Said::Begin { cpus: 1, page_size: 4096, carrier: Carrier::Udp });
    }

    #[test]
    fn later_versions_are_told_what_is_known() {
        let (answers, ended) = said(&[b"-1V4\0", &v3(&[])[..]].concat(), 3);
        assert_eq!(answers.len(), 3);
        assert_eq!(ended, Ok(()));
        let (_, ended) = said(b"-1V4\0-1V5\0-1V6\0-1V7\0", 100);
        assert_eq!(ended, Err(DialogueError::Version("V7".to_owned())));
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        let close = message(Command::Close, &[], &[]);
        let ended = |bytes: &[u8]| said(bytes, 7).1.unwrap_err().to_string();
        for (bytes, why) in [
            (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n\0".to_vec(), "no recorder"),
            (vec![b'9'; 1000], "no recorder"),
            (b"0\0".to_vec(), "\"0\" CPUs"),
            (b"100000\0".to_vec(), "\"100000\" CPUs"),
            (b"1\x00100\0".to_vec(), "\"100\" bytes"),
            (b"1\x004096\0999999\0".to_vec(), "not known"),
            (b"1\x004096\x001\0-4\0".to_vec(), "not known"),
            (b"1\x004096\x001\x004\0UDP\0".to_vec(), "not known"),
            (b"1\x0065536\x000\0".to_vec(), "\"65536\" bytes"),
            (b"-1V3\0abcdefgh".to_vec(), "no recorder"),
            (v3(&[&close]), "before it said what comes"),
            (v3(&[&init(0, 4096, 0, b"")]), "\"0\" CPUs"),
            (v3(&[&init(u32::MAX, 4096, 0, b"")]), "CPUs"),
            (v3(&[&init(1, 0, 0, b"")]), "\"0\" bytes"),
            (v3(&[&init(1, 4096, 1, b"tcp")]), "\"tcp\""),
            (v3(&[&init(1, 4096, 99, b"tcp\0")]), "not known"),
            (v3(&[&init(1, 4096, 1, b"vsock\0")]), "vsock"),
            (v3(&[&message(Command::TInit, &[0, 0], b"")]), "one without numbers"),
            (v3(&[&[0xff; 12]]), "impossible lengths"),
            (v3(&[&init(1, 4096, 0, b""), &data(&[7; 101])]), "100 bytes, which is the limit"),
            (v3(&[&init(1, 4096, 0, b""), &data(&[7; 60]), &data(&[7; 60])]), "the limit"),
            (
                v3(&[&init(1, 4096, 0, b""), &message(Command::FinData, &[], &[]), &data(b"x")]),
                "after its end",
            ),
            (v3(&[&init(1, 4096, 0, b""), &close, &close]), "after the end"),
        ] {
            let found = ended(&bytes);
            assert!(found.contains(why), "{found:?} is not {why:?}");
        }
    }

    #[test]
    fn unknown_commands_are_refused_and_unknown_options_passed_over() {
        let unknown = [12_u32, 10, 0].map(u32::to_be_bytes).concat();
        let (answers, ended) = said(&v3(&[&init(1, 4096, 2, b"later\0tcp\0"), &unknown]), 5);
        assert_eq!(ended, Ok(()));
        assert_eq!(answers[2], Said::Begin { cpus: 1, page_size: 4096, carrier: Carrier::Tcp });
        assert_eq!(answers.last(), Some(&Said::Answer(b"\0\0\0\x0c\0\0\0\x05\0\0\0\0".to_vec())));
    }
}
