//! The manifest for Kubernetes.

use std::path::Path;

use serde_json::Value;

use crate::harness::{program, run};

/// Reads the documents of a file, and prints them as JSON.
const READ: &str = "
import json, sys, yaml
print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))
";

/// The `DaemonSet` of the manifest, and the data of its `ConfigMap`.
#[track_caller]
pub fn manifest() -> (Value, Value) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut python =
        program(&top, "/usr/bin/python3", ["-c", READ, "agent/packaging/kubernetes/daemonset.yaml"]);
    // Beside its schemas, `cargo xtask setup` has a reader.
    let read = run(python.env("PYTHONPATH", top.join("target/kubernetes"))).expect(0);
    let documents: Vec<Value> = serde_json::from_str(&read.out).unwrap();
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap().clone();
    (of_kind("DaemonSet"), of_kind("ConfigMap")["data"].clone())
}

/// The capabilities that the manifest leaves to the container: `BPF`, `PERFMON` and others.
#[track_caller]
pub fn capabilities(daemon_set: &Value) -> Vec<String> {
    let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let capabilities = &container["securityContext"]["capabilities"];
    assert_eq!(capabilities["drop"], serde_json::json!(["ALL"]));
    serde_json::from_value(capabilities["add"].clone()).unwrap()
}
