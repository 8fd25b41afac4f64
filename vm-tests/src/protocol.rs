//! What host and guest tell each other.
//!
//! To the guest: a [`Plan`], a file in the initramfs. From the guest: [`Frame`]s on the second serial port,
//! each a tag byte, a length and that many bytes. All numbers are little-endian.

use std::io::{self, Read, Write};
use std::time::Duration;

/// Where the guest finds its plan.
pub const PLAN_PATH: &str = "/vm/plan";

/// A command for the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cmd {
    /// The program and its arguments.
    pub args: Vec<String>,
    /// When the guest kills it.
    pub timeout: Duration,
}

impl Cmd {
    /// How long a command may take unless it is told otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

    /// A program and its arguments; without a slash it is searched in `/bin`, `/usr/bin` and the `sbin`
    /// beside them.
    pub fn new(args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { args: args.into_iter().map(Into::into).collect(), timeout: Self::DEFAULT_TIMEOUT }
    }

    /// A line for busybox's shell.
    pub fn sh(line: &str) -> Self {
        Self::new(["/bin/busybox", "sh", "-c", line])
    }

    /// Kills it later, or sooner.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl From<&str> for Cmd {
    fn from(line: &str) -> Self {
        Self::sh(line)
    }
}

/// What a guest is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The commands, run one after the other whether they succeed or not.
    pub commands: Vec<Cmd>,
    /// The files to send after the last one.
    pub files: Vec<String>,
    /// A shell on the console instead of commands.
    pub shell: bool,
    /// Kernel modules to load first: their files, in this order.
    pub modules: Vec<String>,
    /// Where the [disk](crate::disk) is mounted.
    pub disk: Option<String>,
}

impl Plan {
    /// The plan as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.shell)];
        put_u32(&mut out, self.commands.len());
        for command in &self.commands {
            put_u32(&mut out, command.timeout.as_millis() as usize);
            put_u32(&mut out, command.args.len());
            command.args.iter().for_each(|arg| put_text(&mut out, arg));
        }
        for paths in [&self.files, &self.modules] {
            put_u32(&mut out, paths.len());
            for path in paths {
                put_text(&mut out, path);
            }
        }
        // No path is empty.
        put_text(&mut out, self.disk.as_deref().unwrap_or_default());
        out
    }

    /// The file as a plan.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut input = bytes;
        let mut shell = [0];
        input.read_exact(&mut shell)?;
        let mut commands = Vec::new();
        for _ in 0..get_u32(&mut input)? {
            let timeout = Duration::from_millis(u64::from(get_u32(&mut input)?));
            let args = (0..get_u32(&mut input)?).map(|_| get_text(&mut input)).collect::<io::Result<_>>()?;
            commands.push(Cmd { args, timeout });
        }
        let mut paths =
            || (0..get_u32(&mut input)?).map(|_| get_text(&mut input)).collect::<io::Result<Vec<_>>>();
        let (files, modules) = (paths()?, paths()?);
        let disk = Some(get_text(&mut input)?).filter(|path| !path.is_empty());
        Ok(Self { commands, files, shell: shell != [0], modules, disk })
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// The guest killed it, for it took too long.
    TimedOut,
    /// It could not be started; why is in its standard error.
    NotStarted,
}

/// Something that the guest reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The guest is up.
    Hello,
    /// A part of a command's standard output.
    Stdout(Vec<u8>),
    /// A part of a command's standard error.
    Stderr(Vec<u8>),
    /// The command ended; what follows belongs to the next.
    End(End),
    /// A file follows, in parts.
    File(String),
    /// A part of the file.
    Data(Vec<u8>),
    /// The file could not be read to its end.
    FileError(String),
    /// That was all.
    Done,
}

impl Frame {
    /// Sends it, in one write.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let ending;
        let (tag, payload): (u8, &[u8]) = match self {
            Self::Hello => (b'H', b""),
            Self::Stdout(data) => (b'O', data),
            Self::Stderr(data) => (b'E', data),
            Self::End(end) => {
                let (kind, value) = match end {
                    End::Code(code) => (0, *code),
                    End::Signal(signal) => (1, *signal),
                    End::TimedOut => (2, 0),
                    End::NotStarted => (3, 0),
                };
                let [a, b, c, d] = value.to_le_bytes();
                ending = [kind, a, b, c, d];
                (b'X', &ending)
            }
            Self::File(path) => (b'F', path.as_bytes()),
            Self::Data(data) => (b'D', data),
            Self::FileError(why) => (b'!', why.as_bytes()),
            Self::Done => (b'Z', b""),
        };
        let mut message = vec![tag];
        put_u32(&mut message, payload.len());
        message.extend_from_slice(payload);
        to.write_all(&message)
    }

    /// Receives the next one; `None` where the input ends, even inside a frame: the guest was cut off.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut tag = [0];
        let mut read = || {
            from.read_exact(&mut tag)?;
            let mut payload = vec![0; get_u32(from)? as usize];
            from.read_exact(&mut payload)?;
            Ok::<_, io::Error>(payload)
        };
        let payload = match read() {
            Ok(payload) => payload,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(match tag[0] {
            b'H' => Self::Hello,
            b'O' => Self::Stdout(payload),
            b'E' => Self::Stderr(payload),
            b'X' => {
                let [kind, a, b, c, d] =
                    payload.try_into().map_err(|_| io::Error::other("a command's end has 5 bytes"))?;
                let value = i32::from_le_bytes([a, b, c, d]);
                Self::End(match kind {
                    0 => End::Code(value),
                    1 => End::Signal(value),
                    2 => End::TimedOut,
                    _ => End::NotStarted,
                })
            }
            b'F' => Self::File(text(payload)?),
            b'D' => Self::Data(payload),
            b'!' => Self::FileError(text(payload)?),
            b'Z' => Self::Done,
            tag => return Err(io::Error::other(format!("the guest sent a frame of unknown tag {tag:#x}"))),
        }))
    }
}

fn put_u32(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u32).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u32(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn get_u32(input: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn get_text(input: &mut impl Read) -> io::Result<String> {
    let mut bytes = vec![0; get_u32(input)? as usize];
    input.read_exact(&mut bytes)?;
    text(bytes)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_survive_the_trip() {
        let plan = Plan {
            commands: vec![Cmd::sh("echo 'a b'"), Cmd::new(["x", ""]).timeout(Duration::from_millis(1500))],
            files: vec!["/tmp/ü".to_owned()],
            shell: false,
            modules: vec!["/vm/a.ko".to_owned(), "/vm/b.ko".to_owned()],
            disk: Some("/data".to_owned()),
        };
        assert_eq!(Plan::from_bytes(&plan.to_bytes()).expect("parse"), plan);
        assert_eq!(Plan::from_bytes(&Plan::default().to_bytes()).expect("parse"), Plan::default());
    }

    #[test]
    fn frames_survive_the_trip_and_a_cut_one_is_the_end() {
        let frames = [
            Frame::Hello,
            Frame::Stdout(vec![0, 1, 255]),
            Frame::End(End::Code(-1)),
            Frame::End(End::TimedOut),
            Frame::File("/a".to_owned()),
            Frame::Data(Vec::new()),
            Frame::Done,
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.write(&mut wire).expect("write");
        }
        let mut input = wire.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut input).expect("read").as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut input).expect("end"), None);
        assert_eq!(Frame::read(&mut &wire[..3]).expect("cut"), None);
    }
}
