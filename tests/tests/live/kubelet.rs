//! The manifest for Kubernetes with what kubelet and a container runtime make of it: the mounts, modes and
//! links of a node that is made up in a mount namespace.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Command,
};

use integration_tests::{
    cgroup::MemoryGroup,
    daemon::{Daemon, ROOT},
    harness::{Ended, Running, Tmpfs, agent, agent_path, program, run, wait_for},
    http, kubernetes,
};
use serde_json::{Value, json};

use super::confined::with_capabilities;

/// The name of the node, which is the pod's host.
const NODE: &str = "node-7";
/// The directory of the pod, below the one that kubelet closes to others.
const VOLUMES: &str = "kubelet/pods/uid/volumes";
/// Somebody else.
const OTHER: u32 = 61_003;

/// A node, and a pod of the manifest on it.
struct Node {
    /// The `DaemonSet`, and the files of the `ConfigMap`.
    manifest: Value,
    config_map: Vec<(String, String)>,
    /// The node's file system, which the first process sees, too.
    disk: Tmpfs,
    /// What keeps the pod's mount and network namespaces.
    holder: Running,
    /// How often volumes were published.
    published: u32,
}

impl Node {
    fn new() -> Self {
        let disk = Tmpfs::mount("mode=0755");
        let mut holder = Running::start(&mut program(
            Path::new("/"),
            "unshare",
            ["--mount", "--net", "--propagation=private", "sh", "-c", "echo there; exec sleep infinity"],
        ));
        holder.wait_until_out("there");
        let (manifest, data) = kubernetes::manifest();
        let data = data.as_object().unwrap().clone();
        let config_map =
            data.into_iter().map(|(name, text)| (name, text.as_str().unwrap().to_owned())).collect();
        let mut node = Self { manifest, config_map, disk, holder, published: 0 };
        for (path, mode) in [("kubelet", 0o750), ("kubelet/pods", 0o750), (VOLUMES, 0o755)] {
            node.dir(path, mode);
        }
        node.mount();
        node
    }

    fn on_disk(&self, path: &str) -> PathBuf {
        self.disk.path().join(path)
    }

    /// Makes a directory of the node.
    fn dir(&self, path: &str, mode: u32) -> PathBuf {
        let dir = self.on_disk(path);
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        dir
    }

    /// Runs a shell's commands in the pod's mount namespace.
    #[track_caller]
    fn shell(&self, script: &str) {
        run(self.in_pod().args(["sh", "-ec", script])).expect(0);
    }

    fn in_pod(&self) -> Command {
        let pid = self.holder.pid();
        let namespaces = [format!("--mount=/proc/{pid}/ns/mnt"), format!("--net=/proc/{pid}/ns/net")];
        program(Path::new("/"), "nsenter", namespaces)
    }

    /// The part of the manifest for the container.
    fn container(&self) -> &Value {
        &self.manifest["spec"]["template"]["spec"]["containers"][0]
    }

    /// The container's root directory.
    fn root(&self) -> PathBuf {
        self.on_disk("rootfs")
    }

    /// Mounts what the container has: the programs of this machine in place of an image, and its volumes.
    fn mount(&mut self) {
        let root = self.dir("rootfs", 0o755);
        for dir in ["usr/bin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "mnt"] {
            self.dir(&format!("rootfs/{dir}"), 0o755);
        }
        self.dir("rootfs/etc", 0o755);
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:\n").unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\ntracing:x:999:\n").unwrap();
        for link in ["lib", "lib64"] {
            symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        fs::copy(agent_path(), root.join("usr/bin/tracer-agent")).unwrap();
        fs::copy("/usr/bin/setpriv", root.join("usr/bin/setpriv")).unwrap();
        let volumes = self.manifest["spec"]["template"]["spec"]["volumes"].clone();
        let mut mounts = Vec::new();
        for mount in self.container()["volumeMounts"].as_array().unwrap() {
            let point = mount["mountPath"].as_str().unwrap().to_owned();
            let named = |volume: &&Value| volume["name"] == mount["name"];
            let volume = volumes.as_array().unwrap().iter().find(named).unwrap().clone();
            mounts.push((point, volume, mount["readOnly"] == true));
        }
        for (point, _, _) in mounts.iter().filter(|(point, ..)| !point.starts_with("/sys/")) {
            self.dir(&format!("rootfs{point}"), 0o755);
        }
        let at = root.display();
        self.shell(&format!(
            "mount --bind {at} {at}
             mount --bind /usr/lib {at}/usr/lib
             [ ! -d /usr/lib64 ] || mount --bind /usr/lib64 {at}/usr/lib64
             mount -t proc proc {at}/proc
             mount --rbind /dev {at}/dev
             mount --bind /sys {at}/sys
             mount -o remount,bind,ro {at}/sys
             mount -o remount,bind,ro {at}"
        ));
        for (point, volume, is_read_only) in mounts {
            let to = format!("{at}{point}");
            let name = volume["name"].as_str().unwrap();
            if let Some(path) = volume["hostPath"]["path"].as_str().filter(|path| path.starts_with("/sys/")) {
                let is_tracefs = path == "/sys/kernel/tracing";
                self.shell(&if is_tracefs {
                    format!("mount -t tracefs nodev {to}")
                } else {
                    format!("mount --rbind {path} {to}")
                });
            } else {
                let from = if volume["hostPath"].is_object() {
                    self.dir(&format!("host/{name}"), 0o755)
                } else {
                    // kubelet gives all rights, and `Memory` a file system of its own.
                    self.dir(&format!("{VOLUMES}/{name}"), 0o777)
                };
                if volume["configMap"].is_object() {
                    let data = self.config_map.clone();
                    self.publish(&from, &data);
                }
                if volume["emptyDir"]["medium"] == "Memory" {
                    self.shell(&format!("mount -t tmpfs -o mode=0777 none {}", from.display()));
                }
                self.shell(&format!("mount --bind {} {to}", from.display()));
            }
            if is_read_only {
                self.shell(&format!("mount -o remount,bind,ro {to}"));
            }
        }
    }

    /// Gives a volume its files as kubelet's atomic writer does (pkg/volume/util/atomic_writer.go).
    fn publish(&mut self, volume: &Path, files: &[(String, String)]) {
        self.published += 1;
        let name = format!("..2026_01_01_00_00_00.{}", self.published);
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let before = fs::read_link(volume.join("..data")).ok();
        fs::create_dir(volume.join(&name)).unwrap();
        open(&volume.join(&name));
        for (file, text) in files {
            let path = volume.join(&name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            open(path.parent().unwrap());
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        symlink(&name, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        for (file, _) in files {
            // Only the first name has a link of its own.
            let first = file.split('/').next().unwrap();
            if fs::symlink_metadata(volume.join(first)).is_err() {
                symlink(format!("..data/{first}"), volume.join(first)).unwrap();
            }
        }
        if let Some(before) = before {
            fs::remove_dir_all(volume.join(before)).unwrap();
        }
    }

    /// A command in the container, with the rights and variables that the manifest gives.
    fn command(&self, args: &Value) -> Command {
        let mut command = self.in_pod();
        command.arg("chroot").arg(self.root());
        command.args(with_capabilities(&kubernetes::capabilities(&self.manifest)));
        command.arg("/usr/bin/tracer-agent");
        command.args(args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
        command.env_remove("NODE_NAME");
        for variable in self.container()["env"].as_array().unwrap() {
            assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
            command.env(variable["name"].as_str().unwrap(), NODE);
        }
        command
    }

    /// Runs a probe of the manifest.
    fn probe(&self, name: &str) -> Ended {
        let command = self.container()[name]["exec"]["command"].as_array().unwrap();
        assert_eq!(command[0], "/usr/bin/tracer-agent");
        run(&mut self.command(&json!(command[1..])))
    }
}

/// A pod whose daemon serves.
struct Pod {
    node: Node,
    daemon: Running,
}

impl Pod {
    fn start() -> Self {
        let node = Node::new();
        let mut daemon = Running::start(&mut node.command(&node.container()["args"]));
        wait_for("readiness", || {
            assert!(!daemon.has_ended(), "{}", daemon.said());
            (node.probe("readinessProbe").code() == 0).then_some(())
        });
        Self { node, daemon }
    }

    /// The answer to a request.
    #[track_caller]
    fn ask(&self, path: &str) -> String {
        let root = format!("/proc/{}/root", self.daemon.pid());
        let mut connection = UnixStream::connect(format!("{root}/run/tracer-agent/daemon.sock")).unwrap();
        let (status, answer) = http::request(&mut connection, "GET", path, None, None).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask(path)).unwrap()
    }

    /// Has the configuration read again; what was wrong with it.
    #[track_caller]
    fn read_again(&self) -> Vec<String> {
        let told = || self.get("/v1/configuration");
        let times = |told: &Value| told["reloads"].as_u64().unwrap() + told["refused"].as_u64().unwrap();
        let before = times(&told());
        self.daemon.signal(libc::SIGHUP);
        let now = wait_for("the configuration to be read", || Some(told()).filter(|now| times(now) > before));
        serde_json::from_value(now["last"]["mistakes"].clone()).unwrap()
    }

    /// Waits until the configuration is accepted: it is read for changes in its directory, too, and what is
    /// read first may be that of before.
    #[track_caller]
    fn is_accepted(&self) {
        wait_for("the configuration to be accepted", || self.read_again().is_empty().then_some(()));
    }

    /// Waits until it is refused, for its directory.
    #[track_caller]
    fn is_refused(&self, why: &str) {
        wait_for(&format!("the configuration to be refused, as {why}"), || {
            let mistakes = self.read_again();
            (mistakes.len() == 1 && mistakes[0].contains("/etc/tracer-agent")).then_some(())
        });
    }
}

#[test]
fn the_manifests_daemon_starts_and_follows_its_config_map() {
    let mut pod = Pod::start();
    assert_eq!(pod.node.probe("livenessProbe").code(), 0);
    let metrics = pod.ask("/v1/metrics");
    assert!(metrics.contains(&format!("tracer_agent_host_info{{host=\"{NODE}\"}} 1")), "{metrics}");
    // The port that the manifest names is listened to.
    let port = pod.node.container()["ports"][0]["containerPort"].as_u64().unwrap();
    let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", pod.daemon.pid())).unwrap();
    let is_listener = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.get(1).is_some_and(|own| own.ends_with(&format!(":{port:04X}"))) && words.get(3) == Some(&"0A")
    };
    assert!(sockets.lines().any(is_listener), "{sockets}");
    // A new version of the ConfigMap, with a file for `conf.d`.
    let mut files = pod.node.config_map.clone();
    let session = "[[sessions.one.channels]]\nrules = [{ what = { events = \"sched:sched_switch\" } }]\n";
    files.push(("conf.d/10-one.toml".to_owned(), session.to_owned()));
    let volume = pod.node.on_disk(VOLUMES).join("config");
    pod.node.publish(&volume, &files);
    wait_for("the session", || {
        let sessions = pod.get("/v1/sessions");
        (sessions[0]["name"] == "one" && sessions[0]["active"] == true).then_some(())
    });
    // And the next one, whose links are the same.
    files.pop();
    pod.node.publish(&volume, &files);
    wait_for("the session to end", || (pod.get("/v1/sessions") == json!([])).then_some(()));
    let output = pod.node.on_disk("host/state/sessions/one");
    assert!(fs::read_dir(output).unwrap().count() >= 1, "what it has recorded is on the node");
    pod.daemon.signal(libc::SIGTERM);
    pod.daemon.wait().expect(0);
}

#[test]
fn only_what_nobody_else_can_change_in_effect_is_accepted() {
    let pod = Pod::start();
    let (node, root) = (&pod.node, pod.node.root());
    let volume = node.on_disk(VOLUMES).join("config");
    let (from, etc) = (volume.display(), root.join("etc/tracer-agent"));
    pod.is_accepted();
    // A Secret's mode.
    node.dir(&format!("{VOLUMES}/config"), 0o1777);
    pod.is_accepted();
    node.shell(&format!("mount -o remount,bind,rw {}", etc.display()));
    pod.is_refused("others add files");
    node.dir(&format!("{VOLUMES}/config"), 0o777);
    pod.is_refused("others exchange files");
    node.shell(&format!("mount -o remount,bind,ro {}", etc.display()));
    pod.is_accepted();
    // The way to it on the node is as open as its closest directory.
    for (path, mode) in [("kubelet", 0o755), ("kubelet/pods", 0o755)] {
        node.dir(path, mode);
    }
    pod.is_refused("all pass");
    node.dir("kubelet", 0o750);
    pod.is_accepted();
    for (owner, group) in [(OTHER, 0), (0, OTHER)] {
        chown(node.on_disk("kubelet"), Some(owner), Some(group)).unwrap();
        pod.is_refused("others own the directory that closes the way");
    }
    chown(node.on_disk("kubelet"), Some(0), Some(0)).unwrap();
    pod.is_accepted();
    // Another way to it, in the container and on the node.
    let mnt = root.join("mnt");
    node.shell(&format!("mount --bind {from} {}", mnt.display()));
    pod.is_refused("it is writable in the container");
    node.shell(&format!("mount -o remount,bind,ro {}", mnt.display()));
    pod.is_accepted();
    node.shell(&format!("umount {}", mnt.display()));
    let public = tempfile::tempdir().unwrap();
    fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let on_node = |args: &[&str]| {
        run(program(Path::new("/"), args[0], &args[1..]).arg(public.path())).expect(0);
    };
    on_node(&["mount", "--bind", volume.to_str().unwrap()]);
    pod.is_refused("it is writable on the node");
    on_node(&["mount", "-o", "remount,bind,ro"]);
    pod.is_accepted();
    on_node(&["umount"]);
    // Another user's link, directory and file.
    let link = volume.join("agent.toml");
    fs::remove_file(&link).unwrap();
    let of_other = node.dir("of-other", 0o755);
    fs::write(of_other.join("agent.toml"), "").unwrap();
    fs::rename(of_other.join("agent.toml"), volume.join("agent.toml")).unwrap();
    pod.is_accepted();
    chown(&link, Some(OTHER), None).unwrap();
    pod.is_refused("another user owns the file");
}

#[test]
fn the_credentials_of_a_secret_are_read() {
    let secret = Tmpfs::mount("mode=1777");
    let data = secret.path().join("..2026_01_01_00_00_00.1");
    fs::create_dir(&data).unwrap();
    let file = data.join("credentials");
    fs::write(&file, "AWS_ACCESS_KEY_ID = \"a\"\nAWS_SECRET_ACCESS_KEY = \"b\"\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
    symlink("..2026_01_01_00_00_00.1", secret.path().join("..data")).unwrap();
    symlink("..data/credentials", secret.path().join("credentials")).unwrap();
    let text = format!(
        "[upload]\nurl = \"s3://traces\"\nendpoint = \"https://127.0.0.1:1\"\ncredentials_file = \"{}/credentials\"\n",
        secret.path().display()
    );
    let daemon = Daemon::start_configured(&text);
    assert_eq!(daemon.tell("GET", "/v1/configuration", None)["last"]["failures"], json!([]));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
    let daemon = Daemon::start_configured(&text);
    let failures = daemon.tell("GET", "/v1/configuration", None)["last"]["failures"].clone();
    assert_eq!(failures.as_array().unwrap().len(), 1, "{failures}");
}

#[test]
fn the_rings_of_the_configuration_take_half_of_the_control_groups_memory() {
    let group = MemoryGroup::make("budget", 1 << 30);
    let join = format!("echo $$ > {}; exec \"$@\"", group.dir().join("cgroup.procs").display());
    let starter = ["sh", "-ec", &join, "sh"].map(str::to_owned);
    let daemon = Daemon::start_configured_through(&starter, "");
    let keeping = |size: &str| {
        format!(
            "[sessions.one]\nmode = \"snapshot\"\nkeep = {{ size = \"{size}\" }}\n[[sessions.one.channels]]\nrules = [{{ what = \
             {{ events = \"sched:sched_switch\" }} }}]\n"
        )
    };
    let failures = |told: &Value| told["failures"].as_array().unwrap().len();
    let refused = daemon.configure(&keeping("1G"));
    assert_eq!((failures(&refused), refused["mistakes"].clone()), (1, json!([])), "{refused}");
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), json!([]));
    let recorded = daemon.configure(&keeping("16M"));
    assert_eq!(failures(&recorded), 0, "{recorded}");
    // The configuration's own budget is what it says.
    let larger = daemon.configure(&format!("budget.memory = \"4M\"\n{}", keeping("16M")));
    assert_eq!(failures(&larger), 1, "{larger}");
}

#[test]
fn the_command_line_the_environment_and_the_configuration_name_the_host() {
    let host = |daemon: &Daemon| {
        let metrics = daemon.metrics_as(ROOT, false);
        let line =
            metrics.lines().find(|line| line.starts_with("tracer_agent_host_info{")).unwrap().to_owned();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let text = "host = \"of-file\"\n";
    let daemon = Daemon::start_configured(text);
    assert_eq!(host(&daemon), "of-file");
    daemon.configure("host = \"of-another\"\n");
    assert_eq!(host(&daemon), "of-another");
    let mut daemon = daemon.with_environment("NODE_NAME", "of-node");
    assert_eq!(host(&daemon), "of-node");
    daemon.end().expect(0);
    daemon.add_options(&["--host", "of-line"]);
    daemon.start_again();
    assert_eq!(host(&daemon), "of-line");
    daemon.configure(text);
    assert_eq!(host(&daemon), "of-line");
    // Traces have it, too.
    let out = daemon.path().join("out");
    let calls =
        json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.session(ROOT, "one", &out, &[calls]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let file = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let report = run(agent(daemon.path(), ["report", "--uname"]).arg(file)).expect(0);
    assert!(report.out.contains(" of-line "), "{}", report.out);
}
