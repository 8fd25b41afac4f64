//! Names of objects: `SITE/DAY/HOST/SESSION/BEGIN-END-ID.dat`.
//!
//! They sort by time within a host's session, and are made of what the archive is, so that the same archive
//! has the same name whoever sends it again. Nothing in them leads anywhere else: see [`component`].

use stdx::utc;

/// Longer parts are cut. The whole stays below the 1024 bytes that stores allow.
const LONGEST: usize = 100;
/// Digits of an archive's id.
pub(super) const ID_DIGITS: usize = 16;

/// The name of an archive's object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Which fleet or place the machine belongs to.
    pub site: String,
    /// The machine.
    pub host: String,
    /// The session that recorded it.
    pub session: String,
    /// When it begins, in nanoseconds since 1970; names have milliseconds.
    pub begin: u64,
    /// When it ends.
    pub end: u64,
    /// The beginning of its SHA-256, in hexadecimal.
    pub id: String,
    /// How it is stored.
    pub form: Form,
}

/// How an archive is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A trace.dat file.
    File,
    /// A directory, as a tar file without compression.
    Directory,
}

impl Form {
    /// What names end with.
    pub fn extension(self) -> &'static str {
        match self {
            Self::File => "dat",
            Self::Directory => "tar",
        }
    }
}

/// A text as one part of a name: letters, digits, `.`, `-` and `_` stay, all else becomes `_`. It never
/// begins with a dot, is never empty and never long.
pub fn component(text: &str) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    let mut part: String = text.chars().take(LONGEST).map(safe).collect();
    if part.is_empty() || part.starts_with('.') {
        part = format!("_{}", part.get(1..).unwrap_or_default());
    }
    part
}

impl Name {
    /// The path of the object, below the store's prefix.
    pub fn path(&self) -> String {
        let Self { site, host, session, begin, end, id, form } = self;
        format!(
            "{}/{}/{}/{}/{}-{}-{}.{}",
            component(site),
            utc::day(*begin),
            component(host),
            component(session),
            utc::moment(*begin),
            utc::moment(*end),
            component(id),
            form.extension()
        )
    }

    /// The name that a path ends with; `None` if no archive's name is written so.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.rsplit('/');
        let (file, session, host) = (parts.next()?, parts.next()?, parts.next()?);
        let (_day, site) = (utc::parse(parts.next()?)?, parts.next()?);
        let (stem, extension) = file.rsplit_once('.')?;
        let form = [Form::File, Form::Directory].into_iter().find(|form| form.extension() == extension)?;
        let mut words = stem.splitn(3, '-');
        let (begin, end, id) = (utc::parse(words.next()?)?, utc::parse(words.next()?)?, words.next()?);
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        // Whoever can write to a store chooses names, which go to terminals and become files.
        let is_plain = [site, host, session].iter().all(|part| component(part) == *part);
        (is_id && is_plain).then(|| Self {
            site: site.to_owned(),
            host: host.to_owned(),
            session: session.to_owned(),
            begin,
            end,
            id: id.to_owned(),
            form,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(session: &str) -> Name {
        Name {
            site: "lab".into(),
            host: "node-1".into(),
            session: session.into(),
            begin: 1_772_446_500_250_000_000,
            end: 1_772_446_501_000_000_000,
            id: "0123456789abcdef".into(),
            form: Form::File,
        }
    }

    #[test]
    fn names_are_parsed_as_they_are_written() {
        let path = "lab/2026-03-02/node-1/s/20260302T101500.250Z-20260302T101501.000Z-0123456789abcdef.dat";
        assert_eq!(name("s").path(), path);
        assert_eq!(Name::parse(&format!("some/prefix/{path}")), Some(name("s")));
        for wrong in ["", "x.dat", "a/2026-03-02/b/c/d.dat", "a/2026-03-02/b/c/x-y-0123456789abcdef.dat"] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
        for hostile in ["..", ".", "", "a\0b", "a\nb", "\u{1b}[2J", "\u{9b}2J", "a%2fb", &"x".repeat(101)] {
            assert_eq!(Name::parse(&path.replace("/s/", &format!("/{hostile}/"))), None, "{hostile}");
        }
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for hostile in ["..", ".", "", "a/b", "../../x", "a\0b", "a\nb", "\u{1b}[2J", "a%2fb", "é", "a?b#c"]
        {
            let path = name(hostile).path();
            assert_eq!(path.split('/').count(), 5, "{path}");
            let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
            assert!(path.split('/').all(is_plain), "{path}");
            assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b)), "{path}");
        }
        assert!(name(&"x".repeat(5000)).path().len() < 300);
    }
}
