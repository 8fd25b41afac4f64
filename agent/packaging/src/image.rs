//! An image for containers, in the layout of the Open Container Initiative (image-spec 1.1): a directory, and
//! a tar of it, which container engines load without a registry.
//!
//! Two layers, so that a new version of the program replaces only one: what it finds around it, and the
//! program.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    DEBIAN_ARCH, Error, NAME, Release, SUMMARY, error,
    layout::{self, Content, Entry, Family},
};

/// Where a distribution keeps the certificates of those who certify others, and where programs with TLS look
/// for them.
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The layout.
    pub dir: PathBuf,
    /// A tar of it.
    pub archive: PathBuf,
    /// The name of the image in it.
    pub tag: String,
}

/// Makes the image in a directory. What is there under its names is replaced.
///
/// `certificates` is a file of certificates in PEM, which the program needs to talk to others with TLS.
///
/// # Errors
/// A file cannot be read or written, or the time is none.
pub fn make(release: &Release, certificates: Option<&Path>, dir: &Path) -> Result<Image, Error> {
    let name = format!("{NAME}-{}-image", release.version);
    let layout = dir.join(&name);
    if layout.exists() {
        fs::remove_dir_all(&layout).map_err(Error::file("remove", &layout))?;
    }
    let blobs = Blobs(layout.join("blobs/sha256"));
    fs::create_dir_all(&blobs.0).map_err(Error::file("create", &blobs.0))?;
    let layers = [
        Layer::new(&blobs, &surroundings(certificates), release, "accounts and certificates")?,
        Layer::new(&blobs, &layout::entries(release, Family::Image)?, release, "the program")?,
    ];
    let date = date(release.time)?;
    let config = blobs.add_json(&config(release, &layers, &date))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": layers.iter().map(Layer::descriptor).collect::<Vec<_>>(),
        "annotations": annotations(release, &date),
    });
    let mut described = blobs.add_json(&manifest)?.descriptor("application/vnd.oci.image.manifest.v1+json");
    described["platform"] = json!({"architecture": DEBIAN_ARCH, "os": "linux"});
    described["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": format!("localhost/{NAME}:{}", release.version),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    for (file, value) in [("oci-layout", json!({"imageLayoutVersion": "1.0.0"})), ("index.json", index)] {
        let path = layout.join(file);
        fs::write(&path, value.to_string()).map_err(Error::file("write", &path))?;
    }
    let archive = dir.join(format!("{name}.tar"));
    pack(&layout, &archive, release.time)?;
    Ok(Image { dir: layout, archive, tag: release.version.clone() })
}

/// What a program finds on any machine.
fn surroundings(certificates: Option<&Path>) -> Vec<Entry> {
    let mut entries = vec![
        Entry::bytes("etc/passwd", "root:x:0:0:root:/:/sbin/nologin\n"),
        Entry::bytes("etc/group", "root:x:0:\ntracing:x:999:\n"),
        Entry::dir("run/tracer-agent", 0o755),
        Entry::dir("tmp", 0o1777),
        Entry::dir("var/tmp", 0o1777),
    ];
    if let Some(file) = certificates {
        entries.push(Entry::copy(CERTIFICATES.trim_start_matches('/'), file.to_owned()));
    }
    entries
}

/// What an engine runs (image-spec, config.md).
fn config(release: &Release, layers: &[Layer], date: &str) -> Value {
    let history: Vec<Value> =
        layers.iter().map(|layer| json!({"created": date, "comment": layer.about})).collect();
    json!({
        "created": date,
        "architecture": DEBIAN_ARCH,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": [format!("/usr/bin/{NAME}")],
            "Cmd": ["daemon", "--config", "/etc/tracer-agent/agent.toml"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": annotations(release, date),
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| layer.unpacked.clone()).collect::<Vec<_>>(),
        },
        "history": history,
    })
}

fn annotations(release: &Release, date: &str) -> Value {
    json!({
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.created": date,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    })
}

/// A moment as RFC 3339 has it.
fn date(time: u64) -> Result<String, Error> {
    let mut date = std::process::Command::new("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"]).arg(format!("@{time}"));
    Ok(error::run(&mut date)?.trim_end().to_owned())
}

/// What is stored by its digest.
struct Blobs(PathBuf);

/// One of them.
struct Blob {
    digest: String,
    size: usize,
}

impl Blobs {
    fn add(&self, bytes: &[u8]) -> Result<Blob, Error> {
        let hex = hex(bytes);
        let path = self.0.join(&hex);
        fs::write(&path, bytes).map_err(Error::file("write", &path))?;
        Ok(Blob { digest: format!("sha256:{hex}"), size: bytes.len() })
    }

    fn add_json(&self, value: &Value) -> Result<Blob, Error> {
        self.add(value.to_string().as_bytes())
    }
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.digest, "size": self.size})
    }
}

/// A layer of the image's files.
struct Layer {
    blob: Blob,
    /// The digest of it without compression.
    unpacked: String,
    about: &'static str,
}

impl Layer {
    fn new(blobs: &Blobs, entries: &[Entry], release: &Release, about: &'static str) -> Result<Self, Error> {
        let tar = tar_of(entries, release.time)?;
        let unpacked = format!("sha256:{}", hex(&tar));
        Ok(Self { blob: blobs.add(&layout::gzip(&tar, release.effort))?, unpacked, about })
    }

    fn descriptor(&self) -> Value {
        self.blob.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An archive of files and of all directories on the way to them, in the order of their names.
fn tar_of(entries: &[Entry], time: u64) -> Result<Vec<u8>, Error> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in with_parents(entries) {
        let (bytes, mode) = match entry {
            Some(entry) => (entry.read()?, entry.mode),
            None => (Vec::new(), 0o755),
        };
        let is_dir = entry.is_none_or(|entry| entry.content == Content::Dir);
        append(&mut tar, &path, is_dir, mode, time, &bytes)?;
    }
    tar.into_inner().map_err(Error::file("pack", Path::new("a layer")))
}

/// All paths in order, and what was said of them.
fn with_parents(entries: &[Entry]) -> Vec<(String, Option<&Entry>)> {
    let parents = |entry: &Entry| {
        let parents = Path::new(&entry.path).ancestors().skip(1);
        parents.filter_map(|path| path.to_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut paths: BTreeSet<String> = entries.iter().flat_map(parents).collect();
    paths.remove("");
    paths.extend(entries.iter().map(|entry| entry.path.clone()));
    let find = |path: &str| entries.iter().find(|entry| entry.path == path);
    paths.into_iter().map(|path| (path.clone(), find(&path))).collect()
}

/// Adds a file or directory of root's.
fn append<W: std::io::Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    is_dir: bool,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(if is_dir { tar::EntryType::Directory } else { tar::EntryType::Regular });
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    let path = if is_dir { format!("{path}/") } else { path.to_owned() };
    tar.append_data(&mut header, &path, bytes).map_err(Error::file("pack", Path::new(&path)))
}

/// Packs the layout into one file, as engines load it (`oci-archive:` of skopeo).
fn pack(dir: &Path, archive: &Path, time: u64) -> Result<(), Error> {
    let file = fs::File::create(archive).map_err(Error::file("create", archive))?;
    let mut tar = tar::Builder::new(std::io::BufWriter::new(file));
    let mut entries = Vec::new();
    for name in ["index.json", "oci-layout"] {
        entries.push(Entry::copy(name, dir.join(name)));
    }
    let blobs = dir.join("blobs/sha256");
    for blob in layout::files(&blobs)? {
        let name = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries.push(Entry::copy(format!("blobs/sha256/{name}"), blob));
    }
    for (path, entry) in with_parents(&entries) {
        let bytes = entry.map_or_else(|| Ok(Vec::new()), Entry::read)?;
        append(&mut tar, &path, entry.is_none(), entry.map_or(0o755, |entry| entry.mode), time, &bytes)?;
    }
    let mut file = tar.into_inner().map_err(Error::file("write", archive))?;
    file.flush().map_err(Error::file("write", archive))
}
