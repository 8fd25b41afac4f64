//! The package for dpkg (deb(5), Debian policy), by `dpkg-deb`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    DEBIAN_ARCH, DESCRIPTION, Effort, Error, MAINTAINER, NAME, Release, SUMMARY, error,
    layout::{self, Content, Entry, Family, Role},
    of_workspace, own,
};

/// The scripts that dpkg runs, by their names in the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the package in a directory, under the name that Debian gives it; its path.
///
/// # Errors
/// A file cannot be read or written, or dpkg-deb fails.
pub fn make(release: &Release, dir: &Path) -> Result<PathBuf, Error> {
    let version = version(release);
    let staging = tempfile::tempdir_in(dir).map_err(Error::file("make a directory in", dir))?;
    let root = staging.path();
    let mut entries = layout::entries(release, Family::Debian)?;
    entries.append(&mut documents(release, &version)?);
    layout::write(&entries, root)?;
    let size = entries.iter().map(|entry| Ok(entry.read()?.len() as u64)).sum::<Result<u64, Error>>()?;
    let control = root.join("DEBIAN");
    fs::create_dir(&control).map_err(Error::file("create", &control))?;
    layout::set_mode(&control, 0o755)?;
    let write = |name: &str, content: &[u8], mode: u32| {
        let path = control.join(name);
        fs::write(&path, content).map_err(Error::file("write", &path))?;
        layout::set_mode(&path, mode)
    };
    write("control", fields(&version, size).as_bytes(), 0o644)?;
    write("conffiles", paths(&entries, "/", |role| role == Role::Config).as_bytes(), 0o644)?;
    write("md5sums", sums(&entries, root)?.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        write(script, &layout::read(&own("deb").join(script))?, 0o755)?;
    }
    let package = dir.join(format!("{NAME}_{version}_{DEBIAN_ARCH}.deb"));
    // Debian 11's dpkg does not know zstd. 6 is the level that it has by default.
    let level = match release.effort {
        Effort::Best => "-z6",
        Effort::Quick => "-z0",
    };
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", level, "--threads-max=1", "--build"]).arg(root).arg(&package);
    error::run(build.env("SOURCE_DATE_EPOCH", release.time.to_string()))?;
    Ok(package)
}

/// With a revision, as the packaging is not the program's.
fn version(release: &Release) -> String {
    format!("{}-1", release.ordered_version())
}

/// The file `control` (deb-control(5)).
fn fields(version: &str, bytes: u64) -> String {
    let description = DESCRIPTION.replace('\n', "\n ");
    format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {DEBIAN_ARCH}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {}\nDepends: passwd\nSection: utils\nPriority: optional\n\
         Description: {SUMMARY}\n {description}\n",
        bytes.div_ceil(1024)
    )
}

/// What Debian wants to know of a package, and its readers of the program.
fn documents(release: &Release, version: &str) -> Result<Vec<Entry>, Error> {
    let docs = format!("usr/share/doc/{NAME}");
    let changes = layout::gzip(&layout::read(&of_workspace("CHANGELOG.md"))?, Effort::Best);
    let date = error::run(
        Command::new("date").args(["--utc", "--rfc-email", "--date"]).arg(format!("@{}", release.time)),
    )?;
    let packaging = format!(
        "{NAME} ({version}) unstable; urgency=medium\n\n  * Version {} of the program.\n\n -- {MAINTAINER}  {}\n",
        release.version,
        date.trim_end()
    );
    let overrides = own("deb/lintian-overrides");
    Ok(vec![
        Entry::bytes(format!("{docs}/copyright"), copyright()?).role(Role::License),
        Entry::bytes(format!("{docs}/changelog.gz"), changes).role(Role::Doc),
        Entry::bytes(format!("{docs}/changelog.Debian.gz"), layout::gzip(packaging.as_bytes(), Effort::Best))
            .role(Role::Doc),
        Entry::copy(format!("usr/share/lintian/overrides/{NAME}"), overrides),
    ])
}

/// The licences, in the format of Debian's `copyright` files (version 1.0).
fn copyright() -> Result<String, Error> {
    let path = of_workspace("LICENSE-MIT");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let holder = text.lines().find_map(|line| line.strip_prefix("Copyright (c) ")).unwrap_or_default();
    let permission = text.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n"));
    let mut mit = String::new();
    for line in permission.map_or(text.as_str(), |(_, terms)| terms).trim_end().lines() {
        mit += if line.is_empty() { " ." } else { " " };
        mit += line;
        mit.push('\n');
    }
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: {NAME}\n\nFiles: *\nCopyright: {holder}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{mit}\nLicense: Apache-2.0\n \
         On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// The paths of what has such a role, a line each.
fn paths(entries: &[Entry], prefix: &str, wanted: impl Fn(Role) -> bool) -> String {
    let of_role = entries.iter().filter(|entry| wanted(entry.role) && entry.content != Content::Dir);
    of_role.flat_map(|entry| [prefix, &entry.path, "\n"]).collect()
}

/// The file `md5sums` (deb-md5sums(5)), by which `dpkg --verify` finds what was changed.
fn sums(entries: &[Entry], root: &Path) -> Result<String, Error> {
    let files = paths(entries, "", |role| role != Role::Config);
    error::run(Command::new("md5sum").args(files.lines()).current_dir(root))
}
