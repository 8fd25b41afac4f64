//! Units that have failed: which of what systemd says is a failure that was not known.

use std::collections::BTreeMap;

/// The most units that are known as failed. Of more, the ones that come first by name are forgotten.
const KNOWN_MAX: usize = 16 << 10;
/// The longest name (UNIT_NAME_MAX of systemd, with the zero at its end).
pub(super) const NAME_MAX: usize = 255;
/// Where objects of units are.
pub(super) const OF_UNITS: &str = "/org/freedesktop/systemd1/unit/";

/// Units that have failed, with the moment that systemd says (`StateChangeTimestamp`). A unit tells that it
/// is failed with each of its changes, and when systemd has loaded it anew: only another moment is another
/// failure.
#[derive(Debug, Default)]
pub(super) struct Known {
    failed: BTreeMap<String, Option<u64>>,
    /// Whether systemd reloads, which removes all units and loads them again.
    pub(super) is_reloading: bool,
}

impl Known {
    /// A unit is failed, since a moment if that is known; gives whether that is another failure.
    pub(super) fn has_failed(&mut self, unit: &str, since: Option<u64>) -> bool {
        let is_new = match (self.failed.get(unit), since) {
            (None, _) => true,
            (Some(Some(before)), Some(since)) => *before != since,
            (Some(_), _) => false,
        };
        if let (false, None) = (is_new, since) {
            return false;
        }
        if is_new && self.failed.len() >= KNOWN_MAX {
            self.failed.pop_first();
        }
        self.failed.insert(unit.to_owned(), since);
        is_new
    }

    /// A unit is not failed.
    pub(super) fn is_well(&mut self, unit: &str) {
        self.failed.remove(unit);
    }

    /// A unit is not there any more.
    pub(super) fn is_gone(&mut self, unit: &str) {
        if !self.is_reloading {
            self.failed.remove(unit);
        }
    }

    /// These are all that are failed, as somebody sees who has not looked for a while; gives those that were
    /// not.
    pub(super) fn are_failed(&mut self, all: Vec<String>) -> Vec<String> {
        let before = std::mem::take(&mut self.failed);
        let known = |unit: &String| (unit.clone(), before.get(unit).copied().flatten());
        self.failed = all.iter().take(KNOWN_MAX).map(known).collect();
        self.is_reloading = false;
        all.into_iter().filter(|unit| !before.contains_key(unit)).collect()
    }
}

/// The name of a unit whose object has this path: what is no letter or digit is `_` and two hexadecimal
/// digits there (sd_bus_path_encode(3)).
pub(super) fn unit_of(path: &str) -> Option<String> {
    let label = path.strip_prefix(OF_UNITS)?;
    let mut bytes = Vec::with_capacity(label.len());
    let mut rest = label.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'_' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    let name = String::from_utf8(bytes).ok()?;
    is_name(&name).then_some(name)
}

/// Whether a text may be the name of a unit (systemd.unit(5)).
pub(super) fn is_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_fine)
}

/// The interface of what a unit has as one of its type.
pub(super) fn interface_of(unit: &str) -> Option<&'static str> {
    let (_, kind) = unit.rsplit_once('.')?;
    // Those that have a `Result` (org.freedesktop.systemd1(5)).
    Some(match kind {
        "service" => "org.freedesktop.systemd1.Service",
        "socket" => "org.freedesktop.systemd1.Socket",
        "mount" => "org.freedesktop.systemd1.Mount",
        "automount" => "org.freedesktop.systemd1.Automount",
        "swap" => "org.freedesktop.systemd1.Swap",
        "timer" => "org.freedesktop.systemd1.Timer",
        "path" => "org.freedesktop.systemd1.Path",
        "scope" => "org.freedesktop.systemd1.Scope",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once() {
        let mut known = Known::default();
        assert!(known.has_failed("a.service", Some(1)));
        // Another change of it, or systemd has loaded it anew.
        assert!(!known.has_failed("a.service", Some(1)) && !known.has_failed("a.service", None));
        // It was started and has failed in between.
        assert!(known.has_failed("a.service", Some(2)));
        known.is_well("a.service");
        assert!(known.has_failed("a.service", None));
        assert!(!known.has_failed("a.service", Some(3)), "the moment becomes known");
        known.is_gone("a.service");
        assert!(known.has_failed("a.service", Some(3)));
        known.is_reloading = true;
        known.is_gone("a.service");
        assert!(!known.has_failed("a.service", Some(3)), "it comes back");
        let all = ["a.service", "b.service"].map(str::to_owned);
        assert_eq!(known.are_failed(all.into()), ["b.service"]);
        assert!(!known.has_failed("b.service", Some(9)) && known.has_failed("a.service", Some(4)));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut known = Known::default();
        for number in 0..KNOWN_MAX + 10 {
            assert!(known.has_failed(&format!("{number}.service"), None));
        }
        assert_eq!(known.failed.len(), KNOWN_MAX);
    }

    #[test]
    fn paths_have_names() {
        let of = |label: &str| unit_of(&format!("{OF_UNITS}{label}"));
        assert_eq!(of("ssh_2eservice").as_deref(), Some("ssh.service"));
        assert_eq!(of("getty_40tty1_2eservice").as_deref(), Some("getty@tty1.service"));
        assert_eq!(of("_2d_2emount").as_deref(), Some("-.mount"));
        for wrong in ["", "a_", "a_2", "a_zz", "a_00b", "a_20b", "a_ff"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(of(&"a".repeat(256)), None);
        assert_eq!(unit_of("/org/freedesktop/systemd1/job/1"), None);
        assert_eq!(interface_of("a.b.service"), Some("org.freedesktop.systemd1.Service"));
        assert_eq!(interface_of("a.target"), None);
    }
}
