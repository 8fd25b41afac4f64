//! How BTF is encoded: its parts, words, the fixed parts of types, and where each type begins.

use std::ops::Range;

use super::BtfError;

pub(super) const MAGIC: u16 = 0xeb9f;
pub(super) const HEADER_LEN: usize = 24;

/// `BTF_KIND_*` of `include/uapi/linux/btf.h`.
pub(super) mod kind {
    pub(in super::super) const INT: u32 = 1;
    pub(in super::super) const PTR: u32 = 2;
    pub(in super::super) const ARRAY: u32 = 3;
    pub(in super::super) const STRUCT: u32 = 4;
    pub(in super::super) const UNION: u32 = 5;
    pub(in super::super) const ENUM: u32 = 6;
    pub(in super::super) const FWD: u32 = 7;
    pub(in super::super) const TYPEDEF: u32 = 8;
    pub(in super::super) const VOLATILE: u32 = 9;
    pub(in super::super) const CONST: u32 = 10;
    pub(in super::super) const RESTRICT: u32 = 11;
    pub(in super::super) const FUNC: u32 = 12;
    pub(in super::super) const FUNC_PROTO: u32 = 13;
    pub(in super::super) const VAR: u32 = 14;
    pub(in super::super) const DATASEC: u32 = 15;
    pub(in super::super) const FLOAT: u32 = 16;
    pub(in super::super) const DECL_TAG: u32 = 17;
    pub(in super::super) const TYPE_TAG: u32 = 18;
    pub(in super::super) const ENUM64: u32 = 19;
}

/// A blob, as it is, and where things are in it.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) data: Vec<u8>,
    /// Where each type begins.
    pub(super) types: Vec<u32>,
    pub(super) strings: Range<usize>,
}

impl Blob {
    /// Finds the parts of raw BTF in this machine's byte order.
    pub(super) fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let bad = |at, what| Err(BtfError::Malformed { at, what });
        let Some(header) = data.first_chunk::<HEADER_LEN>() else { return bad(0, "it is too short") };
        match u16::from_ne_bytes([header[0], header[1]]) {
            MAGIC => {}
            other if other.swap_bytes() == MAGIC => return bad(0, "it is of the other byte order"),
            _ => return bad(0, "it does not begin with BTF's magic number"),
        }
        if header[2] != 1 {
            return bad(2, "its version is not 1");
        }
        let word = |at: usize| word_at(header, at).unwrap_or(u32::MAX) as usize;
        let header_len = word(4);
        if header_len < HEADER_LEN {
            return bad(4, "its header is too short");
        }
        let part = |offset: usize, len: usize| -> Option<Range<usize>> {
            let start = header_len.checked_add(offset)?;
            let end = start.checked_add(len)?;
            (end <= data.len()).then_some(start..end)
        };
        let Some(types) = part(word(8), word(12)) else { return bad(8, "its types are cut off") };
        let Some(strings) = part(word(16), word(20)) else { return bad(16, "its strings are cut off") };
        let types = index(&data[..types.end], types.start)?;
        Ok(Self { data, types, strings })
    }
}

/// The fixed part of a type's description.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Behind the fixed part.
    pub(super) body: usize,
    pub(super) name: u32,
    pub(super) kind: u32,
    pub(super) vlen: usize,
    pub(super) kind_flag: bool,
    pub(super) size_or_type: u32,
}

pub(super) fn word_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// The kind in a type's second word, whose bits 24 to 28 it is.
pub(super) fn kind_of(info: u32) -> u32 {
    info >> 24 & 0x1f
}

pub(super) fn head_at(data: &[u8], at: usize) -> Result<Head, BtfError> {
    let words = || {
        let info = word_at(data, at + 4)?;
        Some(Head {
            body: at + 12,
            name: word_at(data, at)?,
            kind: kind_of(info),
            vlen: (info & 0xffff) as usize,
            kind_flag: info >> 31 != 0,
            size_or_type: word_at(data, at + 8)?,
        })
    };
    words().ok_or(BtfError::Malformed { at, what: "it ends inside a type" })
}

/// Finds where each type begins. `data` ends with the types.
pub(super) fn index(data: &[u8], start: usize) -> Result<Vec<u32>, BtfError> {
    if u32::try_from(data.len()).is_err() {
        return Err(BtfError::Malformed { at: 0, what: "it is larger than 4 GiB" });
    }
    // Twelve bytes is the shortest type, and most are not much longer.
    let mut types = Vec::with_capacity((data.len() - start) / 24);
    let mut at = start;
    while at < data.len() {
        let head = head_at(data, at)?;
        let tail = match head.kind {
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => head.vlen * 12,
            kind::ENUM | kind::FUNC_PROTO => head.vlen * 8,
            // Without knowing its length nothing after it can be found.
            _ => return Err(BtfError::Malformed { at, what: "a type is of an unknown kind" }),
        };
        types.push(at as u32);
        at = head.body + tail;
        if at > data.len() {
            return Err(BtfError::Malformed { at: head.body, what: "it ends inside a type" });
        }
    }
    Ok(types)
}
