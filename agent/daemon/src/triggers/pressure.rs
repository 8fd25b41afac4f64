//! How long tasks wait for a resource, as the kernel says it (Documentation/accounting/psi.rst).

use std::io::{self, Read as _};

use api::trigger::{Resource, Share};

/// The largest file that is read: it has two lines.
const FILE_MAX: u64 = 4096;

/// What the kernel says of a resource: for each share, hundredths of a percent of the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressures {
    some: Option<u16>,
    full: Option<u16>,
}

impl Pressures {
    /// What it says now.
    pub(super) fn read(of: Resource) -> io::Result<Self> {
        let file = std::fs::File::open(format!("/proc/pressure/{}", of.name()))?;
        let mut text = String::new();
        file.take(FILE_MAX).read_to_string(&mut text)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let of = |share: Share| {
            let line = text.lines().find_map(|line| line.strip_prefix(share.name())?.strip_prefix(' '))?;
            hundredths(line.split(' ').find_map(|word| word.strip_prefix("avg10="))?)
        };
        Self { some: of(Share::Some), full: of(Share::Full) }
    }

    /// That of a share, if the kernel says it.
    pub(super) fn of(self, share: Share) -> Option<u16> {
        match share {
            Share::Some => self.some,
            Share::Full => self.full,
        }
    }
}

/// `12.34` is 1234.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.')?;
    let part: u16 = (part.len() == 2).then(|| part.parse().ok())??;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read() {
        let text =
            "some avg10=1.05 avg60=0.06 avg300=4.24 total=8483\nfull avg10=100.00 avg60=0.00 total=0\n";
        assert_eq!(Pressures::parse(text), Pressures { some: Some(105), full: Some(10_000) });
        let some = Pressures::parse("some avg10=0.5\nfull");
        assert_eq!((some.of(Share::Some), some.of(Share::Full)), (None, None));
    }
}
