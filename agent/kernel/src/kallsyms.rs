//! The kernel's symbols: `/proc/kallsyms`.

use std::fmt;
use std::io;

use super::privileges::{Capabilities, Capability};
use super::read;

const PATH: &str = "/proc/kallsyms";

/// The name of the symbol that [`Kallsyms::with_sentinel`] appends.
const SENTINEL: &str = "__tracer_agent_end_of_symbols";

/// How far after the last symbol the end is put: farther than any function is long, so that addresses inside
/// the last function still find it.
const SENTINEL_DISTANCE: u64 = 0x1_0000;

/// Why there are no addresses in `/proc/kallsyms` (`kallsyms_show_value` in `kernel/ksyms_common.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restriction {
    /// `kernel.kptr_restrict`, where it could be read.
    pub kptr_restrict: Option<i64>,
    /// `kernel.perf_event_paranoid`, where it could be read.
    pub perf_event_paranoid: Option<i64>,
    /// Whether this process has `CAP_SYSLOG`.
    pub cap_syslog: bool,
}

impl Restriction {
    /// What this process is up against.
    pub fn read() -> Self {
        Self {
            kptr_restrict: read_number("/proc/sys/kernel/kptr_restrict"),
            perf_event_paranoid: read_number("/proc/sys/kernel/perf_event_paranoid"),
            cap_syslog: Capabilities::of_this_process().is_ok_and(|caps| caps.has(Capability::Syslog)),
        }
    }
}

/// Whether the kernel shows the addresses to a user without capabilities.
pub fn is_public() -> bool {
    let Restriction { kptr_restrict, perf_event_paranoid, .. } = Restriction::read();
    is_public_with(kptr_restrict, perf_event_paranoid)
}

/// What cannot be read may hide them.
fn is_public_with(kptr_restrict: Option<i64>, perf_event_paranoid: Option<i64>) -> bool {
    kptr_restrict == Some(0) && perf_event_paranoid.is_some_and(|paranoid| paranoid <= 1)
}

fn read_number(path: &str) -> Option<i64> {
    read::trimmed(path).ok()?.parse().ok()
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // With 2 no process sees addresses, whatever the capabilities.
            Self { kptr_restrict: Some(2..), .. } => f.write_str(
                "kernel.kptr_restrict is 2, which hides addresses from everyone; set it to 1: sysctl kernel.kptr_restrict=1",
            ),
            Self { cap_syslog: false, .. } => {
                f.write_str("this process lacks CAP_SYSLOG")?;
                if let Some(paranoid @ 2..) = self.perf_event_paranoid {
                    write!(f, " (and kernel.perf_event_paranoid is {paranoid}, above 1)")?;
                }
                f.write_str("; run as root or with CAP_SYSLOG")
            }
            _ => f.write_str("the kernel shows no addresses to this process"),
        }
    }
}

/// Why the kernel shows this process no addresses, if it does not. Looks at the first symbols only.
pub fn restriction() -> Option<Restriction> {
    let mut start = [0; 4096];
    let mut file = std::fs::File::open(PATH).ok()?;
    let len = io::Read::read(&mut file, &mut start).ok()?;
    let mut lines = start[..len].split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
    // The first per-CPU symbol may be at address 0; not all of them are.
    let hidden = lines.all(|line| line.iter().take_while(|&&byte| byte != b' ').all(|&byte| byte == b'0'));
    hidden.then(Restriction::read)
}

/// Why the symbols are not at hand.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KallsymsError {
    /// The file could not be read; kernels without `CONFIG_KALLSYMS` do not have it.
    #[error("cannot read {PATH}: {0}")]
    Read(#[source] io::Error),
    /// Every address in it is zero.
    #[error("the kernel hides the addresses of its symbols: {0}")]
    Restricted(Restriction),
}

/// The kernel's symbols, with their addresses.
#[derive(Debug, Clone)]
pub struct Kallsyms {
    text: Vec<u8>,
}

/// One line of `/proc/kallsyms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Where it is.
    pub address: u64,
    /// Its type as `nm` has it.
    pub kind: u8,
    /// Its name.
    pub name: &'a [u8],
    /// The module it is in, if it is in one.
    pub module: Option<&'a [u8]>,
}

impl Kallsyms {
    /// Reads the running kernel's symbols.
    pub fn read() -> Result<Self, KallsymsError> {
        let text = read::file(PATH).map_err(KallsymsError::Read)?;
        Self::from_text(text).ok_or_else(|| KallsymsError::Restricted(Restriction::read()))
    }

    /// Takes a text of that form, unless it has no address.
    ///
    /// The first symbols may truly be at zero (the per-CPU ones of x86 up to Linux 6.14 were), so all lines
    /// count; in a readable file the search ends within the first few hundred.
    pub fn from_text(mut text: Vec<u8>) -> Option<Self> {
        if text.last().is_some_and(|&byte| byte != b'\n') {
            text.push(b'\n');
        }
        let shown = symbols(&text).any(|symbol| symbol.address != 0);
        shown.then_some(Self { text })
    }

    /// The text as the kernel gave it, one symbol to a line, with a line end after the last.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The symbols in the kernel's order, which is by address within the kernel, then modules, then eBPF
    /// programs. A line that is not understood ends the list, as it does for trace-cmd.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        symbols(&self.text)
    }

    /// The address of a symbol of the kernel itself, or of a module where the kernel has none of that name.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let mut in_module = None;
        for symbol in self.symbols().filter(|symbol| symbol.name == name.as_bytes()) {
            match symbol.module {
                None => return Some(symbol.address),
                Some(_) => in_module = in_module.or(Some(symbol.address)),
            }
        }
        in_module
    }

    /// The address of the kernel's only symbol of this name, and the bytes from there to the next one; `None`
    /// if there is no such symbol, or nothing behind it.
    pub fn extent_of(&self, name: &str) -> Option<(u64, u64)> {
        let mut named = self.symbols().filter(|symbol| symbol.name == name.as_bytes());
        let symbol = named.next().filter(|symbol| symbol.module.is_none() && symbol.address != 0)?;
        if named.next().is_some() {
            return None;
        }
        let behind = self.symbols().map(|other| other.address).filter(|address| *address > symbol.address);
        Some((symbol.address, behind.min()? - symbol.address))
    }

    /// The text with an end after its highest symbol. libtraceevent takes the last symbol for nothing but the
    /// exact address of it (`tep_find_function`), so without an end the code after it would have no name.
    pub fn with_sentinel(self) -> Vec<u8> {
        let highest = self.symbols().map(|symbol| symbol.address).max().unwrap_or(0);
        let end = (highest | 0xfff).saturating_add(1).saturating_add(SENTINEL_DISTANCE);
        let Self { mut text } = self;
        text.extend_from_slice(format!("{end:016x} t {SENTINEL}\n").as_bytes());
        text
    }
}

fn symbols(text: &[u8]) -> impl Iterator<Item = Symbol<'_>> {
    text.split(|&byte| byte == b'\n').map_while(symbol)
}

/// Reads `address type name` and, after a tab, `[module]`.
fn symbol(line: &[u8]) -> Option<Symbol<'_>> {
    let digits = line.iter().position(|&byte| byte == b' ')?;
    if digits == 0 || digits > 16 {
        return None;
    }
    let mut address = 0;
    for &byte in &line[..digits] {
        address = address << 4 | u64::from(char::from(byte).to_digit(16)?);
    }
    let [kind, b' ', rest @ ..] = &line[digits + 1..] else { return None };
    let (name, module) = match rest.iter().position(|&byte| byte == b'\t') {
        Some(tab) => {
            let module = rest[tab + 1..].strip_prefix(b"[")?.strip_suffix(b"]")?;
            (&rest[..tab], Some(module))
        }
        None => (rest, None),
    };
    (!name.is_empty()).then_some(Symbol { address, kind: *kind, name, module })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000040 t helper\n\
        ffffffffc0201000 t helper\t[some_mod]\n\
        ffffffffc0202000 t only_there\t[some_mod]\n\
        ffffffffc0000010 t bpf_prog_1234_x\t[bpf]\n";

    #[test]
    fn symbols_are_read() {
        let symbols = Kallsyms::from_text(TEXT.to_vec()).unwrap();
        assert_eq!(symbols.symbols().count(), 6);
        assert_eq!(symbols.address_of("_stext"), Some(0xffff_ffff_8100_0000));
        assert_eq!(symbols.address_of("helper"), Some(0xffff_ffff_8100_0040));
        assert_eq!(symbols.address_of("only_there"), Some(0xffff_ffff_c020_2000));
        assert_eq!(symbols.address_of("nowhere"), None);
        let module = symbols.symbols().nth(3).unwrap();
        assert_eq!((module.kind, module.module), (b't', Some(&b"some_mod"[..])));
    }

    #[test]
    fn a_symbol_extends_to_the_next() {
        let symbols = Kallsyms::from_text(TEXT.to_vec()).unwrap();
        assert_eq!(symbols.extent_of("_stext"), Some((0xffff_ffff_8100_0000, 0x40)));
        // Of two things, of a module, without an address, without an end, and nothing.
        for name in ["helper", "only_there", "fixed_percpu_data", "nowhere"] {
            assert_eq!(symbols.extent_of(name), None, "{name}");
        }
        let last = Kallsyms::from_text(b"ffffffff81000000 T a\nffffffff81000000 T b\n".to_vec()).unwrap();
        assert_eq!(last.extent_of("a"), None);
    }

    #[test]
    fn the_end_is_behind_the_highest_symbol_even_if_that_is_not_the_last() {
        let text = Kallsyms::from_text(TEXT.to_vec()).unwrap().with_sentinel();
        assert!(text.starts_with(TEXT));
        assert_eq!(&text[TEXT.len()..], format!("ffffffffc0213000 t {SENTINEL}\n").as_bytes());
        let last = Kallsyms::from_text(b"ffffffffffffffff T x".to_vec()).unwrap().with_sentinel();
        assert_eq!(last, format!("ffffffffffffffff T x\nffffffffffffffff t {SENTINEL}\n").as_bytes());
    }

    #[test]
    fn hidden_addresses_are_noticed() {
        assert!(Kallsyms::from_text(b"0000000000000000 T a\n0000000000000000 T b\n".to_vec()).is_none());
        assert!(Kallsyms::from_text(Vec::new()).is_none());
        let reason = |kptr, perf, cap| {
            Restriction { kptr_restrict: kptr, perf_event_paranoid: perf, cap_syslog: cap }.to_string()
        };
        assert!(reason(Some(2), Some(1), true).contains("kptr_restrict is 2"));
        assert!(reason(Some(1), Some(2), false).contains("CAP_SYSLOG (and kernel.perf_event_paranoid is 2"));
        assert!(!reason(Some(1), Some(1), false).contains("paranoid"));
        assert!(!reason(None, None, true).is_empty());
    }

    #[test]
    fn lines_that_are_no_symbols_end_the_list() {
        for line in [
            &b"x"[..],
            b"12",
            b"12 ",
            b"12 T",
            b"12 T ",
            b" T x",
            b"zz T x",
            b"12 T x\t",
            b"12 T x\t[m",
            b"11112222333344445 T x",
            b"12 TT x",
        ] {
            assert_eq!(symbol(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn users_without_capabilities_see_addresses_where_both_settings_allow_it() {
        for (kptr, paranoid, public) in [
            (Some(0), Some(1), true),
            (Some(0), Some(-1), true),
            (Some(0), Some(2), false),
            (Some(1), Some(1), false),
            (Some(2), Some(-1), false),
            (None, Some(1), false),
            (Some(0), None, false),
        ] {
            assert_eq!(is_public_with(kptr, paranoid), public, "{kptr:?} {paranoid:?}");
        }
    }
}
