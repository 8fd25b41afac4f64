//! The page: its parts, its policy, and blocks of data in it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use sha2::{Digest as _, Sha256};

use recording::ExportError;

/// Around the data. Lines `<!-- STYLE -->` and so on are replaced.
const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");

/// The scripts, in the order in which they are run, as one.
const SCRIPTS: [&str; 11] = [
    include_str!("page/data.js"),
    include_str!("page/model.js"),
    include_str!("page/layout.js"),
    include_str!("page/draw.js"),
    include_str!("page/around.js"),
    include_str!("page/details.js"),
    include_str!("page/table.js"),
    include_str!("page/statistics.js"),
    include_str!("page/search.js"),
    include_str!("page/input.js"),
    include_str!("page/main.js"),
];

/// How hard data are compressed: at 6, pages are 2 % smaller, and exports take an eighth longer.
const LEVEL: u32 = 3;

/// Letters of base64 (RFC 4648).
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A page that is being written.
#[derive(Debug)]
pub(super) struct Document {
    file: File,
    path: PathBuf,
    rest: String,
}

impl Document {
    /// Writes everything before the data.
    pub(super) fn begin(file: File, path: PathBuf) -> Result<Self, ExportError> {
        let script = script();
        let page = PAGE
            .replace("{{SCRIPT-HASH}}", &hash(&script))
            .replace("{{STYLE-HASH}}", &hash(STYLE))
            .replace("{{STYLE}}", STYLE)
            .replace("{{SCRIPT}}", &script);
        let (head, rest) = page.split_once("{{DATA}}").unwrap_or((&page, ""));
        let mut document = Self { file, path, rest: rest.to_owned() };
        document.write(head.as_bytes())?;
        Ok(document)
    }

    /// Adds an element with data, of a type that no browser runs.
    pub(super) fn add(&mut self, id: &str, Packed(data): Packed) -> Result<(), ExportError> {
        let data = data.map_err(ExportError::io("compress for", &self.path))?;
        self.write(format!("<script type=\"application/octet-stream\" id=\"{id}\">").as_bytes())?;
        self.write(&data)?;
        self.write(b"</script>\n")
    }

    /// Adds the index and what follows the data.
    pub(super) fn end(mut self, index: &[u8]) -> Result<(), ExportError> {
        self.add("index", Packed::of(index))?;
        let rest = std::mem::take(&mut self.rest);
        self.write(rest.as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.file.write_all(bytes).map_err(ExportError::io("write", &self.path))
    }
}

/// Data as the text of an element, which has letters of base64 only.
#[derive(Debug)]
pub(super) struct Packed(io::Result<Vec<u8>>);

impl Packed {
    /// Packs data.
    pub(super) fn of(data: &[u8]) -> Self {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        let packed = deflate.write_all(data).and_then(|()| deflate.finish());
        Self(packed.map(|packed| {
            let mut text = Vec::new();
            base64(&packed, &mut text);
            text
        }))
    }
}

/// The scripts as one, in which names of a file are seen by those that follow.
fn script() -> String {
    format!("\"use strict\";\n{}", SCRIPTS.join("\n"))
}

/// How a policy names a text that may be run.
fn hash(text: &str) -> String {
    let mut base = Vec::new();
    base64(&Sha256::digest(text.as_bytes()), &mut base);
    format!("sha256-{}", String::from_utf8_lossy(&base))
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    let letter = |bits: u32| LETTERS[bits as usize & 63];
    out.reserve(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let mut four = [letter(bits >> 18), letter(bits >> 12), letter(bits >> 6), letter(bits)];
        for letter in four.iter_mut().skip(chunk.len() + 1) {
            *letter = b'=';
        }
        out.extend_from_slice(&four);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc() {
        let base = |text: &str| {
            let mut out = Vec::new();
            base64(text.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        let found = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(base);
        assert_eq!(found, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn the_parts_fit_into_the_page() {
        for place in ["{{SCRIPT-HASH}}", "{{STYLE-HASH}}", "{{STYLE}}", "{{SCRIPT}}", "{{DATA}}"] {
            assert_eq!(PAGE.matches(place).count(), 1, "{place}");
            assert!(!STYLE.contains(place) && !script().contains(place), "{place}");
        }
        // Nothing that would end an element, and nothing from elsewhere.
        assert!(!script().contains("</script") && !script().contains("<!--") && !STYLE.contains("</style"));
        for text in [PAGE, STYLE, &script()] {
            assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("innerHTML"));
        }
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
