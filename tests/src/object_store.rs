//! An object store on this machine: moto's server, which `cargo xtask setup` installs in `target/moto`, and a
//! proxy before it that counts, delays, cuts and refuses.
#![expect(clippy::missing_panics_doc, reason = "every one of these fails a test by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::harness::{program, run};
use crate::interpreter::Interpreter;

/// The bucket that there is.
pub const BUCKET: &str = "traces";
/// The most that a head of a request has.
const HEAD: usize = 64 << 10;

/// Serves S3 on a free port, which is the first line it prints, and does what lines on its standard input
/// request: each is a list of a command and its arguments in JSON, and is answered with one of texts.
const SERVER: &str = "
import hashlib, json, logging, os, sys, urllib.request
import boto3
from moto.server import ThreadedMotoServer
logging.getLogger('werkzeug').disabled = True
server = ThreadedMotoServer('127.0.0.1', 0, verbose=False)
server.start()
url = 'http://%s:%d' % server.get_host_and_port()
s3 = boto3.client('s3', endpoint_url=url, region_name='us-east-1',
                  aws_access_key_id='testing', aws_secret_access_key='testing')
def reset(bucket):
    urllib.request.urlopen(url + '/moto-api/reset', b'').read()
    s3.create_bucket(Bucket=bucket)
def put(bucket, key, path):
    with open(path, 'rb') as body: s3.put_object(Bucket=bucket, Key=key, Body=body)
def get(bucket, key, path):
    s3.download_file(bucket, key, path)
def put_all(bucket, prefix, dir):
    for at, _, names in os.walk(dir):
        for name in names:
            path = os.path.join(at, name)
            s3.upload_file(path, bucket, prefix + '/' + os.path.relpath(path, dir))
def keys(bucket):
    for page in s3.get_paginator('list_objects_v2').paginate(Bucket=bucket):
        for found in page.get('Contents', []): yield found['Key']
def list_all(bucket):
    for key in keys(bucket):
        got = s3.get_object(Bucket=bucket, Key=key)
        body = got['Body'].read()
        yield json.dumps({'key': key, 'size': len(body), 'sha256': hashlib.sha256(body).hexdigest(),
                          'metadata': got['Metadata']})
    for upload in s3.list_multipart_uploads(Bucket=bucket).get('Uploads', []):
        yield json.dumps({'upload': upload['Key']})
print(server.get_host_and_port()[1], flush=True)
for line in sys.stdin:
    command, *args = json.loads(line)
    print(json.dumps(list(globals()[command](*args) or [])), flush=True)
os._exit(0)
";

/// A server of S3 with an empty bucket. The process is kept for the next test in this process, since it takes
/// seconds to start.
#[derive(Debug)]
pub struct Moto {
    /// There until this is dropped.
    server: Option<Mutex<Server>>,
    address: SocketAddr,
}

/// The process, and where it serves.
#[derive(Debug)]
struct Server {
    process: Interpreter,
    address: SocketAddr,
}

/// Servers that no test uses.
static IDLE: Mutex<Vec<Server>> = Mutex::new(Vec::new());

fn site() -> PathBuf {
    let site = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/moto");
    assert!(site.is_dir(), "moto is not there: cargo xtask setup --for test");
    site
}

/// Numbers that are the same in every run.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Those that begin with a seed, which is not 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

impl Server {
    #[track_caller]
    fn start() -> Self {
        let mut process = Interpreter::start(SERVER, &site());
        let port: u16 = process.line().trim().parse().expect("a port");
        Self { process, address: (Ipv4Addr::LOCALHOST, port).into() }
    }

    #[track_caller]
    fn ask(&mut self, args: &[&str]) -> Vec<String> {
        self.process.ask(&serde_json::json!(args))
    }
}

impl Moto {
    /// Starts it, or takes one that was started before, and creates the bucket.
    #[track_caller]
    pub fn start() -> Self {
        let idle = lock(&IDLE).pop();
        let mut server = idle.unwrap_or_else(Server::start);
        server.ask(&["reset", BUCKET]);
        let address = server.address;
        Self { server: Some(Mutex::new(server)), address }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[track_caller]
    fn ask(&self, args: &[&str]) -> Vec<String> {
        lock(self.server.as_ref().expect("a server")).ask(args)
    }

    /// Stores a file under a name.
    pub fn put(&self, key: &str, file: &Path) {
        self.ask(&["put", BUCKET, key, &file.display().to_string()]);
    }

    /// Writes an object to a file.
    pub fn get(&self, key: &str, file: &Path) {
        self.ask(&["get", BUCKET, key, &file.display().to_string()]);
    }

    /// Stores all files below a directory, under a prefix and their paths in it.
    pub fn put_all(&self, prefix: &str, dir: &Path) {
        self.ask(&["put_all", BUCKET, prefix, &dir.display().to_string()]);
    }

    /// The names of the objects in the bucket.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        self.ask(&["keys", BUCKET])
    }

    /// What is in the bucket, as boto3 reads it: an object of JSON for each object, and one for each upload
    /// that was not completed.
    #[track_caller]
    pub fn objects(&self) -> Vec<serde_json::Value> {
        let lines = self.ask(&["list_all", BUCKET]);
        lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let server = self.server.take().and_then(|server| server.into_inner().ok());
        // After a test that failed, its answers may be those to earlier requests.
        if let Some(server) = server.filter(|_| !thread::panicking()) {
            lock(&IDLE).push(server);
        }
    }
}

/// The SHA-256 of a file, as coreutils find it.
#[track_caller]
pub fn sha256(path: &Path) -> String {
    let out = run(&mut program("/".as_ref(), "sha256sum", [path])).expect(0).out;
    out.split(' ').next().unwrap_or_default().to_owned()
}

fn text_of<'a>(object: &'a serde_json::Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_else(|| panic!("no {key} in {object}"))
}

/// Checks that the bucket has exactly these files, each once, whole, and with its checksum.
#[track_caller]
pub fn has_exactly(moto: &Moto, files: &[PathBuf]) {
    let objects = moto.objects();
    assert!(
        objects.iter().all(|one| one.get("upload").is_none()),
        "an upload was not completed: {objects:?}"
    );
    let mut found = BTreeMap::new();
    for object in &objects {
        let (key, sha256) = (text_of(object, "key"), text_of(object, "sha256"));
        assert_eq!(object["metadata"]["sha256"], sha256, "{key}");
        assert!(key.contains(&sha256[..16]), "{key} is named by its content");
        assert!(found.insert(sha256.to_owned(), key.to_owned()).is_none(), "{key} is there twice");
    }
    let expected: BTreeSet<_> = files.iter().map(|file| sha256(file)).collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected);
}

/// How often what goes wrong, in percent of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Answered with 503.
    pub unavailable: u64,
    /// The connection ends before all of the request was taken.
    pub cut_request: u64,
    /// The request is done, and its answer is not given.
    pub cut_answer: u64,
    /// Milliseconds that each request waits at most.
    pub delay: u64,
}

/// A request that came through.
#[derive(Clone, Debug)]
pub struct Request {
    /// `PUT`, `GET` and so on.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Its body's bytes.
    pub sent: u64,
    /// Bytes of the answer, with its head; none if it was not given.
    pub answered: u64,
    /// The status of the answer.
    pub status: u16,
}

struct Shared {
    upstream: SocketAddr,
    faults: Mutex<(Faults, Numbers)>,
    requests: Mutex<Vec<Request>>,
    /// Every answer, where it is not to come from upstream.
    answer: Mutex<Option<String>>,
    is_down: AtomicBool,
    is_closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A proxy for HTTP without encryption, one connection for each request.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Proxy {
    /// Starts one before a server.
    #[track_caller]
    pub fn start(upstream: SocketAddr, faults: Faults, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a port");
        let shared = Arc::new(Shared {
            upstream,
            faults: Mutex::new((faults, Numbers::new(seed))),
            requests: Mutex::default(),
            answer: Mutex::default(),
            is_down: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                // A connection that breaks is what tests want.
                thread::spawn(move || drop(shared.serve(client)));
            }
        });
        Self { shared, address }
    }

    /// Its address, as an endpoint.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets connections end as soon as they are made, as those to a server that is down; or no longer.
    pub fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Gives this answer to everything.
    pub fn answer(&self, text: &str) {
        *lock(&self.shared.answer) = Some(text.to_owned());
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.shared.faults).0 = faults;
    }

    /// All requests until now that came through or were refused.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// How many times each part of an upload in parts was taken.
    pub fn parts(&self) -> BTreeMap<u64, u64> {
        let mut parts = BTreeMap::new();
        for request in
            self.requests().iter().filter(|request| request.method == "PUT" && request.status == 200)
        {
            let query = request.target.split('?').nth(1).unwrap_or_default();
            if let Some(number) = query.split('&').find_map(|pair| pair.strip_prefix("partNumber=")) {
                *parts.entry(number.parse().expect("a number")).or_default() += 1;
            }
        }
        parts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// What happens to a request.
enum Fate {
    Passes,
    Unavailable,
    CutRequest,
    CutAnswer,
}

impl Shared {
    fn fate(&self) -> (Fate, Duration) {
        let (faults, numbers) = &mut *lock(&self.faults);
        let delay = Duration::from_millis(numbers.below(faults.delay + 1));
        let mut number = numbers.below(100);
        for (percent, fate) in [
            (faults.unavailable, Fate::Unavailable),
            (faults.cut_request, Fate::CutRequest),
            (faults.cut_answer, Fate::CutAnswer),
        ] {
            if number < percent {
                return (fate, delay);
            }
            number -= percent;
        }
        (Fate::Passes, delay)
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        if self.is_down.load(Ordering::SeqCst) {
            return client.shutdown(Shutdown::Both);
        }
        let mut reader = BufReader::new(client.try_clone()?);
        let mut head = String::new();
        let mut length = 0_u64;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || head.len() > HEAD {
                return Ok(());
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line == "\r\n" {
                break;
            }
            if !lower.starts_with("connection:") {
                head += &line;
            }
        }
        head += "Connection: close\r\n\r\n";
        let (fate, delay) = self.fate();
        thread::sleep(delay);
        let mut words = head.split(' ');
        let mut request = Request {
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            sent: length,
            answered: 0,
            status: 0,
        };
        let mut client = client;
        if matches!(fate, Fate::CutRequest) {
            io::copy(&mut reader.take(length / 2), &mut io::sink())?;
            return client.shutdown(Shutdown::Both);
        }
        let canned = match fate {
            Fate::Unavailable => {
                Some("HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned())
            }
            _ => lock(&self.answer).clone(),
        };
        if let Some(answer) = canned {
            io::copy(&mut reader.take(length), &mut io::sink())?;
            client.write_all(answer.as_bytes())?;
            request.status = status(answer.as_bytes());
            lock(&self.requests).push(request);
            return client.shutdown(Shutdown::Write);
        }
        let mut server = TcpStream::connect(self.upstream)?;
        server.write_all(head.as_bytes())?;
        io::copy(&mut reader.take(length), &mut server)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        request.status = status(&answer);
        if !matches!(fate, Fate::CutAnswer) {
            request.answered = answer.len() as u64;
        }
        lock(&self.requests).push(request);
        if matches!(fate, Fate::CutAnswer) {
            return client.shutdown(Shutdown::Both);
        }
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Write)
    }
}

/// The status in an answer's first line.
fn status(answer: &[u8]) -> u16 {
    let line = String::from_utf8_lossy(&answer[..answer.len().min(16)]).into_owned();
    line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
