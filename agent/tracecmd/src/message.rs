//! The messages of version 3.

/// Length, command, length of the fixed part.
const HEADER: usize = 12;
/// The longest message.
pub(super) const LONGEST: usize = 8192;
/// The longest body of a message without a fixed part.
pub(super) const BODY_MAX: usize = LONGEST - HEADER;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Close = 0,
    TInit = 1,
    RInit = 2,
    SendData = 3,
    FinData = 4,
    NotSupported = 5,
}

impl Command {
    fn of_number(number: u32) -> Option<Self> {
        const ALL: [Command; 6] = [
            Command::Close,
            Command::TInit,
            Command::RInit,
            Command::SendData,
            Command::FinData,
            Command::NotSupported,
        ];
        ALL.into_iter().find(|command| *command as u32 == number)
    }
}

/// A message as it is sent.
pub(super) fn message(command: Command, fixed: &[u8], body: &[u8]) -> Vec<u8> {
    let numbers = [HEADER + fixed.len() + body.len(), command as usize, fixed.len()];
    let mut bytes = Vec::with_capacity(HEADER + fixed.len() + body.len());
    for number in numbers {
        bytes.extend((number as u32).to_be_bytes());
    }
    bytes.extend(fixed);
    bytes.extend(body);
    bytes
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// What it is; `None` of a command that is of other conversations.
    pub(super) command: Option<Command>,
    fixed: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// A number of the fixed part.
    pub(super) fn number(&self, index: usize) -> Option<u32> {
        self.fixed.get(4 * index..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The texts of the body, the last of which ends with NUL as all do.
    pub(super) fn texts(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let texts = match self.body.split_last() {
            None => &self.body,
            Some((0, texts)) => texts,
            Some(_) => return None,
        };
        Some(texts.split(|byte| *byte == 0).take(if self.body.is_empty() { 0 } else { usize::MAX }))
    }
}

/// A message with impossible lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impossible {
    pub(super) size: u32,
}

/// Messages out of bytes, in whatever pieces they come. It holds one at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
}

impl Messages {
    /// Takes bytes from the beginning of `input`. Gives the message that they complete; without one all of
    /// them are taken.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Result<Option<Message>, Impossible> {
        self.fill(input, HEADER);
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let [size, command, fixed] =
            [0, 4, 8].map(|at| header[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)));
        let (len, fixed_end) = (size as usize, HEADER.saturating_add(fixed as usize));
        if len > LONGEST || fixed_end > len {
            return Err(Impossible { size });
        }
        self.fill(input, len);
        if self.bytes.len() < len {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        let (fixed, body) = bytes[HEADER..].split_at(fixed_end - HEADER);
        let command = Command::of_number(command);
        Ok(Some(Message { command, fixed: fixed.to_vec(), body: body.to_vec() }))
    }

    fn fill(&mut self, input: &mut &[u8], len: usize) {
        let missing = len.saturating_sub(self.bytes.len()).min(input.len());
        let (now, rest) = input.split_at(missing);
        self.bytes.extend_from_slice(now);
        *input = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], step: usize) -> Result<Vec<Message>, Impossible> {
        let (mut messages, mut found) = (Messages::default(), Vec::new());
        for mut piece in bytes.chunks(step) {
            while let Some(message) = messages.take(&mut piece)? {
                found.push(message);
            }
            assert!(piece.is_empty());
        }
        assert!(messages.bytes.is_empty());
        Ok(found)
    }

    #[test]
    fn messages_come_in_whatever_pieces() {
        let init = message(Command::TInit, &[[0, 0, 0, 2], [0, 0, 16, 0], [0, 0, 0, 1]].concat(), b"tcp\0");
        assert_eq!(init[..12], [0, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0, 12]);
        let bytes =
            [init, message(Command::SendData, &[], b"abc"), message(Command::Close, &[], &[])].concat();
        let whole = all(&bytes, bytes.len()).unwrap();
        for step in 1..bytes.len() {
            assert_eq!(all(&bytes, step).unwrap(), whole, "{step}");
        }
        let [init, data, close] = &whole[..] else { panic!("{whole:?}") };
        assert_eq!((init.number(0), init.number(1), init.number(2)), (Some(2), Some(4096), Some(1)));
        assert_eq!(init.number(3), None);
        assert_eq!(init.texts().unwrap().collect::<Vec<_>>(), [b"tcp"]);
        assert_eq!((data.command, &*data.body), (Some(Command::SendData), &b"abc"[..]));
        assert!(data.texts().is_none());
        assert_eq!(close.command, Some(Command::Close));
        assert_eq!(close.texts().unwrap().count(), 0);
    }

    #[test]
    fn impossible_lengths_are_refused_before_anything_is_kept() {
        for (size, fixed) in
            [(11_u32, 0_u32), (0, 0), (8193, 0), (u32::MAX, 0), (12, 1), (8192, 8181), (16, u32::MAX)]
        {
            let bytes = [size, 3, fixed].map(u32::to_be_bytes).concat();
            assert_eq!(Messages::default().take(&mut &*bytes), Err(Impossible { size }), "{size} {fixed}");
        }
        let mut other = &*[12_u32, 99, 0].map(u32::to_be_bytes).concat();
        assert_eq!(Messages::default().take(&mut other).unwrap().unwrap().command, None);
    }
}
