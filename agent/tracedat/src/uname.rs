//! What a file says of the system that it was recorded on.

use super::FileOption;

/// The machine that a file was recorded on, as its option `UNAME` names it (trace-cmd.dat.v7(5): the output
/// of `uname`); what it does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uname {
    /// The kernel's name, `Linux`.
    pub system: String,
    /// The host's name.
    pub node: String,
    /// The kernel's release, `6.12.1-amd64`.
    pub release: String,
    /// The kernel's version, which `uname -snrm` does not print.
    pub version: String,
    /// The architecture, `x86_64`.
    pub machine: String,
}

impl Uname {
    /// Out of the words of `uname -snrm`, as trace-cmd writes them, or with the version between release and
    /// machine.
    pub fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
        let machine = if words.len() > 3 { words.last().copied().unwrap_or_default() } else { "" };
        let version = words.get(3..words.len().saturating_sub(1)).unwrap_or_default().join(" ");
        Self { system: word(0), node: word(1), release: word(2), version, machine: machine.to_owned() }
    }

    /// What a file's options say, if they do.
    pub fn of<'f>(facts: impl IntoIterator<Item = &'f FileOption>) -> Option<Self> {
        facts.into_iter().find_map(|fact| match fact {
            FileOption::Uname(text) => Some(Self::parse(text)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_and_without_a_version() {
        let uname = Uname::parse("Linux host.example 6.12.1 x86_64");
        assert_eq!(
            (uname.release.as_str(), uname.version.as_str(), uname.machine.as_str()),
            ("6.12.1", "", "x86_64")
        );
        let uname = Uname::parse("Linux host 6.12.1 #1 SMP Debian x86_64");
        assert_eq!((uname.version.as_str(), uname.machine.as_str()), ("#1 SMP Debian", "x86_64"));
        assert_eq!(Uname::parse(""), Uname::default());
        assert_eq!(Uname::parse("Linux"), Uname { system: "Linux".to_owned(), ..Uname::default() });
    }
}
