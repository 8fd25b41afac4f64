//! One archive to its object: whole, or in parts, and verified in the end.

use std::sync::Arc;

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, PutMultipartOptions, PutOptions, PutPayload};
use tokio::task::spawn_blocking;

use super::content::{self, Content, Fingerprint};
use super::failure::{Cause, StoreError};
use super::journal::{Journal, Progress, Record, Upload};
use super::pace::Bandwidth;
use super::place::{Parts, Place};

/// The most parts of an object (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
const MOST_PARTS: u64 = 10_000;
/// The largest object that is sent whole to a store that takes no parts: it is in memory meanwhile.
const LARGEST_WHOLE: u64 = 256 << 20;
/// Sizes of parts that are larger than configured are multiples of this.
const STEP: u64 = 1 << 20;

/// The longest name of an upload in parts. The journal keeps it.
const LONGEST_ID: usize = 4096;
/// The longest one of a part: a tag and checksums. The journal keeps 10 000 of them in its 8 MiB.
const LONGEST_PART_ID: usize = 400;

/// What uploads share.
pub(super) struct Means {
    pub(super) place: Place,
    pub(super) site: String,
    pub(super) part_size: u64,
    pub(super) bandwidth: Bandwidth,
    pub(super) journal: Journal,
}

/// Tells of bytes that a store has taken.
pub(super) type Sent<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// Why an archive is not stored.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may be, later.
    Again(StoreError),
    /// It cannot be: it is gone, or belongs to somebody else.
    Gone(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Again(error)
    }
}

/// Uploads an archive as far as its record says that it is not yet there, and verifies it. Returns the
/// address of its object. The record, and the journal, say what was done, also of a failure.
pub(super) async fn upload(means: &Means, record: &mut Record, sent: Sent<'_>) -> Result<String, Failure> {
    let content = Arc::new(open(means, record).await?);
    let sha256 = checksum(means, record, &content).await?;
    let name = record.archive.name(&means.site, content.form(), &sha256);
    let path = means.place.below(&name.path());
    let url = means.place.url(&path);
    let job = Job { means, content, sha256, path, url };
    if !job.is_stored().await? {
        job.send(record, sent).await?;
        if !job.is_stored().await? {
            let why = "the store does not have it with this size and SHA-256 after it was sent".to_owned();
            return Err(StoreError::Checksum { what: job.url, why }.into());
        }
    }
    // What is there now is not stored, if it is another one. One that is gone is.
    match job.check_unchanged(record).await {
        Err(error) if !error.is_local(std::io::ErrorKind::NotFound) => return Err(error.into()),
        _ => {}
    }
    record.progress.upload = None;
    record.progress.stored = Some(job.url.clone());
    save(means, record)?;
    Ok(job.url)
}

/// Opens the archive. If it was changed since the last look, what is known of its upload is forgotten.
async fn open(means: &Means, record: &mut Record) -> Result<Content, Failure> {
    let path = record.archive.path.clone();
    let opened = match blocking(move || content::open(&path)).await? {
        Err(error) if error.is_local(std::io::ErrorKind::NotFound) => return Err(Failure::Gone(error)),
        opened => opened?,
    };
    if opened.fingerprint.uid != record.fingerprint.uid {
        let what = format!("upload {}", record.archive.path.display());
        let text = format!(
            "it belongs to user {} now, and not to the one whose archive it was",
            opened.fingerprint.uid
        );
        return Err(Failure::Gone(StoreError::Local { what, source: std::io::Error::other(text) }));
    }
    if opened.fingerprint != record.fingerprint {
        record.fingerprint = opened.fingerprint;
        record.progress = Progress::default();
        means.journal.add(record).map_err(journal_error)?;
    }
    Ok(opened.content)
}

/// The checksum of the content, which takes time to read.
async fn checksum(means: &Means, record: &mut Record, content: &Arc<Content>) -> Result<String, StoreError> {
    if let Some(known) = &record.progress.sha256 {
        return Ok(known.clone());
    }
    let reading = Arc::clone(content);
    let what = format!("read {}", record.archive.path.display());
    let sha256 = blocking(move || reading.sha256()).await?.map_err(StoreError::local(what))?;
    record.progress.sha256 = Some(sha256.clone());
    save(means, record)?;
    Ok(sha256)
}

/// Notes how far an upload has come. Where the disk is too full for that it goes on all the same, or the disk
/// would stay full. After a restart, the store is asked what it has.
fn save(means: &Means, record: &Record) -> Result<(), StoreError> {
    match means.journal.save(record) {
        Err(error) if error.is_full() => Ok(()),
        saved => saved.map_err(journal_error),
    }
}

fn journal_error(error: super::journal::JournalError) -> StoreError {
    StoreError::Local { what: "note how far uploads are".into(), source: std::io::Error::other(error) }
}

/// Does what takes time on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    let failed = |error| StoreError::local("read an archive")(std::io::Error::other(error));
    spawn_blocking(work).await.map_err(failed)
}

/// The size of the parts of an object, no smaller than configured.
fn part_size(size: u64, configured: u64) -> u64 {
    size.div_ceil(MOST_PARTS).next_multiple_of(STEP).max(configured)
}

/// An archive on its way.
struct Job<'a> {
    means: &'a Means,
    content: Arc<Content>,
    sha256: String,
    path: Path,
    url: String,
}

impl Job<'_> {
    fn failed(&self, what: &str) -> impl FnOnce(object_store::Error) -> StoreError {
        StoreError::remote(format!("{what} {}", self.url), &self.means.place.filter)
    }

    /// Fails if a name that the store has given is longer than it may be.
    fn check_id(&self, id: &str, most: usize) -> Result<(), StoreError> {
        if id.len() <= most {
            return Ok(());
        }
        let why = format!("the store names an upload or a part with more than {most} bytes");
        Err(StoreError::Limit { what: format!("upload {}", self.url), why })
    }

    /// Whether the store has the object, with this size and, where it has attributes, this checksum.
    async fn is_stored(&self) -> Result<bool, StoreError> {
        let found = self.means.place.look(&self.path).await?;
        Ok(found.is_some_and(|found| {
            found.meta.size == self.content.size()
                && (!self.means.place.has_attributes || found.sha256.as_ref() == Some(&self.sha256))
        }))
    }

    async fn send(&self, record: &mut Record, sent: Sent<'_>) -> Result<(), StoreError> {
        let size = self.content.size();
        let part = part_size(size, self.means.part_size);
        match &self.means.place.parts {
            Parts::Whole if size > LARGEST_WHOLE => Err(StoreError::Remote {
                what: format!("upload {}", self.url),
                cause: Cause::Other,
                missing: false,
                why: format!(
                    "it has {size} bytes, and this store takes objects in one piece: at most {LARGEST_WHOLE}"
                ),
            }),
            Parts::Whole => self.send_whole(record, sent).await,
            _ if size <= part => self.send_whole(record, sent).await,
            Parts::Streamed => self.send_streamed(record, part, sent).await,
            Parts::Resumable(store) => {
                let resumed = self.send_parts(store.as_ref(), record, part, sent).await;
                match resumed {
                    // The store has thrown the parts away, or put them together when nobody heard of it.
                    Err(error) if error.is_missing() => {
                        record.progress.upload = None;
                        save(self.means, record)?;
                        if self.is_stored().await? {
                            return Ok(());
                        }
                        self.send_parts(store.as_ref(), record, part, sent).await
                    }
                    resumed => resumed,
                }
            }
        }
    }

    /// Bytes of the content, when they may be sent.
    async fn read(&self, record: &Record, at: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        self.means.bandwidth.take(len).await;
        let content = Arc::clone(&self.content);
        let what = format!("read {}", record.archive.path.display());
        blocking(move || content.read(at, len as usize)).await?.map_err(StoreError::local(what))
    }

    /// Fails if the archive was changed while it was sent: then the checksum is not that of what was sent.
    async fn check_unchanged(&self, record: &Record) -> Result<(), StoreError> {
        let path = record.archive.path.clone();
        let now: Fingerprint = blocking(move || content::open(&path)).await??.fingerprint;
        if now == record.fingerprint {
            return Ok(());
        }
        let what = format!("upload {}", record.archive.path.display());
        Err(StoreError::Local { what, source: std::io::Error::other("it was changed while it was sent") })
    }

    async fn send_whole(&self, record: &Record, sent: Sent<'_>) -> Result<(), StoreError> {
        let bytes = self.read(record, 0, self.content.size()).await?;
        self.check_unchanged(record).await?;
        let options =
            PutOptions { attributes: self.means.place.attributes(&self.sha256), ..PutOptions::default() };
        let put = self.means.place.store.put_opts(&self.path, PutPayload::from(bytes), options);
        put.await.map_err(self.failed("upload"))?;
        sent(self.content.size());
        Ok(())
    }

    fn options(&self) -> PutMultipartOptions {
        let attributes = self.means.place.attributes(&self.sha256);
        PutMultipartOptions { attributes, ..PutMultipartOptions::default() }
    }

    async fn send_parts(
        &self,
        store: &dyn MultipartStore,
        record: &mut Record,
        part: u64,
        sent: Sent<'_>,
    ) -> Result<(), StoreError> {
        let size = self.content.size();
        let goes_on = |known: &Upload| {
            known.url == self.url
                && known.part_size == part
                && known.parts.len() as u64 <= size.div_ceil(part)
        };
        let begun = record.progress.upload.take().filter(goes_on);
        let mut known = if let Some(known) = begun {
            known
        } else {
            let created = store.create_multipart_opts(&self.path, self.options());
            let id = created.await.map_err(self.failed("begin to upload"))?;
            self.check_id(&id, LONGEST_ID)?;
            Upload { url: self.url.clone(), id, part_size: part, parts: Vec::new() }
        };
        record.progress.upload = Some(known.clone());
        save(self.means, record)?;
        while let at = known.parts.len() as u64 * part
            && at < size
        {
            let bytes = self.read(record, at, part.min(size - at)).await?;
            let len = bytes.len() as u64;
            let put = store.put_part(&self.path, &known.id, known.parts.len(), PutPayload::from(bytes));
            let id = put.await.map_err(self.failed("upload a part of"))?;
            self.check_id(&id.content_id, LONGEST_PART_ID)?;
            known.parts.push(id.content_id);
            record.progress.upload = Some(known.clone());
            save(self.means, record)?;
            sent(len);
        }
        self.check_unchanged(record).await?;
        let parts = known.parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        let complete = store.complete_multipart(&self.path, &known.id, parts);
        complete.await.map_err(self.failed("put together the parts of"))?;
        Ok(())
    }

    async fn send_streamed(&self, record: &Record, part: u64, sent: Sent<'_>) -> Result<(), StoreError> {
        let store = &self.means.place.store;
        let begun = store.put_multipart_opts(&self.path, self.options());
        let mut upload = begun.await.map_err(self.failed("begin to upload"))?;
        let done = self.stream_into(upload.as_mut(), record, part, sent).await;
        if done.is_err() {
            // The store removes parts by itself, sooner or later.
            let _ = upload.abort().await;
        }
        done
    }

    async fn stream_into(
        &self,
        upload: &mut dyn MultipartUpload,
        record: &Record,
        part: u64,
        sent: Sent<'_>,
    ) -> Result<(), StoreError> {
        let (size, mut at) = (self.content.size(), 0);
        while at < size {
            let bytes = self.read(record, at, part.min(size - at)).await?;
            let len = bytes.len() as u64;
            upload.put_part(PutPayload::from(bytes)).await.map_err(self.failed("upload a part of"))?;
            at += len;
            sent(len);
        }
        self.check_unchanged(record).await?;
        upload.complete().await.map_err(self.failed("put together the parts of"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::archive::Archive;
    use super::super::hostile::{Server, send};
    use super::super::journal::Key;
    use super::super::place::block_on;
    use super::*;

    fn means(place: Place, dir: &Path) -> Means {
        Means {
            place,
            site: "lab".into(),
            part_size: 5 << 20,
            bandwidth: Bandwidth::new(None),
            journal: Journal::open(dir).unwrap(),
        }
    }

    /// Of an archive of which nothing is stored.
    fn record(path: &Path) -> Record {
        let archive = Archive::at(path, "s").unwrap();
        let fingerprint = content::open(path).unwrap().fingerprint;
        Record { key: Key::of(path), archive, fingerprint, progress: Progress::default() }
    }

    #[test]
    fn what_replaces_an_archive_on_its_way_is_not_taken_for_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.dat");
        fs::write(&path, "one").unwrap();
        let (means, mut record) = (means(Place::in_memory().0, dir.path()), record(&path));
        // After the store has taken it.
        let replace = |_| {
            fs::write(dir.path().join("new"), "other").unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
        };
        let ended = block_on(upload(&means, &mut record, &replace)).unwrap();
        assert!(matches!(ended, Err(Failure::Again(_))) && record.progress.stored.is_none());
        let remove = |_| fs::remove_file(&path).unwrap();
        block_on(upload(&means, &mut record, &remove)).unwrap().unwrap();
        assert!(record.progress.stored.is_some(), "the store has what was removed then");
    }

    #[test]
    fn names_without_end_are_not_kept() {
        for (id, tag) in [(LONGEST_ID + 1, 1), (LONGEST_ID, LONGEST_PART_ID)] {
            let server = Server::start(move |request, stream| {
                let (id, tag) = ("i".repeat(id), "t".repeat(tag));
                match request.split(' ').next() {
                    Some("POST") => {
                        let body = format!("<Answer><UploadId>{id}</UploadId></Answer>");
                        send(stream, "200 OK", body.as_bytes());
                    }
                    Some("PUT") => send(stream, &format!("200 OK\r\netag: {tag}\r\ncontent-length: 0"), b""),
                    _ => send(stream, "404 Not Found\r\ncontent-length: 0", b""),
                }
            });
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.dat");
            fs::write(&path, vec![0; 6 << 20]).unwrap();
            let (means, mut record) = (means(server.place("x"), dir.path()), record(&path));
            let ended = block_on(upload(&means, &mut record, &|_| {})).unwrap();
            assert!(matches!(ended, Err(Failure::Again(StoreError::Limit { .. }))), "{ended:?}");
            assert!(record.progress.upload.is_none_or(|upload| upload.parts.is_empty()));
        }
    }

    #[test]
    fn no_object_has_more_parts_than_stores_take() {
        assert_eq!(part_size(1, 8 << 20), 8 << 20);
        for size in [80_000_000_000, 5_000_000_000_000_u64] {
            let part = part_size(size, 8 << 20);
            assert!(size.div_ceil(part) <= MOST_PARTS, "{part}");
            assert!(part.is_multiple_of(STEP));
        }
    }
}
