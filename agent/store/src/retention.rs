//! What is deleted on this machine: a decision from plain data, and its execution by descriptors.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstatvfs};
use serde::Serialize;

use super::config::{RetentionConfig, Unsent};
use super::content::{self, Fingerprint, locate};
use super::failure::StoreError;
use stdx::output::{Directory, own_user};

/// An archive on this machine.
#[derive(Clone, Debug)]
pub struct Held {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// When it ends, in nanoseconds since 1970.
    pub end: u64,
    /// Whether the store has it, verified.
    pub is_stored: bool,
    pub(super) fingerprint: Fingerprint,
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free bytes.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

/// Why an archive is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is older than `max_age`.
    Age,
    /// All together are more than `max_bytes`.
    Bytes,
    /// Less than `min_free_bytes` or `min_free_percent` is free.
    Disk,
}

/// An archive as the decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Nanoseconds since it ended.
    pub age: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Whether the store has it.
    pub is_stored: bool,
    /// Which file system it is on.
    pub disk: u64,
}

/// An archive that was deleted.
#[derive(Clone, Debug, Serialize)]
pub struct Deleted {
    /// Where it was.
    pub path: PathBuf,
    /// Whether the store has it.
    pub is_stored: bool,
    /// Why.
    pub reason: Reason,
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Retained {
    /// Stored archives that were deleted.
    pub deleted_archives: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Archives that were deleted and are in no store.
    pub deleted_unsent_archives: u64,
    /// Their bytes.
    pub deleted_unsent_bytes: u64,
    /// Everything that was deleted.
    pub deleted: Vec<Deleted>,
    /// What could not be looked at or deleted.
    pub problems: Vec<String>,
}

/// Which archives are to be deleted, by their indices, and why, in the order in which they are. Stored ones
/// go first, the oldest of them first. One that is not stored goes only if the disk is too full without any
/// stored one left on it, and the configuration says so.
pub fn decide(
    config: &RetentionConfig,
    held: &[Candidate],
    disks: &BTreeMap<u64, Room>,
) -> Vec<(usize, Reason)> {
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(held[index].age));
    let mut deleted = Vec::new();
    let mut is_deleted = vec![false; held.len()];
    let max_age = config.max_age.map(|age| u64::try_from(age.0.as_nanos()).unwrap_or(u64::MAX));
    let mut all: u64 = held.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
    let mut free: BTreeMap<u64, u64> = disks.iter().map(|(disk, room)| (*disk, room.free)).collect();
    let is_short = |free: &BTreeMap<u64, u64>, disk: u64| {
        disks
            .get(&disk)
            .is_some_and(|room| free.get(&disk).is_some_and(|free| *free < least_free(config, *room)))
    };
    let passes = match config.unsent {
        Unsent::Keep => &[true][..],
        Unsent::DeleteOldest => &[true, false][..],
    };
    for &stored in passes {
        for &index in order.iter().filter(|&&index| held[index].is_stored == stored) {
            let Candidate { age, bytes, disk, .. } = held[index];
            let reason = match () {
                () if is_short(&free, disk) => Reason::Disk,
                () if !stored => continue,
                () if max_age.is_some_and(|longest| age > longest) => Reason::Age,
                () if config.max_bytes.is_some_and(|most| all > most.0) => Reason::Bytes,
                () => continue,
            };
            if !is_deleted[index] {
                is_deleted[index] = true;
                all = all.saturating_sub(bytes);
                free.entry(disk).and_modify(|free| *free = free.saturating_add(bytes));
                deleted.push((index, reason));
            }
        }
    }
    deleted
}

/// The bytes that are to be free on a file system.
fn least_free(config: &RetentionConfig, room: Room) -> u64 {
    let percent = config.min_free_percent.map_or(0, |percent| {
        u64::try_from(u128::from(room.total) * u128::from(percent) / 100).unwrap_or(u64::MAX)
    });
    config.min_free_bytes.map_or(0, |size| size.0).max(percent)
}

impl Held {
    /// The archive at a path. No store is said to have it.
    ///
    /// # Errors
    /// It cannot be read, or is another user's than who runs this.
    pub fn at(path: &Path) -> Result<Self, StoreError> {
        let path = content::absolute(path)?;
        let fingerprint = content::open(&path)?.fingerprint;
        if fingerprint.uid != own_user() {
            let why = format!("it belongs to user {}", fingerprint.uid);
            return Err(StoreError::local(format!("use {}", path.display()))(io::Error::other(why)));
        }
        let (bytes, end) = (fingerprint.size, fingerprint.modified);
        Ok(Self { path, bytes, end, is_stored: false, fingerprint })
    }

    /// Whether there is still something at its path.
    pub(super) fn is_there(&self) -> bool {
        match locate(&self.path).and_then(|(dir, name)| {
            dir.look(&name).map_err(StoreError::local(format!("look at {}", self.path.display())))
        }) {
            Ok(found) => found.is_some(),
            Err(error) => !error.is_local(io::ErrorKind::NotFound),
        }
    }
}

/// Deletes archives that no uploader knows, as a configuration wants it.
pub fn retain(config: &RetentionConfig, held: &[Held]) -> Retained {
    enforce(config, held, super::uploader::now(), &Nobody)
}

/// Who knows archives that are to be deleted.
pub(super) trait Owner {
    /// Whether one may be deleted; nobody else does anything with it until it is told what became of it.
    fn reserve(&self, held: &Held) -> bool;
    /// It is gone.
    fn is_gone(&self, held: &Held);
    /// It is still there.
    fn stays(&self, held: &Held);
}

/// Who lets everything be deleted.
struct Nobody;

impl Owner for Nobody {
    fn reserve(&self, _: &Held) -> bool {
        true
    }

    fn is_gone(&self, _: &Held) {}

    fn stays(&self, _: &Held) {}
}

/// Deletes archives as a configuration wants it. `now` is in nanoseconds since 1970.
pub(super) fn enforce(config: &RetentionConfig, held: &[Held], now: u64, owner: &impl Owner) -> Retained {
    let mut done = Retained::default();
    let mut disks = BTreeMap::new();
    for one in held {
        let disk = one.fingerprint.dev;
        if disks.contains_key(&disk) {
            continue;
        }
        match locate(&one.path).and_then(|(dir, _)| room(&dir, &one.path)) {
            Ok(room) => drop(disks.insert(disk, room)),
            Err(error) => done.problems.push(error.to_string()),
        }
    }
    let candidates: Vec<_> = held
        .iter()
        .map(|one| Candidate {
            age: now.saturating_sub(one.end),
            bytes: one.bytes,
            is_stored: one.is_stored,
            disk: one.fingerprint.dev,
        })
        .collect();
    for (index, reason) in decide(config, &candidates, &disks) {
        let one = &held[index];
        if !owner.reserve(one) {
            continue;
        }
        match delete(one) {
            Ok(is_deleted) => {
                owner.is_gone(one);
                if !is_deleted {
                    continue;
                }
                done.deleted.push(Deleted { path: one.path.clone(), is_stored: one.is_stored, reason });
                let (archives, bytes) = if one.is_stored {
                    (&mut done.deleted_archives, &mut done.deleted_bytes)
                } else {
                    (&mut done.deleted_unsent_archives, &mut done.deleted_unsent_bytes)
                };
                *archives += 1;
                *bytes += one.bytes;
            }
            Err(error) => {
                owner.stays(one);
                done.problems.push(error.to_string());
            }
        }
    }
    done
}

fn room(dir: &Directory, path: &Path) -> Result<Room, StoreError> {
    let failed = StoreError::local(format!("see how much is free at {}", path.display()));
    let stat = fstatvfs(dir).map_err(|error| failed(error.into()))?;
    Ok(Room {
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// Deletes an archive, if it is still the one that was looked at. Gives whether it was there.
fn delete(held: &Held) -> Result<bool, StoreError> {
    let (dir, name) = locate(&held.path)?;
    let delete = || {
        let Some(there) = dir.look(&name)? else { return Ok(false) };
        let Fingerprint { dev, ino, uid, size, modified } = held.fingerprint;
        let is_dir = FileType::from_raw_mode(there.st_mode) == FileType::Directory;
        // What is in a directory was looked at when it was found; a file may be written to again.
        let is_same =
            is_dir || (there.st_size.cast_unsigned(), content::modified(&there)) == (size, modified);
        if (there.st_dev, there.st_ino, there.st_uid) != (dev, ino, uid) || !is_same {
            return Err(io::Error::other("something else is there now"));
        }
        let removed = match dir.open_dir(&name) {
            Ok(inner) => dir.remove_tree(&name, &inner),
            Err(_) => dir.remove(&name),
        };
        removed.map(|()| true)
    };
    delete().map_err(StoreError::local(format!("delete {}", held.path.display())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use stdx::quantity::{Bytes, Period};

    /// Numbers that are the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }
    }

    fn sum(held: &[Candidate]) -> u64 {
        held.iter().map(|one| one.bytes).sum()
    }

    #[test]
    fn whatever_there_is_the_rules_hold() {
        let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
        for _ in 0..20_000 {
            let count = numbers.below(12);
            let held: Vec<_> = (0..count)
                .map(|_| Candidate {
                    age: numbers.below(100) * 1_000_000_000,
                    bytes: numbers.below(50),
                    is_stored: numbers.below(2) == 0,
                    disk: numbers.below(2),
                })
                .collect();
            let room = |numbers: &mut Numbers| Room { free: numbers.below(200), total: 1000 };
            let disks = BTreeMap::from([(0, room(&mut numbers)), (1, room(&mut numbers))]);
            let unsent = if numbers.below(2) == 0 { Unsent::Keep } else { Unsent::DeleteOldest };
            let config = RetentionConfig {
                max_age: (numbers.below(2) == 0).then(|| Period(Duration::from_secs(numbers.below(100)))),
                max_bytes: (numbers.below(2) == 0).then(|| Bytes(numbers.below(300))),
                min_free_bytes: (numbers.below(2) == 0).then(|| Bytes(numbers.below(200))),
                min_free_percent: (numbers.below(2) == 0).then(|| numbers.below(20) as u8),
                unsent,
            };
            check(&config, &held, &disks);
        }
    }

    /// Checks a decision by what it leaves.
    fn check(config: &RetentionConfig, held: &[Candidate], disks: &BTreeMap<u64, Room>) {
        let deleted = decide(config, held, disks);
        let is_deleted = |index: usize| deleted.iter().any(|(other, _)| *other == index);
        let left: Vec<_> =
            (0..held.len()).filter(|index| !is_deleted(*index)).map(|index| held[index]).collect();
        let mut once: Vec<_> = deleted.iter().map(|(index, _)| *index).collect();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), deleted.len());
        let is_short = |disk: u64| {
            let gained = deleted.iter().map(|(index, _)| held[*index]).filter(|one| one.disk == disk);
            disks[&disk].free + gained.map(|one| one.bytes).sum::<u64>() < least_free(config, disks[&disk])
        };
        for one in left.iter().filter(|one| one.is_stored) {
            assert!(config.max_age.is_none_or(|longest| u128::from(one.age) <= longest.0.as_nanos()));
            assert!(config.max_bytes.is_none_or(|most| sum(&left) <= most.0), "stored ones give way");
            assert!(!is_short(one.disk), "stored ones give way to the disk");
        }
        for (position, (index, reason)) in deleted.iter().enumerate() {
            let one = held[*index];
            if !one.is_stored {
                assert_eq!((*reason, config.unsent), (Reason::Disk, Unsent::DeleteOldest));
                assert!(left.iter().all(|other| !other.is_stored || other.disk != one.disk));
            }
            let later = deleted[position + 1..].iter().map(|(index, _)| held[*index]);
            for other in later.filter(|other| other.is_stored == one.is_stored) {
                assert!(other.age <= one.age, "the oldest go first");
            }
        }
        if config.unsent == Unsent::DeleteOldest {
            assert!(left.iter().all(|one| !is_short(one.disk)), "the disk comes first then");
        }
    }

    #[test]
    fn files_and_directories_are_deleted_and_nothing_that_took_their_place() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.dat", "b.dat"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(dir.path().join("c")).unwrap();
        std::fs::write(dir.path().join("c/metadata"), "x").unwrap();
        let mut held = ["a.dat", "b.dat", "c"].map(|name| Held::at(&dir.path().join(name)).unwrap());
        for one in &mut held {
            one.is_stored = true;
        }
        std::fs::write(dir.path().join("new"), "y").unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("b.dat")).unwrap();
        let config = RetentionConfig { max_bytes: Some(Bytes(0)), ..RetentionConfig::default() };
        let done = enforce(&config, &held, u64::MAX, &Nobody);
        assert_eq!((done.deleted_archives, done.problems.len()), (2, 1), "{done:?}");
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["b.dat"]);
    }
}
