//! `analyze io`: a program with known calls, and block I/O beside what stock trace-cmd and LTTng's analyses
//! say of the same recording.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use integration_tests::analyses::{rows, tables};
use integration_tests::answers::{list, number};
use integration_tests::harness::{Ended, Running, agent, program, run, wait_for};
use integration_tests::trace_cmd::{self, Line};
use serde_json::Value;

/// Records a command with the events of the analysis, and these options.
fn record(file: &Path, options: &[&str], command: &[&OsStr]) -> Ended {
    let mut record = agent("/".as_ref(), ["record", "-q", "--for", "io", "-o"]);
    run(record.arg(file).args(options).args(command)).expect(0)
}

/// What the analysis says of a recording.
fn answer(file: &Path, args: &[&str]) -> Value {
    let mut analyze = agent("/".as_ref(), ["analyze", "io", "--json"]);
    let ended = run(analyze.arg(file).args(args)).expect(0);
    assert_eq!(ended.err, "");
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    let covered = &answer["covered"];
    assert_eq!((number(covered, "losses"), number(covered, "damaged")), (0, 0), "{covered}");
    assert_eq!(number(&answer, "left_out"), 0);
    answer
}

fn numbers<const N: usize>(value: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| number(value, name))
}

#[track_caller]
fn file<'v>(answer: &'v Value, path: &Path) -> &'v Value {
    let found = list(answer, "files").iter().find(|file| file["path"] == path.to_str().unwrap());
    found.unwrap_or_else(|| panic!("no {}", path.display()))
}

#[track_caller]
fn thread(answer: &Value, tid: u64) -> &Value {
    let found: Vec<_> = list(answer, "threads").iter().filter(|thread| thread["tid"] == tid).collect();
    assert_eq!(found.len(), 1, "{tid}: {found:?}");
    found[0]
}

/// Opens, reads, writes and syncs of a file: calls, bytes, failures.
fn of_file(file: &Value) -> [[u64; 3]; 4] {
    ["opens", "reads", "writes", "syncs"].map(|kind| numbers(&file[kind], ["times.count", "bytes", "failed"]))
}

/// Does known things with files, in threads and processes, and says who did.
const FILES: &str = r#"
import os, socket, sys, threading
base = sys.argv[1]
for name in [b"\xc3\x80", b"\xc3\x81", b"\xe9"]:
    os.close(os.open(os.fsencode(base) + b"/" + name, os.O_WRONLY | os.O_CREAT, 0o644))
a = os.open(base + "/a", os.O_RDWR | os.O_CREAT, 0o644)
for _ in range(10): os.write(a, b"x" * 1000)
os.fsync(a)
os.lseek(a, 0, 0)
while os.read(a, 3000): pass
b = os.dup(a)
os.pwrite(b, b"y" * 77, 0)
os.pwrite(os.dup2(a, 50), b"y" * 10, 0)
os.close(a)
os.pwrite(b, b"y" * 23, 0)
for path, flags in (("/missing", os.O_RDONLY), ("/missing", os.O_RDWR), ("", os.O_WRONLY)):
    try: os.open(base + path, flags)
    except OSError: pass
try: os.write(os.open(base + "/a", os.O_RDONLY), b"z")
except OSError: pass
def thread():
    global tid
    tid = threading.get_native_id()
    os.pread(b, 500, 0)
worker = threading.Thread(target=thread)
worker.start(); worker.join()
child = os.fork()
if child == 0:
    os.pread(b, 111, 0)
    os._exit(0)
os.waitpid(child, 0)
dd = os.fork()
if dd == 0:
    os.dup2(b, 1)
    os.execv("/bin/dd", ["dd", "if=/dev/zero", "bs=50", "count=4", "status=none"])
os.waitpid(dd, 0)
os.copy_file_range(b, os.open(base + "/b", os.O_WRONLY | os.O_CREAT, 0o644), 5000, 0, 0)
os.chdir(base)
os.mkdir("dir")
os.write(os.open("in", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=os.open("dir", os.O_RDONLY)), b"w" * 9)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
for _ in range(3):
    udp.sendto(b"s" * 60, udp.getsockname())
    udp.recvfrom(100)
print(os.getpid(), tid, child, dd)
"#;

/// Runs [`FILES`] while it is recorded. Its threads: the first, its other one, a copy of the process, and
/// `dd`.
fn record_files(file: &Path, base: &Path, options: &[&str]) -> [u64; 4] {
    let command = ["/usr/bin/python3", "-c", FILES].map(OsStr::new);
    let ended = record(file, options, &[&command[..], &[base.as_os_str()]].concat());
    let ids: Vec<u64> = ended.out.split_whitespace().map(|id| id.parse().unwrap()).collect();
    ids.try_into().unwrap()
}

#[test]
fn files_of_a_program_with_known_calls() {
    let dir = tempfile::tempdir().unwrap();
    let dat = dir.path().join("trace.dat");
    // Paths that are longer than what is copied of them unless the analysis is recorded for.
    let base = dir.path().join("files-".repeat(11));
    fs::create_dir(&base).unwrap();
    let [main, worker, child, dd] = record_files(&dat, &base, &[]);
    let all = answer(&dat, &[]);
    let path = |name: &str| base.join(name);

    // Five reads of the first ones, one of them of nothing, one of the thread, one of the child, one of the
    // copy.
    let a = file(&all, &path("a"));
    let writes = 10_000 + 77 + 10 + 23 + 4 * 50;
    assert_eq!(of_file(a), [[2, 0, 0], [8, 10_000 + 500 + 111 + 5000, 0], [18, writes, 1], [1, 0, 0]]);
    assert_eq!(
        (a["kind"].as_str(), a["writes"]["errors"][0]["name"].as_str()),
        (Some("file"), Some("EBADF"))
    );
    for kind in ["opens", "reads", "writes", "syncs"] {
        let [least, average, most] =
            numbers(&a[kind], ["times.least_ns", "times.average_ns", "times.most_ns"]);
        assert!(0 < least && least <= average && average <= most, "{a}");
    }
    assert_eq!(of_file(file(&all, &path("b"))), [[1, 0, 0], [0, 0, 0], [1, 5000, 0], [0, 0, 0]]);
    let missing = file(&all, &path("missing"));
    assert_eq!(of_file(missing)[0], [2, 0, 2]);
    assert_eq!(missing["opens"]["errors"][0]["name"], "ENOENT");
    assert_eq!(file(&all, &base)["opens"]["errors"][0]["name"], "EISDIR");
    // Names that differ in bytes that the kernel's own copies have no more, and one that is not UTF-8.
    for name in ["\u{c0}", "\u{c1}", r"\xe9"] {
        assert_eq!(of_file(file(&all, &path(name)))[0], [1, 0, 0], "{name}");
    }
    // One that begins at a directory that is known, which was opened by a path that does not begin at the
    // root.
    assert_eq!(of_file(file(&all, "dir/in".as_ref()))[2], [1, 9, 0]);
    let is_socket = |file: &&Value| file["kind"] == "socket" && file["tid"] == main;
    let sockets: Vec<_> = list(&all, "files").iter().filter(is_socket).map(of_file).collect();
    assert_eq!(sockets, [[[0, 0, 0], [3, 180, 0], [3, 180, 0], [0, 0, 0]]]);

    let sums = |tid: u64, kind: &str| numbers(&thread(&all, tid)[kind], ["count", "bytes", "failed"]);
    assert_eq!(sums(worker, "reads"), [1, 500, 0]);
    assert_eq!(sums(child, "reads"), [1, 111, 0]);
    assert_eq!(sums(dd, "writes"), [4, 200, 0]);
    assert_eq!((sums(main, "syncs"), sums(worker, "writes")), ([1, 0, 0], [0, 0, 0]));
    let of_main = thread(&all, main);
    let parts = ["opens.total_ns", "reads.total_ns", "writes.total_ns", "syncs.total_ns"];
    // A copy is in two of them; closing is in none.
    assert!(numbers(of_main, parts).iter().all(|part| *part != 0 && *part <= number(of_main, "total_ns")));

    // Threads that are asked about.
    let of = answer(&dat, &["--pid", &worker.to_string(), "--pid", &child.to_string()]);
    assert_eq!(of_file(file(&of, &path("a"))), [[0, 0, 0], [2, 611, 0], [0, 0, 0], [0, 0, 0]]);
    assert_eq!(list(&of, "threads").len(), 2);
    let of = answer(&dat, &["--comm", "d?"]);
    assert_eq!(of_file(file(&of, &path("a"))), [[0, 0, 0], [0, 0, 0], [4, 200, 0], [0, 0, 0]]);
    // By CPU, all of it.
    let cpus = fs::read_to_string("/sys/devices/system/cpu/present").unwrap();
    let of = answer(&dat, &["--cpu", cpus.trim()]);
    assert_eq!(of_file(file(&of, &path("a"))), of_file(a));

    let text = run(agent("/".as_ref(), ["analyze", "io"]).arg(&dat).args(["-n", "10000"])).expect(0).out;
    for part in
        ["\nBlock devices", "\nFiles", "\nThreads", "open ENOENT 2", &format!("  {}\n", path("b").display())]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_was_open_before_is_known_from_the_state_at_the_beginning() {
    // Of two threads, the second one uses what the first one has opened. It goes on when the recorder has
    // looked.
    const WRITER: &str = r#"
import os, sys, threading, time
base = sys.argv[1]
file = os.open(os.fsencode(base) + b"/before\xff", os.O_RDWR | os.O_CREAT, 0o644)
def write():
    while not os.path.exists(base + "/go"): time.sleep(0.01)
    for _ in range(7): os.write(file, b"x" * 30)
    os.rename(base + "/go", base + "/gone")
thread = threading.Thread(target=write)
thread.start(); thread.join()
"#;
    const COMMAND: &str = r#"
until [ -e "$1/trace.dat.spool/state" ]; do sleep 0.05; done
: >"$1/go"
until [ -e "$1/gone" ]; do sleep 0.05; done
"#;
    let dir = tempfile::tempdir().unwrap();
    let (dat, before) = (dir.path().join("trace.dat"), dir.path().join(OsStr::from_bytes(b"before\xff")));
    let writer = Running::start(program("/".as_ref(), "/usr/bin/python3", ["-c", WRITER]).arg(dir.path()));
    wait_for("an open file", || before.exists().then_some(()));
    let command = ["sh", "-c", COMMAND, "sh"].map(OsStr::new);
    record(&dat, &[], &[&command[..], &[dir.path().as_os_str()]].concat());
    writer.wait().expect(0);
    let answer = answer(&dat, &[]);
    let before = file(&answer, &dir.path().join(r"before\xff"));
    assert_eq!(of_file(before), [[0, 0, 0], [0, 0, 0], [7, 210, 0], [0, 0, 0]]);
}

/// A loop device of a new file, which goes when this is dropped.
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn new(dir: &Path) -> Self {
        let image = dir.join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let ended = run(program(dir, "losetup", ["--find", "--show"]).arg(&image)).expect(0);
        Self { path: ended.out.trim().into() }
    }

    /// Its numbers, as the kernel has them.
    fn numbers(&self) -> String {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap().trim().to_owned()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(program("/".as_ref(), "losetup", ["--detach"]).arg(&self.path));
    }
}

/// Reads and writes that end at the device, several at a time, and what empties its cache.
const BLOCK: &str = r#"
for n in 0 1 2 3; do
    dd if=/dev/zero of="$1" bs=64k seek=$((n * 100)) count=40 oflag=direct conv=notrunc status=none &
done
wait
dd if="$1" of=/dev/null bs=16k count=50 iflag=direct status=none
dd if=/dev/zero of="$1" bs=4k count=300 seek=1000 conv=notrunc,fsync status=none
"#;

fn record_block(file: &Path, device: &LoopDevice, options: &[&str]) {
    let command = ["sh", "-c", BLOCK, "sh"].map(OsStr::new);
    record(file, options, &[&command[..], &[device.path.as_os_str()]].concat());
}

/// A request, as lines of stock trace-cmd tell of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    by: u32,
    operation: &'static str,
    bytes: u64,
    issued: u64,
    done: u64,
}

fn word<'l>(line: &'l Line, name: &str) -> &'l str {
    let words = line.fields.split_whitespace().filter_map(|word| word.split_once('='));
    words.into_iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no {name} in {line:?}")).1
}

/// The requests of a device that were done, from the report of stock trace-cmd.
fn requests(file: &Path, device: &str) -> Vec<Told> {
    let (major, minor) = device.split_once(':').unwrap();
    let device = (major.parse::<u64>().unwrap() << 20 | minor.parse::<u64>().unwrap()).to_string();
    let mut open: BTreeMap<(&str, u64), Told> = BTreeMap::new();
    let mut done = Vec::new();
    let lines = trace_cmd::lines(&trace_cmd::report(file, &["-R", "-t"]));
    let is_told = |line: &&Line| ["block_rq_issue", "block_rq_complete"].contains(&line.event.as_str());
    for line in lines.iter().filter(is_told).filter(|line| word(line, "dev") == device) {
        let (sectors, rwbs) = (word(line, "nr_sector").parse::<u64>().unwrap(), word(line, "rwbs"));
        let operation = match rwbs.trim_start_matches("FF").trim_start_matches('F').chars().next() {
            Some('R') => "read",
            Some('W') => "write",
            None => "flush",
            _ => panic!("{line:?}"),
        };
        // A flush has a sector when it is issued, and none when it is done.
        let sector = if sectors == 0 { 0 } else { word(line, "sector").parse().unwrap() };
        if line.event == "block_rq_issue" {
            let bytes = word(line, "bytes").parse().unwrap();
            let told = Told { by: line.pid, operation, bytes, issued: line.time, done: 0 };
            assert!(open.insert((operation, sector), told).is_none(), "{line:?}");
        } else if sectors != 0 || operation == "flush" {
            let told = open.remove(&(operation, sector)).unwrap_or_else(|| panic!("{line:?}"));
            assert_eq!(told.bytes, sectors * 512, "{line:?}");
            done.push(Told { done: line.time, ..told });
        }
    }
    assert!(open.is_empty(), "{open:?}");
    done
}

/// Requests: how many, how much, and for how long.
fn sums<K: Ord>(requests: &[Told], key: impl Fn(&Told) -> K) -> BTreeMap<K, [u64; 3]> {
    let mut sums: BTreeMap<K, [u64; 3]> = BTreeMap::new();
    for told in requests {
        let [count, bytes, time] = sums.entry(key(told)).or_default();
        (*count, *bytes, *time) = (*count + 1, *bytes + told.bytes, *time + told.done - told.issued);
    }
    sums
}

#[test]
fn requests_are_as_stock_trace_cmd_reports_them() {
    let dir = tempfile::tempdir().unwrap();
    let dat = dir.path().join("trace.dat");
    let device = LoopDevice::new(dir.path());
    record_block(&dat, &device, &[]);
    let numbers_of = device.numbers();
    let requests = requests(&dat, &numbers_of);
    let answer = answer(&dat, &[]);
    let told = list(&answer, "devices").iter().find(|of| of["device"] == *numbers_of).unwrap();
    assert_eq!(told["name"].as_str(), device.path.file_name().unwrap().to_str());

    let of = |operations: &Value| -> BTreeMap<String, [u64; 3]> {
        let of = |of: &Value| {
            assert_eq!(numbers(of, ["failed", "requeued", "unfinished"]), [0, 0, 0], "{of}");
            (
                of["operation"].as_str().unwrap().to_owned(),
                numbers(of, ["times.count", "bytes", "times.total_ns"]),
            )
        };
        operations.as_array().unwrap().iter().map(of).collect()
    };
    let expected = sums(&requests, |told| told.operation.to_owned());
    assert_eq!(of(&told["operations"]), expected);
    assert!(
        expected["read"][0] >= 50 && expected["write"][0] > 160 && expected["flush"][0] >= 1,
        "{expected:?}"
    );
    assert!(expected["write"][1] >= 4 * 40 * 65_536 + 300 * 4096, "{expected:?}");

    // By who gave them to the driver.
    let mut by: BTreeMap<(u64, String), [u64; 3]> = BTreeMap::new();
    for requester in list(&answer, "requesters").iter().filter(|of| of["device"] == *numbers_of) {
        for (operation, sums) in of(&requester["operations"]) {
            assert_eq!(by.insert((number(requester, "tid"), operation), sums), None);
        }
    }
    assert_eq!(by, sums(&requests, |told| (u64::from(told.by), told.operation.to_owned())));
    assert!(by.len() >= 6, "{by:?}");

    // How many there were at a time.
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for told in &requests {
        changes.extend([(told.issued, 1), (told.done, -1)]);
    }
    changes.sort_unstable();
    let (mut depth, mut most, mut busy, mut since) = (0_i64, 0, 0, 0);
    for (time, change) in changes {
        busy += if depth > 0 { time - since } else { 0 };
        (depth, since) = (depth + change, time);
        most = most.max(depth);
    }
    assert_eq!(numbers(told, ["busy_ns", "most_depth", "unmatched"]), [busy, most as u64, 0]);
    let covered = &answer["covered"];
    let whole = number(covered, "to_ns") - number(covered, "from_ns");
    let average = expected.values().map(|[.., time]| *time).sum::<u64>() as f64 / whole as f64;
    let found = told["average_depth"].as_f64().unwrap();
    assert!((found - average).abs() <= average * 0.01, "{found} for {average}");
}

#[test]
fn lttng_analyses_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (dat, export) = (dir.path().join("trace.dat"), dir.path().join("export"));
    let device = LoopDevice::new(dir.path());
    // They follow threads by the switches of CPUs.
    let switches = ["-e", "sched", "-e", "task"];
    record_block(&dat, &device, &switches);
    run(agent("/".as_ref(), ["export", "--format", "lttng"]).arg(&dat).arg(&export)).expect(0);
    let ours = answer(&dat, &[]);
    let numbers_of = device.numbers();
    let told = list(&ours, "devices").iter().find(|of| of["device"] == *numbers_of).unwrap();
    // What has no sectors is no request for them.
    let transfers = || list(told, "operations").iter().filter(|of| of["operation"] != "flush");
    let sum = |name: &str| transfers().map(|of| number(of, name)).sum::<u64>();
    let name = device.path.file_name().unwrap().to_str().unwrap();
    let of_disk = |table: &Value| {
        let row = rows(table).iter().find(|row| row[0]["name"] == *name).unwrap_or_else(|| panic!("{table}"));
        row.as_array()
            .unwrap()
            .iter()
            .skip(1)
            .map(|cell| cell["value"].as_f64().unwrap())
            .collect::<Vec<f64>>()
    };
    let disks = &tables(&export, "lttng-iolatencystats-mi", &[])[1];
    let [count, least, average, most, _] = of_disk(disks)[..] else { panic!("{disks}") };
    let least_of = transfers().map(|of| number(of, "times.least_ns")).min().unwrap();
    let most_of = transfers().map(|of| number(of, "times.most_ns")).max().unwrap();
    assert_eq!([count, least, most].map(|value| value as u64), [sum("times.count"), least_of, most_of]);
    let average_of = sum("times.total_ns") as f64 / sum("times.count") as f64;
    assert!((average - average_of).abs() < 1.0, "{average} for {average_of}");
    let usage = tables(&export, "lttng-iousagetop-mi", &["--limit", "100000"]);
    assert_eq!(of_disk(&usage[6]), [(sum("bytes") / 512) as f64]);
    assert_eq!(of_disk(&usage[7]), [sum("times.count") as f64]);

    // They know whose a call is by the switch before it on its CPU, and now and then take those of one thread
    // for another's.
    let mut differences = Vec::new();
    for number in 0..4 {
        match files_and_threads(&dir.path().join(number.to_string()), &switches) {
            Ok(()) => return,
            Err(difference) => differences.push(difference),
        }
    }
    panic!("{differences:#?}");
}

/// Compares files and threads of a program, but for what a later kernel than theirs can do: copying from file
/// to file. Gives the first difference.
fn files_and_threads(dir: &Path, switches: &[&str]) -> Result<(), String> {
    let same = |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
        let [found, expected] = [found, expected].map(|value| format!("{value:?}"));
        if found == expected { Ok(()) } else { Err(format!("{what}: {found}, not {expected}")) }
    };
    let (dat, export, base) = (dir.join("files.dat"), dir.join("files"), dir.join("base"));
    fs::create_dir_all(&base).unwrap();
    let [main, worker, child, dd] = record_files(&dat, &base, switches);
    run(agent("/".as_ref(), ["export", "--format", "lttng"]).arg(&dat).arg(&export)).expect(0);
    let ours = answer(&dat, &[]);
    let usage = tables(&export, "lttng-iousagetop-mi", &["--limit", "100000"]);
    let of_file = |table: &Value, path: &Path| {
        let row = rows(table).iter().find(|row| row[0]["path"] == path.to_str().unwrap());
        row.map_or(0, |row| row[1]["value"].as_u64().unwrap())
    };
    // Descriptors of `dup2` are of their file, those of `fcntl` with `F_DUPFD_CLOEXEC` of none, and what
    // comes of them.
    let a = file(&ours, &base.join("a"));
    let reads = number(a, "reads.bytes") - (500 + 111 + 5000);
    same("reads of a", &of_file(&usage[2], &base.join("a")), &reads)?;
    let writes = number(a, "writes.bytes") - (77 + 23 + 4 * 50);
    same("writes of a", &of_file(&usage[3], &base.join("a")), &writes)?;
    same("writes of b", &of_file(&usage[3], &base.join("b")), &0)?;
    let of_thread = |table: &Value, tid: u64| {
        let row =
            rows(table).iter().find(|row| row[0]["tid"] == tid).unwrap_or_else(|| panic!("{tid}: {table}"));
        row[1]["value"].as_u64().unwrap()
    };
    for (tid, copied) in [(main, 5000), (worker, 0), (child, 0), (dd, 0)] {
        let of = thread(&ours, tid);
        let theirs = [&usage[0], &usage[1]].map(|table| of_thread(table, tid));
        let expected = numbers(of, ["reads.bytes", "writes.bytes"]).map(|bytes| bytes - copied);
        same(&format!("thread {tid}"), &theirs, &expected)?;
    }
    Ok(())
}

#[test]
fn json_is_as_its_schema_says() {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
for error in jsonschema.Draft202012Validator({**schema['$defs']['io'], '$defs': schema['$defs']}).iter_errors(json.load(open(sys.argv[2]))):
    print(list(error.absolute_path), error.message[:200])
";
    let dir = tempfile::tempdir().unwrap();
    let (dat, json) = (dir.path().join("trace.dat"), dir.path().join("io.json"));
    record_files(&dat, dir.path(), &[]);
    fs::write(&json, answer(&dat, &[]).to_string()).unwrap();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/analyses.schema.json");
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", SCRIPT]);
    let ended = run(python.arg(schema).arg(&json)).expect(0);
    assert_eq!(ended.out, "");
}
