//! The compiler and the linker that make the eBPF object, found as a pair.
//!
//! Three facts decide what is looked for:
//!
//! - No distribution channel of rustup has `core` for `bpfel-unknown-none`, so it is built from the
//!   `rust-src` component, or taken precompiled where a distribution packages it. Both work with the compiler
//!   that they were packaged with and no other.
//! - `build-std`, and the BPF intrinsics that the programs use, are unstable. `RUSTC_BOOTSTRAP=1` opens them
//!   in any compiler, so a nightly is welcome but not needed.
//! - `bpf-linker` reads the compiler's LLVM bitcode: it must have been built for the same LLVM major version.
//!   The builds of 0.10 load LLVM at run time, from the first `libLLVM*` on `LD_LIBRARY_PATH`; see
//!   [`Pair::llvm_library`].

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of the eBPF programs.
pub const TARGET: &str = "bpfel-unknown-none";

/// The oldest compiler that builds the workspace (`rust-version` in Cargo.toml).
pub const MIN_RUSTC: (u32, u32) = (1, 95);

/// Names the compiler to use instead of searching for one.
pub const ENV_RUSTC: &str = "TRACER_AGENT_EBPF_RUSTC";

/// Names the linker to use instead of searching for one.
pub const ENV_LINKER: &str = "TRACER_AGENT_EBPF_LINKER";

/// A compiler and a linker that understand each other.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The compiler.
    pub compiler: Compiler,
    /// The linker.
    pub linker: Linker,
}

/// A compiler that has `core` for BPF.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// The `rustc` itself, never a proxy of rustup.
    pub rustc: PathBuf,
    /// The cargo that comes with it, when it has one of its own.
    pub cargo: Option<PathBuf>,
    /// The output of `rustc -vV`.
    pub version: String,
    /// Its LLVM major version.
    pub llvm: u32,
    /// Where its `core` comes from.
    pub core: Core,
}

/// Where `core` for BPF comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// Built from `rust-src`, with the same flags as the programs.
    Source,
    /// The distribution's own build (Debian: `libstd-rust-web-dev-bpf`).
    Precompiled,
}

/// A `bpf-linker`.
#[derive(Debug, Clone)]
pub struct Linker {
    /// The program.
    pub path: PathBuf,
    /// What `--version` prints, without the name.
    pub version: String,
    /// The LLVM major version that it was built for, where that can be known.
    pub llvm: Option<u32>,
}

/// Why there is no pair.
#[derive(Debug)]
pub enum Missing {
    /// No compiler can build for BPF.
    Compiler {
        /// Each compiler that was found and what it lacks.
        rejected: Vec<String>,
    },
    /// There is a compiler and no linker.
    Linker {
        /// The compiler that would be used.
        compiler: Box<Compiler>,
    },
    /// The linkers that were found read another LLVM's bitcode.
    Mismatch {
        /// The compiler that would be used.
        compiler: Box<Compiler>,
        /// The linkers.
        linkers: Vec<Linker>,
    },
}

impl Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiler { rejected } => {
                writeln!(f, "no Rust compiler on this machine can build for {TARGET}:")?;
                if rejected.is_empty() {
                    writeln!(f, "  no rustc in rustup's toolchains, /usr/bin or /usr/lib/rust-*/bin")?;
                }
                for line in rejected {
                    writeln!(f, "  {line}")?;
                }
                writeln!(f, "`cargo xtask setup` installs what is missing. By hand, one of:")?;
                writeln!(f, "  Debian:         apt-get install rustc-web rust-web-src")?;
                writeln!(
                    f,
                    "  Ubuntu:         apt-get install rustc-1.NN rust-1.NN-src   (1.NN >= {})",
                    min()
                )?;
                write!(f, "  rustup:         rustup component add rust-src")
            }
            Self::Linker { compiler } => {
                writeln!(f, "bpf-linker is missing (looked in PATH and cargo's bin directory).")?;
                writeln!(f, "`cargo xtask setup` installs the one that fits {}. By hand:", compiler.title())?;
                write!(f, "  {}", remedy(compiler.llvm))
            }
            Self::Mismatch { compiler, linkers } => {
                writeln!(f, "compiler and linker are not a pair:")?;
                writeln!(f, "  {} writes the bitcode of LLVM {}", compiler.title(), compiler.llvm)?;
                for linker in linkers {
                    let reads =
                        linker.llvm.map_or("of a version unknown here".to_owned(), |llvm| llvm.to_string());
                    writeln!(f, "  {} reads that of LLVM {reads}", linker.title())?;
                }
                writeln!(f, "`cargo xtask setup` installs the linker that fits. By hand:")?;
                write!(f, "  {}", remedy(compiler.llvm))
            }
        }
    }
}

fn min() -> String {
    format!("{}.{}", MIN_RUSTC.0, MIN_RUSTC.1)
}

/// The arguments of `cargo` that install the linker for an LLVM, `None` where no release of it is known to
/// fit.
pub fn linker_install(llvm: u32) -> Option<Vec<String>> {
    let args: &[&str] = match llvm {
        // 0.10 has all three and loads LLVM from the compiler, so no LLVM has to be installed.
        22 => &["--version", "~0.10.3"],
        21 => &["--version", "~0.10.3", "--no-default-features", "--features", "rust-llvm-21"],
        20 => &["--version", "~0.10.3", "--no-default-features", "--features", "rust-llvm-20"],
        // Since 0.11 it links against an installed LLVM (llvm-23-dev).
        23 => &["--version", "~0.13"],
        _ => return None,
    };
    // Not optimised: what takes time in it is LLVM, and it compiles in less than half of the time.
    let all = ["install", "bpf-linker", "--locked", "--force", "--debug"].iter().chain(args);
    Some(all.map(|arg| (*arg).to_owned()).collect())
}

fn remedy(llvm: u32) -> String {
    match linker_install(llvm) {
        Some(args) if llvm == 23 => {
            format!(
                "cargo {}   (needs the development files of LLVM 23; or use a compiler of LLVM 22)",
                args.join(" ")
            )
        }
        Some(args) => format!("cargo {}", args.join(" ")),
        None => format!("no bpf-linker for LLVM {llvm} is known here; use a compiler of LLVM 20 to 23"),
    }
}

impl Compiler {
    /// One line for messages.
    pub fn title(&self) -> String {
        let release = self.version.lines().next().unwrap_or("rustc");
        format!("{} ({release})", self.rustc.display())
    }

    /// Reads what a `rustc` is, or says why it cannot be used.
    fn inspect(rustc: &Path) -> Result<Self, String> {
        let at = rustc.display();
        let version = stdout_of(rustc, &["-vV"]).ok_or_else(|| format!("{at}: does not run"))?;
        let release = field(&version, "release: ").unwrap_or_default();
        if parse_release(&release) < Some(MIN_RUSTC) {
            return Err(format!("{at}: version {release} is older than {}", min()));
        }
        let llvm = field(&version, "LLVM version: ")
            .and_then(|text| text.split('.').next()?.parse().ok())
            .ok_or_else(|| format!("{at}: has no LLVM"))?;
        let sysroot = stdout_of(rustc, &["--print", "sysroot"])
            .map(|text| PathBuf::from(text.trim()))
            .ok_or_else(|| format!("{at}: has no sysroot"))?;
        let rustlib = sysroot.join("lib/rustlib");
        let core = if rustlib.join("src/rust/library/core/src/lib.rs").exists() {
            Core::Source
        } else if has_precompiled_core(&rustlib.join(TARGET).join("lib")) {
            Core::Precompiled
        } else {
            return Err(format!("{at}: version {release} would do, but rust-src is not installed for it"));
        };
        let cargo = rustc.with_file_name("cargo");
        // A distribution's cargo beside its rustc may be years older than it.
        let cargo = (rustc.starts_with(rustup_home()) && cargo.exists()).then_some(cargo);
        Ok(Self { rustc: rustc.to_owned(), cargo, version, llvm, core })
    }
}

impl Linker {
    /// One line for messages.
    pub fn title(&self) -> String {
        format!("{} (bpf-linker {})", self.path.display(), self.version)
    }

    fn inspect(path: &Path) -> Option<Self> {
        let text = stdout_of(path, &["--version"])?;
        let version = text.trim().strip_prefix("bpf-linker ")?.to_owned();
        let installs = path
            .parent()
            .and_then(Path::parent)
            .and_then(|root| fs::read_to_string(root.join(".crates2.json")).ok())
            .unwrap_or_default();
        let llvm = linker_llvm(&version, &installs);
        Some(Self { path: path.to_owned(), version, llvm })
    }
}

/// The LLVM of a `bpf-linker`, which it does not print: the features that cargo noted when it installed it,
/// else the default feature of that release.
fn linker_llvm(version: &str, installs: &str) -> Option<u32> {
    let entry = installs
        .split_once(&format!("\"bpf-linker {version} "))
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or("", |(entry, _)| entry);
    let chosen =
        entry.split("llvm-").skip(1).find_map(|rest| rest.get(..2).and_then(|major| major.parse().ok()));
    if chosen.is_some() {
        return chosen;
    }
    match parse_release(version)? {
        (0, 10) => Some(22),
        (0, 11..=13) => Some(23),
        _ => None,
    }
}

impl Pair {
    /// Finds the first compiler that has a linker, in the order of [`compilers`].
    pub fn find() -> Result<Self, Missing> {
        let (compilers, rejected) = compilers();
        let linkers = linkers();
        for compiler in &compilers {
            if let Some(linker) = linkers.iter().find(|linker| linker.llvm == Some(compiler.llvm)) {
                return Ok(Self { compiler: compiler.clone(), linker: linker.clone() });
            }
        }
        match compilers.into_iter().next() {
            None => Err(Missing::Compiler { rejected }),
            Some(compiler) if linkers.is_empty() => Err(Missing::Linker { compiler: Box::new(compiler) }),
            Some(compiler) => Err(Missing::Mismatch { compiler: Box::new(compiler), linkers }),
        }
    }

    /// The LLVM library that the compiler itself uses.
    ///
    /// `bpf-linker` 0.10 takes whichever `libLLVM*` comes first on its library path, which is that of the
    /// cargo that happens to run it. Pointing it at the compiler's own makes the result the same under every
    /// cargo.
    pub fn llvm_library(&self) -> Option<PathBuf> {
        let root = self.compiler.rustc.parent()?.parent()?;
        if let Some(found) = first_elf(&root.join("lib"), "libLLVM") {
            return Some(found);
        }
        let listing = stdout_of("ldd", &[&self.compiler.rustc])?;
        let line = listing.lines().find(|line| line.trim_start().starts_with("libLLVM"))?;
        let path = line.split_once("=> ")?.1.split(" (").next()?;
        Some(PathBuf::from(path.trim()))
    }

    /// Text that changes whenever the pair would produce another object.
    pub fn stamp(&self) -> String {
        let size = fs::metadata(&self.linker.path).map_or(0, |meta| meta.len());
        format!(
            "{}\n{}{:?}\n{}\n{size}\n{:?}\n",
            self.compiler.rustc.display(),
            self.compiler.version,
            self.compiler.core,
            self.linker.title(),
            self.llvm_library()
        )
    }
}

/// Every compiler that can be used, best first, and why others cannot: the one that the environment names,
/// rustup's nightly, its other toolchains, then those of the distribution.
pub fn compilers() -> (Vec<Compiler>, Vec<String>) {
    let mut paths = Vec::new();
    if let Some(named) = env::var_os(ENV_RUSTC) {
        paths.push(PathBuf::from(named));
    } else {
        let mut toolchains = subdirs(&rustup_home().join("toolchains"));
        toolchains.sort_by_key(|dir| !name_of(dir).starts_with("nightly"));
        paths.extend(toolchains);
        paths.push(PathBuf::from("/usr"));
        let mut versioned = subdirs(Path::new("/usr/lib"));
        versioned.retain(|dir| name_of(dir).starts_with("rust-"));
        versioned.sort_by_key(|dir| std::cmp::Reverse(name_of(dir)));
        paths.extend(versioned);
        for path in &mut paths {
            path.push("bin/rustc");
        }
    }
    let mut usable = Vec::new();
    let mut rejected = Vec::new();
    for path in paths.iter().filter(|path| path.exists()) {
        match Compiler::inspect(path) {
            Ok(compiler) => usable.push(compiler),
            Err(why) => rejected.push(why),
        }
    }
    (usable, rejected)
}

/// Every `bpf-linker`: the one that the environment names, else those on `PATH` and in cargo's bin directory.
pub fn linkers() -> Vec<Linker> {
    if let Some(named) = env::var_os(ENV_LINKER) {
        return Linker::inspect(Path::new(&named)).into_iter().collect();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut seen = BTreeSet::new();
    env::split_paths(&path)
        .chain([cargo_home().join("bin")])
        .map(|dir| dir.join("bpf-linker"))
        .filter(|path| path.is_file() && seen.insert(path.clone()))
        .filter_map(|path| Linker::inspect(&path))
        .collect()
}

fn has_precompiled_core(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let path = entry.path();
            name_of(&path).starts_with("libcore-") && path.extension() == Some(OsStr::new("rlib"))
        })
    })
}

/// The first file of that name which is a library; rustup's toolchains have a linker script of such a name
/// beside it.
fn first_elf(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found.into_iter().find(|path| {
        let mut magic = [0; 4];
        name_of(path).starts_with(prefix)
            && fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
            && magic == *b"\x7fELF"
    })
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir)
        .map_or_else(|_| Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect());
    all.sort();
    all
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned())
}

/// `1.97.0-nightly` as `(1, 97)`.
fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn rustup_home() -> PathBuf {
    env::var_os("RUSTUP_HOME").map_or_else(|| home().join(".rustup"), PathBuf::from)
}

fn cargo_home() -> PathBuf {
    env::var_os("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from)
}

fn home() -> PathBuf {
    env::home_dir().unwrap_or_default()
}

fn stdout_of(program: impl AsRef<OsStr>, args: &[impl AsRef<OsStr>]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALLS: &str = r#"{"installs":{"bpf-linker 0.10.4 (registry+x)":{"version_req":null,"bins":["bpf-linker"],
        "features":["rust-llvm-21"],"all_features":false,"no_default_features":true,"profile":"release"}}}"#;

    #[test]
    fn linker_llvm_prefers_the_features_it_was_installed_with() {
        assert_eq!(linker_llvm("0.10.4", INSTALLS), Some(21));
        assert_eq!(linker_llvm("0.10.4", ""), Some(22));
        assert_eq!(linker_llvm("0.13.0", INSTALLS), Some(23));
        assert_eq!(linker_llvm("7.0.0", ""), None);
    }

    #[test]
    fn a_mismatch_says_what_to_install() {
        let compiler = Compiler {
            rustc: "/usr/bin/rustc".into(),
            cargo: None,
            version: "rustc 1.96.0\n".into(),
            llvm: 22,
            core: Core::Source,
        };
        let linker = Linker { path: "/bin/bpf-linker".into(), version: "0.13.0".into(), llvm: Some(23) };
        let text = Missing::Mismatch { compiler: Box::new(compiler), linkers: vec![linker] }.to_string();
        assert!(text.contains("LLVM 22") && text.contains("reads that of LLVM 23"), "{text}");
        assert!(
            text.ends_with("cargo install bpf-linker --locked --force --debug --version ~0.10.3"),
            "{text}"
        );
    }

    #[test]
    fn releases_compare_by_number() {
        assert!(parse_release("1.100.0") > parse_release("1.97.0-nightly"));
        assert_eq!(parse_release("nonsense"), None);
    }
}
