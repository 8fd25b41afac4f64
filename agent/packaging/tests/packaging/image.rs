//! The image, as tools of others see it.

use std::{collections::BTreeMap, fs, path::Path, process::Command, sync::OnceLock};

use packaging::image::{self, Image};
use serde_json::Value;

use crate::place::{directory, output, release, small_release};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The program's image, made once.
fn made() -> &'static Image {
    static MADE: OnceLock<Image> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        image::make(&release("1.0.0"), Some(Path::new(image::CERTIFICATES)), dir).unwrap()
    })
}

#[test]
fn skopeo_reads_the_layout_and_the_archive() {
    let dir = directory();
    let image = made();
    let skopeo = |args: &[&str]| output(Command::new("skopeo").args(args));
    let layout = format!("oci:{}:{}", image.dir.display(), image.tag);
    let archive = format!("oci-archive:{}:{}", image.archive.display(), image.tag);
    let [of_layout, of_archive] = [&layout, &archive].map(|of| json(&skopeo(&["inspect", of])));
    assert_eq!(of_layout["Digest"], of_archive["Digest"]);
    assert_eq!(of_layout["Layers"].as_array().unwrap().len(), 2);
    assert_eq!(of_layout["Labels"]["org.opencontainers.image.version"], "1.0.0");
    let config = json(&skopeo(&["inspect", "--config", &layout]));
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/tracer-agent"]));
    assert_eq!((&config["os"], &config["architecture"]), (&"linux".into(), &"amd64".into()));
    // Copying reads and checks every layer, and its digest without compression.
    skopeo(&["--insecure-policy", "copy", &archive, &format!("dir:{}", dir.path().join("copy").display())]);
}

#[test]
fn what_umoci_unpacks_runs() {
    let dir = directory();
    let image = made();
    let bundle = dir.path().join("bundle");
    let of = format!("{}:{}", image.dir.display(), image.tag);
    output(Command::new("umoci").args(["unpack", "--image", &of]).arg(&bundle));
    let root = bundle.join("rootfs");
    let version = output(Command::new("chroot").arg(&root).args(["/usr/bin/tracer-agent", "--version"]));
    assert!(version.starts_with("tracer-agent "), "{version}");
    let certificates = fs::read(image::CERTIFICATES).unwrap();
    assert!(fs::read(root.join(image::CERTIFICATES.trim_start_matches('/'))).unwrap() == certificates);
    assert!(fs::read_to_string(root.join("etc/group")).unwrap().contains("tracing:"));
    assert!(root.join("etc/tracer-agent/agent.toml").is_file());
    // umoci compares what it has unpacked with what is in the layers.
    let runtime = json(&fs::read_to_string(bundle.join("config.json")).unwrap());
    assert_eq!(
        runtime["process"]["args"],
        serde_json::json!(["/usr/bin/tracer-agent", "daemon", "--config", "/etc/tracer-agent/agent.toml"])
    );
}

#[test]
fn the_same_image_can_be_made_again_in_the_same_place() {
    let dir = directory();
    let contents = |image: &Image| {
        let files = fs::read_dir(image.dir.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap().path());
        let blobs: BTreeMap<_, _> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        (fs::read(&image.archive).unwrap(), blobs)
    };
    let again = || image::make(&small_release(), None, dir.path()).unwrap();
    let [one, other] = [(), ()].map(|()| contents(&again()));
    assert!(one == other);
}
