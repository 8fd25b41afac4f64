//! Traces of Perfetto as the descriptors of its own Python package read them, which `cargo xtask setup`
//! installs in `target/perfetto`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{program, run};

/// Prints a JSON object for each event, and before them one with everything else.
const READ: &str = "
import json, sys
from google.protobuf.json_format import MessageToDict
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
trace = proto.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
plain = lambda message: MessageToDict(message, preserving_proto_field_name=True)
head = {'clocks': [], 'tree': [], 'system': [], 'stats': [], 'unknown': 0}
for packet in trace.packet:
    for name, field in [('clocks', 'clock_snapshot'), ('tree', 'process_tree'), ('system', 'system_info'), ('stats', 'ftrace_stats')]:
        if packet.HasField(field):
            head[name].append(plain(getattr(packet, field)))
print(json.dumps(head))
symbols = {}
for packet in trace.packet:
    if not packet.HasField('ftrace_events'):
        continue
    of = packet.trusted_packet_sequence_id
    if packet.sequence_flags & 1:
        symbols[of] = {}
    for symbol in packet.interned_data.kernel_symbols:
        symbols[of][symbol.iid] = symbol.str.decode()
    bundle = packet.ftrace_events
    lost, size = bundle.lost_events, packet.ByteSize()
    for event in bundle.event:
        name = event.WhichOneof('event')
        message = getattr(event, name)
        fields = {}
        if name == 'generic':
            name = message.event_name
            for field in message.field:
                value = field.WhichOneof('value')
                # A list without elements has no value.
                fields[field.name] = getattr(field, value) if value else []
            kind = 'generic'
        else:
            for field, value in message.ListFields():
                repeated = not isinstance(value, (int, str, bytes))
                value = list(value) if repeated else list(value) if isinstance(value, bytes) else value
                fields[field.name] = symbols[of][value] if name.startswith('funcgraph_') and field.name == 'func' else value
            kind = 'own'
        print(json.dumps({'cpu': bundle.cpu, 'timestamp': event.timestamp, 'pid': event.pid, 'flags': event.common_flags,
                          'name': name, 'kind': kind, 'fields': fields, 'lost': lost, 'bytes': size}))
        lost = False
";

/// A trace.
#[derive(Debug)]
pub struct Trace {
    /// `clocks`, `tree`, `system` and `stats`: the packets of each kind.
    pub head: Value,
    /// The events of each CPU, in their order: `timestamp`, `pid`, `flags`, `name`, `kind` (`own` or
    /// `generic`), `fields`, whether some were `lost` before it, and the `bytes` of its packet.
    pub events: BTreeMap<u64, Vec<Value>>,
}

/// Reads a trace.
#[track_caller]
pub fn read(path: &Path) -> Trace {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/perfetto");
    assert!(site.is_dir(), "Perfetto's package is not there: cargo xtask setup --for test");
    let mut python: Command = program("/".as_ref(), "/usr/bin/python3", ["-c", READ]);
    let out = run(python.arg(path).env("PYTHONPATH", site)).expect(0).out;
    let mut lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let head = lines.next().expect("a head");
    let mut events = BTreeMap::<u64, Vec<Value>>::new();
    for event in lines {
        events.entry(event["cpu"].as_u64().expect("a CPU")).or_default().push(event);
    }
    Trace { head, events }
}
