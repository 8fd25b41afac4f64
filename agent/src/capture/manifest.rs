//! What a trace file needs besides the data and the thread names, stored so that a crash does not lose it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use super::{Spool, SpoolError};
use crate::{
    kernel::{
        clock::TraceClock,
        proc,
        tracefs::{Tracefs, TracefsError},
    },
    tracedat::{Compression, layout},
};

/// First bytes of the file: name and version of the layout.
const MAGIC: &[u8; 8] = b"TASPOOL1";

/// Everything about a recording that is known when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Where the trace file goes.
    pub output: PathBuf,
    /// Boot of the recorded kernel: its symbols' addresses hold for that boot only.
    pub boot_id: String,
    /// tracefs' `events/header_page`.
    pub header_page: String,
    /// tracefs' `events/header_event`.
    pub header_event: String,
    /// Formats of the `ftrace` system.
    pub ftrace_events: Vec<String>,
    /// Formats of the other systems.
    pub systems: Vec<(String, Vec<String>)>,
    /// tracefs' `printk_formats`.
    pub printk_formats: Vec<u8>,
    /// Content of the UNAME option.
    pub uname: String,
    /// Content of the TRACECLOCK option; empty writes none.
    pub trace_clock: String,
    /// Name of the clock in the BUFFER option.
    pub clock_name: String,
    /// Nanoseconds to add to the clock for wall time, measured at the start.
    pub realtime_offset: i64,
    /// How wrong that can be, in nanoseconds.
    pub realtime_uncertainty: u64,
    /// Whether readers should show wall time.
    pub wall_time: bool,
    /// One more than the highest CPU id.
    pub cpu_count: u32,
    /// Random number of this recording.
    pub trace_id: u64,
    /// Contents of the PROCMAPS options.
    pub proc_maps: Vec<Vec<u8>>,
    /// Compression of the data.
    pub compression: Compression,
}

/// Why a manifest's bytes make no sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl Manifest {
    /// Collects what the running kernel reports about itself. The event formats are for the caller to add.
    pub fn of_kernel(
        tracefs: &Tracefs,
        clock: TraceClock,
        output: &Path,
        compression: Compression,
    ) -> Result<Self, TracefsError> {
        let realtime = clock.realtime_offset();
        let available = tracefs.trace_clock().ok();
        Ok(Self {
            output: output.to_owned(),
            boot_id: proc::boot_id().unwrap_or_default(),
            // Our pages have the usual size, whatever the kernel's own buffers were set to.
            header_page: layout::header_page_text(agent_ebpf::PAGE_SIZE as u32),
            header_event: tracefs.header_event()?,
            ftrace_events: tracefs.ftrace_formats()?.into_iter().map(|format| format.text).collect(),
            systems: Vec::new(),
            printk_formats: tracefs.printk_formats()?,
            uname: proc::uname_text(),
            trace_clock: clock.trace_clock_text(available.as_deref()).unwrap_or_default(),
            clock_name: clock.name().to_owned(),
            realtime_offset: realtime.offset_ns,
            realtime_uncertainty: realtime.uncertainty_ns,
            wall_time: false,
            cpu_count: 1,
            trace_id: random_id(),
            proc_maps: Vec::new(),
            compression,
        })
    }

    /// Writes the manifest; complete or not at all.
    pub fn store(&self, spool: &Spool) -> Result<(), SpoolError> {
        spool
            .files()
            .write_whole("manifest", |file| file.write_all(&self.encode()))
            .map_err(SpoolError::io("write", spool.file("manifest")))
    }

    /// Reads the manifest of an unfinished recording.
    pub fn load(spool: &Spool) -> Result<Self, SpoolError> {
        let path = spool.file("manifest");
        let bytes = spool.files().read("manifest").map_err(SpoolError::io("read", &path))?;
        Self::decode(&bytes).map_err(|Malformed(what)| SpoolError::Damaged { path, what: what.to_owned() })
    }

    fn encode(&self) -> Vec<u8> {
        // Destructured so that a new field is not forgotten here.
        let Self {
            output,
            boot_id,
            header_page,
            header_event,
            ftrace_events,
            systems,
            printk_formats,
            uname,
            trace_clock,
            clock_name,
            realtime_offset,
            realtime_uncertainty,
            wall_time,
            cpu_count,
            trace_id,
            proc_maps,
            compression,
        } = self;
        let mut out = Output(MAGIC.to_vec());
        out.bytes(path_bytes(output));
        for text in [boot_id, header_page, header_event, uname, trace_clock, clock_name] {
            out.bytes(text.as_bytes());
        }
        out.bytes(printk_formats);
        out.list(ftrace_events);
        out.number(systems.len() as u64);
        for (name, formats) in systems {
            out.bytes(name.as_bytes());
            out.list(formats);
        }
        out.number(realtime_offset.cast_unsigned());
        out.number(*realtime_uncertainty);
        out.number((*wall_time).into());
        out.number((*cpu_count).into());
        out.number(*trace_id);
        out.list(proc_maps);
        out.number(match compression {
            Compression::None => 0,
            Compression::Zstd { level } => 1 << 32 | u64::from(level.cast_unsigned()),
        });
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return Err(Malformed(if MAGIC.starts_with(bytes) {
                "it ends too early"
            } else {
                "it was not written by this version of tracer-agent"
            }));
        };
        let mut input = Input(rest);
        let output = path_from(input.bytes()?);
        let boot_id = input.text()?;
        let header_page = input.text()?;
        let header_event = input.text()?;
        let uname = input.text()?;
        let trace_clock = input.text()?;
        let clock_name = input.text()?;
        let printk_formats = input.bytes()?.to_vec();
        let ftrace_events = input.list()?;
        let mut systems = Vec::new();
        for _ in 0..input.number()? {
            systems.push((input.text()?, input.list()?));
        }
        let realtime_offset = input.number()?.cast_signed();
        let realtime_uncertainty = input.number()?;
        let wall_time = input.number()? != 0;
        let cpu_count =
            u32::try_from(input.number()?).map_err(|_| Malformed("the CPU count is too large"))?;
        let trace_id = input.number()?;
        let proc_maps =
            (0..input.number()?).map(|_| input.bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?;
        let compression = match input.number()? {
            0 => Compression::None,
            n => Compression::Zstd { level: (n as u32).cast_signed() },
        };
        Ok(Self {
            output,
            boot_id,
            header_page,
            header_event,
            ftrace_events,
            systems,
            printk_formats,
            uname,
            trace_clock,
            clock_name,
            realtime_offset,
            realtime_uncertainty,
            wall_time,
            cpu_count,
            trace_id,
            proc_maps,
            compression,
        })
    }
}

/// A number that no other recording has. The hasher's keys come from the system's random numbers.
fn random_id() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn path_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

fn path_from(bytes: &[u8]) -> PathBuf {
    PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}

/// Numbers are `u64` little endian; texts are a number of bytes and the bytes; lists are a number and their
/// texts.
struct Output(Vec<u8>);

impl Output {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn list(&mut self, texts: &[impl AsRef<[u8]>]) {
        self.number(texts.len() as u64);
        for text in texts {
            self.bytes(text.as_ref());
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn number(&mut self) -> Result<u64, Malformed> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed("a length is too large"))?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8"))
    }

    fn list(&mut self) -> Result<Vec<String>, Malformed> {
        // The count is not trusted with an allocation: every entry takes its own bytes from the input.
        (0..self.number()?).map(|_| self.text()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            output: "/tmp/a b.dat".into(),
            boot_id: "0c2f".into(),
            header_page: "page".into(),
            header_event: "event".into(),
            ftrace_events: vec!["a".into(), "b".into()],
            systems: vec![("sched".into(), vec!["x".into()]), ("empty".into(), vec![])],
            printk_formats: b"\xff".to_vec(),
            uname: "Linux".into(),
            trace_clock: "[mono]".into(),
            clock_name: "mono".into(),
            realtime_offset: -12,
            realtime_uncertainty: 40,
            wall_time: true,
            cpu_count: 4,
            trace_id: u64::MAX,
            proc_maps: vec![b"1 1 x\n".to_vec()],
            compression: Compression::Zstd { level: -3 },
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        assert_eq!(Manifest::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn absurd_counts_do_not_allocate() {
        let mut bytes = sample().encode();
        let at = MAGIC.len();
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Manifest::decode(&bytes).is_err());
    }
}
