//! What existed on the recorded machine when a recording started: tasks, interrupts, modules, devices.
//!
//! Events describe changes; the readers of other tracers need to know from what. The recorder stores it in
//! the file option [`InitialState::OPTION`], which stock readers skip, and again for each later moment of the
//! recording at which somebody asked for it: JSON text (RFC 8259), or a zstd frame
//! (RFC 8878) that holds JSON text. The first byte distinguishes the two. Unknown members are skipped,
//! missing ones have their default. A file without a state has its [`Host`] in [`Host::OPTION`].

use serde::{Deserialize, Serialize};

use super::layout::OptionId;

/// Longest JSON text that is read: a machine with 100 000 threads has about 30 MB.
const MAX_TEXT: usize = 256 << 20;
/// JSON text that is longer is compressed.
const PLAIN: usize = 512;
const LEVEL: i32 = 3;

/// The machine at the start of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InitialState {
    /// Version of this description: 1.
    pub version: u32,
    /// When looking began, in nanoseconds of the clock of the recording.
    pub began_ns: u64,
    /// When looking ended. What happened in between may be in the state or not.
    pub ended_ns: u64,
    /// Whether the recording ended before everything had been looked at.
    pub cut_short: bool,
    /// The machine and its kernel.
    pub host: Host,
    /// The CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// Threads, the recorder's own left out.
    pub threads: Vec<Thread>,
    /// Open files, as many as are listed.
    pub files: Vec<OpenFile>,
    /// Open files that are not listed, because there are too many.
    pub files_left_out: u64,
    /// Interrupts with a number.
    pub interrupts: Vec<Interrupt>,
    /// Loaded modules.
    pub modules: Vec<Module>,
    /// Network interfaces of the recorder's network namespace.
    pub interfaces: Vec<Interface>,
    /// Block devices.
    pub block_devices: Vec<BlockDevice>,
}

/// A machine and its kernel: uname(2) and what identifies them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub hostname: String,
    /// NIS domain.
    pub domainname: String,
    /// `Linux`.
    pub sysname: String,
    /// `6.12.0-cloud-amd64`.
    pub release: String,
    /// `#1 SMP ...`.
    pub version: String,
    /// `x86_64`.
    pub machine: String,
    /// A UUID that is new after each boot.
    pub boot_id: String,
    /// UUID of the machine by its firmware, empty if it has none or the recorder may not see it.
    pub product_uuid: String,
}

/// A CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// The socket it is in.
    pub package: u32,
    /// The core of the socket it is a thread of.
    pub core: u32,
    /// NUMA node, as far as the kernel has any.
    pub node: Option<u32>,
    /// `GenuineIntel`.
    pub vendor: String,
    /// Name of the model.
    pub model: String,
    /// Frequency in kHz when it was looked at, as far as it is known.
    pub khz: Option<u64>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Number of its process.
    pub tgid: u32,
    /// Number of its process's parent process, 0 for none.
    pub ppid: u32,
    /// Its name, in Latin-1 where it is no UTF-8.
    pub comm: String,
    /// What it did: the letter of /proc/PID/stat, as `R` for running or `S` for sleeping.
    pub state: String,
    /// The CPU it ran on last.
    pub cpu: u32,
    /// Whether it is one of the kernel's.
    pub kernel: bool,
    /// Nanoseconds from boot to its start (CLOCK_BOOTTIME), in steps of clock ticks.
    pub start_ns: u64,
    /// Real user.
    pub uid: u32,
    /// Real group.
    pub gid: u32,
    /// Its numbers in the pid namespaces it is in, from the recorder's inwards; the last is what it knows
    /// itself as.
    pub tids: Vec<u32>,
    /// The same for its process.
    pub tgids: Vec<u32>,
    /// Its process's namespaces.
    pub namespaces: Namespaces,
}

/// Inode numbers of the namespaces of a process, 0 where they could not be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    /// Control groups.
    pub cgroup: u32,
    /// System V IPC and message queues.
    pub ipc: u32,
    /// Mounts.
    pub mnt: u32,
    /// Network.
    pub net: u32,
    /// Process numbers.
    pub pid: u32,
    /// Clocks.
    pub time: u32,
    /// Users.
    pub user: u32,
    /// Host name.
    pub uts: u32,
}

/// A file that a process had open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFile {
    /// The process.
    pub tgid: u32,
    /// The descriptor.
    pub fd: u32,
    /// What /proc/PID/fd calls it: a path, or something like `socket:[123]`. Of a path that is not UTF-8,
    /// `\xHH` is a byte.
    pub path: String,
}

/// An interrupt line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// Name of the controller.
    pub chip: String,
    /// Who handles it.
    pub actions: Vec<String>,
}

/// A loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Bytes of it in memory.
    pub size: u64,
    /// How many use it.
    pub references: u64,
    /// Where it is, 0 if the recorder may not see that.
    pub address: u64,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its IPv4 addresses.
    pub ipv4: Vec<std::net::Ipv4Addr>,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockDevice {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Its name: `sda1`.
    pub name: String,
}

/// A state that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Its compression is damaged, or it is longer than any machine's.
    #[error("the initial state (option {option}) cannot be decompressed: {source}", option = InitialState::OPTION.0)]
    Decompress {
        /// What is wrong.
        source: std::io::Error,
    },
    /// The host is no JSON of this shape.
    #[error("the host (option {option}) cannot be understood: {source}", option = Host::OPTION.0)]
    Host {
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It is no JSON of this shape.
    #[error("the initial state (option {option}) cannot be understood: {source}", option = InitialState::OPTION.0)]
    Json {
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl Host {
    /// The option that holds it in files without an [`InitialState`], as JSON text (RFC 8259).
    pub const OPTION: OptionId = OptionId(0x5445);

    /// The data of the option.
    ///
    /// # Errors
    /// There is no memory.
    pub fn encode(&self) -> Result<Vec<u8>, std::io::Error> {
        serde_json::to_vec(self).map_err(std::io::Error::other)
    }

    /// The host in the data of the option.
    ///
    /// # Errors
    /// The data are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        serde_json::from_slice(bytes).map_err(|source| StateError::Host { source })
    }
}

impl InitialState {
    /// The option that holds it, far from the numbers that trace-cmd gives out.
    pub const OPTION: OptionId = OptionId(0x5442);
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// The data of the option.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn encode(&self) -> Result<Vec<u8>, std::io::Error> {
        let json = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        if json.len() <= PLAIN { Ok(json) } else { zstd::bulk::compress(&json, LEVEL) }
    }

    /// The state in the data of the option.
    ///
    /// # Errors
    /// The data are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let parse = |json: &[u8]| serde_json::from_slice(json).map_err(|source| StateError::Json { source });
        if !bytes.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
            return parse(bytes);
        }
        let decompress = |bytes: &[u8]| {
            let known = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
            let len = known.and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= MAX_TEXT);
            let too_long = || std::io::Error::new(std::io::ErrorKind::InvalidData, "its length cannot be");
            // The length is not believed: memory grows with what comes out.
            let mut text = Vec::new();
            let limit = len.ok_or_else(too_long)? as u64;
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes)?.single_frame();
            std::io::Read::read_to_end(&mut std::io::Read::take(decoder, limit), &mut text)?;
            Ok(text)
        };
        parse(&decompress(bytes).map_err(|source| StateError::Decompress { source })?)
    }

    /// The names and numbers of interrupts, as the traces' readers want them.
    pub fn interrupt(&self, irq: u32) -> Option<&Interrupt> {
        self.interrupts.iter().find(|interrupt| interrupt.irq == irq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(threads: u32) -> InitialState {
        let thread = |tid| Thread {
            tid,
            comm: format!("task \"{tid}\" \u{e9}"),
            tids: vec![tid, 1],
            ..Thread::default()
        };
        InitialState {
            version: InitialState::VERSION,
            began_ns: u64::MAX,
            threads: (0..threads).map(thread).collect(),
            interfaces: vec![Interface { ipv4: vec![[127, 0, 0, 1].into()], ..Interface::default() }],
            ..InitialState::default()
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for threads in [0, 1, 5000] {
            let bytes = state(threads).encode().unwrap();
            assert_eq!(InitialState::decode(&bytes).unwrap(), state(threads));
        }
        assert!(state(5000).encode().unwrap().len() < 100_000);
        let sparse = br#"{"threads":[{"tid":4}],"later":{"x":[1]}}"#;
        assert_eq!(InitialState::decode(sparse).unwrap().threads[0].tid, 4);
    }

    #[test]
    fn a_host_is_decoded_and_a_damaged_one_is_an_error() {
        let host = Host { boot_id: "\u{e9}".into(), version: "#1 \"SMP\"".into(), ..Host::default() };
        assert_eq!(Host::decode(&host.encode().unwrap()).unwrap(), host);
        assert_eq!(Host::decode(b"{\"later\":1}").unwrap(), Host::default());
        for text in [&b""[..], b"7", b"{\"boot_id\":3}", b"{", b"\xff"] {
            assert!(Host::decode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut bytes = state(5000).encode().unwrap();
        let half = bytes.len() / 2;
        assert!(InitialState::decode(&bytes[..half]).is_err());
        bytes[half] ^= 0x55;
        bytes[half + 1] ^= 0x55;
        assert!(InitialState::decode(&bytes).is_err());
        for text in
            [&b""[..], b"7", b"{\"threads\":3}", b"{", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xff\xff"]
        {
            assert!(InitialState::decode(text).is_err(), "{text:?}");
        }
    }
}
