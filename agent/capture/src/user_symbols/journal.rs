//! The journal of mappings: a line for each, so that a crash cuts off one line at most.
//!
//! ```text
//! m PROCESS START END OFFSET FILE PATH           code was mapped
//! f CHILD PARENT                                 a process was created
//! l COUNT                                        announcements were lost
//! ```
//!
//! Numbers are hexadecimal. FILE is a build id, `-` of a file without one, or `MAJOR:MINOR:INODE` of one
//! whose build id is not known.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write as _},
};

use attach::mappings::{FileId, Mapped, MappingEvent};
use elf::hex;

/// How many generations of processes that do nothing but create the next are followed back.
const GENERATIONS_MAX: usize = 64;

/// Writes the journal. A failure to write costs names, and shows as a line that is cut off.
#[derive(Debug)]
pub(super) struct Journal(BufWriter<File>);

impl Journal {
    pub(super) fn new(file: File) -> Self {
        Self(BufWriter::new(file))
    }

    /// Notes what was announced.
    pub(super) fn event(&mut self, event: &MappingEvent<'_>) {
        let _ = match event {
            MappingEvent::Mapped(mapped) => return self.mapping(mapped),
            MappingEvent::Forked { child, parent } => writeln!(self.0, "f {child:x} {parent:x}"),
            MappingEvent::Lost(count) => writeln!(self.0, "l {count:x}"),
        };
    }

    /// Notes a mapping.
    pub(super) fn mapping(&mut self, mapped: &Mapped<'_>) {
        let Mapped { process, start, end, offset, file, path } = *mapped;
        // A line has room for any name but one with a line end.
        if path.contains(&b'\n') {
            return;
        }
        let id = text_of(file);
        let _ = write!(self.0, "m {process:x} {start:x} {end:x} {offset:x} {id} ");
        let _ = self.0.write_all(path);
        let _ = self.0.write_all(b"\n");
    }

    pub(super) fn flush(&mut self) {
        let _ = self.0.flush();
    }
}

/// What is written for a file whose build id is not known.
pub(super) fn inode_text(major: u32, minor: u32, inode: u64) -> String {
    format!("{major:x}:{minor:x}:{inode:x}")
}

fn text_of(file: FileId<'_>) -> String {
    match file {
        FileId::NoBuildId | FileId::BuildId([]) => "-".to_owned(),
        FileId::BuildId(build_id) => hex(build_id),
        FileId::Inode(major, minor, inode) => inode_text(major, minor, inode),
    }
}

/// A mapping of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    /// Which file it is.
    pub(super) file: &'a str,
    pub(super) path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// As hexadecimal digits; empty of a file without one, and `None` where it is not known.
    pub(super) fn build_id(&self) -> Option<&'a str> {
        match self.file {
            "-" => Some(""),
            known => Some(known).filter(|known| !known.contains(':')),
        }
    }
}

/// Who mapped what.
#[derive(Debug, Default)]
pub(super) struct Processes<'a> {
    /// In the order of the journal.
    mappings: HashMap<u32, Vec<Mapping<'a>>>,
    parents: HashMap<u32, u32>,
    /// Announcements that were lost.
    pub(super) lost: u64,
}

impl<'a> Processes<'a> {
    /// Reads a journal. A line that is not understood is passed over.
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let mut processes = Self::default();
        for line in text.split(|&byte| byte == b'\n') {
            processes.line(line);
        }
        processes
    }

    fn line(&mut self, line: &'a [u8]) -> Option<()> {
        let mut words = line.splitn(7, |&byte| byte == b' ');
        let kind = words.next()?;
        let mut number = || u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok();
        match kind {
            b"m" => {
                let process = u32::try_from(number()?).ok()?;
                let (start, end, offset) = (number()?, number()?, number()?);
                let file = std::str::from_utf8(words.next()?).ok()?;
                let path = words.next().filter(|path| !path.is_empty())?;
                self.mappings.entry(process).or_default().push(Mapping { start, end, offset, file, path });
            }
            b"f" => {
                let (child, parent) = (u32::try_from(number()?).ok()?, u32::try_from(number()?).ok()?);
                self.parents.insert(child, parent);
            }
            b"l" => self.lost = self.lost.saturating_add(number()?),
            _ => {}
        }
        Some(())
    }

    /// The newest mapping of this address: the process's own, or one that it was created with.
    pub(super) fn find(&self, process: u32, address: u64) -> Option<&Mapping<'a>> {
        let mut process = process;
        for _ in 0..GENERATIONS_MAX {
            let own = self.mappings.get(&process).into_iter().flatten().rev();
            let mut covering = own.filter(|mapping| (mapping.start..mapping.end).contains(&address));
            if let Some(found) = covering.next() {
                return Some(found);
            }
            process = *self.parents.get(&process)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::{Read as _, Seek as _};

    use super::*;

    fn text() -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        let mut journal = Journal::new(file.try_clone().unwrap());
        let newer = Mapped {
            process: 0x12,
            start: 0x2000,
            end: 0x3000,
            offset: 0,
            file: FileId::BuildId(&[0xab, 1]),
            path: b"/lib/new",
        };
        let older = Mapped { start: 0x1000, end: 0x2000, path: b"/opt/two words", ..newer.clone() };
        journal.mapping(&Mapped { file: FileId::NoBuildId, ..older.clone() });
        journal.mapping(&Mapped { process: 0x15, file: FileId::Inode(0xfe, 0, 0x17), ..older });
        journal.event(&MappingEvent::Mapped(newer.clone()));
        journal.event(&MappingEvent::Mapped(Mapped { path: b"/a\nb", ..newer }));
        journal.event(&MappingEvent::Forked { child: 0x13, parent: 0x12 });
        journal.event(&MappingEvent::Forked { child: 0x14, parent: 0x14 });
        journal.event(&MappingEvent::Lost(3));
        journal.flush();
        file.rewind().unwrap();
        let mut text = Vec::new();
        file.read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_noted_is_found() {
        let text = text();
        let processes = Processes::parse(&text);
        let path = |process, address| processes.find(process, address).map(|mapping| mapping.path);
        assert_eq!(path(0x12, 0x1000), Some(&b"/opt/two words"[..]));
        assert_eq!(path(0x12, 0x2000), Some(&b"/lib/new"[..]));
        assert_eq!(path(0x12, 0x3000), None);
        // A new process has what the other had; one that is its own parent ends the search.
        assert_eq!(path(0x13, 0x2fff), Some(&b"/lib/new"[..]));
        assert_eq!(path(0x14, 0x2fff), None);
        let build_id = |process, address| processes.find(process, address).unwrap().build_id();
        assert_eq!(build_id(0x12, 0x2000), Some("ab01"));
        assert_eq!(build_id(0x12, 0x1000), Some(""));
        assert_eq!(build_id(0x15, 0x1000), None);
        assert_eq!(processes.find(0x15, 0x1000).unwrap().file, "fe:0:17");
        assert_eq!(processes.lost, 3);
    }

    #[test]
    fn damage_costs_lines() {
        let text = text();
        for len in 0..text.len() {
            Processes::parse(&text[..len]);
        }
        let garbage = [b"m x\nf 1\nq\n\nm 1 2 3\n".as_slice(), &text].concat();
        assert!(Processes::parse(&garbage).find(0x12, 0x1000).is_some());
    }
}
