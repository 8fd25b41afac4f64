//! The files of a directory, to objects of the same names.

use std::io::{self, Read as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{PutMultipartOptions, PutOptions, PutPayload};
use sha2::{Digest as _, Sha256};

use super::content::hex;
use super::failure::StoreError;
use super::pace::backoff;
use super::place::{Access, Parts, Place, Retries, block_on};
use stdx::output::Directory;

/// What is sent at a time; a file that is not larger is sent whole.
const PART: usize = 8 << 20;
/// Files that are sent at a time.
const AT_ONCE: usize = 4;
/// The longest time between two attempts.
const LONGEST: Duration = Duration::from_mins(1);
/// How long to wait before looking whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where files of directories are uploaded to.
#[derive(Debug)]
pub struct Tree {
    place: Place,
}

/// Who is asked and told while files are uploaded.
pub trait Observer: Sync {
    /// Whether to stop.
    fn is_cancelled(&self) -> bool;

    /// An attempt has failed, and there will be another one.
    fn failed(&self, error: &StoreError);
}

impl Tree {
    /// The place that an address names.
    ///
    /// # Errors
    /// The address or an option is wrong. No request is made.
    pub fn open(url: &str, access: &Access) -> Result<Self, StoreError> {
        Ok(Self { place: Place::open(url, access, Retries::Caller)? })
    }

    /// Uploads files of `root`, by their paths in it, where they replace objects: those of a group in any
    /// order, when those of the groups before are there and verified. What the store's or the network's state
    /// keeps from being uploaded is tried again without end. Gives the bytes that were sent; what is there
    /// already is not.
    ///
    /// # Errors
    /// The store refuses something, or a file cannot be read. Some files are there then, in the order of the
    /// groups; so it is when the observer says to stop, which gives `None`.
    pub fn upload(
        &self,
        root: &Directory,
        groups: &[Vec<String>],
        observer: &dyn Observer,
    ) -> Result<Option<u64>, StoreError> {
        let sent = AtomicU64::new(0);
        let upload = async {
            for group in groups {
                let files = group.iter().map(|file| self.upload_file(root, file, observer, &sent));
                let all: Vec<bool> = stream::iter(files).buffer_unordered(AT_ONCE).try_collect().await?;
                if all.contains(&false) {
                    return Ok(None);
                }
            }
            Ok(Some(sent.load(Ordering::Relaxed)))
        };
        block_on(upload).map_err(StoreError::local("make requests"))?
    }

    /// Uploads a file, unless it is to stop.
    async fn upload_file(
        &self,
        root: &Directory,
        file: &str,
        observer: &dyn Observer,
        sent: &AtomicU64,
    ) -> Result<bool, StoreError> {
        let wrong = |error: object_store::path::Error| {
            StoreError::local(format!("upload {}", root.join(file).display()))(io::Error::other(error))
        };
        // Names stay as they are: what is escaped in them is not escaped again.
        let name = Path::parse(file).map_err(wrong)?;
        let path: Path = self.place.path().parts().chain(name.parts()).collect();
        let mut failures = 0;
        while !observer.is_cancelled() {
            match self.attempt(root, file, &path).await {
                Ok(bytes) => {
                    sent.fetch_add(bytes, Ordering::Relaxed);
                    return Ok(true);
                }
                Err(error) if error.cause().is_transient() => observer.failed(&error),
                Err(error) => return Err(error),
            }
            failures += 1;
            let mut rest = backoff(failures, LONGEST, rand::random());
            while rest > Duration::ZERO && !observer.is_cancelled() {
                tokio::time::sleep(rest.min(PATIENCE)).await;
                rest = rest.saturating_sub(PATIENCE);
            }
        }
        Ok(false)
    }

    /// Uploads a file, unless the store has it. Gives the bytes that were sent.
    async fn attempt(&self, root: &Directory, file: &str, path: &Path) -> Result<u64, StoreError> {
        let local = || StoreError::local(format!("read {}", root.join(file).display()));
        let open = || open(root, file).map_err(local());
        let mut hash = Sha256::new();
        let size = each_part(open()?, |part| hash.update(part)).map_err(local())?;
        let sha256 = hex(&hash.finalize());
        if self.has(path, size, &sha256).await? == Some(true) {
            return Ok(0);
        }
        let url = self.place.url(path);
        let failed = |what: &str| StoreError::remote(format!("{what} {url}"), &self.place.filter);
        let attributes = self.place.attributes(&sha256);
        let mut source = open()?;
        if size <= PART as u64 || matches!(self.place.parts, Parts::Whole) {
            let mut bytes = Vec::new();
            source.read_to_end(&mut bytes).map_err(local())?;
            let options = PutOptions { attributes, ..PutOptions::default() };
            let put = self.place.store.put_opts(path, PutPayload::from(bytes), options);
            put.await.map_err(failed("upload"))?;
        } else {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            let begun = self.place.store.put_multipart_opts(path, options);
            let mut upload = begun.await.map_err(failed("begin to upload"))?;
            let done = async {
                while let Some(part) = next_part(&mut source).map_err(local())? {
                    upload.put_part(PutPayload::from(part)).await.map_err(failed("upload a part of"))?;
                }
                upload.complete().await.map_err(failed("put together the parts of"))
            };
            if let Err(error) = done.await {
                // The store removes parts by itself, sooner or later.
                let _ = upload.abort().await;
                return Err(error);
            }
        }
        if self.has(path, size, &sha256).await? != Some(false) {
            return Ok(size);
        }
        let why = "the store does not have it with this size and SHA-256 after it was sent".to_owned();
        Err(StoreError::Checksum { what: url, why })
    }

    /// Whether the store has this very content at a path. `None` if it has something of this size, and keeps
    /// no checksums.
    async fn has(&self, path: &Path, size: u64, sha256: &str) -> Result<Option<bool>, StoreError> {
        let found = self.place.look(path).await?;
        let Some(object) = found.filter(|object| object.meta.size == size) else { return Ok(Some(false)) };
        Ok(match &object.sha256 {
            Some(stored) => Some(stored == sha256),
            None => self.place.has_attributes.then_some(false),
        })
    }
}

fn open(root: &Directory, file: &str) -> io::Result<std::fs::File> {
    let (path, name) = file.rsplit_once('/').unwrap_or(("", file));
    let mut dirs = path.split('/').filter(|name| !name.is_empty());
    dirs.try_fold(root.clone(), |dir, name| dir.open_dir(name))?.open_file(name)
}

/// The next part of a file.
fn next_part(file: &mut std::fs::File) -> io::Result<Option<Vec<u8>>> {
    let mut part = Vec::new();
    file.take(PART as u64).read_to_end(&mut part)?;
    Ok(Some(part).filter(|part| !part.is_empty()))
}

/// Gives the parts of a file, and returns its size.
fn each_part(mut file: std::fs::File, mut give: impl FnMut(&[u8])) -> io::Result<u64> {
    let mut size = 0;
    while let Some(part) = next_part(&mut file)? {
        give(&part);
        size += part.len() as u64;
    }
    Ok(size)
}
