//! What a daemon needs of systemd: somebody who keeps descriptors from one process to the next (sd_notify(3),
//! `FDSTORE=1`; sd_listen_fds(3)).

use std::{
    io::IoSliceMut,
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use rustix::{
    io::FdFlags,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use stdx::handover::Parcels;

use crate::harness::program;

/// The most descriptors that are kept.
const STORE_MAX: usize = 2;

/// Keeps descriptors for a process and those after it.
#[derive(Debug)]
pub struct Supervisor {
    socket: PathBuf,
    store: Arc<Mutex<Vec<(String, OwnedFd)>>>,
}

impl Supervisor {
    /// Listens to processes at a socket in a directory.
    pub fn start(dir: &Path) -> Self {
        let path = dir.join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        let store: Arc<Mutex<Vec<(String, OwnedFd)>>> = Arc::default();
        let kept = Arc::clone(&store);
        // It ends with the test.
        std::thread::spawn(move || {
            while let Some((text, fds)) = receive(&socket) {
                let is = |line: &str| text.lines().any(|of| of == line);
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
                if is("FDSTORE=1") {
                    let mut kept = kept.lock().unwrap();
                    let room = STORE_MAX.saturating_sub(kept.len());
                    kept.extend(
                        fds.into_iter().take(room).map(|fd| (name.unwrap_or("stored").to_owned(), fd)),
                    );
                }
                if is("FDSTOREREMOVE=1") {
                    kept.lock().unwrap().retain(|(of, _)| Some(of.as_str()) != name);
                }
                // The end of a barrier is closed here.
            }
        });
        Self { socket: path, store }
    }

    /// A command in the environment that it gives to a process, with what is kept: the command gets these
    /// descriptors when it is started.
    pub fn supervised(&self, command: &Command) -> (Command, Vec<OwnedFd>) {
        let store = self.store.lock().unwrap();
        let mut script = String::new();
        let (mut names, mut all) = (Vec::new(), Vec::new());
        for (number, (name, fd)) in (3..).zip(&*store) {
            let passed = fd.try_clone().unwrap();
            rustix::io::fcntl_setfd(&passed, FdFlags::empty()).unwrap();
            let from = passed.as_raw_fd();
            script.push_str(&format!("exec {number}<&{from} {from}<&-; "));
            names.push(name.as_str());
            all.push(passed);
        }
        script.push_str("export LISTEN_PID=$$; exec \"$0\" \"$@\"");
        let mut supervised =
            program(command.get_current_dir().unwrap_or(Path::new("/")), "bash", ["-c", &script]);
        supervised
            .arg(command.get_program())
            .args(command.get_args())
            .env("NOTIFY_SOCKET", &self.socket)
            .env("FDSTORE", STORE_MAX.to_string())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"));
        (supervised, all)
    }

    /// Closes what is kept, as systemd does when a service is stopped for good.
    pub fn forget(&self) {
        self.store.lock().unwrap().clear();
    }

    /// What was sent through the sockets that are kept.
    pub fn parcels(&self) -> Parcels {
        let store = self.store.lock().unwrap();
        let end = |wanted| {
            let kept = store.iter().find(|(name, _)| name == wanted);
            kept.unwrap().1.try_clone().unwrap()
        };
        Parcels::of_kept([end("hand-over-near"), end("hand-over-far")])
    }

    /// How many are kept.
    pub fn kept(&self) -> usize {
        self.store.lock().unwrap().len()
    }
}

fn receive(socket: &UnixDatagram) -> Option<(String, Vec<OwnedFd>)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).ok()?.bytes;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    Some((String::from_utf8_lossy(&bytes[..len]).into_owned(), fds))
}
