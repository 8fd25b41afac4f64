//! Which files a package has, and where.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};

use crate::{Effort, Error, NAME, Release, error, own};

/// Whose conventions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Debian and what comes of it.
    Debian,
    /// Distributions with RPM.
    Rpm,
    /// A container, in which nothing else is.
    Image,
}

/// What a package manager does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Replaces it.
    Program,
    /// Keeps what the administrator has made of it.
    Config,
    /// Leaves it out where documentation is not wanted.
    Doc,
    /// Keeps it with the program in any case.
    License,
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Dir,
    /// A file of these bytes.
    Bytes(Vec<u8>),
    /// A copy of a file.
    Copy(PathBuf),
}

/// A file or directory of a package. All belong to root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, from the root on, without a slash in front.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// What a package manager does with it.
    pub role: Role,
    /// What it is.
    pub content: Content,
}

impl Entry {
    pub(crate) fn dir(path: &str, mode: u32) -> Self {
        Self { path: path.to_owned(), mode, role: Role::Program, content: Content::Dir }
    }

    pub(crate) fn bytes(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, role: Role::Program, content: Content::Bytes(bytes.into()) }
    }

    pub(crate) fn copy(path: impl Into<String>, of: PathBuf) -> Self {
        Self { path: path.into(), mode: 0o644, role: Role::Program, content: Content::Copy(of) }
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    fn executable(mut self) -> Self {
        self.mode = 0o755;
        self
    }

    /// The bytes of a file; none of a directory.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        match &self.content {
            Content::Dir => Ok(Vec::new()),
            Content::Bytes(bytes) => Ok(bytes.clone()),
            Content::Copy(of) => fs::read(of).map_err(Error::file("read", of)),
        }
    }
}

/// What all families have, without what only one of them wants to know of a package.
///
/// # Errors
/// The program cannot be run, or its man pages cannot be read.
pub fn entries(release: &Release, family: Family) -> Result<Vec<Entry>, Error> {
    let config = || own("agent.toml");
    let mut entries = vec![
        Entry::copy(format!("usr/bin/{NAME}"), release.binary.clone()).executable(),
        Entry::dir("etc/tracer-agent", 0o755),
        Entry::copy("etc/tracer-agent/agent.toml", config()).role(Role::Config),
        Entry::dir("etc/tracer-agent/conf.d", 0o755),
        Entry::dir("var/lib/tracer-agent", 0o700),
    ];
    if family == Family::Image {
        return Ok(entries);
    }
    // Where Debian 12's lintian and helper look first; the same place where /lib is a link to /usr/lib.
    let units = if family == Family::Debian { "lib/systemd/system" } else { "usr/lib/systemd/system" };
    for unit in ["tracer-agent.service", "tracer-agent.socket"] {
        entries.push(Entry::copy(format!("{units}/{unit}"), own("systemd").join(unit)));
    }
    for (dir, file) in [("sysusers.d", "sysusers.conf"), ("tmpfiles.d", "tmpfiles.conf")] {
        let from = own(file);
        entries.push(Entry::copy(format!("usr/lib/{dir}/{NAME}.conf"), from));
    }
    entries.append(&mut manuals(release, family)?);
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(entries)
}

/// Man pages and completions, each where its reader looks. The program itself writes them.
fn manuals(release: &Release, family: Family) -> Result<Vec<Entry>, Error> {
    let pages = tempfile::tempdir().map_err(Error::file("make a directory in", &std::env::temp_dir()))?;
    error::run_file(&release.binary, &["generate".as_ref(), "man".as_ref(), pages.path().as_os_str()])?;
    let mut entries = Vec::new();
    for page in files(pages.path())? {
        // `tracer-agent-record.1`, `tracer-agent.toml.5`: what a name ends with is the section.
        let section = page.extension().and_then(|extension| extension.to_str()).unwrap_or("1");
        let path = format!("usr/share/man/man{section}/{}.gz", name(&page));
        entries.push(Entry::bytes(path, gzip(&read(&page)?, Effort::Best)).role(Role::Doc));
    }
    let zsh = match family {
        Family::Debian => "usr/share/zsh/vendor-completions",
        Family::Rpm | Family::Image => "usr/share/zsh/site-functions",
    };
    for (shell, path) in [
        ("bash", format!("usr/share/bash-completion/completions/{NAME}")),
        ("zsh", format!("{zsh}/_{NAME}")),
        ("fish", format!("usr/share/fish/vendor_completions.d/{NAME}.fish")),
    ] {
        let script = error::run_file(&release.binary, &["completions".as_ref(), shell.as_ref()])?;
        entries.push(Entry::bytes(path, script));
    }
    Ok(entries)
}

pub(crate) fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let found = fs::read_dir(dir).map_err(Error::file("list", dir))?;
    Ok(found.flatten().map(|entry| entry.path()).collect())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::file("read", path))
}

/// Compressed, without the time and name that gzip would note.
pub(crate) fn gzip(bytes: &[u8], effort: Effort) -> Vec<u8> {
    let level = match effort {
        Effort::Best => Compression::best(),
        Effort::Quick => Compression::fast(),
    };
    let mut encoder = GzBuilder::new().write(Vec::new(), level);
    // Memory takes everything.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Lays files out below a directory, and makes all directories on the way with mode 755.
pub(crate) fn write(entries: &[Entry], root: &Path) -> Result<(), Error> {
    set_mode(root, 0o755)?;
    for entry in entries {
        let path = root.join(&entry.path);
        let dir = if entry.content == Content::Dir { path.as_path() } else { path.parent().unwrap_or(root) };
        make_dirs(root, dir)?;
        match &entry.content {
            Content::Dir => {}
            Content::Bytes(bytes) => fs::write(&path, bytes).map_err(Error::file("write", &path))?,
            Content::Copy(of) => {
                fs::copy(of, &path).map_err(Error::file("copy", of))?;
            }
        }
        set_mode(&path, entry.mode)?;
    }
    Ok(())
}

/// Makes the directories of a path below another one, whatever mask this process has.
fn make_dirs(root: &Path, dir: &Path) -> Result<(), Error> {
    if dir == root || dir.is_dir() {
        return Ok(());
    }
    make_dirs(root, dir.parent().unwrap_or(root))?;
    fs::create_dir(dir).map_err(Error::file("create", dir))?;
    set_mode(dir, 0o755)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::file("set the mode of", path))
}
