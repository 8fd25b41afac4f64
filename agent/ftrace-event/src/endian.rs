//! Byte order: the one place where integers become bytes and bytes become integers.
//!
//! Everything in a trace.dat file after the endian byte of the header is in the byte order that this byte
//! names (trace-cmd.dat.v7(5), INITIAL FORMAT). The order is a value, not a type, so that one build can write
//! files for either kind of machine and a reader can learn the order from the file.

/// The byte order of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first. What every machine that the agent runs on uses.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The byte that names this order in the file header: 0 = little, 1 = big.
    pub const fn header_byte(self) -> u8 {
        match self {
            Self::Little => 0,
            Self::Big => 1,
        }
    }

    /// Bytes of a 16-bit number.
    pub const fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Bytes of a 32-bit number.
    pub const fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Bytes of a 64-bit number.
    pub const fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// The order that the byte in the file header names; `None` if it names none.
    pub const fn from_header_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Little),
            1 => Some(Self::Big),
            _ => None,
        }
    }

    /// The 16-bit number in `bytes`.
    pub const fn read_u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The 32-bit number in `bytes`.
    pub const fn read_u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The 64-bit number in `bytes`.
    pub const fn read_u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// A growing run of bytes to which numbers are appended in one byte order.
#[derive(Clone, Debug)]
pub struct Encoder {
    endian: Endian,
    bytes: Vec<u8>,
}

impl Encoder {
    /// An encoder without bytes.
    pub fn new(endian: Endian) -> Self {
        Self { endian, bytes: Vec::new() }
    }

    /// Appends a number of two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&self.endian.u16(value))
    }

    /// Appends a number of four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&self.endian.u32(value))
    }

    /// Appends a number of eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&self.endian.u64(value))
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The text and the NUL that ends it. The caller has made sure that there is no NUL inside.
    pub fn c_string(&mut self, text: &str) -> &mut Self {
        self.raw(text.as_bytes()).raw(&[0])
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, Endian};

    #[test]
    fn both_orders() {
        let encode = |endian| {
            let mut encoder = Encoder::new(endian);
            encoder.u16(0x0102).u32(0x0304_0506).u64(0x0708_090a_0b0c_0d0e).c_string("x");
            encoder.into_bytes()
        };
        assert_eq!(encode(Endian::Big), b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0ex\0");
        assert_eq!(encode(Endian::Little), b"\x02\x01\x06\x05\x04\x03\x0e\x0d\x0c\x0b\x0a\x09\x08\x07x\0");
    }

    #[test]
    fn what_is_written_is_read() {
        for endian in [Endian::Little, Endian::Big] {
            assert_eq!(endian.read_u16(endian.u16(0xbeef)), 0xbeef);
            assert_eq!(endian.read_u32(endian.u32(0xdead_beef)), 0xdead_beef);
            assert_eq!(endian.read_u64(endian.u64(1 << 63 | 5)), 1 << 63 | 5);
            assert_eq!(Endian::from_header_byte(endian.header_byte()), Some(endian));
        }
    }
}
