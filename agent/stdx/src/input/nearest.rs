//! Which names a user may have meant by one that does not exist.

/// The cost of turning `a` into `b` by inserting, deleting, replacing or swapping neighbouring characters.
pub fn distance(a: &str, b: &str) -> usize {
    // Names are ASCII in practice. A long argument from a command line must not cost quadratic memory or
    // time.
    const LONGEST: usize = 128;
    let [a, b] =
        [a, b].map(|name| -> String { name.chars().take(LONGEST).flat_map(char::to_lowercase).collect() });
    strsim::osa_distance(&a, &b)
}

/// How far `candidate` is from `wanted`, or `None` when nobody would take the one for the other.
///
/// Mistyped names come first, then names of which `wanted` is a part, those that begin with it before the
/// others.
pub fn score(wanted: &str, candidate: &str) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    let typo = distance(wanted, candidate);
    let tolerance = (wanted.chars().count() / 3).clamp(1, 4);
    if typo <= tolerance {
        return Some(typo * 2);
    }
    let (wanted, candidate) = (wanted.to_ascii_lowercase(), candidate.to_ascii_lowercase());
    let extra = candidate.len().saturating_sub(wanted.len()).min(30);
    if wanted.len() >= 3 && candidate.starts_with(&wanted) {
        return Some(5 + extra / 2);
    }
    if wanted.len() >= 3 && (candidate.ends_with(&wanted) || candidate.contains(&format!("{wanted}_"))) {
        return Some(6 + extra / 2);
    }
    if wanted.len() >= 3 && candidate.contains(&wanted) {
        return Some(8 + extra / 2);
    }
    // "sched_switched_out" for "sched_switch": someone wrote more than there is.
    (candidate.len() >= 4 && wanted.contains(&candidate)).then(|| 12 + (wanted.len() - candidate.len()) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits_and_swaps() {
        assert_eq!(distance("sched_swich", "sched_switch"), 1);
        assert_eq!(distance("shced", "sched"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("Sched", "sched"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn typos_come_before_parts_and_strangers_do_not_come() {
        let typo = score("sched_swich", "sched_switch").unwrap();
        let part = score("switch", "sched_switch").unwrap();
        let prefix = score("sched", "sched_switch").unwrap();
        assert!(typo < part && typo < prefix);
        let longer = score("page_fault", "page_fault_user").unwrap();
        assert!(longer.abs_diff(score("page_fault", "io_page_fault").unwrap()) < 8, "both are worth showing");
        assert_eq!(score("sched_switch", "kmalloc"), None);
        assert_eq!(score("", "kmalloc"), None);
        assert!(score("sched_switched_out", "sched_switch").is_some());
    }

    #[test]
    fn long_input_is_cheap() {
        assert!(distance(&"a".repeat(1_000_000), &"b".repeat(1_000_000)) <= 128);
    }
}
