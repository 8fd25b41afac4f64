//! The slices of Chrome's JSON.

use std::collections::{BTreeMap, BTreeSet};

use super::{Flow, Kind, Slice};
use analysis::answers::Tid;
use serde_json::Value;

/// Lanes of what threads do have the thread's number and so much.
const STATES: u64 = 1 << 22;
/// Lanes of CPUs have ids from here on, four of each.
const CPUS: u64 = 1 << 24;

pub(super) struct Trace {
    /// In order.
    pub(super) slices: Vec<Slice>,
    /// Numbers of threads that ran, with their names.
    pub(super) ran: Vec<(Tid, String)>,
    /// The names of lanes by the numbers of threads.
    pub(super) names: BTreeMap<Tid, Vec<String>>,
    pub(super) flows: BTreeSet<Flow>,
    /// CPU and number of each loss.
    lost: Vec<(u32, u64)>,
}

/// Microseconds as nanoseconds.
fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

impl Trace {
    pub(super) fn of(json: &[u8]) -> Self {
        let trace: Value = serde_json::from_slice(json).unwrap();
        let (slices, ran, names, flows, lost) = Default::default();
        let mut read = Self { slices, ran, names, flows, lost };
        let mut begun = BTreeMap::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            match event["ph"].as_str().unwrap() {
                "X" => read.slice(event),
                "s" => {
                    let from = (event["tid"].as_u64().unwrap(), nanos(&event["ts"]));
                    begun.insert(event["id"].as_u64(), from);
                }
                "f" => {
                    let (from, at) = begun[&event["id"].as_u64()];
                    read.flows.insert((from, at, event["tid"].as_u64().unwrap(), nanos(&event["ts"])));
                }
                "i" if event["cat"] == "loss" => {
                    let count = event["args"]["count"].as_u64().unwrap();
                    read.lost.push((((event["tid"].as_u64().unwrap() - CPUS) / 4) as u32, count));
                }
                "M" if event["name"] == "thread_name" => read.name(event),
                _ => {}
            }
        }
        read.slices.sort_unstable();
        read
    }

    /// How many events of a CPU are lost.
    pub(super) fn lost(&self, of: u32) -> u64 {
        self.lost.iter().filter(|(cpu, _)| *cpu == of).map(|(_, count)| count).sum()
    }

    fn slice(&mut self, event: &Value) {
        let lane = event["tid"].as_u64().unwrap();
        let mut name = event["name"].as_str().unwrap().to_owned();
        let args = &event["args"];
        let (kind, of) = match event["cat"].as_str().unwrap() {
            "cpu" => {
                let (cpu, tid) = ((lane - CPUS) / 4, args["tid"].as_u64().unwrap());
                if !name.is_empty() {
                    self.ran.push((tid as Tid, name));
                }
                name = tid.to_string();
                (Kind::Cpu, cpu)
            }
            "state" => {
                name = match &*name {
                    "Running" => "runs",
                    "Runnable" => "woken",
                    "Runnable (preempted)" => "preempted",
                    "Blocked" => "blocked",
                    _ => "stopped",
                }
                .to_owned();
                (Kind::State, lane - STATES)
            }
            "syscall" => (Kind::Call, lane),
            "irq" => (Kind::Irq, (lane - CPUS) / 4),
            _ => (Kind::Request, 0),
        };
        let (begin, result) = (nanos(&event["ts"]), args["ret"].as_i64());
        let end = begin + nanos(&event["dur"]);
        self.slices.push(Slice { kind, of, name, begin, end, result });
    }

    fn name(&mut self, event: &Value) {
        let lane = event["tid"].as_u64().unwrap();
        let name = event["args"]["name"].as_str().unwrap();
        let name = name.strip_suffix(": states").unwrap_or(name);
        if lane < CPUS && name != (lane % STATES).to_string() {
            let names = self.names.entry((lane % STATES) as Tid).or_default();
            names.extend(name.split(", ").map(str::to_owned));
        }
    }
}
