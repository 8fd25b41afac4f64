//! Whose a trace of programs is: a user or a process that has rings of its own, as with LTTng's buffering
//! schemes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use super::{
    UST,
    schema::{EnvValue, Trace},
};
use stdx::utc;

/// The version of LTTng-UST whose layout is written.
const VERSION: [u32; 2] = [2, 13];
/// What the environment of a kernel's trace says that is true of one of programs, too.
const COMMON: [&str; 5] = ["hostname", "trace_name", "trace_creation_datetime", "exporter", "recorded_by"];

/// Whose a trace is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// A user's, by its id; `None` of all users that have no rings of their own.
    User(Option<u32>),
    /// A process's; `None` of all that have no rings of their own.
    Process(Option<Process>),
}

/// A process that has a trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// When it had its first event, in nanoseconds since 1970.
    pub since_ns: u64,
}

impl Owner {
    /// The directories in which LTTng has such a trace.
    pub fn path(&self) -> Vec<String> {
        const OTHERS: &str = "others";
        match self {
            Self::User(id) => {
                let id = id.map_or_else(|| OTHERS.to_owned(), |id| id.to_string());
                vec![UST.to_owned(), "uid".to_owned(), id, "64-bit".to_owned()]
            }
            Self::Process(process) => {
                let name = process.as_ref().map_or_else(|| OTHERS.to_owned(), Process::dir_name);
                vec![UST.to_owned(), "pid".to_owned(), name]
            }
        }
    }

    /// Says in a trace whose it is, and tells it from others of the recording.
    pub(super) fn describe(&self, trace: &mut Trace) {
        let (scheme, id) = match self {
            Self::User(id) => ("uid", *id),
            Self::Process(process) => ("pid", process.as_ref().map(|process| process.id)),
        };
        let mut env = vec![("domain", UST.into()), ("tracer_name", "lttng-ust".into())];
        env.extend(["tracer_major", "tracer_minor"].into_iter().zip(VERSION.map(EnvValue::Number)));
        env.push(("tracer_buffering_scheme", scheme.into()));
        env.extend(id.map(|id| ("tracer_buffering_id", EnvValue::Number(id))));
        env.push(("architecture_bit_width", EnvValue::Number(64)));
        if let Self::Process(Some(process)) = self {
            env.push(("vpid", EnvValue::Number(process.id)));
            env.push(("procname", process.name.as_str().into()));
            env.push(("vpid_datetime", utc::compact(process.since_ns).into()));
        }
        env.extend(trace.env.drain(..).filter(|(name, _)| COMMON.contains(name)));
        env.push(("exporter_note", "made of records of ftrace's layout; LTTng-UST did not record it".into()));
        trace.env = env;
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        // Readers take traces with one id for parts of one. The version and variant stay.
        for (byte, other) in trace.uuid[9..].iter_mut().zip(hasher.finish().to_be_bytes()) {
            *byte ^= other;
        }
    }
}

impl Process {
    /// `app-4711-20260302-101500`.
    fn dir_name(&self) -> String {
        let since = utc::compact(self.since_ns).replace('T', "-").replace("+0000", "");
        // The process has chosen its name, which must not lead anywhere.
        let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let name: String = self.name.chars().map(keep).collect();
        format!("{}-{}-{since}", if name.is_empty() { "unknown" } else { &name }, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_lttngs() {
        assert_eq!(Owner::User(Some(1000)).path().join("/"), "ust/uid/1000/64-bit");
        assert_eq!(Owner::User(None).path().join("/"), "ust/uid/others/64-bit");
        let process = Process { id: 47, name: "../x y".into(), since_ns: 1_772_446_500_000_000_000 };
        assert_eq!(Owner::Process(Some(process)).path().join("/"), "ust/pid/___x_y-47-20260302-101500");
    }
}
