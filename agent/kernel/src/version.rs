//! Versions of kernels.

use std::fmt;

/// A kernel's version. What distributions append does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// As in **6**.12.3.
    pub major: u32,
    /// As in 6.**12**.3.
    pub minor: u32,
    /// As in 6.12.**3**.
    pub patch: u32,
}

/// The oldest kernel that recordings are supported on: the first with cookies for tracepoint programs.
pub const OLDEST_SUPPORTED: KernelVersion = KernelVersion::new(5, 15, 0);

impl KernelVersion {
    /// A version.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads a release such as `6.12.117+deb12-cloud-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.splitn(3, '.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse::<u32>().ok()
        });
        Some(Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            patch: numbers.next().flatten().unwrap_or(0),
        })
    }

    /// The running kernel's.
    pub fn running() -> Option<Self> {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }
}

/// Prints `6.12`, and the patch level where there is one.
impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_versions() {
        let parse = |text| KernelVersion::parse(text).map(|v| (v.major, v.minor, v.patch));
        assert_eq!(parse("6.12.117+deb12-cloud-amd64"), Some((6, 12, 117)));
        assert_eq!(parse("6.1-rc3"), Some((6, 1, 0)));
        assert_eq!(parse("5.15.0-91-generic"), Some((5, 15, 0)));
        assert_eq!(parse("7.0"), Some((7, 0, 0)));
        for text in ["", "6", "x.y", "6.", ".1", "99999999999.1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(KernelVersion::new(5, 4, 300) < OLDEST_SUPPORTED);
        assert!(KernelVersion::new(6, 0, 0) > OLDEST_SUPPORTED);
        assert_eq!(KernelVersion::new(6, 1, 0).to_string(), "6.1");
        assert_eq!(KernelVersion::new(6, 1, 9).to_string(), "6.1.9");
    }
}
