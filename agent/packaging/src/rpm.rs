//! The package for RPM, by `rpmbuild`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    DESCRIPTION, Effort, Error, NAME, RPM_ARCH, Release, error,
    layout::{self, Content, Entry, Family, Role},
    of_workspace, own,
};

/// Makes the package in a directory, under the name that RPM gives it; its path.
///
/// # Errors
/// A file cannot be read or written, or rpmbuild fails.
pub fn make(release: &Release, dir: &Path) -> Result<PathBuf, Error> {
    let version = release.ordered_version();
    let scratch = tempfile::tempdir_in(dir).map_err(Error::file("make a directory in", dir))?;
    let top = scratch.path();
    let mut entries = layout::entries(release, Family::Rpm)?;
    // Those of a package alone, which go with it.
    for dir in ["usr/share/doc", "usr/share/licenses"] {
        entries.push(Entry::dir(&format!("{dir}/{NAME}"), 0o755));
    }
    for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let path = format!("usr/share/licenses/{NAME}/{license}");
        entries.push(Entry::copy(path, of_workspace(license)).role(Role::License));
    }
    let changes = format!("usr/share/doc/{NAME}/CHANGELOG.md");
    entries.push(Entry::copy(changes, of_workspace("CHANGELOG.md")).role(Role::Doc));
    let staging = top.join("staging");
    fs::create_dir(&staging).map_err(Error::file("create", &staging))?;
    layout::write(&entries, &staging)?;
    let write = |name: &str, text: &str| {
        let path = top.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path)).map(|()| path)
    };
    let files = write("files", &entries.iter().map(line).collect::<String>())?;
    let recipe = own("rpm/tracer-agent.spec");
    let recipe = fs::read_to_string(&recipe).map_err(Error::file("read", &recipe))?;
    let recipe = write("tracer-agent.spec", &recipe.replace("@description@", DESCRIPTION))?;

    // Since RPM 4.14, as the readers of this format.
    let payload = match release.effort {
        Effort::Best => "w19.zstdio",
        Effort::Quick => "w1.zstdio",
    };
    let mut build = Command::new("rpmbuild");
    build.args(["--quiet", "-bb", "--target", RPM_ARCH, "--nodeps"]);
    for (name, value) in [
        ("_topdir", top.display().to_string()),
        ("_rpmdir", top.display().to_string()),
        ("_rpmfilename", "made.rpm".to_owned()),
        ("product_version", version.clone()),
        ("product_tree", staging.display().to_string()),
        ("product_files", files.display().to_string()),
        ("_binary_payload", payload.to_owned()),
        // What would differ from one build to the next.
        ("_buildhost", "reproducible".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    error::run(build.arg(recipe).env("SOURCE_DATE_EPOCH", release.time.to_string()))?;
    let package = dir.join(format!("{NAME}-{version}-1.{RPM_ARCH}.rpm"));
    let made = top.join("made.rpm");
    fs::rename(&made, &package).map_err(Error::file("rename", &made))?;
    Ok(package)
}

/// What `%files` says of it.
fn line(entry: &Entry) -> String {
    let Entry { path, mode, role, content } = entry;
    let kind = match (content, role) {
        (Content::Dir, _) => "%dir ",
        (_, Role::Config) => "%config(noreplace) ",
        (_, Role::Doc) => "%doc ",
        (_, Role::License) => "%license ",
        (_, Role::Program) => "",
    };
    format!("%attr({mode:04o},root,root) {kind}/{path}\n")
}
