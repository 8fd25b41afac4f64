//! Objects to files: in ranges, several at a time, verified, and gone on with after an interruption.
//!
//! What is there of an object is beside its final name, in `.NAME.part`, and `.NAME.part.json` says which
//! ranges and of which object. The file has its name when all of it was verified.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path as FilePath, PathBuf};

use futures_util::StreamExt as _;
use object_store::{GetOptions, GetRange};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::content::hex;
use super::failure::StoreError;
use super::name::{Name, component};
use super::place::{Access, Object, Place, Retries, block_on};
use stdx::output::{Directory, directory_at};

/// Bytes of a range.
const RANGE: u64 = 4 << 20;
/// Ranges at a time; each is in memory until it is written.
const AT_ONCE: usize = 4;
/// What is read at a time for the checksum.
const BLOCK: usize = 1 << 20;

/// A file that was downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that were fetched now; the rest was there.
    pub fetched: u64,
    /// Whether its SHA-256 was compared with the one that is stored with it, or with the beginning of it that
    /// the name of an archive has.
    pub is_verified: bool,
}

/// What is there of an object.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partial {
    url: String,
    size: u64,
    version: String,
    /// Numbers of the ranges that are there.
    ranges: BTreeSet<u64>,
}

/// Downloads the object at an address into a directory, under the last part of its name.
///
/// # Errors
/// The address is wrong, the store cannot be reached, the directory cannot be written, something has the
/// name already, the disk has no room for the object, or what came is not what was stored or what its name
/// says.
pub fn download(url: &str, access: &Access, dir: &FilePath) -> Result<Downloaded, StoreError> {
    let place = Place::open(url, access, Retries::Client)?;
    let dir = directory_at(dir)
        .map_err(io::Error::other)
        .map_err(StoreError::local(format!("open {}", dir.display())))?;
    block_on(to_directory(&place, &dir)).map_err(StoreError::local("make requests"))?
}

async fn to_directory(place: &Place, dir: &Directory) -> Result<Downloaded, StoreError> {
    let url = place.url(place.path());
    let found = place.look(place.path()).await?;
    let missing = || StoreError::local(format!("get {url}"))(io::ErrorKind::NotFound.into());
    let object = found.ok_or_else(missing)?;
    let name = component(place.path().filename().unwrap_or_default());
    let local = |what: &str| StoreError::local(format!("{what} {}", dir.join(&name).display()));
    if dir.look(name.as_ref()).map_err(local("look at"))?.is_some() {
        let there = io::Error::other("it is there already; remove it, or name another directory with -o");
        return Err(local("write")(there));
    }
    let (part, state) = (format!(".{name}.part"), format!(".{name}.part.json"));
    let begun = Partial {
        url: url.clone(),
        size: object.meta.size,
        version: version(&object),
        ranges: BTreeSet::new(),
    };
    let (file, mut partial) = open_partial(dir, &part, &state, begun).map_err(local("write"))?;
    let fetched = fetch(place, dir, &file, &mut partial, &state).await?;
    file.sync_all().map_err(local("write"))?;
    let expected = Expected::of(&object);
    let verified = expected.is_known().then(|| checksum(&file, object.meta.size)).transpose();
    let verified = verified.map_err(local("read"))?;
    if verified.as_ref().is_some_and(|sha256| !expected.is(sha256)) {
        // What is there is of no use.
        let _ = dir.remove(&part);
        let _ = dir.remove(&state);
        let why = "its SHA-256 is not the one that it was stored with, or that its name has".to_owned();
        return Err(StoreError::Checksum { what: url, why });
    }
    dir.rename_new(part.as_ref(), dir, name.as_ref()).map_err(local("write"))?;
    // It says nothing to anybody without the other one.
    let _ = dir.remove(&state);
    dir.sync();
    Ok(Downloaded {
        path: dir.join(&name),
        bytes: object.meta.size,
        fetched,
        is_verified: verified.is_some(),
    })
}

/// What changes when an object is replaced.
fn version(object: &Object) -> String {
    let modified = object.meta.last_modified.to_rfc3339();
    object.meta.e_tag.clone().unwrap_or(modified)
}

/// The file that is written to, and what is there of it.
fn open_partial(dir: &Directory, part: &str, state: &str, begun: Partial) -> io::Result<(File, Partial)> {
    let known = dir.read(state).ok().and_then(|text| serde_json::from_slice::<Partial>(&text).ok());
    let known = known
        .filter(|known| (&known.url, known.size, &known.version) == (&begun.url, begun.size, &begun.version));
    if let Some(known) = known
        && let Ok(file) = dir.open_for_writing(part)
        && file.metadata()?.len() == known.size
    {
        return Ok((file, known));
    }
    if begun.size > dir.free_bytes()? {
        let why = format!("the disk has no room for its {} bytes", begun.size);
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    let file = dir.replace(part)?;
    file.set_len(begun.size)?;
    Ok((file, begun))
}

/// Fetches the ranges that are not there.
async fn fetch(
    place: &Place,
    dir: &Directory,
    file: &File,
    partial: &mut Partial,
    state: &str,
) -> Result<u64, StoreError> {
    let size = partial.size;
    let there = partial.ranges.clone();
    let missing = (0..size.div_ceil(RANGE)).filter(|range| !there.contains(range));
    let mut ranges = futures_util::stream::iter(missing)
        .map(|number| async move {
            let range = number * RANGE..((number + 1) * RANGE).min(size);
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
            let got = async { place.store.get_opts(place.path(), options).await?.bytes().await };
            (number, got.await)
        })
        .buffer_unordered(AT_ONCE);
    let mut fetched = 0;
    while let Some((number, bytes)) = ranges.next().await {
        let what = format!("get {}", place.url(place.path()));
        let bytes = bytes.map_err(StoreError::remote(what.clone(), &place.filter))?;
        if bytes.len() as u64 != RANGE.min(size - number * RANGE) {
            return Err(StoreError::Checksum {
                what,
                why: "a range of it is shorter than it should be".into(),
            });
        }
        let note = || {
            file.write_all_at(&bytes, number * RANGE)?;
            // A range that is noted is on the disk.
            file.sync_data()?;
            partial.ranges.insert(number);
            dir.write_whole(state, |file| file.write_all(&serde_json::to_vec(&partial)?))
        };
        let mut note = note;
        note().map_err(StoreError::local(format!("write {}", dir.join(state).display())))?;
        fetched += bytes.len() as u64;
    }
    Ok(fetched)
}

/// What is known of an object's SHA-256.
struct Expected {
    /// All of it, which is stored with the object.
    stored: Option<String>,
    /// Its beginning, in the name of an archive.
    id: Option<String>,
}

impl Expected {
    fn of(object: &Object) -> Self {
        let id = Name::parse(object.meta.location.as_ref()).map(|name| name.id);
        Self { stored: object.sha256.clone(), id }
    }

    fn is_known(&self) -> bool {
        self.stored.is_some() || self.id.is_some()
    }

    fn is(&self, sha256: &str) -> bool {
        self.stored.as_ref().is_none_or(|stored| stored == sha256)
            && self.id.as_ref().is_none_or(|id| sha256.starts_with(id))
    }
}

/// The SHA-256 of so many bytes of a file.
fn checksum(file: &File, size: u64) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BLOCK];
    let mut offset = 0;
    while offset < size {
        let len = usize::try_from(size - offset).unwrap_or(usize::MAX).min(BLOCK);
        file.read_exact_at(&mut buffer[..len], offset)?;
        hash.update(&buffer[..len]);
        offset += len as u64;
    }
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStore as _, ObjectStoreExt as _, PutOptions, PutPayload};

    use super::super::hostile::{Server, VERSION, send};
    use super::*;

    fn stored(bytes: &[u8], sha256: &str) -> Place {
        let (place, store) = Place::in_memory();
        let options = PutOptions { attributes: place.attributes(sha256), ..PutOptions::default() };
        let put = store.put_opts(place.path(), PutPayload::from(bytes.to_vec()), options);
        block_on(put).unwrap().unwrap();
        let _ = block_on(store.head(place.path())).unwrap().unwrap();
        place
    }

    #[test]
    fn a_download_goes_on_and_is_verified() {
        let bytes: Vec<u8> = (0..3 * RANGE + 5).map(|at| (at / 1000) as u8).collect();
        let place = stored(&bytes, &hex(&Sha256::digest(&bytes)));
        let temporary = tempfile::tempdir().unwrap();
        let dir = directory_at(temporary.path()).unwrap();
        let object = block_on(place.look(place.path())).unwrap().unwrap().unwrap();
        // What an earlier run has left: two ranges.
        let begun = Partial {
            url: place.url(place.path()),
            size: bytes.len() as u64,
            version: version(&object),
            ranges: BTreeSet::from([0, 2]),
        };
        std::fs::write(temporary.path().join(".traces.part"), &bytes).unwrap();
        std::fs::write(temporary.path().join(".traces.part.json"), serde_json::to_vec(&begun).unwrap())
            .unwrap();
        let done = block_on(to_directory(&place, &dir)).unwrap().unwrap();
        assert_eq!((done.fetched, done.is_verified), (RANGE + 5, true));
        assert!(std::fs::read(&done.path).unwrap() == bytes);
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1);
        assert!(block_on(to_directory(&place, &dir)).unwrap().is_err(), "nothing is overwritten");
    }

    #[test]
    fn what_is_not_what_was_stored_gets_no_name() {
        let place = stored(b"other", &"0".repeat(64));
        let temporary = tempfile::tempdir().unwrap();
        let dir = directory_at(temporary.path()).unwrap();
        let error = block_on(to_directory(&place, &dir)).unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Checksum { .. }), "{error}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
    }

    /// A store keeps no checksum, or one that fits what it gives.
    #[test]
    fn what_is_not_what_its_name_says_gets_no_name() {
        let bytes = b"content";
        let sha256 = hex(&Sha256::digest(bytes));
        for (id, stored) in
            [(&sha256[..16], None), ("0123456789abcdef", None), ("0123456789abcdef", Some(&sha256))]
        {
            let (place, store) = Place::in_memory();
            let name = format!("lab/2026-03-02/n/s/20260302T101500.250Z-20260302T101501.000Z-{id}.dat");
            let place = place.at(place.below(&name));
            let attributes = stored.map(|sha256| place.attributes(sha256)).unwrap_or_default();
            let options = PutOptions { attributes, ..PutOptions::default() };
            block_on(store.put_opts(place.path(), PutPayload::from(bytes.to_vec()), options))
                .unwrap()
                .unwrap();
            let temporary = tempfile::tempdir().unwrap();
            let dir = directory_at(temporary.path()).unwrap();
            let got = block_on(to_directory(&place, &dir)).unwrap();
            if sha256.starts_with(id) {
                assert!(got.unwrap().is_verified);
            } else {
                assert!(matches!(got, Err(StoreError::Checksum { .. })), "{got:?}");
                assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn a_size_that_no_disk_has_is_refused() {
        for size in [1_u64 << 62, u64::MAX - 2] {
            let server = Server::start(move |_, stream| {
                send(stream, &format!("200 OK\r\n{VERSION}\r\ncontent-length: {size}"), b"");
            });
            let temporary = tempfile::tempdir().unwrap();
            let dir = directory_at(temporary.path()).unwrap();
            let error = block_on(to_directory(&server.place("a.dat"), &dir)).unwrap().unwrap_err();
            assert!(error.is_local(io::ErrorKind::StorageFull), "{error:?}");
            assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
        }
    }
}
