//! Threads whose events no program gets. Some hosts' kernels call no BPF program while a thread of process 1
//! has the CPU, interrupts that come meanwhile included; ftrace records these events.

use std::path::Path;

use crate::tracefs::Instance;

/// Whether a thread belongs to process 1.
pub fn is_hidden(tid: u32) -> bool {
    Path::new(&format!("/proc/1/task/{tid}")).exists()
}

/// An ftrace instance beside a recording, for the events of hidden threads.
#[derive(Debug)]
pub struct HiddenEvents(Instance);

/// An event that fired while a hidden thread had the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenEvent {
    /// `block_rq_complete`.
    pub name: String,
    /// The fields as the kernel prints them.
    pub fields: String,
}

impl HiddenEvents {
    /// Records these events (`irq:softirq_entry`).
    pub fn start(events: &[&str]) -> Self {
        let instance = Instance::create("hidden", 65536);
        for event in events {
            instance.enable(event);
        }
        instance.write("tracing_on", "1");
        Self(instance)
    }

    /// The events of hidden threads.
    pub fn stop(self) -> Vec<HiddenEvent> {
        self.0.stop();
        self.0.texts().values().flat_map(|text| text.lines()).filter_map(hidden_event).collect()
    }
}

/// Reads `   comm-75   [001] ..s1. 16137.954944: name: fields` where a hidden thread has the CPU.
fn hidden_event(line: &str) -> Option<HiddenEvent> {
    if line.starts_with('#') {
        return None;
    }
    let is_cpu = |at: usize| {
        let cpu = line[at..].strip_prefix(" [").and_then(|rest| rest.split_once(']'));
        cpu.is_some_and(|(cpu, _)| !cpu.is_empty() && cpu.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let cpu = line.match_indices(" [").map(|(at, _)| at).find(|at| is_cpu(*at));
    let (task, rest) = line.split_at(cpu.unwrap_or_else(|| panic!("no CPU in {line:?}")));
    let tid = task.trim_end().rsplit_once('-').and_then(|(_, tid)| tid.parse().ok());
    if !is_hidden(tid.unwrap_or_else(|| panic!("no thread in {line:?}"))) {
        return None;
    }
    let mut parts = rest.splitn(3, ": ").skip(1).map(str::to_owned);
    Some(HiddenEvent { name: parts.next()?, fields: parts.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_process_1_are_hidden_and_of_this_one_are_not() {
        let line = |comm: &str, tid: u32| format!("  {comm}-{tid}  [001] ..s1. 16137.954944: name: a: 1 b");
        let event = HiddenEvent { name: "name".into(), fields: "a: 1 b".into() };
        for comm in ["a", "a-b", "[a] [b"] {
            assert_eq!(hidden_event(&line(comm, 1)), Some(event.clone()), "{comm}");
        }
        assert_eq!(hidden_event(&line("a-b", std::process::id())), None);
        assert_eq!(hidden_event("# tracer: nop"), None);
    }
}
