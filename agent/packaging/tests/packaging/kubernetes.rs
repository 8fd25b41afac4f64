//! The manifest for Kubernetes, against the schemas of its versions.

use std::{path::Path, process::Command};

use crate::place::output;

/// The oldest version whose security contexts have an AppArmor profile, the newest, and one between.
const VERSIONS: [&str; 3] = ["1.30", "1.33", "1.37"];

#[test]
fn the_manifest_is_what_kubernetes_accepts() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = here.join("kubernetes/daemonset.yaml");
    let schemas = here.join("../../target/kubernetes");
    for version in VERSIONS {
        let mut validate = Command::new("/usr/bin/python3");
        validate.arg(schemas.join("bin/kubernetes-validate")).args(["--strict", "-k", version]);
        let validated = validate.arg(&manifest).env("PYTHONPATH", &schemas).output().unwrap();
        let said = String::from_utf8_lossy(&validated.stderr) + String::from_utf8_lossy(&validated.stdout);
        assert!(validated.status.success(), "{version}: {said}");
        for kind in ["namespace", "serviceaccount", "configmap", "daemonset"] {
            assert!(said.contains(&format!("passed for resource {kind}/tracer-agent")), "{version}: {said}");
        }
    }
}

#[test]
fn the_manifest_names_this_version() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes/daemonset.yaml");
    let image = format!("image: tracer-agent:{}", env!("CARGO_PKG_VERSION"));
    assert!(output(Command::new("cat").arg(manifest)).contains(&image), "{image}");
}
