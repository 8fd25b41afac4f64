//! Debian's kernels, out of the packages of the repositories that this machine is configured for.
//!
//! A meta package (`linux-image-cloud-amd64`) names the newest build of a series; which series that is
//! depends on the release of Debian, so each kernel lists the meta packages to try. The newest kernel there
//! is comes from Debian's unstable, which `apt` asks without the machine's own configuration. Packages are
//! downloaded and unpacked, never installed, and kept: once there, a kernel needs no network.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use globset::Glob;

use crate::apt::Apt;
use crate::{Error, target_dir};

/// A kernel that tests can be run on.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its name here: series and flavour, or `newest` and flavour.
    pub name: &'static str,
    /// The package, such as `linux-image-6.1.0-56-cloud-amd64`.
    pub package: String,
    /// The unpacked package.
    pub root: PathBuf,
    /// The image to boot.
    pub image: PathBuf,
}

struct Source {
    name: &'static str,
    /// `None` for whatever series is the newest in Debian's unstable.
    series: Option<&'static str>,
    /// Behind the build's number in the package's name: `-cloud`, `-rt`, or nothing.
    flavour: &'static str,
    metas: &'static [&'static str],
}

static SOURCES: [Source; 6] = [
    Source {
        name: "6.1-cloud",
        series: Some("6.1"),
        flavour: "-cloud",
        metas: &["linux-image-cloud-amd64", "linux-image-6.1-cloud-amd64"],
    },
    Source {
        name: "6.1-rt",
        series: Some("6.1"),
        flavour: "-rt",
        metas: &["linux-image-rt-amd64", "linux-image-6.1-rt-amd64"],
    },
    Source {
        name: "6.12-cloud",
        series: Some("6.12"),
        flavour: "-cloud",
        metas: &["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"],
    },
    Source {
        name: "6.12-generic",
        series: Some("6.12"),
        flavour: "",
        metas: &["linux-image-6.12-amd64", "linux-image-amd64"],
    },
    Source {
        name: "6.12-rt",
        series: Some("6.12"),
        flavour: "-rt",
        metas: &["linux-image-6.12-rt-amd64", "linux-image-rt-amd64"],
    },
    Source { name: "newest-cloud", series: None, flavour: "-cloud", metas: &["linux-image-cloud-amd64"] },
];

/// What the names of packages with kernels begin with.
const IMAGE: &str = "linux-image-";
/// What the names of the packages begin with that hold the files where the first one is only a collection: as
/// of 7.2.
const PARTS: [&str; 2] = ["linux-binary-", "linux-modules-"];

impl Kernel {
    /// The names that match a glob.
    pub fn names(glob: &str) -> Result<Vec<&'static str>, Error> {
        Ok(sources(glob)?.into_iter().map(|source| source.name).collect())
    }

    /// Its series, such as `6.12`.
    pub fn series(&self) -> &str {
        let release = self.release();
        release.match_indices('.').nth(1).map_or(release, |(second, _)| &release[..second])
    }

    /// What `uname -r` prints on it.
    pub fn release(&self) -> &str {
        self.package.strip_prefix(IMAGE).unwrap_or(&self.package)
    }

    /// The image of a module; `None` if it is built in.
    pub(crate) fn module(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let built_in = modules_dir(&self.root, self.release()).join("modules.builtin");
        let path = self.module_path(name)?;
        // One module's path below `kernel` a line. The packages of 7.2 do not have it.
        let is_built_in = match fs::read_to_string(&built_in) {
            Ok(list) => list.lines().any(|path| is_module(path, name)),
            Err(error) if error.kind() == ErrorKind::NotFound => path.is_none(),
            Err(error) => return Err(Error::io(&built_in)(error)),
        };
        if is_built_in {
            return Ok(None);
        }
        match path.as_deref() {
            Some(path) if Path::new(path).extension().is_some_and(|extension| extension == "xz") => {
                raw_output("xz", &["--decompress", "--stdout", path], Path::new("/")).map(Some)
            }
            Some(path) => fs::read(path).map(Some).map_err(Error::io(path)),
            None => Err(Error::Host {
                program: "dpkg-deb".to_owned(),
                why: format!("no module {name} in {}", self.package),
            }),
        }
    }

    /// Whether there is a module of this name that can be loaded.
    pub(crate) fn has_module(&self, name: &str) -> Result<bool, Error> {
        Ok(self.module_path(name)?.is_some())
    }

    fn module_path(&self, name: &str) -> Result<Option<String>, Error> {
        let dir = modules_dir(&self.root, self.release());
        let found = output("find", &[&dir.to_string_lossy(), "-name", "*.ko*"], Path::new("/"))?;
        Ok(found.lines().find(|path| is_module(path, name)).map(str::to_owned))
    }

    /// The first kernel whose name matches a glob, downloaded if it is not here yet.
    pub fn find(glob: &str) -> Result<Self, Error> {
        Self::matching(glob)?.into_iter().next().ok_or_else(|| no_such_kernel(glob))
    }

    /// All kernels whose names match a glob.
    pub fn matching(glob: &str) -> Result<Vec<Self>, Error> {
        sources(glob)?.into_iter().map(fetch).collect()
    }
}

/// Whether a path is that of a module's file: compressed or not, and with `-` or `_` in its name.
fn is_module(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let same = |(stem, _): (&str, &str)| stem.replace('-', "_") == name.replace('-', "_");
    file.split_once(".ko").is_some_and(same)
}

fn sources(glob: &str) -> Result<Vec<&'static Source>, Error> {
    let matcher = Glob::new(glob).map_err(|_| no_such_kernel(glob))?.compile_matcher();
    let found: Vec<_> = SOURCES.iter().filter(|source| matcher.is_match(source.name)).collect();
    if found.is_empty() { Err(no_such_kernel(glob)) } else { Ok(found) }
}

fn no_such_kernel(wanted: &str) -> Error {
    Error::NoSuchKernel {
        wanted: wanted.to_owned(),
        known: SOURCES.each_ref().map(|source| source.name).join(", "),
    }
}

fn fetch(source: &Source) -> Result<Kernel, Error> {
    let dir = target_dir().join("vm/kernels").join(source.name);
    let apt = if source.series.is_some() { Ok(Apt::of_machine()) } else { Apt::unstable() };
    let newest = apt.as_ref().ok().and_then(|apt| newest_package(apt, source));
    // Without package lists, what was unpacked before still does.
    let Some(package) = newest.or_else(|| cached(&dir)) else {
        apt?;
        return Err(Error::NoPackage {
            packages: source.metas.join(", "),
            series: source.series.unwrap_or("new"),
        });
    };
    let root = dir.join(&package);
    if !root.exists() {
        unpack(&apt?, &package, &dir, &root)?;
    }
    let image = image(&root, &package)?;
    Ok(Kernel { name: source.name, package, root, image })
}

/// The image in an unpacked package: in `boot`, or beside its modules.
fn image(root: &Path, package: &str) -> Result<PathBuf, Error> {
    let release = package.strip_prefix(IMAGE).unwrap_or(package);
    let candidates =
        [root.join("boot").join(format!("vmlinuz-{release}")), modules_dir(root, release).join("vmlinuz")];
    candidates.into_iter().find(|image| image.exists()).ok_or_else(|| Error::Host {
        program: "dpkg-deb".to_owned(),
        why: format!("no vmlinuz in {package}"),
    })
}

/// Where an unpacked package has its modules.
fn modules_dir(root: &Path, release: &str) -> PathBuf {
    let [merged, old] = ["usr/lib/modules", "lib/modules"].map(|dir| root.join(dir).join(release));
    if merged.exists() { merged } else { old }
}

/// The package that a meta package depends on, if it is of the series that is wanted.
fn newest_package(apt: &Apt, source: &Source) -> Option<String> {
    source.metas.iter().find_map(|meta| {
        let listing = apt.show(meta).ok()?;
        depends(&listing).into_iter().find(|name| is_build_of(source, name))
    })
}

/// Whether a package holds this kernel: `linux-image-`, the build, the flavour, `-amd64`. Builds have names
/// such as `6.1.0-56` and `6.12.117+deb12`.
fn is_build_of(source: &Source, package: &str) -> bool {
    let build = package
        .strip_prefix(IMAGE)
        .and_then(|rest| rest.strip_suffix(&format!("{}-amd64", source.flavour)))
        .filter(|build| source.series.is_none_or(|series| build.starts_with(&format!("{series}."))));
    build.is_some_and(|build| {
        let words: Vec<&str> = build.split(['-', '+', '.']).collect();
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        words.iter().all(|word| word.starts_with("deb") || is_number(word))
    })
}

/// The names in the `Depends` line of a package.
fn depends(listing: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "))
        .flat_map(|line| line.split(", "))
        .filter_map(|item| item.split_whitespace().next().map(str::to_owned))
        .collect()
}

fn cached(dir: &Path) -> Option<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(IMAGE))
        .collect();
    names.sort_by_key(|name| numbers(name));
    names.pop()
}

/// The numbers in a name, in their order: 6.12.9 comes before 6.12.48.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn unpack(apt: &Apt, package: &str, dir: &Path, root: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))?;
    // Two processes may want the same kernel: each works in its own directory, and the first to finish
    // provides it.
    let work = tempfile::Builder::new().prefix("unpack-").tempdir_in(dir).map_err(Error::io(dir))?;
    let mut packages = depends(&apt.show(package)?);
    packages.retain(|name| PARTS.iter().any(|part| name.starts_with(part)));
    if packages.is_empty() {
        packages.push(package.to_owned());
    }
    let fresh = work.path().join("root");
    for deb in apt.download(&packages, work.path())? {
        output("dpkg-deb", &["-x", &deb.to_string_lossy(), &fresh.to_string_lossy()], work.path())?;
    }
    match fs::rename(&fresh, root) {
        Err(_) if root.exists() => Ok(()),
        other => other.map_err(Error::io(root)),
    }
}

pub(crate) fn output(program: &str, args: &[&str], dir: &Path) -> Result<String, Error> {
    raw_output(program, args, dir).map(|output| String::from_utf8_lossy(&output).into_owned())
}

fn raw_output(program: &str, args: &[&str], dir: &Path) -> Result<Vec<u8>, Error> {
    let failed = |why: String| Error::Host { program: format!("{program} {}", args.join(" ")), why };
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meta_package_names_the_build() {
        let listing =
            "Package: linux-image-cloud-amd64\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2), x\n";
        assert_eq!(depends(listing), ["linux-image-6.1.0-56-cloud-amd64", "x"]);
    }

    #[test]
    fn the_newest_is_the_one_with_the_highest_numbers() {
        let names =
            ["linux-image-6.12.9+deb13-cloud", "linux-image-6.12.48-cloud", "linux-image-6.9.100-cloud"];
        assert_eq!(names.into_iter().max_by_key(|name| numbers(name)), Some(names[1]));
        assert!(numbers("linux-image-7.10.1") > numbers("linux-image-7.9.3"));
    }

    #[test]
    fn files_of_modules_are_known_by_their_names() {
        assert!(is_module("kernel/block/mq-deadline.ko", "mq-deadline"));
        assert!(is_module("/a/nvme-core.ko.xz", "nvme_core"));
        assert!(!is_module("/a/nvme-core.ko.xz", "nvme") && !is_module("/nvme.ko/a.c", "nvme"));
    }

    #[test]
    fn flavours_are_told_apart() {
        let of = |package: &str| -> Vec<&str> {
            let of_series = SOURCES.iter().filter(|source| source.series.is_some());
            of_series.filter(|source| is_build_of(source, package)).map(|source| source.name).collect()
        };
        assert_eq!(of("linux-image-6.1.0-56-cloud-amd64"), ["6.1-cloud"]);
        assert_eq!(of("linux-image-6.1.0-56-rt-amd64"), ["6.1-rt"]);
        assert_eq!(of("linux-image-6.12.117+deb12-amd64"), ["6.12-generic"]);
        assert_eq!(of("linux-image-6.12.117+deb12-rt-amd64"), ["6.12-rt"]);
        assert_eq!(of("linux-image-6.12.117+deb12-amd64-unsigned"), <[&str; 0]>::default());
        assert_eq!(of("linux-image-6.1.0-56-amd64"), <[&str; 0]>::default());
    }

    #[test]
    fn the_newest_is_of_any_series() {
        let newest = SOURCES.iter().find(|source| source.series.is_none()).expect("one");
        assert!(is_build_of(newest, "linux-image-7.2.13+deb14-cloud-amd64"));
        assert!(!is_build_of(newest, "linux-image-7.2.13+deb14-amd64"));
        assert!(!is_build_of(newest, "linux-image-cloud-amd64"));
        let kernel = Kernel {
            name: newest.name,
            package: "linux-image-7.2.13+deb14-cloud-amd64".to_owned(),
            root: PathBuf::new(),
            image: PathBuf::new(),
        };
        assert_eq!((kernel.series(), kernel.release()), ("7.2", "7.2.13+deb14-cloud-amd64"));
    }

    #[test]
    fn every_kernel_has_its_module_of_tests() {
        let modules: Vec<_> = Kernel::names("*").expect("some").into_iter().map(crate::module_name).collect();
        let made = ["k6_1_cloud", "k6_1_rt", "k6_12_cloud", "k6_12_generic", "k6_12_rt", "newest_cloud"];
        assert_eq!(modules, made, "tests name these");
    }

    #[test]
    fn an_unknown_kernel_is_answered_with_the_known_ones() {
        let text = Kernel::find("2.6*").expect_err("no such kernel").to_string();
        assert!(text.contains("6.1-cloud"), "{text}");
    }
}
