//! What later recorders store of the kernel besides its events: its types and its modules.

use super::super::layout::SectionId;
use super::{ReadError, Reader, Source};

/// A module that the kernel had loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Bytes of memory that it takes.
    pub size: u64,
    /// Where it is; 0 if that was hidden from the recorder.
    pub address: u64,
}

impl<S: Source> Reader<S> {
    /// The kernel's BTF, as `/sys/kernel/btf/vmlinux` has it; `None` if the file has none.
    ///
    /// # Errors
    /// The section is damaged.
    pub fn btf(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.kernel_file(SectionId::BTF)
    }

    /// The kernel's modules, of section MODULES: lines of `/proc/modules`, which are name, size, number of
    /// users, users, state and address. Empty if the file has none; a line that is none of these is left out.
    ///
    /// # Errors
    /// The section is damaged.
    pub fn modules(&self) -> Result<Vec<Module>, ReadError> {
        let bytes = self.kernel_file(SectionId::MODULES)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(module).collect())
    }

    /// A file of the kernel. The manual page has its size before it, as u64, which trace-cmd 3.4 does not
    /// write.
    fn kernel_file(&self, id: SectionId) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(section) = self.sections().iter().find(|section| section.id == id) else { return Ok(None) };
        let mut bytes = self.section_bytes(section)?;
        let size = bytes.first_chunk().map(|size| self.header().endian.read_u64(*size));
        if size.is_some_and(|size| size == bytes.len() as u64 - 8) {
            bytes.drain(..8);
        }
        Ok(Some(bytes))
    }
}

fn module(line: &str) -> Option<Module> {
    let mut words = line.split_whitespace();
    let (name, size) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let address = words.nth(3).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    Some(Module { name, size, address: address.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::super::{Compression, Section, Setup, Writer, layout};
    use super::*;
    use ftrace_event::Endian;

    #[test]
    fn types_and_modules() {
        let text = "ext4 983040 2 - Live 0xffffffffc0a00000\nmbcache 16384 1 ext4, Live 0x0000000000000000 (OE)\nnonsense\n";
        for (compression, sized) in [(Compression::None, false), (Compression::default(), true)] {
            let setup = Setup { compression, ..Setup::default() };
            let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
            let page = layout::header_page_text(setup.page_size);
            writer.section(Section::header_info(Endian::Little, &page, "").unwrap()).unwrap();
            let body = |bytes: &[u8]| {
                let size = (bytes.len() as u64).to_le_bytes();
                if sized { [size.as_slice(), bytes].concat() } else { bytes.to_vec() }
            };
            writer.raw_section(SectionId::BTF, "types", &body(b"\x9f\xeb\x01\0types")).unwrap();
            writer.raw_section(SectionId::MODULES, "modules", &body(text.as_bytes())).unwrap();
            let reader = Reader::open(writer.finish().unwrap().into_inner()).unwrap();
            assert_eq!(reader.btf().unwrap().unwrap(), b"\x9f\xeb\x01\0types");
            let module = |name: &str, size, address| Module { name: name.to_owned(), size, address };
            let expected = [module("ext4", 983_040, 0xffff_ffff_c0a0_0000), module("mbcache", 16384, 0)];
            assert_eq!(reader.modules().unwrap(), expected);
        }
        let none = Writer::create(Cursor::new(Vec::new()), Setup::default()).map(|mut writer| {
            let page = layout::header_page_text(4096);
            writer.section(Section::header_info(Endian::Little, &page, "").unwrap()).unwrap();
            Reader::open(writer.finish().unwrap().into_inner()).unwrap()
        });
        let none = none.unwrap();
        assert!(none.btf().unwrap().is_none() && none.modules().unwrap().is_empty());
    }
}
