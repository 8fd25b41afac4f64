//! Trials whose length `cargo xtask soak` sets.

use integration_tests::trace_cmd::Line;

use super::*;

/// A real spool with every kind of file, damaged at random: what comes of it is a file that stock tools
/// read, or an error, and then nothing is missing that was there.
#[test]
fn damaged_spools_are_recovered_or_refused() {
    let killed = Killed::make(&["--user-stack"]);
    let spool = killed.spool();
    let contents: Vec<(String, Vec<u8>)> = files(&spool)
        .into_iter()
        .filter(|name| !["reserve", "lock", "kallsyms"].contains(&name.as_str()))
        .map(|name| (name.clone(), fs::read(spool.join(&name)).unwrap()))
        .collect();
    assert!(contents.iter().any(|(name, _)| name == "mappings"), "{:?}", files(&spool));
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let (mut recovered, mut refused) = (0, 0);
    let rounds = 3 * integration_tests::soak();
    for (round, (name, _)) in (0..rounds).flat_map(|round| contents.iter().map(move |file| (round, file))) {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("trace.dat.spool");
        fs::create_dir(&copy).unwrap();
        for (other, bytes) in &contents {
            let mut bytes = bytes.clone();
            if other == name {
                damage(&mut bytes, &mut state);
            }
            fs::write(copy.join(other), bytes).unwrap();
        }
        let before = files(&copy);
        let ended = run(&mut agent(dir.path(), ["recover", "trace.dat"]));
        assert!(!ended.err.contains("panicked"), "{name}, round {round}: {}", ended.err);
        let file = dir.path().join("trace.dat");
        if ended.code() == 0 {
            recovered += 1;
            // A stack goes on in further lines.
            let found = Report::of(&file).count(|line| Line::parse(line).is_some());
            assert_eq!(Ledger::of(&file).cpus("stored"), found, "{name}, round {round}");
        } else {
            refused += 1;
            assert_eq!(ended.code(), 1, "{name}, round {round}: {}", ended.err);
            // The copy had no lock; what recovers makes one.
            let left: Vec<String> = files(&copy).into_iter().filter(|name| name != "lock").collect();
            assert_eq!((left, file.exists()), (before, false), "{name}, round {round}: {}", ended.err);
        }
    }
    println!("{recovered} recovered, {refused} refused");
    assert!(recovered > refused, "most files are not needed for the data");
}

/// Marsaglia's xorshift: the same numbers each time.
fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % limit.max(1) as u64) as usize
}

/// Changes some bytes, the length, or everything of a file.
fn damage(bytes: &mut Vec<u8>, state: &mut u64) {
    let at = random(state, bytes.len());
    match random(state, 6) {
        0 => bytes.truncate(at),
        1 => bytes.extend(std::iter::repeat_n(0, random(state, 100_000))),
        2 => {
            let end = (at + random(state, 5000)).min(bytes.len());
            bytes[at..end].fill(if at.is_multiple_of(2) { 0 } else { 0xff });
        }
        3 => {
            // A number that is far too large, where a number may be.
            let at = at / 8 * 8;
            let end = (at + 8).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
        4 => {
            let copied = bytes[at..(at + random(state, 9000)).min(bytes.len())].to_vec();
            let to = random(state, bytes.len());
            bytes.splice(to..to, copied);
        }
        _ => {
            for _ in 0..4 {
                let at = random(state, bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random(state, 8);
                }
            }
        }
    }
}
