//! Prometheus, which `cargo xtask setup` puts in `target/prometheus`: its server, its tool, and the parsers
//! of its Python client.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    daemon::encoded,
    harness::{Ended, HANG, Running, program, run, wait_for},
    http,
};

/// A series: its name and labels, and its value.
pub type Series = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// A program of Debian's package.
fn installed(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/prometheus/usr/bin").join(name);
    assert!(path.is_file(), "Prometheus is not there: cargo xtask setup --for test");
    path
}

/// A port of the loopback interface that nobody listens at.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs promtool in a directory.
pub fn promtool(dir: &Path, args: &[&str]) -> Ended {
    run(&mut program(dir, installed("promtool").to_str().unwrap(), args))
}

/// Panics if `promtool check metrics` has anything to say of a text.
#[track_caller]
pub fn lint(text: &str) {
    let mut command = Command::new(installed("promtool"));
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = command.spawn().unwrap();
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{}: {said}\n{text}", output.status);
}

const PARSE: &str = "
import json, sys
if sys.argv[1] == 'openmetrics':
    from prometheus_client.openmetrics.parser import text_fd_to_metric_families
else:
    from prometheus_client.parser import text_fd_to_metric_families
for family in text_fd_to_metric_families(sys.stdin):
    for sample in family.samples:
        print(json.dumps([sample.name, sample.labels, sample.value]))
";

/// The series of a text as Prometheus' Python client reads them: in the format `openmetrics` or `prometheus`.
#[track_caller]
pub fn parsed(format: &str, text: &str) -> Series {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", PARSE, format]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let mut input = python.stdin.take().unwrap();
    let text = text.to_owned();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    writing.join().unwrap().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).expect(line)).map(series).collect()
}

fn series(
    (name, labels, value): (String, BTreeMap<String, String>, f64),
) -> ((String, BTreeMap<String, String>), f64) {
    ((name, labels), value)
}

/// A server that scrapes each second what a TCP address serves, and listens on the loopback interface.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    _process: Running,
}

impl Prometheus {
    /// Starts one with its data in a directory.
    pub fn start(dir: &Path, target: &str) -> Self {
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "tracer-agent", "static_configs": [{"targets": [target]}]}],
        });
        let path = dir.join("prometheus.yml");
        // What is JSON is YAML, too.
        fs::write(&path, config.to_string()).unwrap();
        let port = free_port();
        let mut command = Command::new(installed("prometheus"));
        command.arg("--config.file").arg(&path).arg("--storage.tsdb.path").arg(dir.join("prometheus"));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(dir);
        let server = Self { port, _process: Running::start(&mut command) };
        wait_for("Prometheus", || get(port, "/-/ready").filter(|(status, _)| *status == 200).map(|_| ()));
        server
    }

    /// The series that a query finds now, by their labels without `instance` and `job`.
    #[track_caller]
    pub fn query(&self, query: &str) -> Series {
        let (_, answer) = get(self.port, &format!("/api/v1/query?query={}", encoded(query))).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let found = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
        let of = |found: &Value| {
            let mut labels: BTreeMap<String, String> =
                serde_json::from_value(found["metric"].clone()).unwrap();
            labels.retain(|name, _| name != "instance" && name != "job");
            let name = labels.remove("__name__").unwrap_or_default();
            ((name, labels), found["value"][1].as_str().unwrap().parse().unwrap())
        };
        found.iter().map(of).collect()
    }

    /// The only value that a query finds.
    #[track_caller]
    pub fn value(&self, query: &str) -> f64 {
        let found = self.query(query);
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        *found.values().next().unwrap()
    }

    /// Waits until the target was scraped again, after this was called.
    #[track_caller]
    pub fn wait_for_scrape(&self) {
        let now = self.value("vector(time())");
        wait_for("a scrape", || {
            // Of what is no selector, the time is that of the query.
            let at = self.query("timestamp(up) and up == 1");
            at.values().any(|at| *at > now).then_some(())
        });
    }
}

/// The status and the body of an answer of who listens at a port of the loopback interface, if somebody does.
pub fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    connection.set_read_timeout(Some(HANG)).unwrap();
    http::request(&mut connection, "GET", path, None, None).ok()
}
