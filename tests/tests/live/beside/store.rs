//! `put`, `get`, `ls`, and reports of objects, against a server of S3 that was not written here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration_tests::harness::{Running, agent, program, run, wait_for};
use integration_tests::made_up::MadeUp;
use integration_tests::object_store::{BUCKET, Faults, Moto, Numbers, Proxy, has_exactly, sha256};

/// Bytes of a trace that comes in parts of 5 MiB.
const LARGE: usize = 42 << 20;
/// Its parts.
const LARGE_PARTS: u64 = 9;

/// A command line of the agent that has what the environment says of a store, and nothing else of it.
fn with_store(dir: &Path, endpoint: &str, args: &[&str]) -> Command {
    let mut command = agent(dir, args);
    command
        .args(["--allow-http"])
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", "testing")
        .env("AWS_SECRET_ACCESS_KEY", "testing-secret")
        .env("AWS_REGION", "us-east-1")
        .env_remove("AWS_SESSION_TOKEN")
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy");
    command
}

fn url() -> String {
    format!("s3://{BUCKET}/fleet")
}

/// A small trace.
fn small_trace(path: &Path) {
    let mut trace = MadeUp::new(&["sched"]);
    for number in 0..50 {
        trace.wake((1_000_000_000 + number * 1000, 0), 1, 2);
    }
    trace.write(path);
}

/// Traces that differ in what is appended to them, which no reader looks at.
fn many(dir: &Path, count: usize) -> Vec<PathBuf> {
    let model = dir.join("model");
    small_trace(&model);
    let model = fs::read(model).unwrap();
    (0..count)
        .map(|number| {
            let path = dir.join(format!("trace-{number:03}.dat"));
            fs::write(&path, [model.as_slice(), &number.to_le_bytes()].concat()).unwrap();
            path
        })
        .collect()
}

/// A file of bytes that repeat nowhere.
fn large(dir: &Path) -> PathBuf {
    let mut numbers = Numbers::new(0x9e37_79b9_7f4a_7c15);
    let bytes: Vec<u8> = (0..LARGE / 8).flat_map(|_| numbers.below(u64::MAX).to_le_bytes()).collect();
    let path = dir.join("large.dat");
    fs::write(&path, bytes).unwrap();
    path
}

/// Ends a process as the system would that has no memory left.
fn kill(process: Running) {
    process.signal(libc::SIGKILL);
    process.wait();
}

fn file_args<'a>(options: &[&'a str], files: &'a [PathBuf], url: &'a str) -> Vec<&'a str> {
    let mut args = options.to_vec();
    args.extend(files.iter().map(|file| file.to_str().unwrap()));
    args.push(url);
    args
}

/// Traces of a trial: 500 in five of them.
const TRACES: usize = 100;

mod soak {
    use super::*;

    #[test]
    fn traces_arrive_once_through_a_bad_network() {
        let dir = tempfile::tempdir().unwrap();
        let count = TRACES * integration_tests::soak();
        let files = many(dir.path(), count);
        let moto = Moto::start();
        let faults = Faults { unavailable: 8, cut_request: 4, cut_answer: 4, delay: 5 };
        let proxy = Proxy::start(moto.address(), faults, 0x00c0_ffee);
        fs::create_dir(dir.path().join("state")).unwrap();
        let url = url();
        let args = file_args(&["put", "--state", "state", "--max-backoff", "1s"], &files, &url);
        let mut put = Running::start(&mut with_store(dir.path(), &proxy.url(), &args));
        wait_for("a fifth to be stored", || (put.written().lines().count() >= count / 5).then_some(()));
        proxy.set_down(true);
        put.wait_until_said("cannot", 1);
        let stored = put.written().lines().count();
        assert!(stored < count, "the server was down before all were stored");
        proxy.set_down(false);
        let ended = put.wait().expect(0);
        assert_eq!(ended.out.lines().collect::<BTreeSet<_>>().len(), count);
        assert!(proxy.requests().iter().any(|request| request.status == 503), "the network was bad");
        has_exactly(&moto, &files);
    }
}

#[test]
fn a_killed_upload_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let files = many(dir.path(), 60);
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address(), Faults { delay: 20, ..Faults::default() }, 7);
    fs::create_dir(dir.path().join("state")).unwrap();
    let url = url();
    let args = file_args(&["put", "--state", "state"], &files, &url);
    for stored in [5, 20] {
        let put = Running::start(&mut with_store(dir.path(), &proxy.url(), &args));
        wait_for("some to be stored", || (put.written().lines().count() >= stored).then_some(()));
        kill(put);
    }
    // What the journal has is enough: the files are not named again.
    let rest = file_args(&["put", "--state", "state"], &files[..1], &url);
    run(&mut with_store(dir.path(), &proxy.url(), &rest)).expect(0);
    has_exactly(&moto, &files);
    // And again there is nothing to do.
    let before = proxy.requests().len();
    run(&mut with_store(dir.path(), &proxy.url(), &args)).expect(0);
    let puts = proxy.requests()[before..].iter().filter(|request| request.method == "PUT").count();
    assert_eq!(puts, 0, "what is stored is not sent again");
}

#[test]
fn parts_that_were_sent_are_not_sent_again_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = large(dir.path());
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address(), Faults::default(), 3);
    fs::create_dir(dir.path().join("state")).unwrap();
    let url = url();
    let files = [file];
    let args = file_args(&["put", "--state", "state", "--part-size", "5MiB"], &files, &url);
    let put = Running::start(&mut with_store(dir.path(), &proxy.url(), &args));
    wait_for("four parts to be sent", || (proxy.parts().len() >= 4).then_some(()));
    kill(put);
    let before = proxy.parts();
    assert!((before.len() as u64) < LARGE_PARTS, "it was killed in the middle");
    run(&mut with_store(dir.path(), &proxy.url(), &args)).expect(0);
    let parts = proxy.parts();
    assert_eq!(parts.len() as u64, LARGE_PARTS);
    // One may have been taken that the journal did not have yet when the process was killed.
    assert!(parts.values().sum::<u64>() <= LARGE_PARTS + 1, "{parts:?}");
    has_exactly(&moto, &files);
}

#[test]
fn what_was_uploaded_is_listed_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let moto = Moto::start();
    let endpoint = format!("http://{}", moto.address());
    let mut files = many(dir.path(), 2);
    files.push(large(dir.path()));
    let url = url();
    let args = file_args(&["put", "--site", "lab", "--session", "web"], &files, &url);
    run(&mut with_store(dir.path(), &endpoint, &args)).expect(0);
    fs::create_dir(dir.path().join("ctf")).unwrap();
    fs::write(dir.path().join("ctf/metadata"), "/* CTF 1.8 */").unwrap();
    run(&mut with_store(dir.path(), &endpoint, &["put", "ctf", &url])).expect(0);

    let listed =
        run(&mut with_store(dir.path(), &endpoint, &["ls", "--json", "--session", "w*", &url])).expect(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let listed = listed["archives"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    let none = ["--until", "2020-01-01", "--host", "*"];
    let text =
        run(&mut with_store(dir.path(), &endpoint, &[&["ls", &url], &none[..]].concat())).expect(0).out;
    assert_eq!(text, "");
    let text = run(&mut with_store(dir.path(), &endpoint, &["ls", &url, "--since", "1h"])).expect(0).out;
    assert_eq!(text.lines().count(), 4);

    fs::create_dir(dir.path().join("back")).unwrap();
    let urls: Vec<_> = listed.iter().map(|one| one["url"].as_str().unwrap()).collect();
    run(&mut with_store(dir.path(), &endpoint, &[&["get", "-o", "back"], &urls[..]].concat())).expect(0);
    let back = fs::read_dir(dir.path().join("back")).unwrap().map(|entry| sha256(&entry.unwrap().path()));
    assert_eq!(back.collect::<BTreeSet<_>>(), files.iter().map(|file| sha256(file)).collect());
    // Nothing is overwritten.
    run(&mut with_store(dir.path(), &endpoint, &["get", "-o", "back", urls[0]])).expect(1).says(&["already"]);

    let tar = text.lines().find(|line| line.contains(".tar")).unwrap().split(' ').next_back().unwrap();
    run(&mut with_store(dir.path(), &endpoint, &["get", tar])).expect(0);
    let name = tar.rsplit('/').next().unwrap();
    let inside = run(&mut program(dir.path(), "tar", ["-tf", name])).expect(0).out;
    assert_eq!(inside, "ctf/\nctf/metadata\n");
}

#[test]
fn a_download_goes_on_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = large(dir.path());
    let moto = Moto::start();
    moto.put("fleet/large.dat", &file);
    let proxy = Proxy::start(moto.address(), Faults { delay: 200, ..Faults::default() }, 5);
    fs::create_dir(dir.path().join("back")).unwrap();
    let url = format!("{}/large.dat", url());
    let get = Running::start(&mut with_store(dir.path(), &proxy.url(), &["get", "-o", "back", &url]));
    let state = dir.path().join("back/.large.dat.part.json");
    wait_for("a range to be noted", || state.exists().then_some(()));
    kill(get);
    assert!(!dir.path().join("back/large.dat").exists());
    let noted: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    let noted = noted["ranges"].as_array().unwrap().len();
    // The first proxy may still be at work for the one that was killed.
    let other = Proxy::start(moto.address(), Faults::default(), 5);
    run(&mut with_store(dir.path(), &other.url(), &["get", "-o", "back", &url])).expect(0);
    let ranges = other.requests().iter().filter(|request| request.method == "GET").count();
    assert_eq!(ranges, LARGE.div_ceil(4 << 20) - noted, "what was there is not fetched again");
    assert_eq!(sha256(&dir.path().join("back/large.dat")), sha256(&file));
}

#[test]
fn a_report_of_an_object_fetches_little_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut trace = MadeUp::new(&["sched"]);
    for number in 0..300_000 {
        let cpu = number % 2;
        trace.switch((1_000_000_000 + u64::from(number) * 1000, cpu), (number + 1, 0), number + 2);
    }
    trace.write(&dir.path().join("packed.dat"));
    let plain = ["convert", "--compression", "none", "-o", "plain.dat", "packed.dat"];
    run(&mut agent(dir.path(), plain)).expect(0);
    let file = dir.path().join("plain.dat");
    let size = file.metadata().unwrap().len();
    assert!(size > 15 << 20, "{size}");
    let moto = Moto::start();
    moto.put("fleet/plain.dat", &file);
    let proxy = Proxy::start(moto.address(), Faults::default(), 1);
    let url = format!("{}/plain.dat", url());
    let options = ["--cpu", "0", "--limit", "10"];
    let remote = run(&mut with_store(dir.path(), &proxy.url(), &[&["report", &url], &options[..]].concat()));
    let local = run(&mut agent(dir.path(), [&["report", "plain.dat"], &options[..]].concat()));
    let remote = remote.expect(0).out;
    assert_eq!(remote, local.expect(0).out);
    assert!(remote.lines().count() >= 10, "{remote}");
    let fetched: u64 = proxy.requests().iter().map(|request| request.answered).sum();
    assert!(fetched < size / 4, "{fetched} of {size} bytes were fetched");
    // All of it, where all is asked for.
    let whole = run(&mut with_store(dir.path(), &proxy.url(), &["info", "--json", &url])).expect(0).out;
    let local = run(&mut agent(dir.path(), ["info", "--json", "plain.dat"])).expect(0).out;
    let [mut whole, mut local] =
        [whole, local].map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
    for one in [&mut whole, &mut local] {
        one.as_object_mut().unwrap().remove("file");
    }
    assert_eq!(whole, local);
    let sched = |mut command: Command| {
        let ended = run(command.args(["--json", "--pid", "7"])).expect(0).out;
        serde_json::from_str::<serde_json::Value>(&ended).unwrap()
    };
    let remote = sched(with_store(dir.path(), &proxy.url(), &["analyze", "sched", &url]));
    assert_eq!(remote["threads"][0]["tid"], 7, "{remote}");
    assert_eq!(remote, sched(agent(dir.path(), ["analyze", "sched", "plain.dat"])));
}

#[test]
fn secrets_are_in_nothing_that_is_printed_or_kept() {
    const SECRETS: [&str; 4] =
        ["SWORDFISH-KEY-ID", "SWORDFISH-SECRET", "SWORDFISH-TOKEN", "SWORDFISH-SIGNATURE"];
    let dir = tempfile::tempdir().unwrap();
    let file = many(dir.path(), 1).remove(0);
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address(), Faults::default(), 1);
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>The signature is wrong: {}</Message>\
         <AWSAccessKeyId>{}</AWSAccessKeyId><SignatureProvided>{}</SignatureProvided>\
         <StringToSign>x-amz-security-token:{}</StringToSign></Error>",
        SECRETS[1], SECRETS[0], SECRETS[3], SECRETS[2]
    );
    let length = body.len();
    let credentials = dir.path().join("credentials");
    let text = format!(
        "AWS_ACCESS_KEY_ID = \"{}\"\nAWS_SECRET_ACCESS_KEY = \"{}\"\nAWS_SESSION_TOKEN = \"{}\"\n",
        SECRETS[0], SECRETS[1], SECRETS[2]
    );
    fs::write(&credentials, text).unwrap();
    fs::create_dir(dir.path().join("state")).unwrap();
    let (url, file) = (url(), file.display().to_string());
    let object = format!("{url}/x.dat");
    let commands: [&[&str]; 7] = [
        &["put", "--state", "state", &file, &url],
        &["get", &object],
        &["ls", &url],
        &["report", &object],
        &["info", &object],
        &["analyze", "sched", &object],
        // Somebody who writes credentials where they do not belong is not told them again.
        &["ls", "s3://SWORDFISH-KEY-ID:SWORDFISH-SECRET@bucket/x?X-Amz-Signature=SWORDFISH-SIGNATURE"],
    ];
    let cases = [
        (0o600, "403 Forbidden"),
        (0o600, "400 Bad Request"),
        (0o600, "404 Not Found"),
        (0o644, "403 Forbidden"),
    ];
    for (mode, status) in cases {
        fs::set_permissions(&credentials, fs::Permissions::from_mode(mode)).unwrap();
        proxy.answer(&format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ));
        for (index, command) in commands.iter().enumerate() {
            for from_file in [false, true] {
                let mut command = with_store(dir.path(), &proxy.url(), command);
                if from_file {
                    command.arg("--credentials-file").arg(&credentials);
                } else {
                    for (name, value) in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
                        .iter()
                        .zip(SECRETS)
                    {
                        command.env(name, value);
                    }
                }
                command.args(["--request-timeout", "5s"]).env("RUST_BACKTRACE", "1");
                let ended = run(&mut command);
                let lists_nothing = index == 2 && status.starts_with("404");
                assert!(ended.code() != 0 || lists_nothing, "{status} {index}: {ended:?}");
                let said = format!("{}{}", ended.out, ended.err);
                assert!(!said.contains("SWORDFISH"), "{status} {index}: {said}");
            }
        }
    }
    for entry in fs::read_dir(dir.path().join("state/uploads")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("SWORDFISH"), "{text}");
    }
}
