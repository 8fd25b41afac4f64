//! File options: facts about a recording that are not events.
//!
//! Layouts are those of trace-cmd.dat.v7(5), OPTIONS SECTION; where readers require more than that, the
//! comment at the option says so.

use std::fmt::Write as _;

use super::error::{WriteError, text_error};
use super::layout::OptionId;
use ftrace_event::endian::{Encoder, Endian};

/// One option, as a recorder fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileOption {
    /// Microseconds to add to every timestamp to get the time of day. Readers can be told to leave this out
    /// (`report --nodate`), unlike [`Offset`](Self::Offset).
    Date {
        /// Microseconds since 1970 of the clock's zero.
        micros: i64,
    },
    /// Statistics of one CPU as tracefs prints them in `per_cpu/cpu<id>/stats`, under a line `CPU: <id>`. One
    /// option per CPU; shown by `report --stat`. The statistics of a named buffer come after one entry
    /// `Buffer: <name>`.
    CpuStat(String),
    /// The list of clocks with the chosen one in brackets, as in `local [mono]`.
    ///
    /// Of `local global mono mono_raw tai perf uptime` readers show seconds, of others bare numbers. To have
    /// seconds for clock `boot`, leave the option out and name the clock at the buffer only.
    TraceClock(String),
    /// The machine, as `uname -a` prints it.
    Uname(String),
    /// A pair of events to be matched, as `trace-cmd record -H` takes it:
    /// `[system:]event,field[,pid]/[system:]event,field[,flags]`.
    Hook(String),
    /// Nanoseconds that are added to every timestamp. An offset to the time of day makes files of several
    /// machines merge by real time.
    Offset {
        /// Nanoseconds, may be negative.
        nanos: i64,
    },
    /// Number of CPUs of the machine. The writer stores this or the highest recorded CPU plus one, whichever
    /// is more.
    CpuCount(u32),
    /// The program that recorded, and its version.
    Version(String),
    /// Address map of one process.
    ProcMaps(ProcMaps),
    /// Random number of the session, by which files of guests and hosts find each other.
    TraceId(u64),
    /// Corrections of this file's clock against a peer's.
    TimeShift(TimeShift),
    /// A guest that was traced in the same session.
    Guest(Guest),
    /// How ticks of clock `x86-tsc` become nanoseconds: `(ticks * mult) >> shift`.
    Tsc2Nsec {
        /// Multiplier.
        mult: u32,
        /// Bits to shift right after the multiplication.
        shift: u32,
        /// Nanoseconds at tick 0; common readers leave it out.
        offset: u64,
    },
    /// What a persistent ring buffer says of the boot before, of one buffer.
    LastBootInfo {
        /// The buffer's name.
        buffer: String,
        /// The content of its `last_boot_info`.
        text: String,
    },
    /// An option that is not known here, kept as it was found.
    Unknown {
        /// The option's number.
        id: OptionId,
        /// Its bytes, in the byte order of the file.
        bytes: Vec<u8>,
    },
}

/// Address map of a process. Readers know one process per option, in hexadecimal numbers, and words without
/// blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcMaps {
    /// The process.
    pub pid: u32,
    /// Its name; blanks are stored as `\040`, as /proc does in paths.
    pub name: String,
    /// The mapped files. Stored sorted by address, because readers search them but fail to sort them.
    pub maps: Vec<ProcMap>,
}

/// One mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcMap {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Path of the mapped file; blanks are stored as `\040`.
    pub path: String,
}

/// Clock corrections: `peer time = ((time * scaling) >> fraction) + offset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeShift {
    /// [`TraceId`](FileOption::TraceId) of the peer's file.
    pub peer: u64,
    /// Bit 0: interpolate between samples.
    pub flags: u32,
    /// The samples of each CPU, CPU 0 first.
    pub cpus: Vec<Vec<TimeShiftSample>>,
}

/// A correction that was measured at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeShiftSample {
    /// When, in this file's clock.
    pub time: u64,
    /// Nanoseconds to add, after scaling.
    pub offset: i64,
    /// Factor.
    pub scaling: u64,
    /// Bits to shift right after the multiplication.
    pub fraction: u64,
}

/// A guest of a virtual machine, in the host's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// The guest's name.
    pub name: String,
    /// [`TraceId`](FileOption::TraceId) of the guest's file.
    pub trace_id: u64,
    /// Which task of the host runs which CPU of the guest.
    pub cpus: Vec<GuestCpu>,
}

/// A CPU of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestCpu {
    /// The guest's number of the CPU.
    pub cpu: u32,
    /// The host's task that runs it.
    pub pid: u32,
}

impl FileOption {
    /// The option's number.
    pub const fn id(&self) -> OptionId {
        match self {
            Self::Date { .. } => OptionId::DATE,
            Self::CpuStat(_) => OptionId::CPUSTAT,
            Self::TraceClock(_) => OptionId::TRACECLOCK,
            Self::Uname(_) => OptionId::UNAME,
            Self::Hook(_) => OptionId::HOOK,
            Self::Offset { .. } => OptionId::OFFSET,
            Self::CpuCount(_) => OptionId::CPUCOUNT,
            Self::Version(_) => OptionId::VERSION,
            Self::ProcMaps(_) => OptionId::PROCMAPS,
            Self::TraceId(_) => OptionId::TRACEID,
            Self::TimeShift(_) => OptionId::TIME_SHIFT,
            Self::Guest(_) => OptionId::GUEST,
            Self::Tsc2Nsec { .. } => OptionId::TSC2NSEC,
            Self::LastBootInfo { .. } => OptionId::LAST_BOOT_INFO,
            Self::Unknown { id, .. } => *id,
        }
    }

    /// The option's data, without number and size.
    ///
    /// # Errors
    /// [`WriteError::Text`] for a text that readers stumble over, [`WriteError::ReservedOption`] for an
    /// unknown option whose number is one that only the writer can fill, [`WriteError::TooLong`] for lists
    /// above 32 bits.
    pub fn encode(&self, endian: Endian) -> Result<Vec<u8>, WriteError> {
        let mut out = Encoder::new(endian);
        match self {
            Self::Date { micros } => out.c_string(&micros.to_string()),
            Self::Offset { nanos } => out.c_string(&nanos.to_string()),
            Self::CpuStat(text) => {
                // Readers look at the byte before the terminator and do not check that there is one.
                if text.is_empty() {
                    return Err(text_error("CPU statistics", text, "they are empty"));
                }
                out.c_string(no_nul("CPU statistics", text)?)
            }
            Self::TraceClock(text) => out.c_string(no_nul("trace clock", text)?),
            Self::Uname(text) => out.c_string(no_nul("uname", text)?),
            Self::Version(text) => out.c_string(no_nul("version", text)?),
            Self::Hook(text) => {
                if !is_hook(text) {
                    // Readers follow a null pointer for one that they cannot parse.
                    return Err(text_error("event hook", text, "it is not `event,field/event,field`"));
                }
                out.c_string(no_nul("event hook", text)?)
            }
            Self::CpuCount(count) => out.u32(*count),
            Self::ProcMaps(maps) => out.c_string(&maps.text()?),
            Self::TraceId(id) => out.u64(*id),
            Self::TimeShift(shift) => shift.encode(&mut out)?,
            Self::Guest(Guest { name, trace_id, cpus }) => {
                out.c_string(no_nul("guest name", name)?).u64(*trace_id).u32(count("guest CPUs", cpus)?);
                for GuestCpu { cpu, pid } in cpus {
                    out.u32(*cpu).u32(*pid);
                }
                &mut out
            }
            Self::Tsc2Nsec { mult, shift, offset } => out.u32(*mult).u32(*shift).u64(*offset),
            Self::LastBootInfo { buffer, text } => {
                if buffer.contains(':') {
                    return Err(text_error("buffer name", buffer, "a colon ends the name in this option"));
                }
                out.c_string(no_nul("last boot info", &format!("{buffer}:{text}"))?)
            }
            Self::Unknown { id, bytes } => {
                // These point into the file, or their absence or number is the writer's business.
                let reserved = matches!(
                    *id,
                    OptionId::DONE | OptionId::BUFFER | OptionId::CPUCOUNT | OptionId::CHECKSUMS
                ) || (OptionId::STRINGS..=OptionId::MODULES).contains(id)
                    && *id != OptionId::LAST_BOOT_INFO;
                if reserved {
                    return Err(WriteError::ReservedOption { id: *id });
                }
                out.raw(bytes)
            }
        };
        Ok(out.into_bytes())
    }
}

impl ProcMaps {
    fn text(&self) -> Result<String, WriteError> {
        if self.name.trim().is_empty() {
            return Err(text_error("process name", &self.name, "readers need one"));
        }
        let mut maps: Vec<_> = self.maps.iter().collect();
        maps.sort();
        let mut text = format!("{:x} {:x} {}\n", self.pid, maps.len(), word("process name", &self.name)?);
        for ProcMap { start, end, path } in maps {
            let path = word("path", path)?;
            let _ = writeln!(text, "{start:x} {end:x} {path}"); // a String takes everything
        }
        Ok(text)
    }
}

impl TimeShift {
    fn encode<'a>(&self, out: &'a mut Encoder) -> Result<&'a mut Encoder, WriteError> {
        out.u64(self.peer).u32(self.flags).u32(count("time shift CPUs", &self.cpus)?);
        for samples in &self.cpus {
            out.u32(count("time shift samples", samples)?);
            for sample in samples {
                out.u64(sample.time);
            }
            for sample in samples {
                out.u64(sample.offset.cast_unsigned());
            }
            for sample in samples {
                out.u64(sample.scaling);
            }
        }
        // The fractions came to the format later and therefore follow everything else.
        for sample in self.cpus.iter().flatten() {
            out.u64(sample.fraction);
        }
        Ok(out)
    }
}

fn count<T>(what: &'static str, list: &[T]) -> Result<u32, WriteError> {
    u32::try_from(list.len()).map_err(|_| WriteError::TooLong { what, len: list.len() })
}

/// Strings end at their first NUL for a reader.
pub(crate) fn no_nul<'a>(what: &'static str, text: &'a str) -> Result<&'a str, WriteError> {
    if text.contains('\0') { Err(text_error(what, text, "it has a NUL inside")) } else { Ok(text) }
}

/// A text that a reader takes for one word.
fn word(what: &'static str, text: &str) -> Result<String, WriteError> {
    let mut word = String::with_capacity(text.len());
    for c in no_nul(what, text)?.chars() {
        if c.is_ascii_whitespace() || c == '\x0b' {
            let _ = write!(word, "\\{:03o}", c as u32); // a String takes everything
        } else {
            word.push(c);
        }
    }
    Ok(word)
}

/// Whether a hook has the parts that readers go for.
fn is_hook(text: &str) -> bool {
    let side = |text: &str| {
        let mut parts = text.split(',');
        let event = parts
            .next()
            .is_some_and(|event| !event.is_empty() && event.split(':').all(|name| !name.is_empty()));
        event && parts.next().is_some_and(|field| !field.is_empty())
    };
    text.split_once('/').is_some_and(|(start, end)| side(start) && side(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(option: &FileOption) -> Vec<u8> {
        option.encode(Endian::Little).unwrap()
    }

    #[test]
    fn texts_end_with_nul() {
        assert_eq!(bytes(&FileOption::Uname("Linux".into())), b"Linux\0");
        assert_eq!(bytes(&FileOption::TraceClock("local [mono]".into())), b"local [mono]\0");
        assert_eq!(bytes(&FileOption::Date { micros: -5 }), b"-5\0");
        assert_eq!(bytes(&FileOption::Offset { nanos: 1_700_000_000_000_000_000 }), b"1700000000000000000\0");
        assert_eq!(bytes(&FileOption::LastBootInfo { buffer: "b".into(), text: "x\n".into() }), b"b:x\n\0");
        for option in [FileOption::Uname("a\0b".into()), FileOption::CpuStat(String::new())] {
            assert!(matches!(option.encode(Endian::Little), Err(WriteError::Text { .. })));
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(bytes(&FileOption::TraceId(0x0102)), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(FileOption::CpuCount(5).encode(Endian::Big).unwrap(), [0, 0, 0, 5]);
        let tsc = FileOption::Tsc2Nsec { mult: 1, shift: 2, offset: 3 };
        assert_eq!(bytes(&tsc), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn guest() {
        let guest = Guest { name: "vm".into(), trace_id: 9, cpus: vec![GuestCpu { cpu: 1, pid: 0x1234 }] };
        let expected = b"vm\0\x09\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x34\x12\0\0";
        assert_eq!(bytes(&FileOption::Guest(guest)), expected);
    }

    #[test]
    fn time_shift_has_its_fractions_last() {
        let sample = |n: u64| TimeShiftSample { time: n, offset: -1, scaling: n + 1, fraction: n + 2 };
        let shift =
            TimeShift { peer: 7, flags: 1, cpus: vec![vec![sample(10), sample(20)], vec![sample(30)]] };
        let mut expected = Vec::new();
        expected.extend_from_slice(&7u64.to_le_bytes());
        expected.extend([1u32, 2].iter().flat_map(|n| n.to_le_bytes()));
        expected.extend_from_slice(&2u32.to_le_bytes());
        expected.extend([10, 20, u64::MAX, u64::MAX, 11, 21].iter().flat_map(|n| n.to_le_bytes()));
        expected.extend_from_slice(&1u32.to_le_bytes());
        expected.extend([30, u64::MAX, 31, 12, 22, 32].iter().flat_map(|n| n.to_le_bytes()));
        assert_eq!(bytes(&FileOption::TimeShift(shift)), expected);
    }

    #[test]
    fn proc_maps_are_sorted_hexadecimal_words() {
        let map = |start, path: &str| ProcMap { start, end: start + 0x10, path: path.into() };
        let maps =
            ProcMaps { pid: 26, name: "a b".into(), maps: vec![map(0x2000, "/x y"), map(0x1000, "/lib")] };
        assert_eq!(
            bytes(&FileOption::ProcMaps(maps)),
            b"1a 2 a\\040b\n1000 1010 /lib\n2000 2010 /x\\040y\n\0"
        );
        assert!(FileOption::ProcMaps(ProcMaps::default()).encode(Endian::Little).is_err());
    }

    #[test]
    fn hooks_that_readers_can_take_apart() {
        for text in ["a,b/c,d", "s:a,b,pid/s:c,d,flags"] {
            assert!(FileOption::Hook(text.into()).encode(Endian::Little).is_ok(), "{text}");
        }
        for text in ["", "a", "a,b", "a,b/c", "/", "a,/c,d", ":a,b/c,d", "a/c,d"] {
            assert!(FileOption::Hook(text.into()).encode(Endian::Little).is_err(), "{text}");
        }
    }

    #[test]
    fn options_of_the_writer_cannot_be_given() {
        for id in [0, 3, 8, 15, 16, 21, 22, 23, 25] {
            let option = FileOption::Unknown { id: OptionId(id), bytes: Vec::new() };
            assert!(matches!(option.encode(Endian::Little), Err(WriteError::ReservedOption { .. })), "{id}");
        }
        for id in [1, 24, 26, 4000] {
            assert_eq!(bytes(&FileOption::Unknown { id: OptionId(id), bytes: vec![1, 2] }), [1, 2], "{id}");
        }
    }
}
