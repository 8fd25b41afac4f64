//! A relay daemon of LTTng, and what stands for one.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use integration_tests::harness::wait_for;
use tempfile::TempDir;

/// Stock `lttng-relayd`, with a directory and ports of its own.
pub(super) struct Relayd {
    dir: TempDir,
    ports: [u16; 3],
    process: Option<Child>,
}

impl Relayd {
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(super) fn start_with(options: &[&str]) -> Self {
        // They are free for as long as nobody else asks for any.
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.each_ref().map(|listener| listener.local_addr().unwrap().port());
        drop(free);
        let mut relayd = Self { dir: tempfile::tempdir().unwrap(), ports, process: None };
        relayd.run(options);
        relayd
    }

    fn run(&mut self, options: &[&str]) {
        let mut command = Command::new("lttng-relayd");
        for (option, port) in ["-C", "-D", "-L"].iter().zip(self.ports) {
            command.arg(option).arg(format!("tcp://127.0.0.1:{port}"));
        }
        command.arg("-o").arg(self.traces()).args(options).env("LTTNG_HOME", self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::fs::create_dir_all(self.traces()).unwrap();
        self.process = Some(command.spawn().expect("lttng-relayd runs"));
        wait_for("the relay daemon", || {
            let all = [self.ports[0], self.ports[1]];
            all.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()).then_some(())
        });
    }

    pub(super) fn again(&mut self) {
        self.run(&[]);
    }

    pub(super) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.process.take().unwrap().wait().unwrap();
    }

    pub(super) fn signal(&self, signal: i32) {
        let pid = self.process.as_ref().unwrap().id().cast_signed();
        // SAFETY: a system call on a number; the process is our child and was not waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    pub(super) fn url(&self) -> String {
        format!("net://127.0.0.1:{}:{}", self.ports[0], self.ports[1])
    }

    pub(super) fn ports(&self) -> [u16; 2] {
        [self.ports[0], self.ports[1]]
    }

    /// Where viewers connect to.
    pub(super) fn live_port(&self) -> u16 {
        self.ports[2]
    }

    fn traces(&self) -> PathBuf {
        self.dir.path().join("traces")
    }

    /// The directory of its only session.
    pub(super) fn session(&self) -> PathBuf {
        only(&only(&self.traces()))
    }
}

impl Drop for Relayd {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What is in a directory that has one thing in it.
pub(super) fn only(dir: &Path) -> PathBuf {
    let mut all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let first = all.next().unwrap_or_else(|| panic!("{} is empty", dir.display()));
    assert_eq!(all.next(), None, "{}", dir.display());
    first
}

/// The files of a tree by their paths in it. Those that are removed meanwhile are not among them.
pub(super) fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    fn is_gone<T>(found: &io::Result<T>) -> bool {
        found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
    fn add(dir: &Path, root: &Path, all: &mut BTreeMap<String, Vec<u8>>) {
        let entries = std::fs::read_dir(dir);
        if dir != root && is_gone(&entries) {
            return;
        }
        for entry in entries.unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, root, all);
                continue;
            }
            let bytes = std::fs::read(&path);
            if !is_gone(&bytes) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                all.insert(name, bytes.unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(dir, dir, &mut all);
    all
}

/// Says that both have the same files with the same bytes.
#[track_caller]
pub(super) fn assert_same(here: &BTreeMap<String, Vec<u8>>, there: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
    for (name, bytes) in here {
        let at = bytes.iter().zip(&there[name]).position(|(a, b)| a != b);
        assert_eq!((at, bytes.len()), (None, there[name].len()), "{name} differs");
    }
    assert!(here.keys().any(|name| name.ends_with("metadata")), "{:?}", here.keys());
}

/// Stands before a relay daemon.
pub(super) struct Between {
    ports: [u16; 2],
    is_v6: bool,
    garbles: Arc<AtomicBool>,
}

impl Between {
    /// Listens at an address, and lets both know of a peer that speaks this minor version.
    pub(super) fn start(relayd: &Relayd, address: IpAddr, minor: u32) -> Self {
        let garbles = Arc::<AtomicBool>::default();
        let mut between = Self { ports: [0; 2], is_v6: address.is_ipv6(), garbles: Arc::clone(&garbles) };
        for ((port, to), is_control) in between.ports.iter_mut().zip(relayd.ports()).zip([true, false]) {
            let listener = TcpListener::bind((address, 0)).unwrap();
            *port = listener.local_addr().unwrap().port();
            let (minor, garbles) = (is_control.then_some(minor), Arc::clone(&garbles));
            thread::spawn(move || {
                for client in listener.incoming() {
                    let client = client.unwrap();
                    let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                    let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    // What comes before the version that is sent, and before the one of the answer.
                    thread::spawn(move || pass(from, to, minor.map(|minor| (28, minor)), None));
                    let garbles = minor.map(|_| Arc::clone(&garbles));
                    thread::spawn(move || {
                        pass(server, client, minor.map(|minor| (4, minor)), garbles.as_deref());
                    });
                }
            });
        }
        between
    }

    /// Says something that makes no sense, once, in the place of an answer.
    pub(super) fn garble(&self) {
        self.garbles.store(true, Ordering::Relaxed);
    }

    pub(super) fn url(&self) -> String {
        let place = if self.is_v6 { "net6://[::1]" } else { "net://127.0.0.1" };
        format!("{place}:{}:{}", self.ports[0], self.ports[1])
    }
}

/// Passes on what comes, with another minor version behind so many bytes.
fn pass(mut from: TcpStream, mut to: TcpStream, minor: Option<(usize, u32)>, garbles: Option<&AtomicBool>) {
    if let Some((before, minor)) = minor {
        let mut version = vec![0; before + 4];
        if from.read_exact(&mut version).is_ok() {
            version[before..].copy_from_slice(&minor.to_be_bytes());
            let _ = to.write_all(&version);
        }
    }
    let mut bytes = [0; 1 << 12];
    while let Ok(size @ 1..) = from.read(&mut bytes) {
        if garbles.is_some_and(|garbles| garbles.swap(false, Ordering::Relaxed)) {
            let _ = to.write_all(&[0xff; 64]);
        }
        if to.write_all(&bytes[..size]).is_err() {
            break;
        }
    }
    // Either may be gone.
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// Something that says this to everybody who connects, and closes, or says nothing more. Gives its address.
pub(super) fn says(bytes: &'static [u8], closes: bool) -> String {
    let ports = [(); 2].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let mut all = Vec::new();
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let _ = client.write_all(bytes);
                if !closes {
                    all.push(client);
                }
            }
        });
        port
    });
    format!("net://127.0.0.1:{}:{}", ports[0], ports[1])
}
